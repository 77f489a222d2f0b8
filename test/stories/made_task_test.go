package stories

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/aepb/aepb-gateway/gateway/directory"
	gatewaytest "github.com/aepb/aepb-gateway/test/harness/gateway"
)

// TestMadeTask_StatusTimestamp: each status of a task that is made of a call has its
// time (A2A 1.0, 4.1.2), the same one whenever it is told, and lists are in its order,
// the newest first (A2A 1.0, 3.1.4).
func TestMadeTask_StatusTimestamp(t *testing.T) {
	t.Parallel()
	began := time.Now().Add(-time.Second)
	b := gatewaytest.NewFixture(t, gatewaytest.Plan{})
	progress := `{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":"p","progress":1,"message":"halfway"}}`
	b.Serve(t, "tool", "mcp-v1", &gatewaytest.Fake{Conduct: eventful(progress)}, gatewaytest.Host{})
	b.Serve(t, "failing", "mcp-v1", &gatewaytest.Fake{Conduct: gatewaytest.Replacing(`"content"`, `"isError":true,"content"`)}, gatewaytest.Host{})
	b.AINPAgent(t, "ainp", &gatewaytest.AINPFake{}, directory.Endpoint{})
	b.UACPAgent(t, "uacp", &gatewaytest.UACPFake{}, "")
	dated := func(t *testing.T, got gatewaytest.Reply) []gatewaytest.ToldTask {
		t.Helper()
		tasks := gatewaytest.TasksIn(t, got)
		for _, task := range tasks {
			if at := task.Status.Timestamp; at.Before(began) || at.After(time.Now().Add(time.Second)) {
				t.Errorf("%s of %q is dated %s in %s", task.Status.State, task.ID, at, got.Body)
			}
		}
		return tasks
	}
	for _, agent := range []string{"tool", "failing", "ainp", "uacp"} {
		calls := map[string]string{
			"one answer": gatewaytest.AddBody(b.Number()), "a stream": gatewaytest.Streamed(gatewaytest.AddBody(b.Number())),
			"at once": strings.Replace(gatewaytest.AddBody(b.Number()), `"params":{`, `"params":{"configuration":{"returnImmediately":true},`, 1),
		}
		if agent == "uacp" { // whose stream of one answer is no task
			delete(calls, "a stream")
		}
		for name, body := range calls {
			t.Run(agent+" "+name, func(t *testing.T) {
				notified := dated(t, b.Send(t, gatewaytest.A2ATo(b.Client, agent, body)))
				last := notified[len(notified)-1]
				if last.Status.State != "TASK_STATE_COMPLETED" && last.Status.State != "TASK_STATE_FAILED" {
					return // it has ended later, and was dated anew
				}
				id := notified[0].ID
				again := dated(t, b.Send(t, gatewaytest.A2ATo(b.Client, agent, `{"jsonrpc":"2.0","id":1,"method":"GetTask","params":{"id":"`+id+`"}}`)))
				if !again[0].Status.Timestamp.Equal(last.Status.Timestamp) {
					t.Errorf("told as of %s, and asked again as of %s", last.Status.Timestamp, again[0].Status.Timestamp)
				}
			})
		}
		t.Run(agent+" list", func(t *testing.T) {
			list := dated(t, b.Send(t, gatewaytest.A2ATo(b.Client, agent, `{"jsonrpc":"2.0","id":1,"method":"ListTasks","params":{}}`)))
			newest := func(x, y gatewaytest.ToldTask) int { return y.Status.Timestamp.Compare(x.Status.Timestamp) }
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
	b := gatewaytest.NewFixture(t, gatewaytest.Plan{})
	b.Serve(t, "tool", "mcp-v1", &gatewaytest.Fake{Conduct: eventful()}, gatewaytest.Host{})
	send := func(t *testing.T, body, length string) []gatewaytest.ToldTask {
		t.Helper()
		if length != "" {
			body = strings.Replace(body, `"params":{`, `"params":{"configuration":{"historyLength":`+length+`},`, 1)
		}
		return gatewaytest.TasksIn(t, b.Send(t, gatewaytest.A2ATo(b.Client, "tool", body)))
	}
	for name, body := range map[string]string{"one answer": gatewaytest.AddBody(5), "a stream": gatewaytest.Streamed(gatewaytest.AddBody(5))} {
		for _, length := range []string{"", "0"} {
			t.Run(name+" without "+length, func(t *testing.T) {
				notified := send(t, body, length)[0]
				if len(notified.History) != 0 {
					t.Errorf("the history is %+v", notified.History)
				}
				for _, ask := range []gatewaytest.HTTPRequest{
					gatewaytest.A2ATo(b.Client, "tool", `{"jsonrpc":"2.0","id":1,"method":"GetTask","params":{"id":"`+notified.ID+`","historyLength":10}}`),
					{At: "/agents/tool/a2a", Body: `{"jsonrpc":"2.0","id":1,"method":"tasks/get","params":{"id":"` + notified.ID + `","historyLength":10}}`},
				} {
					if got := string(b.Send(t, ask).Body); !strings.Contains(got, `"history":[{`) || !strings.Contains(got, `"messageId":"m1"`) {
						t.Errorf("asked for later it is %s", got)
					}
				}
			})
		}
		t.Run(name+" with", func(t *testing.T) {
			notified := send(t, body, "3")[0]
			whole := gatewaytest.TasksIn(t, b.Send(t, gatewaytest.A2ATo(b.Client, "tool", `{"jsonrpc":"2.0","id":1,"method":"GetTask","params":{"id":"`+notified.ID+`","historyLength":1}}`)))[0]
			for _, task := range []gatewaytest.ToldTask{notified, whole} {
				if h := task.History; len(h) != 1 || h[0].MessageID != "m1" || h[0].Role != "ROLE_USER" || len(h[0].Parts) != 2 || h[0].Parts[0].Text != gatewaytest.Secret {
					t.Errorf("the history is %+v", h)
				}
			}
			if whole.Status.State != "TASK_STATE_COMPLETED" {
				t.Errorf("the task is %s", whole.Status.State)
			}
			none := gatewaytest.TasksIn(t, b.Send(t, gatewaytest.A2ATo(b.Client, "tool", `{"jsonrpc":"2.0","id":1,"method":"GetTask","params":{"id":"`+notified.ID+`","historyLength":0}}`)))[0]
			if len(none.History) != 0 {
				t.Errorf("with historyLength 0 the history is %+v", none.History)
			}
		})
	}
	t.Run("in 0.3", func(t *testing.T) {
		got := b.Send(t, gatewaytest.HTTPRequest{At: "/agents/tool/a2a", Body: `{"jsonrpc":"2.0","id":1,"method":"message/send","params":{"configuration":{"historyLength":1},"message":{"kind":"message","messageId":"m1","role":"user","parts":[{"kind":"data","data":{"skill":"add","input":{"a":1}}}]}}}`})
		if body := string(got.Body); !strings.Contains(body, `"history":[{"kind":"message"`) || !strings.Contains(body, `"timestamp":"`) {
			t.Errorf("%d %s", got.Status, body)
		}
	})
}
