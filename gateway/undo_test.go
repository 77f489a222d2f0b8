package gateway_test

import (
	"errors"
	"net/http"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/ect/ecttest"
	"github.com/aepb/aepb-gateway/ect/identity"
	"github.com/aepb/aepb-gateway/gateway/transport"
	"github.com/aepb/aepb-gateway/policy"
	"github.com/aepb/aepb-gateway/translators"
	"github.com/aepb/aepb-gateway/translators/canonical"
	"github.com/aepb/aepb-gateway/translators/mcp"
	"github.com/aepb/aepb-gateway/translators/rollback"
)

// undo posts a request, as it comes over HTTP.
func (b *signalFixture) undo(who *ecttest.Party, token string) (transport.Answer, error) {
	b.t.Helper()
	caller := identity.Caller{Peer: who.Peer()}
	pass, err := b.Limit(b.t.Context(), transport.CallInfo{Caller: caller, Address: "127.0.0.1"})
	if err != nil {
		return transport.Answer{}, err
	}
	return b.Parts().Rollbacks.Rollback(b.t.Context(), transport.Call{
		Caller: caller, Address: "127.0.0.1", Evidence: []string{token}, Pass: pass,
		Wire: translators.Wire{
			Form: rollback.Name, Media: rollback.Media, Header: http.Header{rollback.Field: {token}}, Verb: http.MethodPost, Path: rollback.Path,
		},
	}, token)
}

// TestRollbackRequest_RepeatedGetsSameResult, long after its token is over, and to
// nobody but its caller (ATD, Rollback Timeout and Escalation). The agent has
// another protocol, with a form of its own.
func TestRollbackRequest_RepeatedGetsSameResult(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newSignalFixture(t)
		b.Network.Rollbacks = map[canonical.Binding]transport.Dialer{mcp.Binding: nil}
		workflow, checkpoint := b.work("")
		token := b.rollback(b.caller, workflow, checkpoint).Body.(*canonical.Signal).Token
		first, err := b.undo(b.caller, token)
		if err != nil {
			t.Fatal(err)
		}
		result := claims(t, first.Wire().Header.Get(rollback.Field))
		if result.Act != ect.ActRollbackResult || !slices.Contains(result.Parents, claims(t, token).ID) || len(first.Evidence) != 2 {
			t.Fatalf("%s with %d tokens", result.Act, len(first.Evidence))
		}
		received := len(b.agent.received)
		for _, after := range []time.Duration{0, 36 * time.Hour, 20 * 24 * time.Hour} {
			time.Sleep(after)
			again, err := b.undo(b.caller, token)
			if err != nil || again.Wire().Header.Get(rollback.Field) != first.Wire().Header.Get(rollback.Field) ||
				string(again.Wire().Body) != string(first.Wire().Body) || !slices.Equal(again.Evidence, first.Evidence) || len(b.agent.received) != received {
				t.Errorf("after %s: %v", after, err)
			}
		}
		if _, err := b.undo(b.outsider, token); err == nil {
			t.Error("an outsider got it")
		}
		late := b.rollback(b.caller, workflow, checkpoint).Body.(*canonical.Signal).Token
		time.Sleep(36 * time.Hour)
		if _, err := b.undo(b.caller, late); err == nil {
			t.Error("a request that was late was taken")
		}
	})
}

// TestRollbackRequest_OutsiderRefused: neither with a token of his own, nor where nothing
// is known of the checkpoint, or of how to ask.
func TestRollbackRequest_OutsiderRefused(t *testing.T) {
	t.Parallel()
	b := newSignalFixture(t)
	b.Network.Rollbacks = map[canonical.Binding]transport.Dialer{mcp.Binding: nil}
	workflow, checkpoint := b.work("")
	token := func(who *ecttest.Party, workflow string, par ...ect.ID) string {
		return b.rollback(who, workflow, par...).Body.(*canonical.Signal).Token
	}
	received := len(b.agent.received)
	var forbidden *policy.Forbidden
	for name, c := range map[string]struct {
		who   *ecttest.Party
		token string
	}{
		"an outsider":        {b.outsider, token(b.outsider, workflow, checkpoint)},
		"no checkpoint":      {b.caller, token(b.caller, workflow)},
		"an unknown one":     {b.caller, token(b.caller, workflow, ect.NewID())},
		"another workflow's": {b.caller, token(b.caller, string(ect.NewID()), checkpoint)},
	} {
		if _, err := b.undo(c.who, c.token); !errors.As(err, &forbidden) {
			t.Errorf("%s: %v", name, err)
		}
	}
	b.Network.Rollbacks = nil
	if _, err := b.undo(b.caller, token(b.caller, workflow, checkpoint)); !errors.As(err, &forbidden) {
		t.Errorf("without a way: %v", err)
	}
	if len(b.agent.received) != received {
		t.Error("the agent heard of it")
	}
}

// TestAttack_KeptRollbackOfCallerWhoMayNotCallAnyMore: the kept answer of a rollback is for a
// caller who may call the agent when it asks again.
func TestAttack_KeptRollbackOfCallerWhoMayNotCallAnyMore(t *testing.T) {
	t.Parallel()
	b := newSignalFixture(t)
	b.Network.Rollbacks = map[canonical.Binding]transport.Dialer{mcp.Binding: nil}
	workflow, checkpoint := b.work("")
	token := b.rollback(b.caller, workflow, checkpoint).Body.(*canonical.Signal).Token
	if _, err := b.undo(b.caller, token); err != nil {
		t.Fatal(err)
	}
	var forbidden *policy.Forbidden
	agent, ok := b.Directory.Find("undoer")
	if !ok {
		t.Fatal("the agent is not listed")
	}
	agent.Rules = policy.Rules{Callers: []string{string(b.outsider.ID)}}
	if err := b.Directory.Put(agent); err != nil {
		t.Fatal(err)
	}
	if answer, err := b.undo(b.caller, token); !errors.As(err, &forbidden) || answer.Wire().Body != nil || answer.Evidence != nil {
		t.Errorf("%v, %d tokens, expected a refusal without any", err, len(answer.Evidence))
	}
}
