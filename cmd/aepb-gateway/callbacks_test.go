package main

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/ect/ecttest"
	"github.com/aepb/aepb-gateway/translators/canonical"
)

// TestWebhooksOfHTTPCallers: callers of A2A and of MCP register a webhook for their
// workflow, and are told the decision, as it was signed, once (AEPB, HITL Callback
// Registration).
func TestWebhooksOfHTTPCallers(t *testing.T) {
	t.Parallel()
	b := newBed(t, plan{})
	told := make(chan http.Header, 8)
	hook := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		told <- r.Header
		w.WriteHeader(http.StatusNoContent)
	}))
	hook.TLS = serving(b.svid(t, "/hook"))
	hook.StartTLS()
	t.Cleanup(hook.Close)
	agent := &uacpFake{}
	b.uacpAgent(t, "abacus", agent, "")
	agent.undo = b.undoes(t, agent)
	approver := b.svid(t, approverPath)
	register := func(via *http.Client, wid, uri string) reply {
		return b.send(t, letter{via: via, at: "/hitl/callbacks", body: `{"wid":"` + wid + `","uri":"` + uri + `"}`})
	}
	call := `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"add","arguments":{"a":2,"b":3},` + modernMeta + `}}`
	for door, asked := range map[string]letter{
		"a2a": {at: "/agents/abacus/a2a", body: addBody(1), header: map[string]string{"A2A-Version": "1.0"}},
		"mcp": {at: "/agents/abacus/mcp", body: call, header: mirror("tools/call", "add")},
	} {
		got := b.send(t, asked)
		b.right(t, got, `"sum":`)
		legs := b.proofs(t, got)
		wid := legs[0].Workflow
		for range 2 {
			if got := register(b.client, wid, hook.URL+"/"+door); got.status != http.StatusCreated {
				t.Fatalf("%s: %d %s", door, got.status, short(got.body))
			}
		}
		granted := ecttest.Mint(t, b.party(t, approver), ecttest.Recipe{Claims: ect.Claims{
			Act: ect.ActApprovalGranted, Audience: []string{b.self()}, Workflow: wid, Parents: []ect.ID{legs[0].ID}, InputHash: legs[0].InputHash,
		}})
		conn := b.dialUACP(t, "abacus", approver)
		for range 2 {
			must(t, writeFrameTo(conn, b.signal(t, &canonical.Message{Op: canonical.OpDecision, Body: &canonical.Signal{Approval: "a-1", Token: granted}})))
			_, err := readFrameOf(conn)
			must(t, err)
		}
		select {
		case h := <-told:
			if h.Get(ect.HeaderName) != granted {
				t.Errorf("%s: another token was told", door)
			}
		case <-time.After(patience):
			t.Errorf("%s: the decision was not told", door)
		}
		if len(told) != 0 {
			t.Errorf("%s: it was told twice", door)
		}
		stranger := b.caller(t, b.svid(t, "/stranger"))
		for name, c := range map[string]struct {
			got    reply
			status int
			code   string
		}{
			"a stranger":       {register(stranger, wid, hook.URL), 404, "not_found"},
			"nobody":           {register(b.nobody, wid, hook.URL), 401, "unauthenticated"},
			"another workflow": {register(b.client, string(ect.NewID()), hook.URL), 404, "not_found"},
			"no webhook":       {register(b.client, wid, "gopher://x"), 403, "policy_violation"},
			"plain HTTP":       {register(b.client, wid, "http://192.0.2.1/"), 403, "policy_violation"},
			"metadata":         {register(b.client, wid, "https://169.254.169.254/"), 403, "policy_violation"},
			"no URI":           {register(b.client, wid, ""), 400, "malformed_message"},
			"more members":     {register(b.client, wid, `x","also":"y`), 400, "malformed_message"},
			"no JSON":          {b.send(t, letter{at: "/hitl/callbacks", body: "}"}), 400, "malformed_message"},
			"too long":         {b.send(t, letter{at: "/hitl/callbacks", body: strings.Repeat(" ", 9<<10)}), 413, "too_large"},
			"media type":       {b.send(t, letter{at: "/hitl/callbacks", media: "text/plain", body: "{}"}), 415, "unsupported_media_type"},
		} {
			if c.got.status != c.status || problemCode(t, c.got) != c.code {
				t.Errorf("%s: %d %s", name, c.got.status, short(c.got.body))
			}
		}
	}
}
