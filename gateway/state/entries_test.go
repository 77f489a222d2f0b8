package state_test

import (
	"testing"

	"github.com/aepb/aepb-gateway/gateway/state"
	"github.com/aepb/aepb-gateway/gateway/state/statetest"
)

func TestEntries(t *testing.T) {
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
