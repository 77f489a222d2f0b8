package negative

import (
	"net/http"
	"testing"
	"time"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/gateway/config"
	gatewaytest "github.com/aepb/aepb-gateway/test/harness/gateway"
)

// The same message while it is being worked on: to come again, not to be worked
// on twice (R6).
func TestReplay_WhileInProgress(t *testing.T) {
	t.Parallel()
	b := shared()
	entered, release := make(chan struct{}, 1), make(chan struct{})
	f := &gatewaytest.Fake{Conduct: gatewaytest.Delayed(entered, release)}
	b.Serve(t, "slow", "mcp-v1", f, gatewaytest.Host{})
	l := b.Sealed(t, gatewaytest.HTTPRequest{At: "/aepb/translate?from=a2a-v1&dest=slow", Body: gatewaytest.AddBody(b.Number())})
	first := b.Sending(t, l)
	<-entered
	busy := gatewaytest.Want{Status: 409, Code: "in_progress", Reason: "received before", Header: map[string]string{"Retry-After": "1"}}
	b.Refused(t, l, b.Send(t, l), busy)
	endpoint := gatewaytest.HTTPRequest{At: "/agents/slow/a2a", Body: l.Body, Tokens: l.Tokens}
	native := busy
	native.Status, native.RPC = http.StatusOK, -32603
	b.Refused(t, endpoint, b.Send(t, endpoint), native)
	spoilt := l
	spoilt.Body += " "
	b.Refused(t, spoilt, b.Send(t, spoilt), gatewaytest.Invalid(ect.ReasonHashMismatch, "out_hash"))
	b.Works(t)
	close(release)
	answer := <-first
	b.Right(t, answer, "done")
	gatewaytest.SameAnswer(t, answer, b.Send(t, l))
	if calls := f.Calls.Load(); calls != 1 {
		t.Errorf("the agent was called %d times", calls)
	}
}

// TestStop_WhileWorking: readiness fails at once, and during shutdown_delay all goes on.
// Then new work is refused with 503 and Retry-After by the listener that is still open,
// and what is in flight finishes (R16). The gateway is its own: it ends.
func TestStop_WhileWorking(t *testing.T) {
	t.Parallel()
	delay := config.Duration(time.Second)
	b := gatewaytest.NewFixture(t, gatewaytest.Plan{Config: config.Config{ShutdownDelay: &delay, ShutdownGrace: config.Duration(20 * time.Second)}})
	entered, release := make(chan struct{}, 1), make(chan struct{})
	b.Serve(t, "slow", "mcp-v1", &gatewaytest.Fake{Conduct: gatewaytest.Delayed(entered, release)}, gatewaytest.Host{})
	add := func() gatewaytest.HTTPRequest {
		return b.Sealed(t, gatewaytest.HTTPRequest{At: "/aepb/translate?from=a2a-v1&dest=calculator", Body: gatewaytest.AddBody(b.Number())})
	}
	first := b.Sending(t, b.Sealed(t, gatewaytest.HTTPRequest{At: "/aepb/translate?from=a2a-v1&dest=slow", Body: gatewaytest.AddBody(b.Number())}))
	<-entered
	b.End()
	gatewaytest.SoonIn(t.Context(), gatewaytest.Background, func() bool {
		return b.Send(t, b.Operator("GET", "/readyz", "", nil)).Status == http.StatusServiceUnavailable
	})
	if status, text := b.Monitor(t, "/readyz", ""); status != http.StatusServiceUnavailable || text != "stopping\n" {
		t.Errorf("ready at listen.metrics while stopping: %d %s", status, text)
	}
	b.Right(t, b.Send(t, add()), `"sum":`)
	refused := gatewaytest.Want{Status: 503, Code: "draining", Proof: "internal_error", Header: map[string]string{"Retry-After": "5"}}
	gatewaytest.SoonIn(t.Context(), gatewaytest.Background, func() bool { return b.Send(t, add()).Status == refused.Status })
	l := add()
	b.Refused(t, l, b.Send(t, l), refused)
	close(release)
	b.Right(t, <-first, "done")
}
