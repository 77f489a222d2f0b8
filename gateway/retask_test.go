package gateway_test

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aepb/aepb-gateway/gateway/transport"
	"github.com/aepb/aepb-gateway/translators/canonical"
	"github.com/aepb/aepb-gateway/translators/mcp"
)

const (
	tasksGet, tasksResult, tasksUpdate, tasksCancel = "tasks/get", "tasks/result", "tasks/update", "tasks/cancel"

	oldTask  = `"taskId":"u1","createdAt":"2026-07-28T01:02:03Z","lastUpdatedAt":"2026-07-28T01:02:03Z","ttl":60000,"pollInterval":500`
	newTask  = `"taskId":"u1","createdAt":"2026-07-28T01:02:03Z","lastUpdatedAt":"2026-07-28T01:02:03Z","ttlMs":60000,"pollIntervalMs":500`
	oldHello = `{"content":[{"type":"text","text":"hello Ada"}]}`
)

// stands is how a task of each era stands.
func oldStands(status string) string { return result(`{"status":"` + status + `",` + oldTask + `}`) }

func newStands(status, more string) string {
	return result(`{"resultType":"complete","status":"` + status + `",` + newTask + more + `}`)
}

// era plays a server that keeps tasks, of one version.
func era(t *testing.T, version string, scenes map[string][]scene, test func(*stage)) {
	t.Helper()
	play(t, scenes, func(s *stage) {
		s.asker.version, s.asker.tasks = version, true
		test(s)
	})
}

// older is a request of a client of 2025-11-25 that can be asked.
func (s *stage) older(method, params string) transport.Call {
	call := s.inSession(method, params)
	call.CanAnswer = []canonical.Mode{canonical.ModeForm}
	return call
}

// newer is one of a client that knows the tasks extension.
func (s *stage) newer(method, params string) transport.Call {
	call := s.extended(method, params)
	call.Agent = "asker"
	return call
}

func (s *stage) says(call transport.Call) string {
	s.t.Helper()
	return string(s.ask(s.t, s, call).Wire().Body)
}

// until asks how the task stands until that holds what is wanted.
func (s *stage) until(call func(string, string) transport.Call, want string) string {
	s.t.Helper()
	for range 40 {
		if got := s.says(call(tasksGet, `"taskId":"u1"`)); strings.Contains(got, want) {
			return got
		}
		<-time.After(250 * time.Millisecond)
	}
	s.t.Fatalf("never %s: %s", want, s.says(call(tasksGet, `"taskId":"u1"`)))
	return ""
}

const wantsTask = `"name":"ask","arguments":{},"task":{"ttl":60000}`

// A client of 2025-11-25 and the extension of 2026-07-28: begun, looked at, listed,
// asked on the stream that waits for the outcome, and told that.
func TestTaskRevisions_OlderClientModernServer(t *testing.T) {
	t.Parallel()
	asks := newStands("input_required", `,"inputRequests":{"k":`+wantsName+`}`)
	ends := newStands("completed", `,"result":`+complete)
	era(t, mcp.Modern, map[string][]scene{
		calling:     {{reply: result(`{"resultType":"task","status":"working",` + newTask + `}`)}},
		tasksGet:    {{reply: newStands("working", `,"statusMessage":"thinking"`)}, {reply: asks}, {reply: ends}},
		tasksUpdate: {{reply: result(`{"resultType":"complete"}`)}},
	}, func(s *stage) {
		t := s.t
		if got := s.says(s.older(calling, wantsTask)); !strings.Contains(got, `"result":{"task":{"taskId":"u1","status":"working"`) || !strings.Contains(got, `"ttl":60000`) {
			t.Fatalf("begun as %s", got)
		}
		if first := s.asker.bodies[0]; !strings.Contains(first, `"io.modelcontextprotocol/tasks"`) || strings.Contains(first, `"ttl"`) {
			t.Errorf("the server was asked %s", first)
		}
		got := s.until(s.older, `"status":"input_required"`)
		if strings.Contains(got, "inputRequests") || !strings.Contains(got, `"pollInterval":500`) {
			t.Errorf("it stands as %s", got)
		}
		if got := s.says(s.older("tasks/list", "")); !strings.Contains(got, `"tasks":[{"taskId":"u1","status":"input_required"`) {
			t.Errorf("listed as %s", got)
		}
		outcome := s.ask(t, s, s.older(tasksResult, `"taskId":"u1"`)).Events()
		var request struct {
			ID     string
			Method string
			Params struct {
				Message string
				Meta    struct {
					Related struct{ TaskID string } `json:"io.modelcontextprotocol/related-task"`
				} `json:"_meta"`
			}
		}
		if question := heardNext(t, outcome); json.Unmarshal([]byte(question), &request) != nil || request.Method != "elicitation/create" || request.Params.Message != "who?" || request.Params.Meta.Related.TaskID != "u1" {
			t.Fatalf("asked %s", question)
		}
		reply := s.older("", "")
		reply.Wire.Body = []byte(`{"jsonrpc":"2.0","id":"` + request.ID + `","result":{"action":"accept","content":{"name":"Ada"}}}`)
		s.ask(t, s, reply)
		bodies, closing := read(t, outcome)
		if len(bodies) != 1 || !strings.Contains(bodies[0], `"id":7`) || !strings.Contains(bodies[0], "hello Ada") || !strings.Contains(bodies[0], `related-task":{"taskId":"u1"}`) || len(closing) != 1 {
			t.Errorf("the outcome is %s", bodies)
		}
		s.ask(t, s, reply) // said again, it is taken and leads to nothing
		if got := s.asker.was(); !strings.Contains(got, tasksUpdate) || strings.Count(got, tasksUpdate) != 1 {
			t.Errorf("the server was asked %s", got)
		}
		for _, body := range s.asker.bodies {
			if strings.Contains(body, tasksUpdate) && !strings.Contains(body, `"inputResponses":{"k":{"action":"accept","content":{"name":"Ada"}}}`) {
				t.Errorf("the server was answered %s", body)
			}
		}
		if got := s.says(s.older(tasksResult, `"taskId":"u1"`)); !strings.Contains(got, "hello Ada") {
			t.Errorf("once more the outcome is %s", got)
		}
		var over *canonical.Error
		if _, err := s.Exchange(t.Context(), s.older(tasksCancel, `"taskId":"u1"`)); !errors.As(err, &over) || over.Code != canonical.CodeNotCancelable {
			t.Errorf("canceling what has ended: %v", err)
		}
	})
}

// A server that makes no task of the call, and one that refuses it.
func TestTaskRevisions_ServerMakesNoTaskOrRefuses(t *testing.T) {
	t.Parallel()
	era(t, mcp.Modern, map[string][]scene{calling: {
		{reply: result(complete)},
		{reply: result(complete), after: time.Second},
		{reply: failure("-32602")},
		{reply: result(`{"resultType":"input_required","inputRequests":{"k":` + wantsName + `},"requestState":"st"}`)},
		{reply: result(complete)},
	}}, func(s *stage) {
		t := s.t
		begun := func(status string) string {
			var env struct {
				Result struct {
					Task struct{ TaskID, Status string }
				}
			}
			got := s.says(s.older(calling, wantsTask))
			if err := json.Unmarshal([]byte(got), &env); err != nil || env.Result.Task.Status != status || strings.Contains(got, "hello") {
				t.Fatalf("begun as %s", got)
			}
			return env.Result.Task.TaskID
		}
		for _, status := range []string{"completed", "working"} {
			if got := s.says(s.older(tasksResult, `"taskId":"`+begun(status)+`"`)); !strings.Contains(got, "hello Ada") {
				t.Errorf("the outcome is %s", got)
			}
		}
		if got := s.says(s.older(calling, wantsTask)); !strings.Contains(got, `"code":-32602`) {
			t.Errorf("refused as %s", got)
		}
		outcome := s.ask(t, s, s.older(tasksResult, `"taskId":"`+begun("input_required")+`"`)).Events()
		var request struct{ ID string }
		if err := json.Unmarshal([]byte(heardNext(t, outcome)), &request); err != nil {
			t.Fatal(err)
		}
		reply := s.older("", "")
		reply.Wire.Body = []byte(`{"jsonrpc":"2.0","id":"` + request.ID + `","result":{"action":"accept","content":{"name":"Ada"}}}`)
		s.ask(t, s, reply)
		if bodies, _ := read(t, outcome); len(bodies) != 1 || !strings.Contains(bodies[0], "hello Ada") || !strings.Contains(s.asker.last(), `"requestState":"st"`) {
			t.Errorf("the outcome is %s after %s", bodies, s.asker.last())
		}
	})
}

func TestTaskRevisions_Cancel(t *testing.T) {
	t.Parallel()
	era(t, mcp.Modern, map[string][]scene{
		calling:     {{reply: result(`{"resultType":"task","status":"working",` + newTask + `}`)}},
		tasksGet:    {{reply: newStands("working", "")}, {reply: newStands("working", "")}, {reply: newStands("cancelled", "")}},
		tasksCancel: {{reply: result(`{"resultType":"complete"}`)}},
	}, func(s *stage) {
		s.says(s.older(calling, wantsTask))
		if got := s.says(s.older(tasksCancel, `"taskId":"u1"`)); !strings.Contains(got, `"taskId":"u1","status":"cancelled"`) {
			s.t.Errorf("canceled as %s", got)
		}
	})
	era(t, mcp.Legacy, map[string][]scene{
		calling:     {{reply: result(`{"task":{"status":"working",` + oldTask + `}}`)}},
		tasksGet:    {{reply: oldStands("working")}, {reply: oldStands("cancelled")}},
		tasksCancel: {{reply: oldStands("cancelled")}},
	}, func(s *stage) {
		s.asker.support = "optional"
		s.says(s.newer(calling, `"name":"ask","arguments":{}`))
		if got := s.says(s.newer(tasksCancel, `"taskId":"u1"`)); !strings.Contains(got, `"result":{"resultType":"complete"`) || strings.Contains(got, "taskId") {
			s.t.Errorf("canceled as %s", got)
		}
		s.until(s.newer, `"status":"cancelled"`)
		if got := s.says(s.newer(tasksCancel, `"taskId":"u1"`)); !strings.Contains(got, `"resultType":"complete"`) {
			s.t.Errorf("canceled again as %s", got)
		}
	})
}

// A client of the extension, and a server of 2025-11-25: what it asks comes on the
// stream of the outcome, and is asked with the task.
func TestTaskRevisions_ModernClientOlderServer(t *testing.T) {
	t.Parallel()
	question := `{"jsonrpc":"2.0","id":"q1","method":"elicitation/create","params":{"message":"who?","requestedSchema":{"type":"object","properties":{"name":{"type":"string"}},"required":["name"]}}}`
	era(t, mcp.Legacy, map[string][]scene{
		calling:     {{reply: result(`{"task":{"status":"working",` + oldTask + `}}`)}},
		tasksGet:    {{reply: oldStands("working")}, {reply: oldStands("input_required")}, {reply: oldStands("completed")}},
		tasksResult: {{events: []string{question, "", result(oldHello)}}},
		"":          {{reply: "taken"}},
	}, func(s *stage) {
		t := s.t
		s.asker.support = "required"
		if got := s.says(s.newer(calling, `"name":"ask","arguments":{}`)); !strings.Contains(got, `"resultType":"task"`) || !strings.Contains(got, `"taskId":"u1"`) || !strings.Contains(got, `"ttlMs":60000`) {
			t.Fatalf("begun as %s", got)
		}
		if !strings.Contains(s.asker.bodies[0], `"task":{}`) {
			t.Errorf("the server was asked %s", s.asker.bodies[0])
		}
		requested := s.until(s.newer, `"status":"input_required"`)
		var env struct {
			Result struct{ InputRequests map[string]json.RawMessage }
		}
		if err := json.Unmarshal([]byte(requested), &env); err != nil || len(env.Result.InputRequests) != 1 || !strings.Contains(requested, "who?") {
			t.Fatalf("asked %s", requested)
		}
		for key := range env.Result.InputRequests {
			if got := s.says(s.newer(tasksUpdate, `"taskId":"u1","inputResponses":{"`+key+`":{"action":"accept","content":{"name":"Ada"}}}`)); !strings.Contains(got, `"resultType":"complete"`) {
				t.Errorf("answered with %s", got)
			}
		}
		synctest.Wait()
		if got := s.asker.last(); !strings.Contains(got, `"id":"q1","result":{"action":"accept","content":{"name":"Ada"}}`) {
			t.Errorf("the server was answered %s", got)
		}
		s.asker.resume <- struct{}{}
		if got := s.until(s.newer, `"status":"completed"`); !strings.Contains(got, "hello Ada") {
			t.Errorf("the outcome is %s", got)
		}
	})
}

// A tool that can be had only as a task, for callers who know of none; and one that
// must not become one, for a caller who would take one.
func TestTaskRevisions_ClientWithoutTasksWaits(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		server, caller, support string
		scenes                  map[string][]scene
		task                    int // of the requests, which one asks for a task; -1: none does
	}{
		"June to 2025-11-25": {mcp.Legacy, mcp.LegacyJune, "required", map[string][]scene{
			calling: {{reply: result(`{"task":{"status":"working",` + oldTask + `}}`)}}, tasksGet: {{reply: oldStands("working")}, {reply: oldStands("completed")}}, tasksResult: {{reply: result(oldHello)}},
		}, 0},
		"June to 2026-07-28": {mcp.Modern, mcp.LegacyJune, "", map[string][]scene{
			calling: {{reply: failure("-32021")}, {reply: result(`{"resultType":"task","status":"working",` + newTask + `}`)}}, tasksGet: {{reply: newStands("completed", `,"result":`+complete)}},
		}, 1},
		"2026-07-28 to 2025-11-25": {mcp.Legacy, mcp.Modern, "required", map[string][]scene{
			calling: {{reply: result(`{"task":{"status":"working",` + oldTask + `}}`)}}, tasksGet: {{reply: oldStands("completed")}}, tasksResult: {{reply: result(oldHello)}},
		}, 0},
		"a tool without": {mcp.Legacy, mcp.LegacyJune, "", map[string][]scene{calling: {{reply: result(oldHello)}}}, -1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			era(t, tc.server, tc.scenes, func(s *stage) {
				s.asker.support = tc.support
				call := s.asksFor(tc.caller, calling, `"name":"ask","arguments":{},`)
				call.Agent = "asker"
				if got := s.says(call); !strings.Contains(got, "hello Ada") || strings.Contains(got, `"taskId":"u1","status"`) {
					s.t.Errorf("got %s after %s", got, s.asker.was())
				}
				for i, body := range s.asker.bodies {
					wants := strings.Contains(body, calling) && (strings.Contains(body, `"task":{}`) || strings.Contains(body, `"io.modelcontextprotocol/tasks"`))
					if wants != (i == tc.task) {
						s.t.Errorf("request %d is %s", i, body)
					}
				}
			})
		})
	}
	era(t, mcp.Legacy, map[string][]scene{calling: {{reply: result(oldHello)}}}, func(s *stage) {
		if got := s.says(s.newer(calling, `"name":"ask","arguments":{}`)); !strings.Contains(got, "hello Ada") || strings.Contains(s.asker.last(), `"task":`) {
			s.t.Errorf("got %s after %s", got, s.asker.last())
		}
	})
}

// withoutTasks calls a tool of the stage's server of 2025-11-25, which can only be had
// as a task, for a client of 2026-07-28 that knows no tasks. more follows the arguments.
func (s *stage) withoutTasks(more string) transport.Call {
	call := s.newer(calling, `"name":"ask","arguments":{}`+more)
	call.Wire.Body = []byte(strings.Replace(string(call.Wire.Body), `,"extensions":{"io.modelcontextprotocol/tasks":{}}`, "", 1))
	return call
}

// askedWithoutTasks makes that call and returns the call that answers the question
// which the server asks.
func (s *stage) askedWithoutTasks() transport.Call {
	s.t.Helper()
	var env struct {
		Result struct {
			ResultType, RequestState string
			InputRequests            map[string]json.RawMessage
		}
	}
	if got := s.says(s.withoutTasks("")); json.Unmarshal([]byte(got), &env) != nil || env.Result.ResultType != "input_required" || len(env.Result.InputRequests) != 1 {
		s.t.Fatalf("asked %s after %s", got, s.asker.was())
	}
	var key string
	for key = range env.Result.InputRequests {
		break
	}
	return s.withoutTasks(`,"inputResponses":{"` + key + `":{"action":"accept","content":{"name":"Ada"}}},"requestState":"` + env.Result.RequestState + `"`)
}

// asksInTask are the scenes of a server of 2025-11-25 that makes a task of a call and
// asks a question on the stream of its outcome; the outcome follows once the test
// sends on the player's resume channel.
func asksInTask() map[string][]scene {
	return map[string][]scene{
		calling:     {{reply: result(`{"task":{"status":"working",` + oldTask + `}}`)}},
		tasksGet:    {{reply: oldStands("input_required")}},
		tasksResult: {{events: []string{asksInside, "", result(oldHello)}}},
		"":          {{reply: "taken"}},
	}
}

// What such a tool asks, a caller without tasks is asked in its own way.
func TestTaskRevisions_ClientWithoutTasksIsAsked(t *testing.T) {
	t.Parallel()
	era(t, mcp.Legacy, asksInTask(), func(s *stage) {
		s.asker.support = "required"
		answer := s.askedWithoutTasks()
		// The server goes on only after it was answered: the clock of the bubble stands
		// still until the answer has been delivered and its caller waits.
		time.AfterFunc(soon, func() { close(s.asker.resume) })
		if got := s.says(answer); !strings.Contains(got, "hello Ada") {
			s.t.Errorf("the outcome is %s after %s", got, s.asker.was())
		}
		if got := s.asker.received(""); len(got) != 1 || !strings.Contains(got[0], `"result":{"action":"accept","content":{"name":"Ada"}}`) {
			s.t.Errorf("the server was answered %s", got)
		}
	})
}

// A server that ends its task without waiting for the answer: an answer that comes
// later is refused because the task has ended. It is not sent to the server, which
// never made the state that the answer brings back.
func TestTaskRevisions_AnswerAfterEndIsRefused(t *testing.T) {
	t.Parallel()
	era(t, mcp.Legacy, asksInTask(), func(s *stage) {
		s.asker.support = "required"
		answer := s.askedWithoutTasks()
		s.asker.resume <- struct{}{}
		synctest.Wait()
		before := s.asker.was()
		var over *canonical.Error
		if _, err := s.Exchange(s.t.Context(), answer); !errors.As(err, &over) || over.Code != canonical.CodeUnsupportedOp || over.Message != "the task has ended" {
			s.t.Errorf("the answer came to %v", err)
		}
		if got := s.asker.was(); got != before {
			s.t.Errorf("the server was asked %s after %s", got, before)
		}
	})
}

// A client of an older revision that answers twice: its server hears the first answer
// alone, and nothing about a question of ours that it has never asked.
func TestTaskRevisions_SecondStreamAnswerIsDropped(t *testing.T) {
	t.Parallel()
	era(t, mcp.Legacy, map[string][]scene{
		calling:     {{reply: result(`{"task":{"status":"working",` + oldTask + `}}`)}},
		tasksGet:    {{reply: oldStands("input_required")}},
		tasksResult: {{events: []string{asksInside, "", result(oldHello)}}},
		"":          {{reply: "taken"}, {reply: "taken"}},
	}, func(s *stage) {
		t := s.t
		s.asker.support = "required"
		events := s.ask(t, s, s.olderIn(mcp.LegacyJune, calling, `"name":"ask","arguments":{},"_meta":{"progressToken":"p"}`)).Events()
		question := heardNext(t, events)
		for _, name := range []string{"Ada", "Bob"} {
			s.replies(question, name)
			synctest.Wait()
		}
		time.AfterFunc(soon, func() { close(s.asker.resume) })
		if bodies, _ := read(t, events); len(bodies) != 1 || !strings.Contains(bodies[0], "hello Ada") {
			t.Errorf("the outcome is %s", bodies)
		}
		if got := s.asker.received(""); len(got) != 1 || !strings.Contains(got[0], `"id":"q1"`) || !strings.Contains(got[0], "Ada") {
			t.Errorf("the server heard %s", got)
		}
	})
}
