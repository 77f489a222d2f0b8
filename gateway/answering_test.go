package gateway_test

import (
	"encoding/json"
	"io"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aepb/aepb-gateway/gateway/transport"
	"github.com/aepb/aepb-gateway/translators/a2a"
	"github.com/aepb/aepb-gateway/translators/mcp"

	slimform "github.com/aepb/aepb-gateway/translators/slim"
)

// What answers a question of work that the agent has a task of its own for is said
// to that task, whatever the caller says it in: there is one task, and it goes on.

const acceptsAda = `{"action":"accept","content":{"name":"Ada"}}`

// askingTask is a task of the extension of 2026-07-28 that asks, and has an outcome.
func askingTask() map[string][]scene {
	return map[string][]scene{
		calling: {{reply: result(`{"resultType":"task","status":"working",` + newTask + `}`)}},
		tasksGet: {
			{reply: newStands("working", "")},
			{reply: newStands("input_required", `,"inputRequests":{"k":`+wantsName+`}`)},
			{reply: newStands("working", "")},
			{reply: newStands("completed", `,"result":`+complete)},
		},
		tasksUpdate: {{reply: result(`{"resultType":"complete"}`)}},
	}
}

// received is what was asked in this method.
func (p *player) received(method string) (bodies []string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for i, requested := range p.requested {
		if requested == method {
			bodies = append(bodies, p.bodies[i])
		}
	}
	return bodies
}

// updated expects that the server's task had one answer, and that there are no
// more calls than these.
func (s *stage) updated(calls int) {
	s.t.Helper()
	updates := s.asker.received(tasksUpdate)
	if len(s.asker.received(calling)) != calls || len(updates) != 1 {
		s.t.Errorf("the server was asked %s", s.asker.was())
		return
	}
	if !strings.Contains(updates[0], `"taskId":"u1"`) || !strings.Contains(updates[0], `"inputResponses":{"k":`+acceptsAda+`}`) {
		s.t.Errorf("the server was answered %s", updates[0])
	}
}

// olderIn is a request of a client that can be asked on its streams.
func (s *stage) olderIn(version, method, params string) transport.Call {
	call := s.older(method, params)
	call.Wire.Version = version
	return call
}

// whole is an answer, or all events of it.
func whole(t *testing.T, answer transport.Answer) string {
	t.Helper()
	if answer.Events() == nil {
		return string(answer.Wire().Body)
	}
	bodies, _ := read(t, answer.Events())
	return strings.Join(bodies, "\n")
}

func TestTaskQuestion_A2AMessageAnswersMCPServer(t *testing.T) {
	t.Parallel()
	for _, method := range []string{invoking, streaming} {
		t.Run(method, func(t *testing.T) {
			t.Parallel()
			era(t, mcp.Modern, askingTask(), func(s *stage) {
				t := s.t
				id := s.requested(t, s.ask(t, s, s.asks(invoking, called)))
				got := whole(t, s.ask(t, s, s.asks(method, `{"message":{"messageId":"m2","taskId":"`+id+`","role":"ROLE_USER","parts":[{"data":{"name":"Ada"}}]}}`)))
				if !strings.Contains(got, id) || !strings.Contains(got, "TASK_STATE_COMPLETED") || !strings.Contains(got, "hello Ada") {
					t.Errorf("the answer leads to %s", got)
				}
				s.updated(1)
				if _, state := taskIn(t, s.ask(t, s, s.asks(looking, `{"id":"`+id+`"}`)).Wire().Body); state != "TASK_STATE_COMPLETED" {
					t.Errorf("at the end it is %s", state)
				}
				if list := s.says(s.asks("ListTasks", `{}`)); !strings.Contains(list, `"totalSize":1`) {
					t.Errorf("there are %s", list)
				}
			})
		})
	}
}

// A client that is asked on its stream, and a server that does it as a task or not
// at all: the client knows of no task, and its answer goes to that of the server.
func TestTaskQuestion_StreamAnswerReachesServerTask(t *testing.T) {
	t.Parallel()
	for _, version := range []string{mcp.Legacy, mcp.LegacyJune} {
		for name, more := range map[string]string{"": "", " with progress": `,"_meta":{"progressToken":"p"}`} {
			t.Run(version+name, func(t *testing.T) {
				t.Parallel()
				scenes := askingTask()
				scenes[calling] = append([]scene{{reply: failure("-32021")}}, scenes[calling]...)
				era(t, mcp.Modern, scenes, func(s *stage) {
					events := s.ask(s.t, s, s.olderIn(version, calling, `"name":"ask","arguments":{}`+more)).Events()
					bodies := s.interview(version, events, acceptsAda)
					if len(bodies) != 1 || !strings.Contains(bodies[0], `"id":7`) || !strings.Contains(bodies[0], "hello Ada") || strings.Contains(bodies[0], "u1") {
						s.t.Errorf("the answer leads to %s", bodies)
					}
					s.updated(2) // one was refused
				})
			})
		}
	}
}

// What comes of a task that its caller knows nothing of is the answer to his call, as
// the server says it, and no task; who wants to be told of progress is.
func TestServerTask_OutcomeReturnedAsCallResult(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ end, want string }{
		"done":          {newStands("completed", `,"result":`+complete), `"result":{"content":[{"type":"text","text":"hello Ada"}]}`},
		"a tool failed": {newStands("completed", `,"result":{"content":[],"isError":true,"structuredContent":{"a":1}}`), `"result":{"structuredContent":{"a":1},"content":[],"isError":true}`},
		"broken off":    {newStands("failed", `,"error":{"code":-32603,"message":"broke"}`), `"error":{"code":-32603,"message":"broke"}`},
		"canceled":      {newStands("cancelled", ""), `"error":{"code":-32603,"message":"the agent has canceled what it did"}`},
	} {
		for _, version := range []string{mcp.Legacy, mcp.LegacyJune} {
			for more, notice := range map[string]string{"": "", `,"_meta":{"progressToken":"p"}`: `"progressToken":"p","progress":1,"message":"half of it"`} {
				t.Run(name+version+more, func(t *testing.T) {
					t.Parallel()
					era(t, mcp.Modern, map[string][]scene{
						calling:  {{reply: failure("-32021")}, {reply: result(`{"resultType":"task","status":"working",` + newTask + `}`)}},
						tasksGet: {{reply: newStands("working", `,"statusMessage":"half of it"`)}, {reply: c.end}},
					}, func(s *stage) {
						got := whole(s.t, s.ask(s.t, s, s.olderIn(version, calling, `"name":"ask","arguments":{}`+more)))
						if !strings.HasSuffix(got, `{"jsonrpc":"2.0","id":7,`+c.want+`}`) || !strings.Contains(got, notice) || strings.Contains(got, "u1") {
							s.t.Errorf("told %s after %s", got, s.asker.was())
						}
					})
				})
			}
		}
	}
}

// Who asked for a task of his revision is told when it began and how it stands, and
// has the outcome apart, as the server says it.
func TestTaskResult_OfModernServerForOlderClient(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ end, status, want string }{
		"done":          {newStands("completed", `,"result":`+complete), "completed", `"content":[{"type":"text","text":"hello Ada"}]`},
		"a tool failed": {newStands("completed", `,"result":{"content":[],"isError":true,"structuredContent":{"a":1}}`), "failed", `"structuredContent":{"a":1},"content":[],"isError":true`},
		"broken off":    {newStands("failed", `,"error":{"code":-32603,"message":"broke"}`), "failed", `"error":{"code":-32603,"message":"broke"}`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			era(t, mcp.Modern, map[string][]scene{
				calling:  {{reply: result(`{"resultType":"task","status":"working",` + newTask + `}`)}},
				tasksGet: {{reply: newStands("working", "")}, {reply: c.end}},
			}, func(s *stage) {
				s.says(s.older(calling, wantsTask))
				if got := s.until(s.older, `"status":"`+c.status+`"`); !strings.Contains(got, `"createdAt":"2026-07-28T01:02:03Z"`) || !strings.Contains(got, `"ttl":60000`) {
					s.t.Errorf("it stands as %s", got)
				}
				if got := s.says(s.older(tasksResult, `"taskId":"u1"`)); !strings.Contains(got, c.want) || strings.Contains(got, "artifacts") {
					s.t.Errorf("the outcome is %s", got)
				}
			})
		})
	}
}

// interview answers the question on a client's stream, and reads the rest of that.
func (s *stage) interview(version string, events transport.Events, answer string) []string {
	s.t.Helper()
	var request struct {
		ID     string
		Method string
		Params struct{ Message string }
	}
	if question := heardNext(s.t, events); json.Unmarshal([]byte(question), &request) != nil || request.ID == "" || request.Method != "elicitation/create" || request.Params.Message != "who?" {
		s.t.Fatalf("asked %s", question)
	}
	reply := s.olderIn(version, "", "")
	reply.Wire.Body = []byte(`{"jsonrpc":"2.0","id":"` + request.ID + `","result":` + answer + `}`)
	if got := s.says(reply); got != "" {
		s.t.Errorf("the answer is answered with %s", got)
	}
	bodies, _ := read(s.t, events)
	return bodies
}

// An A2A agent that asks, and then has what it wanted: in one reply, or on streams.
func askingAgent(streams bool) map[string][]scene {
	asks, ends := wholeTask("INPUT_REQUIRED", ""), wholeTask("COMPLETED", oneArt)
	if streams {
		return map[string][]scene{streaming: {{events: []string{asks}, end: io.EOF}, {events: []string{ends}, end: io.EOF}}}
	}
	return map[string][]scene{invoking: {{reply: asks}, {reply: ends}}}
}

func TestTaskQuestion_RetriedCallAnswersAgent(t *testing.T) {
	t.Parallel()
	for name, streams := range map[string]bool{invoking: false, streaming: true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			play(t, askingAgent(streams), func(s *stage) {
				t := s.t
				s.agent.blind = !streams
				var env struct{ Result struct{ RequestState string } }
				if got := s.says(s.canAnswer("")); json.Unmarshal([]byte(got), &env) != nil || !strings.Contains(got, `"resultType":"input_required"`) {
					t.Fatalf("asked %s", got)
				}
				got := s.says(s.canAnswer(`,"inputResponses":{"reply":{"action":"accept","content":{"reply":"short"}}},"requestState":"` + env.Result.RequestState + `"`))
				if !strings.Contains(got, "done it") {
					t.Errorf("the answer leads to %s", got)
				}
				s.toldItsTask(name, `"short"`)
			})
		})
	}
}

// toldItsTask expects that the agent was asked twice, and the second time about its
// own task.
func (s *stage) toldItsTask(method, want string) {
	s.t.Helper()
	if got := s.agent.was(); strings.ReplaceAll(got, " "+looking, "") != method+" "+method {
		s.t.Errorf("the agent was asked %s", got)
	}
	if first := s.agent.bodies[0]; strings.Contains(first, `"taskId"`) {
		s.t.Errorf("the agent was asked %s", first)
	}
	if last := s.agent.last(); !strings.Contains(last, `"taskId":"t1"`) || !strings.Contains(last, want) {
		s.t.Errorf("the agent was answered %s", last)
	}
}

// A client of the tasks extension answers apart from its call.
func TestTaskQuestion_TasksUpdateAnswersAgent(t *testing.T) {
	t.Parallel()
	scenes := askingAgent(true)
	scenes[looking] = []scene{{reply: result(taskOf("INPUT_REQUIRED", ""))}}
	play(t, scenes, func(s *stage) {
		t := s.t
		var env struct {
			Result struct {
				TaskID, Status string
				InputRequests  map[string]json.RawMessage
			}
		}
		if got := s.says(s.extended(calling, `"name":"write","arguments":`+askingHi)); json.Unmarshal([]byte(got), &env) != nil || env.Result.TaskID == "" {
			t.Fatalf("begun as %s", got)
		}
		id := env.Result.TaskID
		if got := s.says(s.extended(tasksGet, `"taskId":"`+id+`"`)); json.Unmarshal([]byte(got), &env) != nil || env.Result.Status != "input_required" || len(env.Result.InputRequests) != 1 {
			t.Fatalf("it stands as %s", got)
		}
		for key := range env.Result.InputRequests {
			s.says(s.extended(tasksUpdate, `"taskId":"`+id+`","inputResponses":{"`+key+`":{"action":"accept","content":{"`+key+`":"short"}}}`))
		}
		synctest.Wait()
		if got := s.says(s.extended(tasksGet, `"taskId":"`+id+`"`)); !strings.Contains(got, `"status":"completed"`) || !strings.Contains(got, "done it") {
			t.Errorf("the outcome is %s", got)
		}
		s.toldItsTask(streaming, `"short"`)
	})
}

// TestUpdate_CanceledQuestion: a client that cancels the question of a task, apart from its call,
// ends the task; the agent is told that, and no word in the user's name.
func TestUpdate_CanceledQuestion(t *testing.T) {
	t.Parallel()
	scenes := askingAgent(true)
	scenes[looking] = []scene{{reply: result(taskOf("INPUT_REQUIRED", ""))}}
	scenes[canceling] = []scene{{reply: result(taskOf("CANCELED", ""))}}
	play(t, scenes, func(s *stage) {
		t := s.t
		var env struct {
			Result struct{ TaskID, Status string }
		}
		if got := s.says(s.extended(calling, `"name":"write","arguments":`+askingHi)); json.Unmarshal([]byte(got), &env) != nil || env.Result.TaskID == "" {
			t.Fatalf("begun as %s", got)
		}
		id := env.Result.TaskID
		synctest.Wait()
		if got := s.says(s.extended(tasksUpdate, `"taskId":"`+id+`","inputResponses":{"reply":{"action":"cancel"}}`)); !strings.Contains(got, `"complete"`) {
			t.Errorf("the update is answered with %s", got)
		}
		synctest.Wait()
		if got := s.says(s.extended(tasksGet, `"taskId":"`+id+`"`)); !strings.Contains(got, `"status":"cancelled"`) {
			t.Errorf("it stands as %s", got)
		}
		if got := s.agent.was(); strings.Count(got, streaming) != 1 || !strings.Contains(got, canceling) {
			t.Errorf("the agent was asked %s, expected one message and its cancellation", got)
		}
	})
}

// Between a caller and an agent of A2A the task is named as the agent names it, and
// what is said to it is what its caller says, in every form.
func TestTaskQuestion_A2AMessageAnswersA2AAgent(t *testing.T) {
	t.Parallel()
	for name, form := range map[string]string{"as it is": "", "in another form": a2a.FormHTTP} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			play(t, askingAgent(false), func(s *stage) {
				t := s.t
				say := func(params string) string {
					call := s.a2a(invoking, params)
					if form != "" {
						call.Wire.Form, call.Wire.Verb, call.Wire.Path, call.Wire.Body = form, "POST", "/message:send", []byte(params)
					}
					return s.says(call)
				}
				if got := say(saying); !strings.Contains(got, `"id":"t1"`) || !strings.Contains(got, "INPUT_REQUIRED") {
					t.Fatalf("asked %s", got)
				}
				if got := say(strings.Replace(saying, `"messageId":"m1"`, `"messageId":"m2","taskId":"t1"`, 1)); !strings.Contains(got, `"id":"t1"`) || !strings.Contains(got, "done it") {
					t.Errorf("the answer leads to %s", got)
				}
				s.toldItsTask(invoking, `"messageId":"m2"`)
			})
		})
	}
}

// TestUpdate_AgentTakesAnswersApart: a client that answers apart, over another transport than the
// agent's, is told at once that its answer was taken; its task goes on without it.
func TestUpdate_AgentTakesAnswersApart(t *testing.T) {
	t.Parallel()
	scenes := askingTask()
	asks := scenes[tasksGet][1]
	scenes[tasksGet] = append(scenes[tasksGet][:2:2], append([]scene{asks}, scenes[tasksGet][2:]...)...) // also for its client
	era(t, mcp.Modern, scenes, func(s *stage) {
		t := s.t
		says := func(method, params string) string {
			call := s.extended(method, params)
			call.Agent, call.Wire.Binding, call.Wire.Version = "asker", slimform.Binding, slimform.VersionMCP(mcp.Modern)
			answer, err := s.Exchange(t.Context(), call)
			if err != nil {
				t.Fatalf("%s: %v", method, err)
			}
			return string(answer.Wire().Body)
		}
		var env struct {
			Result struct{ TaskID, Status string }
		}
		if got := says(calling, `"name":"ask","arguments":{}`); json.Unmarshal([]byte(got), &env) != nil || env.Result.TaskID == "" {
			t.Fatalf("begun as %s", got)
		}
		id := env.Result.TaskID
		time.Sleep(5 * time.Second)
		if got := says(tasksGet, `"taskId":"`+id+`"`); !strings.Contains(got, `"input_required"`) {
			t.Fatalf("it stands as %s", got)
		}
		began := time.Now()
		if got := says(tasksUpdate, `"taskId":"`+id+`","inputResponses":{"k":`+acceptsAda+`}`); !strings.Contains(got, `"complete"`) {
			t.Errorf("the update is answered with %s", got)
		}
		if took := time.Since(began); took > 100*time.Millisecond {
			t.Errorf("the update is answered after %v", took)
		}
		time.Sleep(5 * time.Second)
		if got := says(tasksGet, `"taskId":"`+id+`"`); !strings.Contains(got, "hello Ada") {
			t.Errorf("the outcome is %s", got)
		}
		s.updated(1)
	})
}

// TestUpdate_AgentAway: the question of an agent that did not get the answer is open again, and the next
// answer to it is taken.
func TestUpdate_AgentAway(t *testing.T) {
	t.Parallel()
	scenes := askingTask()
	scenes[tasksUpdate] = append([]scene{{fail: errBroken}}, scenes[tasksUpdate]...)
	era(t, mcp.Modern, scenes, func(s *stage) {
		t := s.t
		says := func(method, params string) (string, error) {
			call := s.extended(method, params)
			call.Agent, call.Wire.Binding, call.Wire.Version = "asker", slimform.Binding, slimform.VersionMCP(mcp.Modern)
			answer, err := s.Exchange(t.Context(), call)
			return string(answer.Wire().Body), err
		}
		var env struct{ Result struct{ TaskID string } }
		if got, err := says(calling, `"name":"ask","arguments":{}`); err != nil || json.Unmarshal([]byte(got), &env) != nil {
			t.Fatalf("begun as %s: %v", got, err)
		}
		id := env.Result.TaskID
		time.Sleep(5 * time.Second)
		update := `"taskId":"` + id + `","inputResponses":{"k":` + acceptsAda + `}`
		if got, err := says(tasksUpdate, update); err == nil {
			t.Errorf("an answer that the agent did not get is taken: %s", got)
		}
		if got, err := says(tasksUpdate, update); err != nil || !strings.Contains(got, `"complete"`) {
			t.Errorf("the second update is answered with %s: %v", got, err)
		}
		time.Sleep(5 * time.Second)
		if got, err := says(tasksGet, `"taskId":"`+id+`"`); err != nil || !strings.Contains(got, "hello Ada") {
			t.Errorf("the outcome is %s: %v", got, err)
		}
	})
}
