package workers

import (
	"sync/atomic"
	"testing"
	"testing/synctest"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestWorkIsDoneAtOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g := New(2)
		var running, done atomic.Int32
		open := make(chan struct{})
		for range 10 {
			g.Go(func() { running.Add(1); <-open; done.Add(1) })
		}
		synctest.Wait()
		if running.Load() != 10 {
			t.Errorf("%d of 10 run: nothing waits for what was there before", running.Load())
		}
		close(open)
		synctest.Wait()
		if n := g.waiting.Load(); done.Load() != 10 || n != 2 {
			t.Errorf("%d of 10 are done, %d wait for more", done.Load(), n)
		}
		g.Wait()
	})
}

// Work that comes when somebody waits is done by whoever waits.
func TestWhoWaitsWorks(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g := New(1)
		for n := range 3 {
			g.Go(func() {})
			synctest.Wait()
			if waiting := g.waiting.Load(); waiting != 1 {
				t.Errorf("after %d, %d wait", n+1, waiting)
			}
		}
		open := make(chan struct{})
		g.Go(func() { <-open })
		synctest.Wait()
		if g.waiting.Load() != 0 {
			t.Error("who waited did not work")
		}
		close(open)
		g.Wait()
	})
}

// What runs may begin more after Wait has, and Wait waits for it.
func TestWorkBeginsWork(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g := New(1)
		open, done := make(chan struct{}), false
		g.Go(func() { <-open; g.Go(func() { done = true }) })
		over := make(chan struct{})
		go func() { g.Wait(); close(over) }()
		synctest.Wait()
		close(open)
		<-over
		if !done {
			t.Error("Wait did not wait")
		}
	})
}

func BenchmarkGo(b *testing.B) {
	for name, most := range map[string]int32{"waiting": 1, "new": 0} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			g := New(most)
			defer g.Wait()
			done := make(chan struct{})
			for b.Loop() {
				g.Go(func() { deep(16); done <- struct{}{} })
				<-done
			}
		})
	}
}

// deep takes n KiB of stack.
func deep(n int) byte {
	var room [1 << 10]byte
	if n > 0 {
		room[n] = deep(n - 1)
	}
	return room[0]
}
