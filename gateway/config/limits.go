package config

import (
	"strconv"
	"time"

	"github.com/aepb/aepb-gateway/gateway/transport/accept"
	"github.com/aepb/aepb-gateway/gateway/transport/inflight"
)

// Defaults of [Limits].
const (
	defaultConnections  = 8192
	defaultFirstRequest = 10 * time.Second
	strangerIdle        = 5 * time.Second
	devStrangerIdle     = 2 * time.Minute
	defaultRequests     = 4096
	defaultStreams      = 4096
	defaultInFlightMiB  = 256
	defaultShare        = 4
	allMCPStreams       = 4096
	defaultBodyWait     = 10 * time.Second
	defaultWriteWait    = 30 * time.Second
)

// mostOfLimit is more than any limit of one process needs to be.
const mostOfLimit = 1 << 20

// Accept is the limits of connections in the words of package accept. In a development
// gateway one caller is everybody, and need not have a certificate.
func (c Config) Accept(dev bool) accept.Config {
	l := c.Limits
	total := orElse(l.Connections, defaultConnections)
	perAddress, perIdentity, idle := max(1, total/8), l.part(total), strangerIdle
	if dev {
		perAddress, idle = total, devStrangerIdle
		if l.Share == 0 {
			perIdentity = total
		}
	}
	out := accept.Config{
		Connections: total, PerAddress: perAddress, PerIdentity: perIdentity,
		FirstRequest: time.Duration(orElse(l.FirstRequest, Duration(defaultFirstRequest))), StrangerIdle: idle,
		WriteWait: time.Duration(orElse(l.WriteWait, Duration(defaultWriteWait))),
	}
	if l.ConnectionsPerAddress != nil {
		out.PerAddress = *l.ConnectionsPerAddress
	}
	return out
}

// part is what one caller has of a limit: by default a quarter, because one SPIFFE id is a
// whole deployment, of some hundreds of processes with a few requests and streams each.
func (l Limits) part(total int) int { return max(1, total/orElse(l.Share, defaultShare)) }

// Background is how many tasks may go on without a waiting request, in all and of one caller.
func (l Limits) Background() (total, perCaller int) {
	total = orElse(l.AllWorkers, maxWorkers)
	return total, l.part(total)
}

// MCPStreams is how many streams of MCP sessions one caller may have open.
func (l Limits) MCPStreams() int { return l.part(allMCPStreams) }

// InFlight is the limits of what requests hold, in the words of package inflight.
func (c Config) InFlight() inflight.Config {
	l := c.Limits
	requests, streams := orElse(l.Requests, defaultRequests), orElse(l.Streams, defaultStreams)
	total := orElse(l.InFlightMiB, defaultInFlightMiB)
	return inflight.Config{
		Requests: requests, RequestsPerCaller: l.part(requests),
		Streams: streams, StreamsPerCaller: l.part(streams),
		Bytes: int64(total) << 20, BytesPerCaller: max(1<<20, int64(total)<<20/int64(orElse(l.Share, defaultShare))),
		BodyWait:  time.Duration(orElse(l.BodyWait, Duration(defaultBodyWait))),
		WriteWait: time.Duration(orElse(l.WriteWait, Duration(defaultWriteWait))),
	}
}

func orElse[T comparable](value, otherwise T) T {
	var zero T
	if value == zero {
		return otherwise
	}
	return value
}

// check finds numbers that are no limits, and shares that are larger than what
// they are a share of.
func (l Limits) check(say func(path, reason string)) {
	perAddress := 0
	if l.ConnectionsPerAddress != nil {
		perAddress = *l.ConnectionsPerAddress
	}
	for _, limit := range []struct {
		key   string
		value int
		most  int
	}{
		{"connections", l.Connections, mostOfLimit},
		{"connections_per_address", perAddress, orElse(l.Connections, defaultConnections)},
		{"requests", l.Requests, mostOfLimit},
		{"streams", l.Streams, mostOfLimit},
		{"in_flight_mib", l.InFlightMiB, mostOfLimit},
	} {
		if limit.value < 0 || limit.value > limit.most {
			say("$.limits."+limit.key, "not negative, and not above "+strconv.Itoa(limit.most))
		}
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
	return time.Duration(wait), time.Duration(orElse(c.ShutdownGrace, last))
}
