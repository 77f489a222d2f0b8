package worker

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"

	"github.com/aepb/aepb-gateway/policy/quota"
)

// TestGroup_HolderHasItsShare: a holder is refused more work than its share, and has
// the share back when its work ends. Other holders, and work without a holder, are not
// refused.
func TestGroup_HolderHasItsShare(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g, err := NewGroup(0, 2)
		if err != nil {
			t.Fatal(err)
		}
		defer g.Close()
		proceed := make(chan struct{})
		work := func(ctx context.Context) {
			select {
			case <-proceed:
			case <-ctx.Done():
			}
		}
		for range 2 {
			if err := g.GoFor("greedy", 0, work); err != nil {
				t.Fatal(err)
			}
		}
		if _, over := errors.AsType[*quota.ExceededError](g.GoFor("greedy", 0, work)); !over {
			t.Error("the third work of a holder with two places started")
		}
		if err := errors.Join(g.GoFor("other", 0, work), g.Go(work)); err != nil {
			t.Error(err)
		}
		close(proceed)
		synctest.Wait()
		grant, err := g.Reserve("greedy", 0)
		if err != nil {
			t.Fatal(err)
		}
		if err := g.GoFor("greedy", 0, work); err != nil {
			t.Error(err)
		}
		g.Close()
		if err := g.GoGranted(grant, work); !errors.Is(err, ErrBusy) {
			t.Errorf("work that starts after the end: %v, expected ErrBusy", err)
		}
		if _, err := g.Reserve("greedy", 0); err != nil {
			t.Errorf("work that could not start keeps its place: %v", err)
		}
	})
}

// TestGroup_LargeMessageTakesMorePlaces: a message of 64 KiB takes three places.
func TestGroup_LargeMessageTakesMorePlaces(t *testing.T) {
	t.Parallel()
	g, err := NewGroup(0, 3)
	if err != nil {
		t.Fatal(err)
	}
	defer g.Close()
	if _, err := g.Reserve("holder", 2*bytesPerPlace); err != nil {
		t.Fatal(err)
	}
	if _, err := g.Reserve("holder", 0); err == nil {
		t.Error("a fourth place of a holder with three was given")
	}
}

// TestGroup_DrainDoesNotWaitForService: Drain waits for work, but not for work that
// lasts as long as the group; Close ends both.
func TestGroup_DrainDoesNotWaitForService(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g, err := NewGroup(1, 1)
		if err != nil {
			t.Fatal(err)
		}
		untilEnd := func(ctx context.Context) { <-ctx.Done() }
		proceed := make(chan struct{})
		if err := errors.Join(g.Go(func(context.Context) { <-proceed }), g.Serve(untilEnd)); err != nil {
			t.Fatal(err)
		}
		if err := g.Go(untilEnd); !errors.Is(err, ErrBusy) {
			t.Errorf("a second work in a group of one: %v, expected ErrBusy", err)
		}
		ended := make(chan bool, 1)
		go func() { ended <- g.Drain(t.Context()) }()
		synctest.Wait()
		select {
		case <-ended:
			t.Error("Drain did not wait for work")
		default:
		}
		close(proceed)
		if !<-ended {
			t.Error("Drain reports work that has ended as going on")
		}
		g.Close()
	})
}
