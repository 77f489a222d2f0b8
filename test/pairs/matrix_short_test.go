package pairs

import (
	"regexp"

	gatewaytest "github.com/aepb/aepb-gateway/test/harness/gateway"
	"github.com/aepb/aepb-gateway/translators"
	"github.com/aepb/aepb-gateway/translators/ainp"
	"github.com/aepb/aepb-gateway/translators/mcp"
	"github.com/aepb/aepb-gateway/translators/slim"
	"github.com/aepb/aepb-gateway/translators/uacp"
)

// shortfall is a reason why something else comes of a play than should. Each is
// one of the protocols', or of the way, and is written where it is declared.
type shortfall struct {
	play, outcome string // regular expressions of all of it
	where         func(from, to *gatewaytest.Traits) bool
	because       string
}

// what several reasons have in common.
func toToy(_, to *gatewaytest.Traits) bool       { return to.Toy }
func toBare(_, to *gatewaytest.Traits) bool      { return to.Bare }
func fromToy(from, _ *gatewaytest.Traits) bool   { return from.Toy }
func fromBare(from, _ *gatewaytest.Traits) bool  { return from.Bare }
func fromPlain(from, _ *gatewaytest.Traits) bool { return from.Plain() }

// shortfalls is all that cannot be said, and why. One that explains nothing is a
// mistake; so is an outcome that none explains.
var shortfalls = []shortfall{
	{"callback", "kept here", func(from, to *gatewaytest.Traits) bool { return !from.Callbacks || !to.Callbacks }, "L38: one of the protocols has no place for a callback; decisions are told from here"},
	{"decision", "refused unsupported_op", func(_, to *gatewaytest.Traits) bool { return !to.Decisions }, "L36: the agent's protocol has no form for a decision"},
	{"decision|rollback", "no evidence", fromBare, "a bare frame has no place for evidence: its caller's tokens are in no workflow with ours"},

	{"invoke.(content|link)", "refused bad_params", func(from, to *gatewaytest.Traits) bool { return from.Words != mcp.Binding && (to.Bare || to.Toy) }, "L33: there is one thing in a bare frame, and no file in a toy's words"},
	{"invoke.(content|link)", "text", func(from, to *gatewaytest.Traits) bool { return from.Words == mcp.Binding && to.Toy }, "arguments are one thing; a toy hears their words"},
	{"invoke.content", "text data", func(from, to *gatewaytest.Traits) bool { return from.Words == mcp.Binding && to.Bare }, "arguments are one thing; what is in them comes back as data"},
	{"invoke.link", "text", func(from, to *gatewaytest.Traits) bool { return from.Words == mcp.Binding && to.Bare }, "the same; a link in them is not told from other data"},
	{"dialogue", "said 1", func(from, to *gatewaytest.Traits) bool { return from.Toy || to.Toy || from.Bare || to.Bare }, "a toy and a bare frame name no dialogue"},
	{"dialogue", "said 1", func(_, to *gatewaytest.Traits) bool { return to.Words == mcp.Binding }, "a tool of a server does not say which dialogue it answers in"},
	{"invoke.busy", "refused rate_limited", func(from, to *gatewaytest.Traits) bool { return from.Form == slim.FormRPC || to.Form == slim.FormRPC }, "L31: a status of SLIMRPC has no place for when to come again"},
	{"invoke.busy", "refused invalid_request", fromBare, "L37: a status of a bare frame says no more"},
	{"invoke.busy", "refused (unavailable|broken: .* cannot be reached)", func(from, to *gatewaytest.Traits) bool { return from.Bare || to.Bare }, "the same; and who hears that on SLIMRPC takes it for an agent that is not there"},
	{"invoke.error", "refused invalid_request", func(from, to *gatewaytest.Traits) bool { return from.Bare || to.Bare }, "L37: a status of a bare frame says no more"},
	{"invoke.failed", "refused internal", func(from, to *gatewaytest.Traits) bool { return from.Bare || to.Bare && from.Words != mcp.Binding }, "L37: that it failed is all that a bare frame says"},
	{"invoke.(busy|error|failed)", "refused internal", func(from, to *gatewaytest.Traits) bool { return from.Toy || to.Toy }, "L37: that it failed is all that a toy says or hears"},
	{"invoke.typed", "completed You said: …|refused internal", fromToy, "a toy has no arguments but words"},
	{"invoke.typed", "refused skill_not_found", toToy, "a toy describes one skill, whoever it is"},
	{"invoke.typed", "refused resource_not_found", func(from, to *gatewaytest.Traits) bool { return from.Bare && to.Toy }, "a toy describes one skill; a bare status says only that something is not found"},

	{"stream", "waited", func(from, to *gatewaytest.Traits) bool { return !from.Streams || !to.Streams }, "one of the sides says one thing: a post of AINP, a plain session of SLIM, a toy"},
	{"stream", "waited", func(from, to *gatewaytest.Traits) bool {
		return from.Words == ainp.Binding && to.Shape == translators.StreamsTask
	}, "L05: AINP has no word for how work stands"},
	{"stream", "refused unsupported_op", fromPlain, "streams are served on SLIMRPC, and not in plain sessions"},
	{"stream", "refused (unsupported_op|internal)", toBare, "a bare agent's events cannot be told apart from its answer"},
	{"stream", "refused unsupported_op", func(from, to *gatewaytest.Traits) bool { return from.Bare && to.Binding == uacp.Binding }, "a bare peer is told of nothing but content"},
	{"stream|question.*", "refused internal", gatewaytest.WithinAINP, "a post is answered once; within AINP nobody adds up what a socket says"},

	{"question.*|task.answer", "not asked", func(from, to *gatewaytest.Traits) bool {
		return from.Asks == translators.AskNone || to.Asks == translators.AskNone
	}, "one of the sides cannot be asked, or cannot ask"},
	{"question.*", "read|completed.*", func(from, to *gatewaytest.Traits) bool {
		return from.Asks == translators.AskNone && to.Asks != translators.AskNone
	}, "the caller reads the question, or that there is one, and cannot be asked it"},
	{"task.answer", "not asked", func(from, to *gatewaytest.Traits) bool {
		return from.Words == ainp.Binding && to.Asks != translators.AskTask
	}, "whoever posts work to AINP cannot be asked but by its task"},
	{"question.*", "refused capability_required", func(from, to *gatewaytest.Traits) bool { return from.Bare && to.Asks != translators.AskNone }, "a bare peer cannot be asked, nor told that a task waits"},

	{"push", "refused push_unsupported", func(from, _ *gatewaytest.Traits) bool { return from.Binding == slim.Binding }, "L07: nobody posts in SLIM's words"},
	{"push|task.*", "no task: refused bad_params", toBare, "L35: a bare agent cannot be told that nobody waits"},
	{"task.*", "waited", fromBare, "a bare answer has no room for a task"},
	{"task.*", "waited", gatewaytest.WithoutTasks, "a server of an older revision of MCP has no tasks, and says so"},
	{"task.*", "waited|no task: refused internal", gatewaytest.WithinAINP, "within AINP the agent alone decides whether it is waited for"},
	{"task.subscribe", "refused unsupported_op", fromPlain, "streams are served on SLIMRPC, and not in plain sessions"},

	{"abort", "refused not_cancelable", func(from, to *gatewaytest.Traits) bool {
		return from.Binding == ainp.Binding && to.Binding != ainp.Binding
	}, "a request is stopped on the connection that it came on, and nowhere else"},
	{"abort", "goes on", func(from, to *gatewaytest.Traits) bool { return gatewaytest.WithinAINP(from, to) || to.Bare }, "within AINP, and to a bare agent, nothing says that a request is not wanted any more"},
	{`native\..*`, "refused no_method", func(from, to *gatewaytest.Traits) bool { return from.Binding != to.Binding || from.Words != to.Words }, "L13: a method of one protocol alone"},
}

// covers: the reason is one for this row.
func (s shortfall) covers(r gatewaytest.Row, from, to *gatewaytest.Traits) bool {
	for pattern, text := range map[string]string{s.play: r.Play, s.outcome: r.Outcome} {
		if !regexp.MustCompile("^(?:" + pattern + ")$").MatchString(text) {
			return false
		}
	}
	return s.where(from, to)
}
