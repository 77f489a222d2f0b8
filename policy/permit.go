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
	level       ect.Level
	minSecurity Security
	operations  []string // those that may be asked; nil: all
	offer       Offer
}

func mint(r Request) Permit {
	return Permit{
		valid: true, caller: r.Caller, agent: r.Agent,
		allowLosses: slices.Clone(r.Constraints.AllowLosses),
		level:       required(r), minSecurity: r.Constraints.MinSecurity, operations: operations(r), offer: OfferOf(r.Caller, r.Rules),
	}
}

// Valid is false for the zero Permit.
func (p Permit) Valid() bool { return p.valid }

// Caller is who was permitted.
func (p Permit) Caller() ect.Identity { return p.caller }

// Agent is the agent that may be called; empty: translate only.
func (p Permit) Agent() string { return p.agent }

// Level is that of the evidence which we sign under this permit.
func (p Permit) Level() ect.Level { return p.level }

// Perform refuses an operation that the caller may not ask of the agent (R2).
// Its errors are *[Forbidden], and [ErrNoPermit] for a permit that is not valid.
func (p Permit) Perform(operation string) error {
	switch {
	case !p.valid:
		return ErrNoPermit
	case p.operations == nil || slices.Contains(p.operations, operation):
		return nil
	default:
		return &Forbidden{Agent: p.agent, Constraint: ConstraintOperation}
	}
}

// Offer is what of the agent's tools may be invoked.
func (p Permit) Offer() Offer { return p.offer }

// Carry refuses a connection that is protected less well than
// aepb.min_protocol_security demands (AEPB, Protocol Downgrade Prevention). Its
// errors are *[Denied], and [ErrNoPermit] for a permit that is not valid.
func (p Permit) Carry(s Security) error {
	switch {
	case !p.valid:
		return ErrNoPermit
	case s < p.minSecurity:
		return &Denied{Constraint: ConstraintSecurity}
	default:
		return nil
	}
}

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
