package gateway_test

import (
	"encoding/json"
	"io"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/aepb/aepb-gateway/gateway/transport"
	"github.com/aepb/aepb-gateway/translators/mcp"
)

// extended is a request of an MCP client that knows the tasks extension.
func (s *stage) extended(method, params string) transport.Call {
	return s.by(mcp.Binding, mcp.Modern, `{"jsonrpc":"2.0","id":7,"method":"`+method+`","params":{`+params+
		`,"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientInfo":{"name":"C","version":"1"},"io.modelcontextprotocol/clientCapabilities":{"elicitation":{"form":{}},"extensions":{"io.modelcontextprotocol/tasks":{}}}}}}`)
}

// TestTasksExtension_CallReturnsTask: an MCP client that takes a task for an answer.
func TestTasksExtension_CallReturnsTask(t *testing.T) {
	t.Parallel()
	play(t, map[string][]scene{
		streaming: {{events: []string{wholeTask("WORKING", "")}}}, looking: {{reply: result(taskOf("WORKING", ""))}, {reply: result(taskOf("COMPLETED", oneArt))}},
		canceling: {{reply: result(taskOf("CANCELED", ""))}},
	}, func(s *stage) {
		t := s.t
		begun := s.ask(t, s, s.extended("tools/call", `"name":"write","arguments":`+askingHi))
		var env struct {
			Result struct{ TaskID, Status, ResultType string }
		}
		if err := json.Unmarshal(begun.Wire().Body, &env); err != nil || env.Result.TaskID == "" || env.Result.Status != "working" {
			t.Fatalf("it begins as %s", begun.Wire().Body)
		}
		for _, want := range []string{`"working"`, "done it"} {
			if got := s.ask(t, s, s.extended("tasks/get", `"taskId":"`+env.Result.TaskID+`"`)); !strings.Contains(string(got.Wire().Body), want) {
				t.Errorf("%s is not in %s", want, got.Wire().Body)
			}
		}
		synctest.Wait()
	})
}

// TestTasksExtension_A2ATaskOverMCPTask: an MCP server that answers with a task.
func TestTasksExtension_A2ATaskOverMCPTask(t *testing.T) {
	t.Parallel()
	inner := `"taskId":"u1","createdAt":"2026-07-28T01:02:03Z","lastUpdatedAt":"2026-07-28T01:02:03Z","ttlMs":60000,"pollIntervalMs":500`
	play(t, map[string][]scene{
		calling: {{reply: result(`{"resultType":"task","status":"working",` + inner + `}`)}},
		"tasks/get": {
			{reply: result(`{"resultType":"complete","status":"working",` + inner + `}`)},
			{reply: result(`{"resultType":"complete","status":"completed",` + inner + `,"result":` + complete + `}`)},
		},
	}, func(s *stage) {
		t := s.t
		done := s.ask(t, s, s.asks(invoking, called))
		if _, state := taskIn(t, done.Wire().Body); state != "TASK_STATE_COMPLETED" || !strings.Contains(string(done.Wire().Body), "hello Ada") {
			t.Errorf("the caller heard %s", done.Wire().Body)
		}
		if got := s.asker.was(); got != "tools/call tasks/get tasks/get" {
			t.Errorf("the agent was asked %s", got)
		}
	})
}

// TestTasksExtension_MCPRelay: between two sides of MCP the server itself is asked how its
// task stands, and under its own name for it.
func TestTasksExtension_MCPRelay(t *testing.T) {
	t.Parallel()
	inner := `"taskId":"u1","createdAt":"2026-07-28T01:02:03Z","lastUpdatedAt":"2026-07-28T01:02:03Z","ttlMs":60000,"pollIntervalMs":500`
	asks := result(`{"resultType":"complete","status":"input_required",` + inner + `,"inputRequests":{"k":` + wantsName + `}}`)
	ends := result(`{"resultType":"complete","status":"completed",` + inner + `,"result":` + complete + `}`)
	done := scene{reply: result(`{"resultType":"complete"}`)}
	play(t, map[string][]scene{
		calling:     {{reply: result(`{"resultType":"task","status":"working",` + inner + `}`)}},
		"tasks/get": {{reply: asks}, {reply: ends}, {reply: ends}}, "tasks/update": {done}, "tasks/cancel": {done},
	}, func(s *stage) {
		t := s.t
		for _, step := range []struct{ method, params, want string }{
			{calling, `"name":"ask","arguments":{}`, `"taskId":"u1"`},
			{"tasks/get", `"taskId":"u1"`, `"who?"`},
			{"tasks/update", `"taskId":"u1","inputResponses":{"k":{"action":"accept","content":{"name":"Ada"}}}`, `"complete"`},
			{"tasks/get", `"taskId":"u1"`, "hello Ada"},
			{"tasks/cancel", `"taskId":"u1"`, `"complete"`}, // which is no error after the end
			{"tasks/get", `"taskId":"u1"`, "hello Ada"},
		} {
			call := s.extended(step.method, step.params)
			call.Agent = "asker"
			if got := s.ask(t, s, call); !strings.Contains(string(got.Wire().Body), step.want) {
				t.Errorf("%s is answered with %s", step.method, got.Wire().Body)
			}
		}
		if got := s.asker.was(); got != "tools/call tasks/get tasks/update tasks/get tasks/cancel tasks/get" {
			t.Errorf("the agent was asked %s", got)
		}
	})
}

// TestTaskResult_WaitsForPolledAgent: an older client waits for it, however often the agent has
// to be asked.
func TestTaskResult_WaitsForPolledAgent(t *testing.T) {
	t.Parallel()
	play(t, map[string][]scene{
		invoking: {{reply: wholeTask("WORKING", "")}},
		looking:  {{reply: result(taskOf("WORKING", ""))}, {reply: result(taskOf("WORKING", ""))}, {reply: result(taskOf("COMPLETED", oneArt))}},
	}, func(s *stage) {
		t := s.t
		s.agent.blind = true
		older := func(method, params string) transport.Call {
			return s.by(mcp.Binding, mcp.Legacy, `{"jsonrpc":"2.0","id":7,"method":"`+method+`","params":{`+params+`}}`)
		}
		s.ask(t, s, older("tools/call", `"name":"write","arguments":`+askingHi+`,"task":{"ttl":60000}`))
		if got := s.ask(t, s, older("tasks/result", `"taskId":"t1"`)); !strings.Contains(string(got.Wire().Body), "done it") {
			t.Errorf("it comes to %s", got.Wire().Body)
		}
		synctest.Wait()
	})
}

func TestTasksExtension_AnswerAndCancel(t *testing.T) {
	t.Parallel()
	asking := scene{events: []string{wholeTask("WORKING", ""), "", status("INPUT_REQUIRED", "how long?")}, end: errBroken}
	for name, c := range map[string]struct {
		method, more    string
		received, state string
	}{
		"answered": {"tasks/update", `,"inputResponses":{"reply":{"action":"accept","content":{"reply":"short"}}}`, `"short"`, "done it"},
		"canceled": {"tasks/cancel", "", canceling, `"cancelled"`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			play(t, map[string][]scene{
				streaming: {asking, {events: []string{status("WORKING", ""), artifact("done it"), status("COMPLETED", "")}, end: errBroken}},
				looking:   {{reply: result(taskOf("INPUT_REQUIRED", ""))}}, canceling: {{reply: result(taskOf("CANCELED", ""))}},
			}, func(s *stage) {
				t := s.t
				s.ask(t, s, s.extended("tools/call", `"name":"write","arguments":`+askingHi))
				close(s.agent.resume)
				synctest.Wait()
				if got := s.ask(t, s, s.extended("tasks/get", `"taskId":"t1"`)); !strings.Contains(string(got.Wire().Body), `"input_required"`) {
					t.Fatalf("it asks %s", got.Wire().Body)
				}
				s.ask(t, s, s.extended(c.method, `"taskId":"t1"`+c.more))
				synctest.Wait()
				if !strings.Contains(s.agent.last(), c.received) {
					t.Errorf("the agent heard %s", s.agent.last())
				}
				if got := s.ask(t, s, s.extended("tasks/get", `"taskId":"t1"`)); !strings.Contains(string(got.Wire().Body), c.state) {
					t.Errorf("it ends as %s", got.Wire().Body)
				}
			})
		})
	}
}

// TestMCPServer_UnrequestedStream: MCP servers may answer any request in a stream.
func TestMCPServer_UnrequestedStream(t *testing.T) {
	t.Parallel()
	notice := `{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":"x"}}`
	for name, c := range map[string]struct{ method, params, end string }{
		"a call":                {"tools/call", `"name":"ask","arguments":{}`, complete},
		"what only MCP has":     {"prompts/get", `"name":"p"`, `{"resultType":"complete","messages":[]}`},
		"in another revision":   {"prompts/get", `"name":"p"`, `{"messages":[]}`},
		"a call in another one": {"tools/call", `"name":"ask","arguments":{}`, `{"content":[{"type":"text","text":"hello Ada"}]}`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			play(t, map[string][]scene{c.method: {{events: []string{notice, result(c.end)}, end: io.EOF}}}, func(s *stage) {
				if strings.Contains(name, "another") {
					s.asker.version = mcp.Legacy
				}
				call := s.extended(c.method, c.params)
				call.Agent = "asker"
				bodies, evidence := read(s.t, s.ask(s.t, s, call).Events())
				if last := bodies[len(bodies)-1]; strings.Contains(last, `"error"`) || !strings.Contains(last, `"id":7`) || len(evidence) != 1 {
					s.t.Errorf("the caller heard %s", bodies)
				}
			})
		})
	}
}
