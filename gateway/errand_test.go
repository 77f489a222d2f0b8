package gateway_test

import (
	"encoding/json"
	"errors"
	"slices"
	"testing"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/gateway"
	"github.com/aepb/aepb-gateway/gateway/attest"
	"github.com/aepb/aepb-gateway/gateway/problem"
	"github.com/aepb/aepb-gateway/gateway/transport"
	"github.com/aepb/aepb-gateway/policy"
	"github.com/aepb/aepb-gateway/translators/a2a"
	"github.com/aepb/aepb-gateway/translators/canonical"
)

// TestErrand: the gateway has an agent do something on its own account, in the agent's protocol, though the
// agent's list of callers does not name it: request and answer are on record below the lineage, and the agent
// gets the token of the request. Policy about protocols holds, and an unknown agent and a failing one are errors.
func TestErrand(t *testing.T) {
	t.Parallel()
	b := newBed(t, gateway.Settings{}, policy.Rules{Callers: []string{"spiffe://example.com/client"}})
	wid, start := b.begin(t)
	call := func() *canonical.Message {
		return &canonical.Message{Op: canonical.OpInvoke, Phase: canonical.PhaseRequest, Body: &canonical.Invoke{
			Call: &canonical.Call{Name: "add", Args: json.RawMessage(`{"a":1,"b":2}`)},
		}}
	}
	lineage := attest.Lineage{Workflow: wid, Parents: []ect.ID{start.ID}}
	answer, err := b.Errand(t.Context(), gateway.Errand{Agent: "calculator", Message: call(), Lineage: lineage})
	if err != nil {
		t.Fatal(err)
	}
	result, ok := answer.Message.Body.(*canonical.Result)
	if !ok || result.Output == nil || string(result.Output.Structured) != `{"sum":3}` {
		t.Errorf("the answer is %+v", answer.Message.Body)
	}
	tokens := b.tokensOf(t, wid)
	if !slices.Equal(acts(tokens), []ect.Act{ect.ActWorkflowStart, ect.ActTranslate, ect.ActTranslate}) {
		t.Fatalf("on record are %v", acts(tokens))
	}
	request, reply := tokens[1], tokens[2]
	caller, _ := request.Ext.String(ect.ExtCaller)
	direction, _ := reply.Ext.String(ect.ExtLeg)
	if !slices.Equal(request.Parents, []ect.ID{start.ID}) || caller != string(b.self.ID) || !slices.Equal(reply.Parents, []ect.ID{request.ID}) ||
		direction != "reply" || answer.ID != reply.ID || reply.InputHash == "" {
		t.Errorf("request %+v, reply %+v, returned %v", request, reply, answer.ID)
	}
	if len(b.agent.tokens) != 1 || claims(t, b.agent.tokens[0][0]).ID != request.ID || request.OutputHash != ect.Hash(b.agent.bodies[0]) {
		t.Errorf("the agent got %v", b.agent.tokens)
	}
	if _, err := b.Errand(t.Context(), gateway.Errand{Agent: "unlisted", Message: call(), Lineage: lineage}); problem.From(err).Status != 404 {
		t.Errorf("an unknown agent: %v", err)
	}
	b.agent.fail = &transport.UnreachableError{Agent: "calculator"}
	if _, err := b.Errand(t.Context(), gateway.Errand{Agent: "calculator", Message: call(), Lineage: lineage}); !errors.As(err, new(*transport.UnreachableError)) {
		t.Errorf("an agent that is not reached: %v", err)
	}
	b.agent.fail = nil
	b.Apply(gateway.Settings{Constraints: policy.Constraints{RestrictDest: true, AllowedDest: []string{string(a2a.Binding)}}})
	if _, err := b.Errand(t.Context(), gateway.Errand{Agent: "calculator", Message: call(), Lineage: lineage}); !errors.As(err, new(*policy.Denied)) {
		t.Errorf("a protocol that policy forbids: %v", err)
	}
}

// TestAttack_CallerWithTheGatewaysName: a caller whose identity is the gateway's own passes no agent's list of
// callers by that: only the gateway itself sends errands.
func TestAttack_CallerWithTheGatewaysName(t *testing.T) {
	t.Parallel()
	b := newBed(t, gateway.Settings{}, policy.Rules{Callers: []string{"spiffe://example.com/client"}})
	call := b.call(addBody)
	call.Caller.Peer = b.self.Peer()
	if _, err := b.Exchange(t.Context(), call); !errors.As(err, new(*policy.Forbidden)) {
		t.Errorf("got %v, expected it to be refused", err)
	}
}
