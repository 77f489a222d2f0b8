package attacks

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
	gatewaytest "github.com/aepb/aepb-gateway/test/harness/gateway"
)

// sharedGateway is a gateway as serve runs it, whose agents are open to every caller
// with a certificate, and which has a store of the given bounds.
func sharedGateway(t *testing.T, c config.Config) *gatewaytest.Fixture {
	t.Helper()
	c.Limits.Rate, c.Limits.Burst = 1e5, 100_000
	b := gatewaytest.NewFixture(t, gatewaytest.Plan{Serve: true, Config: c})
	for _, name := range []string{"calculator", "concierge", "forecast"} {
		agent, ok := b.Directory().Find(name)
		if !ok {
			t.Fatalf("there is no agent %s", name)
		}
		agent.Rules.Open = true
		gatewaytest.Must(t, b.Directory().Put(agent))
	}
	return b
}

// listen opens the stream of an MCP session and returns its status, and ends it.
func listen(t *testing.T, b *gatewaytest.Fixture, via *http.Client, agent, session string) int {
	t.Helper()
	request := b.Request(t, gatewaytest.HTTPRequest{Method: http.MethodGet, At: "/agents/" + agent + "/mcp", Media: "-", Header: map[string]string{
		"Accept": "text/event-stream", "Mcp-Session-Id": session, "Mcp-Protocol-Version": "2025-06-18",
	}})
	ctx, cancel := context.WithCancel(request.Context())
	defer cancel()
	response, err := via.Do(request.WithContext(ctx))
	gatewaytest.Must(t, err)
	gatewaytest.Must(t, response.Body.Close())
	return response.StatusCode
}

// notDisturbed makes every kind of call that needs space in the store.
func notDisturbed(t *testing.T, b *gatewaytest.Fixture, via *http.Client) {
	t.Helper()
	got := b.Send(t, gatewaytest.A2ATo(via, "forecast", gatewaytest.TextBody("what is the weather?")))
	if got.Status != http.StatusOK || !strings.Contains(string(got.Body), "TASK_STATE_INPUT_REQUIRED") {
		t.Errorf("a question of another caller: %d %s", got.Status, got.Body)
	}
	session := b.Initialize(t, via, "concierge")
	if status := listen(t, b, via, "concierge", session); status != http.StatusOK {
		t.Errorf("a stream of another caller's session: %d", status)
	}
	got = b.Send(t, gatewaytest.A2ATo(via, "calculator", gatewaytest.Streamed(gatewaytest.AddBody(7))))
	if got.Status != http.StatusOK || !strings.Contains(string(got.Body), "TASK_STATE_COMPLETED") {
		t.Errorf("a task of another caller: %d %s", got.Status, got.Body)
	}
}

// limited expects a refusal that says what the caller has too much of.
func limited(t *testing.T, got gatewaytest.Reply) {
	t.Helper()
	if got.Status != http.StatusTooManyRequests || got.Header.Get("Retry-After") == "" || strings.Contains(string(got.Body), "evidence") {
		t.Errorf("over its share: %d, Retry-After %q, %s", got.Status, got.Header.Get("Retry-After"), got.Body)
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
	mallory, _ := b.ClientOf(t, "/mallory")
	victim, _ := b.ClientOf(t, "/victim")
	for range 30 {
		got := b.Send(t, gatewaytest.A2ATo(mallory, "forecast", gatewaytest.TextBody(strings.Repeat("x", 640<<10))))
		if got.Status != http.StatusRequestEntityTooLarge || !strings.Contains(string(got.Body), "at most 65536 bytes") {
			t.Fatalf("a question about 640 KiB: %d %.300s", got.Status, got.Body)
		}
	}
	var refused int
	for range 60 {
		got := b.Send(t, gatewaytest.A2ATo(mallory, "forecast", gatewaytest.TextBody(strings.Repeat("x", 60<<10))))
		if got.Status == http.StatusOK {
			continue
		}
		refused++
		limited(t, got)
	}
	if refused == 0 {
		t.Error("the attacker keeps as much as it likes")
	}
	notDisturbed(t, b, victim)
}

// TestAttack_FullGroupRefusesOtherRequests: F2. A caller with more tasks than are
// kept of it was refused while the gateway cleared its older ones, and with each
// refusal told that evidence could not be recorded. Now its oldest ended tasks go as
// new ones come, and no request is refused.
func TestAttack_FullGroupRefusesOtherRequests(t *testing.T) {
	t.Parallel()
	b := sharedGateway(t, config.Config{State: config.State{CallerRecords: 32}})
	busy, who := b.ClientOf(t, "/busy")
	var refused atomic.Int32
	var all sync.WaitGroup
	for range 6 {
		all.Go(func() {
			for range 25 {
				got := b.Send(t, gatewaytest.A2ATo(busy, "calculator", gatewaytest.Streamed(gatewaytest.AddBody(b.Number()))))
				if got.Status != http.StatusOK || !strings.Contains(string(got.Body), "TASK_STATE_COMPLETED") {
					refused.Add(1)
				}
			}
		})
	}
	all.Wait()
	if n := refused.Load(); n > 0 {
		t.Errorf("%d of 150 streams were refused", n)
	}
	stored, err := b.Stored.Entries.List(t.Context(), store.KindTask, string(who.ID)+"\x00calculator", "", 200)
	if most := state.KindShare(32); err != nil || len(stored) == 0 || len(stored) > most {
		t.Errorf("%d tasks are kept, %v, want at most %d", len(stored), err, most)
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
		via, _ := b.ClientOf(t, fmt.Sprintf("/early-%d", n))
		all.Go(func() {
			for range 30 {
				_ = b.Send(t, gatewaytest.A2ATo(via, "calculator", gatewaytest.Streamed(gatewaytest.AddBody(b.Number()))))
			}
		})
	}
	all.Wait()
	for n := range 3 {
		via, _ := b.ClientOf(t, fmt.Sprintf("/late-%d", n))
		notDisturbed(t, b, via)
	}
}

// TestAttack_LeftSessionsLockOutADeployment: F6. All pods of a deployment have one
// SPIFFE id. When they leave MCP sessions without ending them, as many as a caller
// may have at one agent, the next pod was refused for up to half an hour. Now the
// session that was not used for longest ends.
func TestAttack_LeftSessionsLockOutADeployment(t *testing.T) {
	t.Parallel()
	b := sharedGateway(t, config.Config{Limits: config.Limits{Sessions: 4}})
	deployment, _ := b.ClientOf(t, "/deployment")
	var sessions []string
	for range 7 {
		sessions = append(sessions, b.Initialize(t, deployment, "concierge"))
	}
	alive := 0
	for _, id := range sessions {
		got := b.Send(t, gatewaytest.HTTPRequest{Via: deployment, At: gatewaytest.EndpointMCP, Body: `{"jsonrpc":"2.0","id":2,"method":"ping"}`, Header: map[string]string{
			"Accept": "application/json, text/event-stream", "Mcp-Session-Id": id, "Mcp-Protocol-Version": "2025-06-18",
		}})
		if got.Status == http.StatusOK {
			alive++
		}
	}
	if alive != 4 {
		t.Errorf("%d of 7 sessions are alive, want 4", alive)
	}
	if status := listen(t, b, deployment, "concierge", sessions[6]); status != http.StatusOK {
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
	mallory, attacker := b.ClientOf(t, "/mallory")
	victim, who := b.ClientOf(t, "/victim")
	body := gatewaytest.AddBody(b.Number())
	call := gatewaytest.HTTPRequest{Via: victim, Body: body, Tokens: []string{ecttest.Mint(t, who, b.Recipe(body))}}
	first := b.Send(t, call)
	for n := range 12 {
		large := gatewaytest.CallBody("concierge", fmt.Sprint(n)+strings.Repeat("x", 200<<10))
		got := b.Send(t, gatewaytest.HTTPRequest{Via: mallory, At: gatewaytest.ToConcierge, Body: large, Header: gatewaytest.Mirror("tools/call", "concierge"), Tokens: []string{ecttest.Mint(t, attacker, b.Recipe(large))}})
		if got.Status != http.StatusOK {
			t.Fatalf("a large answer: %d %.300s", got.Status, got.Body)
		}
	}
	again := b.Send(t, call)
	if first.Status != http.StatusOK || again.Status != first.Status || string(again.Body) != string(first.Body) {
		t.Errorf("the repetition: %d %s\nthe first: %d %s", again.Status, again.Body, first.Status, first.Body)
	}
}

// TestAttack_OneCallerTakesAllWorkers: finding 14. Work that goes on after its
// request was answered was bounded for all callers together, so one caller with many
// such tasks at a slow agent took it from all others. Now it is refused at its share,
// before the agent hears of the task, and others go on.
func TestAttack_OneCallerTakesAllWorkers(t *testing.T) {
	t.Parallel()
	b := sharedGateway(t, config.Config{Limits: config.Limits{AllWorkers: 20}})
	slow := &gatewaytest.Fake{}
	slow.Conduct = func(_ http.ResponseWriter, r *http.Request, _ []byte) {
		select {
		case <-slow.Done:
		case <-r.Context().Done():
		}
	}
	b.Serve(t, "slow", "mcp-v1", slow, gatewaytest.Host{Timeout: gatewaytest.Patience})
	mallory, _ := b.ClientOf(t, "/mallory")
	victim, _ := b.ClientOf(t, "/victim")
	background := strings.Replace(gatewaytest.AddBody(7), `"params":{`, `"params":{"configuration":{"returnImmediately":true},`, 1)
	for n := range 12 {
		got := b.Send(t, gatewaytest.A2ATo(mallory, "slow", background))
		if n < 5 && got.Status != http.StatusOK {
			t.Errorf("task %d: %d %s", n, got.Status, got.Body)
		} else if n >= 5 {
			limited(t, got)
		}
	}
	if n := slow.Calls.Load(); n > 5 {
		t.Errorf("the agent was called %d times", n)
	}
	if got := b.Send(t, gatewaytest.A2ATo(victim, "slow", background)); got.Status != http.StatusOK {
		t.Errorf("another caller's task: %d %s", got.Status, got.Body)
	}
	notDisturbed(t, b, victim)
}

// TestAttack_LargeMessagesInTheBackground: a caller with permission for a slow agent sends
// it large messages and has each answered at once. Before, the bytes of a message counted
// until it was answered, and the work in the background held them for as long as the
// agent took: 625 tasks of 16 MiB. Now a large message takes as many places as it has
// parts of 32 KiB, so that it is refused at the caller's share, and others go on.
func TestAttack_LargeMessagesInTheBackground(t *testing.T) {
	t.Parallel()
	b := sharedGateway(t, config.Config{Limits: config.Limits{AllWorkers: 2500}})
	slow := &gatewaytest.Fake{}
	slow.Conduct = func(_ http.ResponseWriter, r *http.Request, _ []byte) {
		select {
		case <-slow.Done:
		case <-r.Context().Done():
		}
	}
	b.Serve(t, "slow", "mcp-v1", slow, gatewaytest.Host{Timeout: gatewaytest.Patience})
	mallory, _ := b.ClientOf(t, "/mallory")
	victim, _ := b.ClientOf(t, "/victim")
	background := strings.Replace(gatewaytest.AddBody(7), `"params":{`, `"params":{"configuration":{"returnImmediately":true},`, 1)
	const size, most = 4 << 20, 4 // 625 places of 32 KiB are not five such messages
	large := strings.Replace(background, `"params":{`, `"params":{"metadata":{"x":"`+strings.Repeat("x", size)+`"},`, 1)
	for n := range most + 3 {
		got := b.Send(t, gatewaytest.A2ATo(mallory, "slow", large))
		if n < most && got.Status != http.StatusOK {
			t.Errorf("task %d: %d %.300s", n, got.Status, got.Body)
		} else if n >= most {
			limited(t, got)
		}
	}
	if got := b.Send(t, gatewaytest.A2ATo(victim, "slow", background)); got.Status != http.StatusOK {
		t.Errorf("another caller's task: %d %s", got.Status, got.Body)
	}
	notDisturbed(t, b, victim)
}
