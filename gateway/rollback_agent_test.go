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
	"github.com/aepb/aepb-gateway/gateway/checkpoint"
	"github.com/aepb/aepb-gateway/gateway/directory"
	"github.com/aepb/aepb-gateway/gateway/problem"
	"github.com/aepb/aepb-gateway/gateway/transport"
	work "github.com/aepb/aepb-gateway/gateway/workflow"
	pure "github.com/aepb/aepb-gateway/lifecycle/checkpoint"
	"github.com/aepb/aepb-gateway/policy"
	"github.com/aepb/aepb-gateway/policy/hitl"
	"github.com/aepb/aepb-gateway/policy/limit"
	"github.com/aepb/aepb-gateway/translators/canonical"
	"github.com/aepb/aepb-gateway/translators/mcp"
	"github.com/aepb/aepb-gateway/translators/rollback"
)

// undoerGateway is a signal bed whose agent rolls back itself, in a workflow that has a start.
type undoerGateway struct {
	*signalFixture
	workflow string
	start    ect.ID
}

func newUndoer(t *testing.T) *undoerGateway {
	t.Helper()
	b := &undoerGateway{signalFixture: newSignalFixture(t)}
	b.Network.Rollbacks = map[canonical.Binding]transport.Dialer{mcp.Binding: nil}
	agent, _ := b.Directory.Find("undoer")
	agent.Undo = directory.Undo{Own: true}
	if err := b.Directory.Put(agent); err != nil {
		t.Fatal(err)
	}
	b.agent.mark = func(c *ect.Claims) {
		c.OutputHash = ect.Hash([]byte("as it was"))
		c.Ext = pure.Checkpoint{Reversible: true, RollbackURI: "https://undoer.example" + pure.Path, TTL: time.Hour}.Ext()
	}
	b.agent.spoil = func(c *ect.Claims) {
		c.Ext.SetString(ect.ExtCheckpointID, string(b.agent.chkpoint))
	}
	wid, compact, err := b.Parts().Workflows.Begin(t.Context(), identity.Caller{Peer: b.caller.Peer()}, "", work.Plan{})
	if err != nil {
		t.Fatal(err)
	}
	b.workflow, b.start = wid, claims(t, compact).ID
	return b
}

// goes has the agent do something, and returns the tokens of the exchange.
func (b *undoerGateway) goes() []ect.Claims {
	b.t.Helper()
	call := b.say(b.caller, &canonical.Message{
		Op: canonical.OpInvoke, Body: &canonical.Invoke{Turn: canonical.Content{Role: canonical.RoleCaller, Parts: []canonical.Part{{Kind: canonical.KindText, Text: "go"}}}},
	})
	call.Parent = string(b.start)
	answer, err := b.Exchange(b.t.Context(), call)
	if err != nil {
		b.t.Fatal(err)
	}
	var out []ect.Claims
	for _, compact := range answer.Evidence {
		out = append(out, claims(b.t, compact))
	}
	return out
}

// request is a rollback request of the caller's, as it comes over HTTP.
func (b *undoerGateway) request(to ect.ID) string {
	return b.rollback(b.caller, b.workflow, to).Body.(*canonical.Signal).Token
}

// result posts a rollback request to a checkpoint.
func (b *undoerGateway) result(to ect.ID) ect.Claims {
	b.t.Helper()
	answer, err := b.undo(b.caller, b.request(to))
	if err != nil {
		b.t.Fatal(err)
	}
	return claims(b.t, answer.Wire().Header.Get(rollback.Field))
}

// TestRollback_AgentsOwn: an agent that rolls back itself is asked in its protocol, by the checkpoint that it made itself, with a token of the gateway's own; the
// caller can name that checkpoint or the gateway's.
func TestRollback_AgentsOwn(t *testing.T) {
	t.Parallel()
	for name, own := range map[string]bool{"by the gateway's checkpoint": false, "by the agent's checkpoint": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newUndoer(t)
			tokens := b.goes()
			if len(tokens) != 3 || tokens[1].Act != ect.ActCheckpoint {
				t.Fatalf("the tokens are %v", acts(tokens))
			}
			to := tokens[1].ID
			if own {
				to = b.agent.chkpoint
			}
			result := b.result(to)
			if statusOf(result) != "completed" || result.Issuer != b.self.ID || result.OutputHash != ect.Hash([]byte("as it was")) {
				t.Errorf("the result is %+v", result)
			}
			message := b.agent.received[len(b.agent.received)-1]
			signal, ok := message.Body.(*canonical.Signal)
			if !ok {
				t.Fatalf("the agent got %+v", message.Body)
			}
			request := claims(t, signal.Token)
			whole, _ := request.Ext.String(ect.ExtRollback)
			if request.Issuer != b.self.ID || !slices.Equal(request.Parents, []ect.ID{b.agent.chkpoint}) || !slices.Equal([]ect.ID{ect.ID(whole)}, result.Parents) || !slices.Contains(request.Audience, string(b.server.ID)) {
				t.Errorf("the agent was asked with %+v", request)
			}
			if again := b.result(to); statusOf(again) != "completed" || b.agent.received[len(b.agent.received)-1] != message {
				t.Errorf("what was undone was undone again: %s", statusOf(again))
			}
		})
	}
}

// TestRollback_AgentsResultIsJudged: a result that is about something else, or that is not completed, fails, and the workflow stops (ATD, Basic
// Rollback).
func TestRollback_AgentsResultIsJudged(t *testing.T) {
	t.Parallel()
	for name, spoil := range map[string]func(b *undoerGateway, c *ect.Claims){
		"another checkpoint": func(_ *undoerGateway, c *ect.Claims) { c.Ext.SetString(ect.ExtCheckpointID, string(ect.NewID())) },
		"no checkpoint":      func(_ *undoerGateway, c *ect.Claims) { delete(c.Ext, ect.ExtCheckpointID) },
		"failed":             func(_ *undoerGateway, c *ect.Claims) { c.Ext.SetString(ect.ExtStatus, "failed") },
		"partial":            func(_ *undoerGateway, c *ect.Claims) { c.Ext.SetString(ect.ExtStatus, "partial") },
		"a fifth status":     func(_ *undoerGateway, c *ect.Claims) { c.Ext.SetString(ect.ExtStatus, "done") },
		"another issuer":     func(b *undoerGateway, _ *ect.Claims) { b.agent.by = b.outsider },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newUndoer(t)
			made := b.goes()[1]
			right := b.agent.spoil
			b.agent.spoil = func(c *ect.Claims) { right(c); spoil(b, c) }
			if result := b.result(made.ID); statusOf(result) != "failed" {
				t.Errorf("the result is %s", statusOf(result))
			}
			if level := b.Parts().Levels.Of(b.workflow); level.Mode != hitl.Stopped {
				t.Errorf("the workflow is %s", level.Mode)
			}
		})
	}
}

// deposit has a party deposit a state.
func (b *undoerGateway) deposit(who *ecttest.Party, c ect.Claims, state []byte) (string, error) {
	b.t.Helper()
	compact := b.mint(who, c)
	key := limit.Identity(string(who.ID))
	_, err := b.Parts().Checkpoints.Deposit(b.t.Context(), checkpoint.Depositor{ID: who.ID, Owner: key, Holder: key}, compact, state)
	return compact, err
}

// deposited is a checkpoint of a state that an agent made after a request.
func (b *undoerGateway) deposited(request ect.ID, state []byte) ect.Claims {
	return ect.Claims{
		Act: ect.ActCheckpoint, Audience: []string{string(b.self.ID)}, Workflow: b.workflow, Parents: []ect.ID{request}, OutputHash: ect.Hash(state),
		Ext: pure.Checkpoint{Reversible: true, RollbackURI: "https://undoer.example" + pure.Path, TTL: time.Hour}.Ext(),
	}
}

// TestDeposit_RolledBackTo: an agent deposits its state, reads it again, and is asked to restore it; a result with another hash is not believed
// (ATD, Checkpoint ECT Format).
func TestDeposit_RolledBackTo(t *testing.T) {
	t.Parallel()
	b := newUndoer(t)
	request := b.goes()[0]
	state := []byte("the state of the agent, sealed by itself")
	compact, err := b.deposit(b.server, b.deposited(request.ID, state), state)
	if err != nil {
		t.Fatal(err)
	}
	made := claims(t, compact).ID
	if _, got, err := b.Parts().Checkpoints.Fetch(t.Context(), b.server.ID, made); err != nil || string(got) != string(state) {
		t.Errorf("%v: it reads %q", err, got)
	}
	b.agent.spoil = func(c *ect.Claims) { c.Ext.SetString(ect.ExtCheckpointID, string(made)) }
	if result := b.result(made); statusOf(result) != "failed" {
		t.Errorf("another state: %s", statusOf(result))
	}
	b.agent.spoil = func(c *ect.Claims) {
		c.Ext.SetString(ect.ExtCheckpointID, string(made))
		c.OutputHash = ect.Hash(state)
	}
	if result := b.result(made); statusOf(result) != "completed" || result.OutputHash != ect.Hash(state) {
		t.Errorf("its state: %s", statusOf(result))
	}
}

// TestDeposit_OutlivesEvidence: a deposit is there for as long as its ttl says, also when no token of its workflow is on record any more.
func TestDeposit_OutlivesEvidence(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newUndoer(t)
		made := b.deposited(b.goes()[0].ID, []byte("state"))
		made.Ext.SetInt(ect.ExtTTL, int64(30*24*time.Hour/time.Second))
		compact, err := b.deposit(b.server, made, []byte("state"))
		if err != nil {
			t.Fatal(err)
		}
		id := claims(t, compact).ID
		time.Sleep(29 * 24 * time.Hour)
		if _, got, err := b.Parts().Checkpoints.Fetch(t.Context(), b.server.ID, id); err != nil || string(got) != "state" {
			t.Errorf("after 29 days: %v, %q", err, got)
		}
		time.Sleep(2 * 24 * time.Hour)
		var missing *problem.NotFoundError
		if _, got, err := b.Parts().Checkpoints.Fetch(t.Context(), b.server.ID, id); !errors.As(err, &missing) || got != nil {
			t.Errorf("after its end: %v, %q", err, got)
		}
	})
}

// TestDeposit_Refusals: a deposit has the agent's own token of a workflow that it belongs to, with the hash of the state.
func TestDeposit_Refusals(t *testing.T) {
	t.Parallel()
	b := newUndoer(t)
	request, state := b.goes()[0], []byte("state")
	for name, c := range map[string]struct {
		spoil  func(*ect.Claims)
		status int
	}{
		"another state":    {func(c *ect.Claims) { c.OutputHash = ect.Hash([]byte("other")) }, http.StatusForbidden},
		"no ttl":           {func(c *ect.Claims) { delete(c.Ext, ect.ExtTTL) }, http.StatusForbidden},
		"another path":     {func(c *ect.Claims) { c.Ext.SetString(ect.ExtRollbackURI, "https://undoer.example/other") }, http.StatusForbidden},
		"another workflow": {func(c *ect.Claims) { c.Workflow = string(ect.NewID()) }, http.StatusForbidden},
		"another act":      {func(c *ect.Claims) { c.Act = ect.ActError }, http.StatusForbidden},
	} {
		made := b.deposited(request.ID, state)
		c.spoil(&made)
		if _, err := b.deposit(b.server, made, state); problem.From(err).Status != c.status {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := b.deposit(b.server, b.deposited(request.ID, state), state); err != nil {
		t.Errorf("as it should be: %v", err)
	}
	if _, err := b.deposit(b.server, b.deposited(request.ID, nil), make([]byte, checkpoint.MaxDeposit+1)); problem.From(err).Status != http.StatusRequestEntityTooLarge {
		t.Errorf("too large: %v", err)
	}
}

// TestAttack_StateOfAnotherAgent: a state that an agent deposited is for that agent alone, and an identity without a part in a workflow deposits
// nothing there.
func TestAttack_StateOfAnotherAgent(t *testing.T) {
	t.Parallel()
	b := newUndoer(t)
	request, state := b.goes()[0], []byte("secret")
	compact, err := b.deposit(b.server, b.deposited(request.ID, state), state)
	if err != nil {
		t.Fatal(err)
	}
	var missing *problem.NotFoundError
	for _, who := range []ect.Identity{b.caller.ID, b.outsider.ID, b.self.ID} {
		if _, got, err := b.Parts().Checkpoints.Fetch(t.Context(), who, claims(t, compact).ID); !errors.As(err, &missing) || got != nil {
			t.Errorf("%s got %q, %v", who, got, err)
		}
	}
	var forbidden *policy.Forbidden
	if _, err := b.deposit(b.outsider, b.deposited(request.ID, state), state); !errors.As(err, &forbidden) {
		t.Errorf("an outsider deposits: %v", err)
	}
}

// TestAttack_CheckpointsOfOneMember: a member that has its share of a workflow's checkpoints made is refused, before its call is sent, and others go
// on.
func TestAttack_CheckpointsOfOneMember(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newUndoer(t)
		request := b.goes()[0]
		var refused *limit.ExceededError
		for i := range pure.Burst + 1 {
			made := b.deposited(request.ID, nil)
			made.OutputHash = ect.Hash([]byte{byte(i)})
			_, err := b.deposit(b.server, made, []byte{byte(i)})
			if errors.As(err, &refused) {
				break
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		if refused == nil || refused.RetryAfter <= 0 {
			t.Fatalf("a burst of %d is not refused", pure.Burst+1)
		}
		if tokens := b.goes(); len(tokens) != 3 {
			t.Errorf("the caller's step has %d tokens", len(tokens))
		}
	})
}

// TestAttack_GroupOverOthers: an agent that deposits a checkpoint which groups those of others has no part in these, and cannot have them rolled back.
func TestAttack_GroupOverOthers(t *testing.T) {
	t.Parallel()
	b := newUndoer(t)
	made := b.goes()[1]
	group := b.deposited(made.ID, []byte("group"))
	compact, err := b.deposit(b.server, group, []byte("group"))
	if err != nil {
		t.Fatal(err)
	}
	before := len(b.agent.received)
	if _, err := b.undo(b.outsider, b.rollback(b.outsider, b.workflow, claims(t, compact).ID).Body.(*canonical.Signal).Token); problem.From(err).Status != http.StatusForbidden {
		t.Errorf("an outsider rolls back a group: %v", err)
	}
	if len(b.agent.received) != before {
		t.Error("the agent was asked")
	}
	if result := b.result(claims(t, compact).ID); statusOf(result) != "completed" || len(b.agent.received) != before+1 {
		t.Errorf("who asked for the work rolls it back by the group: %s", statusOf(result))
	}
}

// TestAttack_FalseErrors: an error about a step that its issuer has no part in is refused, undoes nothing, and is counted; one about an own step is
// taken (ATD, False Error Injection).
func TestAttack_FalseErrors(t *testing.T) {
	t.Parallel()
	b := newUndoer(t)
	request := b.goes()[0]
	report := func(who *ecttest.Party, workflow string, about ect.ID) error {
		ext := ect.Ext{}
		ext.SetString(ect.ExtSeverity, "critical")
		ext.SetString(ect.ExtErrorType, "action_failed")
		compact := b.mint(who, ect.Claims{Act: ect.ActError, Audience: []string{string(b.self.ID)}, Workflow: workflow, Parents: []ect.ID{about}, Ext: ext})
		_, err := b.Exchange(t.Context(), b.say(who, text("it failed"), compact))
		return err
	}
	for name, c := range map[string]struct {
		who      *ecttest.Party
		workflow string
		about    ect.ID
	}{
		"an outsider about another's step": {b.outsider, b.workflow, request.ID},
		"about a step of another workflow": {b.caller, string(ect.NewID()), request.ID},
		"about a step that is not there":   {b.caller, b.workflow, ect.NewID()},
	} {
		if err := report(c.who, c.workflow, c.about); problem.From(err).Status != http.StatusForbidden {
			t.Errorf("%s: %v", name, err)
		}
	}
	steps, err := b.Parts().Workflows.Report(t.Context(), b.workflow, b.caller.ID)
	if err != nil || len(steps.Steps) == 0 || steps.Steps[0].State != "done" {
		t.Errorf("%v: the steps are %+v", err, steps.Steps)
	}
	if err := report(b.caller, b.workflow, request.ID); problem.From(err).Status == http.StatusForbidden {
		t.Errorf("about its own step: %v", err)
	}
}
