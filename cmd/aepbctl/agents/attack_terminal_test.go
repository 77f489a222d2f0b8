package agents

import (
	"io"
	"testing"

	"github.com/aepb/aepb-gateway/cmd/aepbctl/terminal/terminaltest"
	"github.com/aepb/aepb-gateway/gateway/directory/admindoc"
)

// TestAttack_AnswersForgeTerminalLines: finding 16, for what agents and gateways say of agents.
func TestAttack_AnswersForgeTerminalLines(t *testing.T) {
	t.Parallel()
	listed := terminaltest.Of[agent]()
	described := terminaltest.Of[agent]()
	described.Description.Error = ""
	other := terminaltest.Of[negotiation]()
	direct := terminaltest.Of[negotiation]()
	direct.Outcome.Path = "direct"
	added := agent{Name: terminaltest.Hostile, Description: &admindoc.Summary{Name: terminaltest.Hostile, Version: terminaltest.Hostile, Capabilities: []string{terminaltest.Hostile}}}
	terminaltest.HarmlessPrints(t, map[string]terminaltest.Print{
		"agents show":          {Print: func(w io.Writer) error { return printAgent(w, listed) }, Lines: 15},
		"agents show, answers": {Print: func(w io.Writer) error { return printAgent(w, described) }, Lines: 19},
		"agents list":          {Print: func(w io.Writer) error { return printAgents(w, []agent{listed}) }, Lines: 3},
		"agents add":           {Print: func(w io.Writer) error { return printAdded(w, "added", added, terminaltest.Hostile, true) }, Lines: 6},
		"negotiate":            {Print: other.print, Lines: 6},
		"negotiate, direct":    {Print: direct.print, Lines: 6},
	})
}
