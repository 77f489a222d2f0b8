package main

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/ect/ecttest"
	"github.com/aepb/aepb-gateway/translators"
	"github.com/aepb/aepb-gateway/translators/canonical"
	"github.com/aepb/aepb-gateway/translators/uacp"
)

// restored is what an agent says of a rollback that it completed.
func restored(request ect.Claims) ect.Ext {
	ext := ect.Ext{}
	ext.SetString(ect.ExtStatus, "completed")
	ext.SetString(ect.ExtCheckpointID, string(request.Parents[0]))
	return ext
}

// undoes lets a fake set checkpoints, and go back to them.
func (b *bed) undoes(t *testing.T, f *uacpFake) func(string) string {
	t.Helper()
	return func(compact string) string {
		asked, _, err := ect.ParseUnverified(compact)
		if err != nil {
			return ""
		}
		c := ect.Claims{Audience: []string{b.self()}, Workflow: asked.Workflow, Parents: []ect.ID{asked.ID}, Act: "atd:checkpoint"}
		if asked.Act == ect.ActRollbackRequest {
			c.Act, c.OutputHash, c.Ext = ect.ActRollbackResult, ect.Hash([]byte("as it was")), restored(asked)
		}
		return ecttest.Mint(t, f.who, ecttest.Recipe{Claims: c})
	}
}

// signal is a message that is a token, from the development client.
func (b *bed) signal(t *testing.T, m *canonical.Message) []byte {
	t.Helper()
	m.Phase, m.Correlation.WireID = canonical.PhaseRequest, json.RawMessage("43")
	wire, _, err := uacp.New(translators.Config{}).Encode(m, translators.Target{Form: uacp.FormEnveloped})
	must(t, err)
	return wire.Body
}

// TestUACPSignals: a rollback goes to the agent and its result comes back, both
// proven; and a decision is told, once, to whoever registered for it.
func TestUACPSignals(t *testing.T) {
	t.Parallel()
	hook := newWebhook(t)
	b := newBed(t, withCarrier())
	hook.start(t, b)
	agent := &uacpFake{}
	callbacks := make(chan string, 1)
	agent.seen = func(body []byte) {
		if m, err := agent.form.Decode(translators.Wire{Body: body}); err == nil {
			callbacks <- m.Callback
		}
	}
	b.uacpAgent(t, "abacus", agent, "")
	agent.undo = b.undoes(t, agent)

	invoking := b.signal(t, &canonical.Message{
		Op: canonical.OpInvoke, Callback: hook.server.URL + "/decided", Body: addition(1),
	})
	if !strings.Contains(string(invoking), `"hitl_callback":"`+hook.server.URL) {
		t.Errorf("it stands elsewhere in %q", short(invoking))
	}
	reply := b.askUACP(t, "abacus", invoking)
	if got := <-callbacks; got != hook.server.URL+"/decided" {
		t.Errorf("the agent was told of %q", got)
	}
	tokens, err := uacpEvidence(reply)
	must(t, err)
	first, _, err := ect.ParseUnverified(tokens[0])
	must(t, err)
	var checkpoint ect.ID
	for _, id := range b.legsOf(t, tokens) {
		if id.Act == ect.ActTranslate && len(id.Parents) > 0 {
			checkpoint = id.Parents[0] // the reply's is what the agent sent
		}
	}
	request := ecttest.Mint(t, b.me, ecttest.Recipe{Claims: ect.Claims{
		Act: ect.ActRollbackRequest, Audience: []string{b.self()}, Workflow: first.Workflow, Parents: []ect.ID{checkpoint},
	}})
	undoing := b.signal(t, &canonical.Message{Op: canonical.OpRollback, Body: &canonical.Signal{Token: request}})
	if f, err := uacp.ParseFrame(undoing); err != nil || f.Verb != uacp.Ask || f.Topic() != "/aepb/rollback" {
		t.Errorf("it is asked for at %q", f.Topic())
	}
	reply = b.askUACP(t, "abacus", undoing)
	m, err := agent.form.Decode(translators.Wire{Body: reply, Re: canonical.OpRollback})
	must(t, err)
	said, ok := m.Body.(*canonical.Signal)
	if !ok {
		t.Fatalf("got %s", short(reply))
	}
	result, _, err := ect.ParseUnverified(said.Token)
	must(t, err)
	asked, _, err := ect.ParseUnverified(request)
	must(t, err)
	tokens, err = uacpEvidence(reply)
	must(t, err)
	legs := b.legsOf(t, tokens)
	proven := slices.ContainsFunc(legs, func(c ect.Claims) bool { return slices.Contains(c.Parents, asked.ID) }) &&
		slices.ContainsFunc(legs, func(c ect.Claims) bool { return slices.Contains(c.Parents, result.ID) })
	if result.Act != ect.ActRollbackResult || !slices.Contains(result.Parents, asked.ID) || len(legs) != 2 || !proven {
		t.Errorf("%s with parents %v, proven by %d legs: %t", result.Act, result.Parents, len(legs), proven)
	}

	b.decidedOnce(t, hook, "abacus", ect.Claims{Workflow: first.Workflow, Parents: []ect.ID{checkpoint}})
	b.works(t)
}

// legsOf are verified tokens of ours.
func (b *bed) legsOf(t *testing.T, tokens []string) (out []ect.Claims) {
	t.Helper()
	for _, compact := range tokens {
		v, err := b.judge.Verify(t.Context(), compact, ect.Check{Purpose: ect.Parent})
		must(t, err)
		out = append(out, v.Claims())
	}
	return out
}
