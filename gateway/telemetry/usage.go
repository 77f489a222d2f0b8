package telemetry

import (
	"sync"

	"github.com/aepb/aepb-gateway/policy/quota"
)

// Use is how much is taken of what has a bound.
type Use struct {
	Bytes float64 // of memory, as the bound of all memory counts; negative: they are not of this process
	Ratio float64 // of the bound, of the number or of the bytes
}

// UseOf is the use of pools that bound one thing, of which each takes so many bytes: the
// bytes of all, and the ratio of the fullest.
func UseOf(each int64, pools ...quota.Usage) (out Use) {
	for _, u := range pools {
		out.Bytes += float64(u.Used * each)
		out.Ratio = max(out.Ratio, u.Ratio())
	}
	return out
}

// usage is asked for at every scrape.
type usage struct {
	mu sync.Mutex
	of []func() map[string]Use
}

// Uses has f asked at every scrape what is taken, by kind. A kind that is on no list
// shows as other.
func (m *Metrics) Uses(f func() map[string]Use) {
	if m == nil {
		return
	}
	m.usage.mu.Lock()
	defer m.usage.mu.Unlock()
	m.usage.of = append(m.usage.of, f)
}

func (u *usage) all() map[string]Use {
	u.mu.Lock()
	defer u.mu.Unlock()
	out := map[string]Use{}
	for _, f := range u.of {
		for kind, use := range f() {
			label := used.label(kind)
			before := out[label]
			out[label] = Use{before.Bytes + use.Bytes, max(before.Ratio, use.Ratio)}
		}
	}
	return out
}

// each asks for one value of every kind that has it.
func (u *usage) each(value func(Use) float64) func() map[string]float64 {
	return func() map[string]float64 {
		out := map[string]float64{}
		for kind, use := range u.all() {
			if v := value(use); v >= 0 {
				out[kind] = v
			}
		}
		return out
	}
}
