package gateway_test

import (
	"testing"
	"testing/synctest"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/gateway"
	"github.com/aepb/aepb-gateway/policy"
	"github.com/aepb/aepb-gateway/policy/hitl"
)

// sentAlong are the acts of the tokens that went to the agent with its last message, behind that of the message.
func (b *fixture) sentAlong(t *testing.T) (sent []ect.Act) {
	t.Helper()
	tokens := b.agent.tokens[len(b.agent.tokens)-1]
	for _, compact := range tokens[1:] {
		claims, _, err := ect.ParseUnverified(compact)
		if err != nil {
			t.Fatal(err)
		}
		sent = append(sent, claims.Act)
	}
	return sent
}

// TestAttack_TokensOfOthersSentAlong: an agent that is no gateway is told neither who approved a call, nor of a call to another agent
// that the caller names as parent. It gets the reply of its own dialogue that a message goes on after.
func TestAttack_TokensOfOthersSentAlong(t *testing.T) {
	t.Parallel()
	t.Run("approver", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			b := timed(t, hitl.Config{})
			if _, err := b.Exchange(t.Context(), b.call(addBody)); err != nil {
				t.Fatal(err)
			}
			b.decide(t, true)
			synctest.Wait()
			if sent := b.sentAlong(t); len(sent) != 0 {
				t.Errorf("beside its own token the message had %v", sent)
			}
		})
	})
	t.Run("named parent", func(t *testing.T) {
		t.Parallel()
		b := newFixture(t, gateway.Settings{}, policy.Rules{Open: true})
		first, err := b.Exchange(t.Context(), b.call(addBody))
		if err != nil {
			t.Fatal(err)
		}
		for _, compact := range first.Evidence {
			claims, _, err := ect.ParseUnverified(compact)
			if err != nil {
				t.Fatal(err)
			}
			call := b.call(addBody)
			call.Parent = string(claims.ID)
			if _, err := b.Exchange(t.Context(), call); err != nil {
				continue // it may not be named
			}
			if sent := b.sentAlong(t); len(sent) != 0 {
				t.Errorf("beside its own token the message had %v", sent)
			}
		}
	})
}
