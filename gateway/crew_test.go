package gateway

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aepb/aepb-gateway/gateway/state"
	"github.com/aepb/aepb-gateway/policy/quota"
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
		g := &Gateway{Deps: deps, instance: "this"}
		if err := g.startWorkers(0, 0); err != nil {
			t.Fatal(err)
		}
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

// A caller has a share of the work that goes on in the background, and gives it back
// when the work ends. Others, and the gateway's own work, notice nothing.
func TestACallerHasAShareOfTheBackground(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c, err := newCrew(0, 2)
		if err != nil {
			t.Fatal(err)
		}
		defer c.close()
		goOn := make(chan struct{})
		work := func(ctx context.Context) {
			select {
			case <-goOn:
			case <-ctx.Done():
			}
		}
		for range 2 {
			if err := c.runFor("greedy", work); err != nil {
				t.Fatal(err)
			}
		}
		if _, over := errors.AsType[*quota.ExceededError](c.runFor("greedy", work)); !over {
			t.Error("a third was let in")
		}
		if err := errors.Join(c.runFor("other", work), c.run(work)); err != nil {
			t.Error(err)
		}
		close(goOn)
		synctest.Wait()
		grant, err := c.reserve("greedy", 0)
		if err != nil {
			t.Fatal(err)
		}
		if err := c.runFor("greedy", work); err != nil {
			t.Error(err)
		}
		c.close()
		if err := c.runGranted(grant, work); !errors.Is(err, ErrBusy) {
			t.Errorf("after the end: %v", err)
		}
		if _, err := c.reserve("greedy", 0); err != nil {
			t.Errorf("what could not begin keeps its share: %v", err)
		}
	})
}
