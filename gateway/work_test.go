package gateway_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/ect/ecttest"
	"github.com/aepb/aepb-gateway/ect/identity"
	"github.com/aepb/aepb-gateway/gateway"
	"github.com/aepb/aepb-gateway/gateway/transport"
	"github.com/aepb/aepb-gateway/policy"
	"github.com/aepb/aepb-gateway/translators/canonical"
)

// a2aCall is a message of an A2A client, as its door hands it in.
func (b *fixture) a2aCall(method, params string) transport.Call {
	c := b.call(fmt.Sprintf(`{"jsonrpc":"2.0","id":7,"method":%q,"params":%s}`, method, params))
	c.Detached = true
	return c
}

const adding = `{"message":{"messageId":"m1","role":"ROLE_USER","parts":[{"data":{"skill":"add","input":{"a":1,"b":2}}}]}}`

// exchange is an exchange that must succeed.
func (b *fixture) exchange(t *testing.T, call transport.Call) transport.Answer {
	t.Helper()
	answer, err := b.Exchange(t.Context(), call)
	if err != nil {
		t.Fatalf("%s: %v", call.Wire.Body, err)
	}
	return answer
}

// read reads a stream to its end: the bodies of its events, and the evidence
// that closes it.
func read(t *testing.T, events transport.Events) (bodies []string, evidence []string) {
	t.Helper()
	if events == nil {
		t.Fatal("there is no stream")
	}
	defer func() { _ = events.Close() }()
	for {
		event, err := events.Next(t.Context())
		if errors.Is(err, io.EOF) {
			return bodies, evidence
		}
		if err != nil {
			t.Fatal(err)
		}
		if len(event.Wire.Body) > 0 {
			bodies = append(bodies, string(event.Wire.Body))
		}
		evidence = append(evidence, event.Evidence...)
	}
}

// readOn reads a stream to its end, for a test that does not look at it.
func readOn(ctx context.Context, events transport.Events) {
	defer func() { _ = events.Close() }()
	for {
		if _, err := events.Next(ctx); err != nil {
			return
		}
	}
}

// taskIn is the task of an answer's body.
func taskIn(t *testing.T, body []byte) (id, state string) {
	t.Helper()
	type task struct {
		ID     string
		Status struct{ State string }
	}
	var env struct {
		Result struct {
			task
			Task task
		}
	}
	if err := json.Unmarshal(body, &env); err != nil {
		t.Fatalf("%v: %s", err, body)
	}
	if env.Result.Task.ID != "" {
		return env.Result.Task.ID, env.Result.Task.Status.State
	}
	return env.Result.ID, env.Result.Status.State
}

func (b *fixture) stateOf(t *testing.T, id string) string {
	t.Helper()
	_, state := taskIn(t, b.exchange(t, b.a2aCall("GetTask", `{"id":"`+id+`"}`)).Wire().Body)
	return state
}

// slow is a bed whose agent answers when the gate opens.
func slow(t *testing.T) *fixture {
	t.Helper()
	b := newFixture(t, gateway.Settings{}, policy.Rules{Open: true})
	b.agent.gate, b.agent.entered = make(chan struct{}), make(chan struct{}, 8)
	return b
}

func TestStream_OfAnMCPCall(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := slow(t)
		defer func() { _ = b.Close() }()
		began := time.Now()
		answer := b.exchange(t, b.a2aCall("SendStreamingMessage", adding))
		if waited := time.Since(began); waited != 250*time.Millisecond {
			t.Errorf("the stream began after %v", waited)
		}
		first, err := answer.Events().Next(t.Context())
		if err != nil || !strings.Contains(string(first.Wire.Body), "TASK_STATE_WORKING") || !strings.Contains(string(first.Wire.Body), `"id":7`) {
			t.Fatalf("the first event is %s, %v", first.Wire.Body, err)
		}
		var hash ect.StreamHash
		hash.Add(first.Wire.Body)
		close(b.agent.gate)
		bodies, closing := read(t, answer.Events())
		for _, body := range bodies {
			hash.Add([]byte(body))
		}
		if len(bodies) != 2 || !strings.Contains(bodies[0], `"sum":3`) || !strings.Contains(bodies[1], "TASK_STATE_COMPLETED") {
			t.Errorf("then comes %s", bodies)
		}
		if len(answer.Evidence) != 2 || len(closing) != 1 {
			t.Fatalf("%d ECTs open the stream and %d close it", len(answer.Evidence), len(closing))
		}
		request, open, closed := claims(t, answer.Evidence[0]), claims(t, answer.Evidence[1]), claims(t, closing[0])
		for name, ok := range map[string]bool{
			"the opening follows the request":     open.Parents[0] == request.ID,
			"the closing follows the opening":     closed.Parents[0] == open.ID,
			"the opening says nothing was said":   open.OutputHash == "" && string(open.Ext[ect.ExtStream]) == `"open"`,
			"the closing hashes the whole stream": closed.OutputHash == hash.Sum() && string(closed.Ext[ect.ExtStream]) == `"close"`,
			"and counts it":                       string(closed.Ext[ect.ExtEvents]) == "[1,3]",
			"one workflow":                        open.Workflow == request.Workflow && closed.Workflow == request.Workflow,
			"it is on record":                     has(t, b, closed.ID) && has(t, b, open.ID),
		} {
			if !ok {
				t.Errorf("not so: %s", name)
			}
		}
	})
}

func TestTask_InBackground(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := slow(t)
		defer func() { _ = b.Close() }()
		answer := b.exchange(t, b.a2aCall("SendMessage", strings.Replace(adding, `{"message"`, `{"configuration":{"returnImmediately":true},"message"`, 1)))
		id, state := taskIn(t, answer.Wire().Body)
		if state != "TASK_STATE_WORKING" || id == "" {
			t.Fatalf("the answer is %s", answer.Wire().Body)
		}
		if got := b.stateOf(t, id); got != "TASK_STATE_WORKING" {
			t.Errorf("meanwhile it is %s", got)
		}
		subscribed := b.exchange(t, b.a2aCall("SubscribeToTask", `{"id":"`+id+`"}`))
		close(b.agent.gate)
		bodies, _ := read(t, subscribed.Events())
		if last := bodies[len(bodies)-1]; len(bodies) < 3 || !strings.Contains(last, "TASK_STATE_COMPLETED") {
			t.Errorf("whoever subscribed heard %s", bodies)
		}
		if got := b.stateOf(t, id); got != "TASK_STATE_COMPLETED" {
			t.Errorf("at the end it is %s", got)
		}
		list := b.exchange(t, b.a2aCall("ListTasks", `{"includeArtifacts":true}`))
		if !strings.Contains(string(list.Wire().Body), id) || !strings.Contains(string(list.Wire().Body), `"sum":3`) {
			t.Errorf("the list is %s", list.Wire().Body)
		}
		stranger := b.a2aCall("GetTask", `{"id":"`+id+`"}`)
		stranger.Caller = identity.Caller{Peer: ecttest.NewParty(t, "spiffe://example.com/stranger").Peer()}
		var missing *canonical.Error
		if _, err := b.Exchange(t.Context(), stranger); !errors.As(err, &missing) || missing.Code != canonical.CodeTaskNotFound {
			t.Errorf("a stranger asked about it and got %v", err)
		}
		stranger.Wire.Body = []byte(`{"jsonrpc":"2.0","id":7,"method":"ListTasks","params":{}}`)
		if list, err := b.Exchange(t.Context(), stranger); err != nil || strings.Contains(string(list.Wire().Body), id) {
			t.Errorf("a stranger is shown %s, %v", list.Wire().Body, err)
		}
	})
}

func TestTask_FinishedCallCanBeQueried(t *testing.T) {
	t.Parallel()
	b := newFixture(t, gateway.Settings{}, policy.Rules{Open: true})
	defer func() { _ = b.Close() }()
	id, _ := taskIn(t, b.exchange(t, b.a2aCall("SendMessage", adding)).Wire().Body)
	again := b.exchange(t, b.a2aCall("GetTask", `{"id":"`+id+`"}`))
	if !strings.Contains(string(again.Wire().Body), `"sum":3`) || !strings.Contains(string(again.Wire().Body), "TASK_STATE_COMPLETED") {
		t.Errorf("it is told as %s", again.Wire().Body)
	}
	if len(b.agent.bodies) != 1 {
		t.Errorf("the agent was called %d times", len(b.agent.bodies))
	}
	var refused *canonical.Error
	if _, err := b.Exchange(t.Context(), b.a2aCall("CancelTask", `{"id":"`+id+`"}`)); !errors.As(err, &refused) || refused.Code != canonical.CodeNotCancelable {
		t.Errorf("canceling it: %v", err)
	}
	more := b.a2aCall("SendMessage", strings.Replace(adding, `{"message":{`, `{"message":{"taskId":"`+id+`",`, 1))
	if _, err := b.Exchange(t.Context(), more); !errors.As(err, &refused) || refused.Code != canonical.CodeUnsupportedOp {
		t.Errorf("saying more to it: %v", err)
	}
}

func TestCancel_RunningCall(t *testing.T) {
	t.Parallel()
	for name, method := range map[string]string{"nobody waits": "SendMessage", "a stream is open": "SendStreamingMessage"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				b := slow(t)
				defer func() { _ = b.Close() }()
				answer := b.exchange(t, b.a2aCall(method, strings.Replace(adding, `{"message"`, `{"configuration":{"returnImmediately":true},"message"`, 1)))
				body := answer.Wire().Body
				if answer.Events() != nil {
					first, err := answer.Events().Next(t.Context())
					if err != nil {
						t.Fatal(err)
					}
					body = first.Wire.Body
				}
				id, _ := taskIn(t, body)
				received := make(chan []string, 1)
				go func() {
					var bodies []string
					if answer.Events() != nil {
						bodies, _ = read(t, answer.Events())
					}
					received <- bodies
				}()
				if _, state := taskIn(t, b.exchange(t, b.a2aCall("CancelTask", `{"id":"`+id+`"}`)).Wire().Body); state != "TASK_STATE_CANCELED" {
					t.Errorf("canceling it gives %s", state)
				}
				if got := b.stateOf(t, id); got != "TASK_STATE_CANCELED" {
					t.Errorf("afterwards it is %s", got)
				}
				if bodies := <-received; answer.Events() != nil && (len(bodies) == 0 || !strings.Contains(bodies[len(bodies)-1], "TASK_STATE_CANCELED")) {
					t.Errorf("the stream ended with %s", bodies)
				}
			})
		})
	}
}

func TestStream_ClosedByClientDoesNotEndTask(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := slow(t)
		defer func() { _ = b.Close() }()
		answer := b.exchange(t, b.a2aCall("SendStreamingMessage", adding))
		first, err := answer.Events().Next(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		id, _ := taskIn(t, first.Wire.Body)
		if err := answer.Events().Close(); err != nil {
			t.Fatal(err)
		}
		if got := b.stateOf(t, id); got != "TASK_STATE_WORKING" {
			t.Errorf("after its client has left it is %s", got)
		}
		close(b.agent.gate)
		synctest.Wait()
		if got := b.stateOf(t, id); got != "TASK_STATE_COMPLETED" {
			t.Errorf("at the end it is %s", got)
		}
	})
}

func TestClose_RunningTaskIsReportedFailed(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := slow(t)
		answer := b.exchange(t, b.a2aCall("SendMessage", strings.Replace(adding, `{"message"`, `{"configuration":{"returnImmediately":true},"message"`, 1)))
		id, _ := taskIn(t, answer.Wire().Body)
		if err := b.Close(); err != nil {
			t.Fatal(err)
		}
		got := b.exchange(t, b.a2aCall("GetTask", `{"id":"`+id+`"}`))
		if !strings.Contains(string(got.Wire().Body), "TASK_STATE_FAILED") || !strings.Contains(string(got.Wire().Body), "not known") {
			t.Errorf("the task is told as %s", got.Wire().Body)
		}
	})
}

func TestStream_AgentFailure(t *testing.T) {
	t.Parallel()
	t.Run("at once", func(t *testing.T) {
		t.Parallel()
		b := newFixture(t, gateway.Settings{}, policy.Rules{Open: true})
		defer func() { _ = b.Close() }()
		b.agent.fail = &transport.UnreachableError{Agent: "calculator"}
		var unreachable *transport.UnreachableError
		if answer, err := b.Exchange(t.Context(), b.a2aCall("SendStreamingMessage", adding)); !errors.As(err, &unreachable) || answer.Events() != nil {
			t.Errorf("what fails at once is no stream: %v", err)
		}
	})
	t.Run("later", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			b := slow(t)
			defer func() { _ = b.Close() }()
			b.agent.fail = &transport.UnreachableError{Agent: "calculator"}
			answer := b.exchange(t, b.a2aCall("SendStreamingMessage", adding))
			close(b.agent.gate)
			bodies, evidence := read(t, answer.Events())
			if last := bodies[len(bodies)-1]; !strings.Contains(last, `"error"`) {
				t.Errorf("the stream ended with %s", last)
			}
			if len(evidence) != 1 || claims(t, evidence[0]).Act != ect.ActTranslateError {
				t.Errorf("the evidence is %d ECTs", len(evidence))
			}
			id, _ := taskIn(t, []byte(bodies[0]))
			if got := b.stateOf(t, id); got != "TASK_STATE_FAILED" {
				t.Errorf("afterwards it is %s", got)
			}
		})
	})
	t.Run("never answers", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			b := slow(t)
			defer func() { _ = b.Close() }()
			answer := b.exchange(t, b.a2aCall("SendStreamingMessage", adding))
			bodies, _ := read(t, answer.Events())
			if last := bodies[len(bodies)-1]; !strings.Contains(last, `"error"`) {
				t.Errorf("the stream ended with %s", last)
			}
		})
	})
}

func TestTextMessage_TypedToolAsksForArguments(t *testing.T) {
	t.Parallel()
	b := newFixture(t, gateway.Settings{}, policy.Rules{Open: true})
	defer func() { _ = b.Close() }()
	request := b.exchange(t, b.a2aCall("SendMessage", `{"message":{"messageId":"m1","role":"ROLE_USER","parts":[{"text":"one and two"}],"metadata":{"urn:aepb:translation:1":{"skill":"add"}}}}`))
	id, state := taskIn(t, request.Wire().Body)
	if state != "TASK_STATE_INPUT_REQUIRED" || !strings.Contains(string(request.Wire().Body), `"integer"`) || len(b.agent.bodies) != 0 {
		t.Fatalf("it is asked %s, and the agent was called %d times", request.Wire().Body, len(b.agent.bodies))
	}
	b.agent.fail = &transport.UnreachableError{Agent: "calculator"}
	if _, err := b.Exchange(t.Context(), b.a2aCall("SendMessage", `{"message":{"messageId":"m2","taskId":"`+id+`","role":"ROLE_USER","parts":[{"data":{"a":1,"b":2}}]}}`)); err == nil {
		t.Error("nobody was there, and it succeeded")
	}
	b.agent.fail = nil
	again := b.exchange(t, b.a2aCall("SendMessage", `{"message":{"messageId":"m2","taskId":"`+id+`","role":"ROLE_USER","parts":[{"data":{"a":1,"b":2}}]}}`))
	if done, state := taskIn(t, again.Wire().Body); done != id || state != "TASK_STATE_COMPLETED" || !strings.Contains(string(again.Wire().Body), `"sum":3`) {
		t.Errorf("the answer is answered with %s", again.Wire().Body)
	}
	if got := b.stateOf(t, id); got != "TASK_STATE_COMPLETED" {
		t.Errorf("afterwards it is %s", got)
	}
}
