package stories

import (
	"slices"
	"strings"
	"testing"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/ect/ecttest"
	gatewaytest "github.com/aepb/aepb-gateway/test/harness/gateway"
	"github.com/aepb/aepb-gateway/translators"
	"github.com/aepb/aepb-gateway/translators/canonical"
	"github.com/aepb/aepb-gateway/translators/uacp"
)

// TestUACPSignals_RollbackAndDecision: a rollback goes to the agent and its result comes back, both
// proven; and a decision is told, once, to whoever registered for it.
func TestUACPSignals_RollbackAndDecision(t *testing.T) {
	t.Parallel()
	hook := newWebhook(t)
	b := gatewaytest.NewFixture(t, withCarrier())
	hook.start(t, b)
	agent := &gatewaytest.UACPFake{}
	callbacks := make(chan string, 1)
	agent.Seen = func(body []byte) {
		if m, err := agent.Form.Decode(translators.Wire{Body: body}); err == nil {
			callbacks <- m.Callback
		}
	}
	b.UACPAgent(t, "abacus", agent, "")
	agent.Undo = b.Undoes(t, agent)

	invoking := b.Signal(t, &canonical.Message{
		Op: canonical.OpInvoke, Callback: hook.server.URL + "/decided", Body: gatewaytest.Addition(1),
	})
	if !strings.Contains(string(invoking), `"hitl_callback":"`+hook.server.URL) {
		t.Errorf("it stands elsewhere in %q", gatewaytest.Short(invoking))
	}
	reply := b.AskUACP(t, "abacus", invoking)
	if got := <-callbacks; got != hook.server.URL+"/decided" {
		t.Errorf("the agent was told of %q", got)
	}
	tokens, err := gatewaytest.UACPEvidence(reply)
	gatewaytest.Must(t, err)
	first, _, err := ect.ParseUnverified(tokens[0])
	gatewaytest.Must(t, err)
	var checkpoint ect.ID
	for _, id := range directionsOf(t, b, tokens) {
		if id.Act == ect.ActTranslate && len(id.Parents) > 0 {
			checkpoint = id.Parents[0] // the reply's is what the agent sent
		}
	}
	request := ecttest.Mint(t, b.Me, ecttest.Recipe{Claims: ect.Claims{
		Act: ect.ActRollbackRequest, Audience: []string{b.Self()}, Workflow: first.Workflow, Parents: []ect.ID{checkpoint},
	}})
	undoing := b.Signal(t, &canonical.Message{Op: canonical.OpRollback, Body: &canonical.Signal{Token: request}})
	if f, err := uacp.ParseFrame(undoing); err != nil || f.Verb != uacp.Ask || f.Topic() != "/aepb/rollback" {
		t.Errorf("it is asked for at %q", f.Topic())
	}
	reply = b.AskUACP(t, "abacus", undoing)
	m, err := agent.Form.Decode(translators.Wire{Body: reply, Re: canonical.OpRollback})
	gatewaytest.Must(t, err)
	answer, ok := m.Body.(*canonical.Signal)
	if !ok {
		t.Fatalf("got %s", gatewaytest.Short(reply))
	}
	result, _, err := ect.ParseUnverified(answer.Token)
	gatewaytest.Must(t, err)
	requested, _, err := ect.ParseUnverified(request)
	gatewaytest.Must(t, err)
	tokens, err = gatewaytest.UACPEvidence(reply)
	gatewaytest.Must(t, err)
	directions := directionsOf(t, b, tokens)
	proven := slices.ContainsFunc(directions, func(c ect.Claims) bool { return slices.Contains(c.Parents, requested.ID) }) &&
		slices.ContainsFunc(directions, func(c ect.Claims) bool { return slices.Contains(c.Parents, result.ID) })
	if result.Act != ect.ActRollbackResult || !slices.Contains(result.Parents, requested.ID) || len(directions) != 2 || !proven {
		t.Errorf("%s with parents %v, proven by %d legs: %t", result.Act, result.Parents, len(directions), proven)
	}

	decidedOnce(t, b, hook, "abacus", ect.Claims{Workflow: first.Workflow, Parents: []ect.ID{checkpoint}})
	b.Works(t)
}

// directionsOf are verified tokens of ours.
func directionsOf(t *testing.T, b *gatewaytest.Fixture, tokens []string) (out []ect.Claims) {
	t.Helper()
	for _, compact := range tokens {
		v, err := b.Judge.Verify(t.Context(), compact, ect.Check{Purpose: ect.Parent})
		gatewaytest.Must(t, err)
		out = append(out, v.Claims())
	}
	return out
}
