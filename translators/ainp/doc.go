// Package ainp is the form of the AI-Native Network Protocol, version 0.1.0
// (draft-ainp-protocol-00, with what its reference code adds).
//
//	what                            here
//	INTENT FreeformNote, MESSAGE    Invoke.Turn <-> body or content, attachments by URL
//	INTENT RequestService           Invoke.Call <-> service_type, details
//	INTENT of any other type        Invoke.Call <-> the type, its semantics; ApprovalRequest from a caller is one of them
//	INTENT TaskQuery, TaskCancel, TaskAnswer   what is about a task, by task_id; a query without one lists, a cancel with intent_id is an Abort
//	RESULT success, failed          Result.Output <-> a text, or any JSON value
//	RESULT partial                  Result.Task, working; in a stream Event.Status with its words: the value that counts is the last one
//	INTENT NOTIFICATION             in a stream Event.Status or Log; else OpNotice
//	INTENT ApprovalRequest          from an agent: Event.Ask in a stream, Result.Pending in place of a reply
//	RESULT, ERROR as a request      Reply: the decision on an ApprovalRequest
//	ERROR, also shortened           Error, by the table in errors.go
//	DISCOVER, DISCOVER_RESULT       Page, CapabilityList; a match is a capability
//	DISCOVER with aepb.op, ADVERTISE DescribeRequest, Description
//	NEGOTIATE                       Native: judged, and relayed within AINP only
//	ACK, ADVERTISE, NOTIFICATION    OpNotice: kept whole
//	id, trace_id, intent_id         Correlation.WireID; an id that is no UUIDv4 is replaced by one made from it (L01)
//	thread_id, conversation_id      Conversation.ContextID
//	budget.timeout_ms               Deadline, from the timestamp
//	everything canonical that AINP lacks   carried in payload.aepb: parts, artifacts, state, history, ids, preferences, trace
//	everything of AINP that others lack    carried in Extensions["ainp-v1"]: qos, embedding, budget, trust, to_query, attestations
//	embedding of our own intents    left out: there is no model here
//	the signature                   dropped when the envelope changes (L09); the transport signs
//	payload.aepb.hitl_callback      Callback
//	payload.aepb.ect                the transport's: see Evidence and WithEvidence
//	payload.aepb.parent_jti         the transport's: see Parent; never written, since every envelope can hold its token
//	invocation profiles             P1: arguments of a message tool become a note; P3: a note binds to the only required text of a service
//	a stream, being asked           only over a connection that stays open (FormSocket); else declared lost, and not believed
//	task.subscribe, tasks/result    refused: a task is polled
//	INTENT AtdRollbackRequest       Signal (rollback): semantics.ect; answered with a RESULT whose result is {"ect": …}
//	RESULT as a request, result {"ect": …}   Signal (decision): intent_id is the approval
//	ping                            refused: AINP has none
//	more than 1 MiB of payload      refused
//
// Read ainp.go for the entry, wire.go for the envelope, decode.go and encode.go
// for what becomes of a message, then intent.go, result.go, event.go,
// question.go, task.go, discover.go and errors.go, each with both directions,
// and canonical.go for what is hashed and signed.
//
// An encoder says a message natively, reads that back as a peer would that
// knows nothing of gateways, and puts the difference into payload.aepb (package
// envelope). A decoder believes such an object only if the message then says
// natively what arrived.
//
// The codec signs nothing and knows no clock: sender, receiver and time come in
// Target.Stamp, replay and ttl are judged by the transport.
//
// AINP streams in the way of a reply (translators.StreamsReply): what is said on
// the way is notice, and the RESULT that is not partial says everything that
// counts. Pieces of artifacts are therefore not told to its callers (L04).
//
// Alternatives considered: an intent type of our own for everything (a peer
// without gateway could then understand nothing), and trace_id as the
// conversation (several agents start a new trace for each intent).
package ainp
