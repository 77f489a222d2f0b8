package policy

import (
	"slices"

	"github.com/aepb/aepb-gateway/ect"
)

// Permit is the proof that a request was allowed. Only Evaluate makes a valid
// one. It is immutable and holds for both legs of the exchange.
type Permit struct {
	valid       bool
	caller      ect.Identity
	agent       string
	allowLosses []string
}

func mint(r Request) Permit {
	return Permit{
		valid: true, caller: r.Caller, agent: r.Agent,
		allowLosses: slices.Clone(r.Constraints.AllowLosses),
	}
}

// Valid is false for the zero Permit.
func (p Permit) Valid() bool { return p.valid }

// Caller is who was permitted.
func (p Permit) Caller() ect.Identity { return p.caller }

// Agent is the agent that may be called; empty: translate only.
func (p Permit) Agent() string { return p.agent }

// Loss is what policy has to know about a loss of a translation.
type Loss struct {
	Code     string // of the loss catalogue
	Semantic bool   // it changes what the message means
	Text     string // as a translation warning
}

// Judge refuses losses that change what a message means, unless the operator
// allows their code (R7; AEPB, Gateway Requirements item 4). Its errors are
// *[SemanticLossError], and [ErrNoPermit] for a permit that is not valid.
func (p Permit) Judge(losses []Loss) error {
	if !p.valid {
		return ErrNoPermit
	}
	refusal := &SemanticLossError{}
	for _, loss := range losses {
		if loss.Semantic && !slices.Contains(p.allowLosses, loss.Code) {
			refusal.Codes = append(refusal.Codes, loss.Code)
			refusal.Losses = append(refusal.Losses, loss.Text)
		}
	}
	if len(refusal.Codes) == 0 {
		return nil
	}
	slices.Sort(refusal.Codes)
	refusal.Codes = slices.Compact(refusal.Codes)
	return refusal
}
