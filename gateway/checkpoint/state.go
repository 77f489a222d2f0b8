package checkpoint

import (
	"bytes"
	"encoding/json"
	"errors"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/lifecycle/checkpoint"
	"github.com/aepb/aepb-gateway/lifecycle/compensation"
)

// version is that of the stored forms. Another one is not read.
const version = 1

// maxKept bounds what a plan keeps of a call, in bytes. A call whose plan would need more cannot be undone.
const maxKept = 512 << 10

// Plan is how one call of an agent is undone: the state that its checkpoint keeps.
type Plan struct {
	Version int    `json:"v"`
	Agent   string `json:"agent"` // directory name
	Tool    string `json:"tool,omitempty"`
	// Own: the agent rolls back itself, when it is asked to.
	Own  bool  `json:"own,omitempty"`
	Undo *Undo `json:"undo,omitempty"` // the compensating call; nil: there is no such call
}

// Undo is a compensating call, and what its arguments come from.
type Undo struct {
	Tool      string                `json:"tool"`
	Arguments compensation.Template `json:"arguments"`
	Call      json.RawMessage       `json:"call,omitempty"`   // arguments of the call, as far as they are needed
	Before    json.RawMessage       `json:"before,omitempty"` // what was read before it
	Result    bool                  `json:"result,omitempty"` // the arguments come from the result, too
}

// reversible reports whether the plan undoes anything.
func (p Plan) reversible() bool { return p.Own || p.Undo != nil }

// Outcome is what came of a call, as far as its plan needs it.
type Outcome struct {
	Version int             `json:"v"`
	Failed  bool            `json:"failed,omitempty"` // the agent said that the action failed
	Result  json.RawMessage `json:"result,omitempty"`
}

// stored is a checkpoint as the store has it.
type stored struct {
	Version int    `json:"v"`
	Token   string `json:"token"` // compact
	State   []byte `json:"state"` // whose hash the token has
	Deposit bool   `json:"deposit,omitempty"`
}

var errForm = errors.New("checkpoint: the stored form is not that of this version: it was written by another version of the gateway")

// read reads a stored form strictly.
func read(text []byte, into any) error {
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(into); err != nil {
		return errForm
	}
	return nil
}

// Saved is a checkpoint that is kept here.
type Saved struct {
	checkpoint.Checkpoint

	Compact string
	Plan    *Plan    // nil: its agent deposited it, and nothing here knows what it means
	Outcome *Outcome // nil: it is not known
	Size    int      // of its state, in bytes

	state []byte
}

// savedOf reads a stored checkpoint, and compares its state with the hash in its token.
func savedOf(text []byte) (Saved, error) {
	var s stored
	if err := read(text, &s); err != nil {
		return Saved{}, err
	}
	claims, err := ect.ParseRecorded(s.Token)
	if err != nil || s.Version != version {
		return Saved{}, errForm
	}
	made, err := checkpoint.Parse(claims)
	if err != nil {
		return Saved{}, err
	}
	if ect.Hash(s.State) != made.State {
		return Saved{}, &checkpoint.AlteredError{ID: made.ID}
	}
	k := Saved{Checkpoint: made, Compact: s.Token, Size: len(s.State), state: s.State}
	if s.Deposit {
		return k, nil
	}
	var plan Plan
	if err := read(s.State, &plan); err != nil || plan.Version != version {
		return Saved{}, errForm
	}
	k.Plan = &plan
	return k, nil
}

// Call is the compensating call. Its errors are *[compensation.MissingError] where the plan lacks what it needs.
func (k Saved) Call() (tool string, args json.RawMessage, err error) {
	values := compensation.Values{Call: k.Plan.Undo.Call, Before: k.Plan.Undo.Before}
	if k.Outcome != nil {
		values.Result = k.Outcome.Result
	}
	args, err = k.Plan.Undo.Arguments.Fill(values)
	return k.Plan.Undo.Tool, args, err
}
