package statetest

import (
	"testing"
	"time"

	"github.com/aepb/aepb-gateway/gateway/state"
)

// entryConfirmed: an entry is confirmed at its own revision, by each replica, and stays as it is.
func entryConfirmed(t *testing.T, h EntriesHarness) {
	t.Helper()
	first := h.Open(t, state.Config{})
	all := []Entries{first}
	if h.Replica != nil {
		all = append(all, h.Replica(t, first))
	}
	key := state.EntryKey{Kind: "kind", Group: "group", ID: "confirmed"}
	until := time.Now().Add(time.Hour)
	old, ok, err := first.Swap(t.Context(), key, 0, []byte("1"), until)
	if err != nil || !ok {
		t.Fatal(ok, err)
	}
	newer, ok, err := first.Swap(t.Context(), key, old, []byte("2"), until)
	if err != nil || !ok {
		t.Fatal(ok, err)
	}
	for i, s := range all {
		for revision, want := range map[uint64]bool{old: false, newer: true, newer + 1: false} {
			if got, err := s.Confirm(t.Context(), key, revision); got != want || err != nil {
				t.Errorf("replica %d, revision %d of %d: got %v, %v", i, revision, newer, got, err)
			}
		}
		if got, err := s.Confirm(t.Context(), state.EntryKey{Kind: "kind", Group: "group", ID: "gone"}, newer); got || err != nil {
			t.Errorf("replica %d, no entry: got %v, %v", i, got, err)
		}
		got, ok, err := s.Get(t.Context(), key)
		if err != nil || !ok || got.Revision != newer || string(got.Value) != "2" || got.Until.UnixMilli() != until.UnixMilli() {
			t.Errorf("replica %d: afterwards %+v, %v, %v", i, got, ok, err)
		}
	}
}
