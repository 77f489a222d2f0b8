package conformance

import (
	"bytes"
	"context"
	"net/http/httptest"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/aepb/aepb-gateway/test/conformance/tasked"
)

// taskScenarios are those of the extension io.modelcontextprotocol/tasks.
var taskScenarios = []string{
	"tasks-lifecycle", "tasks-capability-negotiation", "tasks-wire-fields", "tasks-request-state-removal", "tasks-mrtr-input",
	"tasks-request-headers", "tasks-dispatch-and-envelope", "tasks-status-notifications", "tasks-required-task-error", "tasks-mrtr-composition",
}

// TestTasks_ScenariosOfTheExtension runs the scenarios of the tasks extension against a server that has
// tasks: directly, so that the server is known to be right, and through the gateway.
func TestTasks_ScenariosOfTheExtension(t *testing.T) {
	t.Parallel()
	tools := prepare(t)
	server := httptest.NewServer(&tasked.Server{})
	t.Cleanup(server.Close)
	behind := tools.front(t, "tasked", "mcp-v1", server.URL) + "/agents/tasked/mcp"
	for at, url := range map[string]string{"directly": server.URL, "through the gateway": behind} {
		for _, scenario := range taskScenarios {
			t.Run(at+"/"+scenario, func(t *testing.T) {
				t.Parallel()
				tools.scenario(t, scenario, url)
			})
		}
	}
}

// scenario runs one scenario, which must pass.
func (tools tools) scenario(t *testing.T, name, url string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), suiteTimeout)
	defer cancel()
	script := filepath.Join("node_modules", "@modelcontextprotocol", "conformance", "dist", "index.js")
	cmd := exec.CommandContext(ctx, tools.node, script, "server", "--url", url, "--scenario", name, "-o", t.TempDir())
	cmd.Env = environment()
	out, err := cmd.CombinedOutput()
	if err != nil || !bytes.Contains(out, []byte("Test Results:")) {
		t.Errorf("%v\n%s", err, out)
	}
}
