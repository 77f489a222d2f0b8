package negative

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"math/big"
	"net"
	"net/http"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/ect/ecttest"
	"github.com/aepb/aepb-gateway/ect/identity"
	"github.com/aepb/aepb-gateway/gateway/config"
	gatewaytest "github.com/aepb/aepb-gateway/test/harness/gateway"
)

// challenge is what an unknown caller is told to do.
var challenge = map[string]string{"WWW-Authenticate": `Bearer realm="aepb"`}

// Who may not call.
func TestCallers_Refused(t *testing.T) {
	t.Parallel()
	b := shared()
	other := b.Party(t, b.SVID(t, "/other"))
	second := b.Caller(t, &identity.SVID{ID: other.ID, Chain: other.Chain, Key: other.Key})
	unknown := gatewaytest.Want{Status: 401, Code: "unauthenticated", Header: challenge}
	forbidden := gatewaytest.Want{Status: 403, Code: "forbidden", Reason: "may not call this agent", Proof: "internal_error"}
	at := func(name string, l gatewaytest.HTTPRequest, w gatewaytest.Want) gatewaytest.Refusal {
		return gatewaytest.Sent(name, l, w)
	}
	call := gatewaytest.HTTPRequest{At: "/agents/closed/mcp", Body: gatewaytest.CallBody("echo", "x"), Header: gatewaytest.Mirror("tools/call", "echo")}
	rpc := func(w gatewaytest.Want, n int64) gatewaytest.Want {
		w.RPC = n
		return w
	}
	quiet := func(w gatewaytest.Want) gatewaytest.Want { return with(w, "") }
	via := func(l gatewaytest.HTTPRequest, c *http.Client) gatewaytest.HTTPRequest {
		l.Via = c
		return l
	}
	body := gatewaytest.AddBody(7)
	ours := b.Send(t, b.Sealed(t, gatewaytest.HTTPRequest{Body: body})).Header.Values(ect.HeaderName)
	claims, _, err := ect.ParseUnverified(ours[0])
	gatewaytest.Must(t, err)
	gatewaytest.Refusals(t, b, []gatewaytest.Refusal{
		gatewaytest.Posted("an agent for others", gatewaytest.HTTPRequest{At: "/aepb/translate?from=a2a-v1&dest=closed", Body: body}, forbidden),
		at("an agent for others, at its A2A endpoint", gatewaytest.HTTPRequest{At: "/agents/closed/a2a", Body: body}, rpc(forbidden, -31403)),
		at("an agent for others, at its MCP endpoint", call, rpc(forbidden, -32600)),
		at("an agent for others, its tools", gatewaytest.HTTPRequest{At: "/agents/closed/mcp", Body: mcpBody("tools/list", ""), Header: gatewaytest.Mirror("tools/list", "")}, quiet(rpc(forbidden, -32600))),
		at("an agent for others, discovery", gatewaytest.HTTPRequest{At: "/agents/closed/mcp", Body: mcpBody("server/discover", ""), Header: gatewaytest.Mirror("server/discover", "")}, quiet(rpc(forbidden, -32600))),
		at("an agent for others, its card", gatewaytest.HTTPRequest{Method: "GET", At: "/agents/closed/.well-known/agent-card.json"}, quiet(forbidden)),
		at("no certificate at an agent for members", gatewaytest.HTTPRequest{Via: b.Anonymous, At: "/agents/members/a2a", Body: body}, rpc(forbidden, -31403)),
		at("no certificate at an agent for members, MCP", via(gatewaytest.HTTPRequest{At: "/agents/members/mcp", Body: call.Body, Header: call.Header}, b.Anonymous), rpc(forbidden, -32600)),
		at("no certificate at an agent for members, card", gatewaytest.HTTPRequest{Via: b.Anonymous, Method: "GET", At: "/agents/members/a2a/.well-known/agent-card.json"}, quiet(forbidden)),
		at("no certificate at the translate endpoint", gatewaytest.HTTPRequest{Via: b.Anonymous, Body: body}, unknown),
		at("a bearer token of nobody", gatewaytest.HTTPRequest{Via: b.Anonymous, Body: body, Header: map[string]string{"Authorization": "Bearer abc"}}, unknown),
		at("a bearer token that is no JWT, at a native endpoint", gatewaytest.HTTPRequest{Via: b.Anonymous, At: gatewaytest.EndpointA2A, Body: body, Header: map[string]string{"Authorization": "Bearer abc"}}, rpc(unknown, -31401)),
		at("an ECT as a bearer token", gatewaytest.HTTPRequest{Via: b.Anonymous, Body: body, Header: map[string]string{"Authorization": "Bearer " + ours[0]}}, unknown),
		at("another scheme", gatewaytest.HTTPRequest{Via: b.Anonymous, Body: body, Header: map[string]string{"Authorization": "Basic YTpi"}}, unknown),
		at("a workload identity token of an issuer that nobody named", gatewaytest.HTTPRequest{Via: b.Anonymous, Body: body, Header: map[string]string{"Workload-Identity-Token": "abc", "Workload-Proof-Token": "abc"}}, unknown),
		at("an identity in a header", gatewaytest.HTTPRequest{Via: b.Anonymous, Body: body, Header: map[string]string{
			"X-Forwarded-Client-Cert": "URI=spiffe://aepb.dev/client", "X-SPIFFE-ID": "spiffe://aepb.dev/client",
		}}, unknown),
		gatewaytest.Posted("a good token and no certificate", gatewaytest.HTTPRequest{Via: b.Anonymous, Body: body}, unknown),
		gatewaytest.Posted("a token of another caller at a native endpoint, without a certificate", gatewaytest.HTTPRequest{Via: b.Anonymous, At: gatewaytest.EndpointA2A, Body: body},
			gatewaytest.Want{Status: 403, Code: "ect_invalid", RPC: -31403, Reason: "issuer_mismatch", Proof: "internal_error"}),
		gatewaytest.Posted("a token of one caller over the connection of another", gatewaytest.HTTPRequest{Via: second, Body: body},
			gatewaytest.Want{Status: 403, Code: "ect_invalid", Reason: "issuer_mismatch (iss)", Proof: "internal_error"}),
		at("an ECT without a certificate", gatewaytest.HTTPRequest{Via: b.Anonymous, Method: "GET", At: "/ects/" + string(claims.ID)}, unknown),
		at("an ECT of others", gatewaytest.HTTPRequest{Via: second, Method: "GET", At: "/ects/" + string(claims.ID)}, gatewaytest.Want{Status: 404, Code: "not_found", Reason: "no such ECT"}),
		at("an ECT that there is not", gatewaytest.HTTPRequest{Method: "GET", At: "/ects/" + string(ect.NewID())}, gatewaytest.Want{Status: 404, Code: "not_found", Reason: "no such ECT"}),
		at("an ECT whose id is none", gatewaytest.HTTPRequest{Method: "GET", At: "/ects/..%2f..%2fetc"}, gatewaytest.Want{Status: 404, Code: "not_found"}),
	})
	t.Run("the nameless may call open agents at native endpoints", func(t *testing.T) {
		n := b.Number()
		b.Right(t, b.Send(t, gatewaytest.HTTPRequest{Via: b.Anonymous, At: gatewaytest.EndpointA2A, Body: gatewaytest.AddBody(n)}), `"sum":`+strconv.FormatInt(n+1, 10))
	})
	t.Run("another member is let in", func(t *testing.T) { b.WorksFor(t, second, other) })
}

// Without dev nobody is anonymous, and agents without callers are closed (R2, R3).
func TestServe_RefusesAnonymousAndUnlistedCallers(t *testing.T) {
	t.Parallel()
	b := sharedServe()
	unknown := gatewaytest.Want{Status: 401, Code: "unauthenticated", Header: challenge}
	rpc := func(w gatewaytest.Want, number int64) gatewaytest.Want {
		w.RPC = number
		return w
	}
	forbidden := gatewaytest.Want{Status: 403, Code: "forbidden", Proof: "internal_error"}
	members := "/aepb/translate?from=a2a-v1&dest=members"
	cases := []gatewaytest.Refusal{
		gatewaytest.Sent("no certificate at the A2A endpoint", gatewaytest.HTTPRequest{Via: b.Anonymous, At: "/agents/members/a2a", Body: gatewaytest.AddBody(1)}, rpc(unknown, -31401)),
		gatewaytest.Sent("no certificate at the MCP endpoint", gatewaytest.HTTPRequest{Via: b.Anonymous, At: "/agents/members/mcp", Body: gatewaytest.CallBody("echo", "x"), Header: gatewaytest.Mirror("tools/call", "echo")}, rpc(unknown, -32600)),
		gatewaytest.Sent("no certificate at a card", gatewaytest.HTTPRequest{Via: b.Anonymous, Method: "GET", At: "/agents/members/.well-known/agent-card.json"}, unknown),
		gatewaytest.Sent("no certificate at an agent that there is not", gatewaytest.HTTPRequest{Via: b.Anonymous, At: "/agents/nobody/a2a", Body: gatewaytest.AddBody(1)}, rpc(unknown, -31401)),
		gatewaytest.Sent("no certificate at the translate endpoint", gatewaytest.HTTPRequest{Via: b.Anonymous, At: members, Body: gatewaytest.AddBody(1)}, unknown),
		gatewaytest.Posted("an agent without callers", gatewaytest.HTTPRequest{Body: gatewaytest.AddBody(1)}, forbidden),
		gatewaytest.Sent("an agent without callers, at its endpoint", gatewaytest.HTTPRequest{At: gatewaytest.EndpointA2A, Body: gatewaytest.AddBody(1)}, gatewaytest.Want{Status: 403, Code: "forbidden", RPC: -31403, Proof: "internal_error"}),
	}
	gatewaytest.Unique(t, cases)
	for _, c := range cases {
		t.Run(c.Name, func(t *testing.T) {
			l := c.Make(t, b)
			b.Refused(t, l, b.Send(t, l), c.Want)
		})
	}
	n := b.Number()
	b.Right(t, b.Send(t, b.Sealed(t, gatewaytest.HTTPRequest{At: members, Body: gatewaytest.AddBody(n)})), `"sum":`+strconv.FormatInt(n+1, 10))
}

// What the operator does not want, whoever asks (AEPB, Translation Policy). Each policy has a gateway of its own.
func TestPolicy_Refuses(t *testing.T) {
	t.Parallel()
	none := 0
	for name, p := range map[string]struct {
		config     config.Config
		constraint string
	}{
		"source protocols":      {config.Config{Policy: config.Policy{AllowedSource: &[]string{"slim-v1"}}}, "aepb.allowed_source_protocols"},
		"no source protocols":   {config.Config{Policy: config.Policy{AllowedSource: &[]string{}}}, "aepb.allowed_source_protocols"},
		"destination protocols": {config.Config{Policy: config.Policy{AllowedDest: &[]string{"slim-v1"}}}, "aepb.allowed_dest_protocols"},
		"no translation":        {config.Config{Policy: config.Policy{MaxHops: &none}}, "aepb.max_translation_hops"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := gatewaytest.NewFixture(t, gatewaytest.Plan{Config: p.config})
			w := gatewaytest.Want{Status: 403, Code: "policy_violation", Reason: "refused by constraint " + p.constraint, Proof: "policy_violation"}
			l := b.Sealed(t, gatewaytest.HTTPRequest{Body: gatewaytest.AddBody(1)})
			b.Refused(t, l, b.Send(t, l), w)
			l = b.Sealed(t, gatewaytest.HTTPRequest{At: gatewaytest.ToNobody, Body: gatewaytest.AddBody(1)})
			b.Refused(t, l, b.Send(t, l), w)
			w.RPC = -31403
			l = gatewaytest.HTTPRequest{At: gatewaytest.EndpointA2A, Body: gatewaytest.AddBody(1)}
			b.Refused(t, l, b.Send(t, l), w)
			w.RPC = -32600
			l = gatewaytest.HTTPRequest{At: gatewaytest.EndpointMCP, Body: gatewaytest.CallBody("concierge", gatewaytest.Secret), Header: gatewaytest.Mirror("tools/call", "concierge")}
			b.Refused(t, l, b.Send(t, l), w)
			if len(b.Tools.Received()) > 0 {
				t.Error("the agent was asked all the same")
			}
		})
	}
	t.Run("no evidence at an endpoint", func(t *testing.T) {
		t.Parallel()
		b := gatewaytest.NewFixture(t, gatewaytest.Plan{Config: config.Config{ECT: config.ECT{Require: true}}})
		l := gatewaytest.HTTPRequest{At: gatewaytest.EndpointA2A, Body: gatewaytest.AddBody(1)}
		b.Refused(t, l, b.Send(t, l), gatewaytest.Want{Status: 403, Code: "ect_required", RPC: -31403, Proof: "internal_error"})
		n := b.Number()
		b.Right(t, b.Send(t, b.Sealed(t, gatewaytest.HTTPRequest{At: gatewaytest.EndpointA2A, Body: gatewaytest.AddBody(n)})), `"sum":`+strconv.FormatInt(n+1, 10))
	})
}

// What a TLS handshake already ends, on both listeners.
func TestHandshake_Refused(t *testing.T) {
	t.Parallel()
	b := shared()
	shows := func(s *identity.SVID) *tls.Config { return b.ClientTLS(t, s) }
	old := func(s *identity.SVID) *tls.Config {
		conf := b.ClientTLS(t, s)
		conf.MinVersion, conf.MaxVersion = tls.VersionTLS12, tls.VersionTLS12
		return conf
	}
	usurper, elsewhere := gatewaytest.Authority(t, gatewaytest.TrustDomain, nil), gatewaytest.Authority(t, "elsewhere.example", nil)
	stolen := *b.Dev.Client // the right certificate, another key
	stolen.Key = b.SVID(t, "/thief").Key
	const (
		badCertificate = "remote error: tls: bad certificate"
		badProof       = "remote error: tls: error decrypting message"
		badVersion     = "remote error: tls: protocol version not supported"
	)
	cases := []struct {
		name  string
		conf  *tls.Config
		alert string
	}{
		{"certificate of a foreign authority of the same name", shows(gatewaytest.Issue(t, usurper, "/client", gatewaytest.NoNames())), badCertificate},
		{"certificate of a foreign trust domain", shows(gatewaytest.Issue(t, elsewhere, "/client", gatewaytest.NoNames())), badCertificate},
		{"certificate that has run out", shows(gatewaytest.Expired(t, b, "/client")), badCertificate},
		{"certificate made by oneself", shows(selfMade(t, "spiffe://aepb.dev/client")), badCertificate},
		{"certificate without an identity", shows(selfMade(t, "")), badCertificate},
		{"another's certificate without its key", shows(&stolen), badProof},
		{"TLS 1.2", old(nil), badVersion},
		{"TLS 1.2 with a good certificate", old(b.Dev.Client), badVersion},
	}
	t.Run("refused", func(t *testing.T) {
		for _, c := range cases {
			for name, listener := range map[string]string{"public": b.At.Public, "admin": b.At.Admin} {
				t.Run(c.name+", "+name, func(t *testing.T) {
					t.Parallel()
					if err := shake(t, listener, c.conf); err == nil || err.Error() != c.alert {
						t.Errorf("got %v, want %s", err, c.alert)
					}
				})
			}
		}
	})
	got := raw(t, b, b.ClientTLS(t, nil), "GET /.well-known/aepb HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
	if got.Status != http.StatusOK {
		t.Errorf("a good handshake: got %d", got.Status)
	}
	t.Run("plain HTTP", func(t *testing.T) { refusesPlain(t, b) })
	t.Run("good calls afterwards", b.Works)
}

// shake makes a connection and waits for the server's first word. In TLS 1.3 a
// client learns only then that its certificate was refused; nil: the server
// waits for a request.
func shake(t *testing.T, listener string, conf *tls.Config) error {
	t.Helper()
	var dialer net.Dialer
	plain, err := dialer.DialContext(t.Context(), "tcp", strings.TrimPrefix(listener, "https://"))
	gatewaytest.Must(t, err)
	conf = conf.Clone()
	conf.ServerName, conf.NextProtos = "localhost", []string{"http/1.1"}
	conn := tls.Client(plain, conf)
	defer func() { _ = plain.Close() }()
	gatewaytest.Must(t, conn.SetDeadline(time.Now().Add(gatewaytest.Patience)))
	_, err = conn.Read(make([]byte, 1))
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return nil
	}
	return err
}

// refusesPlain: Go's server tells a client that speaks HTTP to a TLS port so, in
// the clear, and answers nothing else.
func refusesPlain(t *testing.T, b *gatewaytest.Fixture) {
	t.Helper()
	for _, at := range []string{b.At.Public, b.At.Admin} {
		request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, strings.Replace(at, "https", "http", 1)+"/healthz", http.NoBody)
		gatewaytest.Must(t, err)
		response, err := b.Anonymous.Do(request)
		if err != nil {
			continue
		}
		if response.StatusCode != http.StatusBadRequest {
			t.Errorf("got %d", response.StatusCode)
		}
		gatewaytest.Must(t, response.Body.Close())
	}
}

// selfMade is a self-signed certificate; without an id it names nobody.
func selfMade(t *testing.T, id ect.Identity) *identity.SVID {
	t.Helper()
	if id != "" {
		p := ecttest.NewParty(t, id)
		return &identity.SVID{ID: id, Chain: p.Chain, Key: p.Key}
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	gatewaytest.Must(t, err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "client"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), KeyUsage: x509.KeyUsageDigitalSignature,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	gatewaytest.Must(t, err)
	leaf, err := x509.ParseCertificate(der)
	gatewaytest.Must(t, err)
	return &identity.SVID{Chain: []*x509.Certificate{leaf}, Key: key}
}

// How often one may call: each source has its own measure, and every kind of
// endpoint says when to come again (AEPB, Gateway Requirements item 6). The gateway is its own: its limits are low.
func TestRateLimits_PerSource(t *testing.T) {
	t.Parallel()
	const burst = 20
	b := gatewaytest.NewFixture(t, gatewaytest.Plan{Config: config.Config{Limits: config.Limits{Rate: 0.01, Burst: burst}}})
	greedy := b.Party(t, b.SVID(t, "/greedy"))
	client := b.Caller(t, &identity.SVID{ID: greedy.ID, Chain: greedy.Chain, Key: greedy.Key})
	floods := b.Flood(t, gatewaytest.HTTPRequest{Via: client, At: "/agents/nobody/a2a", Body: gatewaytest.AddBody(1)}, 3*burst)
	if floods[http.StatusNotFound] != burst || floods[http.StatusTooManyRequests] != 2*burst {
		t.Errorf("a flood of %d with a burst of %d got %v", 3*burst, burst, floods)
	}
	floods = b.Flood(t, gatewaytest.HTTPRequest{Via: b.Anonymous, At: "/agents/nobody/a2a", Body: gatewaytest.AddBody(1)}, 2*burst)
	if floods[http.StatusNotFound] != burst || floods[http.StatusTooManyRequests] != burst {
		t.Errorf("a nameless flood got %v", floods)
	}
	limited := gatewaytest.Want{Status: 429, Code: "rate_limited", Reason: "more requests than this caller may make"}
	// The body of a refused request was not read: the answer cannot know its id.
	rpc := limited
	rpc.RPC = -32603
	call := gatewaytest.HTTPRequest{At: gatewaytest.EndpointMCP, Body: gatewaytest.CallBody("concierge", gatewaytest.Secret), Header: gatewaytest.Mirror("tools/call", "concierge")}
	for name, via := range map[string]*http.Client{"with a certificate": client, "without": b.Anonymous} {
		for _, c := range []gatewaytest.Refusal{
			gatewaytest.Sent("A2A", gatewaytest.HTTPRequest{At: gatewaytest.EndpointA2A, Body: gatewaytest.AddBody(1)}, answering(rpc, "null")),
			gatewaytest.Sent("MCP", call, rpc),
			gatewaytest.Sent("MCP tools", gatewaytest.HTTPRequest{At: gatewaytest.EndpointMCP, Body: mcpBody("tools/list", ""), Header: gatewaytest.Mirror("tools/list", "")}, rpc),
			gatewaytest.Sent("MCP discovery", gatewaytest.HTTPRequest{At: gatewaytest.EndpointMCP, Body: mcpBody("server/discover", ""), Header: gatewaytest.Mirror("server/discover", "")}, rpc),
			gatewaytest.Sent("MCP ping", gatewaytest.HTTPRequest{At: gatewaytest.EndpointMCP, Body: mcpBody("ping", ""), Header: gatewaytest.Mirror("ping", "")}, rpc),
			gatewaytest.Sent("MCP notification", gatewaytest.HTTPRequest{At: gatewaytest.EndpointMCP, Body: `{"jsonrpc":"2.0","method":"notifications/initialized"}`}, rpc),
			gatewaytest.Sent("MCP initialize", gatewaytest.HTTPRequest{At: gatewaytest.EndpointMCP, Body: `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"x","version":"1"}}}`}, rpc),
			gatewaytest.Sent("not even JSON", gatewaytest.HTTPRequest{At: gatewaytest.EndpointMCP, Body: "{"}, rpc),
			gatewaytest.Sent("card", gatewaytest.HTTPRequest{Method: "GET", At: "/agents/calculator/.well-known/agent-card.json"}, limited),
			gatewaytest.Sent("unknown agent", gatewaytest.HTTPRequest{At: "/agents/nobody/a2a", Body: gatewaytest.AddBody(1)}, rpc),
		} {
			t.Run(c.Name+" "+name, func(t *testing.T) {
				l := c.Make(t, b)
				l.Via = via
				got := b.Send(t, l)
				b.Refused(t, l, got, c.Want)
				comeAgain(t, got)
			})
		}
	}
	t.Run("translate", func(t *testing.T) {
		body := gatewaytest.AddBody(1)
		l := gatewaytest.HTTPRequest{Via: client, Body: body, Tokens: []string{ecttest.Mint(t, greedy, b.Recipe(body))}}
		got := b.Send(t, l)
		b.Refused(t, l, got, limited)
		comeAgain(t, got)
	})
	t.Run("others are not limited by it", b.Works)
}

// comeAgain: Retry-After is in whole seconds and not later than a slot is free.
func comeAgain(t *testing.T, got gatewaytest.Reply) {
	t.Helper()
	seconds, err := strconv.Atoi(got.Header.Get("Retry-After"))
	if err != nil || seconds < 1 || seconds > 100 {
		t.Errorf("Retry-After: %q", got.Header.Get("Retry-After"))
	}
}
