package uacp

import (
	"runtime"
	"testing"
	"time"

	"github.com/aepb/aepb-gateway/gateway/worker"
	form "github.com/aepb/aepb-gateway/translators/uacp"
)

// deaf is a peer that does not read.
type deaf struct{ ends chan struct{} }

func (d deaf) write([]byte) error { <-d.ends; return nil }
func (deaf) acked(uint32)         {}
func (deaf) close()               {}

// TestListener_RepeatedFramesAreBounded: a peer that repeats one frame, and reads no answer, has no
// more of them under way than of other frames.
func TestListener_RepeatedFramesAreBounded(t *testing.T) {
	body, err := form.Frame{Verb: form.Ask, QoS: 1, ID: 7}.Bytes()
	if err != nil {
		t.Fatal(err)
	}
	l, peer := &Listener{deps: ListenerDeps{Config: Config{}.withDefaults()}}, deaf{make(chan struct{})}
	g := l.guest(nil, peer, "chef", worker.NewPool(idleWorkers))
	g.recent.seen(body, time.Now())
	g.recent.answered(body, body)
	before := runtime.NumGoroutine()
	for range 10_000 {
		if !g.take(t.Context(), body, true) {
			t.Fatal("the connection ends")
		}
	}
	if now := runtime.NumGoroutine(); now > before+2*l.deps.Config.InFlight {
		t.Errorf("%d goroutines were, and %d are", before, now)
	}
	close(peer.ends)
	g.group.Wait()
}
