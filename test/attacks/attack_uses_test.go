package attacks

import (
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/ect/ecttest"
	"github.com/aepb/aepb-gateway/gateway/config"
	gatewaytest "github.com/aepb/aepb-gateway/test/harness/gateway"
)

// usesOf has an issuer use tokens until it is refused.
func usesOf(t *testing.T, b *gatewaytest.Fixture, issuer ect.Identity) (taken int) {
	t.Helper()
	for ; ; taken++ {
		key := ect.ReplayKey{Issuer: issuer, ID: ect.ID(strconv.Itoa(taken))}
		got, err := b.Env.Replays.Claim(t.Context(), key, ect.ReplayUse{Issued: time.Now(), Until: time.Now().Add(15 * time.Minute)})
		if err != nil || got != ect.ReplayFresh {
			return taken
		}
	}
}

// TestAttack_IssuersFillTheMemoryOfUsedTokens: one identity, then more, use as many tokens as
// are taken. Before, one could fill the memory of all; then each token and each proof of
// others was refused with 503. Now each has a quarter, and where three quarters are used an
// eighth of that: those of others are taken all the time, the attacker hears 429.
func TestAttack_IssuersFillTheMemoryOfUsedTokens(t *testing.T) {
	t.Parallel()
	var c config.Config
	prover := gatewaytest.NewWITCaller(t, &c)
	b := gatewaytest.NewFixture(t, gatewaytest.Plan{Config: c})
	honest := func() {
		t.Helper()
		n := b.Number()
		b.Right(t, b.Send(t, b.Sealed(t, gatewaytest.HTTPRequest{Body: gatewaytest.AddBody(n)})), `"sum":`+strconv.FormatInt(n+1, 10))
		n = b.Number()
		proof := gatewaytest.HTTPRequest{Via: b.Anonymous, At: gatewaytest.EndpointA2A, Body: gatewaytest.AddBody(n), Header: prover.Fields(prover.Token(), b.At.Public+gatewaytest.EndpointA2A)}
		b.Right(t, b.Send(t, proof), `"sum":`+strconv.FormatInt(n+1, 10))
	}
	via, mallory := b.ClientOf(t, "/mallory")
	attack := func() {
		t.Helper()
		body := gatewaytest.AddBody(b.Number())
		got := b.Send(t, gatewaytest.HTTPRequest{Via: via, At: "/aepb/translate?from=a2a-v1&to=mcp-v1", Body: body, Tokens: []string{ecttest.Mint(t, mallory, b.Recipe(body))}})
		if got.Status != http.StatusTooManyRequests || got.Header.Get("Retry-After") == "" || !strings.Contains(string(got.Body), "this issuer's used tokens fill its share") {
			t.Errorf("the attacker got %d, Retry-After %q: %s", got.Status, got.Header.Get("Retry-After"), got.Body)
		}
	}
	if taken, most := usesOf(t, b, mallory.ID), c.StateBounds().MaxReplays/4; taken != most {
		t.Errorf("one issuer used %d tokens, want %d", taken, most)
	}
	attack()
	honest()
	usesOf(t, b, "spiffe://aepb.dev/oscar")
	honest()
	attack()
	usesOf(t, b, "spiffe://aepb.dev/trudy")
	for n := range 4 {
		usesOf(t, b, ect.Identity(fmt.Sprint("spiffe://aepb.dev/", n)))
	}
	honest()
	attack()
	ready := b.Send(t, gatewaytest.HTTPRequest{Method: http.MethodGet, At: b.At.Admin + "/readyz", Media: "-"})
	metrics := b.Send(t, gatewaytest.HTTPRequest{Method: http.MethodGet, At: b.At.Admin + "/metrics", Media: "-"})
	if ready.Status != http.StatusOK || !strings.Contains(string(ready.Body), "used tokens is nearly full") || !strings.Contains(string(metrics.Body), "\naepb_state_uses_refused_total ") {
		t.Errorf("readiness is %d %s, and the refusals are not counted or: %v", ready.Status, ready.Body, strings.Contains(string(metrics.Body), "uses_refused"))
	}
	proofs := ect.Identity(prover.ID)
	usesOf(t, b, proofs)
	got := b.Send(t, gatewaytest.HTTPRequest{Via: b.Anonymous, At: gatewaytest.EndpointA2A, Body: gatewaytest.AddBody(1), Header: prover.Fields(prover.Token(), b.At.Public+gatewaytest.EndpointA2A)})
	if got.Status != http.StatusTooManyRequests || !strings.Contains(string(got.Body), "share") {
		t.Errorf("a proof of an issuer at its share: %d %s", got.Status, got.Body)
	}
}
