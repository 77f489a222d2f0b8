// Package gateway is the pipeline that each message takes from its caller to an agent and
// back (architecture section 5).
//
// Read pipeline.go first. Packages do the steps: admission, destination,
// routing, attest, outbound. Here they are put together:
//
//	pipeline.go exchange.go          the steps of one message; the message, its request and its reply
//	attestation.go                   what package attest is told of them
//	mode.go patience.go              how both sides stream, ask and keep tasks; how long an agent is waited for
//	settle.go repeat.go              what a failure leaves, cancellation; replies that are kept (R6), lists
//
// What one reply does not answer becomes a run, which one goroutine uses at a time:
//
//	run.go follow.go                 hears the agent, adds up, goes on when its answer ends early
//	waiting.go telling.go            one answer, or a stream, for its caller
//	asking.go question.go            what the agent asks, and the message that answers it
//	keeping.go                       the run on record and without its caller
//
// Inside Exchange, and inside Next and Close of the stream that it returned, the run is its
// caller's. handOver gives it to a worker and is the last thing that the giver does with it.
// Other requests send it control messages, and read its record, which each writer swaps.
//
// Messages about work that an earlier one began are answered from its record (package
// task/store), which its caller alone may ask for (R2):
//
//	task.go watch.go                 get, list, cancel, subscribe; told from the record, or by the agent
//	push.go                          webhooks (package webhook), also for a lost replica (package task): the task
//	                                 as a whole is posted first, since what was posted is not known
//	pass.go news.go hearing.go       what only one protocol has; notifications across revisions of MCP
//	signal.go                        rollbacks, and decisions of humans (packages rollback, webhook)
//
// A protocol takes part in signals with its codec (translators.Signaler), its server, which
// submits the token with the rest of the evidence (transport.Submitted), and its dialer. A
// protocol without a form for them is L36, without one for callbacks L38. A2A and MCP use
// ATD's form over HTTP, apart from endpoints (translators/rollback).
//
// The order of the steps is kept by values rather than by care: a translation demands a
// policy.Permit, which only policy.Evaluate makes of ect.Verified values, and what leaves is
// transport.Attested, which exists only for bytes that a recorded ECT covers.
package gateway
