package gatewaytest

import (
	"context"
	"encoding/json"
	"slices"
	"strings"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/gateway/transport"
	"github.com/aepb/aepb-gateway/translators"
	"github.com/aepb/aepb-gateway/translators/canonical"
	"github.com/aepb/aepb-gateway/translators/mcp"
	"github.com/aepb/aepb-gateway/translators/stream"
	"github.com/aepb/aepb-gateway/translators/uacp"
)

// question is what an agent asks for: a word, in a form.
func question(word string) canonical.Input {
	return canonical.Input{
		Key: word, Mode: canonical.ModeForm, Prompt: textPart("what is your " + word + "?"),
		Schema: json.RawMessage(`{"type":"object","properties":{"` + word + `":{"type":"string"}},"required":["` + word + `"]}`),
	}
}

// accepts answers a question, by its form.
func accepts(in canonical.Input) canonical.Answer {
	value := `{"name":"Ada"}`
	switch {
	case strings.Contains(string(in.Schema), "town"):
		value = `{"town":"Paris"}`
	case strings.Contains(string(in.Schema), `"reply"`): // what was asked in free text
		value = `{"reply":"Ada"}`
	}
	return canonical.Answer{Key: in.Key, Action: canonical.Accept, Value: json.RawMessage(value)}
}

// declines does not.
func declines(in canonical.Input) canonical.Answer {
	return canonical.Answer{Key: in.Key, Action: canonical.Decline}
}

// hello is what an agent makes of answers.
func hello(answers []canonical.Answer) string {
	var names []string
	for _, a := range answers {
		names = append(names, wordsOfAnswer(a))
	}
	return "Hello " + strings.Join(names, " of ")
}

func wordsOfAnswer(a canonical.Answer) string {
	if a.Action == canonical.Decline {
		return "nobody"
	}
	var named struct {
		Name, Town string
		Content    struct{ Text string }
		Roots      []struct{ Name string }
	}
	_ = json.Unmarshal(a.Value, &named)
	texts := []string{named.Name, named.Town, named.Content.Text}
	for _, root := range named.Roots {
		texts = append(texts, root.Name)
	}
	for _, part := range a.Parts {
		texts = append(texts, part.Text)
	}
	return strings.TrimSpace(strings.Join(texts, " "))
}

// heardInTurn are the answers that an agent reads in a message.
func heardInTurn(body *canonical.Invoke) []canonical.Answer {
	if len(body.Answers) > 0 {
		return body.Answers
	}
	answer := canonical.Answer{Action: canonical.Accept}
	for _, part := range body.Turn.Parts {
		switch part.Kind {
		case canonical.KindData:
			answer.Value = part.Data
		case canonical.KindText:
			answer.Parts = append(answer.Parts, part)
		default:
		}
	}
	return []canonical.Answer{answer}
}

// ask asks, in the way of the agent's protocol.
func (p *part) ask(inputs ...canonical.Input) (transport.Answer, error) {
	asker, ok := p.form.(translators.InputStyler)
	asks := translators.AskNone
	if ok {
		asks = asker.Asks(p.request.Origin.Version, p.call.Wire.Form)
	}
	switch {
	case asks == translators.AskTask:
		job := p.begin("", canonical.StateInputRequired, true)
		job.question = true
		return p.reply(&canonical.Result{Task: &canonical.Task{
			ID: job.id, ContextID: p.context(), Inputs: inputs,
			Status: canonical.Status{State: canonical.StateInputRequired, Message: spoken1(inputs[0].Prompt[0].Text)},
		}})
	case !p.sure && !p.mayAsk(inputs[0]):
	case asks == translators.AskReply:
		return p.reply(&canonical.Result{Pending: &canonical.Pending{Inputs: inputs, State: "asked"}})
	case asks == translators.AskStream:
		return p.play(p.interview(inputs)...)
	}
	return p.reply(p.result("nobody can be asked"))
}

// mayAsk: the caller has said that it can be asked this.
func (p *part) mayAsk(in canonical.Input) bool {
	mode := in.Mode
	if in.Native != nil {
		mode = map[string]canonical.Mode{"sampling/createMessage": canonical.ModeSampling, "roots/list": canonical.ModeRoots}[in.Native.Method]
	}
	return slices.Contains(p.request.Preferences.CanAnswer, mode)
}

// interview asks one question after the other.
func (p *part) interview(inputs []canonical.Input) []line {
	var lines []line
	var jobs []*Work
	answered := func(ctx context.Context) error {
		if len(jobs) == 0 {
			return nil
		}
		return jobs[len(jobs)-1].wait(ctx)
	}
	for _, in := range inputs {
		lines = append(lines, func(ctx context.Context) (canonical.Body, error) {
			if err := answered(ctx); err != nil {
				return nil, err
			}
			id := own(ect.NewRandomID())
			jobs = append(jobs, p.begin(string(id), canonical.StateInputRequired, false))
			return &canonical.Event{Ask: &canonical.Ask{ID: id, Input: in}}, nil
		})
	}
	return append(lines, func(ctx context.Context) (canonical.Body, error) {
		if err := answered(ctx); err != nil {
			return nil, err
		}
		var names []string
		for _, job := range jobs {
			names = append(names, job.answer)
		}
		return p.result("Hello " + strings.Join(names, " of ")), nil
	})
}

// answered brings an answer to the scene that waits for it.
func (p *part) answered(r *canonical.Reply) error {
	if r.Failure != nil {
		p.note("error")
	} else {
		p.note(answersSaid(&canonical.Invoke{Answers: []canonical.Answer{r.Answer}})...)
	}
	job := p.Job(string(r.ID))
	if job == nil {
		return &canonical.Error{Code: canonical.CodeBadParams, Message: "nobody asked"}
	}
	job.mu.Lock()
	job.answer = wordsOfAnswer(r.Answer)
	job.mu.Unlock()
	job.end(canonical.StateCompleted)
	return nil
}

// asks is how the caller can be asked.
func (c *Caller) asks() translators.Asking {
	asker, ok := c.form.(translators.InputStyler)
	if !ok {
		return translators.AskNone
	}
	return asker.Asks(c.side.version, c.side.Form)
}

// answers asks for something, answers what is asked first, and hears the end.
func answers(do string, answer func(canonical.Input) canonical.Answer, want, done string) func(*Caller, context.Context) string {
	return func(c *Caller, ctx context.Context) string {
		h := c.answers(ctx, do, answer)
		switch {
		case strings.Contains(h.Text(), want):
			return done
		case strings.Contains(h.Text(), "nobody can be asked"):
			return "not asked"
		case c.asks() == translators.AskNone && strings.Contains(h.Text(), "what is your name?"):
			return "read" // but there is no way to answer it
		default:
			return h.Otherwise()
		}
	}
}

func (c *Caller) answers(ctx context.Context, do string, answer func(canonical.Input) canonical.Answer) *Received {
	m := c.Request(canonical.OpInvoke, c.Invoke(do))
	if c.words() == mcp.Binding {
		m.Correlation.Progress = json.RawMessage(`"p"`)
	}
	h := c.Ask(ctx, m, false, func(question *canonical.Ask) {
		reply := c.Request(canonical.OpAnswer, &canonical.Reply{ID: question.ID, Answer: answer(question.Input)})
		c.Ask(ctx, reply, false, nil)
	})
	for range 2 { // some ask one question after the other
		next := c.onward(do, h, answer)
		if next == nil {
			break
		}
		h = c.Ask(ctx, next, false, nil)
	}
	return h
}

// onward is what answers the questions that were heard; nil: there are none that
// the caller could answer.
func (c *Caller) onward(do string, h *Received, answer func(canonical.Input) canonical.Answer) *canonical.Message {
	next := c.Invoke(do)
	m := c.Request(canonical.OpInvoke, next)
	given := func(inputs []canonical.Input) {
		for _, in := range inputs {
			next.Answers = append(next.Answers, answer(in))
		}
	}
	switch r, _ := h.last().(*canonical.Result); {
	case c.asks() == translators.AskNone:
		return nil
	case r != nil && r.Pending != nil && len(r.Pending.Inputs) > 0:
		given(r.Pending.Inputs)
		next.State = r.Pending.State
		return m
	case h.Task() != nil && h.State() == canonical.StateInputRequired:
		m.Conversation.TaskID, m.Conversation.ContextID = h.Task().ID, h.Task().ContextID
		given(h.Task().Inputs)
		next.Turn.Parts = nil
		switch a := next.Answers; {
		case len(a) == 0: // nobody says what it is that is asked
			next.Turn.Parts = textPart("Ada")
		case c.words() == uacp.Binding: // where no message is without words, and one answer need be nothing else
			if next.Turn.Parts = stream.Turn(a).Parts; len(a) == 1 && a[0].Action == canonical.Accept && wordsOfAnswer(a[0]) != "" {
				next.Answers, next.Turn.Parts = nil, textPart(wordsOfAnswer(a[0]))
			}
		}
		return m
	default:
		return nil
	}
}
