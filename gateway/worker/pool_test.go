package worker

import (
	"sync/atomic"
	"testing"
	"testing/synctest"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// TestPool_RunsAtOnce: new work does not wait for work that runs.
func TestPool_RunsAtOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := NewPool(2)
		var running, done atomic.Int32
		open := make(chan struct{})
		for range 10 {
			p.Go(func() { running.Add(1); <-open; done.Add(1) })
		}
		synctest.Wait()
		if running.Load() != 10 {
			t.Errorf("%d of 10 run, expected all at once", running.Load())
		}
		close(open)
		synctest.Wait()
		if n := p.idle.Load(); done.Load() != 10 || n != 2 {
			t.Errorf("%d of 10 are done, %d goroutines are idle, expected 10 and 2", done.Load(), n)
		}
		p.Wait()
	})
}

// TestPool_IdleGoroutineTakesWork: work that comes while a goroutine is idle runs there.
func TestPool_IdleGoroutineTakesWork(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := NewPool(1)
		for n := range 3 {
			p.Go(func() {})
			synctest.Wait()
			if idle := p.idle.Load(); idle != 1 {
				t.Errorf("after work %d, %d goroutines are idle, expected 1", n+1, idle)
			}
		}
		open := make(chan struct{})
		p.Go(func() { <-open })
		synctest.Wait()
		if p.idle.Load() != 0 {
			t.Error("the idle goroutine did not take the work")
		}
		close(open)
		p.Wait()
	})
}

// TestPool_WaitsForWorkThatWorkStarts: work may start more after Wait has begun.
func TestPool_WaitsForWorkThatWorkStarts(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := NewPool(1)
		open, done := make(chan struct{}), false
		p.Go(func() { <-open; p.Go(func() { done = true }) })
		over := make(chan struct{})
		go func() { p.Wait(); close(over) }()
		synctest.Wait()
		close(open)
		<-over
		if !done {
			t.Error("Wait returned before the work was done")
		}
	})
}

func BenchmarkPool_Go(b *testing.B) {
	for name, maxIdle := range map[string]int32{"idle": 1, "new": 0} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			p := NewPool(maxIdle)
			defer p.Wait()
			done := make(chan struct{})
			for b.Loop() {
				p.Go(func() { deep(16); done <- struct{}{} })
				<-done
			}
		})
	}
}

// deep takes n KiB of stack.
func deep(n int) byte {
	var space [1 << 10]byte
	if n > 0 {
		space[n] = deep(n - 1)
	}
	return space[0]
}
