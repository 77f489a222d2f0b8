package worker_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aepb/aepb-gateway/gateway/worker"
)

// TestRequests_Drain: Drain waits for all requests that are under way, also for those that
// come meanwhile, or until its context ends.
func TestRequests_Drain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var r worker.Requests
		if !r.Idle() || r.Draining() {
			t.Error("before any request it is not idle, or drains")
		}
		first := r.Enter()
		if r.Idle() {
			t.Error("with a request it is idle")
		}
		drained := make(chan struct{}, 2)
		for range 2 {
			go func() {
				r.Drain(t.Context())
				drained <- struct{}{}
			}()
		}
		synctest.Wait()
		second := r.Enter()
		first()
		synctest.Wait()
		if len(drained) != 0 || r.Idle() || !r.Draining() {
			t.Errorf("with a request under way: %d have drained, idle %t, draining %t", len(drained), r.Idle(), r.Draining())
		}
		second()
		synctest.Wait()
		if len(drained) != 2 || !r.Idle() || !r.Draining() {
			t.Errorf("after the last request: %d have drained, idle %t, draining %t", len(drained), r.Idle(), r.Draining())
		}
		r.Drain(t.Context()) // returns at once
		late := r.Enter()
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		r.Drain(ctx)
		if r.Idle() {
			t.Error("a drain that ends before its requests has ended them")
		}
		late()
	})
}

// TestCancels_ByName: a request is canceled by its name, with the cause that it was registered
// with, and until it is released.
func TestCancels_ByName(t *testing.T) {
	t.Parallel()
	var c worker.Cancels
	errCause := errors.New("canceled by its caller")
	if c.Cancel("a") {
		t.Error("an unknown request was canceled")
	}
	ctx, release, ok := c.Register(t.Context(), "a", errCause)
	other, releaseOther, okOther := c.Register(t.Context(), "b", nil)
	if !ok || !okOther {
		t.Fatal("not registered")
	}
	defer releaseOther()
	if again, none, ok := c.Register(t.Context(), "a", nil); ok || again != nil || none != nil {
		t.Error("a name in use was registered again")
	}
	if ctx.Err() != nil {
		t.Error("the second registration has canceled the first")
	}
	if !c.Cancel("a") || !errors.Is(context.Cause(ctx), errCause) || other.Err() != nil {
		t.Errorf("canceled for %v, and the other %v", context.Cause(ctx), other.Err())
	}
	release()
	if c.Cancel("a") {
		t.Error("after its release it is under way")
	}
	ctx, release, ok = c.Register(t.Context(), "a", errCause)
	if !ok || ctx.Err() != nil {
		t.Fatal("a name that was released is in use")
	}
	release()
	if !errors.Is(ctx.Err(), context.Canceled) || errors.Is(context.Cause(ctx), errCause) {
		t.Errorf("released, its context ends with %v", context.Cause(ctx))
	}
}

type valueKey struct{}

// TestGroup_Contexts: a bound context ends with its own and with the group, a detached one with
// the group alone, and keeps the values.
func TestGroup_Contexts(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g, err := worker.NewGroup(0, 0)
		if err != nil {
			t.Fatal(err)
		}
		own, cancel := context.WithCancel(context.WithValue(t.Context(), valueKey{}, "kept"))
		bound, release := g.Bind(own)
		detached := g.Detach(own)
		cancel()
		synctest.Wait()
		if bound.Err() == nil || detached.Err() != nil || detached.Value(valueKey{}) != "kept" {
			t.Errorf("after its own end: bound %v, detached %v with %v", bound.Err(), detached.Err(), detached.Value(valueKey{}))
		}
		release()
		bound, release = g.Bind(t.Context())
		defer release()
		busy := make(chan struct{})
		if err := g.Go(func(context.Context) { <-busy }); err != nil {
			t.Fatal(err)
		}
		if ctx, stop := context.WithTimeout(t.Context(), time.Second); g.Drain(ctx) {
			stop()
			t.Error("work that goes on has ended")
		} else {
			stop()
		}
		close(busy)
		g.Close()
		synctest.Wait()
		if bound.Err() == nil || detached.Err() == nil || g.Context().Err() == nil {
			t.Errorf("after the end of the group: bound %v, detached %v", bound.Err(), detached.Err())
		}
	})
}

// TestPause_Ends: a pause lasts as long as it should, or until its context ends.
func TestPause_Ends(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		if !worker.Pause(t.Context(), time.Minute) || time.Since(began) != time.Minute {
			t.Errorf("it lasted %v", time.Since(began))
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if worker.Pause(ctx, time.Minute) {
			t.Error("it outlasts its context")
		}
	})
}
