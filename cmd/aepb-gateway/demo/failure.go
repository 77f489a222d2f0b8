package demo

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"github.com/aepb/aepb-gateway/ect"
)

// cooldown is the first one of a circuit breaker (ATD, Circuit Breaker Pattern).
const cooldown = 30 * time.Second

// PlayFailure breaks an agent and mends it, then retires it, shows what its callers are
// told, and verifies the evidence of each change.
func (s *Stage) PlayFailure(ctx context.Context, with Scene) error {
	f := s.open(with)
	f.say("1. The calculator, an MCP server, breaks: it answers a call with 500, and takes no connection after it.")
	f.card(ctx, http.StatusOK) // so that it is known what the agent can do
	s.tools.Break(true)
	f.call(ctx, http.StatusInternalServerError) // which its caller may have caused
	for range 5 {
		f.call(ctx, http.StatusServiceUnavailable)
	}
	f.breaker(ctx, "open", ect.ActCircuitOpen)
	f.call(ctx, http.StatusServiceUnavailable, "Retry-After")

	f.say("2. It is mended. The clock of the circuit breakers is put ahead by the cool-down of %s, and the next call is the probe.", cooldown)
	s.tools.Break(false)
	f.Ahead(cooldown)
	f.call(ctx, http.StatusOK)
	f.breaker(ctx, "closed", ect.ActCircuitClose)

	f.say("3. An operator deprecates it: it works on, and all its answers say so.")
	sunset := time.Now().AddDate(0, 1, 0).UTC().Format(time.RFC3339)
	f.order(ctx, `{"to":"deprecated","reason":"replaced","successor":"`+s.tools.DocumentURL()+`","sunset_at":"`+sunset+`"}`)
	f.call(ctx, http.StatusOK, "Deprecation", "Sunset", "Link")

	f.say("4. The operator drains it, and cuts the 24 hours of notice short: it takes no new work. The ten minutes before")
	f.say("   its end, in which that can be taken back, are skipped by the same order.")
	f.order(ctx, `{"to":"draining","reason":"replaced","force":true,"now":true}`)
	f.call(ctx, http.StatusServiceUnavailable, "Retry-After", "Location")

	f.say("5. When no work is left for it, it is retired by itself, for good. This takes about 8 seconds.")
	f.evidence(ctx, ect.ActShutdown)
	f.evidence(ctx, ect.ActLifecycleChange)
	f.card(ctx, http.StatusGone, "Link")

	f.prove(ctx)
	return f.err
}

// call is one of a caller that speaks A2A over HTTP+JSON.
func (f *scene) call(ctx context.Context, status int, headers ...string) {
	const message = `{"message":{"messageId":"m1","role":"ROLE_USER","parts":[{"data":{"skill":"add","input":{"a":3,"b":1}}}]}}`
	f.answered(ctx, http.MethodPost, "/message:send", message, status, headers)
}

func (f *scene) card(ctx context.Context, status int, headers ...string) {
	f.answered(ctx, http.MethodGet, "/.well-known/agent-card.json", "", status, headers)
}

// answered shows what a caller gets, all of it where work is refused for a time. It must have
// the headers.
func (f *scene) answered(ctx context.Context, method, path, body string, status int, headers []string) {
	got, header := f.send(ctx, method, f.stage.publicURL+"/agents/calculator/a2a"+path, body, status)
	if status != http.StatusServiceUnavailable {
		got = []byte(shorten(string(got)))
	}
	f.say("   %d %s %s", status, http.StatusText(status), got)
	for _, name := range headers {
		f.say("      %s: %s", name, header.Get(name))
		if f.err == nil && header.Get(name) == "" {
			f.err = fmt.Errorf("%s is answered without %s", path, name)
		}
	}
}

// breaker shows how the circuit breaker stands, which must be so, and the evidence of it.
func (f *scene) breaker(ctx context.Context, state string, act ect.Act) {
	got, _ := f.send(ctx, http.MethodGet, f.Admin+"/api/breakers", "", http.StatusOK)
	if f.err == nil && !contains(got, `"state":"`+state+`"`) {
		f.err = fmt.Errorf("the circuit breakers are %s, expected that one is %s", shorten(string(got)), state)
	}
	f.say("   the breaker is %s", state)
	f.evidence(ctx, act)
}

// order has the operator change the lifecycle of the agent.
func (f *scene) order(ctx context.Context, order string) {
	f.send(ctx, http.MethodPost, f.Admin+"/api/agents/calculator/lifecycle", order, http.StatusOK)
	f.evidence(ctx, ect.ActLifecycleChange)
}
