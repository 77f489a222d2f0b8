package gateway_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/ect/ecttest"
	"github.com/aepb/aepb-gateway/ect/identity"
	"github.com/aepb/aepb-gateway/gateway"
	"github.com/aepb/aepb-gateway/gateway/problem"
	"github.com/aepb/aepb-gateway/gateway/state"
	"github.com/aepb/aepb-gateway/policy"
)

// forgetful remembers no dialogue, or fails.
type forgetful struct{ err error }

func (f forgetful) Last(context.Context, string) (string, ect.ID, bool, error) {
	return "", "", false, f.err
}

func (forgetful) Remember(context.Context, string, string, ect.ID) {}

// TestConversation_ForgottenOwnerStartsAnother: where it is forgotten whose a dialogue is, no caller gets
// into it, not even its owner, which gets another one, the same each time.
func TestConversation_ForgottenOwnerStartsAnother(t *testing.T) {
	t.Parallel()
	play(t, map[string][]scene{invoking: {{reply: wholeTask("COMPLETED", oneArt)}}}, func(s *stage) {
		t := s.t
		s.Conversations = forgetful{}
		turn := strings.Replace(saying, `"messageId"`, `"contextId":"c1","messageId"`, 1)
		var received []string
		for _, who := range []identity.Caller{{}, {}, {Peer: ecttest.NewParty(t, "spiffe://example.com/stranger").Peer()}} {
			call := s.a2a(invoking, turn)
			if who.ID != "" {
				call.Caller = who
			}
			s.ask(t, s, call)
			_, name, _ := strings.Cut(s.agent.last(), `"contextId":"`)
			name, _, _ = strings.Cut(name, `"`)
			received = append(received, name)
		}
		if received[0] == "c1" || received[0] != received[1] || received[2] == received[0] || received[2] == "c1" {
			t.Errorf("the agent was told %q", received)
		}
	})
}

// TestConversation_KnownFromItsTask: a message about work of its own passes in the
// dialogue of the work, although it is forgotten whose that is.
func TestConversation_KnownFromItsTask(t *testing.T) {
	t.Parallel()
	play(t, map[string][]scene{invoking: {{reply: wholeTask("INPUT_REQUIRED", "")}, {reply: wholeTask("COMPLETED", oneArt)}}}, func(s *stage) {
		t := s.t
		s.ask(t, s, s.a2a(invoking, saying))
		s.Conversations = forgetful{}
		s.ask(t, s, s.a2a(invoking, strings.Replace(saying, `"messageId"`, `"contextId":"c1","taskId":"t1","messageId"`, 1)))
		if received := s.agent.last(); !strings.Contains(received, `"contextId":"c1"`) {
			t.Errorf("the agent was told %s", received)
		}
	})
}

// TestConversation_LookupErrorRefusesMessage: an error of the store refuses the message.
// Read as "unknown", it would fork the dialogue.
func TestConversation_LookupErrorRefusesMessage(t *testing.T) {
	t.Parallel()
	b := newFixture(t, gateway.Settings{}, policy.Rules{Open: true})
	b.Conversations = forgetful{err: &state.UnavailableError{RetryAfter: time.Second}}
	_, err := b.Exchange(t.Context(), b.call(strings.Replace(addBody, `"messageId":"m1"`, `"messageId":"m1","contextId":"c1"`, 1)))
	var refused *problem.RecordingError
	if !errors.As(err, &refused) || len(b.agent.bodies) != 0 {
		t.Errorf("%v, and the agent heard %d calls", err, len(b.agent.bodies))
	}
	if _, err := b.Exchange(t.Context(), b.call(addBody)); err != nil {
		t.Errorf("a message of no dialogue: %v", err)
	}
}
