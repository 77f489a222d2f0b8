package breaker_test

import (
	"slices"
	"time"

	"github.com/aepb/aepb-gateway/lifecycle/breaker"
)

// twin is the same breaker, as simple as can be: a list of all that ever happened, in
// order. Whatever is asked of it, it goes through the whole list once more.
type twin struct {
	c    breaker.Config
	list []fact
}

type kind uint8

const (
	sample  kind = iota // a call counted
	tripped             // too many failed
	probe               // a probe began
	failed              // it failed or was lost
	taught              // it taught nothing
	closed              // it succeeded
	adopted             // another replica knew more
	slowed              // its cool-downs are the longest until it closes
	nothing             // something was asked, and changed nothing
)

type fact struct {
	kind   kind
	at     time.Time
	bad    bool // of a sample: the call failed
	shared breaker.Shared
}

func (w *twin) add(k kind, at time.Time) { w.list = append(w.list, fact{kind: k, at: at}) }

// turn is the newest fact that set the state, and its place; -1: it is as new.
func (w *twin) turn() (int, fact) {
	for i, f := range slices.Backward(w.list) {
		if f.kind != sample && f.kind != nothing {
			return i, f
		}
	}
	return -1, fact{kind: closed}
}

func (w *twin) state() breaker.State {
	switch _, f := w.turn(); f.kind {
	case probe:
		return breaker.HalfOpen
	case closed:
		return breaker.Closed
	case adopted, slowed:
		return f.shared.State
	default:
		return breaker.Open
	}
}

// run is what has been since it opened: how long the cool-down is, and how many probes
// failed.
func (w *twin) run() (cooldown time.Duration, probes int) {
	for _, f := range w.list {
		switch f.kind {
		case tripped:
			cooldown, probes = w.c.Cooldown, 0
		case failed:
			cooldown, probes = min(2*cooldown, w.c.MaxCooldown), probes+1
		case closed:
			cooldown, probes = 0, 0
		case slowed:
			cooldown = w.c.MaxCooldown
		case adopted:
			cooldown, probes = f.shared.Cooldown, f.shared.FailedProbes
		default:
		}
	}
	return cooldown, probes
}

// until is when the state lets the next one through: so long after the change, and never
// further from any moment since than that.
func (w *twin) until() time.Time {
	i, f := w.turn()
	limit, _ := w.run()
	if w.state() == breaker.HalfOpen {
		limit = w.c.ProbeLimit
	}
	end := f.at.Add(limit)
	switch {
	case w.state() == breaker.Closed:
		return time.Time{}
	case f.kind == taught:
		end = f.at.Add(time.Second)
	case f.kind == adopted || f.kind == slowed:
		end = f.shared.Until
	}
	for _, later := range w.list[i:] {
		if latest := later.at.Add(limit); latest.Before(end) {
			end = latest
		}
	}
	return end
}

// changedAt is the time of the newest change as replicas order them.
func (w *twin) changedAt() (at time.Time) {
	for _, f := range w.list {
		switch {
		case f.kind == sample || f.kind == nothing:
		case f.kind == adopted:
			at = f.shared.At
		case f.at.After(at):
			at = f.at
		default:
			at = at.Add(time.Nanosecond)
		}
	}
	return at
}

// counted goes through the samples since it closed. One that comes with an earlier time
// counts at the newest; if that is more than a window ago, all before it are forgotten.
func (w *twin) counted() (failures, samples int, inOrder bool) {
	var list []fact
	for _, f := range w.list {
		switch {
		case f.kind == sample:
			inOrder = true
			if n := len(list); n > 0 && f.at.Before(list[n-1].at) {
				inOrder = false
				if list[n-1].at.Sub(f.at) > w.c.Window {
					list = nil
				} else {
					f.at = list[n-1].at
				}
			}
			list = append(list, f)
		case f.kind == adopted && f.shared.State == breaker.Closed && len(list) > 0:
			// closed before and after: nothing is forgotten; from open there is nothing to forget
		case f.kind != nothing:
			list = nil
		}
	}
	for _, f := range list {
		size := int64(w.c.Window / 60)
		if newest := list[len(list)-1].at; newest.UnixNano()/size-f.at.UnixNano()/size < 60 {
			samples++
			if f.bad {
				failures++
			}
		}
	}
	return failures, samples, inOrder
}

func (w *twin) shared() breaker.Shared {
	cooldown, probes := w.run()
	return breaker.Shared{State: w.state(), Until: w.until(), Cooldown: cooldown, FailedProbes: probes, At: w.changedAt()}
}

func (w *twin) probeFailed(at time.Time) breaker.Change {
	w.add(failed, at)
	cooldown, probes := w.run()
	return breaker.Change{
		From: breaker.HalfOpen, To: breaker.Open, Failures: 1, Samples: 1, Window: w.c.Window,
		Cooldown: cooldown, FailedProbes: probes,
	}
}

func (w *twin) ask(at time.Time) (breaker.Verdict, breaker.Change) {
	w.add(nothing, at)
	before := w.state()
	change := breaker.Change{From: before, To: before}
	if before == breaker.Closed {
		return breaker.Verdict{Pass: true}, change
	}
	over := !at.Before(w.until())
	if before == breaker.Open && over {
		w.add(probe, at)
		cooldown, probes := w.run()
		return breaker.Verdict{Pass: true, Probe: true},
			breaker.Change{From: breaker.Open, To: breaker.HalfOpen, Cooldown: cooldown, FailedProbes: probes}
	}
	if over {
		change = w.probeFailed(at)
	}
	wait := time.Second
	for until := w.until(); at.Add(wait).Before(until); {
		wait += time.Second
	}
	return breaker.Verdict{Wait: wait}, change
}

func (w *twin) report(at time.Time, o breaker.Outcome, isProbe bool) breaker.Change {
	w.add(nothing, at)
	before := w.state()
	change := breaker.Change{From: before, To: before}
	switch {
	case before == breaker.Closed && o != breaker.Unknown:
		w.list = append(w.list, fact{kind: sample, at: at, bad: o == breaker.Failure})
		failures, samples, inOrder := w.counted()
		if inOrder && samples >= w.c.MinSamples && failures*1000 > w.c.Threshold*samples {
			w.add(tripped, at)
			change.To, change.Failures, change.Samples = breaker.Open, failures, samples
			change.Window, change.Cooldown = w.c.Window, w.c.Cooldown
		}
	case before != breaker.HalfOpen || !isProbe:
	case o == breaker.Failure || o == breaker.Success && !at.Before(w.until()):
		return w.probeFailed(at)
	case o == breaker.Success:
		change.To = breaker.Closed
		change.Cooldown, change.FailedProbes = w.run()
		w.add(closed, at)
	default:
		change.To = breaker.Open
		change.Cooldown, _ = w.run()
		w.add(taught, at)
	}
	return change
}

// slow notes as of when the state ends after it.
func (w *twin) slow(at time.Time) {
	w.add(nothing, at)
	cooldown, _ := w.run()
	if w.state() == breaker.Closed || cooldown == w.c.MaxCooldown {
		return
	}
	end := w.until()
	if w.state() == breaker.Open {
		end = end.Add(w.c.MaxCooldown - cooldown)
	}
	w.list = append(w.list, fact{kind: slowed, at: at, shared: breaker.Shared{State: w.state(), Until: end}})
}

func (w *twin) adopt(at time.Time, s breaker.Shared) breaker.Change {
	w.add(nothing, at)
	before := w.state()
	weight := map[breaker.State]int{breaker.Closed: 0, breaker.HalfOpen: 1, breaker.Open: 2}
	own := w.changedAt()
	if s.At.After(own) || s.At.Equal(own) && weight[s.State] > weight[before] {
		w.list = append(w.list, fact{kind: adopted, at: at, shared: s})
	}
	return breaker.Change{From: before, To: w.state()}
}
