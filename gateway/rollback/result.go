package rollback

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/gateway/attest"
	"github.com/aepb/aepb-gateway/gateway/state"
	"github.com/aepb/aepb-gateway/gateway/task/store"
	undo "github.com/aepb/aepb-gateway/lifecycle/rollback"
)

// saved is the result of a rollback, for the same request that comes again.
type saved struct {
	Digest  string          // of the bytes of the request; empty: it was saved by an earlier version, under a key with the digest
	Result  string          // compact
	Status  undo.Status     `json:",omitempty"` // of a rollback of the gateway's own; empty: an agent's result was relayed
	Agent   string          `json:",omitempty"` // directory name of the agent whose result was relayed
	Binding string          `json:",omitempty"`
	Media   string          `json:",omitempty"`
	Body    []byte          `json:",omitempty"`
	Ours    []string        `json:",omitempty"` // compact
	Steps   []undo.Progress `json:",omitempty"`
	At      time.Time       `json:",omitzero"`
}

// readResult reads a result that was saved.
func readResult(value []byte) (k saved, err error) {
	if json.Unmarshal(value, &k) != nil || k.Result == "" {
		return k, store.ErrUnreadable
	}
	return k, nil
}

// keepResult keeps the result of a rollback in its caller's share of the store or, where that is full, in one of the workflow: else the rollback would not
// end. first: it was not kept before.
func keepResult(ctx context.Context, deps Deps, u underWay, value []byte) (first bool, err error) {
	until := deps.Now().Add(resultLife)
	_, first, err = deps.Entries.Swap(ctx, resultKey(u.Workflow, u.Issuer, u.Request, u.Owner), 0, value, until)
	if full, ok := errors.AsType[*state.FullError](err); ok && full.Own {
		_, first, err = deps.Entries.Swap(ctx, resultKey(u.Workflow, u.Issuer, u.Request, ""), 0, value, until)
	}
	return first, err
}

// result reads the result of a rollback; false: there is no such result.
func (s *Service) result(ctx context.Context, wid string, issuer ect.Identity, request ect.ID) (saved, bool, error) {
	entry, found, err := s.deps.Entries.Get(ctx, resultKey(wid, issuer, request, ""))
	if err != nil || !found {
		return saved{}, false, recording(err)
	}
	k, err := readResult(entry.Value)
	return k, true, err
}

func resultKey(wid string, issuer ect.Identity, request ect.ID, owner string) store.EntryKey {
	return store.EntryKey{Kind: store.KindRollback, Group: wid, ID: ect.Hash([]byte(string(issuer) + "\x00" + string(request))), Owner: owner}
}

// recording is an error of the store as one of recording; nil stays nil.
func recording(err error) error {
	if err == nil {
		return nil
	}
	return attest.Recording(err)
}
