//go:build interop

package python

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"github.com/aepb/aepb-gateway/test/interop/devgateway"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// patience bounds one program.
const patience = 2 * time.Minute

// python is the interpreter of one of the environments that make interop installs: old has
// mcp 1.x and a2a-sdk 0.3, new has mcp 2.x and a2a-sdk 1.x.
func python(t *testing.T, which string) string {
	t.Helper()
	path, err := filepath.Abs(filepath.Join("..", "..", ".tmp", "python-"+which, "bin", "python"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(path); err != nil {
		t.Fatalf("%v: make interop installs it", err)
	}
	return path
}

// server starts the MCP server and returns its URL. Its end is that of the test.
func server(t *testing.T) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), python(t, "new"), "-W", "ignore", "server.py")
	cmd.Dir = "peers"
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = 10 * time.Second
	var failures bytes.Buffer
	cmd.Stderr = &failures
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Wait() })
	line, err := bufio.NewReader(out).ReadString('\n')
	url, ready := strings.CutPrefix(strings.TrimSpace(line), "ready ")
	if err != nil || !ready {
		t.Fatalf("the server says %q, %v\n%s", line, err, failures.String())
	}
	return url
}

// run runs a client against a URL and returns what it has seen. ca is a file with the
// authority that it trusts; empty: the machine's.
func run(t *testing.T, which, ca string, args ...string) any {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, python(t, which), append([]string{"-W", "ignore"}, args...)...)
	cmd.Dir = "peers"
	var failures bytes.Buffer
	cmd.Stderr = &failures
	if ca != "" {
		cmd.Env = append(os.Environ(), "SSL_CERT_FILE="+ca)
	}
	out, err := cmd.Output()
	var seen any
	if err != nil || json.Unmarshal(out, &seen) != nil {
		t.Fatalf("%s: %v\n%s%s", args, err, out, failures.String())
	}
	return seen
}

// gateway starts a development gateway that has the server as agent "peers".
func gateway(t *testing.T, url string) (g *devgateway.Process, ca string) {
	t.Helper()
	dir := t.TempDir()
	binary, err := devgateway.Build(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	home := filepath.Join(dir, ".aepb")
	if g, err = devgateway.Start(t.Context(), devgateway.Deps{Binary: binary, Dir: home}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		if err := g.Stop(ctx); err != nil {
			t.Error(err)
		}
		if t.Failed() {
			t.Logf("gateway:\n%s", g.Output())
		}
	})
	if err := g.AddAgent(t.Context(), "peers", "mcp-v1", url); err != nil {
		t.Fatal(err)
	}
	return g, filepath.Join(home, "ca.pem")
}

// TestPython: what the Python SDKs of MCP see of a server of several revisions through the
// gateway is what they see of it without: its questions, its log, and what it has heard of
// the answers. What those of A2A answer it hears likewise.
func TestPython(t *testing.T) {
	t.Parallel()
	url := server(t)
	g, ca := gateway(t, url)
	through := g.Public + "/agents/peers"
	for name, c := range map[string]struct {
		which string
		args  []string // the program, and what follows the URL
	}{
		"MCP 1.x client":         {"old", []string{"mcp_client.py"}},
		"MCP 2.x client of 2025": {"new", []string{"mcp2_client.py", "legacy"}},
		"MCP 2.x client of 2026": {"new", []string{"mcp2_client.py", "auto"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			args := func(url string) []string { return append([]string{c.args[0], url}, c.args[1:]...) }
			direct, seen := run(t, c.which, "", args(url)...), run(t, c.which, ca, args(through+"/mcp")...)
			if diff := cmp.Diff(direct, seen); diff != "" {
				t.Errorf("through the gateway (-without +with):\n%s", diff)
			}
		})
	}
	want := map[string]any{}
	for action, text := range map[string][2]string{"accept": {"accept Ada", "accept"}, "decline": {"decline", "decline"}, "cancel": {"cancel", "cancel"}} {
		want[action] = map[string]any{
			"greet": []any{"input-required", "completed", text[0]}, "wipe": []any{"input-required", "completed", text[1]},
		}
	}
	for name, c := range map[string][2]string{"A2A 1.0 client": {"new", "a2a_client.py"}, "A2A 0.3 client": {"old", "a2a_old_client.py"}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if diff := cmp.Diff(any(want), run(t, c[0], ca, c[1], through)); diff != "" {
				t.Errorf("what it sees (-want +got):\n%s", diff)
			}
		})
	}
}
