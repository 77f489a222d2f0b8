package rollback

import (
	"slices"

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
	Holds    bool         `json:"holds,omitempty"` // the workflow is paused until humans have answered
	Stage    Stage        `json:"stage"`
	Roots    []ect.ID     `json:"roots,omitempty"` // checkpoints to roll back to
	Stuck    []ect.ID     `json:"stuck,omitempty"` // checkpoints that humans have to deal with
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
	Refused   AftermathKind = "refused"   // there is no rollback to the first root
	Called    AftermathKind = "called"    // the atd:escalate is signed
	Asked     AftermathKind = "asked"     // humans are asked
	Answered  AftermathKind = "answered"  // they answered, or did not in time
)

// Next makes the aftermath after an event. Its error is a [*StateError]: the event does not fit.
func (a Aftermath) Next(e AftermathEvent) (Aftermath, error) {
	next := a
	next.Term++
	switch {
	case a.Stage == StageFind && e.Kind == Found:
		next.Roots, next.Stuck = slices.Clone(e.Branch.Roots), slices.Clone(e.Branch.Stuck)
		next.Stage = next.after()
	case a.Stage == StageUndo && e.Kind == Requested && a.Request == "" && isToken(e.Token):
		next.Request = e.Token
	case a.Stage == StageUndo && e.Kind == Restored && a.Request != "":
		next.Request, next.Roots = "", a.Roots[1:]
		next.Stage = next.after()
	case a.Stage == StageUndo && e.Kind == Broken && a.Request != "":
		next.Request, next.Roots, next.Stuck = "", nil, slices.Concat(a.Stuck, a.Roots[1:])
		next.Stage = next.after()
	case a.Stage == StageUndo && e.Kind == Refused: // what is left was not undone, and what it was built on stays
		next.Request, next.Roots, next.Stuck = "", nil, slices.Concat(a.Stuck, a.Roots)
		next.Stage = next.after()
	case a.Stage == StageAsk && e.Kind == Called && a.Call == "" && isToken(e.Token):
		next.Call = e.Token
	case a.Stage == StageAsk && e.Kind == Asked && a.Call != "":
		next.Stage = StageAnswer
	case a.Stage == StageAnswer && e.Kind == Answered:
		next.Stage = StageOver
	default:
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
