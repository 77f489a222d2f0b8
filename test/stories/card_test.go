package stories

import (
	"bytes"
	"encoding/json"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/aepb/aepb-gateway/cmd/aepb-gateway/demo/peers"
	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/policy"
	gatewaytest "github.com/aepb/aepb-gateway/test/harness/gateway"
	"github.com/aepb/aepb-gateway/test/harness/grpctest"
)

// cardAgent is an A2A agent with a card that a test writes. It answers every
// message with a message.
type cardAgent struct {
	members  string // of its card, before the list of skills
	skills   string // the list, as JSON
	extended string // the list of its extended card; empty: it has none

	mu       sync.Mutex
	received []string
}

func (a *cardAgent) card(host, skills string) string {
	return `{"name":"Plain","description":"Takes any message.","version":"1","defaultInputModes":["text/plain"],"defaultOutputModes":["text/plain"],` +
		`"supportedInterfaces":[{"url":"https://` + host + `/","protocolBinding":"JSONRPC","protocolVersion":"1.0"}],` + a.members + `"skills":` + skills + `}`
}

func (a *cardAgent) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	if r.Method == http.MethodGet {
		_, _ = io.WriteString(w, a.card(r.Host, a.skills))
		return
	}
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return
	}
	a.mu.Lock()
	a.received = append(a.received, string(body))
	a.mu.Unlock()
	var request struct {
		ID     json.RawMessage
		Method string
	}
	if json.Unmarshal(body, &request) != nil {
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	answer := `"result":{"message":{"messageId":"r","role":"ROLE_AGENT","parts":[{"text":"done"}]}}`
	if request.Method == "GetExtendedAgentCard" || request.Method == "agent/getAuthenticatedExtendedCard" {
		answer = `"error":{"code":-32007,"message":"no extended card"}`
		if a.extended != "" {
			answer = `"result":` + a.card(r.Host, a.extended)
		}
	}
	_, _ = io.WriteString(w, `{"jsonrpc":"2.0","id":`+string(request.ID)+`,`+answer+`}`)
}

func (a *cardAgent) seen() []string {
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.Clone(a.received)
}

// carded starts such an agent and lists it.
func carded(t *testing.T, b *gatewaytest.Fixture, name string, a *cardAgent) *httptest.Server {
	t.Helper()
	if a.members == "" {
		a.members = `"capabilities":{},`
	}
	server := httptest.NewUnstartedServer(a)
	server.TLS = gatewaytest.Serving(b.SVID(t, "/"+name))
	server.StartTLS()
	t.Cleanup(server.Close)
	b.List(t, name, "a2a-v1", server.URL, gatewaytest.Host{})
	return server
}

// TestCard_WithoutSkills: A2A demands a list of skills on a card, and no entry in
// it (A2A 1.0, 4.4.1). Official clients of A2A send messages to such an agent; for
// those of MCP it is one tool that takes a message.
func TestCard_WithoutSkills(t *testing.T) {
	t.Parallel()
	b := gatewaytest.NewFixture(t, gatewaytest.Plan{})
	agent := &cardAgent{skills: "[]"}
	carded(t, b, "plain", agent)
	if card := b.CardOf(t, "plain", nil); string(card["skills"]) != "[]" {
		t.Errorf("the card has the skills %s", card["skills"])
	}
	reply, err := peers.A2ACall(t.Context(), b.Client, b.At.Public+"/agents/plain", grpctest.SkillMessage("any", map[string]any{"a": 1}))
	gatewaytest.Must(t, err)
	if reply.Text() != "done" || len(reply.Card.Skills) != 0 {
		t.Errorf("the Go client of A2A got %q from an agent with %d skills", reply.Text(), len(reply.Card.Skills))
	}
	var answer struct{ Results []struct{ Text string } }
	official(t, filepath.Join(b.Dir, "ca.pem"), "a2a-client.mjs", officialJob{
		Base: b.At.Public + "/agents/plain/", Messages: [][]officialPart{{{"hello"}}},
	}, &answer)
	if len(answer.Results) != 1 || answer.Results[0].Text != "done" {
		t.Errorf("the JavaScript client of A2A got %+v", answer)
	}
	before := len(agent.seen())
	for _, legacy := range []bool{false, true} {
		got, err := peers.MCPCall(t.Context(), b.Client, b.At.Public+"/agents/plain/mcp", legacy, "message", json.RawMessage(`{"message":"hello"}`))
		gatewaytest.Must(t, err)
		if len(got.Tools) != 1 || got.Tools[0].Name != "message" || got.Text() != "done" {
			t.Errorf("MCP %s: %q of %d tools", got.Version, got.Text(), len(got.Tools))
		}
	}
	for _, body := range agent.seen()[before:] {
		if strings.Contains(body, `"skill"`) {
			t.Errorf("the agent is told of a skill that it does not have: %s", body)
		}
	}
}

// asksForCard are the ways in which A2A asks for an extended card: 1.0 in JSON-RPC
// and HTTP (A2A 1.0, 3.1.11), 0.3 in both.
func asksForCard(agent string) map[string]gatewaytest.HTTPRequest {
	at := "/agents/" + agent + "/a2a"
	return map[string]gatewaytest.HTTPRequest{
		"1.0 JSON-RPC": {At: at, Body: `{"jsonrpc":"2.0","id":1,"method":"GetExtendedAgentCard"}`, Header: map[string]string{"A2A-Version": "1.0"}},
		"1.0 HTTP":     {At: at + "/extendedAgentCard", Method: http.MethodGet, Media: "-", Header: map[string]string{"A2A-Version": "1.0"}},
		"0.3 JSON-RPC": {At: at, Body: `{"jsonrpc":"2.0","id":1,"method":"agent/getAuthenticatedExtendedCard"}`},
		"0.3 HTTP":     {At: at + "/v1/card", Method: http.MethodGet, Media: "-"},
	}
}

// TestExtendedCard_Relayed: an agent that says that it has an extended card is asked
// for it, and its caller gets it at our URLs, with evidence of both legs (A2A 1.0, 3.1.11).
func TestExtendedCard_Relayed(t *testing.T) {
	t.Parallel()
	b := gatewaytest.NewFixture(t, gatewaytest.Plan{})
	skill := func(id string) string {
		return `{"id":"` + id + `","name":"` + id + `","description":"d","tags":["t"]}`
	}
	vault := &cardAgent{
		members: `"capabilities":{"extendedAgentCard":true},`, skills: "[" + skill("open") + "]", extended: "[" + skill("open") + "," + skill("secret") + "]",
	}
	server := carded(t, b, "vault", vault)
	if card := b.CardOf(t, "vault", map[string]string{"A2A-Version": "1.0"}); !strings.Contains(string(card["capabilities"]), `"extendedAgentCard":true`) {
		t.Errorf("the card of 1.0 has the capabilities %s", card["capabilities"])
	}
	if card := b.CardOf(t, "vault", map[string]string{"A2A-Version": "0.3"}); string(card["supportsAuthenticatedExtendedCard"]) != "true" {
		t.Errorf("the card of 0.3 does not say that there is an extended one: %v", slices.Sorted(maps.Keys(card)))
	}
	for name, l := range asksForCard("vault") {
		got := b.Send(t, l)
		text := string(got.Body)
		if got.Status != http.StatusOK || !strings.Contains(text, `"id":"secret"`) || !strings.Contains(text, b.At.Public+"/agents/vault/a2a") || strings.Contains(text, server.URL) {
			t.Errorf("%s: %d %s", name, got.Status, text)
		}
		if old := strings.HasPrefix(name, "0.3"); old == strings.Contains(text, "supportedInterfaces") {
			t.Errorf("%s: a card of another version: %s", name, text)
		}
		if len(b.Proofs(t, got)) != 2 || len(got.Header.Values(ect.HeaderName)) != 2 {
			t.Errorf("%s: %d ECTs, want one of each leg", name, len(got.Header.Values(ect.HeaderName)))
		}
		l.Via = b.Anonymous
		if got := b.Send(t, l); got.Status != http.StatusUnauthorized || strings.Contains(string(got.Body), "secret") {
			t.Errorf("%s: a caller without credentials got %d %s", name, got.Status, got.Body)
		}
	}
	content := grpctest.Request(t, "GetExtendedAgentCard", `{"tenant":"vault"}`)
	received := b.Remote(t, b.ClientTLS(t, b.Dev.Client)).Call(t.Context(), "GetExtendedAgentCard", [][]byte{content})
	answer := string(bytes.Join(received.Messages, nil))
	if !strings.Contains(answer, "secret") || !strings.Contains(answer, b.RPC) || strings.Contains(answer, server.URL) {
		t.Errorf("over gRPC: %q %s", answer, received.Code)
	}
	if seen := vault.seen(); !strings.Contains(seen[len(seen)-1], `"params":{`) {
		t.Errorf("over gRPC the agent was asked %s, want params: the A2A SDK for Go refuses it without", seen[len(seen)-1])
	}
}

// TestAttack_ExtendedCardOfWithheldSkills: a caller that may call one skill asks for the extended card of the agent, which
// lists others.
func TestAttack_ExtendedCardOfWithheldSkills(t *testing.T) {
	t.Parallel()
	b := gatewaytest.NewFixture(t, gatewaytest.Plan{})
	skill := func(id string) string {
		return `{"id":"` + id + `","name":"` + id + `","description":"d","tags":["t"]}`
	}
	vault := &cardAgent{
		members: `"capabilities":{"extendedAgentCard":true},`, skills: "[" + skill("open") + "," + skill("mine") + "]", extended: "[" + skill("open") + "," + skill("mine") + "," + skill("secret") + "]",
	}
	carded(t, b, "vault", vault)
	listed, _ := b.Directory().Find("vault")
	listed.Rules = policy.Rules{Callers: []string{string(b.Me.ID) + "#invoke:mine", string(b.Me.ID) + "#describe", string(b.Me.ID) + "#native"}}
	gatewaytest.Must(t, b.Directory().Put(listed))
	for _, query := range []string{"from=a2a-v1&to=a2a-v1&dest=vault", "from=a2a-v1&dest=vault"} { // where no card of ours takes its place
		for _, method := range []string{"GetExtendedAgentCard", "agent/getAuthenticatedExtendedCard"} {
			got := b.Send(t, b.Sealed(t, gatewaytest.HTTPRequest{At: "/aepb/translate?" + query, Body: `{"jsonrpc":"2.0","id":1,"method":"` + method + `"}`}))
			if text := string(got.Body); strings.Contains(text, "secret") || strings.Contains(text, `"open"`) || got.Status == http.StatusUnauthorized {
				t.Errorf("%s %s: %d %s", query, method, got.Status, text)
			}
		}
	}
	for name, l := range asksForCard("vault") {
		got := b.Send(t, l)
		if text := string(got.Body); got.Status != http.StatusOK || !strings.Contains(text, "mine") || strings.Contains(text, "secret") || strings.Contains(text, `"open"`) {
			t.Errorf("%s: %d %s", name, got.Status, text)
		}
	}
}

// TestAttack_ExtendedCardOfAnAgentForOthers: a caller of the trust domain that an
// agent's rules do not permit asks for its extended card, which would be fetched with
// our certificate. It is refused, and the agent is not asked.
func TestAttack_ExtendedCardOfAnAgentForOthers(t *testing.T) {
	t.Parallel()
	b := gatewaytest.NewFixture(t, gatewaytest.Plan{})
	secret := &cardAgent{members: `"capabilities":{"extendedAgentCard":true},`, skills: "[]", extended: `[{"id":"secret"}]`}
	carded(t, b, "vault", secret)
	agent, _ := b.Directory().Find("vault")
	agent.Rules = policy.Rules{Callers: []string{"spiffe://" + gatewaytest.TrustDomain + "/keeper"}}
	gatewaytest.Must(t, b.Directory().Put(agent))
	for name, l := range asksForCard("vault") {
		if got := b.Send(t, l); got.Status != http.StatusForbidden || strings.Contains(string(got.Body), "secret") {
			t.Errorf("%s: %d %s", name, got.Status, got.Body)
		}
	}
	for _, body := range secret.seen() {
		if strings.Contains(body, "xtended") {
			t.Errorf("the agent is asked %s", body)
		}
	}
	keeper := b.Caller(t, b.SVID(t, "/keeper"))
	for name, l := range asksForCard("vault") {
		l.Via = keeper
		if got := b.Send(t, l); !strings.Contains(string(got.Body), "secret") {
			t.Errorf("%s of a permitted caller: %d %s", name, got.Status, got.Body)
		}
	}
}

// TestExtendedCard_NotDeclared: where the agent has no extended card our card does not
// claim one, and who asks is refused (A2A 1.0, 3.1.11 and 5.4; 0.3, 7.10). What the
// agent itself refuses, its caller hears.
func TestExtendedCard_NotDeclared(t *testing.T) {
	t.Parallel()
	b := gatewaytest.NewFixture(t, gatewaytest.Plan{})
	carded(t, b, "plain", &cardAgent{skills: "[]"})
	carded(t, b, "liar", &cardAgent{skills: "[]", members: `"capabilities":{"extendedAgentCard":true},`})
	for agent, code := range map[string]string{"plain": "-32004", "calculator": "-32004", "liar": "-32007"} {
		if card := b.CardOf(t, agent, nil); agent != "liar" && strings.Contains(string(card["capabilities"]), "extendedAgentCard") {
			t.Errorf("%s: the card has the capabilities %s", agent, card["capabilities"])
		}
		for name, l := range asksForCard(agent) {
			want := code
			if strings.HasPrefix(name, "0.3") {
				want = "-32007"
			}
			if strings.HasSuffix(name, "HTTP") {
				want = map[string]string{"-32004": "UNSUPPORTED_OPERATION", "-32007": "EXTENDED_AGENT_CARD_NOT_CONFIGURED"}[want]
			}
			if got := b.Send(t, l); !strings.Contains(string(got.Body), want) || strings.Contains(string(got.Body), "skills") {
				t.Errorf("%s of %s: %d %s, want %s", name, agent, got.Status, got.Body, want)
			}
		}
	}
}

// TestCard_OfOneVersion: a client that names its version gets a card with the members
// of that version alone, which a strict validator of its schema takes; a client that
// names none gets those of both.
func TestCard_OfOneVersion(t *testing.T) {
	t.Parallel()
	b := gatewaytest.NewFixture(t, gatewaytest.Plan{})
	of10 := []string{"supportedInterfaces"}
	of03 := []string{"additionalInterfaces", "preferredTransport", "protocolVersion", "url"}
	both := append(slices.Clone(of10), of03...)
	for _, agent := range []string{"concierge", "calculator"} {
		for version, want := range map[string][]string{"1.0": of10, "0.3": of03, "": both, "7.0": both} {
			header := map[string]string{"A2A-Version": version}
			if version == "" {
				header = nil
			}
			card := b.CardOf(t, agent, header)
			for _, name := range both {
				if _, there := card[name]; there != slices.Contains(want, name) {
					t.Errorf("%s in %q: %s is there: %t", agent, version, name, there)
				}
			}
		}
		for _, version := range []string{"1.0", "0.3"} { // as a client says it that cannot set a header (A2A 1.0, 3.6.1)
			got := b.Send(t, gatewaytest.HTTPRequest{Method: http.MethodGet, Media: "-", At: "/agents/" + agent + "/a2a/.well-known/agent-card.json?A2A-Version=" + version})
			if old := version == "0.3"; strings.Contains(string(got.Body), "supportedInterfaces") == old || !strings.Contains(strings.Join(got.Header.Values("Vary"), ","), "A2A-Version") {
				t.Errorf("%s in %s by the query: %v %s", agent, version, got.Header, got.Body)
			}
		}
	}
}
