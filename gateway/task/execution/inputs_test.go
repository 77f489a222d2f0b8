package execution_test

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/aepb/aepb-gateway/gateway/task/execution"
	"github.com/aepb/aepb-gateway/gateway/task/store"
	"github.com/aepb/aepb-gateway/gateway/transport"
	"github.com/aepb/aepb-gateway/translators"
	"github.com/aepb/aepb-gateway/translators/canonical"
)

// asker is a party whose agent asks in its stream, and once more in the reply that ends it.
type asker struct{ *party }

// Read reads "ask" and "reply", each with the key of a question behind it.
func (a *asker) Read(_ context.Context, wire translators.Wire, _ canonical.Op) (execution.Incoming, error) {
	kind, key, _ := strings.Cut(string(wire.Body), " ")
	in := canonical.Input{Key: key, Mode: canonical.ModeForm, Schema: []byte(`{"type":"object"}`)}
	m := &canonical.Message{Phase: canonical.PhaseEvent, Body: &canonical.Event{Ask: &canonical.Ask{ID: []byte("1"), Input: in}}}
	if kind == "reply" {
		m.Phase, m.Body = canonical.PhaseResponse, &canonical.Result{Pending: &canonical.Pending{Inputs: []canonical.Input{in}, State: "waits"}}
	}
	return execution.Incoming{Message: m, Wire: wire}, nil
}

func (a *asker) Seal(ctx context.Context, m *canonical.Message) (transport.Sealed, error) {
	if invoke, ok := m.Body.(*canonical.Invoke); ok {
		for _, answer := range invoke.Answers {
			a.note(string(answer.Action) + " " + answer.Key)
		}
	}
	return a.party.Seal(ctx, m)
}

// slowly is a stream whose events come when they are given.
type slowly struct{ events chan string }

func (s *slowly) Next(ctx context.Context) (transport.Event, error) {
	select {
	case body := <-s.events:
		return transport.Event{Wire: translators.Wire{Body: []byte(body)}}, nil
	case <-ctx.Done():
		return transport.Event{}, ctx.Err()
	}
}

func (s *slowly) Close() error { return nil }

// TestExecution_QuestionReplaced: what was answered to a question of the agent's stream is no answer to
// the one with which the agent ends the stream, and that one has a round of its own.
func TestExecution_QuestionReplaced(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		events := &slowly{make(chan string)}
		var a *asker
		p, e := start(t, func(req *execution.Request) {
			a = &asker{req.Caller.(*party)}
			req.Agent, req.Handling = a, execution.Handling{}
			req.Mode = execution.Mode{AgentStreams: translators.StreamsReply, CallerStreams: translators.StreamsTask, StreamsHere: true, Asking: translators.AskTask}
		}, transport.Reply{Events: events})
		go func() { events.events <- "ask read" }()
		if _, err := e.Answer(t.Context()); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		first, err := p.store.Load(t.Context(), p.record.Key)
		if err != nil || first == nil || first.Round != 0 || first.Resume != store.ResumeStream {
			t.Fatalf("the first question is %+v on record: %v", first, err)
		}
		events.events <- "reply delete"
		synctest.Wait()
		accepts := first.ForRound([]canonical.Answer{{Key: "read", Action: canonical.Accept, Value: []byte("{}")}})
		if err := p.store.Send(t.Context(), first.ControlKey(), store.ControlMessage{Answers: accepts}); err != nil {
			t.Log(err) // no execution takes it any more
		}
		synctest.Wait()
		if got := p.noted(); strings.Contains(got, "accept") {
			t.Errorf("the agent is given the answer to another question: %s", got)
		}
		if rec, err := p.store.Load(t.Context(), p.record.Key); err != nil || rec.Round != 1 || rec.Resume != store.ResumeState {
			t.Errorf("the second question is of round %d (%v) on record: %v", rec.Round, rec.Resume, err)
		}
	})
}
