package gatewaytest

import (
	"context"
	"encoding/json"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/aepb/aepb-gateway/translators/a2a"
	"github.com/aepb/aepb-gateway/translators/canonical"
	"github.com/aepb/aepb-gateway/translators/mcp"
	"github.com/aepb/aepb-gateway/translators/slim"
)

// Play is one operation that a caller asks for, and what should come of it.
type Play struct {
	Name string
	Op   canonical.Op
	Done string // the outcome, where both sides have all that it takes
	// first is the caller's request by which one sees whether it has words for
	// the operation; nil: every caller has.
	first func(*Caller) *canonical.Message
	run   func(*Caller, context.Context) string
}

// Plays are all of them.
func Plays() []Play {
	invokes := func(text string) func(*Caller) *canonical.Message {
		return func(c *Caller) *canonical.Message { return c.Request(canonical.OpInvoke, c.Invoke(text)) }
	}
	query := func(op canonical.Op) func(*Caller) *canonical.Message {
		return func(c *Caller) *canonical.Message { return c.Request(op, &canonical.TaskQuery{ID: "t"}) }
	}
	native := func(method string) func(*Caller) *canonical.Message {
		return func(c *Caller) *canonical.Message {
			return c.native(method)
		}
	}
	return []Play{
		{"describe", canonical.OpDescribe, "described", nil, (*Caller).describes},
		{"ping", canonical.OpPing, "answered", func(c *Caller) *canonical.Message { return c.Request(canonical.OpPing, nil) }, (*Caller).pings},
		{"invoke", canonical.OpInvoke, "said", invokes("say hello"), (*Caller).says},
		{"invoke.content", canonical.OpInvoke, "text data file", (*Caller).content, (*Caller).carries},
		{"invoke.link", canonical.OpInvoke, "text link", (*Caller).link, (*Caller).links},
		{"invoke.typed", canonical.OpInvoke, "added", (*Caller).addition, (*Caller).adds},
		{"invoke.failed", canonical.OpInvoke, "failed", invokes(DoFail), (*Caller).fails},
		{"invoke.error", canonical.OpInvoke, "refused bad_params", invokes(doRefuse), (*Caller).refuses},
		{"invoke.busy", canonical.OpInvoke, "refused rate_limited, again in 7s", invokes(doPut), (*Caller).comesAgain},
		{"dialogue", canonical.OpInvoke, "said 2", invokes(doCount), (*Caller).goesOn},
		{"stream", canonical.OpInvoke, "told", invokes(DoTell), (*Caller).streams},
		{"question", canonical.OpAnswer, "answered", invokes(DoAsk), answers(DoAsk, accepts, "Hello Ada", "answered")},
		{"question.declined", canonical.OpAnswer, "declined", invokes(DoAsk), answers(DoAsk, declines, "Hello nobody", "declined")},
		{"question.several", canonical.OpAnswer, "answered", invokes(doAskMore), answers(doAskMore, accepts, "Hello Ada of Paris", "answered")},
		{"task.get", canonical.OpTaskGet, "working completed", query(canonical.OpTaskGet), (*Caller).gets},
		{"task.list", canonical.OpTaskList, "listed", func(c *Caller) *canonical.Message {
			return c.Request(canonical.OpTaskList, &canonical.TaskFilter{})
		}, (*Caller).lists},
		{"task.list.pages", canonical.OpTaskList, "paged", func(c *Caller) *canonical.Message {
			return c.Request(canonical.OpTaskList, &canonical.TaskFilter{ContextID: "d", State: canonical.StateWorking, Size: 1})
		}, (*Caller).pages},
		{"task.cancel", canonical.OpTaskCancel, "canceled", query(canonical.OpTaskCancel), (*Caller).cancels},
		{"task.subscribe", canonical.OpTaskSubscribe, "completed", query(canonical.OpTaskSubscribe), (*Caller).subscribes},
		{"task.result", canonical.OpTaskResult, "completed", query(canonical.OpTaskResult), (*Caller).results},
		{"task.answer", canonical.OpTaskAnswer, "answered", query(canonical.OpTaskAnswer), (*Caller).answersTask},
		{"push", canonical.OpPush, "told", func(c *Caller) *canonical.Message {
			return c.Request(canonical.OpPush, &canonical.PushRequest{Verb: canonical.VerbCreate, Config: canonical.PushConfig{ID: "p", TaskID: "t", URL: "https://x.example/"}})
		}, (*Caller).pushes},
		{"abort", canonical.OpAbort, "stopped", func(c *Caller) *canonical.Message {
			return c.Request(canonical.OpAbort, &canonical.Abort{Request: json.RawMessage(`"r"`)})
		}, (*Caller).aborts},
		{"native.prompts", canonical.OpNative, "played", native("prompts/list"), relays("prompts/list")},
		{"rollback", canonical.OpRollback, "undone", func(c *Caller) *canonical.Message {
			return c.Request(canonical.OpRollback, &canonical.Signal{Token: "e30.e30.eA"})
		}, (*Caller).rollsBack},
		{"decision", canonical.OpDecision, "told", func(c *Caller) *canonical.Message {
			return c.Request(canonical.OpDecision, &canonical.Signal{Approval: "a", Token: "e30.e30.eA"})
		}, (*Caller).decides},
		{"callback", canonical.OpInvoke, "told", func(c *Caller) *canonical.Message {
			m := c.Request(canonical.OpInvoke, c.Invoke("say"))
			m.Callback = decidedAt
			return m
		}, (*Caller).registers},
		{"native.own", canonical.OpNative, "played", native("x/own"), relays("x/own")},
	}
}

// lasts: it takes time, in which more than one party acts.
func (p Play) lasts() bool {
	switch p.Op {
	case canonical.OpTaskGet, canonical.OpTaskList, canonical.OpTaskCancel, canonical.OpTaskSubscribe, canonical.OpTaskResult,
		canonical.OpTaskAnswer, canonical.OpPush, canonical.OpAbort, canonical.OpAnswer:
		return true
	default:
		return false
	}
}

// PatienceOfPlays bounds one play; whatLasts is how long work goes on that nobody
// ends, and how long is waited for what has to come: plays go on side by side.
const (
	PatienceOfPlays = 15 * time.Second
	whatLasts       = 10 * time.Second
)

// stages plays one play on one way: who asked, and what came of it.
func (tr *Simulator) stages(t *testing.T, from, to Side, p Play) (c *Caller, outcome string) {
	t.Helper()
	agent := Player
	if p.Name == "invoke.typed" {
		agent = adder
	}
	c = tr.Caller(t, from, to, agent)
	ctx, cancel := context.WithTimeout(t.Context(), PatienceOfPlays)
	defer cancel()
	if from.Binding == slim.Binding { // agents are exposed on nodes a moment after they are listed
		Soon(ctx, func() bool { return c.Exposed(ctx) })
	}
	return c, p.run(c, ctx)
}

// says: the side's callers have words for an operation.
func (tr *Simulator) says(t *testing.T, s Side, p Play) bool {
	t.Helper()
	if p.first == nil {
		return true
	}
	c := tr.Caller(t, s, s, Player)
	_, losses, err := c.encode(p.first(c), false)
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

// Claims are the plays that a side's callers have words for.
func (tr *Simulator) Claims(t *testing.T, s Side) map[string]bool {
	t.Helper()
	out := map[string]bool{}
	for _, p := range Plays() {
		if tr.says(t, s, p) {
			out[p.Name] = true
		}
	}
	return out
}

// minted are ids, which are others each time.
var minted = regexp.MustCompile(`[0-9a-f]{8}-[0-9a-f-]{27}`)

// Otherwise is what was heard in place of what should have been.
func (h *Received) Otherwise() string {
	if code := h.Refused(); code != "" {
		return "refused " + code
	}
	text, _, more := strings.Cut(h.Text(), "{") // what is data may hold ids
	if more {
		text += "…"
	}
	return strings.TrimSpace(string(h.State()) + " " + minted.ReplaceAllString(text, "ID"))
}

func (c *Caller) describes(ctx context.Context) string {
	ep := c.ep
	if c.side.Form == a2a.FormGRPC { // a card is read over HTTP
		ep = c.Simulator.endpoint(Side{Binding: c.side.Binding, version: c.side.version}, c.agent)
		ep.GRPC = c.Stage.RPC
	}
	d, _, err := c.dialer.Describe(ctx, ep)
	if err != nil {
		return "refused " + err.Error()
	}
	if len(d.Capabilities) != 1 || d.Capabilities[0].ID != "play" {
		return "another description: " + string(MustMarshal(d.Capabilities))
	}
	return "described"
}

// MustMarshal is a value in JSON, or the text of the error where it has none.
func MustMarshal(v any) []byte {
	raw, err := json.Marshal(v)
	if err != nil {
		return []byte(err.Error())
	}
	return raw
}

func (c *Caller) pings(ctx context.Context) string {
	h := c.Ask(ctx, c.Request(canonical.OpPing, nil), false, nil)
	if len(h.Messages) == 1 && h.Messages[0].Phase == canonical.PhaseResponse && h.Refused() == "" {
		return "answered"
	}
	return h.Otherwise()
}

// native is a method of the caller's protocol alone.
func (c *Caller) native(method string) *canonical.Message {
	call := &canonical.Native{Method: method}
	if strings.HasSuffix(c.side.version, mcp.Modern) {
		call.Params = json.RawMessage(`{` + ModernMeta + `}`)
	}
	return c.Request(canonical.OpNative, call)
}

func relays(method string) func(*Caller, context.Context) string {
	return func(c *Caller, ctx context.Context) string {
		h := c.Ask(ctx, c.native(method), false, nil)
		if n, ok := h.last().(*canonical.Native); ok {
			if strings.Contains(string(n.Result), "played") {
				return "played"
			}
			return string(n.Result)
		}
		return h.Otherwise()
	}
}
