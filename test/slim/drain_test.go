package slim_test

import (
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/aepb/aepb-gateway/test/harness/redisserver"
)

// slowAgent is an A2A agent that answers a message that says hold when it is released.
type slowAgent struct {
	server   *httptest.Server
	holds    chan struct{} // one for each message that waits
	released chan struct{}
}

func (w *world) slowAgent(t *testing.T) *slowAgent {
	t.Helper()
	a := &slowAgent{holds: make(chan struct{}, 4), released: make(chan struct{})}
	a.server = httptest.NewUnstartedServer(a)
	a.server.TLS = w.svid(t, "slow")
	a.server.StartTLS()
	t.Cleanup(a.server.Close)
	return a
}

// ServeHTTP implements http.Handler.
func (a *slowAgent) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	if r.URL.Path == "/.well-known/aepb" { // of its successor
		fmt.Fprintf(w, `{"aepb_version":"1.0","agent_id":%q,"protocols":[{"id":"a2a-v1","version":"1.0","endpoint":%q,"priority":1}],"ect_assurance_level":"L2",
"lifecycle":{"status":"active","version":"2.0.0","deprecated_at":null,"sunset_at":null,"successor":null}}`, id("slow-2"), a.server.URL)
		return
	}
	if r.Method == http.MethodGet {
		fmt.Fprintf(w, `{"name":"slow","description":"waits","version":"1.0.0","capabilities":{},"defaultInputModes":["text/plain"],"defaultOutputModes":["text/plain"],
"skills":[{"id":"wait","name":"wait","description":"waits","tags":["wait"]}],
"supportedInterfaces":[{"url":%q,"protocolBinding":"JSONRPC","protocolVersion":"1.0"}]}`, a.server.URL)
		return
	}
	var request struct {
		ID     json.RawMessage
		Params struct {
			Message struct{ Parts []struct{ Text string } }
		}
	}
	if err := json.NewDecoder(r.Body).Decode(&request); err != nil || len(request.Params.Message.Parts) == 0 {
		http.Error(w, "no message", http.StatusBadRequest)
		return
	}
	text := request.Params.Message.Parts[0].Text
	if text == "hold" {
		a.holds <- struct{}{}
		<-a.released
	}
	fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"result":{"message":{"messageId":"m","role":"ROLE_AGENT","parts":[{"text":"done: %s"}]}}}`, request.ID, text)
}

// twoReplicas are one gateway twice, over one Redis, each in a namespace of its own on the node.
func (w *world) twoReplicas(t *testing.T, agents string) [2]*gate {
	t.Helper()
	server, err := redisserver.Start(t.Context(), filepath.Join(w.dir, "redis"))
	t.Cleanup(func() {
		if err := server.End(os.Kill); err != nil {
			t.Error(err)
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	w.write(t, "state.key", []byte(hex.EncodeToString([]byte("what seals the state of replicas"))+"\n"))
	w.svid(t, "replica")
	files := fmt.Sprintf("certificate: %q, key: %q, bundle: %q", w.path("replica.pem"), w.path("replica-key.pem"), w.path("bundle.pem"))
	var both [2]*gate
	for i, name := range []string{"first", "second"} {
		both[i] = w.gatewayOf(t, name, files, w.on(name, "spiffe://"+domain+"/client")+fmt.Sprintf(`
state: {key: %q, redis: {plaintext: loopback, max_replicas: 2, addresses: [%q]}}
%s`, w.path("state.key"), server.Address(), agents))
	}
	for _, g := range both {
		g.await(t, "connected to the SLIM node")
	}
	return both
}

// TestDrain_OverSLIMAtTwoReplicas: an agent is drained at one of two replicas while a real application's call
// over the node is under way at the other one: the call is answered, new calls at both are told
// when and where to go on, and when it is over the agent is retired at both.
func TestDrain_OverSLIMAtTwoReplicas(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	agent := w.slowAgent(t)
	release := sync.OnceFunc(func() { close(agent.released) })
	defer release()
	both := w.twoReplicas(t, fmt.Sprintf(`agents: {slow: {id: %q, endpoints: [{binding: a2a-v1, url: %q}], callers: ["spiffe://%s/*"]}}`, id("slow"), agent.server.URL, domain))
	ask := func(at *gate, as, text string) received {
		app := w.app(t, "org/agents/"+as, nil)
		got, err := say(t, app, "org/agents/"+as, "org/"+at.name+"/slow", `{"jsonrpc":"2.0","id":"q","method":"SendMessage","params":{"message":{"messageId":"`+as+`","role":"ROLE_USER","parts":[{"text":"`+text+`"}]}}}`)
		if err != nil {
			t.Errorf("%s at %s: %v", text, at.name, err)
		}
		return got
	}
	for _, g := range both {
		eventually(t, func() error { // a store that has just begun cannot exclude yet that it has seen a token
			if got := ask(g, "before-"+g.name, "hello"); !strings.Contains(got.Body, "done: hello") {
				return fmt.Errorf("at %s: %s", g.name, got.Body)
			}
			return nil
		})
	}
	next := agent.server.URL + "/.well-known/aepb"
	both[0].ctl(t, "lifecycle", "deprecate", "slow", "--reason", "replaced", "--successor", next, "--sunset", "2030-01-01T00:00:00Z")
	for _, g := range both {
		eventually(t, func() error {
			got := ask(g, "deprecated-"+g.name, "hello")
			if !strings.HasPrefix(got.Metadata["deprecation"], "@") || got.Metadata["sunset"] != "Tue, 01 Jan 2030 00:00:00 GMT" || !strings.Contains(got.Metadata["link"], next) {
				return fmt.Errorf("at %s, deprecated: %+v", g.name, got.Metadata)
			}
			return nil
		})
	}
	var calls sync.WaitGroup
	calls.Go(func() {
		if got := ask(both[0], "patient", "hold"); !strings.Contains(got.Body, "done: hold") {
			t.Errorf("the call under way: %+v", got)
		}
	})
	<-agent.holds
	both[1].ctl(t, "lifecycle", "drain", "slow", "--force", "--now", "--yes", "--reason", "replaced")
	for _, g := range both {
		var got received
		eventually(t, func() error {
			if got = ask(g, "late-"+g.name, "new"); strings.Contains(got.Body, "done: new") {
				return fmt.Errorf("%s takes new work", g.name)
			}
			return nil
		})
		for _, want := range []string{"draining", next, "retryDelay"} {
			if !strings.Contains(got.Body, want) {
				t.Errorf("at %s there is no %s in %s", g.name, want, got.Body)
			}
		}
	}
	release()
	calls.Wait()
	for _, g := range both {
		eventually(t, func() error {
			if shown := g.ctl(t, "lifecycle", "show", "slow", "-o", "json"); !strings.Contains(shown, `"status": "retired"`) {
				return fmt.Errorf("%s says %s", g.name, shown)
			}
			return nil
		})
		if got := ask(g, "after-"+g.name, "new"); !strings.Contains(got.Body, "retired") || !strings.Contains(got.Body, next) {
			t.Errorf("the retired agent at %s: %s", g.name, got.Body)
		}
	}
}
