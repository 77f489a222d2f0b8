package destination_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/gateway/destination"
	"github.com/aepb/aepb-gateway/gateway/directory"
	"github.com/aepb/aepb-gateway/policy"
	"github.com/aepb/aepb-gateway/translators/a2a"
	"github.com/aepb/aepb-gateway/translators/canonical"
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

// TestReach_ListedAgentOfADocument: a document that describes listed agents is the first
// of them that the caller may call, under the rules of both.
func TestReach_ListedAgentOfADocument(t *testing.T) {
	t.Parallel()
	other := string(outsider().ID)
	for name, c := range map[string]struct {
		rules []policy.Rules // of the agents a, b, … at its endpoint
		want  string         // the agent
		may   bool           // call it
	}{
		"the caller's":      {[]policy.Rules{only(callerID)}, "a", true},
		"another's":         {[]policy.Rules{only(other)}, "a", false},
		"the second":        {[]policy.Rules{only(other), only(callerID)}, "b", true},
		"no one's of two":   {[]policy.Rules{only(other), only(other)}, "a", false},
		"an open one":       {[]policy.Rules{{Open: true}}, "a", true},
		"listed nowhere":    {nil, visitedURL, true},
		"the first of both": {[]policy.Rules{only(callerID), only(callerID)}, "a", true},
	} {
		e := newEnv(t)
		for i, rules := range c.rules {
			agent := direct("visited", rules, mcp.Binding)
			agent.Name = string(rune('a' + i))
			e.must(e.directory.Put(agent))
		}
		e.network.pages["visited.example"] = document("visited", directory.Active, "null", mcp.Binding)
		q := queryOf(visitedURL)
		d, err := e.Find(q)
		e.must(err)
		d = e.Reach(t.Context(), q, d)
		if may := destination.MayCall(q.Caller, d.Agent.Rules) == nil; d.Agent.Name != c.want || may != c.may || d.Unreachable != nil {
			t.Errorf("%s: %s, the caller may call it: %t, expected %s, %t", name, summary(d), may, c.want, c.may)
		}
		if outside := destination.MayCall(outsider(), d.Agent.Rules) == nil; outside {
			t.Errorf("%s: callers who may not name documents may call what they describe", name)
		}
	}
}

// TestReach_ListedAgentThatDescribesItself: what a document leads to may be behind a
// document, too, and that a bounded number of times.
func TestReach_ListedAgentThatDescribesItself(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		one  string // the document of the first
		want string
	}{
		"active":   {document("one", directory.Active, "null", mcp.Binding), "one mcp-v1"},
		"a circle": {document("one", directory.Retired, heirURL, mcp.Binding), "one mcp-v1 no path"},
	} {
		e := newEnv(t, described("one", only(callerID)), described("two", only(callerID)))
		e.network.pages = map[string]string{
			"one.example":     c.one,
			"two.example":     document("two", directory.Retired, visitedURL, mcp.Binding),
			"visited.example": document("one", directory.Active, "null", mcp.Binding),
			"heir.example":    document("two", directory.Active, "null", mcp.Binding),
		}
		for _, agent := range e.directory.List() { // so that it is known whose endpoints these are
			_, err := e.directory.Resolve(t.Context(), agent)
			e.must(err)
		}
		q := queryOf(visitedURL)
		d, err := e.Find(q)
		e.must(err)
		if got := summary(e.Reach(t.Context(), q, d)); got != c.want {
			t.Errorf("%s: %s, expected %s", name, got, c.want)
		}
	}
}

// TestSuccessor_OfADrainingAgent: new work goes to the successor, under its rules, and is
// refused where there is none.
func TestSuccessor_OfADrainingAgent(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		agent string
		heir  string // its document; empty: it has none
		want  []string
	}{
		"a successor":        {"passing", document("heir", directory.Active, "null", mcp.Binding), []string{heirURL + " mcp-v1", "heir.example"}},
		"no successor":       {"draining", "", []string{"draining mcp-v1 ended"}},
		"one that is lost":   {"passing", "", []string{"passing mcp-v1 ended", "heir.example"}},
		"one that has ended": {"passing", document("heir", directory.Retired, "null", mcp.Binding), []string{"passing mcp-v1 ended", "heir.example"}},
		"one that drains":    {"passing", document("heir", directory.Draining, "null", mcp.Binding), []string{"passing mcp-v1 ended", "heir.example"}},
	} {
		e := world(t)
		delete(e.network.pages, "heir.example")
		if c.heir != "" {
			e.network.pages["heir.example"] = c.heir
		}
		q := queryOf(c.agent)
		q.To = ""
		if d, err := e.Find(q); err != nil || !e.drains(q, d) {
			t.Fatalf("%s: %v, %s, expected an agent that drains", name, err, summary(d))
		}
		e.network.requests = nil
		d, _ := e.Find(q)
		d = e.Successor(t.Context(), q, e.Reach(t.Context(), q, d))
		if diff := cmp.Diff(c.want, append([]string{summary(d)}, e.network.requests...)); diff != "" {
			t.Errorf("%s: -want +got\n%s", name, diff)
		}
	}
}

// drains reaches an agent, and reports whether it drains.
func (e *env) drains(q destination.Query, d destination.Destination) bool {
	return e.Reach(e.t.Context(), q, d).Draining
}

// TestSuccessor_AListedAgentKeepsItsRules: a successor whose document describes a listed
// agent is that one, for whom it lists, and no peer is asked for others.
func TestSuccessor_AListedAgentKeepsItsRules(t *testing.T) {
	t.Parallel()
	for _, rules := range []policy.Rules{only(callerID), only(string(outsider().ID))} {
		e := world(t)
		listed := direct("heir", rules, mcp.Binding)
		e.must(e.directory.Put(listed))
		q := queryOf("passing")
		d, err := e.Find(q)
		e.must(err)
		d = e.Successor(t.Context(), q, e.Reach(t.Context(), q, d))
		want := destination.MayCall(q.Caller, rules) == nil
		if may := destination.MayCall(q.Caller, d.Agent.Rules) == nil; d.Agent.Name != "heir" || may != want || d.Draining {
			t.Errorf("%s, may call: %t, expected heir, %t", summary(d), may, want)
		}
		if diff := cmp.Diff([]string{"passing.example", "heir.example"}, e.network.requests); diff != "" {
			t.Errorf("-want +got\n%s", diff)
		}
	}
}

// TestSuccessor_BehindAPeer: a successor that speaks no protocol of ours is looked for
// behind other gateways, whether its predecessor drains or has ended.
func TestSuccessor_BehindAPeer(t *testing.T) {
	t.Parallel()
	const heirID = "spiffe://example.com/agents/heir"
	for _, agent := range []string{"passing", "ended"} {
		for protocol, want := range map[canonical.Binding][]string{
			far:       {heirURL + " a2a-v1 via " + peerID + " a2a-v1>far-v1 for " + heirID, peerID + " a2a-v1>far-v1 for " + heirID},
			"rare-v1": {heirURL + " - no path", peerID + " a2a-v1>rare-v1 for " + heirID, peerID + " mcp-v1>rare-v1 for " + heirID},
		} {
			e := world(t)
			e.network.pages["heir.example"] = document("heir", directory.Active, "null", protocol)
			e.network.pages[peerID+" a2a-v1>far-v1 for "+heirID] = "{}"
			q := queryOf(agent)
			q.To = ""
			d, err := e.Find(q)
			e.must(err)
			if d = e.Reach(t.Context(), q, d); d.Draining {
				d = e.Successor(t.Context(), q, d)
			}
			if diff := cmp.Diff(want, append([]string{summary(d)}, e.network.requests[2:]...)); diff != "" {
				t.Errorf("%s, %s: -want +got\n%s", agent, protocol, diff)
			}
		}
	}
}

// TestAttack_FetchOnBehalfOfForbiddenCaller: where a document describes a listed agent that its
// caller may not call, no document of that agent's successor is fetched.
func TestAttack_FetchOnBehalfOfForbiddenCaller(t *testing.T) {
	t.Parallel()
	for caller, want := range map[string][]string{
		callerID:              {"visited.example", "heir.example"},
		string(outsider().ID): {"visited.example"},
	} {
		e := newEnv(t, described("one", only(caller)))
		e.network.pages = map[string]string{
			"one.example":     document("one", directory.Retired, heirURL, mcp.Binding),
			"visited.example": document("one", directory.Active, "null", mcp.Binding),
			"heir.example":    document("heir", directory.Active, "null", mcp.Binding),
		}
		for _, agent := range e.directory.List() { // so that it is known whose endpoints these are
			_, err := e.directory.Resolve(t.Context(), agent)
			e.must(err)
		}
		e.network.requests = nil
		q := queryOf(visitedURL)
		d, err := e.Find(q)
		e.must(err)
		d = e.Reach(t.Context(), q, d)
		if diff := cmp.Diff(want, e.network.requests); diff != "" {
			t.Errorf("listed for %s, reached %s: -want +got\n%s", caller, summary(d), diff)
		}
	}
}
