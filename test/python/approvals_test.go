package python

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/aepb/aepb-gateway/test/interop/devgateway"
)

// TestPython_Approvals: clients built with the SDKs call a tool that needs an approver. One of A2A sees its task wait and
// end; one of MCP is refused with the path of the approval, and its call goes through once it is granted.
func TestPython_Approvals(t *testing.T) {
	t.Parallel()
	config := filepath.Join(t.TempDir(), "gateway.yaml")
	if err := os.WriteFile(config, []byte("policy: {approvals: [{tool: echo}]}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	g, ca := gateway(t, "mcp-v1", server(t, "server.py"), "--config", config)
	through := g.Public + "/agents/peers"
	for name, c := range map[string]struct {
		args []string
		want any
	}{
		"A2A 1.0":         {[]string{"a2a_waits.py", through}, map[string]any{"first": "auth-required", "last": "completed", "text": "Grüße"}},
		"MCP 2.x of 2025": {[]string{"mcp_waits.py", through + "/mcp", "legacy"}, map[string]any{"refused": true, "text": "Grüße"}},
		"MCP 2.x of 2026": {[]string{"mcp_waits.py", through + "/mcp", "auto"}, map[string]any{"refused": true, "text": "Grüße"}},
	} {
		ctx, stop := context.WithCancel(t.Context())
		approved := make(chan error, 1)
		go func() { approved <- approveFirst(ctx, g) }()
		if diff := cmp.Diff(c.want, run(t, "new", ca, c.args...)); diff != "" {
			t.Errorf("%s: what the client sees (-want +got):\n%s", name, diff)
		}
		stop()
		if err := <-approved; err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// approveFirst approves the first call that waits.
func approveFirst(ctx context.Context, g *devgateway.Process) error {
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		pending, err := g.Pending(ctx)
		if err != nil {
			return err
		}
		if len(pending) > 0 {
			return g.Decide(ctx, pending[0], "approve", "seen")
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}
