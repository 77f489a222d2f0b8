package state_test

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/gateway/state"
)

// TestClaim_DatedAhead: where uses do not outlive the process, a token that is dated ahead
// is used at its date and not before. So after a restart no token dated later can have been
// used, and one that was used is of before the epoch.
func TestClaim_DatedAhead(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		start := func() *state.Memory {
			t.Helper()
			m, err := state.New(state.Config{}, state.Deps{Now: time.Now, Epoch: time.Now(), Passing: true})
			if err != nil {
				t.Fatal(err)
			}
			return m
		}
		claim := func(m *state.Memory, id string, issued time.Time) (ect.ReplayState, error) {
			return m.Claim(t.Context(), ect.ReplayKey{ID: ect.ID(id)}, ect.ReplayUse{Token: "t", Issued: issued, Until: issued.Add(time.Hour)})
		}
		time.Sleep(300 * time.Millisecond)
		m, issued := start(), time.Now().Truncate(time.Second).Add(3*time.Second)
		if got, err := claim(m, "1", issued); got != ect.ReplayFresh || err != nil || time.Now().Before(issued) {
			t.Errorf("dated 3 s ahead: %v, %v at %v before its date", got, err, time.Until(issued))
		}
		_, err := claim(m, "2", time.Now().Add(6*time.Second))
		if late := (*state.UnavailableError)(nil); !errors.As(err, &late) || late.RetryAfter != 6*time.Second {
			t.Errorf("dated 6 s ahead: %v", err)
		}
		time.Sleep(time.Millisecond)
		again := start() // in the second of the token's date
		if got, err := claim(again, "1", issued); got != ect.ReplayUnknown {
			t.Errorf("after a restart the same token is %v, %v", got, err)
		}
		time.Sleep(time.Second)
		if got, err := claim(again, "3", time.Now().Truncate(time.Second)); got != ect.ReplayFresh || err != nil {
			t.Errorf("a new token is %v, %v", got, err)
		}
	})
}
