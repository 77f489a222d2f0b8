package execution_test

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"reflect"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/gateway/attest"
	"github.com/aepb/aepb-gateway/gateway/state"
	"github.com/aepb/aepb-gateway/gateway/task/execution"
	"github.com/aepb/aepb-gateway/gateway/task/store"
	"github.com/aepb/aepb-gateway/gateway/transport"
	"github.com/aepb/aepb-gateway/gateway/worker"
	"github.com/aepb/aepb-gateway/policy/quota"
	"github.com/aepb/aepb-gateway/translators"
	"github.com/aepb/aepb-gateway/translators/canonical"
)

// party is the agent and the caller of one request: it writes down what an execution wants of them.
type party struct {
	mu      sync.Mutex
	log     []string
	replies []transport.Reply // of the agent, one for each message
	record  *store.Record
	store   *store.Store
}

func (p *party) note(what string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.log = append(p.log, what)
}

func (p *party) noted() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return strings.Join(p.log, ", ")
}

// The agent.

func (p *party) Seal(_ context.Context, m *canonical.Message) (transport.Sealed, error) {
	p.note("seal " + string(m.Op))
	return transport.Sealed{}, nil
}

func (p *party) SealAsTask(context.Context) (transport.Sealed, error) {
	return transport.Sealed{}, errors.New("not a task")
}

func (p *party) Inquire(_ context.Context, op canonical.Op, _ canonical.Body) (transport.Sealed, error) {
	p.note("inquire " + string(op))
	return transport.Sealed{}, nil
}

func (p *party) Send(ctx context.Context, _ transport.Sealed, _ time.Duration) (transport.Reply, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.replies) == 0 {
		return transport.Reply{}, &transport.UnreachableError{Agent: "writer"}
	}
	reply := p.replies[0]
	p.replies = p.replies[1:]
	return reply, ctx.Err()
}

func (p *party) Acknowledge(context.Context, canonical.Op, transport.Sealed) (w translators.Wire, m *canonical.Message, ids []ect.ID, err error) {
	return w, nil, nil, errors.New("nothing is acknowledged")
}

func (p *party) Notify(op canonical.Op, body canonical.Body) {
	p.note("notify " + string(op) + " " + body.(*canonical.TaskQuery).ID)
}

func (p *party) CancelRequest() { p.note("cancel request") }

func (p *party) Prove(context.Context, transport.Reply) ([]ect.ID, error) {
	return []ect.ID{"request"}, nil
}

func (p *party) Verify(_ context.Context, tokens []string, _ ect.Check) ([]ect.ID, error) {
	return []ect.ID{ect.ID(tokens[0])}, nil
}

// Read reads a task with the state that the bytes are.
func (p *party) Read(_ context.Context, wire translators.Wire, _ canonical.Op) (execution.Incoming, error) {
	task := &canonical.Task{ID: "t1", ContextID: "c1", Status: canonical.Status{State: canonical.State(wire.Body)}}
	m := &canonical.Message{Phase: canonical.PhaseResponse, Body: &canonical.Result{Task: task}}
	if wire.Event {
		m.Phase, m.Body = canonical.PhaseEvent, &canonical.Event{Task: task}
	}
	return execution.Incoming{Message: m, Wire: wire}, nil
}

// The caller.

func (p *party) Record(task *canonical.Task) *store.Record {
	p.record = &store.Record{AsTold: store.AsTold{Form: store.RecordForm, Task: *task}, Key: store.TaskKey("caller", "writer", task.ID)}
	return p.record
}

func (p *party) SaveRequest(*store.Record) error               { return nil }
func (p *party) Remember(context.Context, string)              {}
func (p *party) Register(context.Context, *store.Record) error { return nil }
func (p *party) FollowTask(context.Context, *store.Record)     {}
func (p *party) DetachWork() (*quota.Grant, func())            { return nil, func() {} }
func (p *party) Cause(err error) error                         { return err }
func (p *party) QuestionKey(id string) store.EntryKey {
	return store.QuestionKey("session", id, "caller")
}
func (p *party) Closed(context.Context, string)                         {}
func (p *party) FinishRequest(context.Context, error)                   {}
func (p *party) EmbedsECTs() bool                                       { return false }
func (p *party) Post(context.Context, *store.Record, []canonical.Event) {}

func (p *party) ReplyWith(ctx context.Context, m *canonical.Message, proof execution.Proof, _ bool) (transport.Answer, error) {
	onRecord := "not on record"
	if rec, err := p.store.Load(ctx, store.TaskKey("caller", "writer", "t1")); err == nil && rec != nil {
		onRecord = string(rec.Task.Status.State) + " on record"
	}
	p.note("reply " + string(m.Body.(*canonical.Result).Task.Status.State) + " proven by " + string(proof.Parents[0]) + ", " + onRecord)
	return transport.Answer{}, nil
}

func (p *party) Relay(context.Context, translators.Wire, *canonical.Message, []ect.ID) (transport.Answer, error) {
	return transport.Answer{}, errors.New("nothing is relayed")
}

func (p *party) Open(context.Context, []ect.ID) (transport.Opened, error) {
	p.note("open")
	return transport.Opened{}, nil
}

func (p *party) Answer(_ transport.Opened, events transport.Events) (transport.Answer, error) {
	return transport.Vouch(translators.Wire{}, events), nil
}

func (p *party) Event(m *canonical.Message) (translators.Wire, []canonical.Loss, error) {
	event := m.Body.(*canonical.Event)
	if event.Task != nil {
		return translators.Wire{Body: []byte(event.Task.Status.State)}, nil, nil
	}
	return translators.Wire{Body: []byte(event.Status.State)}, nil, nil
}

func (p *party) EncodeRefusal(cause error) (translators.Wire, bool) {
	return translators.Wire{Body: []byte(cause.Error())}, true
}

func (p *party) Close(context.Context, attest.End) ([]string, error) {
	p.note("close")
	return []string{"the closing ECT"}, nil
}

func (p *party) Fail(context.Context, error) []string {
	p.note("fail")
	return []string{"the ECT of the failure"}
}

// streamed is a stream of the agent's.
type streamed struct{ events []string }

func (s *streamed) Next(context.Context) (transport.Event, error) {
	if len(s.events) == 0 {
		return transport.Event{}, io.EOF
	}
	next := s.events[0]
	s.events = s.events[1:]
	return transport.Event{Wire: translators.Wire{Body: []byte(next)}}, nil
}

func (s *streamed) Close() error { return nil }

func streamOf(states ...canonical.State) transport.Reply {
	s := &streamed{}
	for _, state := range states {
		s.events = append(s.events, string(state))
	}
	return transport.Reply{Events: s}
}

func replyOf(state canonical.State) transport.Reply {
	return transport.Reply{Wire: translators.Wire{Body: []byte(state)}}
}

// start begins the execution of a request to an agent that keeps tasks, and replies so.
func start(t *testing.T, change func(*execution.Request), replies ...transport.Reply) (*party, *execution.Execution) {
	t.Helper()
	memory, err := state.New(state.Config{}, state.Deps{Now: time.Now})
	if err != nil {
		t.Fatal(err)
	}
	workers, err := worker.NewGroup(0, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(workers.Close)
	p := &party{replies: replies}
	p.store = store.New(store.Deps{
		Entries: memory.Entries(), Replies: memory, Replica: "here", Now: time.Now, Logger: slog.New(slog.DiscardHandler),
		StatusTime: func(canonical.Binding) time.Time { return time.Time{} }, Workers: workers, Queues: workers,
	})
	s := execution.New(execution.Deps{
		Tasks: p.store, Webhooks: p, Workers: workers, Now: time.Now, NewID: func() string { return string(ect.NewID()) },
		Logger: slog.New(slog.DiscardHandler), Replica: "here",
	})
	s.Check(func(err error) { t.Error(err) })
	req := execution.Request{
		Agent: p, Caller: p, AgentName: "writer",
		Message:  &canonical.Message{Op: canonical.OpInvoke, Body: &canonical.Invoke{}},
		Mode:     execution.Mode{AgentStreams: translators.StreamsTask, CallerStreams: translators.StreamsTask, Asking: translators.AskTask, KeepsTasks: true},
		Handling: execution.Handling{NamesTask: true},
		Limits:   execution.Limits{Timeout: time.Minute, Answers: time.Minute},
	}
	if change != nil {
		change(&req)
	}
	return p, s.Start(t.Context(), req, transport.Sealed{}, "request", canonical.OpInvoke)
}

// TestExecution_Wait: a caller who waits is answered once, after what goes on or asks is on record.
func TestExecution_Wait(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		replies []transport.Reply
		want    string
	}{
		"one reply":         {[]transport.Reply{replyOf(canonical.StateCompleted)}, "reply completed proven by request, not on record"},
		"a stream":          {[]transport.Reply{streamOf(canonical.StateWorking, canonical.StateCompleted)}, "reply completed proven by request, not on record"},
		"asked about":       {[]transport.Reply{replyOf(canonical.StateWorking), replyOf(canonical.StateCompleted)}, "inquire task.get, reply completed proven by request, not on record"},
		"it asks":           {[]transport.Reply{replyOf(canonical.StateInputRequired)}, "reply input-required proven by request, input-required on record"},
		"stream breaks":     {[]transport.Reply{streamOf(canonical.StateWorking), replyOf(canonical.StateFailed)}, "inquire task.get, reply failed proven by request, not on record"},
		"nothing of a task": {[]transport.Reply{streamOf()}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				p, e := start(t, nil, c.replies...)
				_, err := e.Answer(t.Context())
				if got := p.noted(); got != c.want {
					t.Errorf("the execution wanted %q, expected %q", got, c.want)
				}
				if bad, ok := errors.AsType[*transport.BadReplyError](err); ok != (c.want == "") {
					t.Errorf("the error is %v (%v)", err, bad)
				}
			})
		})
	}
}

// TestExecution_Stream: a caller who streams is told every state, between one ECT that opens the stream
// and one that closes it, and its task is on record before it hears of it.
func TestExecution_Stream(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p, e := start(t, func(req *execution.Request) { req.Message.Preferences.Stream = true }, streamOf(canonical.StateWorking, canonical.StateCompleted))
		answer, err := e.Answer(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if rec, err := p.store.Load(t.Context(), store.TaskKey("caller", "writer", "t1")); err != nil || rec == nil {
			t.Errorf("the task is not on record before its caller hears of it: %v", err)
		}
		var events []string
		for {
			event, err := answer.Events().Next(t.Context())
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				t.Fatal(err)
			}
			events = append(events, string(event.Wire.Body)+strings.Join(event.Evidence, ""))
		}
		if got := strings.Join(events, ", "); got != "working, completed, the closing ECT" {
			t.Errorf("the caller is told %s", got)
		}
		if got := p.noted(); got != "open, close" {
			t.Errorf("the execution wanted %q", got)
		}
	})
}

// TestExecution_Leave: the agent of a caller who leaves is told to cancel its task, once it has named it.
func TestExecution_Leave(t *testing.T) {
	t.Parallel()
	for name, replies := range map[string][]transport.Reply{
		"named at once": {streamOf(canonical.StateWorking)},
		"in a reply":    {replyOf(canonical.StateWorking)},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				p, e := start(t, nil, replies...)
				e.Abort()
				synctest.Wait()
				if got := p.noted(); got != "notify task.cancel t1" {
					t.Errorf("the execution wanted %q", got)
				}
			})
		})
	}
}

// statusAgent is a party whose agent tells a status of work that goes on.
type statusAgent struct{ *party }

func (a *statusAgent) Read(_ context.Context, wire translators.Wire, _ canonical.Op) (execution.Incoming, error) {
	words := &canonical.Content{Parts: []canonical.Part{{Kind: canonical.KindText, Text: string(wire.Body)}}}
	event := &canonical.Event{Status: &canonical.Status{State: canonical.StateWorking, Message: words}}
	return execution.Incoming{Message: &canonical.Message{Phase: canonical.PhaseEvent, Body: event}, Wire: wire}, nil
}

// TestExecution_RecordSaysEachStatusOnce: the log of a record and its task say the same of a status that is
// saved while work goes on, its time too: else who subscribes from the record is told of it twice.
func TestExecution_RecordSaysEachStatusOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		events := &slowly{make(chan string, 1)}
		p, e := start(t, func(req *execution.Request) {
			req.Agent, req.Message.Preferences.Stream = &statusAgent{req.Caller.(*party)}, true
			req.Mode = execution.Mode{AgentStreams: translators.StreamsReply, CallerStreams: translators.StreamsTask, StreamsHere: true, MakesTask: true, Asking: translators.AskTask}
		}, transport.Reply{Events: events})
		events.events <- "step 1"
		answer, err := e.Answer(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		go func() {
			for err := error(nil); err == nil; {
				_, err = answer.Events().Next(ctx)
			}
		}()
		for _, step := range []string{"step 2", "step 3"} {
			time.Sleep(time.Second)
			events.events <- step
		}
		synctest.Wait()
		rec, err := p.store.Load(t.Context(), p.record.Key)
		if err != nil || rec == nil {
			t.Fatalf("the record is %v: %v", rec, err)
		}
		logged, _ := rec.Log.Since(rec.Log.Count - 1)
		if len(logged) != 1 || !reflect.DeepEqual(*logged[0].Status, rec.Task.Status) {
			t.Errorf("the log says %+v, and the task %+v", logged, rec.Task.Status)
		}
		cancel()
		synctest.Wait()
		_ = answer.Events().Close()
	})
}
