package destination_test

import (
	"testing"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/gateway/destination"
	"github.com/aepb/aepb-gateway/gateway/directory"
	"github.com/aepb/aepb-gateway/translators/a2a"
	"github.com/aepb/aepb-gateway/translators/mcp"
)

// queryOf asks for the agent of a document.
func queryOf(url string) destination.Query {
	return destination.Query{Caller: caller(), From: a2a.Binding, To: mcp.Binding, Agent: url, Attested: true}
}

// TestAttack_DrainingDocumentOfListedAgent: a document that describes a listed agent, or
// uses its endpoint, does not get callers past that agent's rules by saying that it drains.
func TestAttack_DrainingDocumentOfListedAgent(t *testing.T) {
	t.Parallel()
	for _, status := range []directory.Status{directory.Active, directory.Draining, directory.Retired} {
		for _, id := range []ect.Identity{"spiffe://example.com/agents/visited", "spiffe://example.com/agents/other"} {
			listed := direct("visited", only(string(outsider().ID)), mcp.Binding)
			listed.ID = id
			e := newEnv(t, listed)
			e.network.pages["visited.example"] = document("visited", status, "null", mcp.Binding)
			q := queryOf(visitedURL)
			d, err := e.Find(q)
			e.must(err)
			d = e.Reach(t.Context(), q, d)
			if d.Unreachable == nil && destination.MayCall(q.Caller, d.Agent.Rules) == nil {
				t.Errorf("listed as %s, %s: the caller may call %q under %+v", id, status, d.Agent.Name, d.Agent.Rules)
			}
		}
	}
}
