// Package lasting measures what lasts longer than a call: streams, open ones and
// fast ones, sessions that idle, and limits that replicas share.
//
//	stream    events per second, and the delay of one that is sent now and then, by
//	          a reverse proxy (the floor), by the gateway from A2A to A2A, and from
//	          A2A to an MCP client that asked for progress
//	sessions  resident memory of an idle native session, of 10,000
//	streams   resident memory of an open stream, of 2,000 at once
//	limits    requests per second with limits in Redis, and with limits of its own
//
// Every figure comes with its goal where there is one. Agents and callers live in
// the benchmark's process; the gateway has its own, whose memory is meant.
//
// How to read it: lasting.go has the figures and the bed, stream.go, many.go and
// limits.go measure.
//
// Alternative considered: the rounds of the package above. They compare calls that
// come one after the other; here things are held open.
package lasting
