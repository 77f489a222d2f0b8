package main

import (
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/ect/identity"
	"github.com/aepb/aepb-gateway/gateway/config"
	"github.com/aepb/aepb-gateway/gateway/directory"
)

// beside starts another gateway of the same trust domain, under an identity of
// its own.
func (b *bed) beside(t *testing.T, name string, c config.Config) *bed {
	t.Helper()
	return b.besides(t, name, plan{config: c})
}

func (b *bed) besides(t *testing.T, name string, p plan) *bed {
	t.Helper()
	other := &bed{
		logs: &journal{}, adminToken: b.adminToken, dir: b.dir, me: b.me, client: b.client, anonymous: b.anonymous, judge: b.judge,
		dev: &identity.Development{Authority: b.dev.Authority, Gateway: b.svid(t, "/"+name), Client: b.dev.Client, Bundle: b.dev.Bundle},
	}
	other.start(t, p)
	return other
}

// through lists an agent that is behind another gateway, by the door it has there.
func (b *bed) through(t *testing.T, name string, next *bed, e directory.Endpoint) {
	t.Helper()
	e.URL = next.at.Public + e.URL
	b.listAs(t, name, next.dev.Gateway.ID, e)
}

// TestSeveralHops: an A2A client, three gateways and an AINP agent. Each hop
// translates into another protocol, each ECT names the one before (AEPB,
// Multi-Hop Translation; R1).
func TestSeveralHops(t *testing.T) {
	t.Parallel()
	first := newBed(t, plan{})
	second, third := first.beside(t, "gateway-2", config.Config{}), first.beside(t, "gateway-3", config.Config{})
	seen := make(chan []string, 1)
	third.ainpAgent(t, "scribe", &ainpFake{seen: func(body []byte) { seen <- tokensIn(body) }}, directory.Endpoint{})
	second.through(t, "scribe", third, directory.Endpoint{Binding: "a2a-v1", URL: "/agents/scribe/a2a"})
	first.through(t, "scribe", second, directory.Endpoint{Binding: "mcp-v1", URL: "/agents/scribe/mcp"})

	n := first.number()
	body := addBody(n)
	source := first.token(t, body)
	got := first.send(t, letter{at: "/aepb/translate?from=a2a-v1&dest=scribe", body: body, tokens: []string{source}})
	if got.status != http.StatusOK || !strings.Contains(string(got.body), strconv.FormatInt(n+1, 10)) {
		t.Fatalf("got %d %s", got.status, short(got.body))
	}
	chain := <-seen
	if len(chain) != 4 || chain[3] != source && !slices.Contains(chain, source) {
		t.Fatalf("%d tokens arrived, want those of three gateways and the source's", len(chain))
	}
	by := map[ect.ID]ect.Claims{}
	at := ect.ID("")
	for i, compact := range chain {
		v, err := first.judge.Verify(t.Context(), compact, ect.Check{Purpose: ect.Parent})
		must(t, err)
		by[v.ID()] = v.Claims()
		if i == 0 {
			at = v.ID()
		}
	}
	for _, gateway := range []*bed{third, second, first} {
		claims := by[at]
		if claims.Issuer != gateway.dev.Gateway.ID || claims.Act != ect.ActTranslate || len(claims.Parents) != 1 {
			t.Fatalf("%s is by %s, want %s, with one parent", at, claims.Issuer, gateway.dev.Gateway.ID)
		}
		at = claims.Parents[0]
	}
	if by[at].Issuer != first.me.ID {
		t.Errorf("the chain ends with %s", by[at].Issuer)
	}
}

// TestHopLimit: a gateway whose operator allows one translation takes none that
// another made before (AEPB, Multi-Hop Translation).
func TestHopLimit(t *testing.T) {
	t.Parallel()
	one := 1
	first := newBed(t, plan{})
	second := first.beside(t, "gateway-2", config.Config{Policy: config.Policy{MaxHops: &one}})
	scribe := &ainpFake{}
	second.ainpAgent(t, "scribe", scribe, directory.Endpoint{})
	first.through(t, "scribe", second, directory.Endpoint{Binding: "mcp-v1", URL: "/agents/scribe/mcp"})
	body := addBody(1)
	got := first.send(t, letter{at: "/aepb/translate?from=a2a-v1&dest=scribe", body: body, tokens: []string{first.token(t, body)}})
	refusedOnTheWay(t, got, "policy_violation")
	if scribe.calls.Load() != 0 {
		t.Error("the agent was called")
	}
	second.right(t, second.send(t, second.sealed(t, letter{at: "/aepb/translate?from=a2a-v1&dest=scribe", body: addBody(2)})), `"sum":3`)
}

// TestRoutingLoop: a message that comes back to a gateway which has translated it
// goes no further.
func TestRoutingLoop(t *testing.T) {
	t.Parallel()
	first := newBed(t, plan{})
	second := first.beside(t, "gateway-2", config.Config{})
	second.through(t, "round", first, directory.Endpoint{Binding: "a2a-v1", URL: "/agents/calculator/a2a"})
	first.through(t, "round", second, directory.Endpoint{Binding: "mcp-v1", URL: "/agents/round/mcp"})
	body := addBody(1)
	got := first.send(t, letter{at: "/aepb/translate?from=a2a-v1&dest=round", body: body, tokens: []string{first.token(t, body)}})
	refusedOnTheWay(t, got, "policy_violation")
	first.works(t)
}

// refusedOnTheWay: the caller is told that a gateway further on refused, and why.
func refusedOnTheWay(t *testing.T, got reply, why string) {
	t.Helper()
	if strings.Contains(string(got.body), `"sum"`) || !strings.Contains(string(got.body), why) {
		t.Errorf("got %d without %s: %s", got.status, why, short(got.body))
	}
}
