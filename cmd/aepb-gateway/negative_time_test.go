package main

import (
	"net/http"
	"testing"
	"time"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/gateway/config"
)

// sending sends a letter and does not wait.
func (b *bed) sending(t *testing.T, l letter) <-chan reply {
	t.Helper()
	answer := make(chan reply, 1)
	request := b.request(t, l)
	go func() {
		defer close(answer)
		if got, err := receive(b.client, request); err == nil {
			answer <- got
		} else {
			t.Errorf("no answer: %v", err)
		}
	}()
	return answer
}

// The same message while it is being worked on: to come again, not to be worked
// on twice (R6).
func TestSameMessageMeanwhile(t *testing.T) {
	t.Parallel()
	b := newBed(t, plan{})
	entered, release := make(chan struct{}, 1), make(chan struct{})
	f := &fake{conduct: held(entered, release)}
	b.serve(t, "slow", "mcp-v1", f, host{})
	l := b.sealed(t, letter{at: "/aepb/translate?from=a2a-v1&dest=slow", body: addBody(b.number())})
	first := b.sending(t, l)
	<-entered
	busy := want{status: 409, code: "in_progress", reason: "received before", header: map[string]string{"Retry-After": "1"}}
	b.refused(t, l, b.send(t, l), busy)
	door := letter{at: "/agents/slow/a2a", body: l.body, tokens: l.tokens}
	native := busy
	native.status, native.rpc = http.StatusOK, -32603
	b.refused(t, door, b.send(t, door), native)
	spoilt := l
	spoilt.body += " "
	b.refused(t, spoilt, b.send(t, spoilt), invalid(ect.ReasonHashMismatch, "out_hash"))
	b.works(t)
	close(release)
	answer := <-first
	b.right(t, answer, "done")
	sameAnswer(t, answer, b.send(t, l))
	if calls := f.calls.Load(); calls != 1 {
		t.Errorf("the agent was called %d times", calls)
	}
}

// TestStop_WhileWorking: readiness fails at once, and during shutdown_delay all goes on.
// Then new work is refused with 503 and Retry-After by the listener that is still open,
// and what is in flight finishes (R16).
func TestStop_WhileWorking(t *testing.T) {
	t.Parallel()
	delay := config.Duration(time.Second)
	b := newBed(t, plan{config: config.Config{ShutdownDelay: &delay, ShutdownGrace: config.Duration(20 * time.Second)}})
	entered, release := make(chan struct{}, 1), make(chan struct{})
	b.serve(t, "slow", "mcp-v1", &fake{conduct: held(entered, release)}, host{})
	add := func() letter {
		return b.sealed(t, letter{at: "/aepb/translate?from=a2a-v1&dest=calculator", body: addBody(b.number())})
	}
	first := b.sending(t, b.sealed(t, letter{at: "/aepb/translate?from=a2a-v1&dest=slow", body: addBody(b.number())}))
	<-entered
	b.end()
	soonIn(t.Context(), background, func() bool {
		return b.send(t, b.operator("GET", "/readyz", "", nil)).status == http.StatusServiceUnavailable
	})
	if status, text := b.monitor(t, "/readyz", ""); status != http.StatusServiceUnavailable || text != "stopping\n" {
		t.Errorf("ready at listen.metrics while stopping: %d %s", status, text)
	}
	b.right(t, b.send(t, add()), `"sum":`)
	refused := want{status: 503, code: "draining", proof: "internal_error", header: map[string]string{"Retry-After": "5"}}
	soonIn(t.Context(), background, func() bool { return b.send(t, add()).status == refused.status })
	l := add()
	b.refused(t, l, b.send(t, l), refused)
	close(release)
	b.right(t, <-first, "done")
}
