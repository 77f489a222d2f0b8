package rollback

import (
	"context"
	"encoding/json"
	"errors"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/gateway/attest"
	"github.com/aepb/aepb-gateway/gateway/record"
	"github.com/aepb/aepb-gateway/gateway/state"
	undo "github.com/aepb/aepb-gateway/lifecycle/rollback"
)

// KindUndo is a rollback that is under way, among the kinds of entries: there is one of a workflow at a time.
const KindUndo = "undo"

// underWay is a rollback that is under way, as replicas share it.
type underWay struct {
	undo.Journal

	Digest string       // of the bytes of the request
	Owner  string       // whose share of the store it takes
	Holder string       // in whose share its evidence counts
	Reason string       // that the request gives
	Caller ect.Identity // of the failure that it follows from; empty: the issuer of the request asks for it
	Token  string       // what the gateway signed of it last
	// Natives are the checkpoints by which agents that roll back themselves know those of the steps.
	Natives map[ect.ID]ect.ID

	event undo.Event // that takes the journal further once its token is signed; not stored
}

// written is how it is stored.
type written struct {
	Journal json.RawMessage `json:"journal"`
	Digest  string          `json:"digest"`
	Owner   string          `json:"owner,omitempty"`
	Holder  string          `json:"holder,omitempty"`
	Reason  string          `json:"reason,omitempty"`
	Caller  ect.Identity    `json:"caller,omitempty"`
	Token   string          `json:"token,omitempty"`

	Natives map[ect.ID]ect.ID `json:"natives,omitempty"`
}

func encode(u underWay) ([]byte, error) {
	journal, err := u.Encode()
	if err != nil {
		return nil, err
	}
	return json.Marshal(written{journal, u.Digest, u.Owner, u.Holder, u.Reason, u.Caller, u.Token, u.Natives})
}

func decode(text []byte) (u underWay, err error) {
	var w written
	if err := json.Unmarshal(text, &w); err != nil {
		return u, err
	}
	u = underWay{Digest: w.Digest, Owner: w.Owner, Holder: w.Holder, Reason: w.Reason, Caller: w.Caller, Token: w.Token, Natives: w.Natives}
	u.Journal, err = undo.Decode(w.Journal)
	return u, err
}

// known is the checkpoint of a step as its agent knows it.
func (u underWay) known(step undo.Progress) ect.ID {
	if native, there := u.Natives[step.Checkpoint]; there {
		return native
	}
	return step.Checkpoint
}

func keyOf(workflow, owner string) state.EntryKey {
	return state.EntryKey{Kind: KindUndo, ID: workflow, Owner: owner}
}

// journals decides how rollbacks go on.
func journals(deps record.Deps) (*record.Machine[underWay], error) {
	return record.New(record.Kind[underWay]{
		Encode: encode,
		Decode: decode,
		Life:   resultLife,
		Token:  func(u underWay) string { return u.Token },
		Sealed: func(u underWay, compact string) underWay {
			u.event.Token, u.Token = compact, compact
			u.Journal, _ = u.Next(u.event) // it was tried before it was signed
			return u
		},
	}, deps)
}

// errOver reports a rollback that another replica has ended.
var errOver = errors.New("rollback: it is over")

// advance takes the rollback of a workflow one step further, with what is signed of that; nil: nothing is. Its errors are
// errOver, *[undo.StateError] for an event that others were first with, and those of [record.Machine.Decide].
func (s *Service) advance(ctx context.Context, u underWay, e undo.Event, st *attest.Statement) (underWay, error) {
	next, _, err := s.journals.Decide(ctx, keyOf(u.Workflow, u.Owner), func(before record.Found[underWay]) (underWay, *attest.Statement, error) {
		now := before.Value
		if before.Revision == 0 || now.Request != u.Request {
			return now, nil, errOver
		}
		trial := e
		if st != nil {
			trial.Token = "signed"
		}
		following, err := now.Next(trial)
		if err != nil {
			return now, nil, err
		}
		if now.event = e; st == nil {
			now.Journal = following
		}
		return now, st, nil
	})
	return next, err
}

// begun is the rollback of a workflow that is under way; false: there is no such rollback.
func (s *Service) begun(ctx context.Context, workflow string) (underWay, bool, error) {
	found, err := s.journals.Read(ctx, keyOf(workflow, ""))
	if err != nil {
		return underWay{}, false, attest.Recording(err)
	}
	return found.Value, found.Revision != 0, nil
}

// begin writes the plan of a rollback before its first step. Its errors are errAnother while another rollback of the
// workflow is under way, errOver if this one has ended, and those of [record.Machine.Decide].
func (s *Service) begin(ctx context.Context, u underWay) error {
	_, _, err := s.journals.Decide(ctx, keyOf(u.Workflow, u.Owner), func(before record.Found[underWay]) (underWay, *attest.Statement, error) {
		switch {
		case before.Revision == 0:
			_, ended, err := s.result(ctx, u.Workflow, u.Issuer, u.Request) // it is there before the journal is deleted
			if err == nil && ended {
				err = errOver
			}
			return u, nil, err
		case before.Value.Issuer == u.Issuer && before.Value.Request == u.Request:
			return before.Value, nil, record.ErrUnchanged
		}
		return before.Value, nil, errAnother
	})
	return err
}
