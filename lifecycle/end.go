package lifecycle

import "slices"

// Step is how far the graceful end of an agent has come (AEPB, "Graceful Shutdown"). The zero
// Step is that of an agent that does not end, or whose end has just been ordered.
type Step uint8

// The steps, in their order; after them the status is Retired.
const (
	Announced Step = iota + 1 // the capability document says draining and sunset_at
	Refusing                  // new delegations are refused
	Finished                  // no work is left
	Ended                     // aepb:shutdown is signed
)

var steps = []string{"", "announced", "refusing", "finished", "ended"}

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
		return &RecordError{"step is not announced, refusing, finished or ended"}
	}
	*s = Step(at) //nolint:gosec // an index of five names
	return nil
}

// Next is what a draining agent does next: the record as it stands when that is done, and the
// step that it then has reached. false: there is nothing to do, now (work is left) or at all
// (the agent does not drain).
//
// Do what the step says, then swap the record in. If the process dies between the two, the next
// one asks Next again and does the same step again. Ended and Retired clear Token: sign (the
// claims of [Shutdown], those of the change), put the token into the record, swap it in, and
// only then announce it, so that a second replica announces the same token and does not sign again.
//
// After Ended comes the transition to retired, with the next term. Its reason and By stay those
// of the order to drain; set At to the time. [Record.ChangeFrom] says what is to be signed.
func (r Record) Next(workLeft bool) (Record, Step, bool) {
	next := r
	switch {
	case r.Status != Draining || r.Step > Ended:
		return r, r.Step, false
	case workLeft && (r.Step == Refusing || r.Step == Finished):
		return r, r.Step, false
	case r.Step == Ended:
		next.Status, next.Term, next.Token = Retired, r.Term+1, ""
	default:
		next.Step++
		if next.Step == Ended {
			next.Token = ""
		}
	}
	return next, next.Step, true
}

// ChangeFrom is the transition from a record to this one, its successor; false: the status
// stayed. It does not know whether the transition was forced: [Record.Apply] does.
func (r Record) ChangeFrom(before Record) (Change, bool) {
	from, to := before.Status.orActive(), r.Status.orActive()
	return Change{Agent: r.Agent, From: from, To: to, Reason: r.Reason}, from != to
}
