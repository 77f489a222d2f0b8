package main

import (
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/aepb/aepb-gateway/gateway/config"
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
	p := plan{config: config.Config{ShutdownDelay: &delay, ShutdownGrace: config.Duration(300 * time.Millisecond)}}
	net := newSLIMNet(t, &p)
	b := newBed(t, p)
	const callers = 10
	entered := make(chan struct{}, callers)
	b.serve(t, "slow", "mcp-v1", &fake{conduct: func(_ http.ResponseWriter, r *http.Request, _ []byte) {
		entered <- struct{}{}
		<-r.Context().Done()
	}}, host{})
	alice := did("alice")
	slim := net.join(t, "org/callers/alice", nil)
	net.exposed(t, slim, "slow")
	remote := b.remote(t, b.clientTLS(t, b.dev.Client))
	socket := b.connect(t, "slow")
	refused := want{status: 503, code: "draining", proof: "internal_error", header: map[string]string{"Retry-After": "5"}}
	native := refused
	native.rpc = -32603
	posts := func(l letter, w want) func(*testing.T) {
		l = b.sealed(t, l)
		return func(t *testing.T) { t.Helper(); b.refused(t, l, b.send(t, l), w) }
	}
	says := func(t *testing.T, answer string, words ...string) {
		t.Helper()
		for _, word := range words {
			if !strings.Contains(answer, word) {
				t.Errorf("%q is not in the answer %q", word, short([]byte(answer)))
			}
		}
	}
	const restBody = `{"message":{"messageId":"m1","role":"ROLE_USER","parts":[{"data":{"skill":"add","input":{"a":3,"b":1}}}]}}`
	older := letter{at: "/agents/slow/mcp", header: map[string]string{"Mcp-Protocol-Version": "2025-11-25"}, body: strings.Replace(callBody("add", "x"), ","+modernMeta, "", 1)}
	ways := map[string]func(*testing.T){
		"translate":        posts(letter{at: "/aepb/translate?from=a2a-v1&dest=slow", body: addBody(b.number())}, refused),
		"A2A, JSON-RPC":    posts(letter{at: "/agents/slow/a2a", body: addBody(b.number())}, native),
		"A2A, HTTP+JSON":   posts(letter{at: "/agents/slow/a2a/message:send", body: restBody}, want{status: 503, rest: "UNAVAILABLE", proof: "internal_error", header: map[string]string{"Retry-After": "5"}}),
		"MCP":              posts(letter{at: "/agents/slow/mcp", header: mirror("tools/call", "add"), body: callBody("add", "x")}, native),
		"MCP with session": posts(older, native),
		"A2A over gRPC": func(t *testing.T) {
			t.Helper()
			got := remote.Call(t.Context(), "SendMessage", [][]byte{request(t, "SendMessage", strings.Replace(addTo, "calculator", "slow", 1))})
			says(t, got.Code+" "+got.Details, "UNAVAILABLE", "stopped")
		},
		"SLIM": func(t *testing.T) {
			t.Helper()
			f, err := askSLIM(t, slim, "slow", "SendMessage", inProtobuf(t, addBody(3)), nil)
			says(t, refusedAs(f, err), "14 UnavailableError")
		},
		"µACP": func(t *testing.T) {
			t.Helper()
			says(t, string(b.askUACP(t, "slow", frameOf(t, uacp.FormEnveloped, addition(4)))), "stopped")
		},
		"AINP": func(t *testing.T) {
			t.Helper()
			got := b.send(t, letter{at: "/agents/slow/ainp", body: string(signed(alice, envelopeOf(t, alice, addition(5)), ainp.SigDraft))})
			says(t, string(got.body), "stopped")
		},
		"AINP over a WebSocket": func(t *testing.T) {
			t.Helper()
			tell(t, socket, alice, addition(6))
			says(t, hear(t, socket).raw, "stopped")
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
		case <-time.After(patience):
			t.Errorf("%d of %d callers reach the agent", i, callers)
		}
	}
	b.end()
	asking.Wait()
	began := time.Now()
	b.stop()
	if took := time.Since(began); took > 3*time.Second {
		t.Errorf("the process goes on for %s after the last answer", took)
	}
	if got := strings.Count(b.logs.String(), `"result":"draining"`) + strings.Count(b.logs.String(), "result=draining"); got != callers {
		t.Errorf("%d of %d answers are logged", got, callers)
	}
}

// TestStop_DrainingEndsConnections: from the moment at which new work is refused, every
// answer over HTTP/1.1 ends its connection, so that the next request of its caller goes
// where there is work for it. Before, during shutdown_delay, connections are kept.
func TestStop_DrainingEndsConnections(t *testing.T) {
	t.Parallel()
	delay := config.Duration(5 * time.Second) // more than one request takes on a busy machine
	b := newBed(t, plan{config: config.Config{ShutdownDelay: &delay, ShutdownGrace: config.Duration(20 * time.Second)}})
	entered, release := make(chan struct{}, 1), make(chan struct{})
	b.serve(t, "slow", "mcp-v1", &fake{conduct: held(entered, release)}, host{})
	first := b.sending(t, b.sealed(t, letter{at: "/aepb/translate?from=a2a-v1&dest=slow", body: addBody(b.number())}))
	<-entered
	conf := b.clientTLS(t, b.dev.Client)
	conf.NextProtos = []string{"http/1.1"}
	client := b.dialing(t, conf)
	ask := func() (status int, ends bool) {
		response, err := client.Do(b.request(t, b.sealed(t, letter{body: addBody(b.number())})))
		must(t, err)
		must(t, response.Body.Close())
		if response.ProtoMajor != 1 {
			t.Errorf("the answer is in %s", response.Proto)
		}
		return response.StatusCode, response.Close
	}
	b.end()
	if status, ends := ask(); status != http.StatusOK || ends {
		t.Errorf("during the delay: %d, the connection ends: %t", status, ends)
	}
	refused := func() bool { status, _ := ask(); return status == http.StatusServiceUnavailable }
	within(t, patience, "new work is refused", refused)
	if status, ends := ask(); status != http.StatusServiceUnavailable || !ends {
		t.Errorf("while draining: %d, the connection ends: %t", status, ends)
	}
	close(release)
	b.right(t, <-first, "done")
}
