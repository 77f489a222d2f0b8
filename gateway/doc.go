// Package gateway is the roof: the road that every message takes.
//
// Read exchange.go first; it is the whole way of one message on one screen.
// Then, in the order of the road:
//
//	limit.go, stages.go, reach.go   what comes before translation: limit, evidence, destination, policy
//	hops.go                         the way through another gateway, where there is none from here
//	choose.go                       what a message is for, under the agent's own name of it, and which dialogue
//	                                it belongs to
//	parent.go                       a message that only names the ECT that it came of; the way behind it
//	inside.go                       evidence in the body too, for peers that look nowhere else
//	attestation.go                  what package attest is told of an exchange; how messages are read
//	repeat.go                       the same answer to the same message (package idempotency); replies that may be
//	                                asked for again; lists of them
//	failure.go                      what is left behind when it goes wrong
//
// Most messages are answered with one reply, and that is all of it. Where more
// comes than that, exchange.go hands over to a run:
//
//	patience.go   how long an agent is waited for, and how its caller may be told; the pump asks
//	              an agent, and hands on what it says one thing at a time
//	run.go        hears that, adds it up, and knows when it is settled
//	follow.go     goes on when the agent's answer ends early: subscribes, asks again, cancels;
//	              and gives up where nothing changes
//	waiting.go    a run for a caller who wants one answer
//	telling.go    a run for a caller who wants a stream
//	keeping.go    a run on record, and without its caller; replicas that are lost
//	scope.go      what a request takes while it is under way; its cancellation, at whichever replica. Package
//	              worker runs what goes on in the background
//
// And where a message is about work that an earlier one began, whose record package task/store
// keeps for its caller, who alone may ask (R2):
//
//	task.go       get, list, cancel, subscribe: told from the record, or by the agent that has the task;
//	              a task that its caller knows in another way than its agent (MCP 2025-11-25 and the
//	              extension of 2026-07-28) is held here: told from the record, which a run keeps up
//	watch.go      work of another process, or connection, told from its record; the outcome of a held
//	              task, and what it asks until then, on one stream
//	made.go       what tasks have that are made of calls: times, and the caller's messages
//	question.go   what an agent asks, and the message that answers it; package consent holds
//	              the answers against the questions
//	asking.go     waits for the answer, hears meanwhile whether the agent still does, and gives it
//	              to the agent
//	push.go       webhooks that are told of changes, with the evidence of that. A configuration
//	              that comes with a message to an agent is registered for the task that the
//	              message begins, as soon as there is one, and the task is posted as it stands
//	              then; one that comes with a message to a task is registered before the agent
//	              is sent the message. An answer that is a message and no task has nothing to
//	              register for, as in A2A itself. So that each change is posted, an agent that
//	              streams is asked for a stream whatever its caller waits for. Progress of an agent's call is posted as an
//	              update of the status, at most every 250 ms and then the last one
//	takeover.go   goes on with that for a process that was lost; the first thing it posts is the whole
//	              task. Nothing else is known of the changes that the lost one recorded and did not
//	              post: a record holds how the task stands, and each write takes the place of the one
//	              before. So the whole task says all of them, in a form that A2A has for it (a
//	              StreamResponse with a task), and whoever reads it cannot tell which was posted before;
//	              only words of a status that another took the place of are not said again
//	pass.go       what only one protocol has, and what answers or stops what is under way
//	holding.go    what came of the work, to be listed and read later
//	news.go       what an agent says without being asked, where two revisions ask for it in different
//	              ways; hearing.go goes on asking, as long as somebody listens
//
// And what is about a workflow, and a token rather than a message:
//
//	signal.go     rollback requests and their results, relayed to the agent; decisions of humans
//	undo.go       rollbacks over HTTP, apart from doors and endpoints
//	callback.go   who waits for those, and is told
//
// A protocol joins in by three things: its codec reads and writes
// canonical.Signal (OpRollback, OpDecision) and canonical.Message.Callback and
// says so (translators.Signaler); its door submits the token of a signal with
// the rest of the evidence (transport.Submitted); its dialer sends it like any
// message. The road verifies the token, demands that its issuer was party to
// what its parents came of, puts it on record, and answers with a translation each way;
// a protocol without a form for it is L36, without one for callbacks L38, and
// decisions are then told from here (Gateway.Await registers by any other way).
// A2A and MCP have none of their own: their callers and agents use ATD's, apart from
// doors and endpoints (translators/rollback, transport/rollback). A rollback request
// that came that way is answered once more with the same answer for 30 days; one
// that came in a protocol's own form only while its token lives.
//
// A run belongs to one goroutine at a time. Its caller's has it first: inside
// Exchange, and then inside Next and Close of the stream that Exchange returned,
// which take turns by a lock. handOver gives it to a worker, and is the last
// thing that the giver does with it. Others never touch a run: they send it control
// messages, and read its record, which every writer swaps by revision.
//
// Data moves forward only. Order is kept by proof-carrying values rather than
// by care: a translation demands a policy.Permit, which only policy.Evaluate mints from
// ect.Verified values, and nothing leaves without a transport.Sealed, which
// only exists for bytes that a recorded ECT covers.
package gateway
