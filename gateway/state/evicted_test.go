package state_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/gateway/state"
)

// TestEvicted_IsTold: each token that leaves a full store before its end is told, with
// whether we signed it: those of others first, down to an eighth; what has ended is not.
func TestEvicted_IsTold(t *testing.T) {
	t.Parallel()
	var own, others int
	m, err := state.New(state.Config{MaxTokens: 16}, state.Deps{Now: time.Now, Evicted: func(ours bool) {
		if ours {
			own++
		} else {
			others++
		}
	}})
	if err != nil {
		t.Fatal(err)
	}
	bring := func(name string, ours bool, count int, until time.Time) {
		t.Helper()
		for n := range count {
			id := ect.ID(fmt.Sprintf("%5s%2d", name, n))
			if err := m.Put(t.Context(), ect.Record{Compact: "h.c.s" + string(id), ID: id, Issuer: "a", Own: ours, Holder: "h", Until: until}); err != nil {
				t.Fatal(err)
			}
		}
	}
	now := time.Now()
	bring("over", false, 4, now.Add(-time.Second))
	bring("own", true, 12, now.Add(time.Hour))
	if own+others != 0 {
		t.Fatalf("%d and %d left while there was room", own, others)
	}
	bring("other", false, 8, now.Add(time.Hour))
	if own != 0 || others != 4 {
		t.Errorf("%d of ours and %d of others left, expected 0 and 4", own, others)
	}
	bring("more", true, 8, now.Add(time.Hour))
	if own != 6 || others != 6 {
		t.Errorf("%d of ours and %d of others left in the end, expected 6 and 6", own, others)
	}
}
