package gateway_test

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"github.com/aepb/aepb-gateway/gateway/transport"
	"github.com/aepb/aepb-gateway/gateway/transport/a2a/frame"
	"github.com/aepb/aepb-gateway/gateway/transport/slim"
	"github.com/aepb/aepb-gateway/translators"
	"github.com/aepb/aepb-gateway/translators/a2a"
	"github.com/aepb/aepb-gateway/translators/canonical"
	slimform "github.com/aepb/aepb-gateway/translators/slim"
)

// What is kept of a message is what travelled, and it is read again like that, whatever
// the caller's form: JSON or protobuf, with its method beside it or in it.

// wire is a form of A2A, as its door hands messages in.
type wire struct {
	write func(t *testing.T, method, params string) translators.Wire
	read  func(translators.Wire) (translators.Wire, error) // what a reply says in JSON
}

func plainly(w translators.Wire) (translators.Wire, error) { return w, nil }

func wires() map[string]wire {
	framed := func(t *testing.T, framer transport.WireFormat, w translators.Wire) translators.Wire {
		t.Helper()
		w, losses, err := framer.Frame(w)
		if err != nil || len(losses) > 0 || json.Valid(w.Body) {
			t.Fatalf("%v, %v: %q", err, losses, w.Body)
		}
		return w
	}
	rpc := func(method, params string) []byte {
		return []byte(`{"jsonrpc":"2.0","id":7,"method":"` + method + `","params":` + params + `}`)
	}
	return map[string]wire{
		"JSON-RPC": {func(_ *testing.T, method, params string) translators.Wire {
			return translators.Wire{Binding: a2a.Binding, Media: a2a.Media, Body: rpc(method, params)}
		}, plainly},
		"HTTP+JSON": {func(_ *testing.T, method, params string) translators.Wire {
			w := translators.Wire{Binding: a2a.Binding, Form: a2a.FormHTTP, Media: a2a.Media}
			if method == looking {
				_, rest, _ := strings.Cut(params, `:"`)
				w.Verb, w.Path = http.MethodGet, "/tasks/"+strings.TrimSuffix(rest, `"}`)
				return w
			}
			w.Verb, w.Path, w.Body = http.MethodPost, "/message:send", []byte(params)
			return w
		}, plainly},
		"gRPC": {func(t *testing.T, method, params string) translators.Wire {
			t.Helper()
			return framed(t, frame.Framer{}, translators.Wire{Binding: a2a.Binding, Form: a2a.FormGRPC, Path: a2a.ServiceGRPC + method, Body: []byte(params)})
		}, frame.Framer{}.Unframe},
		"SLIMRPC": {func(t *testing.T, method, params string) translators.Wire {
			t.Helper()
			return framed(t, onSLIM{}, translators.Wire{
				Binding: slimform.Binding, Version: slimform.VersionA2A, Form: slimform.FormRPC, Media: slimform.Media, Body: rpc(method, params),
			})
		}, slim.Unframe},
	}
}

// listener is a caller on such a wire.
type listener struct {
	*stage
	wire

	called string // the agent
}

// hears is what a message is answered with, at a replica.
func (l listener) hears(g transport.Handler, method, params string) string {
	l.t.Helper()
	call := l.stage.a2a(method, params)
	call.Agent, call.Wire = l.called, l.write(l.t, method, params)
	op := canonical.OpInvoke
	if method == looking {
		op = canonical.OpTaskGet
	}
	answer := l.ask(l.t, g, call).Wire()
	answer.Re = op
	reply, err := l.read(answer)
	if err != nil {
		l.t.Fatalf("%v: %q", err, answer.Body)
	}
	return string(reply.Body)
}

// named is the task that is told of.
func (l listener) named(text string) string {
	l.t.Helper()
	var task struct{ ID string }
	var env struct {
		Result struct{ Task json.RawMessage }
		Task   json.RawMessage
	}
	if err := json.Unmarshal([]byte(text), &env); err != nil {
		l.t.Fatalf("%v: %s", err, text)
	}
	for _, raw := range []json.RawMessage{env.Result.Task, env.Task} {
		if len(raw) > 0 && json.Unmarshal(raw, &task) == nil && task.ID != "" {
			return task.ID
		}
	}
	l.t.Fatalf("no task: %s", text)
	return ""
}

// onEveryWire runs a test for a caller in every form, with a second replica.
func onEveryWire(t *testing.T, agent string, scenes func() map[string][]scene, test func(l listener, other transport.Handler)) {
	t.Helper()
	for name, w := range wires() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			play(t, scenes(), func(s *stage) {
				other := s.replica(s.t)
				close(s.tools.gate)
				test(listener{s, w, agent}, other)
				if err := other.Close(); err != nil {
					s.t.Error(err)
				}
			})
		})
	}
}

func nothing() map[string][]scene { return nil }

// The call once more, with what answers the server's question.
func TestStoredCall_RetriedWithAnswer(t *testing.T) {
	t.Parallel()
	onEveryWire(t, "asker", func() map[string][]scene {
		return map[string][]scene{calling: {{reply: result(pending)}, {reply: result(complete)}}}
	}, func(l listener, other transport.Handler) {
		requested := l.hears(l, invoking, `{"message":{"messageId":"m1","role":"ROLE_USER","parts":[{"data":{"skill":"ask","input":{"of":"you"}}}]}}`)
		if !strings.Contains(requested, "TASK_STATE_INPUT_REQUIRED") || !strings.Contains(requested, "who?") {
			l.t.Fatalf("asked %s", requested)
		}
		id := l.named(requested)
		if got := l.hears(other, looking, `{"id":"`+id+`"}`); !strings.Contains(got, "TASK_STATE_INPUT_REQUIRED") || !strings.Contains(got, "who?") {
			l.t.Errorf("it stands as %s", got)
		}
		done := l.hears(other, invoking, `{"message":{"messageId":"m2","taskId":"`+id+`","role":"ROLE_USER","parts":[{"data":{"name":"Ada"}}]}}`)
		if l.named(done) != id || !strings.Contains(done, "TASK_STATE_COMPLETED") || !strings.Contains(done, "hello Ada") {
			l.t.Errorf("the answer leads to %s", done)
		}
		calls := l.asker.received(calling)
		if len(calls) != 2 || !strings.Contains(calls[1], `"name":"ask","arguments":{"of":"you"}`) || !strings.Contains(calls[1], `"requestState":"s-1"`) || !strings.Contains(calls[1], acceptsAda) {
			l.t.Errorf("the server was asked %s", calls)
		}
		if got := l.hears(l, looking, `{"id":"`+id+`"}`); !strings.Contains(got, "TASK_STATE_COMPLETED") || !strings.Contains(got, "hello Ada") {
			l.t.Errorf("at the end it stands as %s", got)
		}
	})
}

// The arguments that a text left open (profile P3).
func TestStoredCall_TextCompletedWithArguments(t *testing.T) {
	t.Parallel()
	onEveryWire(t, "calculator", nothing, func(l listener, other transport.Handler) {
		requested := l.hears(l, invoking, `{"message":{"messageId":"m1","role":"ROLE_USER","parts":[{"text":"one and two"}],"metadata":{"urn:aepb:translation:1":{"skill":"add"}}}}`)
		if !strings.Contains(requested, "TASK_STATE_INPUT_REQUIRED") || len(l.tools.bodies) != 0 {
			l.t.Fatalf("asked %s", requested)
		}
		id := l.named(requested)
		done := l.hears(other, invoking, `{"message":{"messageId":"m2","taskId":"`+id+`","role":"ROLE_USER","parts":[{"data":{"a":1,"b":2}}]}}`)
		if l.named(done) != id || !strings.Contains(done, "TASK_STATE_COMPLETED") || !strings.Contains(done, `"sum":3`) {
			l.t.Errorf("the answer leads to %s", done)
		}
		if len(l.tools.bodies) != 1 || !strings.Contains(string(l.tools.bodies[0]), `"name":"add","arguments":{"a":1,"b":2}`) {
			l.t.Errorf("the server was asked %s", l.tools.bodies)
		}
	})
}

// What a call was answered with, for whoever asks later.
func TestStoredCall_ResultReturnedAgain(t *testing.T) {
	t.Parallel()
	onEveryWire(t, "calculator", nothing, func(l listener, other transport.Handler) {
		done := l.hears(l, invoking, adding)
		id := l.named(done)
		for _, g := range []transport.Handler{l, other} {
			if got := l.hears(g, looking, `{"id":"`+id+`"}`); !strings.Contains(got, id) || !strings.Contains(got, "TASK_STATE_COMPLETED") || !strings.Contains(got, `"sum":3`) {
				l.t.Errorf("it stands as %s", got)
			}
		}
		if len(l.tools.bodies) != 1 {
			l.t.Errorf("the server was asked %s", l.tools.bodies)
		}
	})
}
