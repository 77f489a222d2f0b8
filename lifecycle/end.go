package lifecycle

import (
	"slices"
	"time"
)

// Grace is how long an agent that drains is not retired yet after its last work, or after an operator
// has ordered to retire it: until then an order takes the drain back.
const Grace = 10 * time.Minute

// regrace is how much longer the grace is set when work ends it early, so that it is not stored anew at each look.
const regrace = 30 * time.Second

// Step is how far the graceful end of an agent has come (AEPB, "Graceful Shutdown"). The zero
// Step is that of an agent that does not end, or whose end has just been ordered.
type Step uint8

// The steps, in their order; after them the status is Retired.
const (
	Announced Step = iota + 1 // the capability document says draining and sunset_at
	Refusing                  // new delegations are refused
	Finished                  // no work is left: the grace has begun
	Retiring                  // an operator has ordered to retire it: the grace ends also where work is left
	Ended                     // aepb:shutdown is signed
)

var steps = []string{"", "announced", "refusing", "finished", "retiring", "ended"}

// String is the step's name; empty for the zero Step and for one that does not exist.
func (s Step) String() string {
	if int(s) < len(steps) {
		return steps[s]
	}
	return ""
}

// MarshalText writes the step's name.
func (s Step) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// UnmarshalText reads the step's name, or refuses it with a [*RecordError].
func (s *Step) UnmarshalText(text []byte) error {
	at := slices.Index(steps, string(text))
	if at < 1 {
		return &RecordError{"step is not announced, refusing, finished, retiring or ended"}
	}
	*s = Step(at) //nolint:gosec // an index of six names
	return nil
}

// Next is what a draining agent does next: the record as it stands when that is done, and the
// step that it then has reached. false: there is nothing to do, now (work is left, or the grace is not
// over) or at all (the agent does not drain).
//
// Do what the step says, then swap the record in. If the process dies between the two, the next
// one asks Next again and does the same step again. Ended and Retired clear Token: sign (the
// claims of [Shutdown], those of the change), put the token into the record, swap it in, and
// only then announce it, so that a second replica announces the same token and does not sign again.
//
// Finished begins the grace, and work that comes after it begins the grace again: FinalAt is never
// earlier than [Grace] after the last work, unless the order was one without a grace. After Ended, or
// after Retiring where work is left, comes the transition to retired, with the next term. Its reason
// and By stay those of the last order; set At to the time. [Record.ChangeFrom] says what is to be signed.
func (r Record) Next(workLeft bool, now time.Time) (Record, Step, bool) {
	next := r
	switch {
	case r.Status != Draining || r.Step > Ended:
		return r, r.Step, false
	case r.Step == Ended:
		return retired(next)
	case r.Step < Refusing:
		next.Step++
		return next, next.Step, true
	case r.Step == Retiring && now.Before(r.FinalAt):
		return r, r.Step, false
	case r.Step == Retiring && workLeft:
		return retired(next) // without a shutdown: it was not graceful
	case r.Step == Retiring:
		next.Step, next.Token = Ended, ""
		return next, next.Step, true
	}
	return r.waits(workLeft, now)
}

// waits is Next of an agent that refuses new work and waits for the end of what is under way, and of the grace.
func (r Record) waits(workLeft bool, now time.Time) (Record, Step, bool) {
	next := r
	switch {
	case r.Step == Refusing && !workLeft:
		next.Step = Finished
		if !r.withoutGrace() {
			next.FinalAt = instant(now.Add(Grace))
		}
	case r.Step == Refusing:
		return r, r.Step, false
	case r.FinalAt.IsZero(), workLeft && !r.withoutGrace() && r.FinalAt.Before(now.Add(Grace)):
		next.FinalAt = instant(now.Add(Grace + regrace))
	case workLeft || now.Before(r.FinalAt):
		return r, r.Step, false
	default:
		next.Step, next.Token = Ended, ""
	}
	return next, next.Step, true
}

func retired(r Record) (Record, Step, bool) {
	r.Status, r.Term, r.Token = Retired, r.Term+1, ""
	return r, r.Step, true
}

// withoutGrace reports whether the order to drain said that the agent is to be retired as soon as its work ends.
func (r Record) withoutGrace() bool { return !r.FinalAt.IsZero() && !r.FinalAt.After(r.At) }

// ChangeFrom is the transition from a record to this one, its successor; false: the status
// stayed. It does not know whether the transition was forced: [Record.Apply] does.
func (r Record) ChangeFrom(before Record) (Change, bool) {
	from, to := before.Status.orActive(), r.Status.orActive()
	return Change{Agent: r.Agent, From: from, To: to, Reason: r.Reason}, from != to
}
