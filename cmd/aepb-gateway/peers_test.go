package main

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
)

// knows tells a gateway of others, by their URLs.
func (b *bed) knows(t *testing.T, others ...*bed) {
	t.Helper()
	var list []directory.Peer
	for _, other := range others {
		list = append(list, directory.Peer{
			ID: other.dev.Gateway.ID, URL: other.at.Public + "/aepb/translate", Rules: policy.Rules{Open: true},
		})
	}
	must(t, b.directory.UsePeers(list))
}

// TestPeersByURL: three gateways that know each other by URL. An agent that only
// the third has is reached through all of them, and each leaves its own link of
// the chain (AEPB, Multi-Hop Translation; R1).
func TestPeersByURL(t *testing.T) {
	t.Parallel()
	first := newBed(t, plan{})
	second, third := first.beside(t, "gateway-2", config.Config{}), first.beside(t, "gateway-3", config.Config{})
	seen := make(chan []string, 1)
	third.ainpAgent(t, "scribe", &ainpFake{seen: func(body []byte) { seen <- tokensIn(body) }}, directory.Endpoint{})
	first.knows(t, second)
	second.knows(t, first, third)
	third.knows(t, second, first)

	n := first.number()
	body := addBody(n)
	source := first.token(t, body)
	got := first.send(t, letter{at: "/aepb/translate?from=a2a-v1&to=ainp-v1&dest=scribe", body: body, tokens: []string{source}})
	first.right(t, got, strconv.FormatInt(n+1, 10))
	chain := <-seen
	if len(chain) != 4 {
		t.Fatalf("%d tokens arrived, want those of three gateways and the source's", len(chain))
	}
	by := map[ect.ID]ect.Claims{}
	for _, compact := range chain {
		v, err := first.judge.Verify(t.Context(), compact, ect.Check{Purpose: ect.Parent})
		must(t, err)
		by[v.ID()] = v.Claims()
	}
	at, _, err := ect.ParseUnverified(chain[0])
	must(t, err)
	for _, gateway := range []*bed{third, second, first} {
		if at.Issuer != gateway.dev.Gateway.ID || at.Act != ect.ActTranslate || len(at.Parents) != 1 {
			t.Fatalf("%s is by %s, want %s, with one parent", at.ID, at.Issuer, gateway.dev.Gateway.ID)
		}
		at = by[at.Parents[0]]
	}
	if at.Issuer != first.me.ID {
		t.Errorf("the chain ends with %s", at.Issuer)
	}
	for _, leg := range first.proofs(t, reply{header: http.Header{ect.HeaderName: got.header.Values(ect.HeaderName)[:2]}}) {
		if unbound, declared := leg.Ext.Strings(ect.ExtUnboundEvidence); declared {
			t.Errorf("evidence of the chain is declared as unbound: %v", unbound)
		}
	}
	first.works(t)
}

// TestNobodyKnows: gateways that know each other, and none of them the agent.
func TestNobodyKnows(t *testing.T) {
	t.Parallel()
	first := newBed(t, plan{})
	second, third := first.beside(t, "gateway-2", config.Config{}), first.beside(t, "gateway-3", config.Config{})
	first.knows(t, second, third)
	second.knows(t, first, third)
	third.knows(t, first, second)
	body := addBody(1)
	for _, at := range []string{"/aepb/translate?from=a2a-v1&to=ainp-v1&dest=nobody", "/aepb/translate?from=a2a-v1&to=xyz-v1&dest=nobody"} {
		got := first.send(t, letter{at: at, body: body, tokens: []string{first.token(t, body)}})
		if got.status != http.StatusNotFound || !strings.Contains(string(got.body), "no_translation_path") {
			t.Errorf("%s: %d %s", at, got.status, short(got.body))
		}
		claims := first.proofs(t, got)
		if len(claims) != 1 || claims[0].Act != ect.ActTranslateError {
			t.Errorf("%s: it leaves %v", at, claims)
		}
	}
}

// TestBehindAPeer: an agent that its operator listed behind another gateway is an
// agent at our doors like any other.
func TestBehindAPeer(t *testing.T) {
	t.Parallel()
	first := newBed(t, plan{})
	second := first.beside(t, "gateway-2", config.Config{})
	second.ainpAgent(t, "scribe", &ainpFake{}, directory.Endpoint{})
	first.knows(t, second)
	first.listAs(t, "scribe", "", directory.Endpoint{Binding: "ainp-v1", Through: second.dev.Gateway.ID})
	n := first.number()
	sum := strconv.FormatInt(n+1, 10)
	first.right(t, first.send(t, letter{at: "/agents/scribe/a2a", body: addBody(n), header: map[string]string{"A2A-Version": "1.0"}}), sum)
	card := first.send(t, letter{method: http.MethodGet, at: "/agents/scribe/.well-known/agent-card.json", media: "-"})
	if card.status != http.StatusOK || !strings.Contains(string(card.body), `"add"`) {
		t.Errorf("the card: %d %s", card.status, short(card.body))
	}
	call := `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"add","arguments":{"a":2,"b":3},` + modernMeta + `}}`
	first.right(t, first.send(t, letter{at: "/agents/scribe/mcp", body: call, header: mirror("tools/call", "add")}), `"sum":5`)
}

// TestBeyondItsDocument: an agent whose capability document names a protocol that
// is not spoken here goes on through the peer that speaks it and knows the agent
// by its id; streams pass as answers do.
func TestBeyondItsDocument(t *testing.T) {
	t.Parallel()
	first := newBed(t, plan{noAINP: true})
	deaf, second := first.beside(t, "gateway-0", config.Config{}), first.beside(t, "gateway-2", config.Config{})
	second.ainpAgent(t, "scribe", &ainpFake{}, directory.Endpoint{})
	first.knows(t, deaf, second)
	svid := first.svid(t, "/scribe")
	document := first.library(t, svid, page(`{"aepb_version":"1.0","agent_id":"`+string(svid.ID)+`","protocols":[`+
		`{"id":"xyz-v1","version":"2","endpoint":"x:y","priority":1},{"id":"ainp-v1","version":"1","endpoint":"https://scribe.example/ainp"}],`+
		`"ect_assurance_level":"L2","lifecycle":{"status":"active","version":"1.0.0","deprecated_at":null,"sunset_at":null,"successor":null}}`))
	first.describe(t, "scribe", document.url, svid.ID)
	got, sum := first.add(t, "scribe")
	first.right(t, got, sum)
	n := first.number()
	streamed := first.send(t, first.sealed(t, letter{
		at: "/aepb/translate?from=a2a-v1&dest=scribe", body: strings.Replace(addBody(n), "SendMessage", "SendStreamingMessage", 1),
	}))
	if streamed.status != http.StatusOK || !strings.Contains(string(streamed.body), strconv.FormatInt(n+1, 10)) {
		t.Errorf("streamed: %d %s", streamed.status, short(streamed.body))
	}
	got = first.send(t, first.sealed(t, letter{at: "/aepb/translate?from=a2a-v1&to=uacp-v1&dest=scribe", body: addBody(n)}))
	if got.status != http.StatusNotFound {
		t.Errorf("a protocol that the agent does not speak: %d %s", got.status, short(got.body))
	}
}

// TestWhoIsSentOn: a peer's callers are who may be sent on through it, and the
// peer has callers of its own; nobody learns what they may not call.
func TestWhoIsSentOn(t *testing.T) {
	t.Parallel()
	first := newBed(t, plan{})
	second := first.beside(t, "gateway-2", config.Config{})
	scribe := &ainpFake{}
	second.ainpAgent(t, "scribe", scribe, directory.Endpoint{})
	gateway := config.Peer{Gateway: second.at.Public + "/aepb/translate", Callers: []string{"spiffe://" + devTrustDomain + "/somebody-else"}}
	c := first.settings.config
	c.Peers = map[string]config.Peer{string(second.dev.Gateway.ID): gateway}
	must(t, first.reload(t.Context(), c))
	ask := func() reply {
		return first.send(t, first.sealed(t, letter{at: "/aepb/translate?from=a2a-v1&to=ainp-v1&dest=scribe", body: addBody(1)}))
	}
	if got := ask(); got.status != http.StatusNotFound || problemCode(t, got) != "no_translation_path" {
		t.Errorf("not on the list: %d %s", got.status, short(got.body))
	}
	gateway.Callers = []string{"spiffe://" + devTrustDomain + "/*"}
	c.Peers = map[string]config.Peer{string(second.dev.Gateway.ID): gateway}
	must(t, first.reload(t.Context(), c))
	first.right(t, ask(), `"sum":2`)
	second.directory.Remove("scribe")
	second.ainpAgent(t, "hidden", scribe, directory.Endpoint{})
	agent, _ := second.directory.Find("hidden")
	agent.Rules = policy.Rules{Callers: []string{"spiffe://" + devTrustDomain + "/somebody-else"}}
	must(t, second.directory.Put(agent))
	asked := scribe.calls.Load()
	got := first.send(t, first.sealed(t, letter{at: "/aepb/translate?from=a2a-v1&to=ainp-v1&dest=hidden", body: addBody(1)}))
	if got.status != http.StatusNotFound || scribe.calls.Load() != asked {
		t.Errorf("the peer's own callers: %d %s", got.status, short(got.body))
	}
	c.Peers = nil
	must(t, first.reload(t.Context(), c))
	if got := ask(); got.status != http.StatusNotFound {
		t.Errorf("without peers: %d %s", got.status, short(got.body))
	}
}

// TestLoopOfPeers: gateways that send an agent's messages to each other are found
// out by the first that sees its own ECT, although each said that it has a way.
func TestLoopOfPeers(t *testing.T) {
	t.Parallel()
	first := newBed(t, plan{})
	second := first.beside(t, "gateway-2", config.Config{})
	scribe := &ainpFake{}
	second.ainpAgent(t, "round", scribe, directory.Endpoint{})
	first.knows(t, second)
	second.knows(t, first)
	first.listAs(t, "round", "", directory.Endpoint{Binding: "ainp-v1", Through: second.dev.Gateway.ID})
	ask := func() reply {
		return first.send(t, first.sealed(t, letter{at: "/aepb/translate?from=a2a-v1&dest=round", body: addBody(1)}))
	}
	first.right(t, ask(), `"sum":2`)
	second.listAs(t, "round", "", directory.Endpoint{Binding: "ainp-v1", Through: first.dev.Gateway.ID})
	if got := ask(); got.status != http.StatusNotFound || !strings.Contains(string(got.body), "refused by constraint loop") || scribe.calls.Load() != 1 {
		t.Errorf("%d %s", got.status, short(got.body))
	}
}

// TestPeerRefuses: what a gateway further on says reaches the caller, and its
// evidence the workflow.
func TestPeerRefuses(t *testing.T) {
	t.Parallel()
	one := 1
	first := newBed(t, plan{})
	second := first.beside(t, "gateway-2", config.Config{Policy: config.Policy{MaxHops: &one}})
	scribe := &ainpFake{}
	second.ainpAgent(t, "scribe", scribe, directory.Endpoint{})
	first.knows(t, second)
	body := addBody(1)
	recipe := first.recipe(body)
	got := first.send(t, letter{
		at: "/aepb/translate?from=a2a-v1&to=ainp-v1&dest=scribe", body: body, tokens: []string{ecttest.Mint(t, first.me, recipe)},
	})
	if got.status != http.StatusNotFound || !strings.Contains(string(got.body), "aepb.max_translation_hops") || !strings.Contains(string(got.body), `"next_gateway":"policy_violation"`) {
		t.Errorf("%d %s", got.status, short(got.body))
	}
	records, err := ecttest.All(t.Context(), first.gateway.Evidence, recipe.Claims.Workflow)
	must(t, err)
	refusals := map[ect.Identity]int{}
	for _, r := range records {
		if claims, _, err := ect.ParseUnverified(r.Compact); err == nil && claims.Act == ect.ActTranslateError {
			refusals[claims.Issuer]++
		}
	}
	if refusals[first.dev.Gateway.ID] != 1 || refusals[second.dev.Gateway.ID] != 1 {
		t.Errorf("error ECTs: %v", refusals)
	}
	if scribe.calls.Load() != 0 {
		t.Error("the agent was called")
	}
}

// TestNegotiationIsOnRecord: what decided about the protocol is in the graph of
// the workflow, once, behind its first ECT; where nothing was to be decided there
// is nothing (AEPB, Protocol Downgrade Attacks).
func TestNegotiationIsOnRecord(t *testing.T) {
	t.Parallel()
	first := newBed(t, plan{})
	second := first.beside(t, "gateway-2", config.Config{})
	second.ainpAgent(t, "scribe", &ainpFake{}, directory.Endpoint{})
	first.knows(t, second)
	calculator, _ := first.directory.Find("calculator")
	calculator.Name = "both"
	calculator.Endpoints = append(slices.Clone(calculator.Endpoints), directory.Endpoint{Binding: "uacp-v1", URL: "uacps://127.0.0.1:1", Priority: 200})
	must(t, first.directory.Put(calculator))
	for query, want := range map[string]struct {
		chosen, reason string
		candidates     int
	}{
		"dest=scribe&to=ainp-v1": {"ainp-v1", "served by " + string(second.dev.Gateway.ID) + " as a2a-v1 to ainp-v1", 1},
		"dest=both":              {"mcp-v1", "the lowest priority of what both the agent and this gateway speak", 2},
		"dest=both&to=mcp-v1":    {},
		"dest=calculator":        {},
	} {
		recipe := first.recipe("")
		wid, root := recipe.Claims.Workflow, ect.ID("")
		for range 2 {
			body := addBody(first.number())
			recipe.Claims.OutputHash = ect.Hash([]byte(body))
			source := ecttest.Mint(t, first.me, recipe)
			claims, _, err := ect.ParseUnverified(source)
			must(t, err)
			if root == "" {
				root = claims.ID
			}
			first.right(t, first.send(t, letter{at: "/aepb/translate?from=a2a-v1&" + query, body: body, tokens: []string{source}}), `"sum":`)
		}
		records, err := ecttest.All(t.Context(), first.gateway.Evidence, wid)
		must(t, err)
		var found []ect.Claims
		for _, r := range records {
			v, err := first.judge.Verify(t.Context(), r.Compact, ect.Check{Purpose: ect.Parent})
			must(t, err)
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
		if len(found) != 1 || found[0].Issuer != first.dev.Gateway.ID {
			t.Fatalf("%s: %d tokens", query, len(found))
		}
		chosen, _ := found[0].Ext.String(ect.ExtDestProtocol)
		reason, _ := found[0].Ext.String(ect.ExtReason)
		var candidates []string
		must(t, json.Unmarshal(found[0].Ext[ect.ExtCandidates], &candidates))
		if chosen != want.chosen || reason != want.reason || len(candidates) != want.candidates || found[0].Workflow != wid || !slices.Contains(found[0].Parents, root) {
			t.Errorf("%s: %s of %q because %q, behind %v", query, chosen, candidates, reason, found[0].Parents)
		}
	}
}
