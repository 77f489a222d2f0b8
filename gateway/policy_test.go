package gateway_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/gateway"
	"github.com/aepb/aepb-gateway/gateway/directory"
	"github.com/aepb/aepb-gateway/gateway/problem"
	"github.com/aepb/aepb-gateway/policy"
	"github.com/aepb/aepb-gateway/translators/mcp"
)

// What a policy document, a declared level and the way to an agent forbid is
// refused before the agent hears of it, and leaves evidence.
func TestPolicy_RefusesBeforeTheAgent(t *testing.T) {
	t.Parallel()
	document := func(text string) gateway.Settings {
		d, err := policy.ParseDocument([]byte(text))
		if err != nil {
			t.Fatal(err)
		}
		return gateway.Settings{Document: d}
	}
	for name, tc := range map[string]struct {
		settings gateway.Settings
		change   func(*directory.Agent)
		rules    policy.Rules
		code     string // empty: it goes through
		says     string
	}{
		"nothing special": {},
		"the document allows it": {
			settings: document(`{"constraints":{"aepb.allowed_dest_protocols":["mcp-v1"],"aepb.min_protocol_security":"tls-1.3"}}`),
		},
		"the document forbids the destination": {
			settings: document(`{"constraints":{"aepb.allowed_dest_protocols":["slim-v1"]}}`), code: "policy_violation", says: "aepb.allowed_dest_protocols",
		},
		"our node forbids the source": {
			settings: document(`{"dag":{"nodes":[{"type":"cpat:translate","agent":"spiffe://example.com/gateway","constraints":{"allowed_source_protocols":[]}}]}}`),
			code:     "policy_violation", says: "aepb.allowed_source_protocols",
		},
		"plain HTTP": {
			change: func(a *directory.Agent) { a.Endpoints[0].URL = "http://127.0.0.1:1/mcp" },
		},
		"plain HTTP below the minimum": {
			settings: gateway.Settings{Constraints: policy.Constraints{MinSecurity: policy.SecurityTLS13}},
			change:   func(a *directory.Agent) { a.Endpoints[0].URL = "http://127.0.0.1:1/mcp" },
			code:     "policy_violation", says: "aepb.min_protocol_security",
		},
		"an agent at level 2": {change: func(a *directory.Agent) { a.AssuranceLevel = ect.L2 }},
		"an agent at level 3": {
			change: func(a *directory.Agent) { a.AssuranceLevel = ect.L3 }, code: "policy_violation", says: "L3",
		},
		"a caller for this operation": {rules: policy.Rules{Callers: []string{"spiffe://example.com/client#invoke"}}},
		"a caller for another operation": {
			rules: policy.Rules{Callers: []string{"spiffe://example.com/client#task.get"}}, code: "forbidden", says: "may not ask this",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			rules := tc.rules
			if rules.Callers == nil {
				rules.Open = true
			}
			b := newFixture(t, tc.settings, rules)
			listed := directory.Agent{
				Name: "calculator", ID: b.server.ID, Rules: rules,
				Endpoints: []directory.Endpoint{{Binding: mcp.Binding, URL: "https://calculator.example/mcp"}},
			}
			if tc.change != nil {
				tc.change(&listed)
			}
			if err := b.Directory.Put(listed); err != nil {
				t.Fatal(err)
			}
			answer, err := b.Exchange(t.Context(), b.translate(t, addBody))
			if tc.code == "" {
				if err != nil {
					t.Fatal(err)
				}
				return
			}
			p := problem.From(err)
			if p.Code != tc.code || !strings.Contains(p.Detail, tc.says) {
				t.Errorf("got %s %q, want %s %q", p.Code, p.Detail, tc.code, tc.says)
			}
			if len(b.agent.bodies) > 0 {
				t.Error("the agent was called")
			}
			if len(answer.Evidence) != 1 {
				t.Errorf("%d tokens of evidence", len(answer.Evidence))
			}
		})
	}
}

// The level of the caller's own agent counts like that of the destination.
func TestAssuranceLevel_RequiredByCallersAgent(t *testing.T) {
	t.Parallel()
	b := newFixture(t, gateway.Settings{}, policy.Rules{Open: true})
	if err := b.Directory.Put(directory.Agent{
		Name: "client", ID: b.caller.ID, AssuranceLevel: ect.L3,
		Endpoints: []directory.Endpoint{{Binding: mcp.Binding, URL: "https://client.example/mcp"}},
	}); err != nil {
		t.Fatal(err)
	}
	_, err := b.Exchange(t.Context(), b.translate(t, addBody))
	var level *policy.LevelError
	if !errors.As(err, &level) || level.Required != ect.L3 {
		t.Errorf("got %v", err)
	}
}
