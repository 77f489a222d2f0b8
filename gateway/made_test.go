package gateway_test

import (
	"encoding/json"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aepb/aepb-gateway/gateway/transport"
	"github.com/aepb/aepb-gateway/translators/mcp"
)

// toldTask is a task as a caller of A2A 1.0 is told it.
type toldTask struct {
	ID, ContextID string
	Status        struct{ State, Timestamp string }
	History       []toldMessage
}

// toldMessage is a message in a history.
type toldMessage struct {
	MessageID, Role string
	Parts           []struct{ Text string }
}

// messages are the ids of the messages in its history.
func (k toldTask) messages() string {
	ids := make([]string, len(k.History))
	for i, message := range k.History {
		ids[i] = message.MessageID
	}
	return strings.Join(ids, " ")
}

// tasksOf are the tasks in an answer.
func tasksOf(t *testing.T, body []byte) []toldTask {
	t.Helper()
	var answer struct {
		Result struct {
			toldTask

			Task  *toldTask
			Tasks []toldTask
		}
	}
	if err := json.Unmarshal(body, &answer); err != nil {
		t.Fatalf("%v: %s", err, body)
	}
	switch r := answer.Result; {
	case r.Task != nil:
		return []toldTask{*r.Task}
	case r.Tasks != nil:
		return r.Tasks
	default:
		return []toldTask{r.toldTask}
	}
}

// sameTask asks for the task again in every way, and compares that with how it was told.
func (s *stage) sameTask(notified toldTask, from string, history ...toldMessage) {
	s.t.Helper()
	if notified.Status.Timestamp == "" || notified.ID == "" {
		s.t.Fatalf("%s: no task that is dated: %+v", from, notified)
	}
	<-time.After(3 * time.Second)
	read := func(method, params string) []toldTask {
		call := s.a2a(method, params)
		call.Agent = "asker"
		return tasksOf(s.t, s.ask(s.t, s, call).Wire().Body)
	}
	none := notified
	none.History = nil
	if notified.History == nil { // not asked for yet
		notified.History = history
	}
	for _, c := range []struct {
		name string
		got  []toldTask
		want toldTask
	}{
		{"GetTask", read(looking, `{"id":"`+notified.ID+`"}`), none},
		{"GetTask with history", read(looking, `{"id":"`+notified.ID+`","historyLength":4}`), notified},
		{"GetTask without history", read(looking, `{"id":"`+notified.ID+`","historyLength":0}`), none},
		{"ListTasks", read("ListTasks", `{}`), none},
		{"ListTasks with history", read("ListTasks", `{"historyLength":4}`), notified},
		{"ListTasks without history", read("ListTasks", `{"historyLength":0}`), none},
	} {
		if len(c.got) != 1 || c.got[0].ID != c.want.ID || c.got[0].Status != c.want.Status || c.got[0].messages() != c.want.messages() {
			s.t.Errorf("%s: %s tells %+v, want %+v", from, c.name, c.got, c.want)
		}
	}
}

// TestMadeTask_IsTheSameLater: a task that is made of a call of MCP has the history, where
// that is asked for, and the time of its status that its caller was told first, whenever
// and however it is read again (A2A 1.0, 3.2.4 and 4.1.2). It is kept whether or not it
// was asked for at first, with what the agent asked.
func TestMadeTask_IsTheSameLater(t *testing.T) {
	t.Parallel()
	asks := []string{asksInside, "", result(oldHello)}
	for name, c := range map[string]struct {
		method, configuration string
		says                  []string
	}{
		"not waited for":               {invoking, `{"returnImmediately":true,"historyLength":2}`, []string{"", result(oldHello)}},
		"not waited for, and it asks":  {invoking, `{"returnImmediately":true,"historyLength":2}`, asks},
		"waited for":                   {invoking, `{"historyLength":2}`, []string{result(oldHello)}},
		"waited for, and it asks":      {invoking, `{"historyLength":2}`, asks},
		"a stream":                     {streaming, `{"historyLength":2}`, []string{"", result(oldHello)}},
		"waited for without history":   {invoking, `{}`, []string{result(oldHello)}},
		"asked for later, no history":  {invoking, `{"returnImmediately":true}`, []string{"", result(oldHello)}},
		"it asks, without any history": {invoking, `{"historyLength":0}`, asks},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			era(t, mcp.Legacy, map[string][]scene{calling: {{events: c.says}}, "": {{reply: "taken"}}, "notifications/cancelled": {{}}}, func(s *stage) {
				t := s.t
				answer := s.ask(t, s, s.asksTool(c.method, `,"configuration":`+c.configuration))
				body := answer.Wire().Body
				if answer.Events() != nil {
					body = []byte(heardNext(t, answer.Events()))
					go readOn(t.Context(), answer.Events())
				}
				notified := tasksOf(t, body)[0]
				if want := strings.Contains(c.configuration, `"historyLength":2`); (notified.messages() == "m1") != want {
					t.Fatalf("the history is %+v", notified.History)
				}
				s.sameTask(notified, "first", toldMessage{MessageID: "m1"})
				switch notified.Status.State {
				case "TASK_STATE_COMPLETED":
					return
				case "TASK_STATE_INPUT_REQUIRED":
					question := notified.ID + "/asked/1"
					notified = s.answersIn(notified, c.configuration)
					if want := map[bool]string{true: question + " m2"}[strings.Contains(c.configuration, `"historyLength":2`)]; notified.messages() != want {
						t.Errorf("after the answer the history is %+v", notified.History)
					}
					again := s.a2a(looking, `{"id":"`+notified.ID+`","historyLength":10}`)
					again.Agent = "asker"
					if notified = tasksOf(t, s.ask(t, s, again).Wire().Body)[0]; notified.messages() != "m1 "+question+" m2" {
						t.Fatalf("asked for later the history is %+v", notified.History)
					}
					if q := notified.History[1]; q.Role != "ROLE_AGENT" || len(q.Parts) != 1 || q.Parts[0].Text != "who?" {
						t.Errorf("the question is %+v", q)
					}
				case "TASK_STATE_WORKING":
					s.asker.resume <- struct{}{}
				}
				synctest.Wait()
				again := s.a2a(looking, `{"id":"`+notified.ID+`","historyLength":4}`)
				again.Agent = "asker"
				if notified = tasksOf(t, s.ask(t, s, again).Wire().Body)[0]; notified.Status.State == "TASK_STATE_WORKING" || !strings.HasPrefix(notified.messages(), "m1") {
					t.Fatalf("at the end it is %+v", notified)
				}
				s.sameTask(notified, "at the end")
			})
		})
	}
}

// answersIn answers what a task asks, and returns the task as that is answered.
func (s *stage) answersIn(notified toldTask, configuration string) toldTask {
	s.t.Helper()
	call := s.a2a(invoking, `{"message":{"messageId":"m2","taskId":"`+notified.ID+`","contextId":"`+notified.ContextID+
		`","role":"ROLE_USER","parts":[{"data":{"name":"Ada"}}]},"configuration":`+configuration+`}`)
	call.Agent = "asker"
	answers := make(chan transport.Answer, 1)
	go func() { answers <- s.ask(s.t, s, call) }()
	<-time.After(time.Second)
	s.asker.resume <- struct{}{}
	return tasksOf(s.t, (<-answers).Wire().Body)[0]
}
