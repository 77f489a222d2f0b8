package egress

import (
	"maps"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/aepb/aepb-gateway/ect"
)

// How many posts of one caller to one host may fail, tries again included: so
// many at once, and then one more as often as this. Of all callers together
// manyCallers times as many may. A host that takes its posts has no bound.
const (
	maxFailures  = 60
	failureEvery = time.Second
	manyCallers  = 16
	maxFailing   = 256                      // hosts at which posts of one caller may fail at a time, and callers whose failures are counted apart
	maxHosts     = maxFailing * manyCallers // whose failures are counted
)

// failures counts the posts that hosts did not take, so that callers cannot
// have a host flooded that wants none of their posts, nor have those of others
// refused there. The zero value is ready.
type failures struct {
	mu      sync.Mutex
	hosts   untils
	callers map[ect.Identity]untils
}

// allow reports whether a post of a caller may be sent to a host.
func (f *failures) allow(host string, caller ect.Identity, now time.Time) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	host = strings.ToLower(host)
	own := f.callers[caller]
	return own.counts(host, now, maxFailing) && own.allow(host, now) && f.hosts.allow(host, now)
}

// add counts a failure. What is not forgotten yet gives no place to others: where
// there is none, it counts for the host alone, or not at all.
func (f *failures) add(host string, caller ect.Identity, now time.Time) {
	f.mu.Lock()
	defer f.mu.Unlock()
	host = strings.ToLower(host)
	if f.hosts == nil {
		f.hosts, f.callers = untils{}, map[ect.Identity]untils{}
	}
	if len(f.callers) >= maxFailing {
		maps.DeleteFunc(f.callers, func(_ ect.Identity, u untils) bool { return u.forget(now) == 0 })
	}
	if f.callers[caller] == nil && len(f.callers) < maxFailing {
		f.callers[caller] = untils{}
	}
	f.callers[caller].add(host, now, failureEvery, maxFailing)
	f.hosts.add(host, now, failureEvery/manyCallers, maxHosts)
}

// untils are when the last failure at each host will be forgotten.
type untils map[string]time.Time

func (u untils) allow(host string, now time.Time) bool {
	return u[host].Sub(now) <= (maxFailures-1)*failureEvery
}

// counts reports whether there is a place for a host, of so many.
func (u untils) counts(host string, now time.Time, most int) bool {
	_, known := u[host]
	return known || len(u) < most || u.forget(now) < most
}

// forget drops what is over, and returns how many hosts are left.
func (u untils) forget(now time.Time) int {
	maps.DeleteFunc(u, func(_ string, until time.Time) bool { return !until.After(now) })
	return len(u)
}

func (u untils) add(host string, now time.Time, lasts time.Duration, most int) {
	if u == nil || !u.counts(host, now, most) {
		return
	}
	until := u[host]
	if until.Before(now) {
		until = now
	}
	u[host] = until.Add(lasts)
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
