package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sync/errgroup"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/translators"
	"github.com/aepb/aepb-gateway/translators/a2a"
	"github.com/aepb/aepb-gateway/translators/ainp"
	"github.com/aepb/aepb-gateway/translators/canonical"
	"github.com/aepb/aepb-gateway/translators/mcp"
	"github.com/aepb/aepb-gateway/translators/slim"
	"github.com/aepb/aepb-gateway/translators/uacp"
)

// consentFile has the table of what becomes of answers, between its two marks.
const consentFile = "../../translators/README.md"

// consentBegin and consentEnd are around it.
const (
	consentBegin = "<!-- consent: made by TestConsent_Matrix, with " + matrixEnv + " set -->"
	consentEnd   = "<!-- consent: end -->"
)

// response is a way to answer the question for a name.
type response struct {
	name    string
	accepts bool // the caller accepts, with values that fit
	answer  canonical.Answer
	failure bool // a client's error in place of an answer
	twice   bool // and the same again
	key     string
	empty   bool   // no answer at all
	other   bool   // by another caller
	words   string // a message of these words, in place of an answer
	data    string // a message with this data, in place of an answer
	do      string // what the agent is told first; empty: to ask for a name
	args    string // the same as arguments of its tool, for which there are no words
}

func responses() []response {
	yes := func(value string) canonical.Answer {
		return canonical.Answer{Action: canonical.Accept, Value: json.RawMessage(value)}
	}
	good := yes(`{"name":"Ada"}`)
	return []response{
		{name: "accept", accepts: true, answer: good},
		{name: "accept, twice", accepts: true, answer: good, twice: true},
		{name: "accept, more values", accepts: true, answer: yes(`{"name":"Ada","age":1}`)},
		{name: "accept, another type", answer: yes(`{"name":7}`)},
		{name: "accept, no values", answer: canonical.Answer{Action: canonical.Accept}},
		{name: "accept, another key", answer: good, key: "other"},
		{name: "decline", answer: canonical.Answer{Action: canonical.Decline}},
		{name: "cancel", answer: canonical.Answer{Action: canonical.Cancel}},
		{name: "error", failure: true},
		{name: "nothing", empty: true},
		{name: "accept, another caller", accepts: true, answer: good, other: true}, // and then the caller
	}
}

// does is what the agent is told first.
func (r response) does() string { return cmp.Or(r.do, doAsk) }

// to is the answer for a question.
func (r response) to(in canonical.Input) canonical.Answer {
	a := r.answer
	if a.Key = in.Key; r.key != "" {
		a.Key = r.key
	}
	if strings.Contains(string(in.Schema), `"reply"`) { // what was asked in free text
		a.Value = bytes.Replace(a.Value, []byte(`"name"`), []byte(`"reply"`), 1)
	}
	return a
}

// note keeps what the agent is told in answer to its question.
func (p *part) note(said ...string) {
	if len(p.call.Evidence) == 0 {
		return
	}
	token, _, err := ect.ParseUnverified(p.call.Evidence[0])
	if err != nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.cast.answers[token.Workflow] = append(p.cast.answers[token.Workflow], said...)
}

// answersSaid are the answers of a message in short. "accept" is what the agent is
// told as such, and words that are no action are words.
func answersSaid(body *canonical.Invoke) []string {
	var said []string
	for _, a := range body.Answers {
		one := []string{string(a.Action), sorted(a.Value)}
		for _, part := range a.Parts {
			one = append(one, part.Text)
		}
		said = append(said, strings.TrimSpace(strings.Join(one, " ")))
	}
	if said != nil {
		return said
	}
	for _, part := range body.Turn.Parts {
		if part.Kind == canonical.KindData {
			said = append(said, "accept "+sorted(part.Data))
		} else {
			said = append(said, "words: "+part.Text)
		}
	}
	return said
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

// responds answers a question in one way, and says what the caller hears in the end;
// other is the caller who answers in its place where the response wants that.
func (c *caller) responds(ctx context.Context, r response, other *caller, say func(*hearing) string) string {
	do, m := r.does(), c.opens(r)
	asked := false
	h := c.ask(ctx, m, false, func(ask *canonical.Ask) {
		asked = true
		reply := &canonical.Reply{ID: ask.ID, Answer: r.to(ask.Input)}
		if r.failure {
			reply = &canonical.Reply{ID: ask.ID, Failure: &canonical.Error{Code: canonical.CodeOther, Message: "not me"}}
		}
		c.ask(ctx, c.request(canonical.OpAnswer, reply), false, nil)
		if r.twice {
			c.ask(ctx, c.request(canonical.OpAnswer, reply), false, nil)
		}
	})
	if asked {
		return say(h)
	}
	next := c.onward(do, h, r.to)
	if task := h.task(); next == nil || c.words() == mcp.Binding && task != nil && len(task.Inputs) == 0 { // MCP has no answer to a task that names no question
		return notAsked(h, say)
	}
	if r.empty || r.words != "" || r.data != "" {
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
	again.Correlation.WireID, again.Correlation.MessageID = own(ect.NewID()), string(ect.NewID())
	if r.other {
		return say(other.ask(ctx, next, false, nil)) + ", then " + say(c.ask(ctx, &again, false, nil)) + " for the caller"
	}
	first := c.ask(ctx, next, false, nil)
	if r.twice {
		return say(first) + ", then " + say(c.ask(ctx, &again, false, nil))
	}
	return say(first)
}

// asking is the message that lets the agent ask.
func (c *caller) asking(do string) *canonical.Message {
	m := c.request(canonical.OpInvoke, c.invoke(do))
	if c.words() == mcp.Binding {
		m.Correlation.Progress = json.RawMessage(`"p"`)
	}
	return m
}

// inputRequired is what a caller hears who is told that its agent waits for input, and
// cannot give it.
const inputRequired = "hears that input is required"

// notAsked is what a caller hears that no question reaches.
func notAsked(h *hearing, say func(*hearing) string) string {
	if strings.Contains(h.text(), "nobody can be asked") {
		return "not asked"
	}
	switch h.state() {
	case canonical.StateCompleted:
		return say(h)
	case canonical.StateInputRequired:
		return inputRequired
	default:
		return "not asked: " + say(h)
	}
}

var greeted = regexp.MustCompile(`Hello \w*`)

// said is what was heard in the end, in short.
func (h *hearing) said() string {
	pending := false
	if r, ok := h.last().(*canonical.Result); ok {
		pending = r.Pending != nil
	}
	switch refused, text := h.refusal(), h.text(); {
	case strings.Contains(text, "Hello"):
		return strings.TrimSpace(greeted.FindString(text))
	case pending, h.state() == canonical.StateInputRequired:
		return "asked again"
	case refused != nil:
		return "refused"
	case h.failure != nil:
		return "broken: " + h.failure.Error()
	default:
		return string(h.state())
	}
}

// of reports whether a caller can give this response: who answers a request by
// its id can neither name another key nor answer nothing, and only they can answer
// with an error.
func (r response) of(n *nature) bool {
	within := n.asks == translators.AskStream
	switch {
	case r.failure:
		return within
	case r.words != "", r.data != "":
		return n.asks == translators.AskTask
	case r.other:
		return !within && n.binding != slim.Binding // who speaks on a node is one caller
	case r.key != "":
		return !within && n.words != uacp.Binding // where one answer is a plain text
	default:
		return !within || !r.empty
	}
}

// relayed reports whether messages are passed on as they are.
func relayed(from, to *nature) bool {
	return from.binding == to.binding && from.words == a2a.Binding
}

// ends reports whether the agent will hear that its work was canceled, which is told
// in the background: where its question ended without an answer, and its caller is
// gone.
func ends(from, to *nature, heard string) bool {
	return from.asks == translators.AskStream && to.asks == translators.AskTask && heard == "refused"
}

// TestConsent_Matrix: what becomes of each way to answer, from callers of every
// protocol and revision to agents of each. "Accept" reaches an agent only from a caller
// that accepted with values that fit the form. The table in the README of translators
// is what was seen.
func TestConsent_Matrix(t *testing.T) {
	t.Parallel()
	tr := everybody(t)
	others := newTroupeOf(t, tr.stage, tr.stage.svid(t, "/another"), nil, speakToy)
	var callers, agents []*nature
	for _, s := range tr.sides() {
		n := natureOf(s, tr.list[s.binding].form)
		if n.toy || n.bare || n.asks == translators.AskNone {
			continue
		}
		callers = append(callers, n)
		if tr.hires(t, s) {
			agents = append(agents, n)
		}
	}
	var mu sync.Mutex
	seen := map[string]map[string][]string{} // by way of asking and caller, then by response
	var group errgroup.Group
	group.SetLimit(atOnce)
	for _, to := range agents {
		for _, from := range callers {
			if from.side == to.side || relayed(from, to) {
				continue
			}
			for _, r := range responses() {
				if !r.of(from) {
					continue
				}
				group.Go(func() error {
					c := tr.caller(t, from.side, to.side, player)
					ctx, cancel := context.WithTimeout(t.Context(), patienceOfPlays)
					defer cancel()
					if from.binding == slim.Binding {
						soon(ctx, func() bool { return c.exposed(ctx) })
					}
					other := others.caller(t, from.side, to.side, player)
					heard := c.responds(ctx, r, other, (*hearing).said)
					if ends(from, to, heard) {
						soonIn(t.Context(), background, func() bool { return len(tr.told(c.wid)) > 0 })
					}
					told := tr.told(c.wid)
					if foreign := tr.told(other.wid); foreign != nil {
						t.Errorf("%s to %s: of another caller the agent is told %q", from.name, to.name, foreign)
					}
					if strings.HasPrefix(heard, "broken") || errors.Is(ctx.Err(), context.DeadlineExceeded) {
						t.Errorf("%s to %s: %s does not end: %s", from.name, to.name, r.name, heard)
					}
					for _, one := range told {
						if word, _, _ := strings.Cut(one, " "); word == string(canonical.Accept) && !r.accepts {
							t.Errorf("%s to %s: %s is told as %q", from.name, to.name, r.name, one)
						}
					}
					mu.Lock()
					defer mu.Unlock()
					key := askedHow(to) + "\x00" + from.name
					if seen[key] == nil {
						seen[key] = map[string][]string{}
					}
					cell := cmp.Or(strings.Join(told, ", "), "–") + " → " + heard
					if !slices.Contains(seen[key][r.name], cell) {
						seen[key][r.name] = append(seen[key][r.name], cell)
					}
					return nil
				})
			}
		}
	}
	must(t, group.Wait())
	holdConsent(t, seen, tr.kindsOfQuestions(t, others))
}

// told is what the agents were told in a workflow.
func (tr *troupe) told(wid string) []string {
	tr.agents.mu.Lock()
	defer tr.agents.mu.Unlock()
	return slices.Compact(slices.Clone(tr.agents.answers[wid]))
}

// askedHow is how agents of a side ask.
func askedHow(n *nature) string {
	switch {
	case n.asks == translators.AskStream && n.binding == ainp.Binding:
		return "an AINP agent, on its socket"
	case n.asks == translators.AskStream:
		return "an MCP server until 2025-11-25, by a request"
	case n.asks == translators.AskReply:
		return "an MCP server of 2026-07-28, in a result"
	default:
		return "an agent with tasks (A2A, µACP, AINP), by a task that waits for input"
	}
}

func holdConsent(t *testing.T, seen map[string]map[string][]string, more string) {
	t.Helper()
	var b strings.Builder
	keys := make([]string, 0, len(seen))
	for key := range seen {
		keys = append(keys, key)
	}
	slices.Sort(keys)
	ways := map[string][]string{} // rows by way of asking
	for _, key := range keys {
		way, from, _ := strings.Cut(key, "\x00")
		row := []string{from}
		for _, r := range responses() {
			cells := seen[key][r.name]
			slices.Sort(cells)
			row = append(row, strings.ReplaceAll(strings.Join(cells, "; "), "|", "/"))
		}
		ways[way] = append(ways[way], "| "+strings.Join(row, " | ")+" |")
	}
	var names []string
	for way := range ways {
		names = append(names, way)
	}
	slices.Sort(names)
	for _, way := range names {
		head := []string{"caller"}
		for _, r := range responses() {
			head = append(head, r.name)
		}
		b.WriteString("\nAsked by " + way + ":\n\n| " + strings.Join(head, " | ") + " |\n|" + strings.Repeat("---|", len(head)) + "\n" +
			strings.Join(ways[way], "\n") + "\n")
	}
	text, err := os.ReadFile(consentFile)
	must(t, err)
	before, rest, ok := strings.Cut(string(text), consentBegin)
	old, after, ends := strings.Cut(rest, consentEnd)
	if !ok || !ends {
		t.Fatalf("%s does not have the marks of the table", consentFile)
	}
	now := "\n" + b.String() + more + "\n"
	if os.Getenv(matrixEnv) != "" {
		must(t, os.WriteFile(consentFile, []byte(before+consentBegin+now+consentEnd+after), 0o600))
		return
	}
	if old != now {
		t.Errorf("%s does not say what was seen: set %s, run again and read the diff. Seen:\n%s", consentFile, matrixEnv, now)
	}
}
