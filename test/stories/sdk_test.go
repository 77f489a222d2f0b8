package stories

import (
	"encoding/json"
	"strconv"
	"strings"
	"testing"

	"github.com/aepb/aepb-gateway/cmd/aepb-gateway/demo/peers"
	"github.com/aepb/aepb-gateway/gateway/directory"
	gatewaytest "github.com/aepb/aepb-gateway/test/harness/gateway"
	"github.com/aepb/aepb-gateway/test/harness/grpctest"
	"github.com/aepb/aepb-gateway/translators/uacp"
)

// TestSDKClients_ReachUACPAndAINPAgents: clients made with the SDKs of A2A and MCP use
// agents of µACP and AINP, and do not know it.
func TestSDKClients_ReachUACPAndAINPAgents(t *testing.T) {
	t.Parallel()
	b := gatewaytest.NewFixture(t, gatewaytest.Plan{})
	b.UACPAgent(t, "abacus", &gatewaytest.UACPFake{}, "")
	b.UACPAgent(t, "beads", &gatewaytest.UACPFake{}, uacp.FormBare)
	b.AINPAgent(t, "scribe", &gatewaytest.AINPFake{}, directory.Endpoint{})
	for _, dest := range []string{"abacus", "beads", "scribe"} {
		n := b.Counter.Add(1)
		reply, err := peers.A2ACall(t.Context(), b.Client, b.At.Public+"/agents/"+dest, grpctest.SkillMessage("add", map[string]any{"a": n, "b": 1}))
		gatewaytest.Must(t, err)
		body, err := json.Marshal(reply.Task)
		gatewaytest.Must(t, err)
		if reply.State() != "TASK_STATE_COMPLETED" || !strings.Contains(string(body), `"sum":`+strconv.FormatInt(n+1, 10)) {
			t.Errorf("A2A to %s: %s %s", dest, reply.State(), body)
		}
		for _, legacy := range []bool{false, true} {
			got, err := peers.MCPCall(t.Context(), b.Client, b.At.Public+"/agents/"+dest+"/mcp", legacy, "add", json.RawMessage(`{"a":`+strconv.FormatInt(n, 10)+`,"b":1}`))
			gatewaytest.Must(t, err)
			body, err := json.Marshal(got.Result)
			gatewaytest.Must(t, err)
			if len(got.Tools) != 1 || got.Tools[0].Name != "add" || !strings.Contains(string(body), `"sum":`+strconv.FormatInt(n+1, 10)) {
				t.Errorf("MCP %s to %s: %s", got.Version, dest, body)
			}
		}
	}
}
