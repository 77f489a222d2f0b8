package python

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/aepb/aepb-gateway/test/interop/devgateway"
)

// approvalPath is in what a caller gets whose call waits.
const approvalPath = "/hitl/approvals/"

// conversation is a client that does what it reads line by line.
type conversation struct {
	in  io.WriteCloser
	out *bufio.Reader
}

// outcome is what a client has got: a task, a result or an error.
type outcome struct {
	ID, State, Text string
	Data            json.RawMessage
}

// converse starts a client; it ends with the test.
func converse(t *testing.T, which, ca string, args ...string) *conversation {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	cmd := exec.CommandContext(ctx, python(t, which), append([]string{"-W", "ignore"}, args...)...)
	cmd.Dir = "peers"
	cmd.Env = append(os.Environ(), "SSL_CERT_FILE="+ca)
	var failures bytes.Buffer
	cmd.Stderr = &failures
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = in.Close()
		_ = cmd.Wait()
		cancel()
		if t.Failed() {
			t.Logf("%s:\n%s", args[0], failures.String())
		}
	})
	return &conversation{in: in, out: bufio.NewReader(out)}
}

// next is what the client prints next.
func (c *conversation) next(t *testing.T) (o outcome) {
	t.Helper()
	line, err := c.out.ReadBytes('\n')
	if err == nil {
		err = json.Unmarshal(line, &o)
	}
	if err != nil {
		t.Fatalf("%v: %s", err, line)
	}
	return o
}

// say has the client do something, and gives the first that it prints.
func (c *conversation) say(t *testing.T, verb, word string) outcome {
	t.Helper()
	line, err := json.Marshal([]string{verb, word})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.in.Write(append(line, '\n')); err != nil {
		t.Fatal(err)
	}
	return c.next(t)
}

// waits has the client do something, and holds it to the state and the path of an approval.
func (c *conversation) waits(t *testing.T, verb, word, state string) outcome {
	t.Helper()
	o := c.say(t, verb, word)
	if o.State != state || !strings.Contains(o.Text+string(o.Data), approvalPath) {
		t.Fatalf("%s %s: %+v (%s), expected %s with the path of an approval", verb, word, o, o.Data, state)
	}
	return o
}

// is holds what came to a state and a text.
func (o outcome) is(t *testing.T, state, text string) {
	t.Helper()
	if o.State != state || !strings.Contains(o.Text+string(o.Data), text) {
		t.Fatalf("%+v (%s), expected %s with %q", o, o.Data, state, text)
	}
}

// guarded is a gateway whose every call needs an approval.
func guarded(t *testing.T, binding, program string) (g *devgateway.Process, ca string) {
	t.Helper()
	config := filepath.Join(t.TempDir(), "gateway.yaml")
	if err := os.WriteFile(config, []byte("policy: {approvals: [{agent: peers}]}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	return gateway(t, binding, server(t, program), "--config", config)
}

// decide decides about the one call that waits.
func decide(t *testing.T, g *devgateway.Process, decision string) {
	t.Helper()
	pending, err := g.Pending(t.Context())
	if err != nil || len(pending) != 1 {
		t.Fatalf("%d approvals wait, expected one (%v)", len(pending), err)
	}
	if err := g.Decide(t.Context(), pending[0], decision, "seen by Ada"); err != nil {
		t.Fatal(err)
	}
}

// TestPython_ApprovalsA2A: the call of a client of A2A waits in a task, which the client follows
// until it is completed, or rejected with the approver's reason.
func TestPython_ApprovalsA2A(t *testing.T) {
	t.Parallel()
	g, ca := guarded(t, "mcp-v1", "server.py")
	for name, c := range map[string]struct{ which, program, waits, completed, rejected string }{
		"1.0": {"new", "approval_a2a.py", "TASK_STATE_AUTH_REQUIRED", "TASK_STATE_COMPLETED", "TASK_STATE_REJECTED"},
		"0.3": {"old", "approval_a2a_old.py", "auth-required", "completed", "rejected"},
	} {
		t.Run(name, func(t *testing.T) {
			client := converse(t, c.which, ca, c.program, g.Public+"/agents/peers")
			for decision, want := range map[string][2]string{"approve": {c.completed, "Grüße"}, "deny": {c.rejected, "seen by Ada"}} {
				task := client.waits(t, "call", "Grüße", c.waits)
				client.waits(t, "follow", task.ID, c.waits)
				decide(t, g, decision)
				last := client.next(t)
				for last.State != want[0] {
					last = client.next(t)
				}
				client.say(t, "get", task.ID).is(t, want[0], want[1])
			}
		})
	}
}

// TestPython_ApprovalsMCP: the call of a client of MCP is an error with the path of its approval
// until it is granted; sent again it is answered once. A denied one is an error with the reason. A task is working
// meanwhile.
func TestPython_ApprovalsMCP(t *testing.T) {
	t.Parallel()
	g, ca := guarded(t, "a2a-v1", "a2a_server.py")
	for name, args := range map[string][]string{
		"1.x":         {"old", "approval_mcp.py"},
		"2.x of 2025": {"new", "approval_mcp2.py", "legacy"},
		"2.x of 2026": {"new", "approval_mcp2.py", "auto"},
	} {
		t.Run(name, func(t *testing.T) {
			client := converse(t, args[0], ca, append([]string{args[1], g.Public + "/agents/peers/mcp"}, args[2:]...)...)
			client.waits(t, "call", name, "error")
			decide(t, g, "approve")
			client.say(t, "call", name).is(t, "completed", name)
			client.waits(t, "call", name, "error")
			decide(t, g, "deny")
			client.say(t, "call", name).is(t, "error", "seen by Ada")
		})
	}
	t.Run("1.x, a task", func(t *testing.T) {
		client := converse(t, "old", ca, "approval_mcp.py", g.Public+"/agents/peers/mcp")
		for decision, want := range map[string][3]string{
			"approve": {"completed", "completed", "Grüße"}, "deny": {"failed", "error", "seen by Ada"},
		} {
			task := client.waits(t, "begin", "Grüße", "working")
			client.waits(t, "get", task.ID, "working")
			decide(t, g, decision)
			client.say(t, "result", task.ID).is(t, want[1], want[2])
			client.say(t, "get", task.ID).is(t, want[0], "")
		}
	})
}
