package interop

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

// printedClients run as the gateway prints them, each with the trust that it names.
func printedClients(t *testing.T, g *gw) {
	g.toolbox(t, "snippet-server", false)
	g.concierge(t, "snippet-agent")
	js := newJavascript(t)
	ca := filepath.Join(g.Dir, "ca.pem")
	for name, agent := range map[string]struct {
		snippets.Agent
		a2a  bool
		want string
	}{
		"A2A client": {snippets.Agent{Name: "snippet-server", Example: snippets.Example{Skill: "echo", Input: `{"message":"hello"}`}}, true, "hello"},
		"MCP client": {snippets.Agent{Name: "snippet-agent", Example: snippets.Example{Skill: "concierge"}}, false, "hello"},
	} {
		agent.Base, agent.CA = g.Public, ca
		var printed strings.Builder
		if err := snippets.Print(&printed, agent.Agent, agent.a2a); err != nil {
			t.Fatal(err)
		}
		write := func(dir, file, language string) string {
			path := filepath.Join(dir, file)
			if err := os.WriteFile(path, []byte(devgateway.Snippet(printed.String(), language)), 0o600); err != nil {
				t.Fatal(err)
			}
			return path
		}
		check := func(t *testing.T, cmd *exec.Cmd, want string) {
			t.Helper()
			cmd.Env = append(cmd.Environ(), "SSL_CERT_FILE="+ca, "NODE_EXTRA_CA_CERTS="+ca)
			out, err := cmd.CombinedOutput()
			if err != nil || !strings.Contains(string(out), want) {
				t.Errorf("%v, want %q in:\n%s", err, want, out)
			}
		}
		within := func(t *testing.T) context.Context {
			t.Helper()
			ctx, cancel := context.WithTimeout(t.Context(), installTimeout)
			t.Cleanup(cancel)
			return ctx
		}
		t.Run(name+" in JavaScript", func(t *testing.T) {
			dir := scratch(t, "js") // where its packages are found
			check(t, exec.CommandContext(within(t), js.node, write(dir, "client.mjs", "JavaScript")), agent.want)
		})
		t.Run(name+" in Go", func(t *testing.T) {
			dir := scratch(t, ".") // in this module, which has its packages
			write(dir, "main.go", "Go")
			check(t, exec.CommandContext(within(t), "go", "run", "./"+dir), agent.want)
		})
		t.Run(name+" with curl", func(t *testing.T) {
			if _, err := exec.LookPath("curl"); err != nil {
				t.Skip("there is no curl here")
			}
			want := agent.want
			if !agent.a2a {
				want = "concierge" // it lists the tools
			}
			script := devgateway.Snippet(printed.String(), "curl")
			check(t, exec.CommandContext(within(t), "sh", "-c", script), want)
		})
	}
}

// scratch is a folder below another one, for the time of a test.
func scratch(t *testing.T, below string) string {
	t.Helper()
	dir, err := os.MkdirTemp(below, ".snippet-") //nolint:usetesting // it has to be below that folder
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}
