package negative

import (
	"net"
	"net/http"
	"strconv"
	"strings"
	"testing"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/ect/identity"
	"github.com/aepb/aepb-gateway/gateway/config"
	"github.com/aepb/aepb-gateway/policy"
	gatewaytest "github.com/aepb/aepb-gateway/test/harness/gateway"
)

// TestDocuments_Valid: with a gateway of its own, whose operator allows a host.
func TestDocuments_Valid(t *testing.T) {
	t.Parallel()
	b := gatewaytest.NewFixture(t, gatewaytest.Plan{Config: config.Config{Documents: config.Documents{Hosts: []string{"127.0.0.1"}}}})
	svid := b.SVID(t, "/calculator")
	active := b.Library(t, svid, gatewaytest.Page(b.CalculatorDocument(t, "active", "null")))
	b.Describe(t, "described", active.URL, svid.ID)
	for _, dest := range []string{"described", active.URL} {
		got, sum := b.Add(t, dest)
		b.Right(t, got, sum)
		if got.Header.Get("Deprecation") != "" {
			t.Error("an active agent is called deprecated")
		}
	}
	if active.Fetches.Load() != 1 {
		t.Errorf("the document was asked for %d times", active.Fetches.Load())
	}
	old := b.Library(t, svid, gatewaytest.Page(b.CalculatorDocument(t, "deprecated", `"`+active.URL+`"`)))
	b.Describe(t, "old", old.URL, "")
	got, sum := b.Add(t, "old")
	b.Right(t, got, sum)
	endpoint := b.Send(t, gatewaytest.HTTPRequest{At: "/agents/old/a2a", Body: gatewaytest.AddBody(1), Header: map[string]string{"A2A-Version": "1.0"}})
	mcpEndpoint := b.Send(t, gatewaytest.HTTPRequest{At: "/agents/old/mcp", Body: strings.Replace(gatewaytest.CallBody("add", "x"), `"message":"x"`, `"a":1,"b":1`, 1), Header: gatewaytest.Mirror("tools/call", "add")})
	for name, h := range map[string]http.Header{"translate": got.Header, "A2A": endpoint.Header, "MCP": mcpEndpoint.Header} {
		if h.Get("Deprecation") != "@1772323200" || h.Get("Sunset") != "Mon, 01 Mar 2027 00:00:00 GMT" ||
			h.Get("Link") != "<"+active.URL+`>; rel="successor-version"` {
			t.Errorf("%s: deprecated, and says %v", name, h)
		}
	}
	announces(t, b, "old")
	retired := b.Library(t, svid, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Link", "<"+active.URL+`>; rel="successor-version"`)
		w.WriteHeader(http.StatusGone)
	})
	b.Describe(t, "retired", retired.URL, "")
	got, sum = b.Add(t, "retired") // its successor answers
	b.Right(t, got, sum)
	b.Works(t)
}

// announces: every answer of an agent that is to end says so, to those who may
// call it (AEPB, Lifecycle States).
func announces(t *testing.T, b *gatewaytest.Fixture, name string) {
	t.Helper()
	v1, at := map[string]string{"A2A-Version": "1.0"}, "/agents/"+name
	for what, l := range map[string]gatewaytest.HTTPRequest{
		"an A2A stream":      {At: at + "/a2a", Header: v1, Body: strings.Replace(gatewaytest.AddBody(1), "SendMessage", "SendStreamingMessage", 1)},
		"an A2A error":       {At: at + "/a2a", Header: v1, Body: strings.Replace(gatewaytest.AddBody(1), `"add"`, `"other"`, 1)},
		"what is unreadable": {At: at + "/a2a", Header: v1, Body: "{"},
		"a card":             {At: at + "/a2a/.well-known/agent-card.json", Method: http.MethodGet},
		"an MCP error":       {At: at + "/mcp", Header: gatewaytest.Mirror("tools/call", "other"), Body: gatewaytest.CallBody("other", "x")},
		"a list of tools":    {At: at + "/mcp", Header: gatewaytest.Mirror("tools/list", ""), Body: `{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{` + gatewaytest.ModernMeta + `}}`},
		"a wrong method":     {At: at + "/mcp", Method: http.MethodGet},
		"an error of translation": b.Sealed(t, gatewaytest.HTTPRequest{
			At: "/aepb/translate?from=a2a-v1&dest=" + name, Body: strings.Replace(gatewaytest.AddBody(b.Number()), `"add"`, `"other"`, 1),
		}),
	} {
		if got := b.Send(t, l); got.Header.Get("Deprecation") != "@1772323200" || len(got.Header.Values("Link")) != 1 {
			t.Errorf("%s says %v: %.200s", what, got.Header, got.Body)
		}
	}
	agent, _ := b.Directory().Find(name)
	agent.Rules = policy.Rules{}
	gatewaytest.Must(t, b.Directory().Put(agent))
	if got := b.Send(t, gatewaytest.HTTPRequest{At: at + "/a2a", Header: v1, Body: gatewaytest.AddBody(1)}); got.Header.Get("Deprecation") != "" {
		t.Errorf("to a stranger it says %v", got.Header)
	}
}

func TestDocuments_DrainingAndRetiredAgents(t *testing.T) {
	t.Parallel()
	b := shared()
	svid := b.SVID(t, "/calculator")
	const successor = "https://successor.example/.well-known/aepb"
	for status, want := range map[string]struct {
		status       int
		code         string
		field, value string
	}{
		"draining": {503, "draining", "Location", successor},
		"retired":  {410, "retired", "Link", "<" + successor + `>; rel="successor-version"`},
	} {
		b.Describe(t, status, b.Library(t, svid, gatewaytest.Page(b.CalculatorDocument(t, status, `"`+successor+`"`))).URL, "")
		got, _ := b.Add(t, status)
		if got.Status != want.status || gatewaytest.ProblemCode(t, got) != want.code {
			t.Errorf("%s: got %d %s", status, got.Status, got.Body)
		}
		if got.Header.Get(want.field) != want.value || (want.status == 503) != (got.Header.Get("Retry-After") != "") {
			t.Errorf("%s: %v", status, got.Header)
		}
		if claims := b.Proofs(t, got); len(claims) != 1 || claims[0].Act != ect.ActTranslateError {
			t.Errorf("%s: evidence %v", status, claims)
		}
		if endpoint := b.Send(t, gatewaytest.HTTPRequest{At: "/agents/" + status + "/a2a", Body: gatewaytest.AddBody(1), Header: map[string]string{"A2A-Version": "1.0"}}); strings.Contains(string(endpoint.Body), `"sum"`) {
			t.Errorf("%s: the endpoint lets a call through", status)
		}
	}
	b.Works(t)
}

func TestDocuments_Invalid(t *testing.T) {
	t.Parallel()
	b := shared()
	good := b.CalculatorDocument(t, "active", "null")
	svid := b.SVID(t, "/calculator")
	for name, tc := range map[string]struct {
		serve http.HandlerFunc
		svid  *identity.SVID
		id    ect.Identity
		at    string // instead of the library
		code  string
	}{
		"endless":             {serve: endlessPage, code: "bad_upstream_reply"},
		"no JSON":             {serve: gatewaytest.Page("<html>"), code: "bad_upstream_reply"},
		"deep":                {serve: gatewaytest.Page(strings.Repeat(`{"a":`, 20_000)), code: "bad_upstream_reply"},
		"redirect":            {serve: http.RedirectHandler("https://127.0.0.1:1/", http.StatusFound).ServeHTTP, code: "bad_upstream_reply"},
		"another agent's":     {serve: gatewaytest.Page(strings.Replace(good, "/calculator", "/concierge", 1)), id: svid.ID, code: "bad_upstream_reply"},
		"server of another":   {serve: gatewaytest.Page(good), svid: b.SVID(t, "/somebody"), id: svid.ID, code: "upstream_unreachable"},
		"expired certificate": {serve: gatewaytest.Page(good), svid: gatewaytest.Expired(t, b, "/calculator"), id: svid.ID, code: "upstream_unreachable"},
		"certificate of nobody": {
			serve: gatewaytest.Page(good), code: "upstream_unreachable",
			svid: gatewaytest.Issue(t, gatewaytest.Authority(t, gatewaytest.TrustDomain, nil), "/calculator", identity.SVIDRequest{}),
		},
		"nobody listens":        {at: "https://" + unused(t) + "/doc", code: "upstream_unreachable"},
		"endpoint proves no id": {serve: gatewaytest.Page(strings.Replace(good, "/calculator", "/concierge", 1)), code: "upstream_unreachable"},
		"endpoint in metadata":  {serve: gatewaytest.Page(strings.Replace(good, b.Tools.URL(), "https://169.254.169.254/mcp", 1)), code: "policy_violation"},
		"endpoint in private":   {serve: gatewaytest.Page(strings.Replace(good, b.Tools.URL(), "https://10.1.2.3/mcp", 1)), code: "policy_violation"},
		"no protocol in common": {serve: gatewaytest.Page(strings.Replace(good, `"mcp-v1"`, `"none-v1"`, 1)), code: "no_translation_path"},
		"endpoint elsewhere":    {serve: gatewaytest.Page(strings.Replace(good, b.Tools.URL(), "https://localhost:1/mcp", 1)), code: "policy_violation"},
	} {
		t.Run(name, func(t *testing.T) {
			if tc.svid == nil {
				tc.svid = svid
			}
			at := tc.at
			if at == "" {
				at = b.Library(t, tc.svid, tc.serve).URL
			}
			b.Describe(t, "bad", at, tc.id)
			got, _ := b.Add(t, "bad")
			if code := gatewaytest.ProblemCode(t, got); code != tc.code {
				t.Errorf("got %d %s, want %s", got.Status, got.Body, tc.code)
			}
		})
	}
	b.Works(t)
}

// TestDocuments_NamedByCallers: only where the operator allows it, and for whom (R8). Each set of rules has a gateway of
// its own, but for none at all.
func TestDocuments_NamedByCallers(t *testing.T) {
	t.Parallel()
	everybody := []string{"spiffe://" + gatewaytest.TrustDomain + "/*"}
	type question struct {
		dest     func(at string) string // nil: the document's own address
		code     string                 // empty: it works
		requests int32
	}
	for name, tc := range map[string]struct {
		rules config.Documents
		cases map[string]question
	}{
		"one host": {config.Documents{Hosts: []string{"127.0.0.1"}, Callers: everybody}, map[string]question{
			"allowed":    {nil, "", 1},
			"plain HTTP": {func(at string) string { return strings.Replace(at, "https:", "http:", 1) }, "policy_violation", 0},
			"metadata":   {func(string) string { return "https://169.254.169.254/latest" }, "policy_violation", 0},
		}},
		"no host": {config.Documents{}, map[string]question{"nobody allowed": {nil, "policy_violation", 0}}},
		"hosts of others": {config.Documents{Hosts: []string{"*.example"}, Callers: everybody}, map[string]question{
			"another host":              {nil, "policy_violation", 0},
			"a private address by name": {func(string) string { return "https://10.0.0.1.example/doc" }, "upstream_unreachable", 0},
		}},
		"another caller": {config.Documents{Hosts: []string{"127.0.0.1"}, Callers: []string{"spiffe://x.example/y"}}, map[string]question{"not this caller": {nil, "forbidden", 0}}},
		"no caller":      {config.Documents{Hosts: []string{"127.0.0.1"}}, map[string]question{"no callers": {nil, "forbidden", 0}}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := sharedServe()
			if len(tc.rules.Hosts) > 0 {
				b = gatewaytest.NewFixture(t, gatewaytest.Plan{Serve: true, Config: config.Config{Documents: tc.rules}})
			}
			for name, q := range tc.cases {
				t.Run(name, func(t *testing.T) {
					l := b.Library(t, b.SVID(t, "/calculator"), gatewaytest.Page(b.CalculatorDocument(t, "active", "null")))
					dest := l.URL
					if q.dest != nil {
						dest = q.dest(l.URL)
					}
					got, sum := b.Add(t, dest)
					if q.code == "" {
						b.Right(t, got, sum)
					} else if code := gatewaytest.ProblemCode(t, got); code != q.code {
						t.Errorf("got %d %s", got.Status, got.Body)
					}
					if l.Fetches.Load() != q.requests {
						t.Errorf("the document was asked for %d times", l.Fetches.Load())
					}
				})
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
	l := gatewaytest.Listen(t)
	defer func() { gatewaytest.Must(t, l.Close()) }()
	return net.JoinHostPort("127.0.0.1", strconv.Itoa(l.Addr().(*net.TCPAddr).Port)) //nolint:forcetypeassert // listen makes TCP
}
