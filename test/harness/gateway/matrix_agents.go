package gatewaytest

import (
	"context"
	"encoding/json"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/gateway/transport"
	"github.com/aepb/aepb-gateway/gateway/transport/transporttest"
	"github.com/aepb/aepb-gateway/policy/limit"
	"github.com/aepb/aepb-gateway/translators"
	"github.com/aepb/aepb-gateway/translators/canonical"
)

// What agents of the simulator do, by the first word that they are told.
const (
	DoFail    = "fail"    // fail
	doRefuse  = "refuse"  // answer with an error
	doPut     = "put"     // ask to come again later
	doCount   = "count"   // say how often that was said in one dialogue
	DoTell    = "tell"    // say how it goes, and only then what came of it
	DoAsk     = "ask"     // ask for a name first
	doAskMore = "askmore" // ask for a name and a town
	DoWork    = "work"    // work until the test says that it is done
	DoToil    = "toil"    // the same, and make no task of it where the caller would wait
	doUndo    = "undo"    // leave a checkpoint
	DoSpell   = "spell"   // say a text in chunks, and one whole
	DoCountUp = "countup" // say how far it is, and from the second step on only when the test says so
)

// fakeAgents is the pipeline behind the endpoints of the fake agents.
type fakeAgents struct {
	simulator *Simulator

	Mu        sync.Mutex
	jobs      map[string]*Work  // by the task's id, and by what the test calls it
	callbacks map[string]string // who is told of decisions, by the words that came with it
	decided   map[string]bool   // the decisions that were heard
	Counted   map[string]int    // how often doCount was, by dialogue

	answers map[string][]string // what was said in answer to questions, by workflow (consent.go)
}

// Limit and Admit take everybody in.
func (c *fakeAgents) Limit(context.Context, transport.CallInfo) (limit.Pass, error) {
	return transporttest.Pass(nil)
}

func (c *fakeAgents) Admit(context.Context, transport.CallInfo) error { return nil }

// Describe is who an agent is.
func (c *fakeAgents) Describe(_ context.Context, q transport.CallInfo) (*canonical.Description, error) {
	d := &canonical.Description{Name: q.Agent, Version: "1", Description: "Plays.", Streams: true, Pushes: true, Tasks: true}
	if strings.HasPrefix(q.Agent, adder) {
		d.Capabilities = []canonical.Capability{{
			ID: "add", Title: "Add", Description: "Adds two integers.", Profile: canonical.ProfileTyped,
			InputSchema: json.RawMessage(`{"type":"object","properties":{"a":{"type":"integer"},"b":{"type":"integer"}},"required":["a","b"]}`),
		}}
		return d, nil
	}
	if q.Agent == greeter {
		d.Capabilities = []canonical.Capability{helloTool()}
		return d, nil
	}
	d.Capabilities = []canonical.Capability{{ID: "play", Title: "Play", Description: "Plays a scene.", Profile: canonical.ProfileMessage}}
	return d, nil
}

// part is one visit to an agent: who asks, in which words.
type part struct {
	*fakeAgents
	call    transport.Call
	form    translators.Translator
	request *canonical.Message
	words   canonical.Binding
	known   *canonical.Description // the agent; nil: nobody knows it
	sure    bool                   // it asks also who did not say that it can be asked
}

// Exchange is what an agent does with a message.
func (c *fakeAgents) Exchange(ctx context.Context, call transport.Call) (transport.Answer, error) {
	p := &part{fakeAgents: c, call: call, form: c.simulator.List[call.Wire.Binding].Codec}
	if known, err := c.Describe(ctx, transport.CallInfo{Agent: call.Agent}); err == nil {
		p.known = known
	}
	wire, err := c.simulator.unframe(call.Wire)
	if err != nil {
		return transport.Answer{}, err
	}
	if p.request, err = p.form.Decode(wire); err != nil {
		return transport.Answer{}, err
	}
	c.Mu.Lock()
	if body, ok := p.request.Body.(*canonical.Invoke); ok {
		c.callbacks[wordsIn(body)] = p.request.Callback
	}
	c.Mu.Unlock()
	if call.CanAnswer != nil && p.request.Preferences.CanAnswer == nil {
		p.request.Preferences.CanAnswer = call.CanAnswer
	}
	p.words = p.side().Words(p.form)
	return p.act(ctx)
}

// side is the one on which the agent stands.
func (p *part) side() Side {
	return Side{Binding: p.call.Wire.Binding, version: p.request.Origin.Version, Form: p.call.Wire.Form}
}

// act does what is asked.
func (p *part) act(ctx context.Context) (transport.Answer, error) {
	switch body := p.request.Body.(type) {
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
	var texts []string
	for _, p := range body.Turn.Parts {
		if p.Kind == canonical.KindText {
			texts = append(texts, p.Text)
		}
	}
	var args struct{ Message string }
	if body.Call != nil && json.Unmarshal(body.Call.Args, &args) == nil && args.Message != "" && len(texts) == 0 {
		texts = append(texts, args.Message)
	}
	return strings.Join(texts, " ")
}

func (p *part) invoked(ctx context.Context, body *canonical.Invoke) (transport.Answer, error) {
	text := wordsIn(body)
	if job := p.Job(p.request.Conversation.TaskID); job != nil && job.question {
		p.note(answersSaid(body)...)
		return p.finished(job, hello(heardInTurn(body)))
	}
	if len(body.Answers) > 0 {
		p.note(answersSaid(body)...)
		return p.reply(p.result(hello(body.Answers)))
	}
	if isTypedCall(body) {
		p.note("called " + sorted(body.Call.Args))
	}
	text, p.sure = strings.CutPrefix(text, doInsist+" ")
	what, rest, _ := strings.Cut(text, " ")
	if in, ok := kindsAsked[what]; ok {
		return p.ask(in)
	}
	switch what {
	case DoFail:
		return p.reply(p.failure("it went wrong"))
	case doRefuse:
		return transport.Answer{}, &canonical.Error{Code: canonical.CodeBadParams, Message: "not like this"}
	case doPut:
		return transport.Answer{}, &canonical.Error{Code: canonical.CodeRateLimited, Message: "not now", RetryAfter: later}
	case doCount:
		return p.count()
	case DoTell:
		return p.tell()
	case DoAsk:
		return p.ask(question("name"))
	case doAskMore:
		return p.ask(question("name"), question("town"))
	case DoWork, DoToil:
		name, _, _ := strings.Cut(rest, " ")
		return p.work(ctx, name, what == DoToil)
	case DoSpell:
		return p.spell()
	case DoCountUp:
		return p.countUp(rest)
	case doUndo:
		answer, err := p.reply(p.result("done, and can be undone"))
		answer.Evidence = p.checkpoint()
		return answer, err
	}
	if sum, ok := added(body); ok {
		return p.reply(p.sum(sum))
	}
	return p.reply(p.echo(body, text))
}

// later is when to come again.
const later = 7 * time.Second

// count begins a dialogue, or goes on with the one that is named.
func (p *part) count() (transport.Answer, error) {
	in := &p.request.Conversation.ContextID
	if *in == "" {
		*in = string(ect.NewID())
	}
	p.Mu.Lock()
	p.Counted[*in]++
	n := p.Counted[*in]
	p.Mu.Unlock()
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

// checkpoint is what a rollback may name, in the workflow of whoever asks.
func (p *part) checkpoint() []string {
	if len(p.call.Evidence) == 0 {
		return nil
	}
	claims, _, err := ect.ParseUnverified(p.call.Evidence[0])
	if err != nil {
		return nil
	}
	return p.sign(ect.Claims{Act: "atd:checkpoint", Audience: []string{p.simulator.Stage.Self()}, Workflow: claims.Workflow, Parents: []ect.ID{claims.ID}})
}

func (p *part) sign(c ect.Claims) []string {
	token, err := p.simulator.signer.Sign(c)
	if err != nil {
		return nil
	}
	return []string{token.Compact()}
}

// signaled is told to undo something, or what a human decided.
func (p *part) signaled(s *canonical.Signal) (transport.Answer, error) {
	if p.request.Op == canonical.OpDecision {
		p.Mu.Lock()
		p.decided[s.Token] = true
		p.Mu.Unlock()
		return p.reply(&canonical.Done{})
	}
	result := p.undone(s.Token)
	if result == "" {
		return transport.Answer{}, &canonical.Error{Code: canonical.CodeBadParams, Message: "no token"}
	}
	return p.reply(&canonical.Signal{Token: result})
}
