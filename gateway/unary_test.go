package gateway_test

import (
	"testing"

	"github.com/aepb/aepb-gateway/gateway"
	"github.com/aepb/aepb-gateway/policy"
)

// TestUnary_Built is what `make functions` takes off: a gateway that carries no message.
func TestUnary_Built(t *testing.T) {
	b := newFixture(t, gateway.Settings{}, policy.Rules{Open: true})
	if call := b.translate(t, addBody); call.Agent == "" {
		t.Error("the message is for no agent")
	}
}

// TestUnary_A2AToMCP carries one message and its reply: `make functions` counts the functions
// that it runs through.
func TestUnary_A2AToMCP(t *testing.T) {
	b := newFixture(t, gateway.Settings{}, policy.Rules{Open: true})
	answer, err := b.Exchange(t.Context(), b.translate(t, addBody))
	if err != nil || len(answer.Evidence) != 2 {
		t.Errorf("%d tokens, %v", len(answer.Evidence), err)
	}
}
