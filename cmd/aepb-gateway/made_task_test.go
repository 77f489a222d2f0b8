package main

import (
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/aepb/aepb-gateway/gateway/directory"
)

// toldTask is a task as A2A 1.0 tells it, as much of it as is of interest here.
type toldTask struct {
	ID     string
	Status struct {
		State     string
		Timestamp time.Time
	}
	History []struct {
		MessageID string `json:"messageId"`
		Role      string
		Parts     []struct {
			Text string
			Data json.RawMessage
		}
	}
}

// tasksIn are the tasks and the statuses of tasks in an answer, one or a stream.
func tasksIn(t *testing.T, got reply) (tasks []toldTask) {
	t.Helper()
	type result struct {
		Task         *toldTask
		StatusUpdate *toldTask `json:"statusUpdate"`
		Tasks        []toldTask
		toldTask
	}
	for line := range strings.Lines(string(got.body)) {
		line = strings.TrimSpace(strings.TrimPrefix(line, "data: "))
		if !strings.HasPrefix(line, "{") {
			continue
		}
		var said struct{ Result result }
		must(t, json.Unmarshal([]byte(line), &said))
		switch r := said.Result; {
		case r.Task != nil:
			tasks = append(tasks, *r.Task)
		case r.StatusUpdate != nil:
			tasks = append(tasks, *r.StatusUpdate)
		case r.Tasks != nil:
			tasks = append(tasks, r.Tasks...)
		case r.ID != "":
			tasks = append(tasks, r.toldTask)
		}
	}
	if got.status != http.StatusOK || len(tasks) == 0 {
		t.Fatalf("no task: %d %s", got.status, got.body)
	}
	return tasks
}

// TestMadeTask_StatusTimestamp: each status of a task that is made of a call has its
// time (A2A 1.0, 4.1.2), the same one whenever it is told, and lists are in its order,
// the newest first (A2A 1.0, 3.1.4).
func TestMadeTask_StatusTimestamp(t *testing.T) {
	t.Parallel()
	began := time.Now().Add(-time.Second)
	b := newBed(t, plan{})
	progress := `{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":"p","progress":1,"message":"halfway"}}`
	b.serve(t, "tool", "mcp-v1", &fake{conduct: eventful(progress)}, host{})
	b.serve(t, "failing", "mcp-v1", &fake{conduct: replacing(`"content"`, `"isError":true,"content"`)}, host{})
	b.ainpAgent(t, "ainp", &ainpFake{}, directory.Endpoint{})
	b.uacpAgent(t, "uacp", &uacpFake{}, "")
	dated := func(t *testing.T, got reply) []toldTask {
		t.Helper()
		tasks := tasksIn(t, got)
		for _, task := range tasks {
			if at := task.Status.Timestamp; at.Before(began) || at.After(time.Now().Add(time.Second)) {
				t.Errorf("%s of %q is dated %s in %s", task.Status.State, task.ID, at, got.body)
			}
		}
		return tasks
	}
	for _, agent := range []string{"tool", "failing", "ainp", "uacp"} {
		calls := map[string]string{
			"one answer": addBody(b.number()), "a stream": streamed(addBody(b.number())),
			"at once": strings.Replace(addBody(b.number()), `"params":{`, `"params":{"configuration":{"returnImmediately":true},`, 1),
		}
		if agent == "uacp" { // whose stream of one answer is no task
			delete(calls, "a stream")
		}
		for name, body := range calls {
			t.Run(agent+" "+name, func(t *testing.T) {
				told := dated(t, b.send(t, a2aTo(b.client, agent, body)))
				last := told[len(told)-1]
				if last.Status.State != "TASK_STATE_COMPLETED" && last.Status.State != "TASK_STATE_FAILED" {
					return // it has ended later, and was dated anew
				}
				id := told[0].ID
				again := dated(t, b.send(t, a2aTo(b.client, agent, `{"jsonrpc":"2.0","id":1,"method":"GetTask","params":{"id":"`+id+`"}}`)))
				if !again[0].Status.Timestamp.Equal(last.Status.Timestamp) {
					t.Errorf("told as of %s, and asked again as of %s", last.Status.Timestamp, again[0].Status.Timestamp)
				}
			})
		}
		t.Run(agent+" list", func(t *testing.T) {
			list := dated(t, b.send(t, a2aTo(b.client, agent, `{"jsonrpc":"2.0","id":1,"method":"ListTasks","params":{}}`)))
			newest := func(x, y toldTask) int { return y.Status.Timestamp.Compare(x.Status.Timestamp) }
			if len(list) != len(calls) || !slices.IsSortedFunc(list, newest) {
				t.Errorf("the list is %+v", list)
			}
		})
	}
}

// TestMadeTask_History: a caller who asks for history is told its own message in the
// task that is made of its call, when it sends it and later; others are not (A2A 1.0,
// 3.2.4).
func TestMadeTask_History(t *testing.T) {
	t.Parallel()
	b := newBed(t, plan{})
	b.serve(t, "tool", "mcp-v1", &fake{conduct: eventful()}, host{})
	send := func(t *testing.T, body, length string) []toldTask {
		t.Helper()
		if length != "" {
			body = strings.Replace(body, `"params":{`, `"params":{"configuration":{"historyLength":`+length+`},`, 1)
		}
		return tasksIn(t, b.send(t, a2aTo(b.client, "tool", body)))
	}
	for name, body := range map[string]string{"one answer": addBody(5), "a stream": streamed(addBody(5))} {
		for _, length := range []string{"", "0"} {
			t.Run(name+" without "+length, func(t *testing.T) {
				told := send(t, body, length)[0]
				if len(told.History) != 0 {
					t.Errorf("the history is %+v", told.History)
				}
				for _, ask := range []letter{
					a2aTo(b.client, "tool", `{"jsonrpc":"2.0","id":1,"method":"GetTask","params":{"id":"`+told.ID+`","historyLength":10}}`),
					{at: "/agents/tool/a2a", body: `{"jsonrpc":"2.0","id":1,"method":"tasks/get","params":{"id":"` + told.ID + `","historyLength":10}}`},
				} {
					if got := string(b.send(t, ask).body); !strings.Contains(got, `"history":[{`) || !strings.Contains(got, `"messageId":"m1"`) {
						t.Errorf("asked for later it is %s", got)
					}
				}
			})
		}
		t.Run(name+" with", func(t *testing.T) {
			told := send(t, body, "3")[0]
			whole := tasksIn(t, b.send(t, a2aTo(b.client, "tool", `{"jsonrpc":"2.0","id":1,"method":"GetTask","params":{"id":"`+told.ID+`","historyLength":1}}`)))[0]
			for _, task := range []toldTask{told, whole} {
				if h := task.History; len(h) != 1 || h[0].MessageID != "m1" || h[0].Role != "ROLE_USER" || len(h[0].Parts) != 2 || h[0].Parts[0].Text != secret {
					t.Errorf("the history is %+v", h)
				}
			}
			if whole.Status.State != "TASK_STATE_COMPLETED" {
				t.Errorf("the task is %s", whole.Status.State)
			}
			none := tasksIn(t, b.send(t, a2aTo(b.client, "tool", `{"jsonrpc":"2.0","id":1,"method":"GetTask","params":{"id":"`+told.ID+`","historyLength":0}}`)))[0]
			if len(none.History) != 0 {
				t.Errorf("with historyLength 0 the history is %+v", none.History)
			}
		})
	}
	t.Run("in 0.3", func(t *testing.T) {
		got := b.send(t, letter{at: "/agents/tool/a2a", body: `{"jsonrpc":"2.0","id":1,"method":"message/send","params":{"configuration":{"historyLength":1},"message":{"kind":"message","messageId":"m1","role":"user","parts":[{"kind":"data","data":{"skill":"add","input":{"a":1}}}]}}}`})
		if body := string(got.body); !strings.Contains(body, `"history":[{"kind":"message"`) || !strings.Contains(body, `"timestamp":"`) {
			t.Errorf("%d %s", got.status, body)
		}
	})
}
