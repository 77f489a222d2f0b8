package config

import (
	"cmp"
	"time"

	"github.com/aepb/aepb-gateway/gateway/transport/accept"
	"github.com/aepb/aepb-gateway/gateway/transport/inflight"
	"github.com/aepb/aepb-gateway/gateway/transport/stdio"
)

// Defaults of [Limits], and of what follows from limits.memory_mib those that go with
// 768 MiB.
const (
	defaultConnections    = 768
	defaultSockets        = 64 // of µACP, and of AINP
	defaultBackground     = 256
	defaultEvidenceMiB    = 36
	defaultEvidenceOnDisk = 24 << 30 // bytes, with path: a day of one caller at the default rate
	defaultRecordsMiB     = 32
	defaultAnswersMiB     = 12
	defaultReplays        = 475_000
	defaultConversations  = 1 << 16
	defaultFirstRequest   = 10 * time.Second
	strangerIdle          = 5 * time.Second
	devStrangerIdle       = 2 * time.Minute
	defaultRequests       = 512
	defaultStreams        = 512
	defaultInFlightMiB    = 32
	defaultOldSSEMiB      = 4
	allMCPStreams         = 4096
	defaultShare          = 4
	defaultBodyWait       = 10 * time.Second
	defaultWriteWait      = 30 * time.Second
)

// mostOfLimit is more than any limit of one process needs to be.
const mostOfLimit = 1 << 20

// largestMessage is as much as one message may have in flight, with what is counted besides.
const largestMessage = 17 << 20

// Accept is the limits of connections in the words of package accept. In a development
// gateway one caller is everybody, and need not have a certificate.
func (c Config) Accept(dev bool) accept.Config {
	l := c.Limits
	total := l.connections()
	perAddress, perIdentity, idle := max(1, total/8), l.part(total), strangerIdle
	if dev {
		perAddress, idle = total, devStrangerIdle
		if l.Share == 0 {
			perIdentity = total
		}
	}
	out := accept.Config{
		Connections: total, PerAddress: perAddress, PerIdentity: perIdentity,
		FirstRequest: time.Duration(cmp.Or(l.FirstRequest, Duration(defaultFirstRequest))), StrangerIdle: idle,
		WriteWait: time.Duration(cmp.Or(l.WriteWait, Duration(defaultWriteWait))),
	}
	if l.ConnectionsPerAddress != nil {
		out.PerAddress = *l.ConnectionsPerAddress
	}
	return out
}

// part is what one caller has of a limit: by default a quarter, because one SPIFFE id is a
// whole deployment, of some hundreds of processes with a few requests and streams each.
func (l Limits) part(total int) int { return max(1, total/cmp.Or(l.Share, defaultShare)) }

func (l Limits) connections() int { return cmp.Or(l.Connections, l.scaled(defaultConnections)) }
func (l Limits) streams() int     { return cmp.Or(l.Streams, l.scaled(defaultStreams)) }

// Sockets are bounds of connections that stay open, of µACP or of AINP, with defaults.
func (c Config) Sockets(b ConnectionBounds) ConnectionBounds {
	b.Total, b.Unidentified = cmp.Or(b.Total, c.Limits.scaled(defaultSockets)), cmp.Or(b.Unidentified, c.Limits.scaled(defaultSockets))
	b.PerCaller, b.PerAddress = cmp.Or(b.PerCaller, max(1, b.Total/2)), cmp.Or(b.PerAddress, max(1, b.Unidentified/4))
	return b
}

// Background is how many tasks may go on without a waiting request, in all and of one caller.
func (l Limits) Background() (total, perCaller int) {
	total = cmp.Or(l.AllWorkers, l.scaled(defaultBackground))
	return total, l.part(total)
}

// Processes bound the programs of agents.
func (l Limits) Processes() stdio.Limits {
	total := cmp.Or(l.Programs, stdio.DefaultTotal)
	return stdio.Limits{Total: total, PerCaller: l.part(total), Idle: time.Duration(l.ProgramIdle)}
}

// OldSSE is how many bytes of requests over HTTP with SSE (MCP 2024-11-05) may be under way.
func (l Limits) OldSSE() int64 { return int64(l.scaled(defaultOldSSEMiB)) << 20 }

// MCPStreams is how many streams of MCP sessions one caller may have open.
func (l Limits) MCPStreams() int { return l.part(min(allMCPStreams, l.streams())) }

// InFlight is the limits of what requests hold, in the words of package inflight. Unless
// the file says the share of a caller, one largest message fits in it.
func (c Config) InFlight() inflight.Config {
	l := c.Limits
	requests, streams := cmp.Or(l.Requests, l.scaled(defaultRequests)), l.streams()
	total := int64(cmp.Or(l.InFlightMiB, l.scaled(defaultInFlightMiB))) << 20
	least := int64(largestMessage)
	if l.Share > 0 {
		least = 1 << 20
	}
	return inflight.Config{
		Requests: requests, RequestsPerCaller: l.part(requests),
		Streams: streams, StreamsPerCaller: l.part(streams),
		Bytes: total, BytesPerCaller: min(total, max(least, total/int64(cmp.Or(l.Share, defaultShare)))),
		BodyWait:  time.Duration(cmp.Or(l.BodyWait, Duration(defaultBodyWait))),
		WriteWait: time.Duration(cmp.Or(l.WriteWait, Duration(defaultWriteWait))),
	}
}

// How long a gateway goes on after a signal to stop, unless the file says it.
const (
	defaultShutdownDelay = Duration(5 * time.Second)
	defaultShutdownGrace = Duration(20 * time.Second)
	devShutdownGrace     = Duration(5 * time.Second)
)

// Shutdown is how long everything goes on after a signal to stop, and how long the
// work under way may last after that (R16). A development gateway has no load balancer
// that must notice.
func (c Config) Shutdown(dev bool) (delay, grace time.Duration) {
	wait, last := defaultShutdownDelay, defaultShutdownGrace
	if dev {
		wait, last = 0, devShutdownGrace
	}
	if c.ShutdownDelay != nil {
		wait = *c.ShutdownDelay
	}
	return time.Duration(wait), time.Duration(cmp.Or(c.ShutdownGrace, last))
}
