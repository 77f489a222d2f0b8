package main

import (
	"encoding/json"
	"io"
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/ect/ecttest"
	"github.com/aepb/aepb-gateway/gateway/config"
	"github.com/aepb/aepb-gateway/gateway/directory"
	"github.com/aepb/aepb-gateway/lifecycle"
)

const operatorPath = "/people/operator"

// operators are one who operates and one who only looks.
func operators() map[string]config.Operator {
	return map[string]config.Operator{
		"ann": {ID: "spiffe://" + devTrustDomain + operatorPath, Roles: []string{"operator"}},
		"bob": {ID: "spiffe://" + devTrustDomain + approverPath, Roles: []string{"viewer"}},
	}
}

// orders a transition as the operator, and returns the record.
func (b *bed) orders(t *testing.T, path, body string, status int) (r struct{ Status, Step, Token, Warning string }) {
	t.Helper()
	got := b.send(t, letter{via: b.caller(t, b.svid(t, operatorPath)), at: b.at.Admin + "/api" + path, body: body})
	if got.status != status {
		t.Fatalf("%s: %d %s", body, got.status, got.body)
	}
	if status == http.StatusOK {
		must(t, json.Unmarshal(got.body, &r))
	}
	return r
}

// heir is the URL of the capability document of an agent that may be a successor.
func (b *bed) heir(t *testing.T) string {
	t.Helper()
	return b.library(t, b.svid(t, "/calculator"), page(b.calculatorDocument(t, "active", "null"))).url
}

// TestLifecycle_SuccessorIsChecked: an order names a successor whose capability document can be read, that takes
// work and is not weaker; any other is refused in words, and nothing changes.
func TestLifecycle_SuccessorIsChecked(t *testing.T) {
	t.Parallel()
	b := newBed(t, plan{config: config.Config{Admin: config.Admin{Operators: operators()}}})
	svid := b.svid(t, "/calculator")
	text := b.calculatorDocument(t, "active", "null")
	at := func(serve http.HandlerFunc) string { return b.library(t, svid, serve).url }
	for name, c := range map[string]struct{ url, says string }{
		"nothing there": {at(http.NotFound), "cannot be read: "},
		"no document":   {at(page(`{"hello":"world"}`)), "cannot be read: "},
		"weaker":        {at(page(strings.Replace(text, `"L2"`, `"L1"`, 1))), "it is weaker: it demands L1, where L2 is the least"},
		"it drains":     {at(page(b.calculatorDocument(t, "draining", "null"))), "it is draining"},
		"it is gone":    {at(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusGone) }), "it is retired"},
		"too long":      {at(page(text + strings.Repeat(" ", directory.MaxDocument))), "cannot be read: "},
		"no protocol":   {at(page(strings.Replace(text, "mcp-v1", "else-v1", 1))), "it speaks no protocol that is spoken here"},
		"never answers": {at(func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }), "cannot be read: "},
	} {
		for _, path := range []string{"/lifecycle", "/agents/calculator/lifecycle"} {
			got := b.send(t, letter{via: b.caller(t, b.svid(t, operatorPath)), at: b.at.Admin + "/api" + path, body: `{"to":"deprecated","reason":"moves","successor":"` + c.url + `"}`})
			if got.status != http.StatusBadRequest || !strings.Contains(string(got.body), c.says) {
				t.Errorf("%s, %s: %d %s", name, path, got.status, got.body)
			}
		}
	}
	for _, agent := range []string{"", "calculator"} {
		if r := b.gateway.Lifecycle.Record(agent); r.Term != 0 {
			t.Errorf("%q is %s", agent, r.Status)
		}
	}
	b.orders(t, "/lifecycle", `{"to":"deprecated","reason":"moves","successor":"`+at(page(text))+`"}`, http.StatusOK)
}

// TestLifecycle_OfTheConfiguration: the gateway stands as its configuration says, from the start and
// after it is read again, with evidence; its version is the configured one.
func TestLifecycle_OfTheConfiguration(t *testing.T) {
	t.Parallel()
	b := newBed(t, plan{config: config.Config{Version: "2.1.0"}})
	successor := b.heir(t)
	first := b.settings.config
	first.Life = config.Life{Status: "deprecated", Reason: "moves", Successor: successor}
	must(t, b.reload(t.Context(), first))
	var doc struct {
		Lifecycle struct {
			Status, Version string
			Successor       *string
		}
	}
	look := func() {
		t.Helper()
		must(t, json.Unmarshal(b.send(t, letter{method: http.MethodGet, at: "/.well-known/aepb"}).body, &doc))
	}
	if look(); doc.Lifecycle.Status != "deprecated" || doc.Lifecycle.Version != "2.1.0" || doc.Lifecycle.Successor == nil || *doc.Lifecycle.Successor != successor {
		t.Errorf("at the start: %+v", doc.Lifecycle)
	}
	if claims := b.proofs(t, b.send(t, letter{at: doorA2A, body: addBody(b.number())})); string(claims[0].Ext[ect.ExtAgentVersion]) != `"2.1.0"` {
		t.Errorf("a token says version %s", claims[0].Ext[ect.ExtAgentVersion])
	}
	b.counts(t, `aepb_ects_issued_total{act="aepb:lifecycle_change",level="L2"} 1`)
	next := b.settings.config
	next.Life = config.Life{Status: "active", Reason: "stays"}
	must(t, b.reload(t.Context(), next))
	if look(); doc.Lifecycle.Status != "active" || doc.Lifecycle.Successor != nil {
		t.Errorf("after it was read again: %+v", doc.Lifecycle)
	}
	must(t, b.reload(t.Context(), next))
	b.counts(t, `aepb_ects_issued_total{act="aepb:lifecycle_change",level="L2"} 2`)
}

// TestCheckConfig_Before: a configuration that takes something from callers needs a higher major
// version than the one before it.
func TestCheckConfig_Before(t *testing.T) {
	t.Parallel()
	configured := func(version, listen string) string {
		_, file := operated(t, "version: "+version+"\n")
		text, err := os.ReadFile(file)
		must(t, err)
		must(t, os.WriteFile(file, []byte(strings.Replace(string(text), "listen: {", "listen: {"+listen, 1)), 0o600))
		return file
	}
	const uacp, grpc = `uacp: ":0", `, `grpc: ":0", `
	before := configured("1.4.0", uacp+grpc)
	for name, c := range map[string]struct{ version, listen, says string }{
		"the same":        {"1.4.0", uacp + grpc, ""},
		"without µACP":    {"1.5.0", grpc, `protocol "uacp-v1" is taken out`},
		"without gRPC":    {"1.5.0", uacp, `protocol "a2a-v1 over gRPC" is taken out`},
		"a major version": {"2.0.0", "", ""},
	} {
		cmd := checkConfigCommand()
		cmd.SetArgs([]string{configured(c.version, c.listen), "--before", before})
		cmd.SetOut(io.Discard)
		cmd.SetErr(io.Discard)
		if err := cmd.Execute(); c.says == "" && err != nil || c.says != "" && (err == nil || !strings.Contains(err.Error(), c.says)) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestAttack_FutureOfAnAgentForOthers: whether an agent is deprecated, until when, and what follows it, is
// not for a caller who may not call the agent.
func TestAttack_FutureOfAnAgentForOthers(t *testing.T) {
	t.Parallel()
	b := newBed(t, plan{config: config.Config{Admin: config.Admin{Operators: operators()}, Agents: map[string]config.Agent{
		"private": {Endpoints: []config.Endpoint{{Binding: "mcp-v1", URL: "https://127.0.0.1:9/mcp"}}, Callers: []string{"spiffe://" + devTrustDomain + "/somebody"}},
	}}})
	successor := b.heir(t)
	b.orders(t, "/agents/private/lifecycle", `{"to":"deprecated","reason":"replaced","successor":"`+successor+`","sunset_at":"2030-01-01T00:00:00Z"}`, http.StatusOK)
	for name, l := range map[string]letter{
		"translate": b.sealed(t, letter{at: "/aepb/translate?from=a2a-v1&dest=private", body: addBody(b.number())}),
		"A2A":       {at: "/agents/private/a2a", body: addBody(b.number())},
		"MCP":       {at: "/agents/private/mcp", body: callBody("add", "x")},
		"the card":  {method: http.MethodGet, at: "/agents/private/a2a/.well-known/agent-card.json"},
	} {
		got := b.send(t, l)
		if h := got.header; got.status < http.StatusBadRequest || h.Get("Deprecation")+h.Get("Sunset")+h.Get("Link") != "" || strings.Contains(string(got.body), successor) {
			t.Errorf("%s: %d with %v: %s", name, got.status, h, got.body)
		}
	}
}

// TestLifecycle_OfAnAgent: an operator deprecates, drains and so retires an agent; every answer says how it
// stands, work under way is finished, and each transition has its evidence.
func TestLifecycle_OfAnAgent(t *testing.T) {
	t.Parallel()
	b := newBed(t, plan{config: config.Config{Admin: config.Admin{Operators: operators()}}})
	successor := b.heir(t)
	const at = "/agents/calculator/lifecycle"
	deprecated := b.orders(t, at, `{"to":"deprecated","reason":"replaced","successor":"`+successor+`","sunset_at":"2030-01-01T00:00:00Z"}`, http.StatusOK)
	for name, l := range map[string]letter{
		"an answer":  {at: doorA2A, body: addBody(b.number())},
		"an error":   {at: doorA2A, body: "{"},
		"the card":   {method: http.MethodGet, at: doorA2A + "/.well-known/agent-card.json"},
		"a stream":   {at: doorA2A, body: strings.Replace(addBody(b.number()), "SendMessage", "SendStreamingMessage", 1)},
		"over AINP":  {at: "/agents/calculator/ainp", body: "{}"},
		"of another": {at: "/agents/calculator/mcp", body: "{}"},
	} {
		got := b.send(t, l)
		if h := got.header; !strings.HasPrefix(h.Get("Deprecation"), "@") || h.Get("Sunset") != "Tue, 01 Jan 2030 00:00:00 GMT" || !strings.Contains(h.Get("Link"), successor) {
			t.Errorf("%s: %d Deprecation %q, Sunset %q, Link %q", name, got.status, h.Get("Deprecation"), h.Get("Sunset"), h.Get("Link"))
		}
	}
	if got := b.send(t, letter{via: b.caller(t, b.svid(t, operatorPath)), at: b.at.Admin + "/api" + at, body: `{"to":"draining","reason":"replaced"}`}); got.status != http.StatusConflict || !strings.Contains(string(got.body), "24") {
		t.Errorf("before the notice is over: %d %s", got.status, got.body)
	}
	drained := b.orders(t, at, `{"to":"draining","reason":"replaced","force":true,"now":true}`, http.StatusOK)
	if !strings.Contains(drained.Warning, "24 hours") || !strings.Contains(drained.Warning, "retired for good as soon as its last work has ended") {
		t.Errorf("the warning is %q", drained.Warning)
	}
	got := b.send(t, letter{at: doorA2A, body: addBody(b.number())})
	if h := got.header; h.Get("Retry-After") == "" || h.Get("Location") != successor || !strings.Contains(string(got.body), `"code":"draining","status":503`) {
		t.Errorf("new work: %d %v %s", got.status, h, got.body)
	}
	within(t, patience, "the agent is retired", func() bool {
		return b.gateway.Lifecycle.Record("calculator").Status == "retired"
	})
	for name, l := range map[string]letter{
		"work":     b.sealed(t, letter{body: addBody(b.number())}),
		"A2A":      {at: doorA2A, body: addBody(b.number())},
		"MCP":      {at: "/agents/calculator/mcp", body: callBody("add", "x"), header: mirror("tools/call", "add")},
		"A2A REST": {at: doorA2A + "/message:send", body: `{"message":{"messageId":"m","role":"ROLE_USER","parts":[{"text":"hi"}]}}`},
		"the card": {method: http.MethodGet, at: doorA2A + "/.well-known/agent-card.json"},
	} {
		got := b.send(t, l)
		if got.status != http.StatusGone || !strings.Contains(got.header.Get("Link"), `<`+successor+`>; rel="successor-version"`) {
			t.Errorf("%s of a retired agent: %d %q %s", name, got.status, got.header.Get("Link"), got.body)
		}
	}
	b.orders(t, at, `{"to":"active","reason":"a mistake"}`, http.StatusConflict)
	for token, want := range map[string][3]string{deprecated.Token: {"active", "deprecated", ""}, drained.Token: {"deprecated", "draining", "true"}} {
		v, err := b.judge.Verify(t.Context(), token, ect.Check{Purpose: ect.Parent})
		must(t, err)
		ext := v.Claims().Ext
		if got := [3]string{text(ext, "aepb.from_state"), text(ext, "aepb.to_state"), string(ext["aepb.forced"])}; v.Act() != ect.ActLifecycleChange || v.Level() < ect.L2 || got != want {
			t.Errorf("%s says %v, want %v", v.Act(), got, want)
		}
	}
	b.counts(t, `aepb_ects_issued_total{act="aepb:lifecycle_change",level="L2"} 3`)
	b.counts(t, `aepb_ects_issued_total{act="aepb:shutdown",level="L2"} 1`)
	b.counts(t, `aepb_lifecycle_state{state="retired"} 1`)
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
			b := newBed(t, plan{serve: serve, config: config.Config{Admin: config.Admin{Operators: operators()}}})
			const at, forget = "/agents/members/lifecycle", `{"to":"active","reason":"a mistake","forget":true}`
			b.orders(t, at, forget, http.StatusConflict) // it is active
			b.orders(t, at, `{"to":"draining","reason":"a mistake","force":true}`, http.StatusOK)
			if r := b.orders(t, at, `{"to":"retired","reason":"a mistake","now":true}`, http.StatusOK); r.Status != "retired" || !strings.Contains(r.Warning, "for good now") {
				t.Errorf("%+v", r)
			}
			call := letter{at: "/agents/members/a2a", body: addBody(b.number())}
			if got := b.send(t, call); got.status != http.StatusGone {
				t.Errorf("retired: %d %s", got.status, got.body)
			}
			if serve {
				got := b.send(t, letter{via: b.caller(t, b.svid(t, operatorPath)), at: b.at.Admin + "/api" + at, body: forget})
				if got.status != http.StatusConflict || !strings.Contains(string(got.body), "under another name") {
					t.Errorf("forgotten under serve: %d %s", got.status, got.body)
				}
				return
			}
			r := b.orders(t, at, forget, http.StatusOK)
			v, err := b.judge.Verify(t.Context(), r.Token, ect.Check{Purpose: ect.Parent})
			must(t, err)
			if ext := v.Claims().Ext; text(ext, "aepb.from_state") != "retired" || text(ext, "aepb.to_state") != "active" {
				t.Errorf("the evidence says %v", ext)
			}
			if got := b.send(t, call); got.status != http.StatusOK {
				t.Errorf("forgotten: %d %s", got.status, got.body)
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
			b := newBed(t, plan{config: config.Config{Admin: config.Admin{Operators: operators()}}})
			entered, release := make(chan struct{}), make(chan struct{})
			b.serve(t, "slow", "mcp-v1", &fake{conduct: held(entered, release)}, host{})
			body := addBody(b.number())
			if background {
				body = strings.Replace(body, `"params":{`, `"params":{"configuration":{"returnImmediately":true},`, 1)
			}
			answer := make(chan reply, 1)
			go func() { answer <- b.send(t, letter{at: "/agents/slow/a2a", body: body}) }()
			<-entered
			for _, agent := range []string{"slow", "calculator"} {
				b.orders(t, "/agents/"+agent+"/lifecycle", `{"to":"draining","reason":"replaced","force":true,"now":true}`, http.StatusOK)
			}
			within(t, patience, "the agent without work is retired", func() bool { return b.gateway.Lifecycle.Record("calculator").Status == lifecycle.Retired })
			if r := b.gateway.Lifecycle.Record("slow"); r.Status != lifecycle.Draining {
				t.Errorf("it is %s while it works", r.Status)
			}
			close(release)
			if got := <-answer; got.status != http.StatusOK || !strings.Contains(string(got.body), `"result"`) {
				t.Errorf("the work under way: %d %s", got.status, got.body)
			}
			within(t, patience, "the agent is retired", func() bool { return b.gateway.Lifecycle.Record("slow").Status == lifecycle.Retired })
		})
	}
}

// TestLifecycle_StreamThatListens: a client that keeps the stream of its MCP session open, and asks nothing,
// does not keep an agent from its retirement.
func TestLifecycle_StreamThatListens(t *testing.T) {
	t.Parallel()
	b := newBed(t, plan{serve: true, config: config.Config{Admin: config.Admin{Operators: operators()}}})
	server := &listServer{changes: true}
	b.lists(t, "teller", server)
	via, _ := b.clientOf(t, "/listener")
	request := b.request(t, letter{method: http.MethodGet, at: "/agents/teller/mcp", media: "-", header: map[string]string{
		"Accept": "text/event-stream", "Mcp-Session-Id": b.initialize(t, via, "teller"), "Mcp-Protocol-Version": "2025-06-18",
	}})
	response, err := via.Do(request)
	must(t, err)
	defer func() { _ = response.Body.Close() }()
	if response.StatusCode != http.StatusOK {
		t.Fatalf("the stream: %s", response.Status)
	}
	b.orders(t, "/agents/teller/lifecycle", `{"to":"draining","reason":"replaced","force":true,"now":true}`, http.StatusOK)
	within(t, patience, "the agent is retired", func() bool { return b.gateway.Lifecycle.Record("teller").Status == lifecycle.Retired })
}

// TestLifecycle_OfTheGateway: the gateway's own document says how it stands, a gateway that drains takes no
// new work, and it is retired by itself when its work is over, with a signed end.
func TestLifecycle_OfTheGateway(t *testing.T) {
	t.Parallel()
	b := newBed(t, plan{config: config.Config{Admin: config.Admin{Operators: operators()}}})
	successor := b.heir(t)
	document := func() (status string) {
		var doc struct{ Lifecycle struct{ Status string } }
		must(t, json.Unmarshal(b.send(t, letter{method: http.MethodGet, at: "/.well-known/aepb"}).body, &doc))
		return doc.Lifecycle.Status
	}
	if got := document(); got != "active" {
		t.Errorf("at first it is %s", got)
	}
	entered, release := make(chan struct{}), make(chan struct{})
	b.serve(t, "slow", "mcp-v1", &fake{conduct: held(entered, release)}, host{})
	answer := make(chan reply, 1)
	go func() { answer <- b.send(t, letter{at: "/agents/slow/a2a", body: addBody(b.number())}) }()
	<-entered
	b.orders(t, "/lifecycle", `{"to":"draining","reason":"moved","successor":"`+successor+`","force":true,"now":true}`, http.StatusOK)
	if got := document(); got != "draining" {
		t.Errorf("the document says %s", got)
	}
	got := b.send(t, b.sealed(t, letter{body: addBody(b.number())}))
	if got.status != http.StatusServiceUnavailable || got.header.Get("Location") != successor || got.header.Get("Retry-After") == "" {
		t.Errorf("new work: %d %v", got.status, got.header)
	}
	within(t, patience, "it refuses", func() bool { return b.gateway.Lifecycle.Record("").Step == lifecycle.Refusing })
	close(release)
	if got := <-answer; got.status != http.StatusOK || !strings.Contains(string(got.body), `"result"`) {
		t.Errorf("the work under way: %d %s", got.status, got.body)
	}
	within(t, patience, "the gateway is retired", func() bool { return b.gateway.Lifecycle.Record("").Status == lifecycle.Retired })
	b.counts(t, `aepb_ects_issued_total{act="aepb:shutdown",level="L2"} 1`)
	b.counts(t, `aepb_ects_issued_total{act="aepb:lifecycle_change",level="L2"} 2`)
	if got := b.send(t, letter{method: http.MethodGet, at: "/.well-known/aepb"}); got.status != http.StatusGone || !strings.Contains(got.header.Get("Link"), "successor-version") {
		t.Errorf("the document of a retired gateway: %d %v", got.status, got.header)
	}
	for name, body := range map[string]string{"work": addBody(b.number()), "a task": `{"jsonrpc":"2.0","id":"1","method":"GetTask","params":{"id":"x"}}`} {
		if got := b.send(t, b.sealed(t, letter{body: body})); got.status != http.StatusGone {
			t.Errorf("%s at a retired gateway: %d %s", name, got.status, got.body)
		}
	}
}

// step is the next message of a workflow, to an agent.
func (b *bed) step(t *testing.T, who *ecttest.Party, via *http.Client, workflow, dest string, parents ...ect.ID) reply {
	t.Helper()
	body := addBody(b.number())
	token := ecttest.Mint(t, who, ecttest.Recipe{Claims: ect.Claims{
		Audience: []string{b.self()}, Workflow: workflow, Parents: parents, OutputHash: ect.Hash([]byte(body)),
	}})
	return b.send(t, letter{via: via, at: "/aepb/translate?from=a2a-v1&dest=" + dest, body: body, tokens: []string{token}})
}

// TestLifecycle_WorkflowUnderWay: what drains, an agent or the gateway, takes the next step of a workflow that
// had work there before, until its sunset, and no new workflow.
func TestLifecycle_WorkflowUnderWay(t *testing.T) {
	t.Parallel()
	for name, path := range map[string]string{"an agent": "/agents/calculator/lifecycle", "the gateway": "/lifecycle"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBed(t, plan{config: config.Config{Admin: config.Admin{Operators: operators()}}})
			first := b.proofs(t, b.send(t, b.sealed(t, letter{at: "/aepb/translate?from=a2a-v1&dest=calculator", body: addBody(b.number())})))
			last := first[len(first)-1]
			sunset := time.Now().Add(15 * time.Second).UTC().Format(time.RFC3339)
			b.orders(t, path, `{"to":"draining","reason":"moved","force":true,"now":true,"sunset_at":"`+sunset+`"}`, http.StatusOK)
			if got := b.step(t, b.me, b.client, last.Workflow, "calculator", last.ID); got.status != http.StatusOK {
				t.Errorf("the next step: %d %s", got.status, got.body)
			}
			if got := b.step(t, b.me, b.client, string(ect.NewID()), "calculator"); !strings.Contains(string(got.body), `"code":"draining"`) {
				t.Errorf("a new workflow: %d %s", got.status, got.body)
			}
			agent := strings.TrimSuffix(strings.TrimPrefix(strings.TrimSuffix(path, "/lifecycle"), "/agents/"), "/")
			within(t, 2*patience, "it is retired after its sunset", func() bool { return b.gateway.Lifecycle.Record(agent).Status == lifecycle.Retired })
			if r := b.gateway.Lifecycle.Record(agent); r.At.Before(r.SunsetAt) {
				t.Errorf("it was retired at %v, before its sunset at %v", r.At, r.SunsetAt)
			}
		})
	}
}

// TestAttack_WorkflowOfOthersDuringADrain: to name a workflow that is under way at an agent that drains, to have
// work at another agent, and to name the agent as audience of one's own token lets in no new work.
func TestAttack_WorkflowOfOthersDuringADrain(t *testing.T) {
	t.Parallel()
	b := newBed(t, plan{config: config.Config{Admin: config.Admin{Operators: operators()}}})
	b.serve(t, "other", "mcp-v1", &fake{conduct: well}, host{})
	a := b.attacker(t)
	at := func(dest string) ect.Claims {
		list := b.proofs(t, b.send(t, b.sealed(t, letter{at: "/aepb/translate?from=a2a-v1&dest=" + dest, body: addBody(b.number())})))
		return list[len(list)-1]
	}
	here, elsewhere := at("calculator"), at("other")
	b.orders(t, "/agents/calculator/lifecycle", `{"to":"draining","reason":"moved","force":true,"sunset_at":"2090-01-01T00:00:00Z"}`, http.StatusOK)
	for name, got := range map[string]reply{
		"a root in the workflow of others": b.step(t, a.party, a.client, here.Workflow, "calculator"),
		"a child of their token":           b.step(t, a.party, a.client, here.Workflow, "calculator", here.ID),
		"a workflow at another agent":      b.step(t, b.me, b.client, elsewhere.Workflow, "calculator", elsewhere.ID),
	} {
		if got.status != http.StatusForbidden && !strings.Contains(string(got.body), `"code":"draining"`) {
			t.Errorf("%s: %d %s", name, got.status, got.body)
		}
	}
	body, workflow := addBody(b.number()), string(ect.NewID())
	agent, _ := b.directory.Find("calculator")
	named := []string{b.self(), string(agent.ID)}
	for _, e := range agent.Endpoints {
		named = append(named, e.Audience("calculator"))
	}
	token := ecttest.Mint(t, b.me, ecttest.Recipe{Claims: ect.Claims{
		Audience: slices.DeleteFunc(named, func(s string) bool { return s == "" }), Workflow: workflow, OutputHash: ect.Hash([]byte(body)),
	}})
	first := b.proofs(t, b.send(t, letter{at: toNobody, body: body, tokens: []string{token}}))
	if got := b.step(t, b.me, b.client, workflow, "calculator", first[0].ID); !strings.Contains(string(got.body), `"code":"draining"`) {
		t.Errorf("a workflow that only names the agent: %d %s", got.status, got.body)
	}
}

// TestLifecycle_GatewayIsDeprecated: every answer of the gateway's own documents and endpoints, also a refusal,
// says that the gateway is deprecated; answers of agents say what holds of the agents.
func TestLifecycle_GatewayIsDeprecated(t *testing.T) {
	t.Parallel()
	b := newBed(t, plan{config: config.Config{Admin: config.Admin{Operators: operators()}}})
	successor := b.heir(t)
	b.orders(t, "/lifecycle", `{"to":"deprecated","reason":"moves","successor":"`+successor+`","sunset_at":"2031-01-01T00:00:00Z"}`, http.StatusOK)
	const own, none = "Wed, 01 Jan 2031 00:00:00 GMT", ""
	says := func(name string, l letter, sunset string) {
		t.Helper()
		got := b.send(t, l)
		if h := got.header; strings.HasPrefix(h.Get("Deprecation"), "@") != (sunset != none) || h.Get("Sunset") != sunset ||
			strings.Contains(h.Get("Link"), "<"+successor+`>; rel="successor-version"`) != (sunset != none) {
			t.Errorf("%s: %d Deprecation %q, Sunset %q, Link %q", name, got.status, h.Get("Deprecation"), h.Get("Sunset"), h.Get("Link"))
		}
	}
	for name, l := range map[string]letter{
		"translate":           b.sealed(t, letter{body: addBody(b.number())}),
		"CPAT translate":      b.sealed(t, letter{at: "/cpat/translate?from=a2a-v1&to=mcp-v1", body: addBody(b.number())}),
		"translate, refused":  {body: "{"},
		"by an agent":         b.sealed(t, letter{at: "/aepb/translate?from=a2a-v1&dest=calculator", body: addBody(b.number())}),
		"document":            {method: http.MethodGet, at: "/.well-known/aepb"},
		"CPAT document":       {method: http.MethodGet, at: "/.well-known/cpat"},
		"pairs":               {method: http.MethodGet, at: "/.well-known/aepb/gateway"},
		"without an identity": {via: b.anonymous, method: http.MethodGet, at: "/atd/breakers"},
		"rollback":            {at: "/atd/rollback", body: "{}"},
		"a token":             {method: http.MethodGet, at: "/ects/none"},
		"a workflow":          {method: http.MethodGet, at: "/workflows/none"},
		"callbacks":           {at: "/hitl/callbacks", body: "{}"},
		"a wrong method":      {method: http.MethodPut, at: "/.well-known/aepb"},
	} {
		says(name, l, own)
	}
	native := letter{at: doorA2A, body: addBody(b.number())}
	says("an agent's endpoint", native, none)
	b.orders(t, "/agents/calculator/lifecycle", `{"to":"deprecated","reason":"moves","successor":"`+successor+`","sunset_at":"2030-01-01T00:00:00Z"}`, http.StatusOK)
	const agents = "Tue, 01 Jan 2030 00:00:00 GMT"
	says("the endpoint of a deprecated agent", native, agents)
	says("by a deprecated agent", b.sealed(t, letter{at: "/aepb/translate?from=a2a-v1&dest=calculator", body: addBody(b.number())}), agents)
	b.orders(t, "/lifecycle", `{"to":"active","reason":"stays"}`, http.StatusOK)
	says("of an active gateway", letter{method: http.MethodGet, at: "/.well-known/aepb"}, none)
}

// TestAttack_LifecycleWithoutTheRole: callers, strangers and operators who may only look change no lifecycle.
func TestAttack_LifecycleWithoutTheRole(t *testing.T) {
	t.Parallel()
	b := newBed(t, plan{serve: true, noToken: true, config: config.Config{Admin: config.Admin{Operators: operators()}}})
	for name, via := range map[string]*http.Client{"a caller": b.client, "a stranger": b.anonymous, "a viewer": b.caller(t, b.svid(t, approverPath))} {
		for _, path := range []string{"/api/lifecycle", "/api/agents/calculator/lifecycle"} {
			got := b.send(t, letter{via: via, at: b.at.Admin + path, body: `{"to":"retired","reason":"because"}`})
			if got.status != http.StatusForbidden && got.status != http.StatusUnauthorized {
				t.Errorf("%s at %s: %d %s", name, path, got.status, got.body)
			}
		}
	}
	if r := b.gateway.Lifecycle.Record("calculator"); r.Term != 0 || b.gateway.Lifecycle.Record("").Term != 0 {
		t.Errorf("it was changed: %+v", r)
	}
}
