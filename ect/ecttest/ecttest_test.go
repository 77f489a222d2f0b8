package ecttest_test

import (
	"testing"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/ect/ecttest"
)

func TestFakes_MeetTheContracts(t *testing.T) {
	t.Parallel()
	t.Run("store", func(t *testing.T) {
		t.Parallel()
		ecttest.StoreSuite(t, func() ect.Store { return ecttest.NewStore() })
	})
	for name, test := range ecttest.ListerCases() {
		if name != "lists no workflow without a record" { // this store forgets nothing
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				test(t, ecttest.NewStore())
			})
		}
	}
	t.Run("replay", func(t *testing.T) {
		t.Parallel()
		ecttest.ReplaySuite(t, func() ect.ReplayCache { return ecttest.NewReplay() })
	})
}
