package policy

import (
	"errors"
	"strconv"
	"strings"

	"github.com/aepb/aepb-gateway/ect"
)

// ErrNoPermit refuses a permit that no evaluation granted.
var ErrNoPermit = errors.New("policy: no permit: evaluate the request first")

// Forbidden reports that this caller may not do this here (R2). It does not reveal
// whether the requested agent or operation exists.
type Forbidden struct {
	Agent      string
	Caller     ect.Identity // who is refused, and alone reads this; empty: not said
	Constraint Constraint   // ConstraintCallers or ConstraintOperation; empty: not a rule of an agent
	Reason     string       // in words; empty: those of the constraint
}

func (e *Forbidden) Error() string {
	switch {
	case e.Reason != "":
		return e.Reason
	case e.Constraint == ConstraintOperation:
		return "the caller may not ask this of the agent"
	case e.Caller != "":
		return "you are " + string(e.Caller) + ", and may not call this agent: its operator adds your id to its callers"
	default:
		return "the caller may not call this agent: its operator adds the caller's id to its callers"
	}
}

// Denied reports that a constraint forbids this translation to every caller (policy_violation).
type Denied struct {
	Constraint Constraint
}

func (e *Denied) Error() string {
	text := "refused by constraint " + string(e.Constraint)
	if e.Constraint == ConstraintLoop {
		text += ": this message has already passed this gateway"
	}
	return text
}

// LevelError reports that an agent demands evidence of a level that this gateway cannot
// produce (CPAT, Assurance Level Inheritance).
type LevelError struct{ Required ect.Level }

func (e *LevelError) Error() string {
	return "evidence of level L" + strconv.Itoa(int(e.Required)) + " is demanded, and this gateway has no audit ledger for it"
}

// SemanticLossError reports that the translation would change what the message means.
type SemanticLossError struct {
	Codes  []string // of the losses that are not allowed, sorted, each once
	Losses []string // the same as warnings ("L36 dropped /path"); for evidence, not for texts shown to others
}

// Error names codes only: a path may hold names out of the message.
func (e *SemanticLossError) Error() string {
	return "the translation would lose meaning: " + strings.Join(e.Codes, ", ")
}
