package state_test

import (
	"testing"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/ect/ecttest"
	"github.com/aepb/aepb-gateway/gateway/state"
)

func TestStoreContract(t *testing.T) {
	t.Parallel()
	ecttest.StoreSuite(t, func() ect.Store { return open(t, state.Config{}) })
}

func TestReplayContract(t *testing.T) {
	t.Parallel()
	ecttest.ReplaySuite(t, func() ect.ReplayCache { return open(t, state.Config{}) })
}
