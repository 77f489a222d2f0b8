package main

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
	"sync"
	"testing"
	"time"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/ect/ecttest"
	"github.com/aepb/aepb-gateway/ect/identity"
	"github.com/aepb/aepb-gateway/gateway/config"
)

// challenge is what an unknown caller is told to do.
var challenge = map[string]string{"WWW-Authenticate": `Bearer realm="aepb"`}

// Who may not call.
func TestRefusedCallers(t *testing.T) {
	t.Parallel()
	b := newBed(t, plan{})
	other := b.party(t, b.svid(t, "/other"))
	second := b.caller(t, &identity.SVID{ID: other.ID, Chain: other.Chain, Key: other.Key})
	unknown := want{status: 401, code: "unauthenticated", header: challenge}
	forbidden := want{status: 403, code: "forbidden", reason: "may not call this agent", proof: "internal_error"}
	at := func(name string, l letter, w want) refusal { return sent(name, l, w) }
	call := letter{at: "/agents/closed/mcp", body: callBody("echo", "x"), header: mirror("tools/call", "echo")}
	rpc := func(w want, n int64) want {
		w.rpc = n
		return w
	}
	quiet := func(w want) want { return with(w, "") }
	via := func(l letter, c *http.Client) letter {
		l.via = c
		return l
	}
	body := addBody(7)
	ours := b.send(t, b.sealed(t, letter{body: body})).header.Values(ect.HeaderName)
	claims, _, err := ect.ParseUnverified(ours[0])
	must(t, err)
	refusals(t, b, []refusal{
		posted("an agent for others", letter{at: "/aepb/translate?from=a2a-v1&dest=closed", body: body}, forbidden),
		at("an agent for others, at its A2A endpoint", letter{at: "/agents/closed/a2a", body: body}, rpc(forbidden, -31403)),
		at("an agent for others, at its MCP door", call, rpc(forbidden, -32600)),
		at("an agent for others, its tools", letter{at: "/agents/closed/mcp", body: mcpBody("tools/list", ""), header: mirror("tools/list", "")}, quiet(rpc(forbidden, -32600))),
		at("an agent for others, discovery", letter{at: "/agents/closed/mcp", body: mcpBody("server/discover", ""), header: mirror("server/discover", "")}, quiet(rpc(forbidden, -32600))),
		at("an agent for others, its card", letter{method: "GET", at: "/agents/closed/.well-known/agent-card.json"}, quiet(forbidden)),
		at("no certificate at an agent for members", letter{via: b.anonymous, at: "/agents/members/a2a", body: body}, rpc(forbidden, -31403)),
		at("no certificate at an agent for members, MCP", via(letter{at: "/agents/members/mcp", body: call.body, header: call.header}, b.anonymous), rpc(forbidden, -32600)),
		at("no certificate at an agent for members, card", letter{via: b.anonymous, method: "GET", at: "/agents/members/a2a/.well-known/agent-card.json"}, quiet(forbidden)),
		at("no certificate at the translate endpoint", letter{via: b.anonymous, body: body}, unknown),
		at("a bearer token of nobody", letter{via: b.anonymous, body: body, header: map[string]string{"Authorization": "Bearer abc"}}, unknown),
		at("a bearer token that is no JWT, at a native endpoint", letter{via: b.anonymous, at: doorA2A, body: body, header: map[string]string{"Authorization": "Bearer abc"}}, rpc(unknown, -31401)),
		at("an ECT as a bearer token", letter{via: b.anonymous, body: body, header: map[string]string{"Authorization": "Bearer " + ours[0]}}, unknown),
		at("another scheme", letter{via: b.anonymous, body: body, header: map[string]string{"Authorization": "Basic YTpi"}}, unknown),
		at("a workload identity token of an issuer that nobody named", letter{via: b.anonymous, body: body, header: map[string]string{"Workload-Identity-Token": "abc", "Workload-Proof-Token": "abc"}}, unknown),
		at("an identity in a header", letter{via: b.anonymous, body: body, header: map[string]string{
			"X-Forwarded-Client-Cert": "URI=spiffe://aepb.dev/client", "X-SPIFFE-ID": "spiffe://aepb.dev/client",
		}}, unknown),
		posted("a good token and no certificate", letter{via: b.anonymous, body: body}, unknown),
		posted("a token of another caller at a native endpoint, without a certificate", letter{via: b.anonymous, at: doorA2A, body: body},
			want{status: 403, code: "ect_invalid", rpc: -31403, reason: "issuer_mismatch", proof: "internal_error"}),
		posted("a token of one caller over the connection of another", letter{via: second, body: body},
			want{status: 403, code: "ect_invalid", reason: "issuer_mismatch (iss)", proof: "internal_error"}),
		at("an ECT without a certificate", letter{via: b.anonymous, method: "GET", at: "/ects/" + string(claims.ID)}, unknown),
		at("an ECT of others", letter{via: second, method: "GET", at: "/ects/" + string(claims.ID)}, want{status: 404, code: "not_found", reason: "no such ECT"}),
		at("an ECT that there is not", letter{method: "GET", at: "/ects/" + string(ect.NewID())}, want{status: 404, code: "not_found", reason: "no such ECT"}),
		at("an ECT whose id is none", letter{method: "GET", at: "/ects/..%2f..%2fetc"}, want{status: 404, code: "not_found"}),
	})
	t.Run("the nameless may call open agents at native endpoints", func(t *testing.T) {
		n := b.number()
		b.right(t, b.send(t, letter{via: b.anonymous, at: doorA2A, body: addBody(n)}), `"sum":`+strconv.FormatInt(n+1, 10))
	})
	t.Run("another member is let in", func(t *testing.T) { b.worksFor(t, second, other) })
}

// Without dev nobody is anonymous, and agents without callers are closed (R2, R3).
func TestServeRefuses(t *testing.T) {
	t.Parallel()
	unlisted := plan{serve: true}
	b := newBed(t, unlisted)
	unknown := want{status: 401, code: "unauthenticated", header: challenge}
	rpc := func(w want, number int64) want {
		w.rpc = number
		return w
	}
	forbidden := want{status: 403, code: "forbidden", proof: "internal_error"}
	members := "/aepb/translate?from=a2a-v1&dest=members"
	cases := []refusal{
		sent("no certificate at the A2A endpoint", letter{via: b.anonymous, at: "/agents/members/a2a", body: addBody(1)}, rpc(unknown, -31401)),
		sent("no certificate at the MCP door", letter{via: b.anonymous, at: "/agents/members/mcp", body: callBody("echo", "x"), header: mirror("tools/call", "echo")}, rpc(unknown, -32600)),
		sent("no certificate at a card", letter{via: b.anonymous, method: "GET", at: "/agents/members/.well-known/agent-card.json"}, unknown),
		sent("no certificate at an agent that there is not", letter{via: b.anonymous, at: "/agents/nobody/a2a", body: addBody(1)}, rpc(unknown, -31401)),
		sent("no certificate at the translate endpoint", letter{via: b.anonymous, at: members, body: addBody(1)}, unknown),
		posted("an agent without callers", letter{body: addBody(1)}, forbidden),
		sent("an agent without callers, at its door", letter{at: doorA2A, body: addBody(1)}, want{status: 403, code: "forbidden", rpc: -31403, proof: "internal_error"}),
	}
	unique(t, cases)
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			l := c.make(t, b)
			b.refused(t, l, b.send(t, l), c.want)
		})
	}
	n := b.number()
	b.right(t, b.send(t, b.sealed(t, letter{at: members, body: addBody(n)})), `"sum":`+strconv.FormatInt(n+1, 10))
}

// What the operator does not want, whoever asks (AEPB, Translation Policy).
func TestPolicyRefuses(t *testing.T) {
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
			b := newBed(t, plan{config: p.config})
			w := want{status: 403, code: "policy_violation", reason: "refused by constraint " + p.constraint, proof: "policy_violation"}
			l := b.sealed(t, letter{body: addBody(1)})
			b.refused(t, l, b.send(t, l), w)
			l = b.sealed(t, letter{at: toNobody, body: addBody(1)})
			b.refused(t, l, b.send(t, l), w)
			w.rpc = -31403
			l = letter{at: doorA2A, body: addBody(1)}
			b.refused(t, l, b.send(t, l), w)
			w.rpc = -32600
			l = letter{at: doorMCP, body: callBody("concierge", secret), header: mirror("tools/call", "concierge")}
			b.refused(t, l, b.send(t, l), w)
			if len(b.tools.Received()) > 0 {
				t.Error("the agent was asked all the same")
			}
		})
	}
	t.Run("no evidence at a door", func(t *testing.T) {
		t.Parallel()
		b := newBed(t, plan{config: config.Config{ECT: config.ECT{Require: true}}})
		l := letter{at: doorA2A, body: addBody(1)}
		b.refused(t, l, b.send(t, l), want{status: 403, code: "ect_required", rpc: -31403, proof: "internal_error"})
		n := b.number()
		b.right(t, b.send(t, b.sealed(t, letter{at: doorA2A, body: addBody(n)})), `"sum":`+strconv.FormatInt(n+1, 10))
	})
}

// What a TLS handshake already ends, on both listeners.
func TestRefusedHandshakes(t *testing.T) {
	t.Parallel()
	b := newBed(t, plan{})
	shows := func(s *identity.SVID) *tls.Config { return b.clientTLS(t, s) }
	old := func(s *identity.SVID) *tls.Config {
		conf := b.clientTLS(t, s)
		conf.MinVersion, conf.MaxVersion = tls.VersionTLS12, tls.VersionTLS12
		return conf
	}
	usurper, elsewhere := authority(t, devTrustDomain, nil), authority(t, "elsewhere.example", nil)
	stolen := *b.dev.Client // the right certificate, another key
	stolen.Key = b.svid(t, "/thief").Key
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
		{"certificate of a foreign authority of the same name", shows(issue(t, usurper, "/client", noNames())), badCertificate},
		{"certificate of a foreign trust domain", shows(issue(t, elsewhere, "/client", noNames())), badCertificate},
		{"certificate that has run out", shows(expired(t, b, "/client")), badCertificate},
		{"certificate made by oneself", shows(selfMade(t, "spiffe://aepb.dev/client")), badCertificate},
		{"certificate without an identity", shows(selfMade(t, "")), badCertificate},
		{"another's certificate without its key", shows(&stolen), badProof},
		{"TLS 1.2", old(nil), badVersion},
		{"TLS 1.2 with a good certificate", old(b.dev.Client), badVersion},
	}
	t.Run("refused", func(t *testing.T) {
		for _, c := range cases {
			for name, listener := range map[string]string{"public": b.at.Public, "admin": b.at.Admin} {
				t.Run(c.name+", "+name, func(t *testing.T) {
					t.Parallel()
					if err := shake(t, listener, c.conf); err == nil || err.Error() != c.alert {
						t.Errorf("got %v, want %s", err, c.alert)
					}
				})
			}
		}
	})
	got := b.raw(t, b.clientTLS(t, nil), "GET /.well-known/aepb HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
	if got.status != http.StatusOK {
		t.Errorf("a good handshake: got %d", got.status)
	}
	t.Run("plain HTTP", func(t *testing.T) { b.refusesPlain(t) })
	t.Run("good calls afterwards", b.works)
}

// shake makes a connection and waits for the server's first word. In TLS 1.3 a
// client learns only then that its certificate was refused; nil: the server
// waits for a request.
func shake(t *testing.T, listener string, conf *tls.Config) error {
	t.Helper()
	var dialer net.Dialer
	plain, err := dialer.DialContext(t.Context(), "tcp", strings.TrimPrefix(listener, "https://"))
	must(t, err)
	conf = conf.Clone()
	conf.ServerName, conf.NextProtos = "localhost", []string{"http/1.1"}
	conn := tls.Client(plain, conf)
	defer func() { _ = plain.Close() }()
	must(t, conn.SetDeadline(time.Now().Add(patience)))
	_, err = conn.Read(make([]byte, 1))
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return nil
	}
	return err
}

// refusesPlain: Go's server tells a client that speaks HTTP to a TLS port so, in
// the clear, and answers nothing else.
func (b *bed) refusesPlain(t *testing.T) {
	t.Helper()
	for _, at := range []string{b.at.Public, b.at.Admin} {
		request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, strings.Replace(at, "https", "http", 1)+"/healthz", http.NoBody)
		must(t, err)
		response, err := b.anonymous.Do(request)
		if err != nil {
			continue
		}
		if response.StatusCode != http.StatusBadRequest {
			t.Errorf("got %d", response.StatusCode)
		}
		must(t, response.Body.Close())
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
	must(t, err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "client"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), KeyUsage: x509.KeyUsageDigitalSignature,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	must(t, err)
	leaf, err := x509.ParseCertificate(der)
	must(t, err)
	return &identity.SVID{Chain: []*x509.Certificate{leaf}, Key: key}
}

// How often one may call: each source has its own measure, and every kind of
// door says when to come again (AEPB, Gateway Requirements item 6).
func TestRateLimits(t *testing.T) {
	t.Parallel()
	const burst = 20
	b := newBed(t, plan{config: config.Config{Limits: config.Limits{Rate: 0.01, Burst: burst}}})
	greedy := b.party(t, b.svid(t, "/greedy"))
	client := b.caller(t, &identity.SVID{ID: greedy.ID, Chain: greedy.Chain, Key: greedy.Key})
	floods := b.flood(t, letter{via: client, at: "/agents/nobody/a2a", body: addBody(1)}, 3*burst)
	if floods[http.StatusNotFound] != burst || floods[http.StatusTooManyRequests] != 2*burst {
		t.Errorf("a flood of %d with a burst of %d got %v", 3*burst, burst, floods)
	}
	floods = b.flood(t, letter{via: b.anonymous, at: "/agents/nobody/a2a", body: addBody(1)}, 2*burst)
	if floods[http.StatusNotFound] != burst || floods[http.StatusTooManyRequests] != burst {
		t.Errorf("a nameless flood got %v", floods)
	}
	limited := want{status: 429, code: "rate_limited", reason: "more requests than this caller may make"}
	// The body of a refused request was not read: the answer cannot know its id.
	rpc := limited
	rpc.rpc = -32603
	call := letter{at: doorMCP, body: callBody("concierge", secret), header: mirror("tools/call", "concierge")}
	for name, via := range map[string]*http.Client{"with a certificate": client, "without": b.anonymous} {
		for _, c := range []refusal{
			sent("A2A", letter{at: doorA2A, body: addBody(1)}, answering(rpc, "null")),
			sent("MCP", call, rpc),
			sent("MCP tools", letter{at: doorMCP, body: mcpBody("tools/list", ""), header: mirror("tools/list", "")}, rpc),
			sent("MCP discovery", letter{at: doorMCP, body: mcpBody("server/discover", ""), header: mirror("server/discover", "")}, rpc),
			sent("MCP ping", letter{at: doorMCP, body: mcpBody("ping", ""), header: mirror("ping", "")}, rpc),
			sent("MCP notification", letter{at: doorMCP, body: `{"jsonrpc":"2.0","method":"notifications/initialized"}`}, rpc),
			sent("MCP initialize", letter{at: doorMCP, body: `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"x","version":"1"}}}`}, rpc),
			sent("not even JSON", letter{at: doorMCP, body: "{"}, rpc),
			sent("card", letter{method: "GET", at: "/agents/calculator/.well-known/agent-card.json"}, limited),
			sent("unknown agent", letter{at: "/agents/nobody/a2a", body: addBody(1)}, rpc),
		} {
			t.Run(c.name+" "+name, func(t *testing.T) {
				l := c.make(t, b)
				l.via = via
				got := b.send(t, l)
				b.refused(t, l, got, c.want)
				comeAgain(t, got)
			})
		}
	}
	t.Run("translate", func(t *testing.T) {
		body := addBody(1)
		l := letter{via: client, body: body, tokens: []string{ecttest.Mint(t, greedy, b.recipe(body))}}
		got := b.send(t, l)
		b.refused(t, l, got, limited)
		comeAgain(t, got)
	})
	t.Run("others are not limited by it", b.works)
}

// comeAgain: Retry-After is in whole seconds and not later than a slot is free.
func comeAgain(t *testing.T, got reply) {
	t.Helper()
	seconds, err := strconv.Atoi(got.header.Get("Retry-After"))
	if err != nil || seconds < 1 || seconds > 100 {
		t.Errorf("Retry-After: %q", got.header.Get("Retry-After"))
	}
}

// flood sends the same letter many times at once and counts the statuses.
func (b *bed) flood(t *testing.T, l letter, times int) map[int]int {
	t.Helper()
	var mu sync.Mutex
	var group sync.WaitGroup
	counts := map[int]int{}
	for range times {
		group.Go(func() {
			got, err := b.try(t, l)
			if err != nil {
				t.Errorf("no answer: %v", err)
				return
			}
			mu.Lock()
			defer mu.Unlock()
			counts[got.status]++
		})
	}
	group.Wait()
	return counts
}
