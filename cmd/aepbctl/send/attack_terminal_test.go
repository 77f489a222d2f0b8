package send

import (
	"errors"
	"io"
	"testing"

	"github.com/aepb/aepb-gateway/cmd/aepbctl/terminal/terminaltest"
	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/ect/audit"
)

// TestAttack_ExchangeForgesTerminalLines: finding 16, for what messages, and tokens beside them, say.
func TestAttack_ExchangeForgesTerminalLines(t *testing.T) {
	t.Parallel()
	records := []audit.Record{{Claims: terminaltest.Of[ect.Claims](), Problem: terminaltest.Hostile}}
	terminaltest.HarmlessPrints(t, map[string]terminaltest.Print{
		"send -v":          {Print: func(w io.Writer) error { return terminaltest.Of[delivery]().write(w, records) }, Lines: 3},
		"proof":            {Print: func(w io.Writer) error { return printProof(w, records, nil, "") }, Lines: 1},
		"proof, not valid": {Print: func(w io.Writer) error { return printProof(w, records, errors.New(terminaltest.Hostile), "") }, Lines: 1},
		"translate":        {Print: terminaltest.Of[translation]().print, Lines: 2}, //nolint:forbidigo // a method of that name
	})
}
