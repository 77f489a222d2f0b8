package wait_test

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aepb/aepb-gateway/test/harness/wait"
)

// TestPause_UntilTimeOrContextEnds: it lasts as long as it is told, or until its context ends.
func TestPause_UntilTimeOrContextEnds(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		if !wait.Pause(t.Context(), time.Minute) || time.Since(start) != time.Minute {
			t.Errorf("it lasted %s", time.Since(start))
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		start = time.Now()
		if wait.Pause(ctx, time.Minute) || time.Since(start) != time.Second {
			t.Errorf("beyond its context it lasted %s", time.Since(start))
		}
	})
}

// TestUntil_DoneOrNamedError: it ends when it is done, or with an error that names what was not.
func TestUntil_DoneOrNamedError(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		times := 0
		if err := wait.Until(t.Context(), "the third time", func() bool { times++; return times == 3 }); err != nil || times != 3 {
			t.Errorf("%d times: %v", times, err)
		}
		start := time.Now()
		err := wait.Until(t.Context(), "never", func() bool { return false })
		if err == nil || !strings.Contains(err.Error(), "never") || time.Since(start) != wait.Limit {
			t.Errorf("after %s: %v", time.Since(start), err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if err := wait.Until(ctx, "too late", func() bool { return false }); err == nil {
			t.Error("an ended context went unnoticed")
		}
	})
}
