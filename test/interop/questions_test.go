package interop

import (
	"encoding/json"
	"testing"

	"github.com/aepb/aepb-gateway/test/interop/askers"
)

// TestQuestion_IsOneWorkflow: the answer of an unmodified JavaScript client to a question stays in the workflow of the
// question, at one gateway and over two.
func TestQuestion_IsOneWorkflow(t *testing.T) {
	t.Parallel()
	js, g := newJavascript(t), askers.Start(t)
	for _, way := range askers.Ways() {
		for _, agent := range askers.Agents() {
			for name, stream := range map[string]bool{"A2A": false, "A2A in streams": true} {
				t.Run(way.Name+", "+name+" to "+agent.Name, func(t *testing.T) {
					job := jsA2AJob{Base: g.Endpoint(way, agent) + "/", Talk: true, Stream: stream}
					for _, part := range []json.RawMessage{agent.Asks, agent.Answer} {
						job.Messages = append(job.Messages, []jsPart{remarshal[jsPart](t, part)})
					}
					var got jsA2AReport
					js.run(t, g.CAFile(), "a2a-client.mjs", job, &got)
					if len(got.Results) != 2 || got.Results[0].State != "TASK_STATE_INPUT_REQUIRED" || got.Results[1].State != "TASK_STATE_COMPLETED" {
						t.Fatalf("%s", mustJSON(got.Results))
					}
					g.HasWorkflows(t, way, "A2A", 1)
				})
			}
			for mode, revision := range map[string]string{"auto": modernMCP, "legacy": legacyMCP} {
				if !way.Asks(agent, revision) {
					continue
				}
				t.Run(way.Name+", MCP "+revision+" to "+agent.Name, func(t *testing.T) {
					answer := mustJSON(map[string]any{"action": "accept", "content": agent.Content})
					job := jsMCPJob{
						Endpoint: g.Endpoint(way, agent) + "/mcp", Mode: mode, Calls: []jsCall{{agent.Tool, agent.Arguments}},
						Answers: map[string]json.RawMessage{"elicitation/create": answer},
					}
					var got jsMCPReport
					js.run(t, g.CAFile(), "mcp-client.mjs", job, &got)
					if got.Version != revision || len(got.Asked) != 1 || len(got.Results) != 1 || got.Results[0].Error != nil || got.Results[0].IsError {
						t.Fatalf("%s asked %s: %s", got.Version, mustJSON(got.Asked), mustJSON(got.Results))
					}
					g.HasWorkflows(t, way, "MCP", 1)
				})
			}
		}
	}
}
