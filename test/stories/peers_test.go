package stories

import (
	"encoding/json"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/ect/ecttest"
	"github.com/aepb/aepb-gateway/gateway/config"
	"github.com/aepb/aepb-gateway/gateway/directory"
	"github.com/aepb/aepb-gateway/policy"
	gatewaytest "github.com/aepb/aepb-gateway/test/harness/gateway"
)

// TestPeers_ThreeGatewaysByURL: three gateways that know each other by URL. An agent that only
// the third has is reached through all of them, and each leaves its own link of
// the chain (AEPB, Multi-Hop Translation; R1).
func TestPeers_ThreeGatewaysByURL(t *testing.T) {
	t.Parallel()
	first := gatewaytest.NewFixture(t, gatewaytest.Plan{})
	second, third := first.Beside(t, "gateway-2", config.Config{}), first.Beside(t, "gateway-3", config.Config{})
	seen := make(chan []string, 1)
	third.AINPAgent(t, "scribe", &gatewaytest.AINPFake{Seen: func(body []byte) { seen <- gatewaytest.TokensIn(body) }}, directory.Endpoint{})
	first.Knows(t, second)
	second.Knows(t, first, third)
	third.Knows(t, second, first)

	n := first.Number()
	body := gatewaytest.AddBody(n)
	source := first.Token(t, body)
	got := first.Send(t, gatewaytest.HTTPRequest{At: "/aepb/translate?from=a2a-v1&to=ainp-v1&dest=scribe", Body: body, Tokens: []string{source}})
	first.Right(t, got, strconv.FormatInt(n+1, 10))
	chain := <-seen
	if len(chain) != 4 {
		t.Fatalf("%d tokens arrived, want those of three gateways and the source's", len(chain))
	}
	by := map[ect.ID]ect.Claims{}
	for _, compact := range chain {
		v, err := first.Judge.Verify(t.Context(), compact, ect.Check{Purpose: ect.Parent})
		gatewaytest.Must(t, err)
		by[v.ID()] = v.Claims()
	}
	at, _, err := ect.ParseUnverified(chain[0])
	gatewaytest.Must(t, err)
	for _, gateway := range []*gatewaytest.Fixture{third, second, first} {
		if at.Issuer != gateway.Dev.Gateway.ID || at.Act != ect.ActTranslate || len(at.Parents) != 1 {
			t.Fatalf("%s is by %s, want %s, with one parent", at.ID, at.Issuer, gateway.Dev.Gateway.ID)
		}
		at = by[at.Parents[0]]
	}
	if at.Issuer != first.Me.ID {
		t.Errorf("the chain ends with %s", at.Issuer)
	}
	for _, direction := range first.Proofs(t, gatewaytest.Reply{Header: http.Header{ect.HeaderName: got.Header.Values(ect.HeaderName)[:2]}}) {
		if unbound, declared := direction.Ext.Strings(ect.ExtUnboundEvidence); declared {
			t.Errorf("evidence of the chain is declared as unbound: %v", unbound)
		}
	}
	first.Works(t)
}

// TestPeers_UnknownAgent: gateways that know each other, and none of them the agent.
func TestPeers_UnknownAgent(t *testing.T) {
	t.Parallel()
	first := gatewaytest.NewFixture(t, gatewaytest.Plan{})
	second, third := first.Beside(t, "gateway-2", config.Config{}), first.Beside(t, "gateway-3", config.Config{})
	first.Knows(t, second, third)
	second.Knows(t, first, third)
	third.Knows(t, first, second)
	body := gatewaytest.AddBody(1)
	for _, at := range []string{"/aepb/translate?from=a2a-v1&to=ainp-v1&dest=nobody", "/aepb/translate?from=a2a-v1&to=xyz-v1&dest=nobody"} {
		got := first.Send(t, gatewaytest.HTTPRequest{At: at, Body: body, Tokens: []string{first.Token(t, body)}})
		if got.Status != http.StatusNotFound || !strings.Contains(string(got.Body), "no_translation_path") {
			t.Errorf("%s: %d %s", at, got.Status, gatewaytest.Short(got.Body))
		}
		claims := first.Proofs(t, got)
		if len(claims) != 1 || claims[0].Act != ect.ActTranslateError {
			t.Errorf("%s: it leaves %v", at, claims)
		}
	}
}

// TestPeers_AgentListedBehindAPeer: an agent that its operator listed behind another gateway is an
// agent at our doors like any other.
func TestPeers_AgentListedBehindAPeer(t *testing.T) {
	t.Parallel()
	first := gatewaytest.NewFixture(t, gatewaytest.Plan{})
	second := first.Beside(t, "gateway-2", config.Config{})
	second.AINPAgent(t, "scribe", &gatewaytest.AINPFake{}, directory.Endpoint{})
	first.Knows(t, second)
	first.ListAs(t, "scribe", "", directory.Endpoint{Binding: "ainp-v1", Through: second.Dev.Gateway.ID})
	n := first.Number()
	sum := strconv.FormatInt(n+1, 10)
	first.Right(t, first.Send(t, gatewaytest.HTTPRequest{At: "/agents/scribe/a2a", Body: gatewaytest.AddBody(n), Header: map[string]string{"A2A-Version": "1.0"}}), sum)
	card := first.Send(t, gatewaytest.HTTPRequest{Method: http.MethodGet, At: "/agents/scribe/.well-known/agent-card.json", Media: "-"})
	if card.Status != http.StatusOK || !strings.Contains(string(card.Body), `"add"`) {
		t.Errorf("the card: %d %s", card.Status, gatewaytest.Short(card.Body))
	}
	call := `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"add","arguments":{"a":2,"b":3},` + gatewaytest.ModernMeta + `}}`
	first.Right(t, first.Send(t, gatewaytest.HTTPRequest{At: "/agents/scribe/mcp", Body: call, Header: gatewaytest.Mirror("tools/call", "add")}), `"sum":5`)
}

// TestPeers_ProtocolOfTheCapabilityDocument: an agent whose capability document names a protocol that
// is not spoken here goes on through the peer that speaks it and knows the agent
// by its id; streams pass as answers do.
func TestPeers_ProtocolOfTheCapabilityDocument(t *testing.T) {
	t.Parallel()
	first := gatewaytest.NewFixture(t, gatewaytest.Plan{NoAINP: true})
	deaf, second := first.Beside(t, "gateway-0", config.Config{}), first.Beside(t, "gateway-2", config.Config{})
	second.AINPAgent(t, "scribe", &gatewaytest.AINPFake{}, directory.Endpoint{})
	first.Knows(t, deaf, second)
	svid := first.SVID(t, "/scribe")
	document := first.Library(t, svid, gatewaytest.Page(`{"aepb_version":"1.0","agent_id":"`+string(svid.ID)+`","protocols":[`+
		`{"id":"xyz-v1","version":"2","endpoint":"x:y","priority":1},{"id":"ainp-v1","version":"1","endpoint":"https://scribe.example/ainp"}],`+
		`"ect_assurance_level":"L2","lifecycle":{"status":"active","version":"1.0.0","deprecated_at":null,"sunset_at":null,"successor":null}}`))
	first.Describe(t, "scribe", document.URL, svid.ID)
	got, sum := first.Add(t, "scribe")
	first.Right(t, got, sum)
	n := first.Number()
	streamed := first.Send(t, first.Sealed(t, gatewaytest.HTTPRequest{
		At: "/aepb/translate?from=a2a-v1&dest=scribe", Body: strings.Replace(gatewaytest.AddBody(n), "SendMessage", "SendStreamingMessage", 1),
	}))
	if streamed.Status != http.StatusOK || !strings.Contains(string(streamed.Body), strconv.FormatInt(n+1, 10)) {
		t.Errorf("streamed: %d %s", streamed.Status, gatewaytest.Short(streamed.Body))
	}
	got = first.Send(t, first.Sealed(t, gatewaytest.HTTPRequest{At: "/aepb/translate?from=a2a-v1&to=uacp-v1&dest=scribe", Body: gatewaytest.AddBody(n)}))
	if got.Status != http.StatusNotFound {
		t.Errorf("a protocol that the agent does not speak: %d %s", got.Status, gatewaytest.Short(got.Body))
	}
}

// TestPeers_ForwardedCallers: a peer's callers are who may be sent on through it, and the
// peer has callers of its own; nobody learns what they may not call.
func TestPeers_ForwardedCallers(t *testing.T) {
	t.Parallel()
	first := gatewaytest.NewFixture(t, gatewaytest.Plan{})
	second := first.Beside(t, "gateway-2", config.Config{})
	scribe := &gatewaytest.AINPFake{}
	second.AINPAgent(t, "scribe", scribe, directory.Endpoint{})
	gateway := config.Peer{Gateway: second.At.Public + "/aepb/translate", Callers: []string{"spiffe://" + gatewaytest.TrustDomain + "/somebody-else"}}
	c := first.Settings()
	c.Peers = map[string]config.Peer{string(second.Dev.Gateway.ID): gateway}
	gatewaytest.Must(t, first.Reload(t.Context(), c))
	ask := func() gatewaytest.Reply {
		return first.Send(t, first.Sealed(t, gatewaytest.HTTPRequest{At: "/aepb/translate?from=a2a-v1&to=ainp-v1&dest=scribe", Body: gatewaytest.AddBody(1)}))
	}
	if got := ask(); got.Status != http.StatusNotFound || gatewaytest.ProblemCode(t, got) != "no_translation_path" {
		t.Errorf("not on the list: %d %s", got.Status, gatewaytest.Short(got.Body))
	}
	gateway.Callers = []string{"spiffe://" + gatewaytest.TrustDomain + "/*"}
	c.Peers = map[string]config.Peer{string(second.Dev.Gateway.ID): gateway}
	gatewaytest.Must(t, first.Reload(t.Context(), c))
	first.Right(t, ask(), `"sum":2`)
	second.Directory().Remove("scribe")
	second.AINPAgent(t, "hidden", scribe, directory.Endpoint{})
	agent, _ := second.Directory().Find("hidden")
	agent.Rules = policy.Rules{Callers: []string{"spiffe://" + gatewaytest.TrustDomain + "/somebody-else"}}
	gatewaytest.Must(t, second.Directory().Put(agent))
	requests := scribe.Calls.Load()
	got := first.Send(t, first.Sealed(t, gatewaytest.HTTPRequest{At: "/aepb/translate?from=a2a-v1&to=ainp-v1&dest=hidden", Body: gatewaytest.AddBody(1)}))
	if got.Status != http.StatusNotFound || scribe.Calls.Load() != requests {
		t.Errorf("the peer's own callers: %d %s", got.Status, gatewaytest.Short(got.Body))
	}
	c.Peers = nil
	gatewaytest.Must(t, first.Reload(t.Context(), c))
	if got := ask(); got.Status != http.StatusNotFound {
		t.Errorf("without peers: %d %s", got.Status, gatewaytest.Short(got.Body))
	}
}

// TestPeers_LoopIsRefused: gateways that send an agent's messages to each other are found
// out by the first that sees its own ECT, although each said that it has a way.
func TestPeers_LoopIsRefused(t *testing.T) {
	t.Parallel()
	first := gatewaytest.NewFixture(t, gatewaytest.Plan{})
	second := first.Beside(t, "gateway-2", config.Config{})
	scribe := &gatewaytest.AINPFake{}
	second.AINPAgent(t, "round", scribe, directory.Endpoint{})
	first.Knows(t, second)
	second.Knows(t, first)
	first.ListAs(t, "round", "", directory.Endpoint{Binding: "ainp-v1", Through: second.Dev.Gateway.ID})
	ask := func() gatewaytest.Reply {
		return first.Send(t, first.Sealed(t, gatewaytest.HTTPRequest{At: "/aepb/translate?from=a2a-v1&dest=round", Body: gatewaytest.AddBody(1)}))
	}
	first.Right(t, ask(), `"sum":2`)
	second.ListAs(t, "round", "", directory.Endpoint{Binding: "ainp-v1", Through: first.Dev.Gateway.ID})
	if got := ask(); got.Status != http.StatusNotFound || !strings.Contains(string(got.Body), "refused by constraint loop") || scribe.Calls.Load() != 1 {
		t.Errorf("%d %s", got.Status, gatewaytest.Short(got.Body))
	}
}

// TestPeers_RefusalReachesTheCaller: what a gateway further on says reaches the caller, and its
// evidence the workflow.
func TestPeers_RefusalReachesTheCaller(t *testing.T) {
	t.Parallel()
	one := 1
	first := gatewaytest.NewFixture(t, gatewaytest.Plan{})
	second := first.Beside(t, "gateway-2", config.Config{Policy: config.Policy{MaxHops: &one}})
	scribe := &gatewaytest.AINPFake{}
	second.AINPAgent(t, "scribe", scribe, directory.Endpoint{})
	first.Knows(t, second)
	body := gatewaytest.AddBody(1)
	recipe := first.Recipe(body)
	got := first.Send(t, gatewaytest.HTTPRequest{
		At: "/aepb/translate?from=a2a-v1&to=ainp-v1&dest=scribe", Body: body, Tokens: []string{ecttest.Mint(t, first.Me, recipe)},
	})
	if got.Status != http.StatusNotFound || !strings.Contains(string(got.Body), "aepb.max_translation_hops") || !strings.Contains(string(got.Body), `"next_gateway":"policy_violation"`) {
		t.Errorf("%d %s", got.Status, gatewaytest.Short(got.Body))
	}
	records, err := ecttest.All(t.Context(), first.Gateway().Evidence, recipe.Claims.Workflow)
	gatewaytest.Must(t, err)
	refusals := map[ect.Identity]int{}
	for _, r := range records {
		if claims, _, err := ect.ParseUnverified(r.Compact); err == nil && claims.Act == ect.ActTranslateError {
			refusals[claims.Issuer]++
		}
	}
	if refusals[first.Dev.Gateway.ID] != 1 || refusals[second.Dev.Gateway.ID] != 1 {
		t.Errorf("error ECTs: %v", refusals)
	}
	if scribe.Calls.Load() != 0 {
		t.Error("the agent was called")
	}
}

// TestNegotiation_IsOnRecordOnce: what decided about the protocol is in the graph of
// the workflow, once, behind its first ECT; where nothing was to be decided there
// is nothing (AEPB, Protocol Downgrade Attacks).
func TestNegotiation_IsOnRecordOnce(t *testing.T) {
	t.Parallel()
	first := gatewaytest.NewFixture(t, gatewaytest.Plan{})
	second := first.Beside(t, "gateway-2", config.Config{})
	second.AINPAgent(t, "scribe", &gatewaytest.AINPFake{}, directory.Endpoint{})
	first.Knows(t, second)
	calculator, _ := first.Directory().Find("calculator")
	calculator.Name = "both"
	calculator.Endpoints = append(slices.Clone(calculator.Endpoints), directory.Endpoint{Binding: "uacp-v1", URL: "uacps://127.0.0.1:1", Priority: 200})
	gatewaytest.Must(t, first.Directory().Put(calculator))
	for query, want := range map[string]struct {
		chosen, reason string
		candidates     int
	}{
		"dest=scribe&to=ainp-v1": {"ainp-v1", "served by " + string(second.Dev.Gateway.ID) + " as a2a-v1 to ainp-v1", 1},
		"dest=both":              {"mcp-v1", "the lowest priority of what both the agent and this gateway speak", 2},
		"dest=both&to=mcp-v1":    {},
		"dest=calculator":        {},
	} {
		recipe := first.Recipe("")
		wid, root := recipe.Claims.Workflow, ect.ID("")
		for range 2 {
			body := gatewaytest.AddBody(first.Number())
			recipe.Claims.OutputHash = ect.Hash([]byte(body))
			source := ecttest.Mint(t, first.Me, recipe)
			claims, _, err := ect.ParseUnverified(source)
			gatewaytest.Must(t, err)
			if root == "" {
				root = claims.ID
			}
			first.Right(t, first.Send(t, gatewaytest.HTTPRequest{At: "/aepb/translate?from=a2a-v1&" + query, Body: body, Tokens: []string{source}}), `"sum":`)
		}
		records, err := ecttest.All(t.Context(), first.Gateway().Evidence, wid)
		gatewaytest.Must(t, err)
		var found []ect.Claims
		for _, r := range records {
			v, err := first.Judge.Verify(t.Context(), r.Compact, ect.Check{Purpose: ect.Parent})
			gatewaytest.Must(t, err)
			if v.Claims().Act == ect.ActNegotiate {
				found = append(found, v.Claims())
			}
		}
		if want.chosen == "" {
			if len(found) != 0 {
				t.Errorf("%s: nothing was negotiated, and there is %v", query, found)
			}
			continue
		}
		if len(found) != 1 || found[0].Issuer != first.Dev.Gateway.ID {
			t.Fatalf("%s: %d tokens", query, len(found))
		}
		chosen, _ := found[0].Ext.String(ect.ExtDestProtocol)
		reason, _ := found[0].Ext.String(ect.ExtReason)
		var candidates []string
		gatewaytest.Must(t, json.Unmarshal(found[0].Ext[ect.ExtCandidates], &candidates))
		if chosen != want.chosen || reason != want.reason || len(candidates) != want.candidates || found[0].Workflow != wid || !slices.Contains(found[0].Parents, root) {
			t.Errorf("%s: %s of %q because %q, behind %v", query, chosen, candidates, reason, found[0].Parents)
		}
	}
}
