package main

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
)

// failUntilOpen has two callers call an agent that fails until its breaker has opened.
func (b *bed) failUntilOpen(t *testing.T, agent string) {
	t.Helper()
	other := b.caller(t, b.svid(t, "/other"))
	for i := range 5 {
		call := letter{at: "/agents/" + agent + "/a2a", body: addBody(b.number())}
		if i%2 == 0 {
			call.via = other
		}
		if got := b.send(t, call); got.status == http.StatusServiceUnavailable {
			t.Fatalf("refused before five failures: %d %s", got.status, got.body)
		}
	}
}

// TestBreaker_AnswersOfEveryProtocol: an agent that fails is left alone, and each protocol's own
// answer says when to come back; other agents are called as before.
func TestBreaker_AnswersOfEveryProtocol(t *testing.T) {
	t.Parallel()
	b := newBed(t, plan{})
	b.serve(t, "down", "mcp-v1", &fake{conduct: hangsUp}, host{})
	b.failUntilOpen(t, "down")
	for name, c := range map[string]struct {
		call letter
		want []string
	}{
		"A2A":       {letter{at: "/agents/down/a2a", body: addBody(b.number())}, []string{"circuit_open", `"retryDelay":"`}},
		"MCP":       {letter{at: "/agents/down/mcp", body: callBody("add", "x"), header: map[string]string{"Accept": "application/json, text/event-stream", "MCP-Protocol-Version": "2026-07-28", "Mcp-Method": "tools/call", "Mcp-Name": "add"}}, []string{"circuit_open", `"retryAfterMs":`}},
		"translate": {b.sealed(t, letter{at: "/aepb/translate?from=a2a-v1&dest=down", body: addBody(b.number())}), []string{`"code":"circuit_open"`}},
	} {
		got := b.send(t, c.call)
		for _, want := range c.want {
			if !strings.Contains(string(got.body), want) {
				t.Errorf("%s: no %s in %d %s", name, want, got.status, got.body)
			}
		}
		if got.header.Get("Retry-After") == "" {
			t.Errorf("%s: no Retry-After in %v", name, got.header)
		}
	}
	if got := b.send(t, letter{at: doorA2A, body: addBody(b.number())}); got.status != http.StatusOK || !strings.Contains(string(got.body), "result") {
		t.Errorf("another agent: %d %s", got.status, got.body)
	}
	b.counts(t, `aepb_breaker_state{agent="down"} 2`)
	b.counts(t, `aepb_breaker_transitions_total{agent="down",to="open"} 1`)
	b.counts(t, `aepb_ects_issued_total{act="atd:circuit_open",level="L2"} 1`)
}

// TestBreaker_RefusalUsesNothingUp: what is refused while a breaker is open leaves one sample, and no
// token of its own: its caller sends the same bytes with the same ECT again when the agent is back.
func TestBreaker_RefusalUsesNothingUp(t *testing.T) {
	t.Parallel()
	var ahead atomic.Int64
	b := newBed(t, plan{config: config.Config{Admin: config.Admin{Operators: operators()}}, clock: func() time.Time { return time.Now().Add(time.Duration(ahead.Load())) }})
	var works atomic.Bool
	b.serve(t, "down", "mcp-v1", &fake{conduct: func(w http.ResponseWriter, r *http.Request, good []byte) {
		if !works.Load() {
			hangsUp(w, r, good)
		}
		well(w, r, good)
	}}, host{})
	b.orders(t, "/agents/down/lifecycle", `{"to":"deprecated","reason":"replaced","successor":"`+b.heir(t)+`"}`, http.StatusOK)
	b.failUntilOpen(t, "down")
	b.counts(t, `aepb_ects_issued_total{act="aepb:translate_error",level="L2"} 5`)
	again := b.sealed(t, letter{at: "/aepb/translate?from=a2a-v1&dest=down", body: addBody(b.number())})
	for range 4 {
		if got := b.send(t, again); got.status != http.StatusServiceUnavailable || got.header.Get("Deprecation") == "" || got.header.Get(ect.HeaderName) != "" {
			t.Errorf("%d %s with %v", got.status, got.body, got.header)
		}
	}
	b.counts(t, `aepb_ects_issued_total{act="aepb:translate_error",level="L2"} 6`)
	works.Store(true)
	ahead.Store(int64(31 * time.Second))
	if got := b.send(t, again); got.status != http.StatusOK || !strings.Contains(string(got.body), "TASK_STATE_COMPLETED") {
		t.Errorf("when it is back: %d %s", got.status, got.body)
	}
}

// TestBreaker_GoodAnswersCount: failures among good answers, no five in a row, open nothing; five in a row
// of one caller have it alone refused, in the words of its protocol.
func TestBreaker_GoodAnswersCount(t *testing.T) {
	t.Parallel()
	b := newBed(t, plan{})
	var fails atomic.Bool
	b.serve(t, "shaky", "mcp-v1", &fake{conduct: func(w http.ResponseWriter, r *http.Request, good []byte) {
		if fails.Load() {
			hangsUp(w, r, good)
		}
		well(w, r, good)
	}}, host{})
	call := func() reply { return b.send(t, letter{at: "/agents/shaky/a2a", body: addBody(b.number())}) }
	for range 3 {
		if got := call(); !strings.Contains(string(got.body), `"result"`) {
			t.Fatalf("a good call: %d %s", got.status, got.body)
		}
		fails.Store(true)
		for range 4 {
			call()
		}
		fails.Store(false)
	}
	if got := call(); !strings.Contains(string(got.body), `"result"`) {
		t.Errorf("four in a row have failed: %d %s", got.status, got.body)
	}
	fails.Store(true)
	for range 5 {
		call()
	}
	if got := call(); !strings.Contains(string(got.body), "circuit_open") || !strings.Contains(string(got.body), "only yours are refused") {
		t.Errorf("five in a row have failed: %d %s", got.status, got.body)
	}
}

// TestBreaker_WatchedByOperators: operators list and watch breakers, with the token of each change; a
// caller without a role, and one without a certificate, learn nothing.
func TestBreaker_WatchedByOperators(t *testing.T) {
	t.Parallel()
	b := newBed(t, plan{config: config.Config{Policy: config.Policy{CircuitSamples: 2}}})
	b.serve(t, "down", "mcp-v1", &fake{conduct: hangsUp}, host{})
	operator := b.caller(t, b.svid(t, approverPath))
	stream := b.open(t, operator)
	for _, via := range []*http.Client{nil, operator} {
		b.send(t, letter{via: via, at: "/agents/down/a2a", body: addBody(b.number())})
	}
	var event struct{ Agent, State, ECT string }
	must(t, json.Unmarshal([]byte(nextData(t, stream)), &event))
	if event.Agent != "down" || event.State != "open" {
		t.Errorf("watched %+v", event)
	}
	claims, err := b.judge.Verify(t.Context(), event.ECT, ect.Check{Purpose: ect.Parent})
	if err != nil || claims.Act() != ect.ActCircuitOpen || claims.Level() < ect.L2 {
		t.Errorf("the token of the change: %v, %v", claims, err)
	}
	defer func() { // a gateway that stops ends the stream, and does not wait for its reader
		b.end()
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
	must(t, json.Unmarshal(b.send(t, letter{via: operator, method: http.MethodGet, at: b.at.Admin + "/api/breakers"}).body, &list))
	if len(list.Breakers) != 1 || list.Breakers[0].Agent != "down" || list.Breakers[0].State != "open" {
		t.Errorf("listed are %+v", list)
	}
}

// TestAttack_BreakersShowTheHealthOfAgents: what circuit breakers reveal is for operators and peers (ATD,
// Circuit Breaker State Leakage).
func TestAttack_BreakersShowTheHealthOfAgents(t *testing.T) {
	t.Parallel()
	b := newBed(t, plan{serve: true, noToken: true})
	for name, c := range map[string]struct {
		call   letter
		status int
	}{
		"a caller":                       {letter{method: http.MethodGet, at: "/atd/breakers"}, http.StatusForbidden},
		"a stranger":                     {letter{via: b.anonymous, method: http.MethodGet, at: "/atd/breakers"}, http.StatusUnauthorized},
		"a caller at the admin listener": {letter{method: http.MethodGet, at: b.at.Admin + "/api/breakers"}, http.StatusForbidden},
	} {
		if got := b.send(t, c.call); got.status != c.status {
			t.Errorf("%s: %d %s", name, got.status, got.body)
		}
	}
}

// open begins to watch the breakers.
func (b *bed) open(t *testing.T, via *http.Client) *bufio.Scanner {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, b.at.Public+"/atd/breakers", http.NoBody)
	must(t, err)
	response, err := via.Do(req)
	must(t, err)
	t.Cleanup(func() { _ = response.Body.Close() })
	if response.StatusCode != http.StatusOK || response.Header.Get("Content-Type") != "text/event-stream" {
		t.Fatalf("%s %s", response.Status, response.Header.Get("Content-Type"))
	}
	return bufio.NewScanner(response.Body)
}

// nextData is the data of the next event.
func nextData(t *testing.T, stream *bufio.Scanner) string {
	t.Helper()
	for stream.Scan() {
		if data, ok := strings.CutPrefix(stream.Text(), "data: "); ok {
			return data
		}
	}
	t.Fatalf("the stream has ended: %v", stream.Err())
	return ""
}
