// Package gateway is the pipeline that each message takes from its caller to an agent and
// back (architecture section 5).
//
// Read pipeline.go first. Packages do the steps: admission, destination,
// routing, attest, outbound. Here they are put together:
//
//	pipeline.go                      the steps of one message
//	request.go mode.go               the message on its way, and what follows from it: values, no calls
//	place.go                         what is asked before a message leaves: gates of a plan, a place at its agent
//	prepare.go agent.go              what is sealed for the agent; what is sent to it and read of it
//	settle.go                        what a failure leaves; cancellation
//	caller.go push.go                what the caller is told, and what is kept for it; webhooks (package webhook)
//	exchange.go                      conversations: one request and all that answers it
//
// pipeline.go calls the files below it; each of those calls only lines above its own. What one
// reply does not answer becomes an execution (package task/execution), which reaches its agent and its
// caller through agent.go and caller.go. Messages about work that an earlier one began are answered by package task, from the
// record, which its caller alone may ask for (R2); it reaches the pipeline through exchange.go.
//
//	pass.go                          what only one protocol has; rollbacks, and decisions of humans
//	news.go                          notifications across revisions of MCP
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
