package state_test

import (
	"testing"
	"time"

	"github.com/aepb/aepb-gateway/gateway/state"
	"github.com/aepb/aepb-gateway/gateway/state/statetest"
)

func TestMemory_Contract(t *testing.T) {
	t.Parallel()
	statetest.Run(t, statetest.Harness{
		Open: func(t testing.TB, config state.Config) statetest.Driver {
			t.Helper()
			m, err := state.New(config, state.Deps{Epoch: time.Now()})
			if err != nil {
				t.Fatal(err)
			}
			return m
		},
	})
}
