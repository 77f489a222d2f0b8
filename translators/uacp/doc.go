// Package uacp is the form of µACP, in the bit layout of its author's reference
// implementation (profile miuacp; the draft's own layout may differ).
//
//	what                                 here
//	ASK /a2a/message/send                Invoke.Turn <-> the payload: one text, one JSON value, one file
//	ASK any topic of an agent's own      the same; the topic is To.Skill
//	ASK /mcp/tools/call                  Invoke.Call <-> a JSON-RPC tools/call, as the reference bridge has it
//	ASK /mcp/tools/list                  Page, CapabilityList <-> JSON-RPC tools/list
//	ASK /a2a/tasks/get, …/cancel         TaskQuery: the payload is {"id": …}; the topics are ours, as the reference has none
//	OBSERVE /a2a/tasks/ID                OpTaskSubscribe; an ID of 244 bytes at most, and no wildcard
//	reply to these three                 Result: a Task; NO_CONTENT to a cancellation is Done
//	ASK /a2a/tasks/list                  TaskFilter: nothing, or an object of context_id, state, after, cursor, page_size, include_artifacts
//	reply to it                          TaskList: {"tasks": […], "next": …, "page_size": …, "total": …}, each task in aepb's names, in either form
//	answers apart from messages          refused (unsupported_op)
//	ASK /.well-known/aepb                DescribeRequest, Description
//	reply, code below 40                 Result: Output, or a JSON-RPC result; ACCEPTED is a Task at work
//	reply, code from 40                  Error, by the table in codes.go; with aepb.kind a Result that failed
//	PING                                 OpPing
//	TELL                                 OpNotice: kept whole, relayed within µACP only
//	message id, Correlation-ID           Correlation.WireID; an id of another protocol gets a 24-bit alias
//	Conversation-ID                      Conversation.ContextID; a longer one is hashed and carried
//	a question                           a Task at work that says what it waits for, enveloped; a bare peer cannot be asked (capability_required)
//	what µACP cannot say                 enveloped: carried in {"body": …, "aepb": …}; bare: dropped, by code
//	CBOR and Protobuf payloads           a file of that media type, unread
//	other options                        kept, byte by byte, for the way home
//	OBSERVE of a topic that can be asked Invoke with Preferences.Stream
//	TELL that answers one                Event: with aepb.event a task, turn, status or artifact; else an artifact
//	reply to OBSERVE                     NO_CONTENT ends it, an error breaks it, ACCEPTED has begun it: see MarkOf
//	ASK /aepb/rollback, /aepb/hitl/ID    Signal: the payload is an ECT; the latter may be a TELL
//	aepb.hitl_callback                   Callback
//	aepb.ect                             the transport's: see Evidence and WithEvidence
//	aepb.parent_jti, of what arrives     the transport's: see Parent. It is hashed
//	aepb.parent_jti, of what leaves      the jti of the message's ECT (Target.Stamp), of a frame that may have no space for it
//	option 41 (OptParent), 16 bytes     the same of a request, in either form; it is not hashed, and written in the form tagged alone
//	QoS 2                                refused (unsupported_op); its frames can be read and written
//	other topics below /mcp /a2a /aepb /.well-known   refused (no_method)
//	more than 65535 bytes               refused (translators.ErrTooLarge): the reference names an option Block (07) and no use of it
//	the other protocol named uACP        refused
//
// Read uacp.go for the entry, frame.go for the bytes, decode.go, then encode.go
// and say.go for what becomes of a message, payload.go for what a payload says,
// observe.go for streams, task.go for tasks, signal.go for what is about a workflow, codes.go for
// statuses and evidence.go for what is hashed.
//
// The two reference codes disagree on replies, correlation and unknown options
// (the tests name which does what). What arrives is read as either means it.
// What leaves is what both read: content type and correlation of four bytes,
// an ASCII conversation id, each option once, nothing above type 09: the Python code
// refuses any other, so option 41 needs an operator who says that its agent takes it
// (FormTagged). With another length it is another vendor's, and kept as it came.
//
// An encoder says a message natively, reads that back as a plain peer would,
// and carries the difference (package envelope). A decoder believes an envelope
// only if the message then says natively what arrived.
//
// An event is said like a result that says as much, and aepb.event says which it
// is. Bare, only content is told, each TELL on its own, and what settles the
// work is the reply that ends the observation: the reference has no other end.
// Progress and log lines have no form. The order of events is that of their ids,
// which begin behind the request's: a seq in the envelope would be hashed.
//
// Alternatives considered: CBOR envelopes (half the size, and no library that
// keeps numbers exact), and the token's hash in vendor options (unread by every
// peer that exists, and the Python reference breaks on them; the jti alone, of which
// a peer can make the parent of its own token, is had where it is asked for).
package uacp
