package server

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/aepb/aepb-gateway/gateway/config"
)

// The watcher looks at every file that the configuration names.
func TestWatcher_ChecksEveryConfiguredFile(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file, named := filepath.Join(dir, "c.yaml"), filepath.Join(dir, "cert.pem")
	text, err := json.Marshal(map[string]any{"identity": map[string]string{"certificate": named}})
	must(t, err)
	must(t, os.WriteFile(file, text, 0o600))
	applied, refused := 0, 0
	var refusal error
	w := &watcher{
		file: file, apply: func(context.Context, config.Config) error { return refusal },
		keep: func(context.Context, bool) error { return nil },
		count: func(ok bool) {
			if applied++; !ok {
				refused++
			}
		},
		logger: slog.New(slog.DiscardHandler),
	}
	step := func(what string, want int, change func()) {
		t.Helper()
		change()
		for range 3 {
			w.look(t.Context(), false)
		}
		if applied != want {
			t.Errorf("%s: looked into %d times, want %d", what, applied, want)
		}
	}
	step("the first time", 1, func() {})
	step("the named file comes", 2, func() { must(t, os.WriteFile(named, []byte("a"), 0o600)) })
	step("and changes", 3, func() { must(t, os.WriteFile(named, []byte("b"), 0o600)) })
	step("its time alone", 3, func() { must(t, os.Chtimes(named, time.Now(), time.Now())) })
	refusal = errors.New("no")
	step("and is bad", 4, func() { must(t, os.WriteFile(named, []byte("c"), 0o600)) })
	refusal = nil
	step("and good again", 5, func() { must(t, os.WriteFile(named, []byte("d"), 0o600)) })
	step("and goes", 6, func() { must(t, os.Remove(named)) })
	if refused != 1 {
		t.Errorf("%d refused", refused)
	}
}
