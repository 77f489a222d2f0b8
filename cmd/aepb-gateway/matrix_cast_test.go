package main

import (
	"context"
	"encoding/json"
	"io"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/gateway/transport"
	"github.com/aepb/aepb-gateway/gateway/transport/transporttest"
	"github.com/aepb/aepb-gateway/policy/limit"
	"github.com/aepb/aepb-gateway/translators"
	"github.com/aepb/aepb-gateway/translators/a2a"
	"github.com/aepb/aepb-gateway/translators/ainp"
	"github.com/aepb/aepb-gateway/translators/canonical"
	"github.com/aepb/aepb-gateway/translators/mcp"
	"github.com/aepb/aepb-gateway/translators/uacp"
)

// What agents of the troupe do, by the first word that they are told.
const (
	doSay     = "say"     // repeat what was said
	doFail    = "fail"    // fail
	doRefuse  = "refuse"  // answer with an error
	doPut     = "put"     // ask to come again later
	doCount   = "count"   // say how often that was said in one dialogue
	doTell    = "tell"    // say how it goes, and only then what came of it
	doAsk     = "ask"     // ask for a name first
	doAskMore = "askmore" // ask for a name and a town
	doWork    = "work"    // work until the test says that it is done
	doToil    = "toil"    // the same, and make no task of it where the caller would wait
	doUndo    = "undo"    // leave a checkpoint
	doSpell   = "spell"   // say a text in chunks, and one whole
	doCountUp = "countup" // say how far it is, and from the second step on only when the test says so
)

// cast is the pipeline behind the endpoints of the fake agents.
type cast struct {
	troupe *troupe

	mu        sync.Mutex
	jobs      map[string]*work  // by the task's id, and by what the test calls it
	callbacks map[string]string // who is told of decisions, by the words that came with it
	decided   map[string]bool   // the decisions that were heard
	said      map[string]int    // how often doCount was, by dialogue

	answers map[string][]string // what was said in answer to questions, by workflow (consent_test.go)
}

// work is what an agent was told to do until it is told that it is done.
type work struct {
	id    string
	asked bool          // it is a question
	named bool          // whoever asked is told of a task
	done  chan struct{} // closed when it has ended

	mu     sync.Mutex
	state  canonical.State
	answer string
}

// Limit and Admit take everybody in.
func (c *cast) Limit(context.Context, transport.CallInfo) (limit.Pass, error) {
	return transporttest.Pass(nil)
}

func (c *cast) Admit(context.Context, transport.CallInfo) error { return nil }

// Describe is who an agent is.
func (c *cast) Describe(_ context.Context, q transport.CallInfo) (*canonical.Description, error) {
	d := &canonical.Description{Name: q.Agent, Version: "1", Description: "Plays.", Streams: true, Pushes: true, Tasks: true}
	if strings.HasPrefix(q.Agent, adder) {
		d.Capabilities = []canonical.Capability{{
			ID: "add", Title: "Add", Description: "Adds two integers.", Profile: canonical.ProfileTyped,
			InputSchema: json.RawMessage(`{"type":"object","properties":{"a":{"type":"integer"},"b":{"type":"integer"}},"required":["a","b"]}`),
		}}
		return d, nil
	}
	if q.Agent == greeter {
		d.Capabilities = []canonical.Capability{greetTool()}
		return d, nil
	}
	d.Capabilities = []canonical.Capability{{ID: "play", Title: "Play", Description: "Plays a scene.", Profile: canonical.ProfileMessage}}
	return d, nil
}

// part is one visit to an agent: who asks, in which words.
type part struct {
	*cast
	call  transport.Call
	form  translators.Translator
	asked *canonical.Message
	words canonical.Binding
	known *canonical.Description // the agent; nil: nobody knows it
	sure  bool                   // it asks also who did not say that it can be asked
}

// Exchange is what an agent does with a message.
func (c *cast) Exchange(ctx context.Context, call transport.Call) (transport.Answer, error) {
	p := &part{cast: c, call: call, form: c.troupe.list[call.Wire.Binding].form}
	if known, err := c.Describe(ctx, transport.CallInfo{Agent: call.Agent}); err == nil {
		p.known = known
	}
	wire, err := c.troupe.unframe(call.Wire)
	if err != nil {
		return transport.Answer{}, err
	}
	if p.asked, err = p.form.Decode(wire); err != nil {
		return transport.Answer{}, err
	}
	c.mu.Lock()
	if body, ok := p.asked.Body.(*canonical.Invoke); ok {
		c.callbacks[wordsIn(body)] = p.asked.Callback
	}
	c.mu.Unlock()
	if call.CanAnswer != nil && p.asked.Preferences.CanAnswer == nil {
		p.asked.Preferences.CanAnswer = call.CanAnswer
	}
	p.words = p.side().words(p.form)
	return p.act(ctx)
}

// side is the one on which the agent stands.
func (p *part) side() side {
	return side{binding: p.call.Wire.Binding, version: p.asked.Origin.Version, form: p.call.Wire.Form}
}

// act does what is asked.
func (p *part) act(ctx context.Context) (transport.Answer, error) {
	switch body := p.asked.Body.(type) {
	case *canonical.Invoke:
		return p.invoked(ctx, body)
	case *canonical.TaskQuery:
		return p.queried(ctx, body)
	case *canonical.Reply:
		return transport.Answer{}, p.answered(body)
	case *canonical.Abort:
		p.note("call canceled")
		return transport.Answer{}, nil
	case *canonical.Signal:
		return p.signaled(body)
	case *canonical.Native:
		return p.reply(&canonical.Native{Method: body.Method, Result: json.RawMessage(`{"prompts":[],"played":true}`)})
	default:
		return transport.Answer{}, &canonical.Error{Code: canonical.CodeUnsupportedOp, Message: "nobody plays that"}
	}
}

// wordsIn are the texts of an invocation, whichever way they came.
func wordsIn(body *canonical.Invoke) string {
	var said []string
	for _, p := range body.Turn.Parts {
		if p.Kind == canonical.KindText {
			said = append(said, p.Text)
		}
	}
	var args struct{ Message string }
	if body.Call != nil && json.Unmarshal(body.Call.Args, &args) == nil && args.Message != "" && len(said) == 0 {
		said = append(said, args.Message)
	}
	return strings.Join(said, " ")
}

func (p *part) invoked(ctx context.Context, body *canonical.Invoke) (transport.Answer, error) {
	said := wordsIn(body)
	if job := p.job(p.asked.Conversation.TaskID); job != nil && job.asked {
		p.note(answersSaid(body)...)
		return p.finished(job, greets(heardInTurn(body)))
	}
	if len(body.Answers) > 0 {
		p.note(answersSaid(body)...)
		return p.reply(p.result(greets(body.Answers)))
	}
	if isTypedCall(body) {
		p.note("called " + sorted(body.Call.Args))
	}
	said, p.sure = strings.CutPrefix(said, doInsist+" ")
	what, rest, _ := strings.Cut(said, " ")
	if in, ok := kindsAsked[what]; ok {
		return p.ask(in)
	}
	switch what {
	case doFail:
		return p.reply(p.failure("it went wrong"))
	case doRefuse:
		return transport.Answer{}, &canonical.Error{Code: canonical.CodeBadParams, Message: "not like this"}
	case doPut:
		return transport.Answer{}, &canonical.Error{Code: canonical.CodeRateLimited, Message: "not now", RetryAfter: later}
	case doCount:
		return p.count()
	case doTell:
		return p.tell()
	case doAsk:
		return p.ask(question("name"))
	case doAskMore:
		return p.ask(question("name"), question("town"))
	case doWork, doToil:
		name, _, _ := strings.Cut(rest, " ")
		return p.work(ctx, name, what == doToil)
	case doSpell:
		return p.spell()
	case doCountUp:
		return p.countUp(rest)
	case doUndo:
		answer, err := p.reply(p.result("done, and can be undone"))
		answer.Evidence = p.checkpoint()
		return answer, err
	}
	if sum, ok := added(body); ok {
		return p.reply(p.sum(sum))
	}
	return p.reply(p.echo(body, said))
}

// later is when to come again.
const later = 7 * time.Second

// count begins a dialogue, or goes on with the one that is named.
func (p *part) count() (transport.Answer, error) {
	in := &p.asked.Conversation.ContextID
	if *in == "" {
		*in = string(ect.NewID())
	}
	p.mu.Lock()
	p.said[*in]++
	n := p.said[*in]
	p.mu.Unlock()
	return p.reply(p.result("said " + strconv.Itoa(n)))
}

// added is the sum of two numbers, if that is what is asked for.
func added(body *canonical.Invoke) (string, bool) {
	var raw json.RawMessage
	if body.Call != nil {
		raw = body.Call.Args
	}
	var args struct{ A, B *int64 }
	if raw == nil || json.Unmarshal(raw, &args) != nil || args.A == nil || args.B == nil {
		return "", false
	}
	return strconv.FormatInt(*args.A+*args.B, 10), true
}

// echo says again what was said: the words, and the rest part by part.
func (p *part) echo(body *canonical.Invoke, said string) *canonical.Result {
	r := p.result("You said: " + said)
	more := slices.DeleteFunc(slices.Clone(body.Turn.Parts), func(p canonical.Part) bool { return p.Kind == canonical.KindText })
	var args struct {
		Data  json.RawMessage
		Files []struct {
			Name, MediaType, URI string
			Bytes                []byte
		}
	}
	if body.Call != nil && len(more) == 0 && json.Unmarshal(body.Call.Args, &args) == nil {
		if args.Data != nil {
			more = append(more, canonical.Part{Kind: canonical.KindData, Data: args.Data})
		}
		for _, f := range args.Files {
			kind := canonical.KindFile
			if f.URI != "" {
				kind = canonical.KindRef
			}
			more = append(more, canonical.Part{Kind: kind, Name: f.Name, Media: f.MediaType, Bytes: f.Bytes, URI: f.URI})
		}
	}
	for i := range more {
		more[i].Extensions = nil
	}
	switch {
	case r.Task != nil:
		r.Task.Artifacts[0].Parts = append(r.Task.Artifacts[0].Parts, more...)
	default:
		r.Output.Parts = append(r.Output.Parts, more...)
	}
	return r
}

func textPart(text string) []canonical.Part {
	return []canonical.Part{{Kind: canonical.KindText, Text: text}}
}

func spoken1(text string) *canonical.Content {
	return &canonical.Content{ID: string(ect.NewID()), Role: canonical.RoleAgent, Parts: textPart(text)}
}

// result is a text, as the agent's protocol likes to say one.
func (p *part) result(text string) *canonical.Result {
	if p.words == a2a.Binding {
		return &canonical.Result{Task: &canonical.Task{
			ID: p.task(), ContextID: p.context(), Status: canonical.Status{State: canonical.StateCompleted},
			Artifacts: []canonical.Artifact{{ID: "a1", Parts: textPart(text)}},
		}}
	}
	return &canonical.Result{Output: &canonical.Output{Parts: textPart(text)}}
}

// sum is a value, as the agent's protocol likes to say one.
func (p *part) sum(sum string) *canonical.Result {
	value := json.RawMessage(`{"sum":` + sum + `}`)
	if r := p.result(""); r.Task != nil {
		r.Task.Artifacts[0].Parts = []canonical.Part{{Kind: canonical.KindData, Data: value}}
		return r
	}
	return &canonical.Result{Output: &canonical.Output{Structured: value}}
}

func (p *part) failure(text string) *canonical.Result {
	if p.words == a2a.Binding {
		return &canonical.Result{Task: &canonical.Task{
			ID: p.task(), ContextID: p.context(), Status: canonical.Status{State: canonical.StateFailed, Message: spoken1(text)},
		}}
	}
	return &canonical.Result{Output: &canonical.Output{Parts: textPart(text), Failed: true}}
}

func (p *part) context() string {
	if id := p.asked.Conversation.ContextID; id != "" {
		return id
	}
	return "played"
}

func (p *part) task() string { return string(ect.NewID()) }

// message is something that the agent says in answer.
func (p *part) message(phase canonical.Phase, body canonical.Body) *canonical.Message {
	m := &canonical.Message{
		Op: p.asked.Op, Phase: phase, Body: body, Correlation: canonical.Correlation{WireID: p.asked.Correlation.WireID},
		Conversation: canonical.Conversation{ContextID: p.context(), TaskID: p.asked.Conversation.TaskID},
	}
	m.Preferences.TaskOK = p.asked.Preferences.TaskOK
	if _, native := body.(*canonical.Native); native {
		m.Origin = canonical.Origin{Binding: p.words, Version: p.asked.Origin.Version}
	}
	if r, ok := body.(*canonical.Result); ok && r.Task != nil {
		m.Conversation.TaskID, m.Conversation.ContextID = r.Task.ID, r.Task.ContextID
	}
	return m
}

// encoded is that in the agent's words.
func (p *part) encoded(m *canonical.Message) (translators.Wire, error) {
	wire, _, err := p.form.Encode(m, translators.Target{
		Version: p.asked.Origin.Version, Form: p.call.Wire.Form, Stream: m.Phase == canonical.PhaseEvent,
		Capability: p.capability(), Stamp: p.troupe.stamp(p.call.Wire.Binding, p.call.Program.Sender),
	})
	if err != nil {
		return wire, err
	}
	wire.Binding = p.call.Wire.Binding
	wire.Re, wire.Path, wire.Event = p.asked.Op, p.call.Wire.Path, m.Phase == canonical.PhaseEvent
	return p.troupe.frame(wire)
}

func (p *part) capability() *canonical.Capability {
	if p.known == nil {
		return nil
	}
	c := p.known.Capabilities[0]
	if p.words == mcp.Binding { // a server's tool has a schema of its own, and answers in its own way
		c.InputSchema = json.RawMessage(`{"type":"object"}`)
	}
	return &c
}

func (p *part) reply(body canonical.Body) (transport.Answer, error) {
	wire, err := p.encoded(p.message(canonical.PhaseResponse, body))
	return transporttest.Answer(wire), err
}

// line is one message of a scene; nil: nothing to say.
type line func(context.Context) (canonical.Body, error)

// scene is a stream that an agent plays.
type scene struct {
	part  *part
	lines []line
}

// Next plays the next line.
func (s *scene) Next(ctx context.Context) (transport.Event, error) {
	if len(s.lines) == 0 {
		return transport.Event{}, io.EOF
	}
	body, err := s.lines[0](ctx)
	s.lines = s.lines[1:]
	if err != nil {
		return transport.Event{}, err
	}
	phase := canonical.PhaseEvent
	if _, reply := body.(*canonical.Result); reply {
		phase = canonical.PhaseResponse
	}
	wire, err := s.part.encoded(s.part.message(phase, body))
	return transport.Event{Wire: wire}, err
}

// Close ends it.
func (s *scene) Close() error { return nil }

func (p *part) play(lines ...line) (transport.Answer, error) {
	return transporttest.Stream(&scene{p, lines}), nil
}

func saying1(body canonical.Body) line {
	return func(context.Context) (canonical.Body, error) { return body, nil }
}

// streams: whoever asked listens to more than one message.
func (p *part) streams() bool {
	switch {
	case p.words == mcp.Binding:
		return p.asked.Correlation.Progress != nil && p.call.Wire.Binding == mcp.Binding
	case p.call.Wire.Binding == ainp.Binding:
		return p.call.Wire.Form == ainp.FormSocket
	default:
		return p.asked.Preferences.Stream
	}
}

// tell says how it goes.
func (p *part) tell() (transport.Answer, error) {
	if !p.streams() {
		return p.reply(p.result("first second"))
	}
	switch p.words {
	case mcp.Binding:
		return p.play(
			saying1(&canonical.Event{Progress: &canonical.Progress{Token: p.asked.Correlation.Progress, Value: json.RawMessage("1"), Message: "under way"}}),
			saying1(p.result("first second")),
		)
	case ainp.Binding:
		return p.play(
			saying1(&canonical.Event{Status: &canonical.Status{State: canonical.StateWorking, Message: spoken1("under way")}}),
			saying1(p.result("first second")),
		)
	default:
		p.asked.Conversation.TaskID = p.task()
		task := &canonical.Task{ID: p.asked.Conversation.TaskID, ContextID: p.context(), Status: canonical.Status{State: canonical.StateSubmitted}}
		return p.play(
			saying1(&canonical.Event{Task: task}),
			saying1(&canonical.Event{Status: &canonical.Status{State: canonical.StateWorking, Message: spoken1("under way")}}),
			saying1(artifactOf("first")), saying1(artifactOf("second")),
			saying1(&canonical.Event{Status: &canonical.Status{State: canonical.StateCompleted}}),
		)
	}
}

// steps is how far a doCountUp goes.
const steps = 10

// countUp says how far it is, step by step.
func (p *part) countUp(name string) (transport.Answer, error) {
	if !p.streams() {
		return transport.Answer{}, &canonical.Error{Code: canonical.CodeUnsupportedOp, Message: "only in a stream"}
	}
	job := p.begin(name, canonical.StateWorking, false)
	var lines []line
	for i := range steps {
		lines = append(lines, func(ctx context.Context) (canonical.Body, error) {
			if i > 0 {
				if err := job.wait(ctx); err != nil {
					return nil, err
				}
			}
			text := "step " + strconv.Itoa(i+1)
			if p.words == mcp.Binding {
				return &canonical.Event{Progress: &canonical.Progress{
					Token: p.asked.Correlation.Progress, Value: json.RawMessage(strconv.Itoa(i + 1)), Message: text,
				}}, nil
			}
			return &canonical.Event{Status: &canonical.Status{State: canonical.StateWorking, Message: spoken1(text)}}, nil
		})
	}
	return p.play(append(lines, saying1(p.result("counted")))...)
}

// spell says one artifact chunk by chunk, and another with two texts at once.
func (p *part) spell() (transport.Answer, error) {
	if !p.streams() {
		return transport.Answer{}, &canonical.Error{Code: canonical.CodeUnsupportedOp, Message: "only in a stream"}
	}
	p.asked.Conversation.TaskID = p.task()
	task := &canonical.Task{ID: p.asked.Conversation.TaskID, ContextID: p.context(), Status: canonical.Status{State: canonical.StateWorking}}
	lines := []line{saying1(&canonical.Event{Task: task})}
	for i, chunk := range []string{"Hello ", "wor", "ld"} {
		lines = append(lines, saying1(&canonical.Event{Artifact: &canonical.ArtifactUpdate{
			Append: i > 0, Last: i == 2, Artifact: canonical.Artifact{ID: "spelled", Parts: textPart(chunk)},
		}}))
	}
	two := artifactOf("one")
	two.Artifact.Artifact.Parts = append(two.Artifact.Artifact.Parts, textPart("two")...)
	return p.play(append(lines, saying1(two), saying1(&canonical.Event{Status: &canonical.Status{State: canonical.StateCompleted}}))...)
}

func artifactOf(text string) *canonical.Event {
	return &canonical.Event{Artifact: &canonical.ArtifactUpdate{Last: true, Artifact: canonical.Artifact{ID: text, Parts: textPart(text)}}}
}

// begin takes up work that the test calls by name.
func (p *part) begin(name string, state canonical.State, named bool) *work {
	p.mu.Lock()
	defer p.mu.Unlock()
	job := &work{id: string(ect.NewID()), state: state, named: named, done: make(chan struct{})}
	p.jobs[job.id] = job
	if name != "" {
		p.jobs[name] = job
	}
	return job
}

func (c *cast) job(id string) *work {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.jobs[id]
}

// finish ends work by the name that the test gave it.
func (c *cast) finish(name string) {
	if job := c.job(name); job != nil {
		job.end(canonical.StateCompleted)
	}
}

// release ends everything.
func (c *cast) release() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, job := range c.jobs {
		job.end(canonical.StateCompleted)
	}
}

func (w *work) end(state canonical.State) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.state.Terminal() {
		w.state = state
		close(w.done)
	}
}

// knownTo: the gateway has heard of the task, if there is one to hear of.
func (w *work) knownTo(l *ledger, told string) bool {
	return w != nil && (!w.named || w.id == told || l.knows(w.id))
}

func (w *work) now() canonical.State {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.state
}

func (w *work) wait(ctx context.Context) error {
	select {
	case <-w.done:
		return nil
	case <-ctx.Done(): // whoever asked went away
		w.end(canonical.StateCanceled)
		return ctx.Err()
	}
}

// snapshot is how the work stands.
func (p *part) snapshot(w *work) *canonical.Task {
	state := w.now()
	task := &canonical.Task{ID: w.id, ContextID: p.context(), Status: canonical.Status{State: state}}
	if p.words == mcp.Binding {
		task.Poll = 100 * time.Millisecond
	}
	if state == canonical.StateCompleted {
		w.mu.Lock()
		text := w.answer
		w.mu.Unlock()
		if text == "" {
			text = "worked"
		}
		if p.words == mcp.Binding {
			task.Output = &canonical.Output{Parts: textPart(text)}
		} else {
			task.Artifacts = []canonical.Artifact{{ID: "a1", Parts: textPart(text)}}
		}
	}
	return task
}

func (p *part) finished(w *work, text string) (transport.Answer, error) {
	w.mu.Lock()
	w.answer = text
	w.mu.Unlock()
	w.end(canonical.StateCompleted)
	r := p.result(text)
	if r.Task != nil {
		r.Task.ID = w.id
	}
	return p.reply(r)
}

// work answers with a task where the protocol has one, and otherwise when the work is done.
func (p *part) work(ctx context.Context, name string, toil bool) (transport.Answer, error) {
	streams := p.words == a2a.Binding && p.asked.Preferences.Stream
	tasked := p.words == a2a.Binding && p.asked.Preferences.NoWait || p.words == mcp.Binding && p.asked.Preferences.TaskOK && !toil || p.words == uacp.Binding && p.call.Wire.Form != uacp.FormBare
	job := p.begin(name, canonical.StateWorking, streams || tasked)
	switch {
	case streams:
		return p.play(saying1(&canonical.Event{Task: p.snapshot(job)}), p.ends(job))
	case tasked:
		return p.reply(&canonical.Result{Task: p.snapshot(job)})
	}
	if err := job.wait(ctx); err != nil {
		return transport.Answer{}, err
	}
	return p.reply(p.result("worked"))
}

// ends tells that the work has ended.
func (p *part) ends(job *work) line {
	return func(ctx context.Context) (canonical.Body, error) {
		select { // who does not listen any more has not canceled it
		case <-job.done:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
		p.asked.Conversation.TaskID = job.id
		return &canonical.Event{Task: p.snapshot(job)}, nil
	}
}

// queried is asked about work.
func (p *part) queried(ctx context.Context, q *canonical.TaskQuery) (transport.Answer, error) {
	job := p.job(q.ID)
	if job == nil {
		return transport.Answer{}, &canonical.Error{Code: canonical.CodeTaskNotFound, Message: "no such work"}
	}
	switch p.asked.Op {
	case canonical.OpTaskCancel:
		p.note("task canceled")
		job.end(canonical.StateCanceled)
		if p.words == mcp.Binding && strings.HasSuffix(p.asked.Origin.Version, mcp.Modern) {
			return p.reply(&canonical.Done{})
		}
	case canonical.OpTaskSubscribe:
		if job.now().Terminal() && p.asked.Origin.Version == a2a.Version { // of 1.0; agents of 0.3 tell such a task
			return transport.Answer{}, &canonical.Error{Code: canonical.CodeUnsupportedOp, Message: "the work has ended"}
		}
		return p.play(saying1(&canonical.Event{Task: p.snapshot(job)}), p.ends(job))
	case canonical.OpTaskResult:
		if err := job.wait(ctx); err != nil {
			return transport.Answer{}, err
		}
		if done := p.snapshot(job); done.Output != nil {
			return p.reply(&canonical.Result{Output: done.Output})
		}
	case canonical.OpTaskAnswer:
		p.note(answersSaid(&canonical.Invoke{Answers: q.Answers})...)
		return p.reply(&canonical.Done{})
	default:
	}
	return p.reply(&canonical.Result{Task: p.snapshot(job)})
}

// checkpoint is what a rollback may name, in the workflow of whoever asks.
func (p *part) checkpoint() []string {
	if len(p.call.Evidence) == 0 {
		return nil
	}
	asked, _, err := ect.ParseUnverified(p.call.Evidence[0])
	if err != nil {
		return nil
	}
	return p.sign(ect.Claims{Act: "atd:checkpoint", Audience: []string{p.troupe.stage.self()}, Workflow: asked.Workflow, Parents: []ect.ID{asked.ID}})
}

func (p *part) sign(c ect.Claims) []string {
	token, err := p.troupe.signer.Sign(c)
	if err != nil {
		return nil
	}
	return []string{token.Compact()}
}

// signaled is told to undo something, or what a human decided.
func (p *part) signaled(s *canonical.Signal) (transport.Answer, error) {
	if p.asked.Op == canonical.OpDecision {
		p.mu.Lock()
		p.decided[s.Token] = true
		p.mu.Unlock()
		return p.reply(&canonical.Done{})
	}
	result := p.undone(s.Token)
	if result == "" {
		return transport.Answer{}, &canonical.Error{Code: canonical.CodeBadParams, Message: "no token"}
	}
	return p.reply(&canonical.Signal{Token: result})
}

// stamp is what only the troupe knows of a message.
func (tr *troupe) stamp(id canonical.Binding, to string) translators.Addressing {
	stamper, ok := tr.list[id].dialer.(transport.Addresser)
	if !ok {
		return translators.Addressing{}
	}
	return translators.Addressing{From: stamper.Self(), To: to, At: time.Now()}
}

func (tr *troupe) frame(wire translators.Wire) (translators.Wire, error) {
	if framer, ok := tr.list[wire.Binding].dialer.(transport.WireFormat); ok {
		framed, _, err := framer.Frame(wire)
		return framed, err
	}
	return wire, nil
}

func (tr *troupe) unframe(wire translators.Wire) (translators.Wire, error) {
	if framer, ok := tr.list[wire.Binding].dialer.(transport.WireFormat); ok {
		return framer.Unframe(wire)
	}
	return wire, nil
}
