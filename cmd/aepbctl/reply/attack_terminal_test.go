package reply

import (
	"encoding/json"
	"testing"

	"github.com/aepb/aepb-gateway/cmd/aepbctl/terminal/terminaltest"
	"github.com/aepb/aepb-gateway/translators/canonical"
)

// TestAttack_ReplyForgesTerminalLines: finding 16, for what agents answer: text of an agent that has two lines stands
// behind bars.
func TestAttack_ReplyForgesTerminalLines(t *testing.T) {
	t.Parallel()
	const hostile = terminaltest.Hostile
	text := canonical.Part{Kind: canonical.KindText, Text: hostile}
	all := Reply{
		Parts: []canonical.Part{{Kind: canonical.KindData, Data: json.RawMessage("{\r\n\"a\":\"\u009b31m\u202e\x7f\xff\"}")}, {Kind: canonical.KindRef, URI: hostile, Name: hostile, Media: hostile}},
		State: "failed", Task: hostile, Detail: "one line",
		Questions: []canonical.Input{{Prompt: []canonical.Part{text}, URL: hostile, Schema: json.RawMessage("{\n\"a\":\"\u202e\"}")}},
	}
	terminaltest.HarmlessPrints(t, map[string]terminaltest.Print{
		"send":           {Print: all.Write, Lines: 9},
		"send, one line": {Print: Reply{State: "failed", Detail: "\x1b[8m\u202e"}.Write, Lines: 1},
	})
}
