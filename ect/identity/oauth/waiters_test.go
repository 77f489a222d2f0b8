package oauth_test

import (
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aepb/aepb-gateway/ect/identity/oauth/oauthtest"
)

// TestAttack_RequestsQueueForASilentIssuer: many requests show one opaque token while its issuer is silent. Each is
// answered after the time that one question may take, and not one after the other.
func TestAttack_RequestsQueueForASilentIssuer(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newScene(t, nil)
		s.a.Change(func(st *oauthtest.State) { st.Delay = time.Minute })
		s.a.Opaque("good", s.a.Claims(endpoint))
		began := time.Now()
		var group sync.WaitGroup
		for range 50 {
			group.Go(func() { s.want("good", "unavailable") })
		}
		group.Wait()
		if took := time.Since(began); took > 3*time.Second || s.a.Requests(oauthtest.Introspect) != 1 {
			t.Errorf("the last one waited for %s; %d questions", took, s.a.Requests(oauthtest.Introspect))
		}
	})
}
