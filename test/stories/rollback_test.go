package stories

import (
	"encoding/json"
	"net/http"
	"slices"
	"testing"

	"github.com/aepb/aepb-gateway/ect"
	gatewaytest "github.com/aepb/aepb-gateway/test/harness/gateway"
	"github.com/aepb/aepb-gateway/translators/canonical"
)

// TestRollback_OverHTTP: whoever had work done through a door asks to undo it where
// ATD says, and so is the agent asked, each in the other's stead; both without the
// doors and endpoints of their protocols, and once for the same request.
func TestRollback_OverHTTP(t *testing.T) {
	t.Parallel()
	b := gatewaytest.NewFixture(t, gatewaytest.Plan{})
	tool := func(name string) string {
		return `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"` + name + `","arguments":{"message":"x"},` + gatewaytest.ModernMeta + `}}`
	}
	agents := map[canonical.Binding]*gatewaytest.Undoable{"a2a-v1": b.Undoable(t, "undo-a2a-v1", "a2a-v1"), "mcp-v1": b.Undoable(t, "undo-mcp-v1", "mcp-v1")}
	for binding, agent := range agents {
		name := "undo-" + string(binding)
		called := "add"
		if binding == "a2a-v1" {
			called = "fake"
		}
		for from, endpoint := range map[canonical.Binding]gatewaytest.HTTPRequest{
			"a2a-v1": {At: "/agents/" + name + "/a2a", Body: gatewaytest.TextBody("go"), Header: map[string]string{"A2A-Version": "1.0"}},
			"mcp-v1": {At: "/agents/" + name + "/mcp", Body: tool(called), Header: gatewaytest.Mirror("tools/call", called)},
		} {
			if from == "a2a-v1" && binding == "mcp-v1" {
				endpoint.Body = gatewaytest.AddBody(1)
			}
			got := b.Send(t, endpoint)
			if got.Status != http.StatusOK {
				t.Fatalf("%s to %s: %d %s", from, binding, got.Status, gatewaytest.Short(got.Body))
			}
			agent.Tell(func() { agent.Off = true })
			b.Directory().Outdated(name) // whoever asks it now who it is hears nothing
			rollsBack(t, b, agent, from, binding)
			refusesRollbacks(t, b, agent)
			agent.Tell(func() { agent.Off = false })
		}
	}
	b.Works(t)
}

func rollsBack(t *testing.T, b *gatewaytest.Fixture, agent *gatewaytest.Undoable, from, to canonical.Binding) {
	t.Helper()
	before := len(agent.Requests)
	asks := b.Rollback(t, b.Me, agent.Last.Workflow, agent.Last.ID)
	got := b.Send(t, asks)
	tokens := got.Header.Values(ect.HeaderName)
	if got.Status != http.StatusOK || len(tokens) != 3 {
		t.Fatalf("%s to %s: %d, %d tokens: %s", from, to, got.Status, len(tokens), gatewaytest.Short(got.Body))
	}
	if got := agent.Requests[before]; got[0] != asks.Tokens[0] || !slices.Contains(got, tokens[1]) {
		t.Errorf("%s to %s: the agent heard %d tokens, not the request first and ours after it", from, to, len(got))
	}
	request, _, err := ect.ParseUnverified(asks.Tokens[0])
	gatewaytest.Must(t, err)
	result, _, err := ect.ParseUnverified(tokens[0])
	gatewaytest.Must(t, err)
	translated := directionsOf(t, b, tokens[1:])
	source, _ := translated[0].Ext.String(ect.ExtSourceProtocol)
	dest, _ := translated[0].Ext.String(ect.ExtDestProtocol)
	var answer struct {
		Act ect.Act  `json:"exec_act"`
		Par []ect.ID `json:"par"`
	}
	gatewaytest.Must(t, json.Unmarshal(got.Body, &answer))
	for what, ok := range map[string]bool{
		"the request asks for a rollback": request.Act == ect.ActRollbackRequest,
		"the result answers the request":  result.Act == ect.ActRollbackResult && slices.Equal(result.Parents, []ect.ID{request.ID}) && result.Issuer == agent.Who.ID,
		"the body repeats it":             answer.Act == result.Act && slices.Equal(answer.Par, result.Parents),
		"leg 1 is about the request":      slices.Equal(translated[0].Parents, []ect.ID{request.ID}),
		"leg 2 is about the result":       translated[1].Parents[0] == result.ID && translated[1].OutputHash == ect.Hash(got.Body),
		"between both protocols":          source == string(from) && dest == string(to),
	} {
		if !ok {
			t.Errorf("%s to %s: not so: %s", from, to, what)
		}
	}
	again := b.Send(t, asks)
	if again.Status != http.StatusOK || string(again.Body) != string(got.Body) || !slices.Equal(again.Header.Values(ect.HeaderName), tokens) || len(agent.Requests) != before+1 {
		t.Errorf("%s to %s: the same request got %d after %d", from, to, again.Status, len(agent.Requests)-before)
	}
}

// refusesRollbacks of those who have no part, of what is no request, and results
// that are not to be believed.
func refusesRollbacks(t *testing.T, b *gatewaytest.Fixture, agent *gatewaytest.Undoable) {
	t.Helper()
	wid, par := agent.Last.Workflow, agent.Last.ID
	before := len(agent.Requests)
	svid := b.SVID(t, "/stranger")
	stranger := b.Rollback(t, b.Party(t, svid), wid, par)
	stranger.Via = b.Caller(t, svid)
	nobody, borrowed := b.Rollback(t, b.Me, wid, par), b.Rollback(t, b.Me, wid, par)
	nobody.Via, borrowed.Via = b.Anonymous, stranger.Via
	bare, text, long := b.Rollback(t, b.Me, wid, par), b.Rollback(t, b.Me, wid, par), b.Rollback(t, b.Me, wid, par)
	bare.Tokens, text.Media, long.Body = nil, "text/plain", string(make([]byte, 65<<10))
	for name, c := range map[string]struct {
		asks   gatewaytest.HTTPRequest
		status int
		code   string
	}{
		"a stranger":            {stranger, 403, "forbidden"},
		"nobody":                {nobody, 401, "unauthenticated"},
		"somebody else's token": {borrowed, 403, "ect_invalid"},
		"another workflow":      {b.Rollback(t, b.Me, string(ect.NewID()), par), 403, "forbidden"},
		"an unknown checkpoint": {b.Rollback(t, b.Me, wid, ect.NewID()), 403, "forbidden"},
		"no checkpoint":         {b.Rollback(t, b.Me, wid), 403, "forbidden"},
		"no token":              {bare, 403, "ect_required"},
		"another media type":    {text, 415, "unsupported_media_type"},
		"too long":              {long, 413, "too_large"},
		"another method":        {gatewaytest.HTTPRequest{Method: http.MethodGet, At: gatewaytest.RollbackAt}, 405, "method_not_allowed"},
	} {
		if got := b.Send(t, c.asks); got.Status != c.status || gatewaytest.ProblemCode(t, got) != c.code {
			t.Errorf("%s: %d %s", name, got.Status, gatewaytest.Short(got.Body))
		}
	}
	if len(agent.Requests) != before {
		t.Errorf("the agent heard of %d of those", len(agent.Requests)-before)
	}
	doubts(t, b, agent)
}

// doubts: an agent's refusal and its bad answers are told as problems.
func doubts(t *testing.T, b *gatewaytest.Fixture, agent *gatewaytest.Undoable) {
	t.Helper()
	fails := func(status int) func(http.ResponseWriter, string, string) {
		return func(w http.ResponseWriter, _, _ string) {
			w.Header().Set("Location", "/elsewhere")
			w.WriteHeader(status)
		}
	}
	for name, c := range map[string]struct {
		other  func(w http.ResponseWriter, request, good string)
		status int
	}{
		"it refuses":            {fails(http.StatusForbidden), http.StatusForbidden},
		"it cannot":             {fails(http.StatusNotFound), http.StatusUnprocessableEntity},
		"it points elsewhere":   {fails(http.StatusTemporaryRedirect), http.StatusBadGateway},
		"no result":             {func(http.ResponseWriter, string, string) {}, http.StatusBadGateway},
		"the request as result": {func(w http.ResponseWriter, request, _ string) { w.Header().Set(ect.HeaderName, request) }, http.StatusBadGateway},
		"of another signature": {func(w http.ResponseWriter, _, good string) {
			w.Header().Set(ect.HeaderName, good[:len(good)-6]+"AAAAAA")
		}, http.StatusBadGateway},
		"of somebody else": {func(w http.ResponseWriter, request, _ string) {
			requested, _, err := ect.ParseUnverified(request)
			if err == nil {
				w.Header().Set(ect.HeaderName, gatewaytest.Signing(t, b.Me, ect.Claims{
					Act: ect.ActRollbackResult, Audience: []string{b.Self()}, Workflow: requested.Workflow, Parents: []ect.ID{requested.ID},
				}))
			}
		}, http.StatusBadGateway},
		"as the body": {func(w http.ResponseWriter, _, good string) { _, _ = w.Write([]byte(good)) }, http.StatusOK},
	} {
		agent.Tell(func() { agent.Other = c.other })
		if got := b.Send(t, b.Rollback(t, b.Me, agent.Last.Workflow, agent.Last.ID)); got.Status != c.status {
			t.Errorf("%s: %d %s", name, got.Status, gatewaytest.Short(got.Body))
		}
	}
	agent.Tell(func() { agent.Other = nil })
}
