package main

import (
	"encoding/json"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/ect/identity"
	"github.com/aepb/aepb-gateway/gateway/config"
	"github.com/aepb/aepb-gateway/gateway/directory"
	"github.com/aepb/aepb-gateway/policy"
)

// library serves capability documents, and counts.
type library struct {
	url   string
	asked atomic.Int32
}

func (b *bed) library(t *testing.T, svid *identity.SVID, serve http.HandlerFunc) *library {
	t.Helper()
	l := &library{}
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		l.asked.Add(1)
		serve(w, r)
	}))
	server.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelDebug)
	server.TLS = serving(svid)
	server.StartTLS()
	t.Cleanup(server.Close)
	// No two in one test have the same address, though a port may come again:
	// documents are remembered by theirs.
	l.url = server.URL + "/" + strconv.FormatInt(b.number(), 10) + "/.well-known/aepb"
	return l
}

func page(text string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write([]byte(text))
	}
}

// calculatorDocument describes the good calculator.
func (b *bed) calculatorDocument(t *testing.T, status, more string) string {
	t.Helper()
	return `{"aepb_version":"1.0","agent_id":"spiffe://` + devTrustDomain + `/calculator","protocols":[` +
		`{"id":"mcp-v1","version":"2026-07-28","endpoint":"` + b.tools.URL() + `","priority":1}],` +
		`"ect_assurance_level":"L2","lifecycle":{"status":"` + status + `","version":"1.2.3","deprecated_at":"2026-03-01T00:00:00Z","sunset_at":"2027-03-01T00:00:00Z","successor":` + more + `}}`
}

func (b *bed) describe(t *testing.T, name, at string, id ect.Identity) {
	t.Helper()
	must(t, b.directory.Put(directory.Agent{Name: name, Capability: at, ID: id, Rules: policy.Rules{Open: true}}))
}

// add asks an agent for n + 1 at the translate endpoint.
func (b *bed) add(t *testing.T, dest string) (reply, string) {
	t.Helper()
	n := b.number()
	got := b.send(t, b.sealed(t, letter{at: "/aepb/translate?from=a2a-v1&dest=" + url.QueryEscape(dest), body: addBody(n)}))
	return got, `"sum":` + strconv.FormatInt(n+1, 10)
}

func TestDocumentsThatAreGood(t *testing.T) {
	t.Parallel()
	b := newBed(t, plan{config: config.Config{Documents: config.Documents{Hosts: []string{"127.0.0.1"}}}})
	svid := b.svid(t, "/calculator")
	active := b.library(t, svid, page(b.calculatorDocument(t, "active", "null")))
	b.describe(t, "described", active.url, svid.ID)
	for _, dest := range []string{"described", active.url} {
		got, sum := b.add(t, dest)
		b.right(t, got, sum)
		if got.header.Get("Deprecation") != "" {
			t.Error("an active agent is called deprecated")
		}
	}
	if active.asked.Load() != 1 {
		t.Errorf("the document was asked for %d times", active.asked.Load())
	}
	old := b.library(t, svid, page(b.calculatorDocument(t, "deprecated", `"`+active.url+`"`)))
	b.describe(t, "old", old.url, "")
	got, sum := b.add(t, "old")
	b.right(t, got, sum)
	door := b.send(t, letter{at: "/agents/old/a2a", body: addBody(1), header: map[string]string{"A2A-Version": "1.0"}})
	mcpDoor := b.send(t, letter{at: "/agents/old/mcp", body: strings.Replace(callBody("add", "x"), `"message":"x"`, `"a":1,"b":1`, 1), header: mirror("tools/call", "add")})
	for name, h := range map[string]http.Header{"translate": got.header, "A2A": door.header, "MCP": mcpDoor.header} {
		if h.Get("Deprecation") != "@1772323200" || h.Get("Sunset") != "Mon, 01 Mar 2027 00:00:00 GMT" ||
			h.Get("Link") != "<"+active.url+`>; rel="successor-version"` {
			t.Errorf("%s: deprecated, and says %v", name, h)
		}
	}
	b.announces(t, "old")
	retired := b.library(t, svid, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Link", "<"+active.url+`>; rel="successor-version"`)
		w.WriteHeader(http.StatusGone)
	})
	b.describe(t, "retired", retired.url, "")
	got, sum = b.add(t, "retired") // its successor answers
	b.right(t, got, sum)
	b.works(t)
}

// announces: every answer of an agent that is to end says so, to those who may
// call it (AEPB, Lifecycle States).
func (b *bed) announces(t *testing.T, name string) {
	t.Helper()
	v1, at := map[string]string{"A2A-Version": "1.0"}, "/agents/"+name
	for what, l := range map[string]letter{
		"an A2A stream":      {at: at + "/a2a", header: v1, body: strings.Replace(addBody(1), "SendMessage", "SendStreamingMessage", 1)},
		"an A2A error":       {at: at + "/a2a", header: v1, body: strings.Replace(addBody(1), `"add"`, `"other"`, 1)},
		"what is unreadable": {at: at + "/a2a", header: v1, body: "{"},
		"a card":             {at: at + "/a2a/.well-known/agent-card.json", method: http.MethodGet},
		"an MCP error":       {at: at + "/mcp", header: mirror("tools/call", "other"), body: callBody("other", "x")},
		"a list of tools":    {at: at + "/mcp", header: mirror("tools/list", ""), body: `{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{` + modernMeta + `}}`},
		"a wrong method":     {at: at + "/mcp", method: http.MethodGet},
		"an error of translation": b.sealed(t, letter{
			at: "/aepb/translate?from=a2a-v1&dest=" + name, body: strings.Replace(addBody(b.number()), `"add"`, `"other"`, 1),
		}),
	} {
		if got := b.send(t, l); got.header.Get("Deprecation") != "@1772323200" || len(got.header.Values("Link")) != 1 {
			t.Errorf("%s says %v: %.200s", what, got.header, got.body)
		}
	}
	agent, _ := b.directory.Find(name)
	agent.Rules = policy.Rules{}
	must(t, b.directory.Put(agent))
	if got := b.send(t, letter{at: at + "/a2a", header: v1, body: addBody(1)}); got.header.Get("Deprecation") != "" {
		t.Errorf("to a stranger it says %v", got.header)
	}
}

func TestDocumentsOfAgentsThatEnded(t *testing.T) {
	t.Parallel()
	b := newBed(t, plan{})
	svid := b.svid(t, "/calculator")
	const successor = "https://successor.example/.well-known/aepb"
	for status, want := range map[string]struct {
		status       int
		code         string
		field, value string
	}{
		"draining": {503, "draining", "Location", successor},
		"retired":  {410, "retired", "Link", "<" + successor + `>; rel="successor-version"`},
	} {
		b.describe(t, status, b.library(t, svid, page(b.calculatorDocument(t, status, `"`+successor+`"`))).url, "")
		got, _ := b.add(t, status)
		if got.status != want.status || problemCode(t, got) != want.code {
			t.Errorf("%s: got %d %s", status, got.status, got.body)
		}
		if got.header.Get(want.field) != want.value || (want.status == 503) != (got.header.Get("Retry-After") != "") {
			t.Errorf("%s: %v", status, got.header)
		}
		if claims := b.proofs(t, got); len(claims) != 1 || claims[0].Act != ect.ActTranslateError {
			t.Errorf("%s: evidence %v", status, claims)
		}
		if door := b.send(t, letter{at: "/agents/" + status + "/a2a", body: addBody(1), header: map[string]string{"A2A-Version": "1.0"}}); strings.Contains(string(door.body), `"sum"`) {
			t.Errorf("%s: the door lets a call through", status)
		}
	}
	b.works(t)
}

func TestDocumentsThatAreBad(t *testing.T) {
	t.Parallel()
	b := newBed(t, plan{})
	good := b.calculatorDocument(t, "active", "null")
	svid := b.svid(t, "/calculator")
	lead := func(text string) string { return strings.Replace(good, `"protocols":[`, `"protocols":[`+text, 1) }
	for name, tc := range map[string]struct {
		serve http.HandlerFunc
		svid  *identity.SVID
		id    ect.Identity
		at    string // instead of the library
		code  string
	}{
		"too large":           {serve: page(good + strings.Repeat(" ", 1<<20)), code: "bad_upstream_reply"},
		"endless":             {serve: endlessPage, code: "bad_upstream_reply"},
		"no JSON":             {serve: page("<html>"), code: "bad_upstream_reply"},
		"half":                {serve: page(good[:100]), code: "bad_upstream_reply"},
		"duplicate names":     {serve: page(strings.Replace(good, `{`, `{"agent_id":"spiffe://x/y",`, 1)), code: "bad_upstream_reply"},
		"10,000 endpoints":    {serve: page(lead(strings.Repeat(`{"id":"x","version":"1","endpoint":"https://x"},`, 10_000))), code: "bad_upstream_reply"},
		"65 endpoints":        {serve: page(lead(strings.Repeat(`{"id":"x","version":"1","endpoint":"https://x"},`, 65))), code: "bad_upstream_reply"},
		"deep":                {serve: page(strings.Repeat(`{"a":`, 20_000)), code: "bad_upstream_reply"},
		"another content":     {serve: func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte(good)) }, code: "bad_upstream_reply"},
		"redirect":            {serve: http.RedirectHandler("https://127.0.0.1:1/", http.StatusFound).ServeHTTP, code: "bad_upstream_reply"},
		"not there":           {serve: http.NotFound, code: "bad_upstream_reply"},
		"another agent's":     {serve: page(strings.Replace(good, "/calculator", "/concierge", 1)), id: svid.ID, code: "bad_upstream_reply"},
		"server of another":   {serve: page(good), svid: b.svid(t, "/somebody"), id: svid.ID, code: "upstream_unreachable"},
		"expired certificate": {serve: page(good), svid: expired(t, b, "/calculator"), id: svid.ID, code: "upstream_unreachable"},
		"certificate of nobody": {
			serve: page(good), code: "upstream_unreachable",
			svid: issue(t, authority(t, devTrustDomain, nil), "/calculator", identity.SVIDRequest{}),
		},
		"nobody at home":         {at: "https://" + unused(t) + "/doc", code: "upstream_unreachable"},
		"endpoint proves no id":  {serve: page(strings.Replace(good, "/calculator", "/concierge", 1)), code: "upstream_unreachable"},
		"endpoint in metadata":   {serve: page(strings.Replace(good, b.tools.URL(), "https://169.254.169.254/mcp", 1)), code: "policy_violation"},
		"endpoint in private":    {serve: page(strings.Replace(good, b.tools.URL(), "https://10.1.2.3/mcp", 1)), code: "policy_violation"},
		"no protocol in common":  {serve: page(strings.Replace(good, `"mcp-v1"`, `"none-v1"`, 1)), code: "no_translation_path"},
		"only without TLS":       {serve: page(strings.Replace(good, b.tools.URL(), "http://agent.example/mcp", 1)), code: "bad_upstream_reply"},
		"endpoint elsewhere":     {serve: page(strings.Replace(good, b.tools.URL(), "https://localhost:1/mcp", 1)), code: "policy_violation"},
		"a lifecycle of nobody":  {serve: page(strings.Replace(good, `"active"`, `"asleep"`, 1)), code: "bad_upstream_reply"},
		"a version of no number": {serve: page(strings.Replace(good, `"1.2.3"`, `"one"`, 1)), code: "bad_upstream_reply"},
	} {
		t.Run(name, func(t *testing.T) {
			if tc.svid == nil {
				tc.svid = svid
			}
			at := tc.at
			if at == "" {
				at = b.library(t, tc.svid, tc.serve).url
			}
			b.describe(t, "bad", at, tc.id)
			got, _ := b.add(t, "bad")
			if code := problemCode(t, got); code != tc.code {
				t.Errorf("got %d %s, want %s", got.status, got.body, tc.code)
			}
		})
	}
	b.works(t)
}

// TestDocumentsThatCallersName: only where the operator allows it, and for whom (R8).
func TestDocumentsThatCallersName(t *testing.T) {
	t.Parallel()
	everybody := []string{"spiffe://" + devTrustDomain + "/*"}
	for name, tc := range map[string]struct {
		rules config.Documents
		dest  func(at string) string
		code  string // empty: it works
		asked int32
	}{
		"allowed":         {config.Documents{Hosts: []string{"127.0.0.1"}, Callers: everybody}, nil, "", 1},
		"nobody allowed":  {config.Documents{}, nil, "policy_violation", 0},
		"another host":    {config.Documents{Hosts: []string{"partner.example"}, Callers: everybody}, nil, "policy_violation", 0},
		"not this caller": {config.Documents{Hosts: []string{"127.0.0.1"}, Callers: []string{"spiffe://x.example/y"}}, nil, "forbidden", 0},
		"no callers":      {config.Documents{Hosts: []string{"127.0.0.1"}}, nil, "forbidden", 0},
		"plain HTTP": {
			config.Documents{Hosts: []string{"127.0.0.1"}, Callers: everybody},
			func(at string) string { return strings.Replace(at, "https:", "http:", 1) }, "policy_violation", 0,
		},
		"a private address by name": {
			config.Documents{Hosts: []string{"*.example"}, Callers: everybody},
			func(string) string { return "https://10.0.0.1.example/doc" }, "upstream_unreachable", 0,
		},
		"metadata": {
			config.Documents{Hosts: []string{"127.0.0.1"}, Callers: everybody},
			func(string) string { return "https://169.254.169.254/latest" }, "policy_violation", 0,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBed(t, plan{serve: true, config: config.Config{Documents: tc.rules, Agents: map[string]config.Agent{}}})
			l := b.library(t, b.svid(t, "/calculator"), page(b.calculatorDocument(t, "active", "null")))
			dest := l.url
			if tc.dest != nil {
				dest = tc.dest(l.url)
			}
			got, sum := b.add(t, dest)
			if tc.code == "" {
				b.right(t, got, sum)
			} else if code := problemCode(t, got); code != tc.code {
				t.Errorf("got %d %s", got.status, got.body)
			}
			if l.asked.Load() != tc.asked {
				t.Errorf("the document was asked for %d times", l.asked.Load())
			}
		})
	}
}

// endlessPage ends with the connection, or with far more than anybody should read.
func endlessPage(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	for range 1 << 15 {
		if r.Context().Err() != nil {
			return
		}
		if _, err := w.Write([]byte(strings.Repeat(" ", 1<<15))); err != nil {
			return
		}
	}
}

// unused is an address where nobody listens.
func unused(t *testing.T) string {
	t.Helper()
	l := listen(t)
	defer func() { must(t, l.Close()) }()
	return net.JoinHostPort("127.0.0.1", strconv.Itoa(l.Addr().(*net.TCPAddr).Port)) //nolint:forcetypeassert // listen makes TCP
}

func problemCode(t *testing.T, got reply) string {
	t.Helper()
	var p struct{ Code string }
	if err := json.Unmarshal(got.body, &p); err != nil {
		t.Errorf("no problem document: %s", got.body)
	}
	return p.Code
}
