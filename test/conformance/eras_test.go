package conformance

import (
	"bytes"
	"context"
	"encoding/json"
	"net/http/httptest"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/aepb/aepb-gateway/test/conformance/tasked"
)

// The tasks of MCP 2025-11-25 are spoken by the JavaScript SDK alone: its client
// works here with a server of the extension of 2026-07-28, and its server with
// clients that know of no tasks.

// TestTasks_ClientOf20251125: the SDK's client of 2025-11-25 and a server of the extension.
func TestTasks_ClientOf20251125(t *testing.T) {
	t.Parallel()
	tools := prepare(t)
	server := httptest.NewServer(&tasked.Server{})
	t.Cleanup(server.Close)
	ctx, cancel := context.WithTimeout(t.Context(), suiteTimeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, tools.node, "task-client.mjs", tools.front(t, "tasked", "mcp-v1", server.URL)+"/agents/tasked/mcp")
	cmd.Env = environment()
	var complaints bytes.Buffer
	cmd.Stderr = &complaints
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v\n%s", err, complaints.String())
	}
	var got struct {
		Support []string
		Saw     map[string][]string
		Asked   []string
		Listed  []string
	}
	if err := json.Unmarshal(out, &got); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	want := map[string][]string{
		"greet":          {"completed", "Hello, Ada!"},
		"slow_compute":   {"working", "completed", "computed x"},
		"confirm_delete": {"input_required", "deleted f"},
		"failing_job":    {"working", "failed"},
		"canceled":       {"cancelled", "cancelled"},
	}
	if asking := got.Saw["confirm_delete"]; len(asking) > 2 && asking[0] == "working" {
		got.Saw["confirm_delete"] = asking[1:] // it was seen before it asked
	}
	if failed := got.Saw["failing_job"]; len(failed) > 2 {
		got.Saw["failing_job"] = failed[:2] // then come words of the SDK's own
	}
	if diff := cmp.Diff(want, got.Saw); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	if len(got.Asked) != 1 || got.Asked[0] != "Really?" || len(got.Listed) != 5 || got.Support[0] != "optional" {
		t.Errorf("asked %q, listed %q, tools %q", got.Asked, got.Listed, got.Support)
	}
}

// TestTasks_ToolsThatRequireTasks: the SDK's own examples of servers of 2025-11-25 with tools
// that are tasks and nothing else, and clients that know of no tasks. One of them
// asks before it acts, on the stream of the session, which only clients of older
// revisions have.
func TestTasks_ToolsThatRequireTasks(t *testing.T) {
	t.Parallel()
	tools := prepare(t)
	gateway := start(t, tools.gateway)
	for name, script := range map[string]string{"deleter": "simpleTaskInteractive.js", "waiter": "simpleStreamableHttp.js"} {
		if err := gateway.AddAgent(t.Context(), name, "mcp-v1", tools.example(t, script)+"/mcp"); err != nil {
			t.Fatal(err)
		}
	}
	for _, tc := range []struct {
		version, agent, tool, asks, says string
		args                             map[string]any
	}{
		{"2025-06-18", "deleter", "confirm_delete", "f.txt", "Deleted 'f.txt'", map[string]any{"filename": "f.txt"}},
		{"2025-06-18", "waiter", "delay", "", "Completed 300ms delay", map[string]any{"duration": 300}},
		{"2026-07-28", "waiter", "delay", "", "Completed 300ms delay", map[string]any{"duration": 300}},
	} {
		t.Run(tc.version+" "+tc.tool, func(t *testing.T) {
			http := gateway.Client()
			t.Cleanup(http.CloseIdleConnections)
			requested := ""
			client := mcp.NewClient(&mcp.Implementation{Name: "plain", Version: "1"}, &mcp.ClientOptions{
				ElicitationHandler: func(_ context.Context, r *mcp.ElicitRequest) (*mcp.ElicitResult, error) {
					requested = r.Params.Message
					return &mcp.ElicitResult{Action: "accept", Content: map[string]any{"confirm": true}}, nil
				},
			})
			session, err := client.Connect(t.Context(), &mcp.StreamableClientTransport{Endpoint: gateway.Public + "/agents/" + tc.agent + "/mcp", HTTPClient: http},
				&mcp.ClientSessionOptions{ProtocolVersion: tc.version})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = session.Close() })
			result, err := session.CallTool(t.Context(), &mcp.CallToolParams{Name: tc.tool, Arguments: tc.args})
			if err != nil {
				t.Fatal(err)
			}
			answer, ok := result.Content[0].(*mcp.TextContent)
			if !ok || !strings.Contains(answer.Text, tc.says) || !strings.Contains(requested, tc.asks) {
				t.Errorf("it said %+v after it asked %q", result.Content[0], requested)
			}
		})
	}
}

// example starts one of the example servers of the JavaScript SDK.
func (tools tools) example(t *testing.T, name string) string {
	t.Helper()
	address := free(t)
	_, port, _ := strings.Cut(address, ":")
	if _, err := strconv.Atoi(port); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(tools.node, filepath.Join("node_modules", "@modelcontextprotocol", "sdk", "dist", "esm", "examples", "server", name)) //nolint:noctx // it lives as long as the test
	cmd.Env = append(environment(), "PORT="+port, "MCP_PORT="+port)
	return "http://" + tools.run(t, cmd, address)
}
