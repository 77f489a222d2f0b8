package pairs

import (
	"crypto/tls"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/ect/ecttest"
	gatewaytest "github.com/aepb/aepb-gateway/test/harness/gateway"
	"github.com/aepb/aepb-gateway/translators/canonical"
)

// overheard is what an agent was sent.
type overheard struct {
	body   []byte
	tokens []string
}

// listensTo serves a fake that keeps what it is sent.
func listensTo(t *testing.T, b *gatewaytest.Fixture, name string, binding canonical.Binding) func() overheard {
	t.Helper()
	svid := b.SVID(t, "/"+name)
	var mu sync.Mutex
	var last overheard
	f := &gatewaytest.Fake{}
	f.Conduct = func(w http.ResponseWriter, r *http.Request, good []byte) {
		mu.Lock()
		defer mu.Unlock()
		last.tokens = r.Header.Values("Execution-Context")
		gatewaytest.Well(w, r, good)
	}
	speak := f.SpeakMCP
	if binding == "a2a-v1" {
		speak = f.SpeakA2A
	}
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		gatewaytest.Must(t, err)
		mu.Lock()
		last.body = body
		mu.Unlock()
		r.Body = io.NopCloser(strings.NewReader(string(body)))
		speak(w, r)
	}))
	server.TLS = gatewaytest.Serving(svid)
	server.StartTLS()
	t.Cleanup(server.Close)
	b.List(t, name, binding, server.URL, gatewaytest.Host{ID: svid.ID})
	return func() overheard {
		mu.Lock()
		defer mu.Unlock()
		return last
	}
}

// TestECTField_A2AAndMCP: callers and agents of A2A and of MCP have ECTs in the HTTP
// field Execution-Context (AEPB, ECT Carriage): the caller's goes on behind ours, each
// is the child of the one before, and each is about the bytes that travelled (R5). An
// agent of TLS 1.2 is sent nothing.
func TestECTField_A2AAndMCP(t *testing.T) {
	t.Parallel()
	b := gatewaytest.NewFixture(t, gatewaytest.Plan{})
	received := map[canonical.Binding]func() overheard{"a2a-v1": listensTo(t, b, "ear-a2a-v1", "a2a-v1"), "mcp-v1": listensTo(t, b, "ear-mcp-v1", "mcp-v1")}
	for dest, agent := range received {
		name, called := "ear-"+string(dest), "echo"
		if dest == "a2a-v1" {
			called = "fake"
		}
		for from, l := range map[canonical.Binding]gatewaytest.HTTPRequest{
			"a2a-v1": {At: "/agents/" + name + "/a2a", Body: strings.Replace(gatewaytest.AddBody(1), `"add"`, `"`+called+`"`, 1), Header: map[string]string{"A2A-Version": "1.0"}},
			"mcp-v1": {At: "/agents/" + name + "/mcp", Body: gatewaytest.CallBody(called, "x"), Header: gatewaytest.Mirror("tools/call", called)},
		} {
			l.Tokens = []string{b.Token(t, l.Body)}
			got := b.Send(t, l)
			directions, answer := b.Proofs(t, got), agent()
			if got.Status != http.StatusOK || len(directions) != 2 || len(answer.tokens) != 2 {
				t.Errorf("%s to %s: got %d with %d tokens, the agent %d: %s", from, dest, got.Status, len(directions), len(answer.tokens), gatewaytest.Short(got.Body))
				continue
			}
			source, _, err := ect.ParseUnverified(l.Tokens[0])
			gatewaytest.Must(t, err)
			for what, ok := range map[string]bool{
				"the agent has our token":           answer.tokens[0] == got.Header.Values("Execution-Context")[0],
				"and the caller's behind it":        answer.tokens[1] == l.Tokens[0],
				"ours is the child of the caller's": slices.Equal(directions[0].Parents, []ect.ID{source.ID}) && directions[0].Workflow == source.Workflow,
				"the reply's is the child of ours":  slices.Equal(directions[1].Parents, []ect.ID{directions[0].ID}),
				"about what came in":                directions[0].InputHash == ect.Hash([]byte(l.Body)),
				"about what went out":               directions[0].OutputHash == ect.Hash(answer.body),
				"about what went home":              directions[1].OutputHash == ect.Hash(got.Body),
				"in no other form":                  directions[0].Ext[ect.ExtHashForm] == nil,
			} {
				if !ok {
					t.Errorf("%s to %s: not so: %s", from, dest, what)
				}
			}
			l.Tokens = []string{ecttest.Mint(t, b.Me, b.Recipe(l.Body+" "))}
			if got := b.Send(t, l); got.Status != http.StatusForbidden {
				t.Errorf("%s to %s: a token about other bytes: got %d %s", from, dest, got.Status, gatewaytest.Short(got.Body))
			}
		}
	}
	conf := gatewaytest.Serving(b.SVID(t, "/old"))
	conf.MinVersion, conf.MaxVersion = tls.VersionTLS12, tls.VersionTLS12
	for _, binding := range []canonical.Binding{"a2a-v1", "mcp-v1"} {
		old := &gatewaytest.Fake{Conduct: gatewaytest.Well}
		b.Serve(t, "old-"+string(binding), binding, old, gatewaytest.Host{TLS: conf})
		got := b.Send(t, gatewaytest.HTTPRequest{At: "/agents/old-" + string(binding) + "/a2a", Body: gatewaytest.TextBody("x"), Header: map[string]string{"A2A-Version": "1.0"}})
		if old.Calls.Load() != 0 || !strings.Contains(string(got.Body), `"error"`) {
			t.Errorf("%s over TLS 1.2: got %d %s", binding, got.Status, gatewaytest.Short(got.Body))
		}
	}
	b.Works(t)
}
