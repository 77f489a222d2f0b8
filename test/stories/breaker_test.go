package stories

import (
	"bufio"
	"encoding/json"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/gateway/config"
	gatewaytest "github.com/aepb/aepb-gateway/test/harness/gateway"
)

// failUntilOpen has two callers call an agent that fails until its breaker has opened.
func failUntilOpen(t *testing.T, b *gatewaytest.Fixture, agent string) {
	t.Helper()
	other := b.Caller(t, b.SVID(t, "/other"))
	for i := range 5 {
		call := gatewaytest.HTTPRequest{At: "/agents/" + agent + "/a2a", Body: gatewaytest.AddBody(b.Number())}
		if i%2 == 0 {
			call.Via = other
		}
		if got := b.Send(t, call); got.Status == http.StatusServiceUnavailable {
			t.Fatalf("refused before five failures: %d %s", got.Status, got.Body)
		}
	}
}

// TestBreaker_AnswersOfEveryProtocol: an agent that fails is left alone, and each protocol's own
// answer says when to come back; other agents are called as before.
func TestBreaker_AnswersOfEveryProtocol(t *testing.T) {
	t.Parallel()
	b := gatewaytest.NewFixture(t, gatewaytest.Plan{})
	b.Serve(t, "down", "mcp-v1", &gatewaytest.Fake{Conduct: gatewaytest.HangsUp}, gatewaytest.Host{})
	failUntilOpen(t, b, "down")
	for name, c := range map[string]struct {
		call gatewaytest.HTTPRequest
		want []string
	}{
		"A2A":       {gatewaytest.HTTPRequest{At: "/agents/down/a2a", Body: gatewaytest.AddBody(b.Number())}, []string{"circuit_open", `"retryDelay":"`}},
		"MCP":       {gatewaytest.HTTPRequest{At: "/agents/down/mcp", Body: gatewaytest.CallBody("add", "x"), Header: map[string]string{"Accept": "application/json, text/event-stream", "MCP-Protocol-Version": "2026-07-28", "Mcp-Method": "tools/call", "Mcp-Name": "add"}}, []string{"circuit_open", `"retryAfterMs":`}},
		"translate": {b.Sealed(t, gatewaytest.HTTPRequest{At: "/aepb/translate?from=a2a-v1&dest=down", Body: gatewaytest.AddBody(b.Number())}), []string{`"code":"circuit_open"`}},
	} {
		got := b.Send(t, c.call)
		for _, want := range c.want {
			if !strings.Contains(string(got.Body), want) {
				t.Errorf("%s: no %s in %d %s", name, want, got.Status, got.Body)
			}
		}
		if got.Header.Get("Retry-After") == "" {
			t.Errorf("%s: no Retry-After in %v", name, got.Header)
		}
	}
	if got := b.Send(t, gatewaytest.HTTPRequest{At: gatewaytest.EndpointA2A, Body: gatewaytest.AddBody(b.Number())}); got.Status != http.StatusOK || !strings.Contains(string(got.Body), "result") {
		t.Errorf("another agent: %d %s", got.Status, got.Body)
	}
	b.Counts(t, `aepb_breaker_state{agent="down"} 2`)
	b.Counts(t, `aepb_breaker_transitions_total{agent="down",to="open"} 1`)
	b.Counts(t, `aepb_ects_issued_total{act="atd:circuit_open",level="L2"} 1`)
}

// TestBreaker_RefusalUsesNothingUp: what is refused while a breaker is open leaves one sample, and no
// token of its own: its caller sends the same bytes with the same ECT again when the agent is back.
func TestBreaker_RefusalUsesNothingUp(t *testing.T) {
	t.Parallel()
	var ahead atomic.Int64
	b := gatewaytest.NewFixture(t, gatewaytest.Plan{Config: config.Config{Admin: config.Admin{Operators: operators()}}, Clock: func() time.Time { return time.Now().Add(time.Duration(ahead.Load())) }})
	var works atomic.Bool
	b.Serve(t, "down", "mcp-v1", &gatewaytest.Fake{Conduct: func(w http.ResponseWriter, r *http.Request, good []byte) {
		if !works.Load() {
			gatewaytest.HangsUp(w, r, good)
		}
		gatewaytest.Well(w, r, good)
	}}, gatewaytest.Host{})
	orders(t, b, "/agents/down/lifecycle", `{"to":"deprecated","reason":"replaced","successor":"`+heir(t, b)+`"}`, http.StatusOK)
	failUntilOpen(t, b, "down")
	b.Counts(t, `aepb_ects_issued_total{act="aepb:translate_error",level="L2"} 5`)
	again := b.Sealed(t, gatewaytest.HTTPRequest{At: "/aepb/translate?from=a2a-v1&dest=down", Body: gatewaytest.AddBody(b.Number())})
	for range 4 {
		if got := b.Send(t, again); got.Status != http.StatusServiceUnavailable || got.Header.Get("Deprecation") == "" || got.Header.Get(ect.HeaderName) != "" {
			t.Errorf("%d %s with %v", got.Status, got.Body, got.Header)
		}
	}
	b.Counts(t, `aepb_ects_issued_total{act="aepb:translate_error",level="L2"} 6`)
	works.Store(true)
	ahead.Store(int64(31 * time.Second))
	if got := b.Send(t, again); got.Status != http.StatusOK || !strings.Contains(string(got.Body), "TASK_STATE_COMPLETED") {
		t.Errorf("when it is back: %d %s", got.Status, got.Body)
	}
}

// TestBreaker_GoodAnswersCount: failures among good answers, no five in a row, open nothing; five in a row
// of one caller have it alone refused, in the words of its protocol.
func TestBreaker_GoodAnswersCount(t *testing.T) {
	t.Parallel()
	b := gatewaytest.NewFixture(t, gatewaytest.Plan{})
	var fails atomic.Bool
	b.Serve(t, "shaky", "mcp-v1", &gatewaytest.Fake{Conduct: func(w http.ResponseWriter, r *http.Request, good []byte) {
		if fails.Load() {
			gatewaytest.HangsUp(w, r, good)
		}
		gatewaytest.Well(w, r, good)
	}}, gatewaytest.Host{})
	call := func() gatewaytest.Reply {
		return b.Send(t, gatewaytest.HTTPRequest{At: "/agents/shaky/a2a", Body: gatewaytest.AddBody(b.Number())})
	}
	for range 3 {
		if got := call(); !strings.Contains(string(got.Body), `"result"`) {
			t.Fatalf("a good call: %d %s", got.Status, got.Body)
		}
		fails.Store(true)
		for range 4 {
			call()
		}
		fails.Store(false)
	}
	if got := call(); !strings.Contains(string(got.Body), `"result"`) {
		t.Errorf("four in a row have failed: %d %s", got.Status, got.Body)
	}
	fails.Store(true)
	for range 5 {
		call()
	}
	if got := call(); !strings.Contains(string(got.Body), "circuit_open") || !strings.Contains(string(got.Body), "only yours are refused") {
		t.Errorf("five in a row have failed: %d %s", got.Status, got.Body)
	}
}

// TestBreaker_WatchedByOperators: operators list and watch breakers, with the token of each change; a
// caller without a role, and one without a certificate, learn nothing.
func TestBreaker_WatchedByOperators(t *testing.T) {
	t.Parallel()
	b := gatewaytest.NewFixture(t, gatewaytest.Plan{Config: config.Config{Policy: config.Policy{CircuitSamples: 2}}})
	b.Serve(t, "down", "mcp-v1", &gatewaytest.Fake{Conduct: gatewaytest.HangsUp}, gatewaytest.Host{})
	operator := b.Caller(t, b.SVID(t, gatewaytest.ApproverPath))
	stream := open(t, b, operator)
	for _, via := range []*http.Client{nil, operator} {
		b.Send(t, gatewaytest.HTTPRequest{Via: via, At: "/agents/down/a2a", Body: gatewaytest.AddBody(b.Number())})
	}
	var event struct{ Agent, State, ECT string }
	gatewaytest.Must(t, json.Unmarshal([]byte(gatewaytest.NextData(t, stream)), &event))
	if event.Agent != "down" || event.State != "open" {
		t.Errorf("watched %+v", event)
	}
	claims, err := b.Judge.Verify(t.Context(), event.ECT, ect.Check{Purpose: ect.Parent})
	if err != nil || claims.Act() != ect.ActCircuitOpen || claims.Level() < ect.L2 {
		t.Errorf("the token of the change: %v, %v", claims, err)
	}
	defer func() { // a gateway that stops ends the stream, and does not wait for its reader
		b.End()
		for stream.Scan() {
			continue
		}
		if err := stream.Err(); err != nil {
			t.Errorf("the stream of a gateway that stops: %v", err)
		}
	}()
	var list struct {
		Breakers []struct{ Agent, State string }
	}
	gatewaytest.Must(t, json.Unmarshal(b.Send(t, gatewaytest.HTTPRequest{Via: operator, Method: http.MethodGet, At: b.At.Admin + "/api/breakers"}).Body, &list))
	if len(list.Breakers) != 1 || list.Breakers[0].Agent != "down" || list.Breakers[0].State != "open" {
		t.Errorf("listed are %+v", list)
	}
}

// TestAttack_BreakersShowTheHealthOfAgents: what circuit breakers reveal is for operators and peers (ATD,
// Circuit Breaker State Leakage).
func TestAttack_BreakersShowTheHealthOfAgents(t *testing.T) {
	t.Parallel()
	b := gatewaytest.NewFixture(t, gatewaytest.Plan{Serve: true, NoToken: true})
	for name, c := range map[string]struct {
		call   gatewaytest.HTTPRequest
		status int
	}{
		"a caller":                       {gatewaytest.HTTPRequest{Method: http.MethodGet, At: "/atd/breakers"}, http.StatusForbidden},
		"a stranger":                     {gatewaytest.HTTPRequest{Via: b.Anonymous, Method: http.MethodGet, At: "/atd/breakers"}, http.StatusUnauthorized},
		"a caller at the admin listener": {gatewaytest.HTTPRequest{Method: http.MethodGet, At: b.At.Admin + "/api/breakers"}, http.StatusForbidden},
	} {
		if got := b.Send(t, c.call); got.Status != c.status {
			t.Errorf("%s: %d %s", name, got.Status, got.Body)
		}
	}
}

// open begins to watch the breakers.
func open(t *testing.T, b *gatewaytest.Fixture, via *http.Client) *bufio.Scanner {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, b.At.Public+"/atd/breakers", http.NoBody)
	gatewaytest.Must(t, err)
	response, err := via.Do(req)
	gatewaytest.Must(t, err)
	t.Cleanup(func() { _ = response.Body.Close() })
	if response.StatusCode != http.StatusOK || response.Header.Get("Content-Type") != "text/event-stream" {
		t.Fatalf("%s %s", response.Status, response.Header.Get("Content-Type"))
	}
	return bufio.NewScanner(response.Body)
}
