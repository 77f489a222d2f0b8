package agents

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestPrintRules_OfAnAgent(t *testing.T) {
	t.Parallel()
	var a agent
	a.Callers, a.Tools = []string{"spiffe://example.com/a#invoke:read_*", "spiffe://example.com/b"}, []string{"read_*"}
	a.ToolNames = map[string]string{"read_b": "b", "read_a": "a"}
	var out strings.Builder
	printRules(&out, a)
	want := "  may be called by: spiffe://example.com/a#invoke:read_*, spiffe://example.com/b\n  offers alone: read_*\n  offers read_a as a\n  offers read_b as b\n"
	if diff := cmp.Diff(want, out.String()); diff != "" {
		t.Error(diff)
	}
	out.Reset()
	if printRules(&out, agent{}); out.Len() > 0 {
		t.Errorf("an agent without rules: %s", out.String())
	}
}
