package worker

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"

	"github.com/aepb/aepb-gateway/policy/quota"
)

// TestEvictor_TakeWaitsForTheEvicted: a holder without a place has its oldest work evicted, and gets the
// place once that has ended; work that was removed stays, and so does that of another holder.
func TestEvictor_TakeWaitsForTheEvicted(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var e Evictor
		free := 0
		take := func() error {
			if free == 0 {
				return &quota.ExceededError{Own: true}
			}
			free--
			return nil
		}
		var lives [3]context.Context
		var work [3]*Evictable
		for i, holder := range []string{"a", "a", "b"} {
			work[i], lives[i] = NewEvictable()
			e.Add(holder, work[i])
			e.Add(holder, work[i])
		}
		go func() {
			<-lives[0].Done()
			free++
			work[0].End()
		}()
		if err := e.Take(t.Context(), "a", take); err != nil || lives[1].Err() != nil || lives[2].Err() != nil {
			t.Errorf("%v, the others: %v, %v", err, lives[1].Err(), lives[2].Err())
		}
		e.Remove("a", work[1])
		if _, exceeded := errors.AsType[*quota.ExceededError](e.Take(t.Context(), "a", take)); !exceeded || lives[1].Err() != nil {
			t.Error("work was evicted that may not be")
		}
		ctx, cancel := context.WithCancel(t.Context())
		go func() {
			<-lives[2].Done()
			cancel() // the caller leaves before the work has ended
		}()
		if err := e.Take(ctx, "b", take); !errors.Is(err, context.Canceled) {
			t.Errorf("a caller who has left: %v", err)
		}
		work[1].End()
		work[2].End()
	})
}
