package main

import "regexp"

// shortfall is a reason why something else comes of a play than should. Each is
// one of the protocols', or of the way, and is written where it is declared.
type shortfall struct {
	play, outcome, from, to string // regular expressions of all of it; empty: any
	because                 string
}

// what several reasons have in common.
const (
	toys = "toy"
	bare = `uacp\+bare`
)

// shortfalls is all that cannot be said, and why. One that explains nothing is a
// mistake; so is an outcome that none explains.
var shortfalls = []shortfall{
	{"callback", "kept here", "", "", "L38: the agent's protocol has no place for a callback; decisions are told from here"},
	{"decision", "refused unsupported_op", "", `(a2a|mcp|slim|toy).*`, "L36: the agent's protocol has no form for a decision"},

	{"invoke.content", "refused bad_params", "", bare + "|" + toys, "L33: there is one thing in a bare frame, and no file in a toy's words"},
	{"invoke.content", "text( data)?", "mcp.*", bare + "|" + toys, "arguments are one thing; what is in them comes back as data"},
	{"invoke.error", "refused invalid_request", "", bare, "L37: a status of a bare frame says no more"},
	{"invoke.(error|failed)", "refused internal", "", bare + "|" + toys, "L37: that it failed is all that can be said"},
	{"invoke.(error|failed)", "refused internal", toys, "", "L37: that it failed is all that a toy hears"},
	{"invoke.typed", ".*", toys, "", "a toy has no arguments but words"},
	{"invoke.typed", "refused skill_not_found", "", toys, "a toy describes one skill, whoever it is"},

	{"stream", "waited", "", "", "one of the sides says one thing: a post of AINP, a plain session of SLIM, a toy; or events that the other has no words for (L04, L05)"},
	{"stream", "refused unsupported_op", "slim@a2a-1.0", "", "streams are served on SLIMRPC, and not in plain sessions"},
	{"stream", "refused .*", "", bare, "a bare agent's events cannot be told apart from its answer"},
	{"stream", "refused .*", "ainp", `ainp\+websocket`, "a post is answered once; within AINP nobody adds up what a socket says"},

	{"question", "not asked", "", "", "one of the sides cannot be asked, or cannot ask (translators.AskNone)"},
	{"question", "completed.*", "mcp.*|slim@mcp.*|toy", "", "the caller cannot be asked where it stands, or is asked in another way of MCP"},
	{"question|task.answer", "refused .*", "ainp.*|slim.*", "", "the wait for an answer is not over a connection that stays open"},

	{"task.answer", "not asked|waited|no task: .*|refused .*", "", "", "the agent asked in place of its task, or in a way that waits"},
	{"push", "refused push_unsupported", "slim.*", "", "L07: nobody posts in SLIM's words"},

	{"abort", "refused not_cancelable", "ainp", "", "a request is stopped on the connection that it came on, and nowhere else"},
	{`native\..*`, "refused (no_method|unsupported_op)", "", "", "L13: a method of one protocol, or of one revision, alone"},
}

// covers: the reason is one for this row.
func (s shortfall) covers(r row) bool {
	for _, m := range [...]struct{ pattern, text string }{{s.play, r.play}, {s.outcome, r.outcome}, {s.from, r.from}, {s.to, r.to}} {
		if m.pattern != "" && !regexp.MustCompile("^(?:"+m.pattern+")$").MatchString(m.text) {
			return false
		}
	}
	return true
}
