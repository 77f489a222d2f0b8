package main

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
	"github.com/aepb/aepb-gateway/translators/canonical"
)

// overheard is what an agent was sent.
type overheard struct {
	body   []byte
	tokens []string
}

// listensTo serves a fake that keeps what it is sent.
func (b *bed) listensTo(t *testing.T, name string, binding canonical.Binding) func() overheard {
	t.Helper()
	svid := b.svid(t, "/"+name)
	var mu sync.Mutex
	var last overheard
	f := &fake{}
	f.conduct = func(w http.ResponseWriter, r *http.Request, good []byte) {
		mu.Lock()
		defer mu.Unlock()
		last.tokens = r.Header.Values("Execution-Context")
		well(w, r, good)
	}
	speak := f.speakMCP
	if binding == "a2a-v1" {
		speak = f.speakA2A
	}
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		must(t, err)
		mu.Lock()
		last.body = body
		mu.Unlock()
		r.Body = io.NopCloser(strings.NewReader(string(body)))
		speak(w, r)
	}))
	server.TLS = serving(svid)
	server.StartTLS()
	t.Cleanup(server.Close)
	b.list(t, name, binding, server.URL, host{id: svid.ID})
	return func() overheard {
		mu.Lock()
		defer mu.Unlock()
		return last
	}
}

// TestEvidenceInTheField: callers and agents of A2A and of MCP have ECTs in the HTTP
// field Execution-Context (AEPB, ECT Carriage): the caller's goes on behind ours, each
// is the child of the one before, and each is about the bytes that travelled (R5). An
// agent of TLS 1.2 is sent nothing.
func TestEvidenceInTheField(t *testing.T) {
	t.Parallel()
	b := newBed(t, plan{})
	heard := map[canonical.Binding]func() overheard{"a2a-v1": b.listensTo(t, "ear-a2a-v1", "a2a-v1"), "mcp-v1": b.listensTo(t, "ear-mcp-v1", "mcp-v1")}
	for dest, agent := range heard {
		name, called := "ear-"+string(dest), "echo"
		if dest == "a2a-v1" {
			called = "fake"
		}
		for from, l := range map[canonical.Binding]letter{
			"a2a-v1": {at: "/agents/" + name + "/a2a", body: strings.Replace(addBody(1), `"add"`, `"`+called+`"`, 1), header: map[string]string{"A2A-Version": "1.0"}},
			"mcp-v1": {at: "/agents/" + name + "/mcp", body: callBody(called, "x"), header: mirror("tools/call", called)},
		} {
			l.tokens = []string{b.token(t, l.body)}
			got := b.send(t, l)
			legs, said := b.proofs(t, got), agent()
			if got.status != http.StatusOK || len(legs) != 2 || len(said.tokens) != 2 {
				t.Errorf("%s to %s: got %d with %d tokens, the agent %d: %s", from, dest, got.status, len(legs), len(said.tokens), short(got.body))
				continue
			}
			source, _, err := ect.ParseUnverified(l.tokens[0])
			must(t, err)
			for what, ok := range map[string]bool{
				"the agent has our token":           said.tokens[0] == got.header.Values("Execution-Context")[0],
				"and the caller's behind it":        said.tokens[1] == l.tokens[0],
				"ours is the child of the caller's": slices.Equal(legs[0].Parents, []ect.ID{source.ID}) && legs[0].Workflow == source.Workflow,
				"the reply's is the child of ours":  slices.Equal(legs[1].Parents, []ect.ID{legs[0].ID}),
				"about what came in":                legs[0].InputHash == ect.Hash([]byte(l.body)),
				"about what went out":               legs[0].OutputHash == ect.Hash(said.body),
				"about what went home":              legs[1].OutputHash == ect.Hash(got.body),
				"in no other form":                  legs[0].Ext[ect.ExtHashForm] == nil,
			} {
				if !ok {
					t.Errorf("%s to %s: not so: %s", from, dest, what)
				}
			}
			l.tokens = []string{ecttest.Mint(t, b.me, b.recipe(l.body+" "))}
			if got := b.send(t, l); got.status != http.StatusForbidden {
				t.Errorf("%s to %s: a token about other bytes: got %d %s", from, dest, got.status, short(got.body))
			}
		}
	}
	conf := serving(b.svid(t, "/old"))
	conf.MinVersion, conf.MaxVersion = tls.VersionTLS12, tls.VersionTLS12
	for _, binding := range []canonical.Binding{"a2a-v1", "mcp-v1"} {
		old := &fake{conduct: well}
		b.serve(t, "old-"+string(binding), binding, old, host{tls: conf})
		got := b.send(t, letter{at: "/agents/old-" + string(binding) + "/a2a", body: textBody("x"), header: map[string]string{"A2A-Version": "1.0"}})
		if old.calls.Load() != 0 || !strings.Contains(string(got.body), `"error"`) {
			t.Errorf("%s over TLS 1.2: got %d %s", binding, got.status, short(got.body))
		}
	}
	b.works(t)
}
