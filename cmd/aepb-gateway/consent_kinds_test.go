package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/aepb/aepb-gateway/translators"
	"github.com/aepb/aepb-gateway/translators/ainp"
	"github.com/aepb/aepb-gateway/translators/canonical"
	"github.com/aepb/aepb-gateway/translators/mcp"
	"github.com/aepb/aepb-gateway/translators/slim"
)

// What agents ask besides a name, by the first word that they are told; after
// doInsist they ask also callers who did not say that they can be asked.
const (
	doInsist   = "insist"
	doAskURL   = "askurl"   // to visit a URL
	doAskEmpty = "askempty" // for a form without values
	doAskNote  = "asknote"  // for a form of which no value is required
	doAskFlag  = "askflag"  // for a form that requires yes or no
	doAskModel = "askmodel" // for a message of the caller's model
	doAskRoots = "askroots" // for the caller's roots
)

// kindsAsked are these questions.
var kindsAsked = map[string]canonical.Input{
	doAskURL:   {Key: "visit", Mode: canonical.ModeURL, Prompt: textPart("sign in"), URL: "https://sign.example/in"},
	doAskEmpty: {Key: "confirm", Mode: canonical.ModeForm, Prompt: textPart("go on?"), Schema: json.RawMessage(`{"type":"object","properties":{}}`)},
	doAskNote:  {Key: "note", Mode: canonical.ModeForm, Prompt: textPart("delete all?"), Schema: json.RawMessage(`{"type":"object","properties":{"note":{"type":"string"},"force":{"type":"boolean"}}}`)},
	doAskFlag:  {Key: "flag", Mode: canonical.ModeForm, Prompt: textPart("sure?"), Schema: json.RawMessage(`{"type":"object","properties":{"sure":{"type":"boolean"}},"required":["sure"]}`)},
	doAskModel: {Key: "model", Mode: canonical.ModeNative, Native: &canonical.Native{
		Method: "sampling/createMessage",
		Params: json.RawMessage(`{"messages":[{"role":"user","content":{"type":"text","text":"what is your name?"}}],"maxTokens":10}`),
	}},
	doAskRoots: {Key: "roots", Mode: canonical.ModeNative, Native: &canonical.Native{Method: "roots/list"}},
}

// kind is a kind of question: who asks it, and how it is answered.
type kind struct {
	name      string
	can       []canonical.Mode // what its callers say they can be asked
	agents    []string         // sides, one for each way to ask
	responses []response
}

// Sides of agents.
const (
	byRequest = "mcp@" + mcp.Legacy
	inResult  = "mcp@" + mcp.Modern
	byTask    = "a2a@1.0"
	bySocket  = "ainp+websocket"
)

func kinds() []kind {
	all := []canonical.Mode{canonical.ModeForm, canonical.ModeURL, canonical.ModeSampling, canonical.ModeRoots}
	answer := func(action canonical.Action, value string) canonical.Answer {
		a := canonical.Answer{Action: action}
		if value != "" {
			a.Value = json.RawMessage(value)
		}
		return a
	}
	message, roots := `{"role":"assistant","content":{"type":"text","text":"Ada"},"model":"m"}`, `{"roots":[{"uri":"file:///ada","name":"Ada"}]}`
	refusals := []response{
		{name: "decline", answer: answer(canonical.Decline, "")},
		{name: "cancel", answer: answer(canonical.Cancel, "")},
		{name: "error", failure: true},
		{name: "nothing", empty: true},
	}
	ask := func(do string, list ...response) []response {
		for i := range list {
			list[i].do = do
		}
		return list
	}
	return []kind{
		{"A visit to a URL", all, []string{byRequest, inResult, byTask}, ask(doAskURL, append([]response{
			{name: "accept", accepts: true, answer: answer(canonical.Accept, "")},
			{name: "accept, with values", answer: answer(canonical.Accept, `{"name":"Ada"}`)},
			{name: "text: done", accepts: true, words: "done"},
			{name: "another text", words: "Ada"},
			{name: "data: {}", data: `{}`},
			{name: "accept, another caller", accepts: true, answer: answer(canonical.Accept, ""), other: true},
		}, refusals...)...)},
		{"A form without values", all, []string{byRequest, inResult, byTask, bySocket}, ask(doAskEmpty, append([]response{
			{name: "accept", accepts: true, answer: answer(canonical.Accept, `{}`)},
			{name: "accept, with values", answer: answer(canonical.Accept, `{"decline":true}`)},
			{name: "text: accept", accepts: true, words: "accept"},
			{name: "another text", words: "Ada"},
			{name: "data: {}", data: `{}`},
			{name: "data: confirm false", data: `{"confirm":false}`},
			{name: "data: decline true", data: `{"decline":true}`},
			{name: "data: inputResponses", data: `{"inputResponses":{"confirm":{"action":"decline"}}}`},
		}, refusals...)...)},
		{"A form of which no value is required", all, []string{byRequest, inResult, byTask, bySocket}, ask(doAskNote, append([]response{
			{name: "accept", accepts: true, answer: answer(canonical.Accept, `{}`)},
			{name: "accept, a value", accepts: true, answer: answer(canonical.Accept, `{"note":"now"}`)},
			{name: "accept, decline true", answer: answer(canonical.Accept, `{"note":"now","decline":true}`)},
			{name: "text: no", words: "no"},
			{name: "data: a value", data: `{"note":"never"}`},
			{name: "data: force false", data: `{"force":false}`},
		}, refusals...)...)},
		{"A form that requires yes or no", all, []string{byRequest, inResult, byTask, bySocket}, ask(doAskFlag, append([]response{
			{name: "accept, true", accepts: true, answer: answer(canonical.Accept, `{"sure":true}`)},
			{name: "accept, false", accepts: true, answer: answer(canonical.Accept, `{"sure":false}`)},
			{name: "accept, no values", answer: answer(canonical.Accept, `{}`)},
			{name: "text: no", words: "no"},
			{name: "data: sure false", accepts: true, data: `{"sure":false}`},
			{name: "data: decline true", data: `{"decline":true}`},
		}, refusals...)...)},
		{"A message of the caller's model (sampling)", all, []string{byRequest, inResult}, ask(doAskModel,
			response{name: "a message", accepts: true, answer: answer("", message)},
			response{name: "another result", answer: answer("", roots)},
			response{name: "accept, with a message", answer: answer(canonical.Accept, message)},
			response{name: "decline", answer: answer(canonical.Decline, "")},
			response{name: "error", failure: true},
			response{name: "nothing", empty: true},
		)},
		{"The caller's roots", all, []string{byRequest, inResult}, ask(doAskRoots,
			response{name: "roots", accepts: true, answer: answer("", roots)},
			response{name: "another result", answer: answer("", message)},
			response{name: "decline", answer: answer(canonical.Decline, "")},
			response{name: "error", failure: true},
			response{name: "nothing", empty: true},
		)},
		{"Questions to a caller who did not say that it can be asked, all of them accepted", nil, []string{byRequest, inResult}, []response{
			{name: "a name", do: doInsist + " " + doAsk, accepts: true, answer: answer(canonical.Accept, `{"name":"Ada"}`)},
			{name: "a visit", do: doInsist + " " + doAskURL, accepts: true, answer: answer(canonical.Accept, "")},
			{name: "a message", do: doInsist + " " + doAskModel, accepts: true, answer: answer("", message)},
			{name: "roots", do: doInsist + " " + doAskRoots, accepts: true, answer: answer("", roots)},
		}},
	}
}

// cells is what was seen of one kind of question: the way of asking, the caller, the
// response.
type cells struct {
	mu   sync.Mutex
	seen map[string]map[string]map[string]string
}

func (c *cells) put(way, caller, response, cell string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.seen == nil {
		c.seen = map[string]map[string]map[string]string{}
	}
	if c.seen[way] == nil {
		c.seen[way] = map[string]map[string]string{}
	}
	if c.seen[way][caller] == nil {
		c.seen[way][caller] = map[string]string{}
	}
	c.seen[way][caller][response] = cell
}

// table has one row for all callers and ways of asking that do not differ.
func (c *cells) table(name string, columns []string) string {
	type row struct{ ways, callers, cells string }
	var rows []row
	for _, way := range sortedKeys(c.seen) {
		for _, caller := range sortedKeys(c.seen[way]) {
			var list []string
			for _, column := range columns {
				list = append(list, strings.ReplaceAll(c.seen[way][caller][column], "|", "/"))
			}
			text := strings.Join(list, " | ")
			if at := slices.IndexFunc(rows, func(r row) bool { return r.ways == way && r.cells == text }); at >= 0 {
				rows[at].callers += ", " + caller
			} else {
				rows = append(rows, row{way, caller, text})
			}
		}
	}
	var merged []row
	for _, r := range rows {
		if at := slices.IndexFunc(merged, func(m row) bool { return m.callers == r.callers && m.cells == r.cells }); at >= 0 {
			merged[at].ways += "; " + r.ways
		} else {
			merged = append(merged, r)
		}
	}
	var b strings.Builder
	b.WriteString("\n" + name + ":\n\n| asked | caller | " + strings.Join(columns, " | ") + " |\n|" + strings.Repeat("---|", len(columns)+2) + "\n")
	for _, r := range merged {
		b.WriteString("| " + r.ways + " | " + r.callers + " | " + r.cells + " |\n")
	}
	return b.String()
}

func sortedKeys[T any](m map[string]T) []string {
	var list []string
	for key := range m {
		list = append(list, key)
	}
	slices.Sort(list)
	return list
}

// shortWay is how agents of a side ask, in short.
func shortWay(n *nature) string {
	switch {
	case n.name == bySocket:
		return "on a socket of AINP"
	case n.asks == translators.AskStream:
		return "by a request of MCP"
	case n.asks == translators.AskReply:
		return "in a result of MCP"
	default:
		return "by a task of A2A"
	}
}

// why is what was heard in the end, with the code of a refusal.
func (h *hearing) why() string {
	said := h.said()
	if e := h.refusal(); said == "refused" {
		said += " (" + string(e.Code) + ")"
	}
	switch text := h.text(); {
	case said == string(canonical.StateCompleted) && strings.Contains(text, "nobody can be asked"):
		return "not asked"
	case said == string(canonical.StateCompleted) && strings.Contains(text, string(canonical.StateInputRequired)):
		return inputRequired
	}
	return said
}

// oneOfEach are the callers of every protocol and revision, in one form each, and
// those of other forms that are asked in another way.
func (tr *troupe) oneOfEach() []*nature {
	var list []*nature
	for _, s := range tr.sides() {
		n := natureOf(s, tr.list[s.binding].form)
		if n.toy || s.form != "" && slices.ContainsFunc(list, func(m *nature) bool {
			return m.binding == n.binding && m.version == n.version && m.asks == n.asks
		}) {
			continue
		}
		list = append(list, n)
	}
	return list
}

// kindsOfQuestions tries every kind of question with callers of every protocol and
// revision, and makes the tables of what was seen.
func (tr *troupe) kindsOfQuestions(t *testing.T, others *troupe) string {
	t.Helper()
	callers := tr.oneOfEach()
	var out strings.Builder
	for _, k := range kinds() {
		var seen cells
		var group errgroup.Group
		group.SetLimit(atOnce)
		var columns []string
		for _, r := range k.responses {
			columns = append(columns, r.name)
		}
		for _, name := range k.agents {
			to := tr.agentSide(name)
			for _, from := range callers {
				if from.side == to.side || relayed(from, to) {
					continue
				}
				for i, r := range k.responses {
					if from.asks == translators.AskNone && i > 0 && k.can != nil || from.asks != translators.AskNone && !r.of(from) {
						continue
					}
					group.Go(func() error {
						seen.put(shortWay(to), from.name, r.name, tr.responded(t, others, player, k.can, from, to, r))
						return nil
					})
				}
			}
		}
		must(t, group.Wait())
		out.WriteString(seen.table(k.name, columns))
	}
	return out.String() + tr.argumentsAsked(t, others, callers) + tr.silences(t, callers)
}

func (tr *troupe) agentSide(name string) *nature {
	sides := tr.sides()
	s := sides[slices.IndexFunc(sides, func(s side) bool { return s.name == name })]
	return natureOf(s, tr.list[s.binding].form)
}

// responded is one cell: what the agent is told, and what the caller hears.
func (tr *troupe) responded(t *testing.T, others *troupe, agent string, can []canonical.Mode, from, to *nature, r response) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patienceOfPlays)
	defer cancel()
	c := tr.callerWho(ctx, t, can, from, to, agent)
	other := others.caller(t, from.side, to.side, agent)
	other.ep.AnswerModes = can
	heard := c.responds(ctx, r, other, (*hearing).why)
	if tellsInBackground(from, to, r, heard) {
		soonIn(t.Context(), background, func() bool { return len(tr.told(c.wid)) > 0 })
	}
	if foreign := tr.told(other.wid); foreign != nil {
		t.Errorf("%s to %s: of another caller the agent is told %q", from.name, to.name, foreign)
	}
	return tr.cell(ctx, t, c, from, to, r, heard)
}

// tellsInBackground reports whether the agent hears that its work was canceled after its
// caller has heard of the refusal: its question did not reach the caller, or had no
// answer. What an agent hears of callers without evidence is not known here.
func tellsInBackground(from, to *nature, r response, heard string) bool {
	refused, unasked := strings.CutPrefix(heard, "not asked: ")
	switch {
	case !strings.HasPrefix(refused, "refused") || from.bare:
		return false
	case unasked:
		return to.asks == translators.AskStream && slices.Contains(asking(), strings.TrimPrefix(r.do, doInsist+" "))
	default:
		return ends(from, to, "refused")
	}
}

// asking is what agents are told to ask.
func asking() []string { return append(sortedKeys(kindsAsked), doAsk) }

// cell holds what was seen against what must never be: an end that does not come, a
// fault of the gateway, and an answer that was not given.
func (tr *troupe) cell(ctx context.Context, t *testing.T, c *caller, from, to *nature, r response, heard string) string {
	t.Helper()
	told := tr.told(c.wid)
	if strings.Contains(heard, "broken") || strings.Contains(heard, "(internal)") && !withinAINP(from, to) || errors.Is(ctx.Err(), context.DeadlineExceeded) {
		t.Errorf("%s to %s: %s %s: %s", from.name, to.name, r.do, r.name, heard)
	}
	for _, one := range told {
		if affirms(one) && !r.accepts {
			t.Errorf("%s to %s: %s %s is told as %q", from.name, to.name, r.do, r.name, one)
		}
	}
	return cmp.Or(strings.Join(told, ", "), "–") + " → " + heard
}

// affirms reports whether an agent is told that its question was answered: with
// "accept", words of the user, the result of a request, or the arguments of a call.
func affirms(told string) bool {
	word, _, _ := strings.Cut(told, " ")
	return word == string(canonical.Accept) || word == "words:" || word == "called" || strings.HasPrefix(told, "{")
}

// callerWho is a caller who says what it can be asked.
func (tr *troupe) callerWho(ctx context.Context, t *testing.T, can []canonical.Mode, from, to *nature, agent string) *caller {
	t.Helper()
	c := tr.caller(t, from.side, to.side, agent)
	c.ep.AnswerModes = can
	if from.binding == slim.Binding {
		soon(ctx, func() bool { return c.exposed(ctx) })
	}
	return c
}

// answerWait is how long questions wait where they are not answered.
const answerWait = 300 * time.Millisecond

// silences is the table of questions that are not answered: by callers who wait, by
// callers who leave, and by callers who answer when the time is over.
func (tr *troupe) silences(t *testing.T, callers []*nature) string {
	t.Helper()
	var seen cells
	columns := []response{{name: "silence"}, {name: "leaves"}, {name: "accept, too late", accepts: true}}
	ends := func(from *nature) bool { return from.form == ainp.FormSocket } // its connection is its work's end
	for _, from := range callers {
		if ends(from) { // while questions wait for long, or their end could come before the caller's
			tr.silent(t, []*nature{from}, &seen, columns[1])
		}
	}
	settings := tr.stage.settings.gatewaySettings()
	settings.AnswerWait = answerWait
	tr.stage.gateway.Apply(settings)
	for _, from := range callers {
		if ends(from) {
			tr.silent(t, []*nature{from}, &seen, columns[0], columns[2])
		}
	}
	tr.silent(t, slices.DeleteFunc(slices.Clone(callers), ends), &seen, columns...)
	return seen.table("No answer in time (here "+answerWait.String()+")", []string{columns[0].name, columns[1].name, columns[2].name})
}

// silent fills columns of that table.
func (tr *troupe) silent(t *testing.T, callers []*nature, seen *cells, columns ...response) {
	t.Helper()
	var group errgroup.Group
	group.SetLimit(2 * atOnce)
	for _, name := range []string{byRequest, inResult, byTask, bySocket} {
		to := tr.agentSide(name)
		for _, from := range callers {
			if from.side == to.side || relayed(from, to) || from.asks == translators.AskNone {
				continue
			}
			for _, r := range columns {
				if within := from.asks == translators.AskStream; within && r.accepts || !within && r.name == "leaves" {
					continue // who is asked by a request hears its end; who is not, has nothing to leave
				}
				group.Go(func() error {
					ctx, cancel := context.WithTimeout(t.Context(), patienceOfPlays)
					defer cancel()
					c := tr.callerWho(ctx, t, []canonical.Mode{canonical.ModeForm}, from, to, player)
					heard := c.staysSilent(ctx, r, to)
					seen.put(shortWay(to), from.name, r.name, tr.cell(ctx, t, c, from, to, r, heard))
					return nil
				})
			}
		}
	}
	must(t, group.Wait())
}

// staysSilent does not answer a question while there is time, and says what the
// caller hears then.
func (c *caller) staysSilent(ctx context.Context, r response, to *nature) string {
	waits, leave := context.WithCancel(ctx)
	defer leave()
	asked := false
	h := c.ask(waits, c.asking(doAsk), false, func(*canonical.Ask) {
		if asked = true; r.name == "leaves" {
			leave()
		}
	})
	told := func() bool { return len(c.troupe.told(c.wid)) > 0 }
	limit := 3 * answerWait // where the question is kept as long as its task, nothing is told
	if to.asks == translators.AskStream || to.asks == translators.AskTask && c.asks() == translators.AskStream && (r.name != "leaves" || c.side.name == bySocket) {
		limit = background
	}
	if asked {
		soonIn(ctx, limit, told)
		if waits.Err() != nil {
			return "gone"
		}
		return h.why()
	}
	soonIn(ctx, limit, told)
	if r.accepts && !told() {
		return c.agrees(ctx, h)
	}
	var now string
	soonIn(ctx, background, func() bool { // the agent hears that the time is over before it is on record
		now = c.looks(ctx, h)
		return !told() || now != "asked again" && now != string(canonical.StateWorking)
	})
	if r.accepts {
		return c.agrees(ctx, h)
	}
	return now
}

// agrees says yes to what was asked, late, and says what the caller hears then. What was
// heard may hold no question, where the agent did not come to ask in time.
func (c *caller) agrees(ctx context.Context, question *hearing) string {
	next := c.onward(doAsk, question, accepts)
	if next == nil {
		return notAsked(question, (*hearing).why)
	}
	return c.ask(ctx, next, false, nil).why()
}

// looks is how a question stands that was heard: as its task, or by the request again
// without an answer.
func (c *caller) looks(ctx context.Context, asked *hearing) string {
	if task := asked.task(); task != nil {
		return c.about(ctx, canonical.OpTaskGet, task.ID).why()
	}
	again := c.onward(doAsk, asked, accepts)
	if again == nil {
		return notAsked(asked, (*hearing).why)
	}
	again.Body.(*canonical.Invoke).Answers = nil
	return c.ask(ctx, again, false, nil).why()
}
