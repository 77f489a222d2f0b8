package directory_test

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/gateway/directory"
	"github.com/aepb/aepb-gateway/gateway/transport"
	"github.com/aepb/aepb-gateway/gateway/transport/stdio"
	"github.com/aepb/aepb-gateway/policy/quota"
	"github.com/aepb/aepb-gateway/translators/canonical"
)

const eve, bob ect.Identity = "spiffe://example.org/eve", "spiffe://example.org/bob"

// refusesEve describes the agent to all but one caller.
type refusesEve struct{ why error }

func (r *refusesEve) Describe(_ context.Context, e transport.Endpoint) (*canonical.Description, transport.Endpoint, error) {
	<-time.After(time.Second)
	if e.Caller == eve {
		return nil, e, r.why
	}
	e.Version = "1"
	return &canonical.Description{Name: "toy"}, e, nil
}

// TestAttack_CallerWhoseShareIsTakenKeepsNobodyOut: that one caller has all that it may have of an
// agent, or has ended its own process of it, is not what others hear when they ask for that agent,
// neither later nor while that one asks.
func TestAttack_CallerWhoseShareIsTakenKeepsNobodyOut(t *testing.T) {
	t.Parallel()
	ended := errors.New("exit status 1")
	for name, why := range map[string]error{
		"share": &quota.ExceededError{Resource: "processes", Own: true},
		"ended": &transport.UnreachableError{Agent: "a", Err: &stdio.EndedError{Err: ended}},
		"waits": &transport.UnreachableError{Agent: "a", Err: &stdio.WaitError{After: time.Minute, Err: ended}},
	} {
		for _, together := range []bool{false, true} {
			synctest.Test(t, func(t *testing.T) {
				d, err := directory.New(directory.Deps{
					Describers: map[canonical.Binding]transport.Describer{binding: &refusesEve{why}},
					Egress:     &gate{}, Now: time.Now, Logger: slog.New(slog.DiscardHandler),
				})
				if err != nil {
					t.Fatal(err)
				}
				one := agent("a", "https://a.example")
				if err := d.Put(one); err != nil {
					t.Fatal(err)
				}
				var asking sync.WaitGroup
				defer asking.Wait()
				asking.Go(func() {
					if _, _, err := d.Describe(t.Context(), one, one.Endpoints[0], eve); !errors.Is(err, why) {
						t.Errorf("%s: she got %v", name, err)
					}
				})
				synctest.Wait()
				if !together {
					asking.Wait()
				}
				if _, _, err := d.Describe(t.Context(), one, one.Endpoints[0], bob); err != nil {
					t.Errorf("%s: he got %v, together: %v", name, err, together)
				}
			})
		}
	}
}
