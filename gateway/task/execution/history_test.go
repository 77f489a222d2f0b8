package execution

import (
	"strings"
	"testing"

	"github.com/aepb/aepb-gateway/translators/canonical"
)

// TestHistory_IsBounded: of a long talk the newest messages are kept, by count and by
// bytes; what is too large by itself is not.
func TestHistory_IsBounded(t *testing.T) {
	t.Parallel()
	message := func(bytes int) canonical.Content {
		return canonical.Content{Parts: []canonical.Part{{Kind: canonical.KindText, Text: strings.Repeat("x", bytes)}}}
	}
	beside := canonical.Content{Extensions: canonical.Extensions{"a2a-v1": []byte(strings.Repeat("x", MaxRequest))}}
	for name, c := range map[string]struct {
		history []canonical.Content
		left    int
	}{
		"few":          {[]canonical.Content{message(1), message(1)}, 2},
		"many":         {make([]canonical.Content, maxHistory+3), maxHistory},
		"large":        {[]canonical.Content{message(1), message(MaxRequest - 10), message(10)}, 2},
		"too large":    {[]canonical.Content{message(1), message(MaxRequest + 1)}, 0},
		"large beside": {[]canonical.Content{message(1), beside}, 1},
	} {
		if got := Newest(c.history); len(got) != c.left {
			t.Errorf("%s: %d are kept, want %d", name, len(got), c.left)
		}
	}
}
