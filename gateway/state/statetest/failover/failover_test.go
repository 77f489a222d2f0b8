package failover_test

import (
	"errors"
	"testing"
	"time"

	"github.com/aepb/aepb-gateway/gateway/state"
	"github.com/aepb/aepb-gateway/gateway/state/statetest"
	"github.com/aepb/aepb-gateway/gateway/state/statetest/failover"
)

func open(t testing.TB, config state.Config) *failover.Store {
	t.Helper()
	memory, err := state.New(config, state.Deps{Now: time.Now})
	if err != nil {
		t.Fatal(err)
	}
	return failover.New(memory.Entries())
}

// TestStore_Contract: in good order the model does what every driver does.
func TestStore_Contract(t *testing.T) {
	t.Parallel()
	statetest.RunEntries(t, statetest.EntriesHarness{Open: func(t testing.TB, config state.Config) statetest.Entries { return open(t, config) }})
}

// TestStore_ForgetsWhatWasNotConfirmed: a failover takes back what was written and deleted while the replica was away, and nothing
// else.
func TestStore_ForgetsWhatWasNotConfirmed(t *testing.T) {
	t.Parallel()
	s, ctx, until := open(t, state.Config{}), t.Context(), time.Now().Add(time.Hour)
	key := func(id string) state.EntryKey { return state.EntryKey{Kind: "kind", Group: "group", ID: id} }
	swap := func(id string, old uint64, value string) (uint64, error) {
		revision, _, err := s.Swap(ctx, key(id), old, []byte(value), until)
		return revision, err
	}
	changed, err := swap("changed", 0, "before")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := swap("deleted", 0, "before"); err != nil {
		t.Fatal(err)
	}
	s.Separate()
	if _, err := swap("changed", changed, "after"); !errors.Is(err, failover.ErrUnconfirmed) {
		t.Errorf("a write without the replica: %v", err)
	}
	if _, err := swap("new", 0, "after"); !errors.Is(err, failover.ErrUnconfirmed) {
		t.Errorf("a new entry without the replica: %v", err)
	}
	if err := s.Delete(ctx, key("deleted")); !errors.Is(err, failover.ErrUnconfirmed) {
		t.Errorf("a deletion without the replica: %v", err)
	}
	at, _, err := s.Get(ctx, key("changed"))
	if err != nil || string(at.Value) != "after" {
		t.Errorf("the master reads %q, %v", at.Value, err)
	}
	if same, err := s.Confirm(ctx, key("changed"), at.Revision); same || !errors.Is(err, failover.ErrUnconfirmed) {
		t.Errorf("confirmed without the replica: %v, %v", same, err)
	}
	if err := s.Failover(ctx); err != nil {
		t.Fatal(err)
	}
	for id, want := range map[string]string{"changed": "before", "deleted": "before", "new": ""} {
		if got, _, err := s.Get(ctx, key(id)); err != nil || string(got.Value) != want {
			t.Errorf("after the failover %s is %q, expected %q; %v", id, got.Value, want, err)
		}
	}
	s.Separate()
	now, _, _ := s.Get(ctx, key("changed"))
	if _, err := swap("changed", now.Revision, "after"); !errors.Is(err, failover.ErrUnconfirmed) {
		t.Error(err)
	}
	s.Rejoin()
	now, _, _ = s.Get(ctx, key("changed"))
	if same, err := s.Confirm(ctx, key("changed"), now.Revision); !same || err != nil || string(now.Value) != "after" {
		t.Errorf("after the replica is back: %q, confirmed %v, %v", now.Value, same, err)
	}
}
