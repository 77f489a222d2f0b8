package python

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/aepb/aepb-gateway/cmd/aepb-gateway/snippets"
	"github.com/aepb/aepb-gateway/test/interop/devgateway"
)

// TestPython_PrintedClients: the clients that the gateway prints run as printed.
func TestPython_PrintedClients(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		program, binding, skill, input, want string
		a2a                                  bool
	}{
		"A2A client": {"server.py", "mcp-v1", "echo", `{"text":"hello"}`, "hello", true},
		"MCP client": {"a2a_server.py", "a2a-v1", "talk", "", "hello", false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g, ca := gateway(t, c.binding, server(t, c.program))
			var printed strings.Builder
			if err := snippets.Print(&printed, snippets.Agent{Name: "peers", Base: g.Public, CA: ca, Example: snippets.Example{Skill: c.skill, Input: c.input}}, c.a2a); err != nil {
				t.Fatal(err)
			}
			file := filepath.Join(t.TempDir(), "client.py")
			if err := os.WriteFile(file, []byte(devgateway.Snippet(printed.String(), "Python")), 0o600); err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			defer cancel()
			cmd := exec.CommandContext(ctx, python(t, "new"), "-W", "ignore", file)
			cmd.Env = append(os.Environ(), "SSL_CERT_FILE="+ca)
			out, err := cmd.CombinedOutput()
			if err != nil || !strings.Contains(string(out), c.want) {
				t.Errorf("%v, want %q in:\n%s", err, c.want, out)
			}
		})
	}
}
