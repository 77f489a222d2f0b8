package stories

import (
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/ect/ecttest"
	"github.com/aepb/aepb-gateway/gateway/config"
	"github.com/aepb/aepb-gateway/gateway/directory"
	"github.com/aepb/aepb-gateway/lifecycle"
	gatewaytest "github.com/aepb/aepb-gateway/test/harness/gateway"
)

const operatorPath = "/people/operator"

// operators are one who operates and one who only looks.
func operators() map[string]config.Operator {
	return map[string]config.Operator{
		"ann": {ID: "spiffe://" + gatewaytest.TrustDomain + operatorPath, Roles: []string{"operator"}},
		"bob": {ID: "spiffe://" + gatewaytest.TrustDomain + gatewaytest.ApproverPath, Roles: []string{"viewer"}},
	}
}

// orders a transition as the operator, and returns the record.
func orders(t *testing.T, b *gatewaytest.Fixture, path, body string, status int) (r struct{ Status, Step, Token, Warning string }) {
	t.Helper()
	got := b.Send(t, gatewaytest.HTTPRequest{Via: b.Caller(t, b.SVID(t, operatorPath)), At: b.At.Admin + "/api" + path, Body: body})
	if got.Status != status {
		t.Fatalf("%s: %d %s", body, got.Status, got.Body)
	}
	if status == http.StatusOK {
		gatewaytest.Must(t, json.Unmarshal(got.Body, &r))
	}
	return r
}

// heir is the URL of the capability document of an agent that may be a successor.
func heir(t *testing.T, b *gatewaytest.Fixture) string {
	t.Helper()
	return b.Library(t, b.SVID(t, "/calculator"), gatewaytest.Page(b.CalculatorDocument(t, "active", "null"))).URL
}

// TestLifecycle_SuccessorIsChecked: an order names a successor whose capability document can be read, that takes
// work and is not weaker; any other is refused in words, and nothing changes.
func TestLifecycle_SuccessorIsChecked(t *testing.T) {
	t.Parallel()
	b := gatewaytest.NewFixture(t, gatewaytest.Plan{Config: config.Config{Admin: config.Admin{Operators: operators()}}})
	svid := b.SVID(t, "/calculator")
	text := b.CalculatorDocument(t, "active", "null")
	at := func(serve http.HandlerFunc) string { return b.Library(t, svid, serve).URL }
	for name, c := range map[string]struct{ url, says string }{
		"nothing there": {at(http.NotFound), "cannot be read: "},
		"no document":   {at(gatewaytest.Page(`{"hello":"world"}`)), "cannot be read: "},
		"weaker":        {at(gatewaytest.Page(strings.Replace(text, `"L2"`, `"L1"`, 1))), "it is weaker: it demands L1, where L2 is the least"},
		"it drains":     {at(gatewaytest.Page(b.CalculatorDocument(t, "draining", "null"))), "it is draining"},
		"it is gone":    {at(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusGone) }), "it is retired"},
		"too long":      {at(gatewaytest.Page(text + strings.Repeat(" ", directory.MaxDocument))), "cannot be read: "},
		"no protocol":   {at(gatewaytest.Page(strings.Replace(text, "mcp-v1", "else-v1", 1))), "it speaks no protocol that is spoken here"},
		"never answers": {at(func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }), "cannot be read: "},
	} {
		for _, path := range []string{"/lifecycle", "/agents/calculator/lifecycle"} {
			got := b.Send(t, gatewaytest.HTTPRequest{Via: b.Caller(t, b.SVID(t, operatorPath)), At: b.At.Admin + "/api" + path, Body: `{"to":"deprecated","reason":"moves","successor":"` + c.url + `"}`})
			if got.Status != http.StatusBadRequest || !strings.Contains(string(got.Body), c.says) {
				t.Errorf("%s, %s: %d %s", name, path, got.Status, got.Body)
			}
		}
	}
	for _, agent := range []string{"", "calculator"} {
		if r := b.Gateway().Lifecycle.Record(agent); r.Term != 0 {
			t.Errorf("%q is %s", agent, r.Status)
		}
	}
	orders(t, b, "/lifecycle", `{"to":"deprecated","reason":"moves","successor":"`+at(gatewaytest.Page(text))+`"}`, http.StatusOK)
}

// TestLifecycle_OfTheConfiguration: the gateway stands as its configuration says, from the start and
// after it is read again, with evidence; its version is the configured one.
func TestLifecycle_OfTheConfiguration(t *testing.T) {
	t.Parallel()
	b := gatewaytest.NewFixture(t, gatewaytest.Plan{Config: config.Config{Version: "2.1.0"}})
	successor := heir(t, b)
	first := b.Settings()
	first.Life = config.Life{Status: "deprecated", Reason: "moves", Successor: successor}
	gatewaytest.Must(t, b.Reload(t.Context(), first))
	var doc struct {
		Lifecycle struct {
			Status, Version string
			Successor       *string
		}
	}
	look := func() {
		t.Helper()
		gatewaytest.Must(t, json.Unmarshal(b.Send(t, gatewaytest.HTTPRequest{Method: http.MethodGet, At: "/.well-known/aepb"}).Body, &doc))
	}
	if look(); doc.Lifecycle.Status != "deprecated" || doc.Lifecycle.Version != "2.1.0" || doc.Lifecycle.Successor == nil || *doc.Lifecycle.Successor != successor {
		t.Errorf("at the start: %+v", doc.Lifecycle)
	}
	if claims := b.Proofs(t, b.Send(t, gatewaytest.HTTPRequest{At: gatewaytest.EndpointA2A, Body: gatewaytest.AddBody(b.Number())})); string(claims[0].Ext[ect.ExtAgentVersion]) != `"2.1.0"` {
		t.Errorf("a token says version %s", claims[0].Ext[ect.ExtAgentVersion])
	}
	b.Counts(t, `aepb_ects_issued_total{act="aepb:lifecycle_change",level="L2"} 1`)
	next := b.Settings()
	next.Life = config.Life{Status: "active", Reason: "stays"}
	gatewaytest.Must(t, b.Reload(t.Context(), next))
	if look(); doc.Lifecycle.Status != "active" || doc.Lifecycle.Successor != nil {
		t.Errorf("after it was read again: %+v", doc.Lifecycle)
	}
	gatewaytest.Must(t, b.Reload(t.Context(), next))
	b.Counts(t, `aepb_ects_issued_total{act="aepb:lifecycle_change",level="L2"} 2`)
}

// TestAttack_FutureOfAnAgentForOthers: whether an agent is deprecated, until when, and what follows it, is
// not for a caller who may not call the agent.
func TestAttack_FutureOfAnAgentForOthers(t *testing.T) {
	t.Parallel()
	b := gatewaytest.NewFixture(t, gatewaytest.Plan{Config: config.Config{Admin: config.Admin{Operators: operators()}, Agents: map[string]config.Agent{
		"private": {Endpoints: []config.Endpoint{{Binding: "mcp-v1", URL: "https://127.0.0.1:9/mcp"}}, Callers: []string{"spiffe://" + gatewaytest.TrustDomain + "/somebody"}},
	}}})
	successor := heir(t, b)
	orders(t, b, "/agents/private/lifecycle", `{"to":"deprecated","reason":"replaced","successor":"`+successor+`","sunset_at":"2030-01-01T00:00:00Z"}`, http.StatusOK)
	for name, l := range map[string]gatewaytest.HTTPRequest{
		"translate": b.Sealed(t, gatewaytest.HTTPRequest{At: "/aepb/translate?from=a2a-v1&dest=private", Body: gatewaytest.AddBody(b.Number())}),
		"A2A":       {At: "/agents/private/a2a", Body: gatewaytest.AddBody(b.Number())},
		"MCP":       {At: "/agents/private/mcp", Body: gatewaytest.CallBody("add", "x")},
		"the card":  {Method: http.MethodGet, At: "/agents/private/a2a/.well-known/agent-card.json"},
	} {
		got := b.Send(t, l)
		if h := got.Header; got.Status < http.StatusBadRequest || h.Get("Deprecation")+h.Get("Sunset")+h.Get("Link") != "" || strings.Contains(string(got.Body), successor) {
			t.Errorf("%s: %d with %v: %s", name, got.Status, h, got.Body)
		}
	}
}

// TestLifecycle_OfAnAgent: an operator deprecates, drains and so retires an agent; every answer says how it
// stands, work under way is finished, and each transition has its evidence.
func TestLifecycle_OfAnAgent(t *testing.T) {
	t.Parallel()
	b := gatewaytest.NewFixture(t, gatewaytest.Plan{Config: config.Config{Admin: config.Admin{Operators: operators()}}})
	successor := heir(t, b)
	const at = "/agents/calculator/lifecycle"
	deprecated := orders(t, b, at, `{"to":"deprecated","reason":"replaced","successor":"`+successor+`","sunset_at":"2030-01-01T00:00:00Z"}`, http.StatusOK)
	for name, l := range map[string]gatewaytest.HTTPRequest{
		"an answer":  {At: gatewaytest.EndpointA2A, Body: gatewaytest.AddBody(b.Number())},
		"an error":   {At: gatewaytest.EndpointA2A, Body: "{"},
		"the card":   {Method: http.MethodGet, At: gatewaytest.EndpointA2A + "/.well-known/agent-card.json"},
		"a stream":   {At: gatewaytest.EndpointA2A, Body: strings.Replace(gatewaytest.AddBody(b.Number()), "SendMessage", "SendStreamingMessage", 1)},
		"over AINP":  {At: "/agents/calculator/ainp", Body: "{}"},
		"of another": {At: "/agents/calculator/mcp", Body: "{}"},
	} {
		got := b.Send(t, l)
		if h := got.Header; !strings.HasPrefix(h.Get("Deprecation"), "@") || h.Get("Sunset") != "Tue, 01 Jan 2030 00:00:00 GMT" || !strings.Contains(h.Get("Link"), successor) {
			t.Errorf("%s: %d Deprecation %q, Sunset %q, Link %q", name, got.Status, h.Get("Deprecation"), h.Get("Sunset"), h.Get("Link"))
		}
	}
	if got := b.Send(t, gatewaytest.HTTPRequest{Via: b.Caller(t, b.SVID(t, operatorPath)), At: b.At.Admin + "/api" + at, Body: `{"to":"draining","reason":"replaced"}`}); got.Status != http.StatusConflict || !strings.Contains(string(got.Body), "24") {
		t.Errorf("before the notice is over: %d %s", got.Status, got.Body)
	}
	drained := orders(t, b, at, `{"to":"draining","reason":"replaced","force":true,"now":true}`, http.StatusOK)
	if !strings.Contains(drained.Warning, "24 hours") || !strings.Contains(drained.Warning, "retired for good as soon as its last work has ended") {
		t.Errorf("the warning is %q", drained.Warning)
	}
	got := b.Send(t, gatewaytest.HTTPRequest{At: gatewaytest.EndpointA2A, Body: gatewaytest.AddBody(b.Number())})
	if h := got.Header; h.Get("Retry-After") == "" || h.Get("Location") != successor || !strings.Contains(string(got.Body), `"code":"draining","status":503`) {
		t.Errorf("new work: %d %v %s", got.Status, h, got.Body)
	}
	gatewaytest.Within(t, gatewaytest.Patience, "the agent is retired", func() bool {
		return b.Gateway().Lifecycle.Record("calculator").Status == "retired"
	})
	for name, l := range map[string]gatewaytest.HTTPRequest{
		"work":     b.Sealed(t, gatewaytest.HTTPRequest{Body: gatewaytest.AddBody(b.Number())}),
		"A2A":      {At: gatewaytest.EndpointA2A, Body: gatewaytest.AddBody(b.Number())},
		"MCP":      {At: "/agents/calculator/mcp", Body: gatewaytest.CallBody("add", "x"), Header: gatewaytest.Mirror("tools/call", "add")},
		"A2A REST": {At: gatewaytest.EndpointA2A + "/message:send", Body: `{"message":{"messageId":"m","role":"ROLE_USER","parts":[{"text":"hi"}]}}`},
		"the card": {Method: http.MethodGet, At: gatewaytest.EndpointA2A + "/.well-known/agent-card.json"},
	} {
		got := b.Send(t, l)
		if got.Status != http.StatusGone || !strings.Contains(got.Header.Get("Link"), `<`+successor+`>; rel="successor-version"`) {
			t.Errorf("%s of a retired agent: %d %q %s", name, got.Status, got.Header.Get("Link"), got.Body)
		}
	}
	orders(t, b, at, `{"to":"active","reason":"a mistake"}`, http.StatusConflict)
	for token, want := range map[string][3]string{deprecated.Token: {"active", "deprecated", ""}, drained.Token: {"deprecated", "draining", "true"}} {
		v, err := b.Judge.Verify(t.Context(), token, ect.Check{Purpose: ect.Parent})
		gatewaytest.Must(t, err)
		ext := v.Claims().Ext
		if got := [3]string{text(ext, "aepb.from_state"), text(ext, "aepb.to_state"), string(ext["aepb.forced"])}; v.Act() != ect.ActLifecycleChange || v.Level() < ect.L2 || got != want {
			t.Errorf("%s says %v, want %v", v.Act(), got, want)
		}
	}
	b.Counts(t, `aepb_ects_issued_total{act="aepb:lifecycle_change",level="L2"} 3`)
	b.Counts(t, `aepb_ects_issued_total{act="aepb:shutdown",level="L2"} 1`)
	b.Counts(t, `aepb_lifecycle_state{state="retired"} 1`)
}

func text(ext ect.Ext, key string) string {
	s, _ := ext.String(key)
	return s
}

// TestLifecycle_Forget: a development gateway forgets that an agent is retired, with evidence, and it is called
// again. A gateway that runs with serve does not.
func TestLifecycle_Forget(t *testing.T) {
	t.Parallel()
	for name, serve := range map[string]bool{"dev": false, "serve": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := gatewaytest.NewFixture(t, gatewaytest.Plan{Serve: serve, Config: config.Config{Admin: config.Admin{Operators: operators()}}})
			const at, forget = "/agents/members/lifecycle", `{"to":"active","reason":"a mistake","forget":true}`
			orders(t, b, at, forget, http.StatusConflict) // it is active
			orders(t, b, at, `{"to":"draining","reason":"a mistake","force":true}`, http.StatusOK)
			if r := orders(t, b, at, `{"to":"retired","reason":"a mistake","now":true}`, http.StatusOK); r.Status != "retired" || !strings.Contains(r.Warning, "for good now") {
				t.Errorf("%+v", r)
			}
			call := gatewaytest.HTTPRequest{At: "/agents/members/a2a", Body: gatewaytest.AddBody(b.Number())}
			if got := b.Send(t, call); got.Status != http.StatusGone {
				t.Errorf("retired: %d %s", got.Status, got.Body)
			}
			if serve {
				got := b.Send(t, gatewaytest.HTTPRequest{Via: b.Caller(t, b.SVID(t, operatorPath)), At: b.At.Admin + "/api" + at, Body: forget})
				if got.Status != http.StatusConflict || !strings.Contains(string(got.Body), "under another name") {
					t.Errorf("forgotten under serve: %d %s", got.Status, got.Body)
				}
				return
			}
			r := orders(t, b, at, forget, http.StatusOK)
			v, err := b.Judge.Verify(t.Context(), r.Token, ect.Check{Purpose: ect.Parent})
			gatewaytest.Must(t, err)
			if ext := v.Claims().Ext; text(ext, "aepb.from_state") != "retired" || text(ext, "aepb.to_state") != "active" {
				t.Errorf("the evidence says %v", ext)
			}
			if got := b.Send(t, call); got.Status != http.StatusOK {
				t.Errorf("forgotten: %d %s", got.Status, got.Body)
			}
		})
	}
}

// TestLifecycle_WorkUnderWay: an agent that drains is not retired before its work is over, whether its caller
// waits or it goes on in the background, and that gets its answer. One without work is retired meanwhile.
func TestLifecycle_WorkUnderWay(t *testing.T) {
	t.Parallel()
	for name, background := range map[string]bool{"its caller waits": false, "in the background": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := gatewaytest.NewFixture(t, gatewaytest.Plan{Config: config.Config{Admin: config.Admin{Operators: operators()}}})
			entered, release := make(chan struct{}), make(chan struct{})
			b.Serve(t, "slow", "mcp-v1", &gatewaytest.Fake{Conduct: gatewaytest.Delayed(entered, release)}, gatewaytest.Host{})
			body := gatewaytest.AddBody(b.Number())
			if background {
				body = strings.Replace(body, `"params":{`, `"params":{"configuration":{"returnImmediately":true},`, 1)
			}
			answer := make(chan gatewaytest.Reply, 1)
			go func() { answer <- b.Send(t, gatewaytest.HTTPRequest{At: "/agents/slow/a2a", Body: body}) }()
			<-entered
			for _, agent := range []string{"slow", "calculator"} {
				orders(t, b, "/agents/"+agent+"/lifecycle", `{"to":"draining","reason":"replaced","force":true,"now":true}`, http.StatusOK)
			}
			gatewaytest.Within(t, gatewaytest.Patience, "the agent without work is retired", func() bool { return b.Gateway().Lifecycle.Record("calculator").Status == lifecycle.Retired })
			if r := b.Gateway().Lifecycle.Record("slow"); r.Status != lifecycle.Draining {
				t.Errorf("it is %s while it works", r.Status)
			}
			close(release)
			if got := <-answer; got.Status != http.StatusOK || !strings.Contains(string(got.Body), `"result"`) {
				t.Errorf("the work under way: %d %s", got.Status, got.Body)
			}
			gatewaytest.Within(t, gatewaytest.Patience, "the agent is retired", func() bool { return b.Gateway().Lifecycle.Record("slow").Status == lifecycle.Retired })
		})
	}
}

// TestLifecycle_StreamThatListens: a client that keeps the stream of its MCP session open, and asks nothing,
// does not keep an agent from its retirement.
func TestLifecycle_StreamThatListens(t *testing.T) {
	t.Parallel()
	b := gatewaytest.NewFixture(t, gatewaytest.Plan{Serve: true, Config: config.Config{Admin: config.Admin{Operators: operators()}}})
	server := &listServer{changes: true}
	lists(t, b, "teller", server)
	via, _ := b.ClientOf(t, "/listener")
	request := b.Request(t, gatewaytest.HTTPRequest{Method: http.MethodGet, At: "/agents/teller/mcp", Media: "-", Header: map[string]string{
		"Accept": "text/event-stream", "Mcp-Session-Id": b.Initialize(t, via, "teller"), "Mcp-Protocol-Version": "2025-06-18",
	}})
	response, err := via.Do(request)
	gatewaytest.Must(t, err)
	defer func() { _ = response.Body.Close() }()
	if response.StatusCode != http.StatusOK {
		t.Fatalf("the stream: %s", response.Status)
	}
	orders(t, b, "/agents/teller/lifecycle", `{"to":"draining","reason":"replaced","force":true,"now":true}`, http.StatusOK)
	gatewaytest.Within(t, gatewaytest.Patience, "the agent is retired", func() bool { return b.Gateway().Lifecycle.Record("teller").Status == lifecycle.Retired })
}

// TestLifecycle_OfTheGateway: the gateway's own document says how it stands, a gateway that drains takes no
// new work, and it is retired by itself when its work is over, with a signed end.
func TestLifecycle_OfTheGateway(t *testing.T) {
	t.Parallel()
	b := gatewaytest.NewFixture(t, gatewaytest.Plan{Config: config.Config{Admin: config.Admin{Operators: operators()}}})
	successor := heir(t, b)
	document := func() (status string) {
		var doc struct{ Lifecycle struct{ Status string } }
		gatewaytest.Must(t, json.Unmarshal(b.Send(t, gatewaytest.HTTPRequest{Method: http.MethodGet, At: "/.well-known/aepb"}).Body, &doc))
		return doc.Lifecycle.Status
	}
	if got := document(); got != "active" {
		t.Errorf("at first it is %s", got)
	}
	entered, release := make(chan struct{}), make(chan struct{})
	b.Serve(t, "slow", "mcp-v1", &gatewaytest.Fake{Conduct: gatewaytest.Delayed(entered, release)}, gatewaytest.Host{})
	answer := make(chan gatewaytest.Reply, 1)
	go func() {
		answer <- b.Send(t, gatewaytest.HTTPRequest{At: "/agents/slow/a2a", Body: gatewaytest.AddBody(b.Number())})
	}()
	<-entered
	orders(t, b, "/lifecycle", `{"to":"draining","reason":"moved","successor":"`+successor+`","force":true,"now":true}`, http.StatusOK)
	if got := document(); got != "draining" {
		t.Errorf("the document says %s", got)
	}
	got := b.Send(t, b.Sealed(t, gatewaytest.HTTPRequest{Body: gatewaytest.AddBody(b.Number())}))
	if got.Status != http.StatusServiceUnavailable || got.Header.Get("Location") != successor || got.Header.Get("Retry-After") == "" {
		t.Errorf("new work: %d %v", got.Status, got.Header)
	}
	gatewaytest.Within(t, gatewaytest.Patience, "it refuses", func() bool { return b.Gateway().Lifecycle.Record("").Step == lifecycle.Refusing })
	close(release)
	if got := <-answer; got.Status != http.StatusOK || !strings.Contains(string(got.Body), `"result"`) {
		t.Errorf("the work under way: %d %s", got.Status, got.Body)
	}
	gatewaytest.Within(t, gatewaytest.Patience, "the gateway is retired", func() bool { return b.Gateway().Lifecycle.Record("").Status == lifecycle.Retired })
	b.Counts(t, `aepb_ects_issued_total{act="aepb:shutdown",level="L2"} 1`)
	b.Counts(t, `aepb_ects_issued_total{act="aepb:lifecycle_change",level="L2"} 2`)
	if got := b.Send(t, gatewaytest.HTTPRequest{Method: http.MethodGet, At: "/.well-known/aepb"}); got.Status != http.StatusGone || !strings.Contains(got.Header.Get("Link"), "successor-version") {
		t.Errorf("the document of a retired gateway: %d %v", got.Status, got.Header)
	}
	for name, body := range map[string]string{"work": gatewaytest.AddBody(b.Number()), "a task": `{"jsonrpc":"2.0","id":"1","method":"GetTask","params":{"id":"x"}}`} {
		if got := b.Send(t, b.Sealed(t, gatewaytest.HTTPRequest{Body: body})); got.Status != http.StatusGone {
			t.Errorf("%s at a retired gateway: %d %s", name, got.Status, got.Body)
		}
	}
}

// step is the next message of a workflow, to an agent.
func step(t *testing.T, b *gatewaytest.Fixture, who *ecttest.Party, via *http.Client, workflow, dest string, parents ...ect.ID) gatewaytest.Reply {
	t.Helper()
	body := gatewaytest.AddBody(b.Number())
	token := ecttest.Mint(t, who, ecttest.Recipe{Claims: ect.Claims{
		Audience: []string{b.Self()}, Workflow: workflow, Parents: parents, OutputHash: ect.Hash([]byte(body)),
	}})
	return b.Send(t, gatewaytest.HTTPRequest{Via: via, At: "/aepb/translate?from=a2a-v1&dest=" + dest, Body: body, Tokens: []string{token}})
}

// TestLifecycle_WorkflowUnderWay: what drains, an agent or the gateway, takes the next step of a workflow that
// had work there before, until its sunset, and no new workflow.
func TestLifecycle_WorkflowUnderWay(t *testing.T) {
	t.Parallel()
	for name, path := range map[string]string{"an agent": "/agents/calculator/lifecycle", "the gateway": "/lifecycle"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := gatewaytest.NewFixture(t, gatewaytest.Plan{Config: config.Config{Admin: config.Admin{Operators: operators()}}})
			first := b.Proofs(t, b.Send(t, b.Sealed(t, gatewaytest.HTTPRequest{At: "/aepb/translate?from=a2a-v1&dest=calculator", Body: gatewaytest.AddBody(b.Number())})))
			last := first[len(first)-1]
			sunset := time.Now().Add(15 * time.Second).UTC().Format(time.RFC3339)
			orders(t, b, path, `{"to":"draining","reason":"moved","force":true,"now":true,"sunset_at":"`+sunset+`"}`, http.StatusOK)
			if got := step(t, b, b.Me, b.Client, last.Workflow, "calculator", last.ID); got.Status != http.StatusOK {
				t.Errorf("the next step: %d %s", got.Status, got.Body)
			}
			if got := step(t, b, b.Me, b.Client, string(ect.NewID()), "calculator"); !strings.Contains(string(got.Body), `"code":"draining"`) {
				t.Errorf("a new workflow: %d %s", got.Status, got.Body)
			}
			agent := strings.TrimSuffix(strings.TrimPrefix(strings.TrimSuffix(path, "/lifecycle"), "/agents/"), "/")
			gatewaytest.Within(t, 2*gatewaytest.Patience, "it is retired after its sunset", func() bool { return b.Gateway().Lifecycle.Record(agent).Status == lifecycle.Retired })
			if r := b.Gateway().Lifecycle.Record(agent); r.At.Before(r.SunsetAt) {
				t.Errorf("it was retired at %v, before its sunset at %v", r.At, r.SunsetAt)
			}
		})
	}
}

// TestAttack_WorkflowOfOthersDuringADrain: to name a workflow that is under way at an agent that drains, to have
// work at another agent, and to name the agent as audience of one's own token lets in no new work.
func TestAttack_WorkflowOfOthersDuringADrain(t *testing.T) {
	t.Parallel()
	b := gatewaytest.NewFixture(t, gatewaytest.Plan{Config: config.Config{Admin: config.Admin{Operators: operators()}}})
	b.Serve(t, "other", "mcp-v1", &gatewaytest.Fake{Conduct: gatewaytest.Well}, gatewaytest.Host{})
	a := b.Attacker(t)
	at := func(dest string) ect.Claims {
		list := b.Proofs(t, b.Send(t, b.Sealed(t, gatewaytest.HTTPRequest{At: "/aepb/translate?from=a2a-v1&dest=" + dest, Body: gatewaytest.AddBody(b.Number())})))
		return list[len(list)-1]
	}
	here, elsewhere := at("calculator"), at("other")
	orders(t, b, "/agents/calculator/lifecycle", `{"to":"draining","reason":"moved","force":true,"sunset_at":"2090-01-01T00:00:00Z"}`, http.StatusOK)
	for name, got := range map[string]gatewaytest.Reply{
		"a root in the workflow of others": step(t, b, a.Party, a.Client, here.Workflow, "calculator"),
		"a child of their token":           step(t, b, a.Party, a.Client, here.Workflow, "calculator", here.ID),
		"a workflow at another agent":      step(t, b, b.Me, b.Client, elsewhere.Workflow, "calculator", elsewhere.ID),
	} {
		if got.Status != http.StatusForbidden && !strings.Contains(string(got.Body), `"code":"draining"`) {
			t.Errorf("%s: %d %s", name, got.Status, got.Body)
		}
	}
	body, workflow := gatewaytest.AddBody(b.Number()), string(ect.NewID())
	agent, _ := b.Directory().Find("calculator")
	named := []string{b.Self(), string(agent.ID)}
	for _, e := range agent.Endpoints {
		named = append(named, e.Audience("calculator"))
	}
	token := ecttest.Mint(t, b.Me, ecttest.Recipe{Claims: ect.Claims{
		Audience: slices.DeleteFunc(named, func(s string) bool { return s == "" }), Workflow: workflow, OutputHash: ect.Hash([]byte(body)),
	}})
	first := b.Proofs(t, b.Send(t, gatewaytest.HTTPRequest{At: gatewaytest.ToNobody, Body: body, Tokens: []string{token}}))
	if got := step(t, b, b.Me, b.Client, workflow, "calculator", first[0].ID); !strings.Contains(string(got.Body), `"code":"draining"`) {
		t.Errorf("a workflow that only names the agent: %d %s", got.Status, got.Body)
	}
}

// TestLifecycle_GatewayIsDeprecated: every answer of the gateway's own documents and endpoints, also a refusal,
// says that the gateway is deprecated; answers of agents say what holds of the agents.
func TestLifecycle_GatewayIsDeprecated(t *testing.T) {
	t.Parallel()
	b := gatewaytest.NewFixture(t, gatewaytest.Plan{Config: config.Config{Admin: config.Admin{Operators: operators()}}})
	successor := heir(t, b)
	orders(t, b, "/lifecycle", `{"to":"deprecated","reason":"moves","successor":"`+successor+`","sunset_at":"2031-01-01T00:00:00Z"}`, http.StatusOK)
	const own, none = "Wed, 01 Jan 2031 00:00:00 GMT", ""
	says := func(name string, l gatewaytest.HTTPRequest, sunset string) {
		t.Helper()
		got := b.Send(t, l)
		if h := got.Header; strings.HasPrefix(h.Get("Deprecation"), "@") != (sunset != none) || h.Get("Sunset") != sunset ||
			strings.Contains(h.Get("Link"), "<"+successor+`>; rel="successor-version"`) != (sunset != none) {
			t.Errorf("%s: %d Deprecation %q, Sunset %q, Link %q", name, got.Status, h.Get("Deprecation"), h.Get("Sunset"), h.Get("Link"))
		}
	}
	for name, l := range map[string]gatewaytest.HTTPRequest{
		"translate":           b.Sealed(t, gatewaytest.HTTPRequest{Body: gatewaytest.AddBody(b.Number())}),
		"CPAT translate":      b.Sealed(t, gatewaytest.HTTPRequest{At: "/cpat/translate?from=a2a-v1&to=mcp-v1", Body: gatewaytest.AddBody(b.Number())}),
		"translate, refused":  {Body: "{"},
		"by an agent":         b.Sealed(t, gatewaytest.HTTPRequest{At: "/aepb/translate?from=a2a-v1&dest=calculator", Body: gatewaytest.AddBody(b.Number())}),
		"document":            {Method: http.MethodGet, At: "/.well-known/aepb"},
		"CPAT document":       {Method: http.MethodGet, At: "/.well-known/cpat"},
		"pairs":               {Method: http.MethodGet, At: "/.well-known/aepb/gateway"},
		"without an identity": {Via: b.Anonymous, Method: http.MethodGet, At: "/atd/breakers"},
		"rollback":            {At: "/atd/rollback", Body: "{}"},
		"a token":             {Method: http.MethodGet, At: "/ects/none"},
		"a workflow":          {Method: http.MethodGet, At: "/workflows/none"},
		"callbacks":           {At: "/hitl/callbacks", Body: "{}"},
		"a wrong method":      {Method: http.MethodPut, At: "/.well-known/aepb"},
	} {
		says(name, l, own)
	}
	native := gatewaytest.HTTPRequest{At: gatewaytest.EndpointA2A, Body: gatewaytest.AddBody(b.Number())}
	says("an agent's endpoint", native, none)
	orders(t, b, "/agents/calculator/lifecycle", `{"to":"deprecated","reason":"moves","successor":"`+successor+`","sunset_at":"2030-01-01T00:00:00Z"}`, http.StatusOK)
	const agents = "Tue, 01 Jan 2030 00:00:00 GMT"
	says("the endpoint of a deprecated agent", native, agents)
	says("by a deprecated agent", b.Sealed(t, gatewaytest.HTTPRequest{At: "/aepb/translate?from=a2a-v1&dest=calculator", Body: gatewaytest.AddBody(b.Number())}), agents)
	orders(t, b, "/lifecycle", `{"to":"active","reason":"stays"}`, http.StatusOK)
	says("of an active gateway", gatewaytest.HTTPRequest{Method: http.MethodGet, At: "/.well-known/aepb"}, none)
}

// TestAttack_LifecycleWithoutTheRole: callers, strangers and operators who may only look change no lifecycle.
func TestAttack_LifecycleWithoutTheRole(t *testing.T) {
	t.Parallel()
	b := gatewaytest.NewFixture(t, gatewaytest.Plan{Serve: true, NoToken: true, Config: config.Config{Admin: config.Admin{Operators: operators()}}})
	for name, via := range map[string]*http.Client{"a caller": b.Client, "a stranger": b.Anonymous, "a viewer": b.Caller(t, b.SVID(t, gatewaytest.ApproverPath))} {
		for _, path := range []string{"/api/lifecycle", "/api/agents/calculator/lifecycle"} {
			got := b.Send(t, gatewaytest.HTTPRequest{Via: via, At: b.At.Admin + path, Body: `{"to":"retired","reason":"because"}`})
			if got.Status != http.StatusForbidden && got.Status != http.StatusUnauthorized {
				t.Errorf("%s at %s: %d %s", name, path, got.Status, got.Body)
			}
		}
	}
	if r := b.Gateway().Lifecycle.Record("calculator"); r.Term != 0 || b.Gateway().Lifecycle.Record("").Term != 0 {
		t.Errorf("it was changed: %+v", r)
	}
}
