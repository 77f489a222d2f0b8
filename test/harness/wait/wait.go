// Package wait waits in tests that drive real processes: for a time, or until
// something is done.
package wait

import (
	"context"
	"fmt"
	"time"
)

// Limit is what a server gets to begin in, or to end in.
const Limit = 30 * time.Second

// Until waits at most Limit for something that others do, and asks every 20 ms
// whether it is done. what names it in the error.
func Until(ctx context.Context, what string, done func() bool) error {
	ctx, cancel := context.WithTimeout(ctx, Limit)
	defer cancel()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for !done() {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return fmt.Errorf("wait: not in time: %s", what)
		}
	}
	return nil
}

// Pause waits; false: ctx ended.
func Pause(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}
