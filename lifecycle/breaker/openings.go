package breaker

import (
	"slices"
	"time"
)

// When an agent is a matter for a human instead of for more probes.
const (
	EscalateOpenings = 3                // of distinct breakers (ATD, Coordinated Circuit Breaking; R21) …
	EscalateWithin   = 60 * time.Second // … within this time
	EscalateProbes   = 3                // failed in a row (ATD, ATD-to-HITL Escalation 4)
)

// Reasons of an escalation, as its token and its event have them.
const (
	ReasonProbes      = "probes"      // EscalateProbes probes of one agent have failed in a row
	ReasonCoordinated = "coordinated" // the breakers of several gateways have opened for one agent
	ReasonManyAgents  = "many_agents" // the breakers of several agents have opened at one gateway, which is probably the cause
)

// maxOpenings bounds how many distinct breakers are remembered; the oldest goes first.
const maxOpenings = 16

// Escalates reports whether this change is the third failed probe in a row. Others after
// it are not said again.
func Escalates(c Change) bool {
	return c.From == HalfOpen && c.To == Open && c.Samples > 0 && c.FailedProbes == EscalateProbes
}

// Escalation says that several distinct breakers have opened within [EscalateWithin].
type Escalation struct {
	Who   []string  // whose breakers, sorted
	Since time.Time // of the first of them
}

// Openings counts distinct breakers that have opened: those of several gateways for one
// agent, or those of several agents at one gateway. It is an immutable value; the zero value
// has seen nothing.
type Openings struct {
	list   [maxOpenings]opening // in the order of their coming
	count  int
	raised time.Time // the newest escalation; zero: not yet
}

type opening struct {
	who string
	at  time.Time
}

// Opened counts that a breaker has opened. Who tells it from the others that are counted
// here, and counts once: the identity of its gateway where the agent is always the same, or
// the agent where the gateway is. True: they are as many as escalate, and there was no
// escalation within the same time before.
func (o Openings) Opened(at time.Time, who string) (Openings, Escalation, bool) {
	at = plain(at)
	list := make([]opening, 0, maxOpenings+1)
	for _, known := range o.list[:o.count] {
		if known.who != who && near(known.at, at) {
			list = append(list, known)
		}
	}
	list = append(list, opening{who, at})
	list = list[max(0, len(list)-maxOpenings):]
	o.list = [maxOpenings]opening{}
	o.count = copy(o.list[:], list)
	if o.count < EscalateOpenings || o.Raised(at) {
		return o, Escalation{}, false
	}
	o.raised = at
	e := Escalation{Since: at}
	for _, known := range list {
		e.Who = append(e.Who, known.who)
		if known.at.Before(e.Since) {
			e.Since = known.at
		}
	}
	slices.Sort(e.Who)
	return o, e, true
}

// Raised reports whether there was an escalation within [EscalateWithin] of this time.
func (o Openings) Raised(at time.Time) bool { return !o.raised.IsZero() && near(o.raised, plain(at)) }

// near is in both directions: when a clock is set back, what it said before is as far
// away as what is long past.
func near(a, b time.Time) bool { return a.Sub(b).Abs() <= EscalateWithin }
