package doctor

import (
	"io"
	"testing"

	"github.com/aepb/aepb-gateway/cmd/aepbctl/terminal/terminaltest"
)

// TestAttack_FindingForgesTerminalLines: finding 16, for what was found at agents and gateways.
func TestAttack_FindingForgesTerminalLines(t *testing.T) {
	t.Parallel()
	terminaltest.HarmlessPrints(t, map[string]terminaltest.Print{
		"doctor": {Print: func(w io.Writer) error { printFinding(w, terminaltest.Of[Finding]()); return nil }, Lines: 2},
	})
}
