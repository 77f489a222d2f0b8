package gatewaytest

import (
	"context"
	"fmt"
	"os"
	"runtime"
	"sync"
	"testing"

	"go.uber.org/goleak"

	"github.com/aepb/aepb-gateway/gateway/httpapi"
	"github.com/aepb/aepb-gateway/gateway/state/redis"
)

// Main runs the tests of a package that starts gateways, m, and fails if a goroutine is left. m is a [testing.M], or is
// of [Lasting.Around].
func Main(m goleak.TestingM) {
	httpapi.Quiet()
	redis.Quiet()
	goleak.VerifyTestMain(m)
}

// Lasting stands for a test where something is started once for all tests of a package. It ends with [Lasting.Around].
// It has only the methods below.
type Lasting struct {
	testing.TB

	mu     sync.Mutex
	stops  []func()
	failed bool
}

// Around runs the tests of m, and then what was to be cleaned up, the last first. If something failed while it was
// stopped, the tests have failed.
func (l *Lasting) Around(m *testing.M) interface{ Run() int } { return around{m, l} }

type around struct {
	m *testing.M
	l *Lasting
}

// Run is that of a [testing.M].
func (a around) Run() int {
	code := a.m.Run()
	for {
		stop := a.l.last()
		if stop == nil {
			break
		}
		stop()
	}
	if a.l.Failed() {
		code = max(code, 1)
	}
	return code
}

// last takes what was begun last; nil: there is nothing left.
func (l *Lasting) last() func() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.stops) == 0 {
		return nil
	}
	stop := l.stops[len(l.stops)-1]
	l.stops = l.stops[:len(l.stops)-1]
	return stop
}

// Helper does nothing.
func (l *Lasting) Helper() {}

// Context is that of the process.
func (l *Lasting) Context() context.Context { return context.Background() }

// Cleanup has something called after the tests.
func (l *Lasting) Cleanup(stop func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.stops = append(l.stops, stop)
}

// TempDir is a new folder, which is removed after the tests. An error is fatal.
func (l *Lasting) TempDir() string {
	dir, err := os.MkdirTemp("", "gatewaytest")
	if err != nil {
		l.Fatal(err)
	}
	l.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			l.Errorf("remove: %v", err)
		}
	})
	return dir
}

// Errorf says what is wrong and has the package fail.
func (l *Lasting) Errorf(format string, args ...any) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.failed = true
	_, _ = fmt.Fprintf(os.Stderr, format+"\n", args...)
}

// Failed says whether something has failed.
func (l *Lasting) Failed() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.failed
}

// Fatal says what is wrong, has the package fail, and ends the goroutine, which is that of the test that asked first.
func (l *Lasting) Fatal(args ...any) {
	l.Errorf("%s", fmt.Sprint(args...))
	runtime.Goexit()
}
