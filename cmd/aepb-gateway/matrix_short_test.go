package main

import (
	"regexp"

	"github.com/aepb/aepb-gateway/translators"
	"github.com/aepb/aepb-gateway/translators/a2a"
	"github.com/aepb/aepb-gateway/translators/ainp"
	"github.com/aepb/aepb-gateway/translators/canonical"
	"github.com/aepb/aepb-gateway/translators/mcp"
	"github.com/aepb/aepb-gateway/translators/slim"
	"github.com/aepb/aepb-gateway/translators/uacp"
)

// nature is what a side can do, as its translator says; what only its way of
// carriage decides is said here.
type nature struct {
	side

	words                canonical.Binding
	asks                 translators.Asking
	tasks                translators.Tasking
	shape                translators.Streams // of its words
	streams              bool                // more than one message answers a request
	callbacks, decisions bool
	toy, bare            bool
}

func natureOf(s side, form translators.Translator) *nature {
	n := &nature{side: s, words: s.words(form), shape: translators.StreamsOf(form, s.version), toy: s.binding == toyBinding, bare: s.form == uacp.FormBare}
	if asker, ok := form.(translators.InputStyler); ok {
		n.asks = asker.Asks(s.version, s.form)
	}
	if tasker, ok := form.(translators.TaskStyler); ok {
		n.tasks = tasker.Tasks(s.version)
	}
	if signaler, ok := form.(translators.Signaler); ok {
		at := translators.Target{Version: s.version, Form: s.form}
		n.callbacks, n.decisions = signaler.Signals(canonical.OpInvoke, at), signaler.Signals(canonical.OpDecision, at)
	}
	post, session := s.binding == ainp.Binding && s.form == "", s.binding == slim.Binding && s.form == ""
	n.streams = n.shape != translators.StreamsNone && !post && !session && !n.bare
	if post { // nobody keeps a connection to be asked on
		n.asks = translators.AskNone
	}
	return n
}

// plain: A2A's JSON-RPC in a plain session of SLIM.
func (n *nature) plain() bool {
	return n.binding == slim.Binding && n.words == a2a.Binding && n.form == ""
}

// shortfall is a reason why something else comes of a play than should. Each is
// one of the protocols', or of the way, and is written where it is declared.
type shortfall struct {
	play, outcome string // regular expressions of all of it
	where         func(from, to *nature) bool
	because       string
}

// what several reasons have in common.
func toToy(_, to *nature) bool       { return to.toy }
func toBare(_, to *nature) bool      { return to.bare }
func fromToy(from, _ *nature) bool   { return from.toy }
func fromBare(from, _ *nature) bool  { return from.bare }
func fromPlain(from, _ *nature) bool { return from.plain() }
func withinAINP(from, to *nature) bool {
	return from.binding == ainp.Binding && to.binding == ainp.Binding
}

// withoutTasks: the agent is a server of MCP that has no tasks for such clients.
func withoutTasks(from, to *nature) bool {
	return from.words == mcp.Binding && from.binding == to.binding && to.words == from.words && to.tasks == translators.TaskingNone
}

// shortfalls is all that cannot be said, and why. One that explains nothing is a
// mistake; so is an outcome that none explains.
var shortfalls = []shortfall{
	{"callback", "kept here", func(from, to *nature) bool { return !from.callbacks || !to.callbacks }, "L38: one of the protocols has no place for a callback; decisions are told from here"},
	{"decision", "refused unsupported_op", func(_, to *nature) bool { return !to.decisions }, "L36: the agent's protocol has no form for a decision"},
	{"decision|rollback", "no evidence", fromBare, "a bare frame has no place for evidence: its caller's tokens are in no workflow with ours"},

	{"invoke.(content|link)", "refused bad_params", func(from, to *nature) bool { return from.words != mcp.Binding && (to.bare || to.toy) }, "L33: there is one thing in a bare frame, and no file in a toy's words"},
	{"invoke.(content|link)", "text", func(from, to *nature) bool { return from.words == mcp.Binding && to.toy }, "arguments are one thing; a toy hears their words"},
	{"invoke.content", "text data", func(from, to *nature) bool { return from.words == mcp.Binding && to.bare }, "arguments are one thing; what is in them comes back as data"},
	{"invoke.link", "text", func(from, to *nature) bool { return from.words == mcp.Binding && to.bare }, "the same; a link in them is not told from other data"},
	{"dialogue", "said 1", func(from, to *nature) bool { return from.toy || to.toy || from.bare || to.bare }, "a toy and a bare frame name no dialogue"},
	{"dialogue", "said 1", func(_, to *nature) bool { return to.words == mcp.Binding }, "a tool of a server does not say which dialogue it answers in"},
	{"invoke.busy", "refused rate_limited", func(from, to *nature) bool { return from.form == slim.FormRPC || to.form == slim.FormRPC }, "L31: a status of SLIMRPC has no place for when to come again"},
	{"invoke.busy", "refused invalid_request", fromBare, "L37: a status of a bare frame says no more"},
	{"invoke.busy", "refused (unavailable|broken: .* cannot be reached)", func(from, to *nature) bool { return from.bare || to.bare }, "the same; and who hears that on SLIMRPC takes it for an agent that is not there"},
	{"invoke.error", "refused invalid_request", func(from, to *nature) bool { return from.bare || to.bare }, "L37: a status of a bare frame says no more"},
	{"invoke.failed", "refused internal", func(from, to *nature) bool { return from.bare || to.bare && from.words != mcp.Binding }, "L37: that it failed is all that a bare frame says"},
	{"invoke.(busy|error|failed)", "refused internal", func(from, to *nature) bool { return from.toy || to.toy }, "L37: that it failed is all that a toy says or hears"},
	{"invoke.typed", "completed You said: …|refused internal", fromToy, "a toy has no arguments but words"},
	{"invoke.typed", "refused skill_not_found", toToy, "a toy describes one skill, whoever it is"},
	{"invoke.typed", "refused resource_not_found", func(from, to *nature) bool { return from.bare && to.toy }, "a toy describes one skill; a bare status says only that something is not found"},

	{"stream", "waited", func(from, to *nature) bool { return !from.streams || !to.streams }, "one of the sides says one thing: a post of AINP, a plain session of SLIM, a toy"},
	{"stream", "waited", func(from, to *nature) bool { return from.words == ainp.Binding && to.shape == translators.StreamsTask }, "L05: AINP has no word for how work stands"},
	{"stream", "refused unsupported_op", fromPlain, "streams are served on SLIMRPC, and not in plain sessions"},
	{"stream", "refused (unsupported_op|internal)", toBare, "a bare agent's events cannot be told apart from its answer"},
	{"stream", "refused unsupported_op", func(from, to *nature) bool { return from.bare && to.binding == uacp.Binding }, "a bare peer is told of nothing but content"},
	{"stream|question.*", "refused internal", withinAINP, "a post is answered once; within AINP nobody adds up what a socket says"},

	{"question.*|task.answer", "not asked", func(from, to *nature) bool { return from.asks == translators.AskNone || to.asks == translators.AskNone }, "one of the sides cannot be asked, or cannot ask"},
	{"question.*", "read|completed.*", func(from, to *nature) bool { return from.asks == translators.AskNone && to.asks != translators.AskNone }, "the caller reads the question, or that there is one, and cannot be asked it"},
	{"task.answer", "not asked", func(from, to *nature) bool { return from.words == ainp.Binding && to.asks != translators.AskTask }, "whoever posts work to AINP cannot be asked but by its task"},
	{"question.*", "refused capability_required", func(from, to *nature) bool { return from.bare && to.asks != translators.AskNone }, "a bare peer cannot be asked, nor told that a task waits"},

	{"push", "refused push_unsupported", func(from, _ *nature) bool { return from.binding == slim.Binding }, "L07: nobody posts in SLIM's words"},
	{"push|task.*", "no task: refused bad_params", toBare, "L35: a bare agent cannot be told that nobody waits"},
	{"task.*", "waited", fromBare, "a bare answer has no room for a task"},
	{"task.*", "waited", withoutTasks, "a server of an older revision of MCP has no tasks, and says so"},
	{"task.*", "waited|no task: refused internal", withinAINP, "within AINP the agent alone decides whether it is waited for"},
	{"task.subscribe", "refused unsupported_op", fromPlain, "streams are served on SLIMRPC, and not in plain sessions"},

	{"abort", "refused not_cancelable", func(from, to *nature) bool { return from.binding == ainp.Binding && to.binding != ainp.Binding }, "a request is stopped on the connection that it came on, and nowhere else"},
	{"abort", "goes on", func(from, to *nature) bool { return withinAINP(from, to) || to.bare }, "within AINP, and to a bare agent, nothing says that a request is not wanted any more"},
	{`native\..*`, "refused no_method", func(from, to *nature) bool { return from.binding != to.binding || from.words != to.words }, "L13: a method of one protocol alone"},
}

// covers: the reason is one for this row.
func (s shortfall) covers(r row, from, to *nature) bool {
	for pattern, text := range map[string]string{s.play: r.play, s.outcome: r.outcome} {
		if !regexp.MustCompile("^(?:" + pattern + ")$").MatchString(text) {
			return false
		}
	}
	return s.where(from, to)
}
