package gateway

import (
	"encoding/json"
	"errors"
	"log/slog"
	"strconv"
	"testing"
	"time"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/ect/identity"
	"github.com/aepb/aepb-gateway/gateway/admission"
	"github.com/aepb/aepb-gateway/gateway/attest"
	"github.com/aepb/aepb-gateway/gateway/destination"
	"github.com/aepb/aepb-gateway/gateway/directory"
	"github.com/aepb/aepb-gateway/gateway/outbound"
	"github.com/aepb/aepb-gateway/gateway/routing"
	"github.com/aepb/aepb-gateway/gateway/state"
	"github.com/aepb/aepb-gateway/gateway/task"
	"github.com/aepb/aepb-gateway/gateway/task/execution"
	"github.com/aepb/aepb-gateway/gateway/task/store"
	"github.com/aepb/aepb-gateway/gateway/transport"
	"github.com/aepb/aepb-gateway/gateway/webhook"
	"github.com/aepb/aepb-gateway/translators"
	"github.com/aepb/aepb-gateway/translators/canonical"
	"github.com/aepb/aepb-gateway/translators/consent"
	"github.com/aepb/aepb-gateway/translators/mcp"
	"github.com/aepb/aepb-gateway/translators/stream"
)

// The keys of the questions that are asked.
const (
	keyWho   = "who"   // a form with a required text
	keyAge   = "age"   // a form with a required whole number
	keySure  = "sure"  // a form without values
	keyVisit = "visit" // a URL
	keyTalk  = "talk"  // free text
	keyModel = "model" // a request for a model's words
)

func inputOf(key string) canonical.Input {
	in := canonical.Input{Key: key, Mode: canonical.ModeForm}
	switch key {
	case keyWho:
		in.Schema = json.RawMessage(`{"type":"object","properties":{"name":{"type":"string"}},"required":["name"]}`)
	case keyAge:
		in.Schema = json.RawMessage(`{"type":"object","properties":{"age":{"type":"integer","minimum":18}},"required":["age"]}`)
	case keySure:
		in.Schema = json.RawMessage(`{"type":"object","properties":{}}`)
	case keyVisit:
		in.Mode, in.URL = canonical.ModeURL, "https://example.com/"
	case keyTalk:
		in.Mode = canonical.ModeText
	case keyModel:
		in.Mode, in.Native = canonical.ModeNative, &canonical.Native{Method: "sampling/createMessage", Params: json.RawMessage(`{}`)}
	}
	return in
}

// askedSets are the questions that can be open at once.
func askedSets() [][]string {
	return [][]string{{keyWho}, {keySure}, {keyAge}, {keyVisit}, {keyTalk}, {keyModel}, {keySure, keyWho}, {keyTalk, keyVisit, keyAge}}
}

// inputsOfSet are the questions of one of these sets.
func inputsOfSet(set uint8) []canonical.Input {
	sets := askedSets()
	var inputs []canonical.Input
	for _, key := range sets[int(set)%len(sets)] {
		inputs = append(inputs, inputOf(key))
	}
	return inputs
}

// codec is how one kind of message is written, and read with the codec under test.
type codec struct {
	name  string
	form  translators.Translator
	begun func() translators.Wire                                            // the call about which the agent asks
	wire  func(t testing.TB, m fuzzedMessage, state string) translators.Wire // an answer to it
	doc   func(translators.Wire) []byte                                      // the JSON in it; nil: the body
	state bool                                                               // an answer names the question by its request state
}

func (c *codec) document(w translators.Wire) []byte {
	if c.doc == nil {
		return w.Body
	}
	return c.doc(w)
}

// fixture is a gateway that waits for the answers of one caller.
type fixture struct {
	*Gateway
	t      testing.TB
	codec  *codec
	inputs []canonical.Input
	key    store.EntryKey
}

const fixtureCaller = "spiffe://example.com/client"

func newFixture(t testing.TB, c *codec, inputs []canonical.Input) *fixture {
	t.Helper()
	memory, err := state.New(state.Config{}, state.Deps{Now: time.Now})
	if err != nil {
		t.Fatal(err)
	}
	registry, err := translators.NewRegistry(formA2A, formMCP, formAINP, formUACP, formSLIM)
	if err != nil {
		t.Fatal(err)
	}
	g := &Gateway{Deps: Deps{
		Network:  &outbound.Network{},
		Registry: registry, Stores: Stores{Entries: memory.Entries(), Answers: memory}, Now: time.Now, Logger: slog.New(slog.DiscardHandler),
		NewID: func() string { return string(ect.NewID()) },
	}, instance: "here"}
	g.admission = &admission.Service{Deps: admission.Deps{Registry: registry, Network: g.Network}}
	b := &fixture{Gateway: g, t: t, codec: c, inputs: inputs}
	if err := g.startWorkers(0, 0); err != nil {
		t.Fatal(err)
	}
	g.hooks = webhook.NewHooks(webhook.Deps{Entries: g.Entries, Network: g.Network, Logger: g.Logger}, nil)
	g.executions = execution.New(execution.Deps{Now: g.Now})
	g.tasks.Deps = task.Deps{Executions: g.executions, Webhooks: g.hooks, Now: g.Now, NewID: g.NewID, Logger: g.Logger, Replica: g.instance}
	g.tasks.Failover = task.NewFailover(task.FailoverDeps{Tasks: g.tasks.Store, Entries: g.Entries, Webhooks: g.hooks, Now: g.Now, Logger: g.Logger})
	g.tasks.Read = g.admission.Read
	t.Cleanup(func() { _ = g.Close() })
	b.key = b.exchange(translators.Wire{}).keyOf(theTask)
	return b
}

// exchange is one message of the caller to an MCP server of 2026-07-28.
func (b *fixture) exchange(w translators.Wire) *request {
	return &request{
		settings: &Settings{}, scope: &scope{}, trail: attest.Begin(),
		in: admission.Admitted{
			Call:   transport.Call{Agent: "agent", Session: "session", Caller: identity.Caller{Peer: ect.Peer{ID: fixtureCaller}}, Wire: w},
			Source: b.codec.form, Features: translators.FeaturesOf(b.codec.form),
		},
		to: destination.Destination{Codec: formMCP, Features: translators.FeaturesOf(formMCP), Agent: directory.Agent{Name: "agent"}}, route: routing.Route{Endpoint: transport.Endpoint{Version: mcp.Modern}},
	}
}

// asks puts a question of a round on record.
func (b *fixture) asks(round int) {
	b.t.Helper()
	rec, err := b.tasks.Load(b.t.Context(), b.key)
	if err != nil {
		b.t.Fatal(err)
	}
	if rec == nil {
		begun := b.codec.begun()
		rec = &store.Record{
			AsTold: store.AsTold{Form: store.RecordForm}, AgentSide: store.AgentSide{Agent: "agent", Binding: mcp.Binding},
			Origin: store.Origin{Source: b.codec.form.Info().Binding}, Key: b.key,
		}
		rec.Call = store.SaveMessage(begun.Version, begun.Form, begun)
	}
	rec.Task = canonical.Task{ID: theTask, Inputs: b.inputs, Status: canonical.Status{State: canonical.StateInputRequired}}
	rec.Resume, rec.State, rec.Round = store.ResumeState, "agent's own", round
	rec.Again = execution.MaxAgain // what does not fit is refused, since this gateway cannot ask
	if ok, err := b.tasks.Save(b.t.Context(), rec); err != nil || !ok {
		b.t.Fatalf("the question is not kept: %v", err)
	}
}

// hear takes one message and returns what the agent is told. False: the question is
// still open.
func (b *fixture) hear(w translators.Wire) ([]canonical.Answer, bool) {
	b.t.Helper()
	m, err := b.codec.form.Decode(w)
	if err != nil {
		return nil, false
	}
	x := b.exchange(w)
	x.message = m
	x.mode = execution.NewMode(x.sides(), x.route)
	if query, ok := m.Body.(*canonical.TaskQuery); ok && m.Op == canonical.OpTaskAnswer {
		m.Body, m.Conversation.TaskID = &canonical.Invoke{Answers: query.Answers}, query.ID // as answerTask does
	}
	invoke := task.Resumes(m, x.mode.Relay)
	if invoke == nil || b.asksAgain(invoke) {
		return nil, false
	}
	if answered, _, err := b.resume(b.t.Context(), x); answered || err != nil || x.claim == nil {
		return nil, false
	}
	if err := b.claimInput(b.t.Context(), x); err != nil {
		b.t.Fatal(err)
	}
	notified, ok := x.message.Body.(*canonical.Invoke)
	if !ok {
		b.t.Fatalf("the agent is told %+v", x.message.Body)
	}
	return notified.Answers, true
}

// asksAgain: the message lacks answers, and its caller is asked again, which this
// gateway has no means for.
func (b *fixture) asksAgain(invoke *canonical.Invoke) bool {
	rec, err := b.tasks.Load(b.t.Context(), b.key)
	if err != nil || rec == nil {
		b.t.Fatal("the record is gone")
	}
	_, err = consent.Read(stream.Inputs(&rec.Task), invoke)
	_, missing := errors.AsType[*consent.MissingError](err)
	return missing
}

// firstRound is that of the first question: there was one before.
const firstRound = 1

// hearAll takes a stream of messages to questions on record. Once a question is
// answered, the next message finds none, and then the agent asks again.
func (b *fixture) hearAll(messages []fuzzedMessage, says func([]canonical.Input, []byte) claims) (received []canonical.Answer) {
	b.t.Helper()
	round, open := firstRound, true
	b.asks(round)
	for _, m := range messages {
		current := execution.StateOf(round, theTask)
		at := m.state
		switch m.state {
		case "":
			at = current
		case "earlier":
			at = execution.StateOf(round-1, theTask)
		case "none":
			at = ""
		}
		w := b.codec.wire(b.t, m, at)
		answers, done := b.hear(w)
		answer := says(b.inputs, b.codec.document(w))
		if !open || b.codec.state && at != current {
			answer = nil // to a question that is answered
		}
		judge(b.t, answers, answer, w.Body)
		received = append(received, answers...)
		switch {
		case done:
			round, open = round+1, false
		case !open:
			open = true
			b.asks(round)
		}
	}
	return received
}

// idOf is the id of a question that was asked in the middle of a stream.
func idOf(question, round int) string {
	return "0b5e4e0c-5f4e-4d3a-9b1e-01234567" + strconv.Itoa(10+question) + strconv.Itoa(10+round)
}

// replyTo is the id that a fuzzed key stands for: of a question, by the key, and
// of the question of an earlier round, by the key after "earlier ".
func (b *fixture) replyTo(key string) string {
	for i, in := range b.inputs {
		switch key {
		case in.Key:
			return idOf(i, firstRound)
		case "earlier " + in.Key:
			return idOf(i, firstRound-1)
		}
	}
	return key
}

// hearReplies takes the answers to questions of an open stream, each a message that
// names its question by an id. The first to each counts.
func (b *fixture) hearReplies(answers []fuzzedAnswer, says func(key string, body []byte) (claim, bool)) []canonical.Answer {
	b.t.Helper()
	ctx := b.t.Context()
	x := b.exchange(translators.Wire{})
	x.record = &store.Record{Key: b.key, Ownership: store.Ownership{Queue: "box"}}
	for i, in := range b.inputs {
		for round := range firstRound + 1 {
			x.record.Round = round
			if err := b.tasks.Ask(ctx, b.caller(x).QuestionKey(idOf(i, round)), x.record, in.Key, x.answerWait()); err != nil {
				b.t.Fatal(err)
			}
		}
	}
	answer, first := claims{}, map[string]bool{}
	var all []byte
	for _, a := range answers {
		id := b.replyTo(a.key)
		w := b.codec.wire(b.t, fuzzedMessage{answers: []fuzzedAnswer{a}}, id)
		all = append(append(all, w.Body...), '\n')
		m, err := b.codec.form.Decode(w)
		if err != nil {
			continue
		}
		reply, ok := m.Body.(*canonical.Reply)
		if !ok {
			continue
		}
		if _, err := b.tasks.Answer(ctx, b.caller(x).QuestionKey(unquoted(reply.ID)), reply, x.answerWait()); err != nil {
			b.t.Fatal(err)
		}
		for i, in := range b.inputs {
			if id == idOf(i, firstRound) && !first[in.Key] {
				first[in.Key] = true
				c, ok := says(in.Key, w.Body)
				answer.add(in.Key, c, ok)
			}
		}
	}
	waits := execution.NewPending(b.inputs, firstRound)
	entry, _, err := b.Entries.Get(ctx, x.record.ControlKey())
	if err != nil {
		b.t.Fatal(err)
	}
	var l store.ControlMessage
	if len(entry.Value) > 0 && json.Unmarshal(entry.Value, &l) != nil {
		b.t.Fatalf("the control message is %q", entry.Value)
	}
	if waits.Take(l.Answers); waits.Refused != nil {
		return nil
	}
	received := waits.All()
	judge(b.t, received, answer, all)
	return received
}
