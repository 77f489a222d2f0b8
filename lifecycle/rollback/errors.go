package rollback

import (
	"fmt"
	"strings"
	"time"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/lifecycle/workflow"
)

const (
	maxNamed = 100 // dependants of an error
	maxShown = 5   // of them in its text
)

// UnknownError says that no such checkpoint is known.
type UnknownError struct{ Checkpoint ect.ID }

func (e *UnknownError) Error() string {
	return fmt.Sprintf("checkpoint %s is unknown in this workflow, or is known no longer: name one of its checkpoints", e.Checkpoint)
}

// ExpiredError says that the time of a checkpoint is over.
type ExpiredError struct {
	Checkpoint ect.ID
	Ended      time.Time
}

func (e *ExpiredError) Error() string {
	return fmt.Sprintf("checkpoint %s ended at %s, and a rollback is possible until then: a human has to undo the work", e.Checkpoint, e.Ended.UTC().Format(time.RFC3339))
}

// ForgottenError says that tokens of the workflow are not on record any more, so that what depends on a checkpoint is not known.
type ForgottenError struct{ Checkpoint ect.ID }

func (e *ForgottenError) Error() string {
	return fmt.Sprintf("tokens of the workflow of checkpoint %s are not on record any more, so what depends on it is not known: undo it by hand", e.Checkpoint)
}

// TooManyError says that a rollback would have more than MaxSteps steps.
type TooManyError struct{ Steps int }

func (e *TooManyError) Error() string {
	return fmt.Sprintf("the rollback has %d steps, and at most %d are allowed: roll back to a later checkpoint first", e.Steps, MaxSteps)
}

// Dependant is a step of the workflow that is in the way of a rollback.
type Dependant struct {
	ID    ect.ID
	Who   ect.Identity // the issuer of its token
	State workflow.State
}

// Dependants are in topological order, at most 100.
type Dependants struct {
	Steps []Dependant
	More  int // that Steps leaves out
}

func dependants(steps []workflow.Step) (d Dependants) {
	for _, s := range steps[:min(len(steps), maxNamed)] {
		d.Steps = append(d.Steps, Dependant{s.ID, s.Issuer, s.State})
	}
	d.More = len(steps) - len(d.Steps)
	return d
}

// text lists the first ones.
func (d Dependants) text() string {
	var list []string
	for _, s := range d.Steps[:min(len(d.Steps), maxShown)] {
		list = append(list, fmt.Sprintf("%s of %s is %s", s.ID, s.Who, s.State))
	}
	if more := d.More + len(d.Steps) - len(list); more > 0 {
		list = append(list, fmt.Sprintf("%d more", more))
	}
	return strings.Join(list, ", ")
}

// DependsError says that work which is not undone depends on what would be undone (ATD, Partial Rollback and Blast
// Radius Containment).
type DependsError struct{ Dependants }

func (e *DependsError) Error() string {
	return "steps depend on what would be undone: " + e.text() + ": roll back with atd.cascade, or start at a later checkpoint"
}

// RunningError says that work which would be undone still runs, so that its effect is not known.
type RunningError struct{ Dependants }

func (e *RunningError) Error() string {
	return "steps that would be undone still run: " + e.text() + ": roll back when they are done or failed, or cancel them"
}

// StateError refuses an event that does not fit the state of a journal: the table in the package documentation does
// not have it there.
type StateError struct {
	Kind  EventKind
	Step  int
	State StepState // of the step; empty: the event is about no step, or there is no such step

	because string
}

func (e *StateError) Error() string {
	of := ""
	if e.State != "" {
		of = fmt.Sprintf(" about step %d, which is %s,", e.Step, e.State)
	}
	return fmt.Sprintf("rollback: event %q%s does not fit: %s", e.Kind, of, e.because)
}

// RecordError says that a text is no journal, or that a journal is none that [Journal.Next] makes.
type RecordError struct{ Problem string }

func (e *RecordError) Error() string { return "rollback: invalid journal: " + e.Problem }

// ResultError says which claim of a rollback result is missing or wrong, and what was expected.
type ResultError struct{ Claim, Expected string }

func (e *ResultError) Error() string {
	return fmt.Sprintf("result of a rollback: %s is missing or wrong: expected %s", e.Claim, e.Expected)
}
