package python

import (
	"path/filepath"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/aepb/aepb-gateway/gateway/transport/stdio"
	"github.com/aepb/aepb-gateway/test/interop/devgateway"
)

// TestPython_Framework: an agent of the OpenAI Agents SDK, with a model that follows a script,
// uses an A2A agent as its tool, which is itself such an agent.
func TestPython_Framework(t *testing.T) {
	t.Parallel()
	g, ca := gateway(t, "a2a-v1", server(t, "framework_server.py"))
	got := run(t, "new", ca, "framework_client.py", g.Public+"/agents/peers/mcp")
	want := map[string]any{
		"tools":  []any{"talk"},
		"output": "the tool answered: the framework answers: Grüße, 世界",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

// TestPython_FastMCP: an A2A client of Python uses a FastMCP server over standard input and
// output.
func TestPython_FastMCP(t *testing.T) {
	t.Parallel()
	script, err := filepath.Abs(filepath.Join("peers", "fastmcp_server.py"))
	if err != nil {
		t.Fatal(err)
	}
	program := stdio.Program{Command: []string{python(t, "old"), "-W", "ignore", script, "stdio"}}
	talksToFastMCP(t, program.URL())
}

// TestPython_FastMCPOverSSE: the same over HTTP with SSE.
func TestPython_FastMCPOverSSE(t *testing.T) {
	t.Parallel()
	talksToFastMCP(t, serverOf(t, "old", "fastmcp_server.py", "sse"))
}

// TestPython_FastMCPOverHTTP: the same over Streamable HTTP.
func TestPython_FastMCPOverHTTP(t *testing.T) {
	t.Parallel()
	talksToFastMCP(t, serverOf(t, "old", "fastmcp_server.py", "http"))
}

// TestPython_FastMCPWithoutStreams: a FastMCP server whose replies are no streams can neither ask
// nor say how far it is.
func TestPython_FastMCPWithoutStreams(t *testing.T) {
	t.Parallel()
	g, ca := gateway(t, "mcp-v1", serverOf(t, "old", "fastmcp_server.py", "json"))
	napsInFastMCP(t, g, ca)
}

func talksToFastMCP(t *testing.T, url string) {
	t.Helper()
	g, ca := gateway(t, "mcp-v1", url)
	got := run(t, "new", ca, "fastmcp_talk.py", g.Public+"/agents/peers/")
	want := map[string]any{
		"skills":  []any{"count", "echo", "greet", "nap", "naps"},
		"echo":    []any{"completed", "Grüße, 世界"},
		"asked":   "input-required",
		"greeted": []any{"completed", "accept Ada"},
		"steps":   []any{"step 1", "step 2", "step 3"},
		"counted": "counted",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	napsInFastMCP(t, g, ca, "step 1", "step 2", "step 3")
}

// napsInFastMCP: whatever its tools take for their replies, a client of Python has each, once, and
// with no warning.
func napsInFastMCP(t *testing.T, g *devgateway.Process, ca string, steps ...any) {
	t.Helper()
	slept := func(seconds string) any { return []any{false, "slept " + seconds, []any{}, "1"} }
	each := map[string]any{
		"0.3 without progress": slept("0.3"), "0.3 with progress": slept("0.3"),
		"5 without progress": slept("5.0"), "5 with progress": slept("5.0"),
		"count": []any{false, "counted", append([]any{}, steps...)},
	}
	eachOfFast := map[string]any{"0.3": []any{false, "slept 0.3", "1"}, "5": []any{false, "slept 5.0", "1"}}
	var clients sync.WaitGroup
	for name, c := range map[string]struct {
		which, program string
		want           any
	}{
		"mcp":     {"old", "slow_client.py", map[string]any{"http": each, "sse": each, "warnings": []any{}}},
		"fastmcp": {"fastmcp", "fastmcp_client.py", map[string]any{"http": eachOfFast, "sse": eachOfFast, "warnings": []any{}}},
	} {
		interpreter := python(t, c.which)
		clients.Go(func() {
			got, err := runBeside(t.Context(), interpreter, ca, c.program, g.Public+"/agents/peers/mcp")
			if diff := cmp.Diff(c.want, got); diff != "" || err != nil {
				t.Errorf("%s: %v %s", name, err, diff)
			}
		})
	}
	clients.Wait()
}

// TestPython_ClientOverSSE: an MCP client of Python that speaks HTTP with SSE uses an A2A
// agent of Python.
func TestPython_ClientOverSSE(t *testing.T) {
	t.Parallel()
	g, ca := gateway(t, "a2a-v1", server(t, "a2a_server.py"))
	got := run(t, "old", ca, "mcp_sse.py", g.Public+"/agents/peers/mcp/sse")
	want := map[string]any{
		"tools": []any{"talk"}, "answer": "Grüße, 世界", "steps": []any{"one", "two", "three"}, "counted": "counted",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}
