package bolt_test

import (
	"testing"

	"github.com/aepb/aepb-gateway/gateway/state"
	"github.com/aepb/aepb-gateway/gateway/state/bolt"
	"github.com/aepb/aepb-gateway/gateway/state/statetest"
)

// driver is a store that knows how to be opened again.
type driver struct {
	*bolt.Store
	config bolt.Config
}

func TestStore_Contract(t *testing.T) {
	t.Parallel()
	statetest.Run(t, statetest.Harness{
		Open: func(t testing.TB, bounds state.Config) statetest.Driver {
			t.Helper()
			config := bolt.Config{Path: filePath(t), Bounds: bounds}
			return driver{open(t, config), config}
		},
		Reopen: func(t testing.TB, d statetest.Driver) statetest.Driver {
			t.Helper()
			before, ok := d.(driver)
			if !ok {
				t.Fatal("not what was opened")
			}
			closed(t, before.Store)
			after := driver{open(t, before.config), before.config}
			if after.Unclean() {
				t.Error("a clean end is not known")
			}
			return after
		},
	})
}

// A queue of one makes every write wait for the disk; nothing else may change.
func TestStore_ContractWithQueueOfOne(t *testing.T) {
	t.Parallel()
	statetest.Run(t, statetest.Harness{
		Open: func(t testing.TB, bounds state.Config) statetest.Driver {
			t.Helper()
			return open(t, bolt.Config{Path: filePath(t), Bounds: bounds, Queue: 1})
		},
	})
}
