package canonical_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/aepb/aepb-gateway/translators/canonical"
)

// The table of losses stands in docs/losses.md between these marks. To write it anew:
// AEPB_UPDATE_LOSSES=1 go test -run TestCatalogue_Page ./translators/canonical.
const (
	lossesBegin = "<!-- losses: made from translators/canonical/catalogue.go -->\n"
	lossesEnd   = "<!-- end of losses -->"
	lossesEnv   = "AEPB_UPDATE_LOSSES"
)

// TestCatalogue_Page: docs/losses.md has the rows of the catalogue and no others.
func TestCatalogue_Page(t *testing.T) {
	t.Parallel()
	file := filepath.Join("..", "..", "docs", "losses.md")
	page, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	head, rest, begins := strings.Cut(string(page), lossesBegin)
	got, tail, ends := strings.Cut(rest, lossesEnd)
	if !begins || !ends {
		t.Fatalf("%s has no place for the table of losses: add the lines %q and %q", file, lossesBegin, lossesEnd)
	}
	var want strings.Builder
	want.WriteString("\n| code | what | such as | weight | usually |\n|---|---|---|---|---|\n")
	for _, e := range canonical.Catalogue() {
		fmt.Fprintf(&want, "| %s | %s | %s | %s | %s |\n", e.Code, e.What, e.Example, e.Weight, e.Fate)
	}
	want.WriteString("\n")
	if got == want.String() {
		return
	}
	if os.Getenv(lossesEnv) == "" {
		t.Fatalf("the table in %s is not that of the catalogue: %s=1 writes it", file, lossesEnv)
	}
	if err := os.WriteFile(file, []byte(head+lossesBegin+want.String()+lossesEnd+tail), 0o600); err != nil {
		t.Fatal(err)
	}
}
