package gatewaytest

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
	responses []Response
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
	refusals := []Response{
		{Name: "decline", Answer: answer(canonical.Decline, "")},
		{Name: "cancel", Answer: answer(canonical.Cancel, "")},
		{Name: "error", Failure: true},
		{Name: "nothing", Empty: true},
	}
	ask := func(do string, list ...Response) []Response {
		for i := range list {
			list[i].do = do
		}
		return list
	}
	return []kind{
		{"A visit to a URL", all, []string{byRequest, inResult, byTask}, ask(doAskURL, append([]Response{
			{Name: "accept", Accepts: true, Answer: answer(canonical.Accept, "")},
			{Name: "accept, with values", Answer: answer(canonical.Accept, `{"name":"Ada"}`)},
			{Name: "text: done", Accepts: true, words: "done"},
			{Name: "another text", words: "Ada"},
			{Name: "data: {}", data: `{}`},
			{Name: "accept, another caller", Accepts: true, Answer: answer(canonical.Accept, ""), Other: true},
		}, refusals...)...)},
		{"A form without values", all, []string{byRequest, inResult, byTask, bySocket}, ask(doAskEmpty, append([]Response{
			{Name: "accept", Accepts: true, Answer: answer(canonical.Accept, `{}`)},
			{Name: "accept, with values", Answer: answer(canonical.Accept, `{"decline":true}`)},
			{Name: "text: accept", Accepts: true, words: "accept"},
			{Name: "another text", words: "Ada"},
			{Name: "data: {}", data: `{}`},
			{Name: "data: confirm false", data: `{"confirm":false}`},
			{Name: "data: decline true", data: `{"decline":true}`},
			{Name: "data: inputResponses", data: `{"inputResponses":{"confirm":{"action":"decline"}}}`},
		}, refusals...)...)},
		{"A form of which no value is required", all, []string{byRequest, inResult, byTask, bySocket}, ask(doAskNote, append([]Response{
			{Name: "accept", Accepts: true, Answer: answer(canonical.Accept, `{}`)},
			{Name: "accept, a value", Accepts: true, Answer: answer(canonical.Accept, `{"note":"now"}`)},
			{Name: "accept, decline true", Answer: answer(canonical.Accept, `{"note":"now","decline":true}`)},
			{Name: "text: no", words: "no"},
			{Name: "data: a value", data: `{"note":"never"}`},
			{Name: "data: force false", data: `{"force":false}`},
		}, refusals...)...)},
		{"A form that requires yes or no", all, []string{byRequest, inResult, byTask, bySocket}, ask(doAskFlag, append([]Response{
			{Name: "accept, true", Accepts: true, Answer: answer(canonical.Accept, `{"sure":true}`)},
			{Name: "accept, false", Accepts: true, Answer: answer(canonical.Accept, `{"sure":false}`)},
			{Name: "accept, no values", Answer: answer(canonical.Accept, `{}`)},
			{Name: "text: no", words: "no"},
			{Name: "data: sure false", Accepts: true, data: `{"sure":false}`},
			{Name: "data: decline true", data: `{"decline":true}`},
		}, refusals...)...)},
		{"A message of the caller's model (sampling)", all, []string{byRequest, inResult}, ask(doAskModel,
			Response{Name: "a message", Accepts: true, Answer: answer("", message)},
			Response{Name: "another result", Answer: answer("", roots)},
			Response{Name: "accept, with a message", Answer: answer(canonical.Accept, message)},
			Response{Name: "decline", Answer: answer(canonical.Decline, "")},
			Response{Name: "error", Failure: true},
			Response{Name: "nothing", Empty: true},
		)},
		{"The caller's roots", all, []string{byRequest, inResult}, ask(doAskRoots,
			Response{Name: "roots", Accepts: true, Answer: answer("", roots)},
			Response{Name: "another result", Answer: answer("", message)},
			Response{Name: "decline", Answer: answer(canonical.Decline, "")},
			Response{Name: "error", Failure: true},
			Response{Name: "nothing", Empty: true},
		)},
		{"Questions to a caller who did not say that it can be asked, all of them accepted", nil, []string{byRequest, inResult}, []Response{
			{Name: "a name", do: doInsist + " " + DoAsk, Accepts: true, Answer: answer(canonical.Accept, `{"name":"Ada"}`)},
			{Name: "a visit", do: doInsist + " " + doAskURL, Accepts: true, Answer: answer(canonical.Accept, "")},
			{Name: "a message", do: doInsist + " " + doAskModel, Accepts: true, Answer: answer("", message)},
			{Name: "roots", do: doInsist + " " + doAskRoots, Accepts: true, Answer: answer("", roots)},
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
func shortWay(n *Traits) string {
	switch {
	case n.Name == bySocket:
		return "on a socket of AINP"
	case n.Asks == translators.AskStream:
		return "by a request of MCP"
	case n.Asks == translators.AskReply:
		return "in a result of MCP"
	default:
		return "by a task of A2A"
	}
}

// why is what was heard in the end, with the code of a refusal.
func (h *Received) why() string {
	outcome := h.Outcome()
	if e := h.Refusal(); outcome == "refused" {
		outcome += " (" + string(e.Code) + ")"
	}
	switch text := h.Text(); {
	case outcome == string(canonical.StateCompleted) && strings.Contains(text, "nobody can be asked"):
		return "not asked"
	case outcome == string(canonical.StateCompleted) && strings.Contains(text, string(canonical.StateInputRequired)):
		return inputRequired
	}
	return outcome
}

// oneOfEach are the callers of every protocol and revision, in one form each, and
// those of other forms that are asked in another way.
func (tr *Simulator) oneOfEach() []*Traits {
	var list []*Traits
	for _, s := range tr.Sides() {
		n := TraitsOf(s, tr.List[s.Binding].Codec)
		if n.Toy || s.Form != "" && slices.ContainsFunc(list, func(m *Traits) bool {
			return m.Binding == n.Binding && m.version == n.version && m.Asks == n.Asks
		}) {
			continue
		}
		list = append(list, n)
	}
	return list
}

// KindsOfQuestions tries every kind of question with callers of every protocol and
// revision, and makes the tables of what was seen.
func (tr *Simulator) KindsOfQuestions(t *testing.T, others *Simulator) string {
	t.Helper()
	callers := tr.oneOfEach()
	var out strings.Builder
	for _, k := range kinds() {
		var seen cells
		var group errgroup.Group
		group.SetLimit(AtOnce)
		var columns []string
		for _, r := range k.responses {
			columns = append(columns, r.Name)
		}
		for _, name := range k.agents {
			to := tr.agentSide(name)
			for _, from := range callers {
				if from.Side == to.Side || Relayed(from, to) {
					continue
				}
				for i, r := range k.responses {
					if from.Asks == translators.AskNone && i > 0 && k.can != nil || from.Asks != translators.AskNone && !r.Of(from) {
						continue
					}
					group.Go(func() error {
						seen.put(shortWay(to), from.Name, r.Name, tr.responded(t, others, Player, k.can, from, to, r))
						return nil
					})
				}
			}
		}
		Must(t, group.Wait())
		out.WriteString(seen.table(k.name, columns))
	}
	return out.String() + tr.argumentsAsked(t, others, callers) + tr.silences(t, callers)
}

func (tr *Simulator) agentSide(name string) *Traits {
	sides := tr.Sides()
	s := sides[slices.IndexFunc(sides, func(s Side) bool { return s.Name == name })]
	return TraitsOf(s, tr.List[s.Binding].Codec)
}

// responded is one cell: what the agent is told, and what the caller hears.
func (tr *Simulator) responded(t *testing.T, others *Simulator, agent string, can []canonical.Mode, from, to *Traits, r Response) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), PatienceOfPlays)
	defer cancel()
	c := tr.callerWho(ctx, t, can, from, to, agent)
	other := others.Caller(t, from.Side, to.Side, agent)
	other.ep.AnswerModes = can
	outcome := c.Responds(ctx, r, other, (*Received).why)
	if tellsInBackground(from, to, r, outcome) {
		SoonIn(t.Context(), Background, func() bool { return len(tr.AnswersOf(c.Wid)) > 0 })
	}
	if foreign := tr.AnswersOf(other.Wid); foreign != nil {
		t.Errorf("%s to %s: of another caller the agent is told %q", from.Name, to.Name, foreign)
	}
	return tr.cell(ctx, t, c, from, to, r, outcome)
}

// tellsInBackground reports whether the agent hears that its work was canceled after its
// caller has heard of the refusal: its question did not reach the caller, or had no
// answer. What an agent hears of callers without evidence is not known here.
func tellsInBackground(from, to *Traits, r Response, outcome string) bool {
	refused, unasked := strings.CutPrefix(outcome, "not asked: ")
	switch {
	case !strings.HasPrefix(refused, "refused") || from.Bare:
		return false
	case unasked:
		return to.Asks == translators.AskStream && slices.Contains(asking(), strings.TrimPrefix(r.do, doInsist+" "))
	default:
		return Ends(from, to, "refused")
	}
}

// asking is what agents are told to ask.
func asking() []string { return append(sortedKeys(kindsAsked), DoAsk) }

// cell holds what was seen against what must never be: an end that does not come, a
// fault of the gateway, and an answer that was not given.
func (tr *Simulator) cell(ctx context.Context, t *testing.T, c *Caller, from, to *Traits, r Response, outcome string) string {
	t.Helper()
	answers := tr.AnswersOf(c.Wid)
	if strings.Contains(outcome, "broken") || strings.Contains(outcome, "(internal)") && !WithinAINP(from, to) || errors.Is(ctx.Err(), context.DeadlineExceeded) {
		t.Errorf("%s to %s: %s %s: %s", from.Name, to.Name, r.do, r.Name, outcome)
	}
	for _, one := range answers {
		if affirms(one) && !r.Accepts {
			t.Errorf("%s to %s: %s %s is told as %q", from.Name, to.Name, r.do, r.Name, one)
		}
	}
	return cmp.Or(strings.Join(answers, ", "), "–") + " → " + outcome
}

// affirms reports whether an agent is told that its question was answered: with
// "accept", words of the user, the result of a request, or the arguments of a call.
func affirms(answer string) bool {
	word, _, _ := strings.Cut(answer, " ")
	return word == string(canonical.Accept) || word == "words:" || word == "called" || strings.HasPrefix(answer, "{")
}

// callerWho is a caller who says what it can be asked.
func (tr *Simulator) callerWho(ctx context.Context, t *testing.T, can []canonical.Mode, from, to *Traits, agent string) *Caller {
	t.Helper()
	c := tr.Caller(t, from.Side, to.Side, agent)
	c.ep.AnswerModes = can
	if from.Binding == slim.Binding {
		Soon(ctx, func() bool { return c.Exposed(ctx) })
	}
	return c
}

// answerWait is how long questions wait where they are not answered.
const answerWait = 300 * time.Millisecond

// silences is the table of questions that are not answered: by callers who wait, by
// callers who leave, and by callers who answer when the time is over.
func (tr *Simulator) silences(t *testing.T, callers []*Traits) string {
	t.Helper()
	var seen cells
	columns := []Response{{Name: "silence"}, {Name: "leaves"}, {Name: "accept, too late", Accepts: true}}
	ends := func(from *Traits) bool { return from.Form == ainp.FormSocket } // its connection is its work's end
	for _, from := range callers {
		if ends(from) { // while questions wait for long, or their end could come before the caller's
			tr.silent(t, []*Traits{from}, &seen, columns[1])
		}
	}
	settings := tr.Stage.Conf.Pipeline()
	settings.AnswerWait = answerWait
	tr.Stage.Gateway().Apply(settings)
	for _, from := range callers {
		if ends(from) {
			tr.silent(t, []*Traits{from}, &seen, columns[0], columns[2])
		}
	}
	tr.silent(t, slices.DeleteFunc(slices.Clone(callers), ends), &seen, columns...)
	return seen.table("No answer in time (here "+answerWait.String()+")", []string{columns[0].Name, columns[1].Name, columns[2].Name})
}

// silent fills columns of that table.
func (tr *Simulator) silent(t *testing.T, callers []*Traits, seen *cells, columns ...Response) {
	t.Helper()
	var group errgroup.Group
	group.SetLimit(2 * AtOnce)
	for _, name := range []string{byRequest, inResult, byTask, bySocket} {
		to := tr.agentSide(name)
		for _, from := range callers {
			if from.Side == to.Side || Relayed(from, to) || from.Asks == translators.AskNone {
				continue
			}
			for _, r := range columns {
				if within := from.Asks == translators.AskStream; within && r.Accepts || !within && r.Name == "leaves" {
					continue // who is asked by a request hears its end; who is not, has nothing to leave
				}
				group.Go(func() error {
					ctx, cancel := context.WithTimeout(t.Context(), PatienceOfPlays)
					defer cancel()
					c := tr.callerWho(ctx, t, []canonical.Mode{canonical.ModeForm}, from, to, Player)
					outcome := c.staysSilent(ctx, r, to)
					seen.put(shortWay(to), from.Name, r.Name, tr.cell(ctx, t, c, from, to, r, outcome))
					return nil
				})
			}
		}
	}
	Must(t, group.Wait())
}

// staysSilent does not answer a question while there is time, and says what the
// caller hears then.
func (c *Caller) staysSilent(ctx context.Context, r Response, to *Traits) string {
	waits, leave := context.WithCancel(ctx)
	defer leave()
	questioned := false
	h := c.Ask(waits, c.asking(DoAsk), false, func(*canonical.Ask) {
		if questioned = true; r.Name == "leaves" {
			leave()
		}
	})
	answered := func() bool { return len(c.Simulator.AnswersOf(c.Wid)) > 0 }
	limit := 3 * answerWait // where the question is kept as long as its task, nothing is told
	if to.Asks == translators.AskStream || to.Asks == translators.AskTask && c.asks() == translators.AskStream && (r.Name != "leaves" || c.side.Name == bySocket) {
		limit = Background
	}
	if questioned {
		SoonIn(ctx, limit, answered)
		if waits.Err() != nil {
			return "gone"
		}
		return h.why()
	}
	SoonIn(ctx, limit, answered)
	if r.Accepts && !answered() {
		return c.agrees(ctx, h)
	}
	var now string
	SoonIn(ctx, Background, func() bool { // the agent hears that the time is over before it is on record
		now = c.looks(ctx, h)
		return !answered() || now != "asked again" && now != string(canonical.StateWorking)
	})
	if r.Accepts {
		return c.agrees(ctx, h)
	}
	return now
}

// agrees says yes to what was asked, late, and says what the caller hears then. What was
// heard may hold no question, where the agent did not come to ask in time.
func (c *Caller) agrees(ctx context.Context, question *Received) string {
	next := c.onward(DoAsk, question, accepts)
	if next == nil {
		return notAsked(question, (*Received).why)
	}
	return c.Ask(ctx, next, false, nil).why()
}

// looks is how a question stands that was heard: as its task, or by the request again
// without an answer.
func (c *Caller) looks(ctx context.Context, question *Received) string {
	if task := question.Task(); task != nil {
		return c.About(ctx, canonical.OpTaskGet, task.ID).why()
	}
	again := c.onward(DoAsk, question, accepts)
	if again == nil {
		return notAsked(question, (*Received).why)
	}
	again.Body.(*canonical.Invoke).Answers = nil
	return c.Ask(ctx, again, false, nil).why()
}
