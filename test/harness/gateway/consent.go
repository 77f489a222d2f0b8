package gatewaytest

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"regexp"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sync/errgroup"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/gateway/directory"
	"github.com/aepb/aepb-gateway/policy"
	"github.com/aepb/aepb-gateway/translators"
	"github.com/aepb/aepb-gateway/translators/a2a"
	"github.com/aepb/aepb-gateway/translators/canonical"
	"github.com/aepb/aepb-gateway/translators/mcp"
	"github.com/aepb/aepb-gateway/translators/slim"
	"github.com/aepb/aepb-gateway/translators/uacp"
)

// Response is a way to answer the question for a name.
type Response struct {
	Name    string
	Accepts bool // the caller accepts, with values that fit
	Answer  canonical.Answer
	Failure bool // a client's error in place of an answer
	Twice   bool // and the same again
	Key     string
	Empty   bool   // no answer at all
	Other   bool   // by another caller
	words   string // a message of these words, in place of an answer
	data    string // a message with this data, in place of an answer
	do      string // what the agent is told first; empty: to ask for a name
	args    string // the same as arguments of its tool, for which there are no words
}

// does is what the agent is told first.
func (r Response) does() string { return cmp.Or(r.do, DoAsk) }

// to is the answer for a question.
func (r Response) to(in canonical.Input) canonical.Answer {
	a := r.Answer
	if a.Key = in.Key; r.Key != "" {
		a.Key = r.Key
	}
	if strings.Contains(string(in.Schema), `"reply"`) { // what was asked in free text
		a.Value = bytes.Replace(a.Value, []byte(`"name"`), []byte(`"reply"`), 1)
	}
	return a
}

// note keeps what the agent is told in answer to its question.
func (p *part) note(texts ...string) {
	if len(p.call.Evidence) == 0 {
		return
	}
	token, _, err := ect.ParseUnverified(p.call.Evidence[0])
	if err != nil {
		return
	}
	p.Mu.Lock()
	defer p.Mu.Unlock()
	p.fakeAgents.answers[token.Workflow] = append(p.fakeAgents.answers[token.Workflow], texts...)
}

// answersSaid are the answers of a message in short. "accept" is what the agent is
// told as such, and words that are no action are words.
func answersSaid(body *canonical.Invoke) []string {
	var texts []string
	for _, a := range body.Answers {
		one := []string{string(a.Action), sorted(a.Value)}
		for _, part := range a.Parts {
			one = append(one, part.Text)
		}
		texts = append(texts, strings.TrimSpace(strings.Join(one, " ")))
	}
	if texts != nil {
		return texts
	}
	for _, part := range body.Turn.Parts {
		if part.Kind == canonical.KindData {
			texts = append(texts, "accept "+sorted(part.Data))
		} else {
			texts = append(texts, "words: "+part.Text)
		}
	}
	return texts
}

// sorted is a value with its members in order, which is not that of every wire.
func sorted(value json.RawMessage) string {
	var members map[string]json.RawMessage
	if json.Unmarshal(value, &members) != nil {
		return string(value)
	}
	text, err := json.Marshal(members)
	if err != nil {
		return err.Error()
	}
	return string(text)
}

// Responds answers a question in one way, and says what the caller hears in the end;
// other is the caller who answers in its place where the response wants that.
func (c *Caller) Responds(ctx context.Context, r Response, other *Caller, say func(*Received) string) string {
	do, m := r.does(), c.opens(r)
	questioned := false
	h := c.Ask(ctx, m, false, func(ask *canonical.Ask) {
		questioned = true
		reply := &canonical.Reply{ID: ask.ID, Answer: r.to(ask.Input)}
		if r.Failure {
			reply = &canonical.Reply{ID: ask.ID, Failure: &canonical.Error{Code: canonical.CodeOther, Message: "not me"}}
		}
		c.Ask(ctx, c.Request(canonical.OpAnswer, reply), false, nil)
		if r.Twice {
			c.Ask(ctx, c.Request(canonical.OpAnswer, reply), false, nil)
		}
	})
	if questioned {
		return say(h)
	}
	next := c.onward(do, h, r.to)
	if task := h.Task(); next == nil || c.words() == mcp.Binding && task != nil && len(task.Inputs) == 0 { // MCP has no answer to a task that names no question
		return notAsked(h, say)
	}
	if r.Empty || r.words != "" || r.data != "" {
		invoke, _ := next.Body.(*canonical.Invoke)
		invoke.Answers = nil
		if invoke.State == "" {
			invoke.Turn.Parts = textPart(cmp.Or(r.words, " "))
		}
		if r.data != "" {
			invoke.Turn.Parts = []canonical.Part{{Kind: canonical.KindData, Data: json.RawMessage(r.data)}}
		}
	}
	again := *next
	again.Correlation.WireID, again.Correlation.MessageID = own(ect.NewRandomID()), string(ect.NewID())
	if r.Other {
		return say(other.Ask(ctx, next, false, nil)) + ", then " + say(c.Ask(ctx, &again, false, nil)) + " for the caller"
	}
	first := c.Ask(ctx, next, false, nil)
	if r.Twice {
		return say(first) + ", then " + say(c.Ask(ctx, &again, false, nil))
	}
	return say(first)
}

// asking is the message that lets the agent ask.
func (c *Caller) asking(do string) *canonical.Message {
	m := c.Request(canonical.OpInvoke, c.Invoke(do))
	if c.words() == mcp.Binding {
		m.Correlation.Progress = json.RawMessage(`"p"`)
	}
	return m
}

// inputRequired is what a caller hears who is told that its agent waits for input, and
// cannot give it.
const inputRequired = "hears that input is required"

// notAsked is what a caller hears that no question reaches.
func notAsked(h *Received, say func(*Received) string) string {
	if strings.Contains(h.Text(), "nobody can be asked") {
		return "not asked"
	}
	switch h.State() {
	case canonical.StateCompleted:
		return say(h)
	case canonical.StateInputRequired:
		return inputRequired
	default:
		return "not asked: " + say(h)
	}
}

var greeted = regexp.MustCompile(`Hello \w*`)

// Outcome is what was heard in the end, in short.
func (h *Received) Outcome() string {
	pending := false
	if r, ok := h.last().(*canonical.Result); ok {
		pending = r.Pending != nil
	}
	switch refused, text := h.Refusal(), h.Text(); {
	case strings.Contains(text, "Hello"):
		return strings.TrimSpace(greeted.FindString(text))
	case pending, h.State() == canonical.StateInputRequired:
		return "asked again"
	case refused != nil:
		return "refused"
	case h.failure != nil:
		return "broken: " + h.failure.Error()
	default:
		return string(h.State())
	}
}

// Of reports whether a caller can give this response: who answers a request by
// its id can neither name another key nor answer nothing, and only they can answer
// with an error.
func (r Response) Of(n *Traits) bool {
	within := n.Asks == translators.AskStream
	switch {
	case r.Failure:
		return within
	case r.words != "", r.data != "":
		return n.Asks == translators.AskTask
	case r.Other:
		return !within && n.Binding != slim.Binding // who speaks on a node is one caller
	case r.Key != "":
		return !within && n.Words != uacp.Binding // where one answer is a plain text
	default:
		return !within || !r.Empty
	}
}

// Relayed reports whether messages are passed on as they are.
func Relayed(from, to *Traits) bool {
	return from.Binding == to.Binding && from.Words == a2a.Binding
}

// Ends reports whether the agent will hear that its work was canceled, which is told
// in the background: where its question ended without an answer, and its caller is
// gone.
func Ends(from, to *Traits, outcome string) bool {
	return from.Asks == translators.AskStream && to.Asks == translators.AskTask && outcome == "refused"
}

// AnswersOf is what the agents were told in a workflow.
func (tr *Simulator) AnswersOf(wid string) []string {
	tr.Agents.Mu.Lock()
	defer tr.Agents.Mu.Unlock()
	return slices.Compact(slices.Clone(tr.Agents.answers[wid]))
}

// greeter is an agent whose tool wants one short text.
const greeter = "greeter"

func helloTool() canonical.Capability {
	return canonical.Capability{
		ID: "greet", Title: "Greet", Description: "Greets.", Profile: canonical.ProfileTyped,
		InputSchema: json.RawMessage(`{"type":"object","properties":{"name":{"type":"string","maxLength":5}},"required":["name"]}`),
	}
}

// isTypedCall reports whether an agent is called with arguments of its own.
func isTypedCall(body *canonical.Invoke) bool {
	return body.Call != nil && (body.Call.Name == helloTool().ID || body.Call.Name == "add")
}

// opens is the message to which a question answers.
func (c *Caller) opens(r Response) *canonical.Message {
	if r.args == "" {
		return c.asking(r.does())
	}
	tool := "add"
	if c.agent == c.Simulator.Listed(c.to, greeter) {
		tool = helloTool().ID
	}
	return c.Request(canonical.OpInvoke, &canonical.Invoke{Call: &canonical.Call{Name: tool, Args: json.RawMessage(r.args)}})
}

// argumentsAsked is the tables of what becomes of words and arguments for a tool of an
// MCP server, and of the gateway's own question for the arguments.
func (tr *Simulator) argumentsAsked(t *testing.T, others *Simulator, callers []*Traits) string {
	t.Helper()
	to := tr.agentSide(byRequest)
	Must(t, tr.Stage.Directory().Put(directory.Agent{
		Name: tr.Listed(to.Side, greeter), ID: tr.conf.Identity.SVID.ID, Timeout: 2 * PatienceOfPlays, Rules: policy.Rules{Open: true},
		Endpoints: []directory.Endpoint{{Binding: to.Binding, Version: to.version, URL: tr.at.Public + "/agents/" + greeter + "/mcp"}},
	}))
	Must(t, tr.directory.Put(directory.Agent{
		Name: greeter, Rules: policy.Rules{Open: true}, Endpoints: []directory.Endpoint{{Binding: to.Binding, URL: tr.at.Public}},
	}))
	values := func(value string) canonical.Answer {
		return canonical.Answer{Action: canonical.Accept, Value: json.RawMessage(value)}
	}
	const long = "Ada Lovelace"
	numbers := values(`{"a":40,"b":2}`)
	return tr.argumentsTable(t, others, callers, to, greeter, "Words for a tool with one required text of at most 5 characters", []Response{
		{Name: "text that fits", do: "Ada", Accepts: true},
		{Name: "longer text, then one that fits", do: long, words: "Ada", Accepts: true},
		{Name: "longer text, twice", do: long, words: long},
		{Name: "longer text, then a value that fits", do: long, Answer: values(`{"name":"Ada"}`), Accepts: true},
		{Name: "longer text, then a value that does not", do: long, Answer: values(`{"name":"` + long + `"}`)},
		{Name: "longer text, then decline", do: long, Answer: canonical.Answer{Action: canonical.Decline}},
	}) + tr.argumentsTable(t, others, callers, to, adder, "Words for a tool that wants two numbers, and the answers to \"Which arguments?\"", []Response{
		{Name: "accept", do: "add", Accepts: true, Answer: numbers},
		{Name: "accept, twice", do: "add", Accepts: true, Answer: numbers, Twice: true},
		{Name: "one of two", do: "add", Answer: values(`{"a":40}`)},
		{Name: "another type", do: "add", Answer: values(`{"a":"x","b":2}`)},
		{Name: "no values", do: "add", Answer: canonical.Answer{Action: canonical.Accept}},
		{Name: "decline", do: "add", Answer: canonical.Answer{Action: canonical.Decline}},
		{Name: "cancel", do: "add", Answer: canonical.Answer{Action: canonical.Cancel}},
		{Name: "text", do: "add", words: "40 and 2"},
		{Name: "nothing", do: "add", Empty: true},
		{Name: "another caller", do: "add", Accepts: true, Answer: numbers, Other: true},
		{Name: "one of two, at once", args: `{"a":40}`, Accepts: true}, // which the server judges
	})
}

func (tr *Simulator) argumentsTable(t *testing.T, others *Simulator, callers []*Traits, to *Traits, agent, name string, columns []Response) string {
	t.Helper()
	var seen cells
	var group errgroup.Group
	group.SetLimit(AtOnce)
	var names []string
	for _, r := range columns {
		names = append(names, r.Name)
		for _, from := range callers {
			inTask := from.Asks == translators.AskTask
			if from.Side == to.Side || r.args == "" && from.Words == mcp.Binding || !inTask && r.Name != columns[0].Name && r.args == "" || from.Bare && r.args != "" || !r.Of(from) {
				continue
			}
			group.Go(func() error {
				seen.put("by the gateway", from.Name, r.Name, tr.responded(t, others, agent, nil, from, to, r))
				return nil
			})
		}
	}
	Must(t, group.Wait())
	return seen.table(name, names)
}
