package stories

import (
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/aepb/aepb-gateway/gateway/config"
	gatewaytest "github.com/aepb/aepb-gateway/test/harness/gateway"
	"github.com/aepb/aepb-gateway/translators/ainp"
	"github.com/aepb/aepb-gateway/translators/uacp"
)

// TestStop_WaitingCallersAreAnswered: a caller that waits for its answer longer than
// shutdown_grace gets one in its protocol on every listener, each is counted and logged,
// and then the process ends without an error (R16). An agent that never answers, and a
// client that never reads, change nothing about that.
func TestStop_WaitingCallersAreAnswered(t *testing.T) {
	t.Parallel()
	var delay config.Duration
	p := gatewaytest.Plan{Config: config.Config{ShutdownDelay: &delay, ShutdownGrace: config.Duration(300 * time.Millisecond)}}
	net := gatewaytest.NewSLIMNet(t, &p)
	b := gatewaytest.NewFixture(t, p)
	const callers = 10
	entered := make(chan struct{}, callers)
	b.Serve(t, "slow", "mcp-v1", &gatewaytest.Fake{Conduct: func(_ http.ResponseWriter, r *http.Request, _ []byte) {
		entered <- struct{}{}
		<-r.Context().Done()
	}}, gatewaytest.Host{})
	alice := gatewaytest.Did("alice")
	slim := net.Join(t, "org/callers/alice", nil)
	net.Exposed(t, slim, "slow")
	remote := b.Remote(t, b.ClientTLS(t, b.Dev.Client))
	socket := b.Connect(t, "slow")
	refused := gatewaytest.Want{Status: 503, Code: "draining", Proof: "internal_error", Header: map[string]string{"Retry-After": "5"}}
	native := refused
	native.RPC = -32603
	posts := func(l gatewaytest.HTTPRequest, w gatewaytest.Want) func(*testing.T) {
		l = b.Sealed(t, l)
		return func(t *testing.T) { t.Helper(); b.Refused(t, l, b.Send(t, l), w) }
	}
	says := func(t *testing.T, answer string, words ...string) {
		t.Helper()
		for _, word := range words {
			if !strings.Contains(answer, word) {
				t.Errorf("%q is not in the answer %q", word, gatewaytest.Short([]byte(answer)))
			}
		}
	}
	const restBody = `{"message":{"messageId":"m1","role":"ROLE_USER","parts":[{"data":{"skill":"add","input":{"a":3,"b":1}}}]}}`
	older := gatewaytest.HTTPRequest{At: "/agents/slow/mcp", Header: map[string]string{"Mcp-Protocol-Version": "2025-11-25"}, Body: strings.Replace(gatewaytest.CallBody("add", "x"), ","+gatewaytest.ModernMeta, "", 1)}
	ways := map[string]func(*testing.T){
		"translate":        posts(gatewaytest.HTTPRequest{At: "/aepb/translate?from=a2a-v1&dest=slow", Body: gatewaytest.AddBody(b.Number())}, refused),
		"A2A, JSON-RPC":    posts(gatewaytest.HTTPRequest{At: "/agents/slow/a2a", Body: gatewaytest.AddBody(b.Number())}, native),
		"A2A, HTTP+JSON":   posts(gatewaytest.HTTPRequest{At: "/agents/slow/a2a/message:send", Body: restBody}, gatewaytest.Want{Status: 503, Rest: "UNAVAILABLE", Proof: "internal_error", Header: map[string]string{"Retry-After": "5"}}),
		"MCP":              posts(gatewaytest.HTTPRequest{At: "/agents/slow/mcp", Header: gatewaytest.Mirror("tools/call", "add"), Body: gatewaytest.CallBody("add", "x")}, native),
		"MCP with session": posts(older, native),
		"A2A over gRPC": func(t *testing.T) {
			t.Helper()
			got := remote.Call(t.Context(), "SendMessage", [][]byte{gatewaytest.Request(t, "SendMessage", strings.Replace(gatewaytest.AddTo, "calculator", "slow", 1))})
			says(t, got.Code+" "+got.Details, "UNAVAILABLE", "stopped")
		},
		"SLIM": func(t *testing.T) {
			t.Helper()
			f, err := gatewaytest.AskSLIM(t, slim, "slow", "SendMessage", gatewaytest.InProtobuf(t, gatewaytest.AddBody(3)), nil)
			says(t, gatewaytest.RefusedAs(f, err), "14 UnavailableError")
		},
		"µACP": func(t *testing.T) {
			t.Helper()
			says(t, string(b.AskUACP(t, "slow", gatewaytest.FrameOf(t, uacp.FormEnveloped, gatewaytest.Addition(4)))), "stopped")
		},
		"AINP": func(t *testing.T) {
			t.Helper()
			got := b.Send(t, gatewaytest.HTTPRequest{At: "/agents/slow/ainp", Body: string(gatewaytest.Signed(alice, gatewaytest.EnvelopeOf(t, alice, gatewaytest.Addition(5)), ainp.SigDraft))})
			says(t, string(got.Body), "stopped")
		},
		"AINP over a WebSocket": func(t *testing.T) {
			t.Helper()
			gatewaytest.Tell(t, socket, alice, gatewaytest.Addition(6))
			says(t, gatewaytest.Hear(t, socket).Raw, "stopped")
		},
	}
	if len(ways) != callers {
		t.Fatalf("%d ways", len(ways))
	}
	var asking sync.WaitGroup
	for name, ask := range ways { // all at once, which parallel tests are not on a small machine
		asking.Go(func() {
			t.Run(name, ask)
		})
	}
	for i := range callers {
		select {
		case <-entered:
		case <-time.After(gatewaytest.Patience):
			t.Errorf("%d of %d callers reach the agent", i, callers)
		}
	}
	b.End()
	asking.Wait()
	began := time.Now()
	b.Stop()
	if took := time.Since(began); took > 3*time.Second {
		t.Errorf("the process goes on for %s after the last answer", took)
	}
	if got := strings.Count(b.Logs.String(), `"result":"draining"`) + strings.Count(b.Logs.String(), "result=draining"); got != callers {
		t.Errorf("%d of %d answers are logged", got, callers)
	}
}

// TestStop_DrainingEndsConnections: from the moment at which new work is refused, every
// answer over HTTP/1.1 ends its connection, so that the next request of its caller goes
// where there is work for it. Before, during shutdown_delay, connections are kept.
func TestStop_DrainingEndsConnections(t *testing.T) {
	t.Parallel()
	delay := config.Duration(5 * time.Second) // more than one request takes on a busy machine
	b := gatewaytest.NewFixture(t, gatewaytest.Plan{Config: config.Config{ShutdownDelay: &delay, ShutdownGrace: config.Duration(20 * time.Second)}})
	entered, release := make(chan struct{}, 1), make(chan struct{})
	b.Serve(t, "slow", "mcp-v1", &gatewaytest.Fake{Conduct: gatewaytest.Delayed(entered, release)}, gatewaytest.Host{})
	first := b.Sending(t, b.Sealed(t, gatewaytest.HTTPRequest{At: "/aepb/translate?from=a2a-v1&dest=slow", Body: gatewaytest.AddBody(b.Number())}))
	<-entered
	conf := b.ClientTLS(t, b.Dev.Client)
	conf.NextProtos = []string{"http/1.1"}
	client := b.Dialing(t, conf)
	ask := func() (status int, ends bool) {
		response, err := client.Do(b.Request(t, b.Sealed(t, gatewaytest.HTTPRequest{Body: gatewaytest.AddBody(b.Number())})))
		gatewaytest.Must(t, err)
		gatewaytest.Must(t, response.Body.Close())
		if response.ProtoMajor != 1 {
			t.Errorf("the answer is in %s", response.Proto)
		}
		return response.StatusCode, response.Close
	}
	b.End()
	if status, ends := ask(); status != http.StatusOK || ends {
		t.Errorf("during the delay: %d, the connection ends: %t", status, ends)
	}
	refused := func() bool { status, _ := ask(); return status == http.StatusServiceUnavailable }
	gatewaytest.Within(t, gatewaytest.Patience, "new work is refused", refused)
	if status, ends := ask(); status != http.StatusServiceUnavailable || !ends {
		t.Errorf("while draining: %d, the connection ends: %t", status, ends)
	}
	close(release)
	b.Right(t, <-first, "done")
}
