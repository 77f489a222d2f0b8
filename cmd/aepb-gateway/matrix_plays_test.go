package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/translators/a2a"
	"github.com/aepb/aepb-gateway/translators/ainp"
	"github.com/aepb/aepb-gateway/translators/canonical"
	"github.com/aepb/aepb-gateway/translators/mcp"
	"github.com/aepb/aepb-gateway/translators/slim"
	"github.com/aepb/aepb-gateway/translators/uacp"
)

// play is one operation that a caller asks for, and what should come of it.
type play struct {
	name string
	op   canonical.Op
	done string // the outcome, where both sides have all that it takes
	// first is the caller's request by which one sees whether it has words for
	// the operation; nil: every caller has.
	first func(*caller) *canonical.Message
	run   func(*caller, context.Context) string
}

// plays are all of them.
func plays() []play {
	said := func(text string) func(*caller) *canonical.Message {
		return func(c *caller) *canonical.Message { return c.request(canonical.OpInvoke, c.invoke(text)) }
	}
	query := func(op canonical.Op) func(*caller) *canonical.Message {
		return func(c *caller) *canonical.Message { return c.request(op, &canonical.TaskQuery{ID: "t"}) }
	}
	native := func(method string) func(*caller) *canonical.Message {
		return func(c *caller) *canonical.Message {
			return c.native(method)
		}
	}
	return []play{
		{"describe", canonical.OpDescribe, "described", nil, (*caller).describes},
		{"ping", canonical.OpPing, "answered", func(c *caller) *canonical.Message { return c.request(canonical.OpPing, nil) }, (*caller).pings},
		{"invoke", canonical.OpInvoke, "said", said("say hello"), (*caller).says},
		{"invoke.content", canonical.OpInvoke, "text data file", (*caller).content, (*caller).carries},
		{"invoke.link", canonical.OpInvoke, "text link", (*caller).link, (*caller).links},
		{"invoke.typed", canonical.OpInvoke, "added", (*caller).addition, (*caller).adds},
		{"invoke.failed", canonical.OpInvoke, "failed", said(doFail), (*caller).fails},
		{"invoke.error", canonical.OpInvoke, "refused bad_params", said(doRefuse), (*caller).refuses},
		{"invoke.busy", canonical.OpInvoke, "refused rate_limited, again in 7s", said(doPut), (*caller).comesAgain},
		{"dialogue", canonical.OpInvoke, "said 2", said(doCount), (*caller).goesOn},
		{"stream", canonical.OpInvoke, "told", said(doTell), (*caller).streams},
		{"question", canonical.OpAnswer, "answered", said(doAsk), answers(doAsk, accepts, "Hello Ada", "answered")},
		{"question.declined", canonical.OpAnswer, "declined", said(doAsk), answers(doAsk, declines, "Hello nobody", "declined")},
		{"question.several", canonical.OpAnswer, "answered", said(doAskMore), answers(doAskMore, accepts, "Hello Ada of Paris", "answered")},
		{"task.get", canonical.OpTaskGet, "working completed", query(canonical.OpTaskGet), (*caller).gets},
		{"task.list", canonical.OpTaskList, "listed", func(c *caller) *canonical.Message {
			return c.request(canonical.OpTaskList, &canonical.TaskFilter{})
		}, (*caller).lists},
		{"task.list.pages", canonical.OpTaskList, "paged", func(c *caller) *canonical.Message {
			return c.request(canonical.OpTaskList, &canonical.TaskFilter{ContextID: "d", State: canonical.StateWorking, Size: 1})
		}, (*caller).pages},
		{"task.cancel", canonical.OpTaskCancel, "canceled", query(canonical.OpTaskCancel), (*caller).cancels},
		{"task.subscribe", canonical.OpTaskSubscribe, "completed", query(canonical.OpTaskSubscribe), (*caller).subscribes},
		{"task.result", canonical.OpTaskResult, "completed", query(canonical.OpTaskResult), (*caller).results},
		{"task.answer", canonical.OpTaskAnswer, "answered", query(canonical.OpTaskAnswer), (*caller).answersTask},
		{"push", canonical.OpPush, "told", func(c *caller) *canonical.Message {
			return c.request(canonical.OpPush, &canonical.PushRequest{Verb: canonical.VerbCreate, Config: canonical.PushConfig{ID: "p", TaskID: "t", URL: "https://x.example/"}})
		}, (*caller).pushes},
		{"abort", canonical.OpAbort, "stopped", func(c *caller) *canonical.Message {
			return c.request(canonical.OpAbort, &canonical.Abort{Request: json.RawMessage(`"r"`)})
		}, (*caller).aborts},
		{"native.prompts", canonical.OpNative, "played", native("prompts/list"), relays("prompts/list")},
		{"rollback", canonical.OpRollback, "undone", func(c *caller) *canonical.Message {
			return c.request(canonical.OpRollback, &canonical.Signal{Token: "e30.e30.eA"})
		}, (*caller).rollsBack},
		{"decision", canonical.OpDecision, "told", func(c *caller) *canonical.Message {
			return c.request(canonical.OpDecision, &canonical.Signal{Approval: "a", Token: "e30.e30.eA"})
		}, (*caller).decides},
		{"callback", canonical.OpInvoke, "told", func(c *caller) *canonical.Message {
			m := c.request(canonical.OpInvoke, c.invoke("say"))
			m.Callback = decidedAt
			return m
		}, (*caller).registers},
		{"native.own", canonical.OpNative, "played", native("x/own"), relays("x/own")},
	}
}

// lasts: it takes time, in which more than one party acts.
func (p play) lasts() bool {
	switch p.op {
	case canonical.OpTaskGet, canonical.OpTaskList, canonical.OpTaskCancel, canonical.OpTaskSubscribe, canonical.OpTaskResult,
		canonical.OpTaskAnswer, canonical.OpPush, canonical.OpAbort, canonical.OpAnswer:
		return true
	default:
		return false
	}
}

// patienceOfPlays bounds one play; whatLasts is how long work goes on that nobody
// ends, and how long is waited for what has to come: plays go on side by side.
const (
	patienceOfPlays = 15 * time.Second
	whatLasts       = 10 * time.Second
)

// stages plays one play on one way: who asked, and what came of it.
func (tr *troupe) stages(t *testing.T, from, to side, p play) (c *caller, outcome string) {
	t.Helper()
	agent := player
	if p.name == "invoke.typed" {
		agent = adder
	}
	c = tr.caller(t, from, to, agent)
	ctx, cancel := context.WithTimeout(t.Context(), patienceOfPlays)
	defer cancel()
	if from.binding == slim.Binding { // agents are exposed on nodes a moment after they are listed
		soon(ctx, func() bool { return c.exposed(ctx) })
	}
	return c, p.run(c, ctx)
}

// says: the side's callers have words for an operation.
func (tr *troupe) says(t *testing.T, s side, p play) bool {
	t.Helper()
	if p.first == nil {
		return true
	}
	c := tr.caller(t, s, s, player)
	_, losses, err := c.said(p.first(c), false)
	if err != nil {
		return false
	}
	for _, l := range losses {
		if l.Semantic() || l.Code == canonical.LossCallback && l.Fate == canonical.Dropped {
			return false
		}
	}
	return true
}

// claims are the plays that a side's callers have words for.
func (tr *troupe) claims(t *testing.T, s side) map[string]bool {
	t.Helper()
	out := map[string]bool{}
	for _, p := range plays() {
		if tr.says(t, s, p) {
			out[p.name] = true
		}
	}
	return out
}

// minted are ids, which are others each time.
var minted = regexp.MustCompile(`[0-9a-f]{8}-[0-9a-f-]{27}`)

// otherwise is what was heard in place of what should have been.
func (h *hearing) otherwise() string {
	if code := h.refused(); code != "" {
		return "refused " + code
	}
	text, _, more := strings.Cut(h.text(), "{") // what is data may hold ids
	if more {
		text += "…"
	}
	return strings.TrimSpace(string(h.state()) + " " + minted.ReplaceAllString(text, "ID"))
}

func (c *caller) describes(ctx context.Context) string {
	ep := c.ep
	if c.side.form == a2a.FormGRPC { // a card is read over HTTP
		ep = c.troupe.door(side{binding: c.side.binding, version: c.side.version}, c.agent)
		ep.GRPC = c.stage.rpc
	}
	d, _, err := c.dialer.Describe(ctx, ep)
	if err != nil {
		return "refused " + err.Error()
	}
	if len(d.Capabilities) != 1 || d.Capabilities[0].ID != "play" {
		return "another description: " + string(mustMarshal(d.Capabilities))
	}
	return "described"
}

func mustMarshal(v any) []byte {
	raw, err := json.Marshal(v)
	if err != nil {
		return []byte(err.Error())
	}
	return raw
}

func (c *caller) pings(ctx context.Context) string {
	h := c.ask(ctx, c.request(canonical.OpPing, nil), false, nil)
	if len(h.messages) == 1 && h.messages[0].Phase == canonical.PhaseResponse && h.refused() == "" {
		return "answered"
	}
	return h.otherwise()
}

func (c *caller) tells(ctx context.Context, text string) *hearing {
	return c.ask(ctx, c.request(canonical.OpInvoke, c.invoke(text)), false, nil)
}

func (c *caller) says(ctx context.Context) string {
	h := c.tells(ctx, "say hello")
	if strings.Contains(h.text(), "You said: say hello") {
		return "said"
	}
	return h.otherwise()
}

// content is a message with a value and a file.
func (c *caller) content() *canonical.Message {
	const data = `{"k":9007199254740991}`
	invoke := c.invoke("say it")
	if invoke.Call != nil {
		invoke.Call.Args = json.RawMessage(`{"message":"say it","data":` + data + `,"files":[{"name":"f.bin","mediaType":"application/octet-stream","bytes":"AP8H"}]}`)
	} else {
		invoke.Turn.Parts = append(invoke.Turn.Parts, canonical.Part{Kind: canonical.KindData, Data: json.RawMessage(data)},
			canonical.Part{Kind: canonical.KindFile, Name: "f.bin", Media: "application/octet-stream", Bytes: []byte{0, 255, 7}})
	}
	return c.request(canonical.OpInvoke, invoke)
}

func (c *caller) carries(ctx context.Context) string {
	h := c.ask(ctx, c.content(), false, nil)
	var found []string
	parts := h.parts()
	if strings.Contains(h.text(), "You said: say it") {
		found = append(found, "text")
	}
	if strings.Contains(h.text(), "9007199254740991") {
		found = append(found, "data")
	}
	for _, p := range parts {
		if p.Kind == canonical.KindFile && bytes.Equal(p.Bytes, []byte{0, 255, 7}) {
			found = append(found, "file")
			break
		}
	}
	if len(found) == 0 {
		return h.otherwise()
	}
	return strings.Join(found, " ")
}

// link is a message with a file that is elsewhere.
func (c *caller) link() *canonical.Message {
	invoke := c.invoke("say it")
	if invoke.Call != nil {
		invoke.Call.Args = json.RawMessage(`{"message":"say it","files":[{"name":"f.txt","mediaType":"text/plain","uri":"` + linked + `"}]}`)
	} else {
		invoke.Turn.Parts = append(invoke.Turn.Parts, canonical.Part{Kind: canonical.KindRef, Name: "f.txt", Media: "text/plain", URI: linked})
	}
	return c.request(canonical.OpInvoke, invoke)
}

// linked is where that file is.
const linked = "https://files.example/f.txt"

func (c *caller) links(ctx context.Context) string {
	h := c.ask(ctx, c.link(), false, nil)
	var found []string
	if strings.Contains(h.text(), "You said: say it") {
		found = append(found, "text")
	}
	for _, p := range h.parts() {
		if p.Kind == canonical.KindRef && p.URI == linked && p.Name == "f.txt" && p.Media == "text/plain" {
			found = append(found, "link")
		}
	}
	if len(found) == 0 {
		return h.otherwise()
	}
	return strings.Join(found, " ")
}

// addition is a call with arguments of its own.
func (c *caller) addition() *canonical.Message {
	args := `{"a":40,"b":2}`
	if c.side.form == uacp.FormBare { // which is found again by that
		args = `{"a":40,"b":2,"for":"` + c.wid + `"}`
	}
	return c.request(canonical.OpInvoke, &canonical.Invoke{Call: &canonical.Call{Name: "add", Args: json.RawMessage(args)}})
}

func (c *caller) adds(ctx context.Context) string {
	h := c.ask(ctx, c.addition(), false, nil)
	if strings.Contains(h.text(), "42") {
		return "added"
	}
	return h.otherwise()
}

func (c *caller) fails(ctx context.Context) string {
	h := c.tells(ctx, doFail)
	if h.state() == canonical.StateFailed && strings.Contains(h.text(), "it went wrong") {
		return "failed"
	}
	return h.otherwise()
}

func (c *caller) refuses(ctx context.Context) string {
	return c.tells(ctx, doRefuse).otherwise()
}

func (c *caller) comesAgain(ctx context.Context) string {
	h := c.tells(ctx, doPut)
	out := h.otherwise()
	if e := h.refusal(); e != nil && e.RetryAfter > 0 {
		out += ", again in " + e.RetryAfter.String()
	}
	return out
}

// goesOn says the same twice in the dialogue that the first answer was in; who was
// told of none begins one.
func (c *caller) goesOn(ctx context.Context) string {
	dialogue := c.tells(ctx, doCount).dialogue()
	if dialogue == "" {
		dialogue = string(ect.NewID())
		c.counts(ctx, dialogue)
	}
	h := c.counts(ctx, dialogue)
	for _, n := range []string{"said 1", "said 2"} {
		if strings.Contains(h.text(), n) {
			return n
		}
	}
	return h.otherwise()
}

// counts says it in a dialogue.
func (c *caller) counts(ctx context.Context, dialogue string) *hearing {
	m := c.request(canonical.OpInvoke, c.invoke(doCount))
	m.Conversation.ContextID = dialogue
	if call := m.Body.(*canonical.Invoke).Call; call != nil {
		call.Args = json.RawMessage(`{"message":"` + doCount + `","context_id":"` + dialogue + `"}`)
	}
	return c.ask(ctx, m, false, nil)
}

func (c *caller) streams(ctx context.Context) string {
	m := c.request(canonical.OpInvoke, c.invoke(doTell))
	m.Preferences.Stream = true
	if c.words() == mcp.Binding {
		m.Correlation.Progress = json.RawMessage(`"p"`)
	}
	h := c.ask(ctx, m, true, nil)
	text := h.text()
	first, second := strings.Index(text, "first"), strings.Index(text, "second")
	switch {
	case first < 0 || second < first || h.refused() != "":
		return h.otherwise()
	case h.events > 1 || strings.Contains(h.noticed(), "under way"):
		return "told"
	default:
		return "waited"
	}
}

// works begins work that goes on until it is finished by its name.
func (c *caller) works(ctx context.Context, do string) (name string, h *hearing) {
	return c.worksIn(ctx, do, "")
}

// worksIn does, in a dialogue.
func (c *caller) worksIn(ctx context.Context, do, dialogue string) (name string, h *hearing) {
	name = string(ect.NewID())
	if c.side.form == ainp.FormSocket { // where who asks hears it to the end; who posts need not
		posts := c.troupe.plainly(c)
		c = posts
	}
	m := c.request(canonical.OpInvoke, c.invoke(do+" "+name))
	m.Conversation.ContextID = dialogue
	m.Preferences.NoWait, m.Preferences.TaskOK = true, true
	waits, stop := context.WithCancel(ctx)
	defer stop()
	if !c.knowsTasks() {
		go func() {
			soon(waits, func() bool { return c.agents.job(name) != nil })
			c.agents.finish(name)
		}()
	}
	late := time.AfterFunc(whatLasts, func() { c.agents.finish(name) })
	h = c.ask(ctx, m, false, nil)
	late.Stop()
	if task := h.task(); task != nil && do == doWork { // which the gateway may say before the agent has begun
		soon(ctx, func() bool { return c.agents.job(name).knownTo(c.ledger, task.ID) })
	}
	return name, h
}

// knowsTasks: where the caller stands it can be told that there is a task now.
func (c *caller) knowsTasks() bool {
	from, to := natureOf(c.side, c.form), natureOf(c.to, c.list[c.to.binding].form)
	return !from.toy && !from.bare && !withinAINP(from, to) && !withoutTasks(from, to)
}

// about asks about work.
func (c *caller) about(ctx context.Context, op canonical.Op, id string) *hearing {
	return c.ask(ctx, c.request(op, &canonical.TaskQuery{ID: id}), op == canonical.OpTaskSubscribe, nil)
}

// without is what was heard in place of a task.
func (h *hearing) without() string {
	if strings.Contains(h.text(), "worked") {
		return "waited"
	}
	return "no task: " + h.otherwise()
}

// until asks how work stands until it has ended.
func (c *caller) until(ctx context.Context, id string) *hearing {
	for {
		h := c.about(ctx, canonical.OpTaskGet, id)
		if h.refused() != "" || h.state().Terminal() || ctx.Err() != nil {
			return h
		}
		select {
		case <-ctx.Done():
		case <-time.After(20 * time.Millisecond):
		}
	}
}

func (c *caller) gets(ctx context.Context) string {
	name, h := c.works(ctx, doWork)
	defer c.agents.finish(name)
	if h.task() == nil {
		return h.without()
	}
	id := h.task().ID
	if h = c.about(ctx, canonical.OpTaskGet, id); h.refused() != "" || h.state().Terminal() {
		return h.otherwise()
	}
	c.agents.finish(name)
	h = c.until(ctx, id)
	if h.state() == canonical.StateCompleted && strings.Contains(h.text(), "worked") {
		return "working completed"
	}
	return "working " + h.otherwise()
}

func (c *caller) lists(ctx context.Context) string {
	name, h := c.works(ctx, doWork)
	defer c.agents.finish(name)
	if h.task() == nil {
		return h.without()
	}
	id := h.task().ID
	h = c.ask(ctx, c.request(canonical.OpTaskList, &canonical.TaskFilter{}), false, nil)
	if list, ok := h.last().(*canonical.TaskList); ok {
		for i, task := range list.Tasks {
			if task.ID == id {
				c.notes.listed = strconv.Itoa(i)
				return "listed"
			}
		}
		return "not listed"
	}
	return h.otherwise()
}

// pages: of two works of one dialogue a list tells one by one, and only if it is
// asked for what goes on.
func (c *caller) pages(ctx context.Context) string {
	dialogue := string(ect.NewID())
	var ids []string
	for range 2 {
		name, h := c.worksIn(ctx, doWork, dialogue)
		defer c.agents.finish(name)
		if h.task() == nil {
			return h.without()
		}
		if in := h.task().ContextID; in != dialogue {
			return "in another dialogue: " + minted.ReplaceAllString(in, "ID")
		}
		ids = append(ids, h.task().ID)
	}
	slices.Sort(ids)
	var listed []string
	var h *hearing
	soon(ctx, func() bool { // what changes meanwhile goes to the front, and is not on the pages behind
		listed, h = c.listsBy(ctx, canonical.TaskFilter{ContextID: dialogue, Size: 1})
		slices.Sort(listed)
		return h.refused() != "" || slices.Equal(listed, ids)
	})
	switch {
	case h.refused() != "":
		return h.otherwise()
	case !slices.Equal(listed, ids):
		return fmt.Sprintf("%d of 2 are listed", len(listed))
	}
	for state, want := range map[canonical.State]int{canonical.StateWorking: 2, canonical.StateCompleted: 0} {
		if listed, _ = c.listsBy(ctx, canonical.TaskFilter{ContextID: dialogue, State: state}); len(listed) != want {
			return fmt.Sprintf("%d of %d are %s", len(listed), want, state)
		}
	}
	return "paged"
}

// listsBy is the tasks of a list by a filter, read page by page, each no larger than was asked for.
func (c *caller) listsBy(ctx context.Context, filter canonical.TaskFilter) (ids []string, h *hearing) {
	for range 4 {
		h = c.ask(ctx, c.request(canonical.OpTaskList, &filter), false, nil)
		list, ok := h.last().(*canonical.TaskList)
		if !ok || filter.Size > 0 && len(list.Tasks) > filter.Size {
			return nil, h
		}
		for _, task := range list.Tasks {
			ids = append(ids, task.ID)
		}
		if list.Next == "" {
			break
		}
		filter.Cursor = list.Next
	}
	return ids, h
}

func (c *caller) cancels(ctx context.Context) string {
	name, h := c.works(ctx, doWork)
	defer c.agents.finish(name)
	if h.task() == nil {
		return h.without()
	}
	id := h.task().ID
	h = c.about(ctx, canonical.OpTaskCancel, id)
	if _, done := h.last().(*canonical.Done); done {
		h = c.until(ctx, id)
	}
	if h.state() == canonical.StateCanceled {
		return "canceled"
	}
	return h.otherwise()
}

func (c *caller) subscribes(ctx context.Context) string {
	name, h := c.works(ctx, doWork)
	defer c.agents.finish(name)
	if h.task() == nil {
		return h.without()
	}
	c.began = func() { c.agents.finish(name) } // and not before
	later := time.AfterFunc(whatLasts, c.began)
	defer later.Stop()
	h = c.about(ctx, canonical.OpTaskSubscribe, h.task().ID)
	if h.state() == canonical.StateCompleted && strings.Contains(h.text(), "worked") {
		return "completed"
	}
	return h.otherwise()
}

func (c *caller) results(ctx context.Context) string {
	name, h := c.works(ctx, doWork)
	defer c.agents.finish(name)
	if h.task() == nil {
		return h.without()
	}
	later := time.AfterFunc(50*time.Millisecond, func() { c.agents.finish(name) })
	defer later.Stop()
	h = c.about(ctx, canonical.OpTaskResult, h.task().ID)
	if strings.Contains(h.text(), "worked") {
		return "completed"
	}
	return h.otherwise()
}

func (c *caller) answersTask(ctx context.Context) string {
	_, h := c.works(ctx, doAsk)
	task := h.task()
	if task == nil {
		if strings.Contains(h.text(), "nobody can be asked") {
			return "not asked"
		}
		return h.without()
	}
	id := task.ID
	for asked := false; !asked && !task.Status.State.Terminal(); { // once at least, so that what that loses is always lost
		if h = c.about(ctx, canonical.OpTaskGet, id); h.task() == nil || ctx.Err() != nil {
			return h.otherwise()
		}
		task = h.task()
		asked = len(task.Inputs) > 0 || task.Status.State == canonical.StateInputRequired // and if it does not say what, nobody is told
	}
	if len(task.Inputs) == 0 {
		return "not asked"
	}
	q := &canonical.TaskQuery{ID: id, Answers: []canonical.Answer{accepts(task.Inputs[0])}}
	if h = c.ask(ctx, c.request(canonical.OpTaskAnswer, q), false, nil); h.refused() != "" {
		return h.otherwise()
	}
	if h = c.until(ctx, id); strings.Contains(h.text(), "Hello Ada") {
		return "answered"
	}
	return h.otherwise()
}

// native is a method of the caller's protocol alone.
func (c *caller) native(method string) *canonical.Message {
	said := &canonical.Native{Method: method}
	if strings.HasSuffix(c.side.version, mcp.Modern) {
		said.Params = json.RawMessage(`{` + modernMeta + `}`)
	}
	return c.request(canonical.OpNative, said)
}

func relays(method string) func(*caller, context.Context) string {
	return func(c *caller, ctx context.Context) string {
		h := c.ask(ctx, c.native(method), false, nil)
		if n, ok := h.last().(*canonical.Native); ok {
			if strings.Contains(string(n.Result), "played") {
				return "played"
			}
			return string(n.Result)
		}
		return h.otherwise()
	}
}
