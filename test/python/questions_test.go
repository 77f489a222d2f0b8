package python

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/aepb/aepb-gateway/test/interop/askers"
)

// TestPython_QuestionIsOneWorkflow: the answer of an unmodified Python client to a question stays in the workflow of
// the question, at one gateway and over two.
func TestPython_QuestionIsOneWorkflow(t *testing.T) {
	t.Parallel()
	g := askers.Start(t)
	for _, way := range askers.Ways() {
		for _, agent := range askers.Agents() {
			for name, program := range map[string][2]string{"A2A 1.0": {"new", "a2a_client.py"}, "A2A 0.3": {"old", "a2a_old_client.py"}} {
				for _, sending := range []string{"send", "stream"} {
					t.Run(way.Name+", "+name+", "+sending+" to "+agent.Name, func(t *testing.T) {
						got := run(t, program[0], g.CAFile(), program[1], g.Endpoint(way, agent), string(agent.Asks), string(agent.Answer), sending)
						if diff := cmp.Diff([]any{"input-required", "completed"}, got); diff != "" {
							t.Fatalf("the states (-want +got):\n%s", diff)
						}
						g.HasWorkflows(t, way, "A2A", 1)
					})
				}
			}
			for name, c := range map[string]struct {
				which, revision string
				program         []string // and what follows the URL
			}{
				"MCP 1.x":         {"old", "2025-11-25", []string{"mcp_client.py"}},
				"MCP 2.x of 2025": {"new", "2025-11-25", []string{"mcp2_client.py", "legacy"}},
				"MCP 2.x of 2026": {"new", "2026-07-28", []string{"mcp2_client.py", "auto"}},
			} {
				if !way.Asks(agent, c.revision) {
					continue
				}
				t.Run(way.Name+", "+name+" to "+agent.Name, func(t *testing.T) {
					args := append([]string{c.program[0], g.Endpoint(way, agent) + "/mcp"}, c.program[1:]...)
					got := run(t, c.which, g.CAFile(), append(args, agent.Tool, string(agent.Arguments), string(agent.Content))...)
					if diff := cmp.Diff([]any{c.revision, 1.0, false}, got); diff != "" {
						t.Fatalf("revision, questions and failure (-want +got):\n%s", diff)
					}
					g.HasWorkflows(t, way, "MCP", 1)
				})
			}
		}
	}
}
