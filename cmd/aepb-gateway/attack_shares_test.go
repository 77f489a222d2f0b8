package main

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/aepb/aepb-gateway/ect/ecttest"
	"github.com/aepb/aepb-gateway/gateway/config"
	"github.com/aepb/aepb-gateway/gateway/state"
	"github.com/aepb/aepb-gateway/gateway/task/store"
)

// sharedGateway is a gateway as serve runs it, whose agents are open to every caller
// with a certificate, and which has a store of the given bounds.
func sharedGateway(t *testing.T, c config.Config) *bed {
	t.Helper()
	c.Limits.Rate, c.Limits.Burst = 1e5, 100_000
	b := newBed(t, plan{serve: true, config: c})
	for _, name := range []string{"calculator", "concierge", "forecast"} {
		agent, ok := b.directory.Find(name)
		if !ok {
			t.Fatalf("there is no agent %s", name)
		}
		agent.Rules.Open = true
		must(t, b.directory.Put(agent))
	}
	return b
}

// client shows its own certificate.
func (b *bed) clientOf(t *testing.T, path string) (*http.Client, *ecttest.Party) {
	t.Helper()
	svid := issue(t, b.dev.Authority, path, noNames())
	return b.caller(t, svid), b.party(t, svid)
}

// a2aTo is a message of A2A to an agent.
func a2aTo(via *http.Client, agent, body string) letter {
	return letter{via: via, at: "/agents/" + agent + "/a2a", body: body, header: map[string]string{"A2A-Version": "1.0"}}
}

// streamed is an A2A message whose answer is a stream, which leaves a task behind.
func streamed(body string) string {
	return strings.Replace(body, "SendMessage", "SendStreamingMessage", 1)
}

const initializeBody = `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"c","version":"1"}}}`

// initialize begins an MCP session and returns its id.
func (b *bed) initialize(t *testing.T, via *http.Client, agent string) string {
	t.Helper()
	got := b.send(t, letter{via: via, at: "/agents/" + agent + "/mcp", body: initializeBody, header: map[string]string{"Accept": "application/json, text/event-stream"}})
	id := got.header.Get("Mcp-Session-Id")
	if got.status != http.StatusOK || id == "" {
		t.Fatalf("initialize: %d %s", got.status, got.body)
	}
	return id
}

// listen opens the stream of an MCP session and returns its status, and ends it.
func (b *bed) listen(t *testing.T, via *http.Client, agent, session string) int {
	t.Helper()
	request := b.request(t, letter{method: http.MethodGet, at: "/agents/" + agent + "/mcp", media: "-", header: map[string]string{
		"Accept": "text/event-stream", "Mcp-Session-Id": session, "Mcp-Protocol-Version": "2025-06-18",
	}})
	ctx, cancel := context.WithCancel(request.Context())
	defer cancel()
	response, err := via.Do(request.WithContext(ctx))
	must(t, err)
	must(t, response.Body.Close())
	return response.StatusCode
}

// notDisturbed makes every kind of call that needs space in the store.
func (b *bed) notDisturbed(t *testing.T, via *http.Client) {
	t.Helper()
	got := b.send(t, a2aTo(via, "forecast", textBody("what is the weather?")))
	if got.status != http.StatusOK || !strings.Contains(string(got.body), "TASK_STATE_INPUT_REQUIRED") {
		t.Errorf("a question of another caller: %d %s", got.status, got.body)
	}
	session := b.initialize(t, via, "concierge")
	if status := b.listen(t, via, "concierge", session); status != http.StatusOK {
		t.Errorf("a stream of another caller's session: %d", status)
	}
	got = b.send(t, a2aTo(via, "calculator", streamed(addBody(7))))
	if got.status != http.StatusOK || !strings.Contains(string(got.body), "TASK_STATE_COMPLETED") {
		t.Errorf("a task of another caller: %d %s", got.status, got.body)
	}
}

// limited expects a refusal that says what the caller has too much of.
func limited(t *testing.T, got reply) {
	t.Helper()
	if got.status != http.StatusTooManyRequests || got.header.Get("Retry-After") == "" || strings.Contains(string(got.body), "evidence") {
		t.Errorf("over its share: %d, Retry-After %q, %s", got.status, got.header.Get("Retry-After"), got.body)
	}
}

// TestAttack_OneCallerFillsTheTaskStoreWithQuestions: finding 4. The attacker sends
// large texts to a tool with required arguments, so that the gateway asks a question
// and keeps each request for an hour. 76 of 640 KiB filled the store of all callers:
// their questions, MCP sessions and streams were refused with "evidence cannot be
// recorded". Now a request that would have to be kept is at most 64 KiB, one caller
// fills its own share alone and is told so, and others notice nothing.
func TestAttack_OneCallerFillsTheTaskStoreWithQuestions(t *testing.T) {
	t.Parallel()
	b := sharedGateway(t, config.Config{State: config.State{RecordsMiB: 16}})
	mallory, _ := b.clientOf(t, "/mallory")
	victim, _ := b.clientOf(t, "/victim")
	for range 30 {
		got := b.send(t, a2aTo(mallory, "forecast", textBody(strings.Repeat("x", 640<<10))))
		if got.status != http.StatusRequestEntityTooLarge || !strings.Contains(string(got.body), "at most 65536 bytes") {
			t.Fatalf("a question about 640 KiB: %d %.300s", got.status, got.body)
		}
	}
	var refused int
	for range 60 {
		got := b.send(t, a2aTo(mallory, "forecast", textBody(strings.Repeat("x", 60<<10))))
		if got.status == http.StatusOK {
			continue
		}
		refused++
		limited(t, got)
	}
	if refused == 0 {
		t.Error("the attacker keeps as much as it likes")
	}
	b.notDisturbed(t, victim)
}

// TestAttack_FullGroupRefusesOtherRequests: F2. A caller with more tasks than are
// kept of it was refused while the gateway cleared its older ones, and with each
// refusal told that evidence could not be recorded. Now its oldest ended tasks go as
// new ones come, and no request is refused.
func TestAttack_FullGroupRefusesOtherRequests(t *testing.T) {
	t.Parallel()
	b := sharedGateway(t, config.Config{State: config.State{CallerRecords: 32}})
	busy, who := b.clientOf(t, "/busy")
	var refused atomic.Int32
	var all sync.WaitGroup
	for range 6 {
		all.Go(func() {
			for range 25 {
				got := b.send(t, a2aTo(busy, "calculator", streamed(addBody(b.number()))))
				if got.status != http.StatusOK || !strings.Contains(string(got.body), "TASK_STATE_COMPLETED") {
					refused.Add(1)
				}
			}
		})
	}
	all.Wait()
	if n := refused.Load(); n > 0 {
		t.Errorf("%d of 150 streams were refused", n)
	}
	kept, err := b.entries.List(t.Context(), store.KindTask, string(who.ID)+"\x00calculator", "", 200)
	if most := state.KindShare(32); err != nil || len(kept) == 0 || len(kept) > most {
		t.Errorf("%d tasks are kept, %v, want at most %d", len(kept), err, most)
	}
}

// TestAttack_FilledStoreLocksOutNewCallers: F3. Some callers fill the store with
// tasks that have ended and are kept for an hour. Callers that came later could begin
// no task, session or stream until then. Now the oldest ended task of the caller with
// most goes for each new record, and tasks leave a quarter to other kinds.
func TestAttack_FilledStoreLocksOutNewCallers(t *testing.T) {
	t.Parallel()
	b := sharedGateway(t, config.Config{State: config.State{Records: 64, CallerRecords: 32}})
	var all sync.WaitGroup
	for n := range 4 {
		via, _ := b.clientOf(t, fmt.Sprintf("/early-%d", n))
		all.Go(func() {
			for range 30 {
				_ = b.send(t, a2aTo(via, "calculator", streamed(addBody(b.number()))))
			}
		})
	}
	all.Wait()
	for n := range 3 {
		via, _ := b.clientOf(t, fmt.Sprintf("/late-%d", n))
		b.notDisturbed(t, via)
	}
}

// TestAttack_LeftSessionsLockOutADeployment: F6. All pods of a deployment have one
// SPIFFE id. When they leave MCP sessions without ending them, as many as a caller
// may have at one agent, the next pod was refused for up to half an hour. Now the
// session that was not used for longest ends.
func TestAttack_LeftSessionsLockOutADeployment(t *testing.T) {
	t.Parallel()
	b := sharedGateway(t, config.Config{Limits: config.Limits{Sessions: 4}})
	deployment, _ := b.clientOf(t, "/deployment")
	var sessions []string
	for range 7 {
		sessions = append(sessions, b.initialize(t, deployment, "concierge"))
	}
	alive := 0
	for _, id := range sessions {
		got := b.send(t, letter{via: deployment, at: doorMCP, body: `{"jsonrpc":"2.0","id":2,"method":"ping"}`, header: map[string]string{
			"Accept": "application/json, text/event-stream", "Mcp-Session-Id": id, "Mcp-Protocol-Version": "2025-06-18",
		}})
		if got.status == http.StatusOK {
			alive++
		}
	}
	if alive != 4 {
		t.Errorf("%d of 7 sessions are alive, want 4", alive)
	}
	if status := b.listen(t, deployment, "concierge", sessions[6]); status != http.StatusOK {
		t.Errorf("the latest session's stream: %d", status)
	}
}

// TestAttack_LargeAnswersMakeOthersRunTwice: finding 14. Stored answers of all
// callers shared one space, and those that ended first went first, so one caller
// with large answers made the gateway forget others': their repetitions were refused
// or ran again. Now each caller loses its own oldest answers.
func TestAttack_LargeAnswersMakeOthersRunTwice(t *testing.T) {
	t.Parallel()
	b := sharedGateway(t, config.Config{State: config.State{AnswersMiB: 2}})
	mallory, attacker := b.clientOf(t, "/mallory")
	victim, who := b.clientOf(t, "/victim")
	body := addBody(b.number())
	call := letter{via: victim, body: body, tokens: []string{ecttest.Mint(t, who, b.recipe(body))}}
	first := b.send(t, call)
	for n := range 12 {
		large := callBody("concierge", fmt.Sprint(n)+strings.Repeat("x", 200<<10))
		got := b.send(t, letter{via: mallory, at: toConcierge, body: large, header: mirror("tools/call", "concierge"), tokens: []string{ecttest.Mint(t, attacker, b.recipe(large))}})
		if got.status != http.StatusOK {
			t.Fatalf("a large answer: %d %.300s", got.status, got.body)
		}
	}
	again := b.send(t, call)
	if first.status != http.StatusOK || again.status != first.status || string(again.body) != string(first.body) {
		t.Errorf("the repetition: %d %s\nthe first: %d %s", again.status, again.body, first.status, first.body)
	}
}

// TestAttack_OneCallerTakesAllWorkers: finding 14. Work that goes on after its
// request was answered was bounded for all callers together, so one caller with many
// such tasks at a slow agent took it from all others. Now it is refused at its share,
// before the agent hears of the task, and others go on.
func TestAttack_OneCallerTakesAllWorkers(t *testing.T) {
	t.Parallel()
	b := sharedGateway(t, config.Config{Limits: config.Limits{AllWorkers: 20}})
	slow := &fake{}
	slow.conduct = func(_ http.ResponseWriter, r *http.Request, _ []byte) {
		select {
		case <-slow.done:
		case <-r.Context().Done():
		}
	}
	b.serve(t, "slow", "mcp-v1", slow, host{timeout: patience})
	mallory, _ := b.clientOf(t, "/mallory")
	victim, _ := b.clientOf(t, "/victim")
	background := strings.Replace(addBody(7), `"params":{`, `"params":{"configuration":{"returnImmediately":true},`, 1)
	for n := range 12 {
		got := b.send(t, a2aTo(mallory, "slow", background))
		if n < 5 && got.status != http.StatusOK {
			t.Errorf("task %d: %d %s", n, got.status, got.body)
		} else if n >= 5 {
			limited(t, got)
		}
	}
	if n := slow.calls.Load(); n > 5 {
		t.Errorf("the agent was called %d times", n)
	}
	if got := b.send(t, a2aTo(victim, "slow", background)); got.status != http.StatusOK {
		t.Errorf("another caller's task: %d %s", got.status, got.body)
	}
	b.notDisturbed(t, victim)
}

// TestAttack_LargeMessagesInTheBackground: a caller with permission for a slow agent sends
// it large messages and has each answered at once. Before, the bytes of a message counted
// until it was answered, and the work in the background held them for as long as the
// agent took: 625 tasks of 16 MiB. Now a large message takes as many places as it has
// parts of 32 KiB, so that it is refused at the caller's share, and others go on.
func TestAttack_LargeMessagesInTheBackground(t *testing.T) {
	t.Parallel()
	b := sharedGateway(t, config.Config{Limits: config.Limits{AllWorkers: 2500}})
	slow := &fake{}
	slow.conduct = func(_ http.ResponseWriter, r *http.Request, _ []byte) {
		select {
		case <-slow.done:
		case <-r.Context().Done():
		}
	}
	b.serve(t, "slow", "mcp-v1", slow, host{timeout: patience})
	mallory, _ := b.clientOf(t, "/mallory")
	victim, _ := b.clientOf(t, "/victim")
	background := strings.Replace(addBody(7), `"params":{`, `"params":{"configuration":{"returnImmediately":true},`, 1)
	const size, most = 4 << 20, 4 // 625 places of 32 KiB are not five such messages
	large := strings.Replace(background, `"params":{`, `"params":{"metadata":{"x":"`+strings.Repeat("x", size)+`"},`, 1)
	for n := range most + 3 {
		got := b.send(t, a2aTo(mallory, "slow", large))
		if n < most && got.status != http.StatusOK {
			t.Errorf("task %d: %d %.300s", n, got.status, got.body)
		} else if n >= most {
			limited(t, got)
		}
	}
	if got := b.send(t, a2aTo(victim, "slow", background)); got.status != http.StatusOK {
		t.Errorf("another caller's task: %d %s", got.status, got.body)
	}
	b.notDisturbed(t, victim)
}
