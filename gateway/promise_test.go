package gateway_test

import (
	"io"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aepb/aepb-gateway/translators/mcp"
)

// Whoever asks for a task has it at once, however long the agent takes to name its own.
func TestTask_CreatedBeforeTheAgentNamesItsOwn(t *testing.T) {
	t.Parallel()
	scenes := map[string][]scene{streaming: {{events: []string{wholeTask("COMPLETED", oneArt)}, after: time.Minute / 2, end: io.EOF}}}
	play(t, scenes, func(s *stage) {
		t := s.t
		began := time.Now()
		got := string(s.ask(t, s, s.by(mcp.Binding, mcp.Legacy,
			`{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"write","arguments":{"message":"hi"},"task":{"ttl":60000}}}`)).Wire().Body)
		if took := time.Since(began); took > 200*time.Millisecond || !strings.Contains(got, `"status":"working"`) {
			t.Errorf("after %s: %s", took, got)
		}
		_, rest, _ := strings.Cut(got, `"taskId":"`)
		id, _, _ := strings.Cut(rest, `"`)
		result := string(s.ask(t, s, s.by(mcp.Binding, mcp.Legacy, `{"jsonrpc":"2.0","id":8,"method":"tasks/result","params":{"taskId":"`+id+`"}}`)).Wire().Body)
		if !strings.Contains(result, "done it") {
			t.Errorf("the result is %s", result)
		}
	})
}

// An end that its caller has asked for is on record before the work's own stream
// says it, or instead: whoever wants the outcome has it.
func TestTaskResult_AvailableBeforeStreamEnds(t *testing.T) {
	t.Parallel()
	scenes := map[string][]scene{
		streaming: {{events: []string{wholeTask("WORKING", ""), ""}}}, looking: {{reply: result(taskOf("COMPLETED", oneArt))}},
	}
	play(t, scenes, func(s *stage) {
		t := s.t
		got := string(s.ask(t, s, s.by(mcp.Binding, mcp.Legacy,
			`{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"write","arguments":{"message":"hi"},"task":{"ttl":60000}}}`)).Wire().Body)
		_, rest, _ := strings.Cut(got, `"taskId":"`)
		id, _, _ := strings.Cut(rest, `"`)
		synctest.Wait()
		began := time.Now()
		for _, method := range []string{"tasks/get", "tasks/result", "tasks/result"} {
			got := string(s.ask(t, s, s.by(mcp.Binding, mcp.Legacy, `{"jsonrpc":"2.0","id":8,"method":"`+method+`","params":{"taskId":"`+id+`"}}`)).Wire().Body)
			want := "done it"
			if method == "tasks/get" {
				want = `"status":"completed"`
			}
			if took := time.Since(began); took > time.Second || !strings.Contains(got, want) {
				t.Errorf("%s after %s: %s", method, took, got)
			}
		}
	})
}

// A task that was promised has another name at its agent: a question about it is
// asked under that one, and nothing is lost by it.
func TestTask_EarlyIDMapsToAgentsID(t *testing.T) {
	t.Parallel()
	scenes := map[string][]scene{
		streaming: {{events: []string{wholeTask("WORKING", ""), ""}, after: time.Minute / 2}}, looking: {{reply: result(taskOf("WORKING", ""))}},
	}
	play(t, scenes, func(s *stage) {
		t := s.t
		got := string(s.ask(t, s, s.extended("tools/call", `"name":"write","arguments":`+askingHi)).Wire().Body)
		_, rest, _ := strings.Cut(got, `"taskId":"`)
		id, _, _ := strings.Cut(rest, `"`)
		time.Sleep(time.Minute)
		answer := s.ask(t, s, s.extended("tasks/get", `"taskId":"`+id+`"`))
		if id == "t1" || !strings.Contains(string(answer.Wire().Body), `"taskId":"`+id+`"`) || !strings.HasSuffix(s.agent.was(), looking) {
			t.Errorf("%s is known as %s, and the agent was asked %s", id, answer.Wire().Body, s.agent.was())
		}
		for _, loss := range answer.Losses {
			if loss.Path == "/conversation/taskId" {
				t.Errorf("its name is lost: %+v", loss)
			}
		}
	})
}
