package gatewaytest

import (
	"encoding/json"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/ect/identity"
	"github.com/aepb/aepb-gateway/gateway/directory"
	"github.com/aepb/aepb-gateway/policy"
)

// Operator is a request to the admin listener with the operator's token. value
// overrides a header field; "": without it.
func (b *Fixture) Operator(method, path, body string, header map[string]string) HTTPRequest {
	l := HTTPRequest{Via: b.Anonymous, Method: method, At: b.At.Admin + path, Body: body, Header: map[string]string{
		"Authorization": "Bearer " + b.AdminToken,
	}}
	for name, value := range header {
		if l.Header[name] = value; value == "" {
			delete(l.Header, name)
		}
	}
	return l
}

// AgentJSON is an agent document with one endpoint.
func AgentJSON(name, binding, at string) string {
	text, _ := json.Marshal(map[string]any{"name": name, "endpoints": []map[string]string{{"binding": binding, "url": at}}})
	return string(text)
}

// Library serves capability documents, and counts.
type Library struct {
	URL     string
	Fetches atomic.Int32
}

// Library serves documents over TLS with an SVID, by the given handler, until the test ends. Its URL is that of no
// other library of this gateway.
func (b *Fixture) Library(t *testing.T, svid *identity.SVID, serve http.HandlerFunc) *Library {
	t.Helper()
	l := &Library{}
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		l.Fetches.Add(1)
		serve(w, r)
	}))
	server.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelDebug)
	server.TLS = Serving(svid)
	server.StartTLS()
	t.Cleanup(server.Close)
	// No two in one test have the same address, though a port may come again:
	// documents are remembered by theirs.
	l.URL = server.URL + "/" + strconv.FormatInt(b.Number(), 10) + "/.well-known/aepb"
	return l
}

// Page serves a text as application/json.
func Page(text string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write([]byte(text))
	}
}

// CalculatorDocument describes the good calculator.
func (b *Fixture) CalculatorDocument(t *testing.T, status, more string) string {
	t.Helper()
	return `{"aepb_version":"1.0","agent_id":"spiffe://` + TrustDomain + `/calculator","protocols":[` +
		`{"id":"mcp-v1","version":"2026-07-28","endpoint":"` + b.Tools.URL() + `","priority":1}],` +
		`"ect_assurance_level":"L2","lifecycle":{"status":"` + status + `","version":"1.2.3","deprecated_at":"2026-03-01T00:00:00Z","sunset_at":"2027-03-01T00:00:00Z","successor":` + more + `}}`
}

// Describe lists an agent by the URL of its capability document, open to every caller; id is who it has to be. An error
// ends the test.
func (b *Fixture) Describe(t *testing.T, name, at string, id ect.Identity) {
	t.Helper()
	Must(t, b.Directory().Put(directory.Agent{Name: name, Capability: at, ID: id, Rules: policy.Rules{Open: true}}))
}

// Counters are the metrics as they are scraped.
func (b *Fixture) Counters() string {
	w := httptest.NewRecorder()
	_, _, metrics := b.Handlers()
	metrics.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	return w.Body.String()
}

// Strangers are the connections of strangers that are open.
func (b *Fixture) Strangers() int {
	_, after, _ := strings.Cut(b.Counters(), `aepb_connections{kind="stranger"} `)
	count, _, _ := strings.Cut(after, "\n")
	n, err := strconv.Atoi(count)
	if err != nil {
		return -1
	}
	return n
}
