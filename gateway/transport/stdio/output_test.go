package stdio_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/aepb/aepb-gateway/gateway/transport/stdio"
)

// TestOutput_Bounds: of time and of size, and what fails says so.
func TestOutput_Bounds(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		script, want, reason string
	}{
		"text":       {"echo abc", "abc\n", ""},
		"at most":    {"printf 0123456789", "0123456789", ""},
		"more":       {"printf 01234567890", "", "it wrote too much"},
		"for ever":   {"sleep 600 & wait", "", "it did not end in time"},
		"a failure":  {"exit 3", "", "it failed"},
		"to stderr":  {"echo secret >&2", "", ""},
		"from stdin": {"cat", "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			limit := 20 * time.Second
			if tc.reason == "it did not end in time" {
				limit = 300 * time.Millisecond
			}
			ctx, cancel := context.WithTimeout(t.Context(), limit)
			defer cancel()
			got, err := stdio.Output(ctx, stdio.Program{Command: []string{"sh", "-c", tc.script}}, 10)
			failed, _ := errors.AsType[*stdio.OutputError](err)
			if string(got) != tc.want || (failed == nil) != (tc.reason == "") || failed != nil && failed.Reason != tc.reason {
				t.Errorf("%q %v", got, err)
			}
		})
	}
}
