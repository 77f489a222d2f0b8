package stories

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/gateway/config"
	"github.com/aepb/aepb-gateway/gateway/directory"
	gatewaytest "github.com/aepb/aepb-gateway/test/harness/gateway"
)

// TestRollback_OverAPeerGateway: work of an agent behind a further gateway is undone over that gateway, which asks the agent in its own
// protocol: each of the two gateways signs what it undid, and the first one's result follows from that of the second (ATD, Basic Rollback).
func TestRollback_OverAPeerGateway(t *testing.T) {
	t.Parallel()
	first := gatewaytest.NewFixture(t, gatewaytest.Plan{})
	file := filepath.Join(t.TempDir(), "policy.json")
	gatewaytest.Must(t, os.WriteFile(file, []byte(`{"constraints":{"atd.checkpoint":"required"}}`), 0o600))
	second := first.Beside(t, "gateway-2", config.Config{Policy: config.Policy{Document: file}})
	first.Knows(t, second)
	agent := second.Undoable(t, "undo-mcp-v1", "mcp-v1")
	listed, _ := second.Directory().Find("undo-mcp-v1")
	listed.Undo = directory.Undo{Own: true}
	gatewaytest.Must(t, second.Directory().Put(listed))
	through(t, first, "far", second, directory.Endpoint{Binding: "a2a-v1", URL: "/agents/undo-mcp-v1/a2a"})

	rollsBackItself(t, first, "far", gatewaytest.AddBody(1))
	agent.Tell(func() {
		if len(agent.Requests) != 1 {
			t.Fatalf("the agent was asked %d times", len(agent.Requests))
		}
		request, _, err := ect.ParseUnverified(agent.Requests[0][0])
		if err != nil || string(request.Issuer) != second.Self() {
			t.Errorf("the agent was asked by %s", request.Issuer)
		}
	})
}
