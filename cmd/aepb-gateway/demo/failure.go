package demo

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/aepb/aepb-gateway/ect"
)

// cooldown is the first one of a circuit breaker (ATD, Circuit Breaker Pattern).
const cooldown = 30 * time.Second

// Failure is what the scene of an agent that fails takes beside a stage.
type Failure struct {
	Admin, Token string              // URL of the admin listener, and what makes an operator there
	Ahead        func(time.Duration) // puts the clock of the circuit breakers ahead
	Recorded     <-chan string       // every ECT that the gateway records
	Out          io.Writer           // is told what happens
}

// failure is that scene while it is played. After the first error nothing more happens.
type failure struct {
	Failure
	stage  *Stage
	client *http.Client
	tokens []string // evidence of what has happened to the agent
	err    error
}

// PlayFailure breaks an agent and mends it, then retires it, shows what its callers are
// told, and verifies the evidence of each change.
func (s *Stage) PlayFailure(ctx context.Context, with Failure) error {
	client, err := s.newTape()
	f := &failure{Failure: with, stage: s, client: &http.Client{Transport: client}, err: err}
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

	f.say("4. The operator drains it, and cuts the 24 hours of notice short: it takes no new work.")
	f.order(ctx, `{"to":"draining","reason":"replaced","force":true}`)
	f.call(ctx, http.StatusServiceUnavailable, "Retry-After", "Location")

	f.say("5. When no work is left for it, it is retired by itself. This takes about 8 seconds.")
	f.evidence(ctx, ect.ActShutdown)
	f.evidence(ctx, ect.ActLifecycleChange)
	f.card(ctx, http.StatusGone, "Link")

	f.prove(ctx)
	return f.err
}

func (f *failure) say(format string, args ...any) {
	if f.err == nil {
		_, f.err = fmt.Fprintf(f.Out, format+"\n", args...)
	}
}

// call is one of a caller that speaks A2A over HTTP+JSON.
func (f *failure) call(ctx context.Context, status int, headers ...string) {
	const message = `{"message":{"messageId":"m1","role":"ROLE_USER","parts":[{"data":{"skill":"add","input":{"a":3,"b":1}}}]}}`
	f.answered(ctx, http.MethodPost, "/message:send", message, status, headers)
}

func (f *failure) card(ctx context.Context, status int, headers ...string) {
	f.answered(ctx, http.MethodGet, "/.well-known/agent-card.json", "", status, headers)
}

// answered shows what a caller gets, all of it where work is refused for a time. It must have
// the headers.
func (f *failure) answered(ctx context.Context, method, path, body string, status int, headers []string) {
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
func (f *failure) breaker(ctx context.Context, state string, act ect.Act) {
	got, _ := f.send(ctx, http.MethodGet, f.Admin+"/api/breakers", "", http.StatusOK)
	if f.err == nil && !contains(got, `"state":"`+state+`"`) {
		f.err = fmt.Errorf("the circuit breakers are %s, expected that one is %s", shorten(string(got)), state)
	}
	f.say("   the breaker is %s", state)
	f.evidence(ctx, act)
}

// order has the operator change the lifecycle of the agent.
func (f *failure) order(ctx context.Context, order string) {
	f.send(ctx, http.MethodPost, f.Admin+"/api/agents/calculator/lifecycle", order, http.StatusOK)
	f.evidence(ctx, ect.ActLifecycleChange)
}

// send is a request that must be answered with the status.
func (f *failure) send(ctx context.Context, method, url, body string, status int) (answer []byte, header http.Header) {
	if f.err != nil {
		return nil, nil
	}
	r, err := http.NewRequestWithContext(ctx, method, url, strings.NewReader(body))
	if f.err = err; err != nil {
		return nil, nil
	}
	r.Header.Set("Content-Type", "application/json")
	if strings.HasPrefix(url, f.Admin) {
		r.Header.Set("Authorization", "Bearer "+f.Token)
	}
	got, err := f.client.Do(r)
	if f.err = err; err != nil {
		return nil, nil
	}
	answer, err = io.ReadAll(got.Body)
	if f.err = errors.Join(err, got.Body.Close()); f.err == nil && got.StatusCode != status {
		f.err = fmt.Errorf("%s is answered with %s %s, expected %d", url, got.Status, shorten(string(answer)), status)
	}
	return answer, got.Header
}

// evidence waits until the next token of this act is recorded, and shows what it says.
func (f *failure) evidence(ctx context.Context, act ect.Act) {
	for f.err == nil {
		select {
		case token := <-f.Recorded:
			claims, _, err := ect.ParseUnverified(token)
			if err != nil || claims.Act != act {
				continue
			}
			ext, err := json.Marshal(claims.Ext)
			f.err = err
			f.say("   ● %s %s", act, ext)
			f.tokens = append(f.tokens, token)
			return
		case <-ctx.Done():
			f.err = fmt.Errorf("no %s was recorded: %w", act, ctx.Err())
		}
	}
}

// prove verifies the evidence offline, as is possible to all who have the trust bundle.
func (f *failure) prove(ctx context.Context) {
	if f.err != nil {
		return
	}
	verified, err := f.stage.verify(ctx, f.tokens)
	for _, claims := range verified {
		f.say("● %-21s  jti %s  verified", claims.Act, claims.ID)
	}
	f.err = errors.Join(f.err, err)
	f.say("All %d ECTs of the scene verified against the trust bundle.", len(verified))
}
