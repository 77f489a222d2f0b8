package state_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/aepb/aepb-gateway/gateway/state"
	"github.com/aepb/aepb-gateway/gateway/state/statetest"
)

func TestEntries_Contract(t *testing.T) {
	t.Parallel()
	statetest.RunEntries(t, statetest.EntriesHarness{
		Open: func(t testing.TB, config state.Config) statetest.Entries {
			t.Helper()
			m, err := state.New(config, state.Deps{})
			if err != nil {
				t.Fatal(err)
			}
			return m.Entries()
		},
	})
}

// A sweep makes space before the store is full: the oldest ended entries of the
// largest owner go until an eighth is free, and nothing that goes on does.
func TestEntries_SweepMakesSpaceAhead(t *testing.T) {
	t.Parallel()
	m := open(t, state.Config{MaxEntries: 64, MaxEntriesPerOwner: 64})
	put := func(owner, kind string, n int, value string) {
		t.Helper()
		for i := range n {
			key := state.EntryKey{Kind: kind, Group: owner, ID: fmt.Sprint(i)}
			if _, ok, err := m.Entries().Swap(t.Context(), key, 0, []byte(value), time.Now().Add(time.Hour)); !ok || err != nil {
				t.Fatal(ok, err)
			}
		}
	}
	count := func(owner, kind string) int {
		list, err := m.Entries().List(t.Context(), kind, owner, "", 100)
		if err != nil {
			t.Fatal(err)
		}
		return len(list)
	}
	put("large", "task", 30, state.EndedMark+"}")
	put("large", "mail", 20, "goes on")
	put("small", "task", 14, state.EndedMark+"}")
	m.Sweep(100)
	if large, on, small := count("large", "task"), count("large", "mail"), count("small", "task"); large != 22 || on != 20 || small != 14 {
		t.Errorf("%d ended and %d running of the large owner and %d of the small one are left, want 22, 20 and 14", large, on, small)
	}
}
