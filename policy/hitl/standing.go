package hitl

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/aepb/aepb-gateway/policy"
)

// MaxPause is how long a pause lasts; one that is not lifted becomes a stop then (R23).
const MaxPause = 24 * time.Hour

// maxReason bounds a reason, in bytes.
const maxReason = 512

// Mode says how a workflow stands. Stored records hold its text.
type Mode string

// The modes. The empty one is Running.
const (
	Running Mode = "running"
	Paused  Mode = "paused"  // new messages wait
	Stopped Mode = "stopped" // new messages are refused
)

// Step is what can happen to the standing of a workflow.
type Step string

// The steps.
const (
	Pause   Step = "pause"
	Stop    Step = "stop"
	Lift    Step = "lift"    // an operator lets the workflow go on
	Overdue Step = "overdue" // a pause was not lifted in MaxPause
)

// steps says which step leads where. A pause of a workflow that is stopped stops it still.
var steps = map[Mode]map[Step]Mode{
	Running: {Pause: Paused, Stop: Stopped},
	Paused:  {Pause: Paused, Stop: Stopped, Lift: Running, Overdue: Stopped},
	Stopped: {Pause: Stopped, Stop: Stopped, Lift: Running},
}

// Standing is the level at which a workflow is held. It does not change: Next makes the next one. The zero
// value is that of a workflow that runs.
type Standing struct {
	Form   int       `json:"form"`
	Term   uint64    `json:"term"` // grows with each change
	Mode   Mode      `json:"mode"`
	By     string    `json:"by,omitempty"`     // who or which rule brought it there
	At     time.Time `json:"at"`               // when it came into its mode
	Reason string    `json:"reason,omitempty"` // that an operator gave
	Why    string    `json:"why,omitempty"`    // of a step that no operator took
	Roles  []string  `json:"roles,omitempty"`  // that an operator needs to lift it
}

// StandingEvent is what happens to a workflow.
type StandingEvent struct {
	Step   Step
	At     time.Time
	By     string
	Reason string   // required with Lift
	Why    string   // with Pause and Stop of a rule
	Roles  []string // with Pause and Stop: that lifting needs, none: operator; with Lift: that the operator has
}

// StandingError reports a step that does not follow.
type StandingError struct {
	Mode Mode
	Step Step
}

func (e *StandingError) Error() string {
	return fmt.Sprintf("workflow: the step %s does not follow while it is %s", e.Step, e.Mode)
}

// Next is the standing after an event. Its errors are *[StandingError] and *[RefusedError]; the standing
// stays as it is then. A pause or a stop of what is held already only adds the roles that lifting needs.
func (s Standing) Next(e StandingEvent) (Standing, error) {
	mode := cmp.Or(s.Mode, Running)
	to, ok := steps[mode][e.Step]
	if !ok {
		return s, &StandingError{mode, e.Step}
	}
	if err := s.judge(e); err != nil {
		return s, err
	}
	roles := s.Roles
	switch e.Step {
	case Lift:
		roles = nil
	case Pause, Stop:
		roles = withRoles(roles, e.Roles)
	case Overdue:
		e.Why = cmp.Or(e.Why, "the pause was not lifted in time")
	}
	if to == mode && len(roles) == len(s.Roles) {
		return s, nil
	}
	next := Standing{Form: Form, Term: s.Term + 1, Mode: to, By: e.By, At: e.At, Reason: e.Reason, Why: e.Why, Roles: roles}
	if to == mode {
		next.By, next.At, next.Reason, next.Why = s.By, s.At, s.Reason, s.Why
	}
	return next, nil
}

func withRoles(roles, more []string) []string {
	if len(more) == 0 {
		more = []string{string(policy.RoleOperator)}
	}
	all := slices.Concat(roles, more)
	slices.Sort(all)
	return slices.Compact(all)
}

// judge says why an event is not allowed; nil: it is.
func (s Standing) judge(e StandingEvent) error {
	refuse := func(reason string) error { return &RefusedError{About: "workflow", Reason: reason} }
	if len(e.Reason) > maxReason {
		return refuse(fmt.Sprintf("the reason is too long: expected at most %d bytes", maxReason))
	}
	switch e.Step {
	case Lift:
		missing := slices.IndexFunc(s.Roles, func(role string) bool { return !slices.Contains(e.Roles, role) })
		switch {
		case len(s.Roles) == 0:
			return refuse("no role is known that lifts it: expected a record with roles")
		case missing >= 0:
			return refuse("the role " + s.Roles[missing] + " is required to lift it")
		case e.By == "" || e.Reason == "":
			return refuse("expected the operator who lifts it, and a reason")
		}
	case Overdue:
		if e.At.Before(s.At.Add(MaxPause)) {
			return refuse("the pause is not overdue")
		}
	case Pause, Stop:
	}
	return nil
}

// Due is when a pause becomes a stop; zero: it is not paused.
func (s Standing) Due() time.Time {
	if s.Mode != Paused {
		return time.Time{}
	}
	return s.At.Add(MaxPause)
}

// passing are the operations that begin no work: they pass at every level.
var passing = []string{
	"describe", "capabilities", "ping", "notice", "task.get", "task.list", "task.cancel", "task.subscribe",
	"task.answer", "task.result", "push", "answer", "abort", "rollback", "decision",
}

// Passes reports whether a message of the workflow may be sent. newWork: it begins work, unlike results and
// messages to a task that is under way. What is neither known to begin work nor known not to is held.
func (s Standing) Passes(operation string, newWork bool) bool {
	return s.Mode == "" || s.Mode == Running || !newWork || slices.Contains(passing, operation)
}
