package rollback

import (
	"slices"
	"time"

	"github.com/aepb/aepb-gateway/ect"
)

// Stage is how far an aftermath is.
type Stage string

// The stages.
const (
	StageFind   Stage = "find"   // the branch of the failure is to be found
	StageUndo   Stage = "undo"   // the first root is to be rolled back to
	StageAsk    Stage = "ask"    // humans are to be asked about what cannot be undone
	StageAnswer Stage = "answer" // they are to answer
	StageOver   Stage = "over"
)

// Aftermath is what follows from a failure, or from a rollback that left something to humans, with the table of the package
// documentation. It is immutable: [Aftermath.Next] makes the next one.
type Aftermath struct {
	Version  int          `json:"version"`
	Term     uint64       `json:"term"` // grows by one with each change
	Workflow string       `json:"workflow"`
	Cause    string       `json:"cause"`             // compact token of the atd:error, or of the atd:rollback_result
	Actions  []ect.ID     `json:"actions,omitempty"` // that failed
	Caller   ect.Identity `json:"caller"`            // of what failed; of a rollback, who asked for it
	Holds    bool         `json:"holds,omitempty"`   // the workflow is paused until humans have answered
	Stage    Stage        `json:"stage"`
	Until    time.Time    `json:"until,omitzero"`  // what has not begun by then is left to humans
	Roots    []ect.ID     `json:"roots,omitempty"` // checkpoints to roll back to
	Stuck    []ect.ID     `json:"stuck,omitempty"` // checkpoints that humans have to deal with; actions where the branch is not known
	Request  string       `json:"request,omitempty"`
	Call     string       `json:"call,omitempty"` // compact token of the atd:escalate that asks humans
}

// AftermathEvent is something that happened.
type AftermathEvent struct {
	Kind   AftermathKind
	Branch Branch // of Found
	Token  string // of Requested and Called: compact
}

// AftermathKind says what happened.
type AftermathKind string

// The kinds of events.
const (
	Found     AftermathKind = "found"     // the branch
	Requested AftermathKind = "requested" // the request for the first root is signed
	Restored  AftermathKind = "restored"  // the rollback to the first root completed
	Broken    AftermathKind = "broken"    // the rollback to the first root ended otherwise, and said to humans why
	Refused   AftermathKind = "refused"   // the branch is not known, or there is no rollback to the first root
	Called    AftermathKind = "called"    // the atd:escalate is signed
	Opened    AftermathKind = "opened"    // the approval is open: humans can answer
	Answered  AftermathKind = "answered"  // they answered, or did not in time
)

// aftermathSteps are what events change, by stage. A step that returns false does not fit.
var aftermathSteps = map[Stage]map[AftermathKind]func(a *Aftermath, e AftermathEvent) bool{
	StageFind: {
		Found: func(a *Aftermath, e AftermathEvent) bool {
			return a.rolledBack(slices.Clone(e.Branch.Roots), e.Branch.Stuck)
		},
		Refused: func(a *Aftermath, _ AftermathEvent) bool { return a.rolledBack(nil, a.Actions) },
	},
	StageUndo: {
		Requested: func(a *Aftermath, e AftermathEvent) bool {
			fits := a.Request == "" && isToken(e.Token)
			a.Request = e.Token
			return fits
		},
		Restored: func(a *Aftermath, _ AftermathEvent) bool { return a.Request != "" && a.rolledBack(a.Roots[1:], nil) },
		Broken:   func(a *Aftermath, _ AftermathEvent) bool { return a.Request != "" && a.rolledBack(nil, a.Roots[1:]) },
		Refused:  func(a *Aftermath, _ AftermathEvent) bool { return a.rolledBack(nil, a.Roots) },
	},
	StageAsk: {
		Called: func(a *Aftermath, e AftermathEvent) bool {
			fits := a.Call == "" && isToken(e.Token)
			a.Call = e.Token
			return fits
		},
		Opened: func(a *Aftermath, _ AftermathEvent) bool { a.Stage = StageAnswer; return a.Call != "" },
	},
	StageAnswer: {Answered: func(a *Aftermath, _ AftermathEvent) bool { a.Stage = StageOver; return true }},
}

// rolledBack ends what was due: roots are left to roll back to, and stuck are left to humans besides.
func (a *Aftermath) rolledBack(roots, stuck []ect.ID) bool {
	a.Request, a.Roots, a.Stuck = "", roots, slices.Concat(a.Stuck, stuck)
	a.Stage = a.after()
	return true
}

// Next is the aftermath after an event. Its error is a [*StateError]: the event does not fit.
func (a Aftermath) Next(e AftermathEvent) (Aftermath, error) {
	next := a
	next.Term++
	if step := aftermathSteps[a.Stage][e.Kind]; step == nil || !step(&next, e) {
		return a, &StateError{Kind: EventKind(e.Kind), because: "it does not follow in the stage " + string(a.Stage)}
	}
	return next, nil
}

// after is the stage in which something is left to do.
func (a Aftermath) after() Stage {
	switch {
	case len(a.Roots) > 0:
		return StageUndo
	case len(a.Stuck) > 0:
		return StageAsk
	}
	return StageOver
}
