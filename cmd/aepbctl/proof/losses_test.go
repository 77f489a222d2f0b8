package proof_test

import (
	"bytes"
	"testing"

	"github.com/aepb/aepb-gateway/cmd/aepbctl/proof"
)

// TestLosses_NameMembers: a loss of what one protocol alone knows says what that is.
func TestLosses_NameMembers(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	losses := proof.LossesOf([]string{
		"L29 carried /body/extensions/mcp-v1/priority", "L29 carried /body/parts/0/extensions/mcp-v1/priority", "L29 carried /body/extensions/mcp-v1/color",
		"L29 dropped /body/extensions/mcp-v1", "L01 carried /conversation/contextID", "L30 carried /body/extensions/mcp-v1/_meta",
	})
	if err := losses.Write(&out); err != nil {
		t.Fatal(err)
	}
	want := "kept as extension: context, task, reference and message ids, tenant (L01); members that only the source protocol knows: priority, color (L29); metadata and extension URIs of messages, parts, results: _meta (L30)\n" +
		"lost: members that only the source protocol knows (L29)\n"
	if out.String() != want {
		t.Errorf("got %q, want %q", &out, want)
	}
}
