package terminal_test

import (
	"errors"
	"io"
	"testing"

	"github.com/aepb/aepb-gateway/cmd/aepbctl/terminal"
	"github.com/aepb/aepb-gateway/cmd/aepbctl/terminal/terminaltest"
)

// TestWord_HarmlessTextIsUnchanged: what is no attack is printed as it is.
func TestWord_HarmlessTextIsUnchanged(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"spiffe://example.com/a": "spiffe://example.com/a", "https://a.example:8443/x?y=z": "https://a.example:8443/x?y=z",
		"": "", "My Agent": `"My Agent"`, `a"b`: `"a\"b"`, "line\nbreak": `"line\nbreak"`,
	} {
		if got := terminal.Word(text); got != want {
			t.Errorf("%q is printed as %s", text, got)
		}
	}
	if got := terminal.Line("it is not good: x\n\x1b"); got != `it is not good: x; \x1b` {
		t.Error(got)
	}
	if got := string(terminal.Visible([]byte("{\"a\":\n\"\u202eé\"}"))); got != `{"a": "\u202eé"}` {
		t.Error(got)
	}
}

// TestAttack_ErrorsForgeTerminalLines: why a command failed is one line, whatever others have written of it.
func TestAttack_ErrorsForgeTerminalLines(t *testing.T) {
	t.Parallel()
	terminaltest.HarmlessPrints(t, map[string]terminaltest.Print{"errors": {Print: func(w io.Writer) error {
		terminal.Complain(w, errors.Join(errors.New(terminaltest.Hostile), errors.New("also")))
		return nil
	}, Lines: 1}})
}
