// Package lasting measures what lasts longer than a call: open streams, fast
// streams, idle sessions, and limits that replicas share.
//
//	stream    events per second, and the delay of an event that is sent now and then, by
//	          a reverse proxy (the floor), by the gateway from A2A to A2A, and from
//	          A2A to an MCP client that asked for progress
//	sessions  resident memory of an idle native session, of 10,000
//	streams   resident memory of an open stream, of 2,000 at once
//	limits    requests per second with limits in Redis, and with limits in the process
//
// A figure that has a goal is printed with it. Agents and callers run in the
// benchmark's process; the gateway runs in its own, and the memory is that of the gateway.
//
// How to read it: lasting.go has the figures and starts the processes; stream.go, many.go
// and limits.go measure.
//
// Alternative considered: the rounds of package bench. They compare calls that
// follow each other; here streams and sessions stay open.
package lasting
