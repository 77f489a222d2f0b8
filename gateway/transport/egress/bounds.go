package egress

import (
	"maps"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"
)

// How many posts to one host may fail, tries again included: so many at once,
// and then one more as often as this. A host that takes its posts has no bound.
const (
	maxFailures  = 60
	failureEvery = time.Second
	maxFailing   = 4096 // hosts whose failures are counted
)

// failures counts the posts that hosts did not take, so that callers cannot
// have a host flooded that wants none of their posts. The zero value is ready.
type failures struct {
	mu    sync.Mutex
	hosts map[string]time.Time // when the last failure will be forgotten
}

// allow reports whether a post may be sent to a host.
func (f *failures) allow(host string, now time.Time) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.hosts[strings.ToLower(host)].Sub(now) <= (maxFailures-1)*failureEvery
}

// add counts a failure. Of too many hosts, one whose failures are forgotten
// already makes room, else any.
func (f *failures) add(host string, now time.Time) {
	f.mu.Lock()
	defer f.mu.Unlock()
	host = strings.ToLower(host)
	if f.hosts == nil {
		f.hosts = map[string]time.Time{}
	}
	until, known := f.hosts[host]
	if !known && len(f.hosts) >= maxFailing {
		f.makeRoom(now)
	}
	if until.Before(now) {
		until = now
	}
	f.hosts[host] = until.Add(failureEvery)
}

func (f *failures) makeRoom(now time.Time) {
	maps.DeleteFunc(f.hosts, func(_ string, until time.Time) bool { return until.Before(now) })
	for host := range f.hosts {
		if len(f.hosts) < maxFailing {
			return
		}
		delete(f.hosts, host)
	}
}

// maxReached bounds the addresses that are remembered.
const maxReached = 1 << 14

// reached is the addresses of hosts that the operator named, as they were when
// these were called. The zero value is ready.
type reached struct {
	mu sync.RWMutex
	at map[string][]target // by address:port, the hosts that were called there
}

func (r *reached) add(host target, addresses []netip.Addr) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.at == nil || len(r.at) >= maxReached {
		r.at = map[string][]target{}
	}
	for _, address := range addresses {
		at := net.JoinHostPort(address.String(), host.port)
		if hosts := r.at[at]; !slices.Contains(hosts, host) && len(hosts) < maxReached {
			r.at[at] = append(hosts, host)
		}
	}
}

// Reached reports whether an "address:port" is one at which a host has been called that
// the operator names still: other addresses may belong to others by now.
func (g *Guard) Reached(hostport string) bool {
	g.reached.mu.RLock()
	defer g.reached.mu.RUnlock()
	return slices.ContainsFunc(g.reached.at[hostport], g.grants.named)
}
