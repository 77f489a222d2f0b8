package gateway

import (
	"context"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aepb/aepb-gateway/gateway/state"
)

// A process that has as much to do as it may when it first says that it is alive goes
// on saying so: what goes on there is not lost.
func TestABusyProcessIsAlive(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		memory, err := state.New(state.Config{}, state.Deps{Now: time.Now})
		if err != nil {
			t.Fatal(err)
		}
		deps := Deps{Entries: memory.Entries(), Now: time.Now, Logger: slog.New(slog.DiscardHandler)}
		g := &Gateway{Deps: deps, instance: "this", crew: newCrew(), attending: newCrew()}
		defer func() { _ = g.Close() }()
		for g.crew.run(func(ctx context.Context) { <-ctx.Done() }) == nil {
			continue
		}
		if err := g.alive(t.Context()); err != nil {
			t.Fatal(err)
		}
		<-time.After(10 * runnerLife)
		other := &Gateway{Deps: deps, instance: "other"}
		if lost, err := other.lost(t.Context(), &record{Runner: "this"}); lost || err != nil {
			t.Errorf("another process takes it for lost: %v, %v", lost, err)
		}
	})
}
