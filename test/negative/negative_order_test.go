package negative

import (
	"crypto/tls"
	"crypto/x509"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/ect/ecttest"
	"github.com/aepb/aepb-gateway/gateway/config"
	gatewaytest "github.com/aepb/aepb-gateway/test/harness/gateway"
)

// fault is one thing that is wrong with a request, and what it gets for it.
type fault struct {
	name   string
	status int
	says   string
	spoil  func(*spoiled)
}

// spoiled is a request on its way to be sent.
type spoiled struct {
	party              *ecttest.Party
	agent, body, media string
	length             int64 // declared; 0: that of the body
	nameless, greedy   bool
	evidence           string // instead of a good token
}

// faults in the order in which they are found (architecture section 5).
func faults() []fault {
	return []fault{
		{"size", 413, "too_large", func(s *spoiled) { s.length = 1 << 40 }},
		{"media", 415, "unsupported_media_type", func(s *spoiled) { s.media = "text/plain" }},
		{"identity", 401, "unauthenticated", func(s *spoiled) { s.nameless = true }},
		{"limit", 429, "rate_limited", func(s *spoiled) { s.greedy = true }},
		{"evidence", 400, "ect_invalid", func(s *spoiled) { s.evidence = "no token" }},
		{"policy", 403, "forbidden", func(s *spoiled) { s.agent = "closed" }},
		{"form", 0, "", func(s *spoiled) { s.body = "{" }},
	}
}

// Whatever is wrong with a request twice, the earlier step refuses it, at every
// kind of endpoint. Cheap refusals come first and touch no body. Once it is known who calls,
// the order is that of gateway's TestAdmit_Order. The gateway is its own: its limits are low.
func TestRefusals_Order(t *testing.T) {
	t.Parallel()
	b := gatewaytest.NewFixture(t, gatewaytest.Plan{Serve: true, Config: config.Config{Limits: config.Limits{Rate: 0.001, Burst: 1}}})
	for name, endpoint := range map[string]struct {
		at     func(agent string) string
		body   string
		header map[string]string
		form   string // what a broken body gets
		status int
	}{
		"translate": {
			at:   func(agent string) string { return "/aepb/translate?from=a2a-v1&dest=" + agent },
			body: gatewaytest.AddBody(1), form: "malformed_message", status: 400,
		},
		"A2A": {at: func(agent string) string { return "/agents/" + agent + "/a2a" }, body: gatewaytest.AddBody(1), form: "-32700", status: 200},
		"MCP": {
			at: func(agent string) string { return "/agents/" + agent + "/mcp" }, body: gatewaytest.CallBody("echo", "x"),
			header: gatewaytest.Mirror("tools/call", "echo"), form: "-32700", status: 400,
		},
	} {
		all := faults()
		all[len(all)-1].status, all[len(all)-1].says = endpoint.status, endpoint.form
		for i, first := range all {
			for j := i; j < len(all); j++ {
				second := all[j]
				if j > i && !slices.Contains([]string{"size", "media", "identity"}, first.name) {
					continue
				}
				s := &spoiled{party: b.Party(t, b.SVID(t, "/"+name+strconv.Itoa(i)+strconv.Itoa(j))), agent: "members", body: endpoint.body, media: "application/json"}
				second.spoil(s)
				first.spoil(s)
				w := spoiledFixture(t, b, s, endpoint.at(s.agent), endpoint.header)
				if w.Code != first.status || !strings.Contains(w.Body.String(), first.says) {
					t.Errorf("%s: %s and %s: got %d %s, want %d %s", name, first.name, second.name, w.Code, gatewaytest.Short(w.Body.Bytes()), first.status, first.says)
				}
			}
		}
	}
}

// spoiledFixture hands a request to the public surface as a listener would.
func spoiledFixture(t *testing.T, b *gatewaytest.Fixture, s *spoiled, at string, header map[string]string) *httptest.ResponseRecorder {
	t.Helper()
	n := b.Counter.Add(1)
	address := netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 0, byte(n >> 8), byte(n)}), 1).String() // a refused identity takes from its address
	send := func(body, media, token string) *httptest.ResponseRecorder {
		r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, at, strings.NewReader(body))
		r.TLS, r.RemoteAddr = &tls.ConnectionState{HandshakeComplete: true}, address
		if !s.nameless {
			r.TLS.PeerCertificates = s.party.Chain
			r.TLS.VerifiedChains = [][]*x509.Certificate{s.party.Chain}
		}
		r.Header.Set("Content-Type", media)
		for name, value := range header {
			r.Header.Set(name, value)
		}
		r.Header.Set(ect.HeaderName, token)
		if s.length > 0 {
			r.ContentLength = s.length
		}
		w := httptest.NewRecorder()
		public, _, _ := b.Handlers()
		public.ServeHTTP(w, r)
		return w
	}
	if s.greedy {
		length, nameless := s.length, s.nameless
		s.length, s.nameless = 0, false
		send("{", "application/json", "")
		s.length, s.nameless = length, nameless
	}
	token := s.evidence
	if token == "" {
		token = ecttest.Mint(t, s.party, b.Recipe(s.body))
	}
	return send(s.body, s.media, token)
}
