package stories

import (
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/gateway/config"
	"github.com/aepb/aepb-gateway/gateway/directory"
	gatewaytest "github.com/aepb/aepb-gateway/test/harness/gateway"
)

// through lists an agent that is behind another gateway, by the door it has there.
func through(t *testing.T, b *gatewaytest.Fixture, name string, next *gatewaytest.Fixture, e directory.Endpoint) {
	t.Helper()
	e.URL = next.At.Public + e.URL
	b.ListAs(t, name, next.Dev.Gateway.ID, e)
}

// TestHops_ThroughThreeGateways: an A2A client, three gateways and an AINP agent. Each hop
// translates into another protocol, each ECT names the one before (AEPB,
// Multi-Hop Translation; R1).
func TestHops_ThroughThreeGateways(t *testing.T) {
	t.Parallel()
	first := gatewaytest.NewFixture(t, gatewaytest.Plan{})
	second, third := first.Beside(t, "gateway-2", config.Config{}), first.Beside(t, "gateway-3", config.Config{})
	seen := make(chan []string, 1)
	third.AINPAgent(t, "scribe", &gatewaytest.AINPFake{Seen: func(body []byte) { seen <- gatewaytest.TokensIn(body) }}, directory.Endpoint{})
	through(t, second, "scribe", third, directory.Endpoint{Binding: "a2a-v1", URL: "/agents/scribe/a2a"})
	through(t, first, "scribe", second, directory.Endpoint{Binding: "mcp-v1", URL: "/agents/scribe/mcp"})

	n := first.Number()
	body := gatewaytest.AddBody(n)
	source := first.Token(t, body)
	got := first.Send(t, gatewaytest.HTTPRequest{At: "/aepb/translate?from=a2a-v1&dest=scribe", Body: body, Tokens: []string{source}})
	if got.Status != http.StatusOK || !strings.Contains(string(got.Body), strconv.FormatInt(n+1, 10)) {
		t.Fatalf("got %d %s", got.Status, gatewaytest.Short(got.Body))
	}
	chain := <-seen
	if len(chain) != 4 || chain[3] != source && !slices.Contains(chain, source) {
		t.Fatalf("%d tokens arrived, want those of three gateways and the source's", len(chain))
	}
	by := map[ect.ID]ect.Claims{}
	at := ect.ID("")
	for i, compact := range chain {
		v, err := first.Judge.Verify(t.Context(), compact, ect.Check{Purpose: ect.Parent})
		gatewaytest.Must(t, err)
		by[v.ID()] = v.Claims()
		if i == 0 {
			at = v.ID()
		}
	}
	for _, gateway := range []*gatewaytest.Fixture{third, second, first} {
		claims := by[at]
		if claims.Issuer != gateway.Dev.Gateway.ID || claims.Act != ect.ActTranslate || len(claims.Parents) != 1 {
			t.Fatalf("%s is by %s, want %s, with one parent", at, claims.Issuer, gateway.Dev.Gateway.ID)
		}
		at = claims.Parents[0]
	}
	if by[at].Issuer != first.Me.ID {
		t.Errorf("the chain ends with %s", by[at].Issuer)
	}
}

// TestHops_Limit: a gateway whose operator allows one translation takes none that
// another made before (AEPB, Multi-Hop Translation).
func TestHops_Limit(t *testing.T) {
	t.Parallel()
	one := 1
	first := gatewaytest.NewFixture(t, gatewaytest.Plan{})
	second := first.Beside(t, "gateway-2", config.Config{Policy: config.Policy{MaxHops: &one}})
	scribe := &gatewaytest.AINPFake{}
	second.AINPAgent(t, "scribe", scribe, directory.Endpoint{})
	through(t, first, "scribe", second, directory.Endpoint{Binding: "mcp-v1", URL: "/agents/scribe/mcp"})
	body := gatewaytest.AddBody(1)
	got := first.Send(t, gatewaytest.HTTPRequest{At: "/aepb/translate?from=a2a-v1&dest=scribe", Body: body, Tokens: []string{first.Token(t, body)}})
	refusedOnTheWay(t, got, "policy_violation")
	if scribe.Calls.Load() != 0 {
		t.Error("the agent was called")
	}
	second.Right(t, second.Send(t, second.Sealed(t, gatewaytest.HTTPRequest{At: "/aepb/translate?from=a2a-v1&dest=scribe", Body: gatewaytest.AddBody(2)})), `"sum":3`)
}

// TestHops_LoopIsRefused: a message that comes back to a gateway which has translated it
// goes no further.
func TestHops_LoopIsRefused(t *testing.T) {
	t.Parallel()
	first := gatewaytest.NewFixture(t, gatewaytest.Plan{})
	second := first.Beside(t, "gateway-2", config.Config{})
	through(t, second, "round", first, directory.Endpoint{Binding: "a2a-v1", URL: "/agents/calculator/a2a"})
	through(t, first, "round", second, directory.Endpoint{Binding: "mcp-v1", URL: "/agents/round/mcp"})
	body := gatewaytest.AddBody(1)
	got := first.Send(t, gatewaytest.HTTPRequest{At: "/aepb/translate?from=a2a-v1&dest=round", Body: body, Tokens: []string{first.Token(t, body)}})
	refusedOnTheWay(t, got, "policy_violation")
	first.Works(t)
}

// refusedOnTheWay: the caller is told that a gateway further on refused, and why.
func refusedOnTheWay(t *testing.T, got gatewaytest.Reply, why string) {
	t.Helper()
	if strings.Contains(string(got.Body), `"sum"`) || !strings.Contains(string(got.Body), why) {
		t.Errorf("got %d without %s: %s", got.Status, why, gatewaytest.Short(got.Body))
	}
}
