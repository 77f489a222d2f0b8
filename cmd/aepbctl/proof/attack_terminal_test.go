package proof_test

import (
	"io"
	"testing"

	"github.com/aepb/aepb-gateway/cmd/aepbctl/proof"
	"github.com/aepb/aepb-gateway/cmd/aepbctl/terminal/terminaltest"
	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/ect/audit"
)

// TestAttack_RecordsForgeTerminalLines: finding 16, for what tokens and those who sign them say.
func TestAttack_RecordsForgeTerminalLines(t *testing.T) {
	t.Parallel()
	records := []audit.Record{{Claims: terminaltest.Of[ect.Claims](), Problem: terminaltest.Hostile}}
	verdict := proof.Verdict{Records: records, Findings: terminaltest.Of[[]audit.Finding](), Compared: terminaltest.Of[[]audit.Comparison]()}
	terminaltest.HarmlessPrints(t, map[string]terminaltest.Print{
		"losses":     {Print: proof.LossesOf([]string{terminaltest.Hostile, "L05 carried " + terminaltest.Hostile}).Write, Lines: 2},
		"ect verify": {Print: func(w io.Writer) error { return proof.PrintRecords(w, records) }, Lines: 1},
		"verdict":    {Print: verdict.Print, Lines: 3},
		"dag":        {Print: func(w io.Writer) error { return proof.PrintTree(w, records) }, Lines: 1},
	})
}
