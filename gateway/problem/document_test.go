package problem

import (
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestHTTPDocument_HasTheCodes: the table of errors in docs/http-api.md has each code with its usual status.
func TestHTTPDocument_HasTheCodes(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile(filepath.Join("..", "..", "docs", "http-api.md"))
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]string{}
	for _, row := range regexp.MustCompile("(?m)^\\| `([a-z_]+)` \\| ([0-9]{3}) \\|").FindAllStringSubmatch(string(text), -1) {
		if _, twice := got[row[1]]; twice {
			t.Errorf("%s has two rows", row[1])
		}
		got[row[1]] = row[2]
	}
	want := map[string]string{}
	for code, k := range kinds {
		want[code] = strconv.Itoa(k.status)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-code +document):\n%s", diff)
	}
}
