package profile_test

import (
	"strings"
	"testing"

	"github.com/aepb/aepb-gateway/translators/canonical"
	"github.com/aepb/aepb-gateway/translators/internal/profile"
)

// TestForeignLosses_NameMembers: the place of a loss names the member, unless a peer chose a name that is no short word, or too many.
func TestForeignLosses_NameMembers(t *testing.T) {
	t.Parallel()
	var many []string
	for _, name := range "abcdefghijklmnopqrstuvwxyz" {
		many = append(many, `"`+string(name)+`":1`)
	}
	for own, want := range map[string]string{
		`{"priority":1}`:                        "L29 carried /body/extensions/mcp-v1/priority",
		`{"_meta":{"a":1},"b":2}`:               "L30 carried /body/extensions/mcp-v1/_meta, L29 carried /body/extensions/mcp-v1/b",
		`{"isError":false}`:                     "",
		`{"a b":1,"c/d":1,"e~":1}`:              "L29 carried /body/extensions/mcp-v1",
		`{"` + strings.Repeat("x", 41) + `":1}`: "L29 carried /body/extensions/mcp-v1",
	} {
		var got []string
		for _, loss := range profile.ForeignLosses(canonical.Extensions{"mcp-v1": []byte(own)}, "a2a-v1", "/body") {
			got = append(got, loss.String())
		}
		if strings.Join(got, ", ") != want {
			t.Errorf("%s: %s, want %s", own, strings.Join(got, ", "), want)
		}
	}
	if got := profile.ForeignLosses(canonical.Extensions{"mcp-v1": []byte("{" + strings.Join(many, ",") + "}")}, "a2a-v1", "/body"); len(got) != 9 || got[8].Path != "/body/extensions/mcp-v1" {
		t.Errorf("26 members: %v", got)
	}
}
