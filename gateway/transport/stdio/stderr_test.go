package stdio

import (
	"log/slog"
	"testing"
	"time"
)

// TestWritings_KeepFirstAndLastLines: the first lines name what failed, such as a package, and the last ones
// say why the program ended.
func TestWritings_KeepFirstAndLastLines(t *testing.T) {
	t.Parallel()
	for want, lines := range map[string][]string{
		"":                        nil,
		"1; 2":                    {"1", "2"},
		"1; 2; 3; 4; 5; 6":        {"1", "2", "3", "4", "5", "6"},
		"1; 2; …; 5; 6; 7; 8":     {"1", "2", "3", "4", "5", "6", "7", "8"},
		"code; name; 3; 4; 5; no": {"code", "", "name", "3", "4", "5", "no"},
	} {
		w := newWritings(slog.New(slog.DiscardHandler), time.Now, nil)
		for _, line := range lines {
			w.say(t.Context(), "program wrote", []byte(line+"\n"))
		}
		if got := w.lines(); got != want {
			t.Errorf("%q are kept as %q, want %q", lines, got, want)
		}
	}
}
