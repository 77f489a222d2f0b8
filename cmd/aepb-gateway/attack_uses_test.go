package main

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
)

// usesOf has an issuer use tokens until it is refused.
func (b *bed) usesOf(t *testing.T, issuer ect.Identity) (taken int) {
	t.Helper()
	for ; ; taken++ {
		key := ect.ReplayKey{Issuer: issuer, ID: ect.ID(strconv.Itoa(taken))}
		got, err := b.replay.Claim(t.Context(), key, ect.ReplayUse{Issued: time.Now(), Until: time.Now().Add(15 * time.Minute)})
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
	prover := newWITCaller(t, &c)
	b := newBed(t, plan{config: c})
	honest := func() {
		t.Helper()
		n := b.number()
		b.right(t, b.send(t, b.sealed(t, letter{body: addBody(n)})), `"sum":`+strconv.FormatInt(n+1, 10))
		n = b.number()
		proof := letter{via: b.anonymous, at: doorA2A, body: addBody(n), header: prover.fields(prover.token(), b.at.Public+doorA2A)}
		b.right(t, b.send(t, proof), `"sum":`+strconv.FormatInt(n+1, 10))
	}
	via, mallory := b.clientOf(t, "/mallory")
	attack := func() {
		t.Helper()
		body := addBody(b.number())
		got := b.send(t, letter{via: via, at: "/aepb/translate?from=a2a-v1&to=mcp-v1", body: body, tokens: []string{ecttest.Mint(t, mallory, b.recipe(body))}})
		if got.status != http.StatusTooManyRequests || got.header.Get("Retry-After") == "" || !strings.Contains(string(got.body), "this issuer's used tokens fill its share") {
			t.Errorf("the attacker got %d, Retry-After %q: %s", got.status, got.header.Get("Retry-After"), got.body)
		}
	}
	if taken, most := b.usesOf(t, mallory.ID), c.StateBounds().MaxReplays/4; taken != most {
		t.Errorf("one issuer used %d tokens, want %d", taken, most)
	}
	attack()
	honest()
	b.usesOf(t, "spiffe://aepb.dev/oscar")
	honest()
	attack()
	b.usesOf(t, "spiffe://aepb.dev/trudy")
	for n := range 4 {
		b.usesOf(t, ect.Identity(fmt.Sprint("spiffe://aepb.dev/", n)))
	}
	honest()
	attack()
	ready := b.send(t, letter{method: http.MethodGet, at: b.at.Admin + "/readyz", media: "-"})
	metrics := b.send(t, letter{method: http.MethodGet, at: b.at.Admin + "/metrics", media: "-"})
	if ready.status != http.StatusOK || !strings.Contains(string(ready.body), "used tokens is nearly full") || !strings.Contains(string(metrics.body), "\naepb_state_uses_refused_total ") {
		t.Errorf("readiness is %d %s, and the refusals are not counted or: %v", ready.status, ready.body, strings.Contains(string(metrics.body), "uses_refused"))
	}
	proofs := ect.Identity(prover.id)
	b.usesOf(t, proofs)
	got := b.send(t, letter{via: b.anonymous, at: doorA2A, body: addBody(1), header: prover.fields(prover.token(), b.at.Public+doorA2A)})
	if got.status != http.StatusTooManyRequests || !strings.Contains(string(got.body), "share") {
		t.Errorf("a proof of an issuer at its share: %d %s", got.status, got.body)
	}
}
