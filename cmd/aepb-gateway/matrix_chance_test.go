package main

import (
	"regexp"
	"strings"
	"testing"

	"github.com/aepb/aepb-gateway/translators"
	"github.com/aepb/aepb-gateway/translators/ainp"
	"github.com/aepb/aepb-gateway/translators/mcp"
	"github.com/aepb/aepb-gateway/translators/slim"
	"github.com/aepb/aepb-gateway/translators/uacp"
)

// hazard is a loss that happens or does not, as two events come one before the
// other or the other way about. Nothing that a play can wait for decides that.
type hazard struct {
	play, mark string // regular expressions of all of it
	where      func(from, to *nature) bool
	because    string
}

// hazards are all that there are. What the table has of them is an upper bound.
var hazards = []hazard{
	{
		"task.get", `<(L03|L29|L33)\+`, func(_, to *nature) bool { return to.words == mcp.Binding && to.tasks == translators.TaskingWhole },
		"what came of a task its caller hears from the agent itself if he asks first, and as the gateway keeps it if that did",
	},
	{
		"task.get", `<(L02\+|L03-|L18-)`, func(from, to *nature) bool {
			return onSLIM(from) && to.words == mcp.Binding && to.tasks == translators.TaskingWhole
		},
		"the same, of a caller on SLIM, who is slow to ask",
	},
	{
		`push|task\.(list|list\.pages|subscribe)`, `<(L02|L18)\+`, func(_, to *nature) bool { return onSLIM(to) && to.tasks == translators.TaskingWhole },
		"an agent on SLIM, which is slow, may have ended its task before anybody hears that it began",
	},
	{
		`task\.answer`, `<(L03|L33)\+`, func(from, to *nature) bool { return from.words == ainp.Binding && onSLIM(to) },
		"an agent on SLIM, which is slow, answers before its caller is promised a task, or after",
	},
	{
		`task\.answer`, `<L33\+`, func(from, to *nature) bool { return from.words == ainp.Binding && to.binding == uacp.Binding },
		"what an agent of µACP says before it goes on is heard, or what comes next has overtaken it",
	},
	{
		`task\.answer`, `<L01-`, func(from, to *nature) bool { return onSLIM(from) && onSLIM(to) },
		"the same, and then the caller has a name for the task",
	},
	{
		`task\..*|push|abort`, "~.*", func(_, to *nature) bool {
			return to.shape == translators.StreamsTask || to.tasks != translators.TaskingNone
		},
		"the gateway asks at intervals how work stands, and not any more once that has ended",
	},
}

// onSLIM: it speaks MCP there.
func onSLIM(n *nature) bool { return n.binding == slim.Binding && n.words == mcp.Binding }

// chance: whether something is lost of a play is chance.
func chance(play, mark string, from, to *nature) bool {
	for _, h := range hazards {
		if h.covers(play, mark) && h.where(from, to) {
			return true
		}
	}
	return false
}

func (h hazard) covers(play, mark string) bool {
	for pattern, text := range map[string]string{h.play: play, h.mark: mark} {
		if !regexp.MustCompile("^(?:" + pattern + ")$").MatchString(text) {
			return false
		}
	}
	return true
}

// foreseen demands that every hazard is one of what the table has.
func foreseen(t *testing.T, natures map[string]*nature) {
	t.Helper()
	for _, h := range hazards {
		found := false
		for _, line := range declaredMatrix(t) {
			words := strings.Fields(line)
			from, to := natures[words[0]], natures[words[1]]
			for _, mark := range words[2:] {
				bare := strings.Trim(mark, "()")
				found = found || bare != mark && to != nil && h.covers(words[2], bare) && h.where(from, to)
			}
		}
		if !found {
			t.Errorf("nothing is chance because %s (%s)", h.because, h.play)
		}
	}
}
