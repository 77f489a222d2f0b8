package httpapi_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"math/big"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/ect/ecttest"
	"github.com/aepb/aepb-gateway/ect/identity"
	"github.com/aepb/aepb-gateway/ect/identity/credential"
	"github.com/aepb/aepb-gateway/gateway/directory"
	"github.com/aepb/aepb-gateway/gateway/httpapi"
	"github.com/aepb/aepb-gateway/gateway/listing"
	"github.com/aepb/aepb-gateway/gateway/problem"
	"github.com/aepb/aepb-gateway/gateway/transport"
	"github.com/aepb/aepb-gateway/gateway/transport/transporttest"
	"github.com/aepb/aepb-gateway/policy/limit"
	"github.com/aepb/aepb-gateway/policy/membership"
	"github.com/aepb/aepb-gateway/translators"
	"github.com/aepb/aepb-gateway/translators/a2a"
	"github.com/aepb/aepb-gateway/translators/canonical"
	"github.com/aepb/aepb-gateway/translators/mcp"
	"github.com/aepb/aepb-gateway/translators/rollback"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// fakeHandler answers every call alike and keeps the last.
type fakeHandler struct {
	call   transport.Call
	answer transport.Answer
	err    error
	panics any
	full   error // what Limit says
	limits int   // how often it was asked
}

func (r *fakeHandler) Limit(ctx context.Context, _ transport.CallInfo) (limit.Pass, error) {
	if err := transport.Refusal(ctx); err != nil {
		return limit.Pass{}, err
	}
	r.limits++
	return transporttest.Pass(r.full)
}

func (r *fakeHandler) Admit(context.Context, transport.CallInfo) error { return nil }

func (r *fakeHandler) Exchange(_ context.Context, call transport.Call) (transport.Answer, error) {
	r.call = call
	if r.panics != nil {
		panic(r.panics) // what a handler must survive
	}
	return r.answer, r.err
}

func (r *fakeHandler) Rollback(ctx context.Context, call transport.Call, _ string) (transport.Answer, error) {
	return r.Exchange(ctx, call)
}

func (r *fakeHandler) Describe(context.Context, transport.CallInfo) (*canonical.Description, error) {
	return &canonical.Description{Name: "toy"}, nil
}

type surface struct {
	handler     http.Handler
	fakeHandler *fakeHandler
	router      *router
	store       *ecttest.Store
	self        *ecttest.Party
	now         time.Time // of the surface; zero: a time long ago
}

func newSurface(t *testing.T, anonymous ect.Identity, authenticators ...httpapi.Authenticator) *surface {
	t.Helper()
	registry, err := translators.NewRegistry(a2a.New(translators.Config{}), mcp.New(translators.Config{}))
	if err != nil {
		t.Fatal(err)
	}
	s := &surface{fakeHandler: &fakeHandler{answer: transporttest.Answer(translators.Wire{Media: "application/json", Body: []byte(`{"ok":true}`)}, "one", "two")}, router: &router{}, store: ecttest.NewStore()}
	endpoint := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if _, err := s.fakeHandler.Limit(r.Context(), transport.CallInfo{}); err != nil { // as every door does
			problem.Write(w, r, err)
			return
		}
		_, _ = io.WriteString(w, r.PathValue("agent")+" "+string(transport.CallerFrom(r.Context()).ID)+" "+transport.AddressFrom(r.Context()))
	})
	self := ecttest.NewParty(t, "spiffe://example.com/gateway")
	signer, err := ect.NewSigner(ect.SignerDeps{Key: self.Key, Chain: self.Chain, Issuer: self.ID})
	if err != nil {
		t.Fatal(err)
	}
	s.self = self
	members, err := membership.New(membership.Deps{Store: s.store, Self: "spiffe://example.com/gateway"})
	if err != nil {
		t.Fatal(err)
	}
	s.handler, err = httpapi.Public(httpapi.PublicDeps{
		EvidenceDeps: httpapi.EvidenceDeps{Evidence: s.store, Members: members, Auditor: func(id ect.Identity) (string, bool) { return "auditor", id == auditorID }},
		Capability:   httpapi.Capability{Self: "spiffe://example.com/gateway", Signer: signer, Version: "1.2.3"},
		Callers:      httpapi.Callers{Authenticators: authenticators, Anonymous: anonymous}, Now: func() time.Time { return s.now },
		Handler: s.fakeHandler, Undo: httpapi.Undo{Rollbacker: s.fakeHandler}, Router: s.router, Registry: registry,
		Endpoints: httpapi.Endpoints{"/a2a": endpoint, "/a2a/*rest": endpoint, "/.well-known/agent-card.json": endpoint, "/mcp": endpoint, "/mcp/": endpoint},
		BaseURL:   func(*http.Request) string { return "https://gw.example" }, Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// do sends a request as a party with a verified certificate, or as nobody.
func (s *surface) do(method, target, body string, as *ecttest.Party, header http.Header) *httptest.ResponseRecorder {
	r := httptest.NewRequest(method, target, strings.NewReader(body))
	r.RemoteAddr = "192.0.2.7:1234"
	maps.Copy(r.Header, header)
	r.TLS = &tls.ConnectionState{HandshakeComplete: true}
	if as != nil {
		r.TLS.PeerCertificates = []*x509.Certificate{as.Chain[0]}
	}
	w := httptest.NewRecorder()
	s.handler.ServeHTTP(w, r)
	return w
}

func jsonBody() http.Header { return http.Header{"Content-Type": {"application/json"}} }

func code(w *httptest.ResponseRecorder) string {
	var p struct{ Code string }
	_ = json.Unmarshal(w.Body.Bytes(), &p)
	return p.Code
}

func TestCapabilityDocument_Complete(t *testing.T) {
	t.Parallel()
	s := newSurface(t, "")
	w := s.do(http.MethodGet, "/.well-known/aepb", "", nil, nil)
	// The whole document (AEPB, Capability Document Format): every member, and no other.
	want := `{
		"aepb_version": "1.0", "agent_id": "spiffe://example.com/gateway",
		"protocols": [
			{"id": "a2a-v1", "version": "` + a2a.Version + `", "endpoint": "https://gw.example/aepb/translate?from=a2a-v1", "priority": 10},
			{"id": "mcp-v1", "version": "` + mcp.Modern + `", "endpoint": "https://gw.example/aepb/translate?from=mcp-v1", "priority": 20}
		],
		"translation_gateways": ["https://gw.example/aepb/translate"],
		"ect_assurance_level": "L2", "ect_namespaces": ["aepb", "atd", "consensus", "cpat", "hitl"],
		"lifecycle": {"status": "active", "version": "1.2.3", "deprecated_at": null, "sunset_at": null, "successor": null}
	}`
	var doc, whole any
	if err := errors.Join(json.Unmarshal(w.Body.Bytes(), &doc), json.Unmarshal([]byte(want), &whole)); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(whole, doc); w.Code != 200 || diff != "" {
		t.Errorf("got %d, (-want +got)\n%s", w.Code, diff)
	}
	if w.Header().Get("Cache-Control") != "max-age=3600" {
		t.Errorf("Cache-Control: got %q", w.Header().Get("Cache-Control"))
	}
	etag := http.Header{"If-None-Match": {w.Header().Get("ETag")}}
	if w := s.do(http.MethodGet, "/.well-known/aepb", "", nil, etag); w.Code != http.StatusNotModified {
		t.Errorf("conditional: got %d", w.Code)
	}
}

// TestCapabilityDocument_Signed (AEPB, Capability Document Integrity).
func TestCapabilityDocument_Signed(t *testing.T) {
	t.Parallel()
	s := newSurface(t, "")
	s.now = time.Now()
	for path, version := range map[string]string{"/.well-known/aepb": "aepb_version", "/.well-known/cpat": "cpat_version"} {
		plain := s.do(http.MethodGet, path, "", nil, nil)
		w := s.do(http.MethodGet, path, "", nil, http.Header{"Accept": {"application/jwt, application/json;q=0.5"}})
		if w.Code != 200 || w.Header().Get("Content-Type") != "application/jwt" || w.Header().Get("Cache-Control") != "max-age=3600" ||
			w.Header().Get("Vary") != "Accept" || plain.Header().Get("Vary") != "Accept" || w.Header().Get("ETag") == plain.Header().Get("ETag") {
			t.Fatalf("%s: got %d %v", path, w.Code, w.Header())
		}
		claims := s.verified(t, w.Body.String())
		var document, signed map[string]json.RawMessage
		if json.Unmarshal(plain.Body.Bytes(), &document) != nil || json.Unmarshal(claims, &signed) != nil || string(signed[version]) != `"1.0"` {
			t.Fatalf("%s: %s", path, claims)
		}
		for name, value := range document {
			if string(signed[name]) != string(value) {
				t.Errorf("%s: %s is signed as %s, is %s", path, name, signed[name], value)
			}
		}
		if len(signed) != len(document)+4 || string(signed["iss"]) != `"spiffe://example.com/gateway"` {
			t.Errorf("%s: %s", path, claims)
		}
		again := s.do(http.MethodGet, path, "", nil, http.Header{"Accept": {"application/jwt"}, "If-None-Match": {`"x", W/` + w.Header().Get("ETag")}})
		if again.Code != http.StatusNotModified {
			t.Errorf("%s: conditional: got %d", path, again.Code)
		}
		if w := s.do(http.MethodGet, path, "", nil, http.Header{"Accept": {"text/html"}}); w.Code != http.StatusNotAcceptable || w.Header().Get("Vary") != "Accept" {
			t.Errorf("%s: got %d for text/html", path, w.Code)
		}
		before := w.Body.String()
		s.now = s.now.Add(23 * time.Hour)
		if w := s.do(http.MethodGet, path, "", nil, http.Header{"Accept": {"application/jwt"}}); w.Body.String() == before {
			t.Errorf("%s: handed out until it has expired", path)
		}
	}
}

// verified are the claims of a JWT that our key has signed.
func (s *surface) verified(t *testing.T, compact string) []byte {
	t.Helper()
	parts := strings.Split(compact, ".")
	if len(parts) != 3 {
		t.Fatalf("no JWT: %s", compact)
	}
	var decoded [3][]byte
	for i, part := range parts {
		var err error
		if decoded[i], err = base64.RawURLEncoding.DecodeString(part); err != nil {
			t.Fatal(err)
		}
	}
	var header struct {
		Alg, Typ, Kid string
		X5C           []string
	}
	if err := json.Unmarshal(decoded[0], &header); err != nil || header.Alg != "ES256" || header.Typ != "JWT" || header.Kid != s.self.KeyID || len(header.X5C) != 1 {
		t.Errorf("header %s", decoded[0])
	}
	sum := sha256.Sum256([]byte(parts[0] + "." + parts[1]))
	r, v := new(big.Int).SetBytes(decoded[2][:32]), new(big.Int).SetBytes(decoded[2][32:])
	if !ecdsa.Verify(&s.self.Key.PublicKey, sum[:], r, v) {
		t.Error("the signature is not of our key")
	}
	return decoded[1]
}

func TestPairQuery_Status(t *testing.T) {
	t.Parallel()
	s, caller := newSurface(t, ""), ecttest.NewParty(t, "spiffe://example.com/client")
	for query, want := range map[string]int{
		"":                         200,
		"?from=a2a-v1&to=mcp-v1":   200,
		"?from=mcp-v1&to=a2a-v1":   200,
		"?from=a2a-v1&to=slim-v1":  404,
		"?from=unknown&to=unknown": 404,
		"?from=a2a-v1":             400,
		"?to=a2a-v1":               400,

		"?from=a2a-v1&to=a2a-v1":                       200,
		"?from=a2a-v1@0.3&to=a2a-v1@1.0":               200,
		"?from=a2a-v1@1.0&to=a2a-v1@0.3":               200,
		"?from=a2a-v1&to=a2a-v1@0.3":                   200,
		"?from=a2a-v1@1.0&to=a2a-v1@1.0":               404,
		"?from=a2a-v1@0.2&to=a2a-v1@1.0":               404,
		"?from=a2a-v1@1.0&to=a2a-v1@2.0":               404,
		"?from=mcp-v1@2025-06-18&to=mcp-v1@2026-07-28": 200,
		"?from=a2a-v1@0.3&to=mcp-v1@2025-11-25":        200,
		"?from=a2a-v1@0.3&to=mcp-v1@1.0":               404,
		"?from=slim-v1@1&to=slim-v1@2":                 404,
	} {
		w := s.do(http.MethodGet, "/.well-known/aepb/gateway"+query, "", nil, nil)
		if w.Code != want {
			t.Errorf("%s: got %d, want %d", query, w.Code, want)
		}
		if want != 400 && w.Header().Get("Cache-Control") != "max-age=3600" {
			t.Errorf("%s: Cache-Control %q", query, w.Header().Get("Cache-Control"))
		}
		if want == 400 || query == "" {
			continue
		}
		// The translate endpoint does what the answer says: here, or on the pipeline,
		// which asks other gateways.
		if s.fakeHandler.err = nil; want == 404 {
			s.fakeHandler.err = &problem.NoPathError{}
		}
		w = s.do(http.MethodPost, "/aepb/translate"+query, "{}", caller, jsonBody())
		if (w.Code == 200) != (want == 200) || want == 404 && code(w) != "no_translation_path" {
			t.Errorf("POST %s: got %d %s, the query said %d", query, w.Code, w.Body, want)
		}
	}
}

// router serves what is asked in its name, to callers with an identity, and
// keeps the last question.
type router struct{ last transport.PairQuery }

func (r *router) Serves(_ context.Context, q transport.PairQuery) (bool, time.Duration) {
	r.last = q
	return q.Dest == "bob" || q.To.Binding == "ainp-v1", 90 * time.Second
}

// TestTranslateEndpoint_PairsOfOtherGateways: what another gateway may translate goes on into the pipeline, for
// callers with an identity; what is only not to be translated here does not.
func TestTranslateEndpoint_PairsOfOtherGateways(t *testing.T) {
	t.Parallel()
	s := newSurface(t, "spiffe://example.com/anonymous")
	caller := ecttest.NewParty(t, "spiffe://example.com/client")
	for _, tc := range []struct {
		query   string
		as      *ecttest.Party
		onwards bool
	}{
		{"?from=a2a-v1&to=ainp-v1", caller, true},
		{"?from=a2a-v1&to=mcp-v1@1.0", caller, true},
		{"?from=a2a-v1&to=ainp-v1", nil, false},
		{"?from=a2a-v1@1.0&to=a2a-v1@1.0", caller, false},
		{"?from=a2a-v1@0.2&to=ainp-v1", caller, false},
		{"?from=slim-v1&to=ainp-v1", caller, false},
	} {
		s.fakeHandler.call = transport.Call{}
		w := s.do(http.MethodPost, "/aepb/translate"+tc.query, "{}", tc.as, jsonBody())
		if onwards := s.fakeHandler.call.To != ""; onwards != tc.onwards || !onwards && (w.Code != 404 || code(w) != "no_translation_path") {
			t.Errorf("%s: %d %s, to %q", tc.query, w.Code, w.Body, s.fakeHandler.call.To)
		}
	}
}

// TestPairQuery_OtherGatewaysNeedIdentity: a caller with an identity learns what is reached through other
// gateways, and which agents; nobody else does.
func TestPairQuery_OtherGatewaysNeedIdentity(t *testing.T) {
	t.Parallel()
	s := newSurface(t, "spiffe://example.com/anonymous")
	for _, tc := range []struct {
		query, forwards string
		known           bool
		status, depth   int
	}{
		{"?from=a2a-v1&to=ainp-v1", "", true, 200, 2},
		{"?from=a2a-v1&to=ainp-v1", "1", true, 200, 1},
		{"?from=a2a-v1&to=ainp-v1", "99999", true, 400, -1},
		{"?from=a2a-v1&to=ainp-v1", "9999", true, 200, 2},
		{"?from=a2a-v1&to=ainp-v1", "-1", true, 400, -1},
		{"?from=a2a-v1&to=ainp-v1", "", false, 404, -1},
		{"?from=a2a-v1&to=slim-v1", "0", true, 404, 0},
		{"?from=a2a-v1&to=mcp-v1&dest=bob", "", true, 200, 2},
		{"?from=a2a-v1&to=mcp-v1&dest=eve", "", true, 404, 2},
		{"?from=a2a-v1&to=mcp-v1&dest=eve", "", false, 200, -1}, // answered as if nobody had been named
		{"?from=a2a-v1&to=" + strings.Repeat("x", 65), "", true, 400, -1},
		{"?from=a2a-v1&to=mcp-v1&dest=" + strings.Repeat("x", 2049), "", true, 400, -1},
	} {
		s.router.last = transport.PairQuery{Forwards: -1}
		header := http.Header{}
		if tc.forwards != "" {
			header.Set("Max-Forwards", tc.forwards)
		}
		who := ecttest.NewParty(t, "spiffe://example.com/client")
		if !tc.known {
			who = nil
		}
		w := s.do(http.MethodGet, "/.well-known/aepb/gateway"+tc.query, "", who, header)
		if w.Code != tc.status || s.router.last.Forwards != tc.depth {
			t.Errorf("%.80s %s: %d with %d forwards", tc.query, tc.forwards, w.Code, s.router.last.Forwards)
		}
		if cached := w.Header().Get("Cache-Control"); tc.depth >= 0 && cached != "private, max-age=90" {
			t.Errorf("%.80s: Cache-Control %q", tc.query, cached)
		}
	}
}

func TestTranslateEndpoint_CallAndResponse(t *testing.T) {
	t.Parallel()
	s := newSurface(t, "")
	caller := ecttest.NewParty(t, "spiffe://example.com/client")
	w := s.do(http.MethodPost, "/aepb/translate?from=a2a-v1@1.0&to=mcp-v1@2025-11-25&dest=calculator", "{}", caller,
		http.Header{"Content-Type": {"application/json; charset=utf-8"}, "Execution-Context": {"a.b.c, d.e.f", "g.h.i"}})
	if w.Code != 200 || w.Body.String() != `{"ok":true}` || strings.Join(w.Header().Values("Execution-Context"), "|") != "one|two" {
		t.Errorf("got %d %s %v", w.Code, w.Body, w.Header())
	}
	if w.Header().Get("Content-Length") != "11" {
		t.Errorf("the answer does not say its length, so it cannot leave in one piece: %v", w.Header())
	}
	c := s.fakeHandler.call
	if c.EntryPoint != transport.Translate || c.Agent != "calculator" || c.To != "mcp-v1" || c.ToVersion != "2025-11-25" ||
		c.Wire.Version != "1.0" || c.Caller.ID != caller.ID || c.Address != "192.0.2.7" || len(c.Evidence) != 3 {
		t.Errorf("got %+v", c)
	}
	s.fakeHandler.err = &problem.NoPathError{From: "a2a-v1", To: "mcp-v1"}
	s.fakeHandler.answer = transport.Answer{Evidence: []string{"failed"}}
	w = s.do(http.MethodPost, "/aepb/translate?from=a2a-v1&to=mcp-v1", "{}", caller, jsonBody())
	if w.Code != 404 || code(w) != "no_translation_path" || w.Header().Get("Execution-Context") != "failed" {
		t.Errorf("failure: got %d %s %v", w.Code, w.Body, w.Header())
	}
}

func manyTokens(n int) string {
	var list []string
	for i := range n {
		list = append(list, fmt.Sprintf("a.b.c%d", i))
	}
	return strings.Join(list, ",")
}

func TestPublic_Refusals(t *testing.T) {
	t.Parallel()
	s := newSurface(t, "")
	caller := ecttest.NewParty(t, "spiffe://example.com/client")
	for name, tc := range map[string]struct {
		method, target, body string
		as                   *ecttest.Party
		header               http.Header
		status               int
		code                 string
	}{
		"nobody translates":   {"POST", "/aepb/translate?from=a2a-v1&to=mcp-v1", "{}", nil, jsonBody(), 401, "unauthenticated"},
		"unknown source":      {"POST", "/aepb/translate?from=x&to=mcp-v1", "{}", caller, jsonBody(), 404, "no_translation_path"},
		"unknown version":     {"POST", "/aepb/translate?from=a2a-v1@9&to=mcp-v1", "{}", caller, jsonBody(), 404, "no_translation_path"},
		"neither to nor dest": {"POST", "/aepb/translate?from=a2a-v1", "{}", caller, jsonBody(), 404, "no_translation_path"},
		"wrong media type":    {"POST", "/aepb/translate?from=a2a-v1&to=mcp-v1", "{}", caller, http.Header{"Content-Type": {"text/plain"}}, 415, "unsupported_media_type"},
		"too large": {
			"POST", "/aepb/translate?from=a2a-v1&to=mcp-v1", strings.Repeat(" ", translators.DefaultBodyLimit+1), caller, jsonBody(), 413, "too_large",
		},
		"garbage for an ECT": {"POST", "/aepb/translate?from=a2a-v1&to=mcp-v1", "{}", caller, http.Header{"Content-Type": {"application/json"}, "Execution-Context": {"!"}}, 400, "ect_invalid"},
		"too many ECTs": {
			"POST", "/aepb/translate?from=a2a-v1&to=mcp-v1", "{}", caller,
			http.Header{"Content-Type": {"application/json"}, "Execution-Context": {manyTokens(33)}},
			431, "ect_invalid",
		},
		"GET translate":       {"GET", "/aepb/translate", "", caller, nil, 405, "method_not_allowed"},
		"nowhere":             {"GET", "/nowhere", "", nil, nil, 404, "not_found"},
		"nobody at a door":    {"POST", "/agents/x/a2a", "{}", nil, nil, 401, "unauthenticated"},
		"nobody asks for ECT": {"GET", "/ects/550e8400-e29b-41d4-a716-446655440000", "", nil, nil, 401, "unauthenticated"},
		"no such ECT":         {"GET", "/ects/550e8400-e29b-41d4-a716-446655440000", "", caller, nil, 404, "not_found"},
	} {
		w := s.do(tc.method, tc.target, tc.body, tc.as, tc.header)
		if w.Code != tc.status || code(w) != tc.code || w.Header().Get("Content-Type") != "application/problem+json" {
			t.Errorf("%s: got %d %s %s, want %d %s", name, w.Code, code(w), w.Header().Get("Content-Type"), tc.status, tc.code)
		}
	}
}

func TestNativeEndpoints_KnowAgentAndCaller(t *testing.T) {
	t.Parallel()
	s := newSurface(t, "spiffe://example.com/anonymous")
	for _, path := range []string{"/a2a", "/a2a/", "/a2a/.well-known/agent-card.json", "/a2a/message:send", "/a2a/tasks/t:cancel", "/.well-known/agent-card.json", "/mcp", "/mcp/"} {
		w := s.do(http.MethodGet, "/agents/pricing"+path, "", nil, nil)
		if got, want := w.Body.String(), "pricing spiffe://example.com/anonymous 192.0.2.7"; got != want {
			t.Errorf("%s: got %q, want %q", path, got, want)
		}
	}
}

// A token stands in for a certificate; beside one it must agree; a broken one
// is refused whoever shows it.
func TestCallers_ByToken(t *testing.T) {
	t.Parallel()
	holder, other := ecttest.NewParty(t, "spiffe://example.com/holder"), ecttest.NewParty(t, "spiffe://example.com/other")
	s := newSurface(t, "spiffe://example.com/anonymous", func(_ context.Context, r credential.Request) (identity.Caller, bool, error) {
		switch shown := strings.Join(r.Fields("Workload-Identity-Token"), ","); {
		case shown == "":
			return identity.Caller{}, false, nil
		case shown == "good" && r.Target == "https://gw.example/agents/x/a2a":
			return identity.Caller{Peer: holder.Peer()}, true, nil
		case shown == "foreign":
			return identity.Caller{}, false, errors.Join(&problem.UnauthenticatedError{}, &identity.CredentialError{Credential: "JWT-SVID", Foreign: true})
		default:
			return identity.Caller{}, false, &identity.CredentialError{Credential: "workload identity token"}
		}
	})
	foreign := http.Header{"Workload-Identity-Token": {"foreign"}}
	good := http.Header{"Workload-Identity-Token": {"good"}}
	for name, tc := range map[string]struct {
		as     *ecttest.Party
		header http.Header
		status int
		says   string
	}{
		"token alone":           {nil, good, 200, "spiffe://example.com/holder"},
		"certificate that fits": {holder, good, 200, "spiffe://example.com/holder"},
		"certificate of other":  {other, good, 400, "identity_invalid"},
		"broken token":          {nil, http.Header{"Workload-Identity-Token": {"bad"}}, 400, "identity_invalid"},
		"broken beside a good":  {holder, http.Header{"Workload-Identity-Token": {"bad"}}, 400, "identity_invalid"},
		"foreign token":         {nil, foreign, 401, "unauthenticated"},
		"foreign beside a good": {other, foreign, 200, "spiffe://example.com/other"},
		"certificate alone":     {other, nil, 200, "spiffe://example.com/other"},
		"nothing":               {nil, nil, 200, "spiffe://example.com/anonymous"},
	} {
		w := s.do(http.MethodPost, "/agents/x/a2a", "", tc.as, tc.header)
		if w.Code != tc.status || !strings.Contains(w.Body.String(), tc.says) {
			t.Errorf("%s: got %d %s, want %d %s", name, w.Code, w.Body, tc.status, tc.says)
		}
	}
}

func TestPanic_IsNotShownToTheCaller(t *testing.T) {
	t.Parallel()
	s := newSurface(t, "")
	s.fakeHandler.panics = "a secret in a panic"
	w := s.do(http.MethodPost, "/aepb/translate?from=a2a-v1&to=mcp-v1", "{}", ecttest.NewParty(t, "spiffe://example.com/client"), jsonBody())
	if w.Code != 500 || code(w) != "internal_error" || strings.Contains(w.Body.String(), "secret") {
		t.Errorf("got %d %s", w.Code, w.Body)
	}
}

func TestStream_BrokenAbortsTheConnection(t *testing.T) {
	t.Parallel()
	s := newSurface(t, "")
	s.fakeHandler.panics = http.ErrAbortHandler
	defer func() {
		r := recover()
		if err, ok := r.(error); !ok || !errors.Is(err, http.ErrAbortHandler) {
			t.Errorf("the connection is not aborted, but ended with %v", r)
		}
	}()
	s.do(http.MethodPost, "/aepb/translate?from=a2a-v1&to=mcp-v1", "{}", ecttest.NewParty(t, "spiffe://example.com/client"), jsonBody())
}

// auditorID is the operator who reads all evidence.
const auditorID = "spiffe://example.com/people/auditor"

// Evidence goes to the issuer of the workflow's root and to those whom a record of
// others made members. To have minted a token does not make its issuer a member.
func TestEvidence_GoesToMembersAndAuditors(t *testing.T) {
	t.Parallel()
	s := newSurface(t, "")
	party := func(name string) *ecttest.Party {
		return ecttest.NewParty(t, ect.Identity("spiffe://example.com/"+name))
	}
	issuer, audience, stranger, planter := party("a"), party("b"), party("c"), party("d")
	auditor := ecttest.NewParty(t, auditorID)
	id, workflow := ect.NewID(), string(ect.NewID())
	for _, r := range []ect.Record{
		{Compact: "x.y.z", ID: id, Workflow: workflow, Issuer: issuer.ID, Audience: []string{string(audience.ID)}, Members: []ect.Identity{audience.ID}},
		{Compact: "u.v.w", ID: ect.NewID(), Workflow: workflow, Issuer: planter.ID, Parents: []ect.ID{id}, Audience: []string{string(planter.ID)}},
	} {
		r.Until = time.Now().Add(time.Hour)
		if err := s.store.Put(t.Context(), r); err != nil {
			t.Fatal(err)
		}
	}
	for who, want := range map[*ecttest.Party]int{issuer: 200, audience: 200, auditor: 200, planter: 404, stranger: 404} {
		if w := s.do(http.MethodGet, "/ects/"+string(id), "", who, nil); w.Code != want {
			t.Errorf("%s: got %d, want %d", who.ID, w.Code, want)
		}
		w := s.do(http.MethodGet, "/workflows/"+workflow, "", who, nil)
		if w.Code != want || (want == 200) != strings.Contains(w.Body.String(), `"x.y.z"`) {
			t.Errorf("workflow for %s: got %d %s, want %d", who.ID, w.Code, w.Body, want)
		}
	}
}

// A workflow is served in pages, in the order in which its records came.
func TestWorkflow_IsPaged(t *testing.T) {
	t.Parallel()
	s := newSurface(t, "")
	who, workflow := ecttest.NewParty(t, "spiffe://example.com/a"), string(ect.NewID())
	var parents []ect.ID
	for i := range 205 {
		r := ect.Record{
			Compact: "x.y." + strconv.Itoa(i), ID: ect.NewID(), Workflow: workflow, Issuer: who.ID, Parents: parents, Until: time.Now().Add(time.Hour),
		}
		if err := s.store.Put(t.Context(), r); err != nil {
			t.Fatal(err)
		}
		parents = []ect.ID{r.ID}
	}
	var all []string
	var sizes []int
	for query := ""; ; {
		w := s.do(http.MethodGet, "/workflows/"+workflow+query, "", who, nil)
		var page struct {
			ECTs []string `json:"ects"`
			Next string   `json:"next"`
		}
		if err := json.Unmarshal(w.Body.Bytes(), &page); w.Code != 200 || err != nil {
			t.Fatalf("got %d %s, %v", w.Code, w.Body, err)
		}
		all, sizes = append(all, page.ECTs...), append(sizes, len(page.ECTs))
		if page.Next == "" {
			break
		}
		query = "?after=" + url.QueryEscape(page.Next)
	}
	if !slices.Equal(sizes, []int{100, 100, 5}) || len(all) != 205 || all[0] != "x.y.0" || all[204] != "x.y.204" {
		t.Errorf("pages of %v, from %s to %s", sizes, all[0], all[len(all)-1])
	}
	for _, query := range []string{"?limit=0", "?limit=x", "?after=not-a-cursor"} {
		if w := s.do(http.MethodGet, "/workflows/"+workflow+query, "", who, nil); w.Code != 400 || code(w) != "malformed_message" {
			t.Errorf("%s: got %d %s", query, w.Code, w.Body)
		}
	}
}

// A foreign token with a known jti neither replaces nor hides ours, nor shows it
// to those whom only the foreign one concerns.
func TestEvidence_SameJTIOfAnotherIssuer(t *testing.T) {
	t.Parallel()
	s := newSurface(t, "")
	evil, reader := ecttest.NewParty(t, "spiffe://example.com/a-evil"), ecttest.NewParty(t, "spiffe://example.com/reader")
	own, theirs := ect.NewID(), ect.NewID()
	for _, r := range []ect.Record{
		{Compact: "evil.1", ID: own, Issuer: evil.ID, Audience: []string{string(reader.ID)}},
		{Compact: "ours", ID: own, Issuer: s.self.ID, Audience: []string{string(reader.ID)}},
		{Compact: "evil.2", ID: theirs, Issuer: evil.ID, Audience: []string{string(reader.ID)}},
		{Compact: "reader's", ID: theirs, Issuer: reader.ID},
	} {
		r.Until = time.Now().Add(time.Hour)
		if err := s.store.Put(t.Context(), r); err != nil {
			t.Fatal(err)
		}
	}
	for _, tc := range []struct {
		as   *ecttest.Party
		path string
		want string // empty: 404
	}{
		{reader, string(own), "ours"},
		{reader, string(own) + "?iss=" + string(evil.ID), "evil.1"},
		{reader, string(own) + "?iss=" + string(s.self.ID), "ours"},
		{reader, string(own) + "?iss=spiffe://example.com/nobody", ""},
		{reader, string(theirs), "reader's"},
		{evil, string(own), "evil.1"},
		{evil, string(own) + "?iss=" + string(s.self.ID), ""},
	} {
		w := s.do(http.MethodGet, "/ects/"+tc.path, "", tc.as, nil)
		if got := w.Body.String(); tc.want == "" && w.Code != 404 || tc.want != "" && got != tc.want {
			t.Errorf("%s for %s: got %d %s, want %q", tc.path, tc.as.ID, w.Code, got, tc.want)
		}
	}
}

type quiet struct{}

func (quiet) Describe(_ context.Context, e transport.Endpoint) (*canonical.Description, transport.Endpoint, error) {
	e.Version = "1.0"
	return &canonical.Description{Name: "toy", Capabilities: []canonical.Capability{{ID: "say"}}}, e, nil
}
func (quiet) Allow(string)    {}
func (quiet) Disallow(string) {}

func TestAdmin_RequestsAndStatus(t *testing.T) {
	t.Parallel()
	agents, err := directory.New(directory.Deps{
		Describers: map[canonical.Binding]transport.Describer{"a2a-v1": quiet{}}, Egress: quiet{},
		Now: time.Now, Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	registry, err := translators.NewRegistry(a2a.New(translators.Config{}), mcp.New(translators.Config{}))
	if err != nil {
		t.Fatal(err)
	}
	var ready error
	metrics := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "a_metric 1\n") })
	listed, err := listing.New(listing.Deps{Directory: agents, Now: time.Now, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	handler, err := httpapi.Admin(httpapi.AdminDeps{
		Agents: listed, Registry: registry, Self: "spiffe://gw.example/aepb", PublicURL: "https://gw.example",
		MonitoringDeps: httpapi.MonitoringDeps{Metrics: metrics, Ready: func() error { return ready }, Logger: slog.New(slog.DiscardHandler)},
		Directory:      agents, Token: "right", Hosts: []string{"127.0.0.1", "::1", "GW.example"},
	})
	if err != nil {
		t.Fatal(err)
	}
	s := &surface{handler: handler}
	right := http.Header{"Authorization": {"Bearer right"}}
	const good = `{"name":"pricing","endpoints":[{"binding":"a2a-v1","url":"https://pricing.example"}]}`
	for _, tc := range []struct {
		name, method, target, body string
		header                     http.Header
		status                     int
	}{
		{"no token", "GET", "https://127.0.0.1:9443/api/agents", "", nil, 401},
		{"wrong token", "GET", "https://127.0.0.1:9443/api/agents", "", http.Header{"Authorization": {"Bearer wrong"}}, 401},
		{"wrong scheme", "GET", "https://127.0.0.1:9443/api/agents", "", http.Header{"Authorization": {"Basic right"}}, 401},
		{"foreign host", "GET", "https://evil.example/api/agents", "", right, 403},
		{"foreign origin", "GET", "https://127.0.0.1:9443/api/agents", "", http.Header{"Authorization": {"Bearer right"}, "Origin": {"https://evil.example"}}, 403},
		{"list", "GET", "https://127.0.0.1:9443/api/agents", "", right, 200},
		{"list by IPv6", "GET", "https://[::1]:9443/api/agents", "", right, 200},
		{"add", "POST", "https://127.0.0.1:9443/api/agents", good, right, 201},
		{"show", "GET", "https://127.0.0.1:9443/api/agents/pricing", "", right, 200},
		{"negotiate", "GET", "https://127.0.0.1:9443/api/agents/pricing/negotiation", "", right, 200},
		{"negotiate through us", "GET", "https://127.0.0.1:9443/api/agents/pricing/negotiation?speaks=mcp-v1:5", "", right, 200},
		{"no path", "GET", "https://127.0.0.1:9443/api/agents/pricing/negotiation?speaks=slim-v1", "", right, 404},
		{"bad offer", "GET", "https://127.0.0.1:9443/api/agents/pricing/negotiation?speaks=a2a-v1:x", "", right, 400},
		{"endless offer", "GET", "https://127.0.0.1:9443/api/agents/pricing/negotiation?speaks=" + strings.Repeat("a,", 99), "", right, 400},
		{"negotiate with nobody", "GET", "https://127.0.0.1:9443/api/agents/nobody/negotiation", "", right, 404},
		{"negotiate without token", "GET", "https://127.0.0.1:9443/api/agents/pricing/negotiation", "", nil, 401},
		{"nothing to accept", "POST", "https://127.0.0.1:9443/api/agents/pricing/accept", "", right, 409},
		{"accept nobody", "POST", "https://127.0.0.1:9443/api/agents/nobody/accept", "", right, 404},
		{"accept without token", "POST", "https://127.0.0.1:9443/api/agents/pricing/accept", "", nil, 401},
		{"unknown member", "POST", "https://127.0.0.1:9443/api/agents", `{"nome":"x"}`, right, 400},
		{"plain http", "POST", "https://127.0.0.1:9443/api/agents", strings.Replace(good, "https", "http", 1), right, 400},
		{"remove", "DELETE", "https://127.0.0.1:9443/api/agents/pricing", "", right, 204},
		{"remove again", "DELETE", "https://127.0.0.1:9443/api/agents/pricing", "", right, 404},
		{"show nobody", "GET", "https://127.0.0.1:9443/api/agents/pricing", "", right, 404},
		{"list by a name in other letters", "GET", "https://gw.EXAMPLE:9443/api/agents", "", right, 200},
		{"foreign host, no token", "GET", "https://10.1.2.3:9443/api/agents", "", nil, 403},
		{"health", "GET", "https://127.0.0.1:9443/healthz", "", nil, 200},
		{"ready", "GET", "https://127.0.0.1:9443/readyz", "", nil, 200},
		{"metrics", "GET", "https://127.0.0.1:9443/metrics", "", nil, 200},
		{"health by the address of a pod", "GET", "https://10.1.2.3:9443/healthz", "", nil, 200},
		{"ready by the address of a pod", "GET", "https://10.1.2.3:9443/readyz", "", nil, 200},
		{"metrics by the name of a service", "GET", "https://aepb-gateway.monitoring.svc:9443/metrics", "", nil, 200},
		{"metrics for a page of another origin", "GET", "https://127.0.0.1:9443/metrics", "", http.Header{"Origin": {"https://evil.example"}}, 403},
	} {
		if w := s.do(tc.method, tc.target, tc.body, nil, tc.header); w.Code != tc.status {
			t.Errorf("%s: got %d %s, want %d", tc.name, w.Code, w.Body, tc.status)
		}
	}
	ready = errors.New("stopping")
	if w := s.do("GET", "https://127.0.0.1:9443/readyz", "", nil, nil); w.Code != 503 || w.Body.String() != "stopping\n" {
		t.Errorf("stopping: got %d %s", w.Code, w.Body)
	}
}

// untouched is a body that nobody may read.
type untouched struct{ t *testing.T }

func (u untouched) Read([]byte) (int, error) {
	u.t.Error("the body was read")
	return 0, io.ErrUnexpectedEOF
}

// The limit is asked before a body is read, and once, wherever there is work to do.
func TestLimit_CheckedOnceBeforeReadingBody(t *testing.T) {
	t.Parallel()
	caller := ecttest.NewParty(t, "spiffe://example.com/client")
	s := newSurface(t, "")
	s.fakeHandler.full = &limit.ExceededError{}
	for i, target := range []string{"POST /aepb/translate?from=a2a-v1&to=mcp-v1", "GET /ects/x", "GET /workflows/x", "POST /hitl/callbacks", "POST " + rollback.Path} {
		method, path, _ := strings.Cut(target, " ")
		r := httptest.NewRequestWithContext(t.Context(), method, path, untouched{t})
		r.Header.Set("Content-Type", "application/json")
		r.TLS = &tls.ConnectionState{HandshakeComplete: true, PeerCertificates: caller.Chain}
		w := httptest.NewRecorder()
		s.handler.ServeHTTP(w, r)
		if w.Code != http.StatusTooManyRequests || s.fakeHandler.limits != i+1 {
			t.Errorf("%s: got %d, asked %d times", target, w.Code, s.fakeHandler.limits)
		}
	}
	s.fakeHandler.full = nil
	s.do(http.MethodPost, "/aepb/translate?from=a2a-v1&to=mcp-v1", "{}", caller, jsonBody())
	if !s.fakeHandler.call.Pass.Valid() || s.fakeHandler.limits != 6 {
		t.Errorf("no Pass was handed on, or the limit was asked %d times", s.fakeHandler.limits)
	}
	s.fakeHandler.call = transport.Call{}
	asks := ecttest.Mint(t, caller, ecttest.Recipe{Claims: ect.Claims{Act: ect.ActRollbackRequest}})
	s.do(http.MethodPost, rollback.Path, "", caller, http.Header{ect.HeaderName: {asks}})
	if !s.fakeHandler.call.Pass.Valid() || s.fakeHandler.limits != 7 {
		t.Errorf("rollback: no Pass was handed on, or the limit was asked %d times", s.fakeHandler.limits)
	}
}

// A broken credential is refused even where none is needed.
func TestCredential_BrokenIsRefusedAtDocuments(t *testing.T) {
	t.Parallel()
	s := newSurface(t, "", func(_ context.Context, r credential.Request) (identity.Caller, bool, error) {
		if len(r.Fields("Workload-Identity-Token")) == 0 {
			return identity.Caller{}, false, nil
		}
		return identity.Caller{}, false, &identity.CredentialError{Credential: "workload identity token"}
	})
	if w := s.do(http.MethodGet, "/.well-known/aepb", "", nil, nil); w.Code != http.StatusOK {
		t.Errorf("nobody: got %d", w.Code)
	}
	if w := s.do(http.MethodGet, "/.well-known/aepb", "", nil, http.Header{"Workload-Identity-Token": {"bad"}}); code(w) != "identity_invalid" {
		t.Errorf("a broken credential: got %d %s", w.Code, w.Body)
	}
}
