package gateway_test

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/ect/identity"
	"github.com/aepb/aepb-gateway/gateway"
	"github.com/aepb/aepb-gateway/gateway/problem"
	"github.com/aepb/aepb-gateway/gateway/state"
	"github.com/aepb/aepb-gateway/gateway/transport"
	"github.com/aepb/aepb-gateway/gateway/transport/transporttest"
	"github.com/aepb/aepb-gateway/policy"
	"github.com/aepb/aepb-gateway/policy/limit"
	"github.com/aepb/aepb-gateway/translators/canonical"
)

// limiting is a gateway whose callers ask its limit before each request, as every server
// side does.
type limiting struct{ *gateway.Gateway }

func (g limiting) Exchange(ctx context.Context, call transport.Call) (_ transport.Answer, err error) {
	if call.Pass, err = g.pass(ctx, call.Pass, transport.CallInfo{Agent: call.Agent, Caller: call.Caller, Address: call.Address}); err != nil {
		return transport.Answer{}, err
	}
	return g.Gateway.Exchange(ctx, call)
}

func (g limiting) Admit(ctx context.Context, q transport.CallInfo) (err error) {
	if q.Pass, err = g.pass(ctx, q.Pass, q); err != nil {
		return err
	}
	return g.Gateway.Admit(ctx, q)
}

func (g limiting) Describe(ctx context.Context, q transport.CallInfo) (_ *canonical.Description, err error) {
	if q.Pass, err = g.pass(ctx, q.Pass, q); err != nil {
		return nil, err
	}
	return g.Gateway.Describe(ctx, q)
}

func (g limiting) pass(ctx context.Context, given limit.Pass, q transport.CallInfo) (limit.Pass, error) {
	if given.Valid() {
		return given, nil
	}
	return g.Limit(ctx, q)
}

// watched is a store that remembers what was recorded, and can fail.
type watched struct {
	ect.Store
	fail   error
	tokens []ect.Claims
}

func (w *watched) Put(ctx context.Context, r ect.Record) error {
	if w.fail != nil {
		return w.fail
	}
	c, _, err := ect.ParseUnverified(r.Compact)
	if err == nil && c.Act == ect.ActTranslateError {
		w.tokens = append(w.tokens, c)
	}
	return errors.Join(err, w.Store.Put(ctx, r))
}

// newWatched is a bed whose recorder writes to a watched store.
func newWatched(t *testing.T) (*fixture, *watched) {
	t.Helper()
	b := newFixture(t, gateway.Settings{Version: "1.2.3"}, policy.Rules{Open: true})
	w := &watched{Store: b.memory}
	deps := b.Deps
	var err error
	if deps.Recorder, err = ect.NewRecorder(ect.RecorderDeps{Store: w}); err != nil {
		t.Fatal(err)
	}
	if b.Gateway, err = gateway.New(gateway.Settings{Version: "1.2.3"}, deps); err != nil {
		t.Fatal(err)
	}
	return b, w
}

// exhaust takes what the limit of a bed lets through.
func (b *fixture) exhaust(t *testing.T, q transport.CallInfo) {
	t.Helper()
	for range 100 {
		if pass, err := b.Limit(t.Context(), q); err != nil || !pass.Valid() {
			t.Fatal(err)
		}
	}
}

// flood is refused n times.
func (b *fixture) flood(t *testing.T, q transport.CallInfo, n int) {
	t.Helper()
	for range n {
		var exceeded *limit.ExceededError
		if pass, err := b.Limit(t.Context(), q); !errors.As(err, &exceeded) || pass.Valid() {
			t.Fatalf("got %v", err)
		}
	}
}

// refusals adds up what the tokens say for a caller.
func (w *watched) refusals(t *testing.T, caller ect.Identity) (sum int) {
	t.Helper()
	for _, c := range w.tokens {
		if text, _ := c.Ext.String(ect.ExtCaller); text != string(caller) {
			continue
		}
		n, err := strconv.Atoi(string(c.Ext[ect.ExtRefusals]))
		if err != nil {
			t.Fatal(err)
		}
		sum += n
	}
	return sum
}

// A flood leaves one ECT a second with how many were refused; the rest is told
// at the end. The metric counts each (architecture section 5).
func TestRefusals_SampledOncePerSecond(t *testing.T) {
	t.Parallel()
	b, w := newWatched(t)
	q := transport.CallInfo{Agent: "calculator", Caller: identity.Caller{Peer: b.caller.Peer()}, Address: "192.0.2.1"}
	b.exhaust(t, q)
	b.flood(t, q, 500)
	if len(w.tokens) != 1 || w.refusals(t, b.caller.ID) != 1 {
		t.Fatalf("the first second: %d tokens", len(w.tokens))
	}
	began := b.now()
	b.setNow(b.now().Add(time.Second))
	b.exhaust(t, q) // a second's worth
	b.flood(t, q, 7)
	if len(w.tokens) != 2 || w.refusals(t, b.caller.ID) != 501 {
		t.Fatalf("the second second: %d tokens, %d refusals", len(w.tokens), w.refusals(t, b.caller.ID))
	}
	if err := b.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	if len(w.tokens) != 3 || w.refusals(t, b.caller.ID) != 507 {
		t.Fatalf("in all: %d tokens, %d refusals", len(w.tokens), w.refusals(t, b.caller.ID))
	}
	c := w.tokens[1]
	for key, want := range map[string]string{
		ect.ExtRefusal: `"rate_limited"`, ect.ExtError: `"internal_error"`, ect.ExtRefusedSince: strconv.FormatInt(began.Unix(), 10),
		ect.ExtAgentVersion: `"1.2.3"`, ect.ExtGatewayID: `"` + string(b.self.ID) + `"`,
	} {
		if got := string(c.Ext[key]); got != want {
			t.Errorf("%s: got %s, want %s", key, got, want)
		}
	}
	if len(c.Parents) > 0 || c.InputHash != "" || c.Workflow != "" || len(c.Audience) != 2 {
		t.Errorf("a sample testifies to no message: %+v", c)
	}
	metrics := httptest.NewRecorder()
	b.Metrics.Handler().ServeHTTP(metrics, httptest.NewRequestWithContext(t.Context(), "GET", "/metrics", nil))
	for _, line := range []string{
		`aepb_rate_limited_total{scope="identity"} 507`, `aepb_ects_issued_total{act="aepb:translate_error",level="L2"} 3`,
	} {
		if !strings.Contains(metrics.Body.String(), line) {
			t.Errorf("no %s", line)
		}
	}
}

// Whoever has no identity is counted by address, which no token names.
func TestRefusals_AnonymousCountedByAddress(t *testing.T) {
	t.Parallel()
	b, w := newWatched(t)
	q := transport.CallInfo{Caller: identity.Caller{Peer: ect.Peer{ID: "spiffe://example.com/anonymous"}, Anonymous: true}, Address: "192.0.2.77"}
	b.exhaust(t, q)
	b.flood(t, q, 3)
	if len(w.tokens) != 1 || len(w.tokens[0].Audience) != 1 {
		t.Fatalf("%+v", w.tokens)
	}
	for key, value := range w.tokens[0].Ext {
		if strings.Contains(string(value), "192.0.2.77") || key == ect.ExtCaller {
			t.Errorf("%s: %s", key, value)
		}
	}
}

// A count that cannot be recorded waits for the next sample.
func TestRefusals_FailedRecordWaitsForNextSample(t *testing.T) {
	t.Parallel()
	b, w := newWatched(t)
	q := transport.CallInfo{Caller: identity.Caller{Peer: b.caller.Peer()}}
	b.exhaust(t, q)
	w.fail = errors.New("full")
	b.flood(t, q, 5)
	if err := b.Flush(t.Context()); err == nil {
		t.Error("a failed end was not reported")
	}
	w.fail = nil
	if err := b.Flush(t.Context()); err != nil || w.refusals(t, b.caller.ID) != 5 {
		t.Errorf("%d refusals, %v", w.refusals(t, b.caller.ID), err)
	}
}

// Without the Pass of its request nothing is answered, and with one the limit is not asked
// again.
func TestPass_IsDemandedAndEnough(t *testing.T) {
	t.Parallel()
	b := newFixture(t, gateway.Settings{}, policy.Rules{Open: true})
	g := b.Gateway // which asks nothing by itself
	ask := func(pass limit.Pass) map[string]error {
		call := b.a2aCall("SendMessage", `{"message":{"messageId":"m1","role":"ROLE_USER","parts":[{"data":{"skill":"add","input":{"a":1,"b":2}}}]}}`)
		q := transport.CallInfo{Agent: "calculator", Caller: call.Caller, Binding: "a2a-v1", Pass: pass}
		call.Pass = pass
		_, exchanged := g.Exchange(t.Context(), call)
		_, described := g.Describe(t.Context(), q)
		return map[string]error{"exchange": exchanged, "describe": described, "admit": g.Admit(t.Context(), q)}
	}
	for what, err := range ask(limit.Pass{}) {
		if p := problem.From(err); !errors.Is(err, limit.ErrNoPass) || p.Code != problem.CodeInternal || p.Status != http.StatusInternalServerError {
			t.Errorf("%s without a Pass: %v", what, err)
		}
	}
	q := transport.CallInfo{Caller: b.call("").Caller}
	pass, err := b.Limit(t.Context(), q)
	if err != nil || !pass.Valid() {
		t.Fatal(err)
	}
	for range 99 { // all that is left: what was refused took nothing
		if _, err := b.Limit(t.Context(), q); err != nil {
			t.Fatal(err)
		}
	}
	b.flood(t, q, 1)
	for what, err := range ask(pass) {
		if err != nil {
			t.Errorf("%s with a Pass: %v", what, err)
		}
	}
}

// Whoever is not identified is nobody's caller, whatever door forgot to look.
func TestGateway_UnauthenticatedCallersRefused(t *testing.T) {
	t.Parallel()
	b := newFixture(t, gateway.Settings{}, policy.Rules{Open: true})
	ctx := transport.WithoutCaller(t.Context(), &problem.UnauthenticatedError{}, "192.0.2.1")
	call := b.call(addBody)
	call.Caller = transport.CallerFrom(ctx)
	q := transport.CallInfoFrom(ctx, "calculator", "a2a-v1")
	_, exchanged := b.Exchange(ctx, call)
	_, described := b.Describe(ctx, q)
	_, limited := b.Limit(ctx, q)
	for name, err := range map[string]error{"exchange": exchanged, "describe": described, "admit": b.Admit(ctx, q), "limit": limited} {
		if problem.From(err).Code != "unauthenticated" {
			t.Errorf("%s: %v", name, err)
		}
	}
	call.Pass, _ = transporttest.Pass(nil)
	if _, err := b.Exchange(ctx, call); problem.From(err).Code != "forbidden" {
		t.Errorf("a door with the Pass of another request: %v", err)
	}
}

// Admit is for callers of the agent.
func TestAdmit_OnlyCallersOfTheAgent(t *testing.T) {
	t.Parallel()
	b := newFixture(t, gateway.Settings{}, policy.Rules{Callers: []string{"spiffe://example.com/client#task.get"}})
	for name, tc := range map[string]struct {
		caller, agent, code string
	}{
		"a caller":         {"spiffe://example.com/client", "calculator", ""},
		"somebody":         {"spiffe://example.com/else", "calculator", "forbidden"},
		"an unknown agent": {"spiffe://example.com/client", "nobody", "unknown_agent"},
	} {
		q := transport.CallInfo{Agent: tc.agent, Caller: identity.Caller{Peer: ect.Peer{ID: ect.Identity(tc.caller)}}}
		if err := b.Admit(t.Context(), q); (err == nil) != (tc.code == "") || err != nil && problem.From(err).Code != tc.code {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// What stands in the way of our own evidence is said as it is of a caller's: a caller
// over its share is told so, and no caller is told that the gateway cannot record.
func TestEvidence_RecordingFailureStatus(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		fail   error
		status int
		code   string
	}{
		"own share":           {&state.FullError{What: "tokens", Own: true}, http.StatusTooManyRequests, problem.CodeRateLimited},
		"all shares":          {&state.FullError{What: "tokens"}, http.StatusServiceUnavailable, problem.CodeUnavailable},
		"another's workflow":  {&ect.ForeignRootError{ID: "x"}, http.StatusForbidden, problem.CodeECTInvalid},
		"an id that is taken": {&ect.ConflictError{ID: "x"}, http.StatusForbidden, problem.CodeECTInvalid},
		"a broken disk":       {errors.New("disk"), http.StatusServiceUnavailable, problem.CodeUnavailable},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b, w := newWatched(t)
			w.fail = c.fail
			_, err := b.Exchange(t.Context(), b.a2aCall("SendMessage", `{"message":{"messageId":"m1","role":"ROLE_USER","parts":[{"data":{"skill":"add","input":{"a":1,"b":2}}}]}}`))
			if p := problem.From(err); p.Status != c.status || p.Code != c.code {
				t.Errorf("got %d %s, want %d %s: %v", p.Status, p.Code, c.status, c.code, err)
			}
		})
	}
}
