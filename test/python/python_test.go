package python

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
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

// python is the interpreter of one of the environments that make test installs: old has
// mcp 1.x and a2a-sdk 0.3, new has mcp 2.x and a2a-sdk 1.x, fastmcp has the package fastmcp.
func python(t *testing.T, which string) string {
	t.Helper()
	path, err := filepath.Abs(filepath.Join("..", "..", ".tmp", "python-"+which, "bin", "python"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(path); err != nil {
		t.Fatalf("%v: make interop installs it and runs this", err)
	}
	return path
}

// server starts a program of peers that serves, and returns its URL. Its end, and that of all it started, is that of the test.
func server(t *testing.T, program string) string {
	t.Helper()
	return serverOf(t, "new", program)
}

// serverOf is server in one of the environments, with arguments.
func serverOf(t *testing.T, which, program string, arguments ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), python(t, which), append([]string{"-W", "ignore", program}, arguments...)...)
	cmd.Dir = "peers"
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGTERM) }
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
	t.Cleanup(func() {
		_ = cmd.Wait()
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) // whoever is left
		if t.Failed() {
			t.Logf("%s:\n%s", program, failures.String())
		}
	})
	line, err := bufio.NewReader(out).ReadString('\n')
	url, ready := strings.CutPrefix(strings.TrimSpace(line), "ready ")
	if err != nil || !ready {
		t.Fatalf("%s says %q, %v", program, line, err)
	}
	return url
}

// run runs a client against a URL and returns what it has seen. ca is a file with the
// authority that it trusts; empty: the machine's.
func run(t *testing.T, which, ca string, args ...string) any {
	t.Helper()
	seen, err := runBeside(t.Context(), python(t, which), ca, args...)
	if err != nil {
		t.Fatal(err)
	}
	return seen
}

// runBeside is run for one that others run beside, with the interpreter.
func runBeside(ctx context.Context, interpreter, ca string, args ...string) (seen any, err error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, interpreter, append([]string{"-W", "ignore"}, args...)...)
	cmd.Dir = "peers"
	var failures bytes.Buffer
	cmd.Stderr = &failures
	if ca != "" {
		cmd.Env = append(os.Environ(), "SSL_CERT_FILE="+ca)
	}
	out, err := cmd.Output()
	if err == nil {
		err = json.Unmarshal(out, &seen)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w\n%s%s", args, err, out, failures.String())
	}
	return seen, nil
}

// gateway starts a development gateway that has the server at a URL as agent "peers".
func gateway(t *testing.T, binding, url string, flags ...string) (g *devgateway.Process, ca string) {
	t.Helper()
	dir := t.TempDir()
	binary, err := devgateway.Build(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	home := filepath.Join(dir, ".aepb")
	if g, err = devgateway.Start(t.Context(), devgateway.Deps{Binary: binary, Dir: home, Args: flags}); err != nil {
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
	if err := g.AddAgent(t.Context(), "peers", binding, url); err != nil {
		t.Fatal(err)
	}
	return g, filepath.Join(home, "ca.pem")
}

// answered is what a tool returns after each answer to a form with a name, and to one with
// nothing in it.
func answered(action string) (name, nothing string) {
	if action == "accept" {
		return "accept Ada", "accept"
	}
	return action, action
}

// noWay is what the server's SDK says when a tool asks by a request in a revision that has none.
const noWay = "Cannot send 'elicitation/create': this transport context has no back-channel for server-initiated requests."

// seenByMCP is what a client of MCP sees: two tools ask by a request, which takes a revision
// with sessions, and two in the way of the client's revision.
func seenByMCP(revision string, sessions bool) any {
	want := map[string]any{}
	for _, action := range []string{"accept", "decline", "cancel"} {
		name, nothing := answered(action)
		questions := []any{"What is your name?", "Delete all?", "Order in what name?", "Purge all?"}
		results := map[string]any{
			"greet": name, "wipe": nothing, "order": name, "purge": nothing, "echo": "Grüße, 世界", "report": "logged",
		}
		if !sessions {
			questions, results["greet"], results["wipe"] = questions[2:], noWay, noWay
		}
		want[action] = map[string]any{"version": revision, "asked": questions, "logs": []any{"one", "two", "three"}, "heard": results}
	}
	return want
}

// seenByA2A is what a client of A2A sees: each tool asks.
func seenByA2A() any {
	want := map[string]any{}
	for _, action := range []string{"accept", "decline", "cancel"} {
		name, nothing := answered(action)
		ends := func(text string) any { return []any{"input-required", "completed", text} }
		want[action] = map[string]any{"greet": ends(name), "wipe": ends(nothing), "order": ends(name), "purge": ends(nothing)}
	}
	return want
}

// TestPython_SameAsWithoutGateway: what the Python SDKs of MCP see of a server of several revisions through the
// gateway is what they see of it without: its questions, its log, and what it has heard of
// the answers. What those of A2A answer it hears likewise.
func TestPython_SameAsWithoutGateway(t *testing.T) {
	t.Parallel()
	url := server(t, "server.py")
	g, ca := gateway(t, "mcp-v1", url)
	through := g.Public + "/agents/peers"
	for name, c := range map[string]struct {
		which string
		args  []string // the program, and what follows the URL
		want  any
	}{
		"MCP 1.x client":         {"old", []string{"mcp_client.py"}, seenByMCP("2025-11-25", true)},
		"MCP 2.x client of 2025": {"new", []string{"mcp2_client.py", "legacy"}, seenByMCP("2025-11-25", true)},
		"MCP 2.x client of 2026": {"new", []string{"mcp2_client.py", "auto"}, seenByMCP("2026-07-28", false)},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			args := func(url string) []string { return append([]string{c.args[0], url}, c.args[1:]...) }
			if diff := cmp.Diff(c.want, run(t, c.which, "", args(url)...)); diff != "" {
				t.Errorf("without the gateway (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(c.want, run(t, c.which, ca, args(through+"/mcp")...)); diff != "" {
				t.Errorf("through the gateway (-want +got):\n%s", diff)
			}
		})
	}
	for name, c := range map[string][2]string{"A2A 1.0 client": {"new", "a2a_client.py"}, "A2A 0.3 client": {"old", "a2a_old_client.py"}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if diff := cmp.Diff(seenByA2A(), run(t, c[0], ca, c[1], through)); diff != "" {
				t.Errorf("what it sees (-want +got):\n%s", diff)
			}
		})
	}
}

// TestPython_MCPToA2A: a client built with the SDK of MCP uses an agent built with that of
// A2A: the agent's skill is a tool, its steps are progress, its question is an elicitation,
// its failure an error; and a canceled call is a canceled task.
func TestPython_MCPToA2A(t *testing.T) {
	t.Parallel()
	url := server(t, "a2a_server.py")
	g, ca := gateway(t, "a2a-v1", url)
	want := any(map[string]any{
		"tools": []any{"talk"},
		"asked": []any{"What is your name?"},
		"heard": map[string]any{
			"Grüße, 世界": []any{false, "Grüße, 世界"}, "count": []any{false, "counted"},
			"greet": []any{false, "Hello, Ada!"}, "fail": []any{true, "out of order"},
			"canceled?": []any{false, "canceled"},
		},
		"progress": map[string]any{
			"Grüße, 世界": []any{}, "count": []any{"one", "two", "three"}, "greet": []any{}, "fail": []any{},
		},
	})
	if diff := cmp.Diff(want, run(t, "old", ca, "mcp_talk.py", g.Public+"/agents/peers/mcp")); diff != "" {
		t.Errorf("what the client sees (-want +got):\n%s", diff)
	}
}

// TestPython_A2AToMCP: a client built with the SDK of A2A finds the tools of a server built
// with that of MCP on its card, streams their progress and cancels them.
func TestPython_A2AToMCP(t *testing.T) {
	t.Parallel()
	g, ca := gateway(t, "mcp-v1", server(t, "server.py"))
	want := any(map[string]any{
		"skills": []any{"canceled", "count", "echo", "greet", "order", "purge", "report", "wait", "wipe"},
		"steps":  []any{"one", "two", "three"}, "texts": []any{"counted"}, "last": "TASK_STATE_COMPLETED",
		"canceled": "TASK_STATE_CANCELED", "heard": "canceled",
	})
	if diff := cmp.Diff(want, run(t, "new", ca, "a2a_talk.py", g.Public+"/agents/peers")); diff != "" {
		t.Errorf("what the client sees (-want +got):\n%s", diff)
	}
}
