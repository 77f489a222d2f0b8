package server

import (
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/aepb/aepb-gateway/gateway/config"
	"github.com/aepb/aepb-gateway/gateway/directory"
	"github.com/aepb/aepb-gateway/translators/canonical"
)

// TestPins_SurviveRestart: what was pinned, and what waits, is there after a restart.
func TestPins_SurviveRestart(t *testing.T) {
	t.Parallel()
	s := Config{Settings: config.Config{State: config.State{Path: filepath.Join(t.TempDir(), "state.db")}}}
	pin := directory.Pin{
		Hash: "h", Description: canonical.Description{
			Name: "toy", Capabilities: []canonical.Capability{{ID: "add", InputSchema: []byte(`{"type":"object","maximum":9007199254740993}`)}},
			Extensions: canonical.Extensions{"mcp-v1": []byte(`{"a":1}`)},
		},
		Pending: &directory.Pin{Hash: "i", Description: canonical.Description{Name: "toy"}},
	}
	for round := range 2 {
		stored, err := openState(s)
		must(t, err)
		p := pins{entries: stored.entries, now: time.Now}
		if round == 0 {
			must(t, p.KeepPin(t.Context(), "a mcp-v1 ", directory.Pin{Hash: "first"}))
			must(t, p.KeepPin(t.Context(), "a mcp-v1 ", pin))
		}
		got, ok, err := p.Pinned(t.Context(), "a mcp-v1 ")
		if diff := cmp.Diff(pin, got); err != nil || !ok || diff != "" {
			t.Errorf("round %d: %v %v %s", round, ok, err, diff)
		}
		if len(got.Changes()) != len(pin.Changes()) {
			t.Errorf("changes: %v", got.Changes())
		}
		if _, ok, err := p.Pinned(t.Context(), "b mcp-v1 "); ok || err != nil {
			t.Errorf("a pin of nobody: %v", err)
		}
		must(t, stored.driver.close())
	}
}
