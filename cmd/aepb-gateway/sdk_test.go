package main

import (
	"encoding/json"
	"strconv"
	"strings"
	"testing"

	"github.com/aepb/aepb-gateway/cmd/aepb-gateway/demo/grpctest"
	"github.com/aepb/aepb-gateway/cmd/aepb-gateway/demo/peers"
	"github.com/aepb/aepb-gateway/gateway/directory"
	"github.com/aepb/aepb-gateway/translators/uacp"
)

// TestSDKClientsReachTheOthers: clients made with the SDKs of A2A and MCP use
// agents of µACP and AINP, and do not know it.
func TestSDKClientsReachTheOthers(t *testing.T) {
	t.Parallel()
	b := newBed(t, plan{})
	b.uacpAgent(t, "abacus", &uacpFake{}, "")
	b.uacpAgent(t, "beads", &uacpFake{}, uacp.FormBare)
	b.ainpAgent(t, "scribe", &ainpFake{}, directory.Endpoint{})
	for _, dest := range []string{"abacus", "beads", "scribe"} {
		n := b.counter.Add(1)
		reply, err := peers.A2ACall(t.Context(), b.client, b.at.Public+"/agents/"+dest, grpctest.SkillMessage("add", map[string]any{"a": n, "b": 1}))
		must(t, err)
		said, err := json.Marshal(reply.Task)
		must(t, err)
		if reply.State() != "TASK_STATE_COMPLETED" || !strings.Contains(string(said), `"sum":`+strconv.FormatInt(n+1, 10)) {
			t.Errorf("A2A to %s: %s %s", dest, reply.State(), said)
		}
		for _, legacy := range []bool{false, true} {
			got, err := peers.MCPCall(t.Context(), b.client, b.at.Public+"/agents/"+dest+"/mcp", legacy, "add", json.RawMessage(`{"a":`+strconv.FormatInt(n, 10)+`,"b":1}`))
			must(t, err)
			said, err := json.Marshal(got.Result)
			must(t, err)
			if len(got.Tools) != 1 || got.Tools[0].Name != "add" || !strings.Contains(string(said), `"sum":`+strconv.FormatInt(n+1, 10)) {
				t.Errorf("MCP %s to %s: %s", got.Version, dest, said)
			}
		}
	}
}
