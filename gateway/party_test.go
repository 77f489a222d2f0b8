package gateway_test

import (
	"context"
	"errors"
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/ect/ecttest"
	"github.com/aepb/aepb-gateway/gateway"
	"github.com/aepb/aepb-gateway/gateway/problem"
	"github.com/aepb/aepb-gateway/gateway/transport"
	"github.com/aepb/aepb-gateway/policy/limit"
	"github.com/aepb/aepb-gateway/translators/canonical"
)

// text is a message with words in it.
func text(output string) *canonical.Message {
	return &canonical.Message{Op: canonical.OpInvoke, Body: &canonical.Invoke{
		Turn: canonical.Content{Role: canonical.RoleCaller, Parts: []canonical.Part{{Kind: canonical.KindText, Text: output}}},
	}}
}

// sent is work that a caller has asked for with a token of its own, for these
// audiences.
func (b *signalFixture) sent(audience ...ect.Identity) (workflow string, own, checkpoint ect.ID) {
	b.t.Helper()
	c := ect.Claims{ID: ect.NewID(), Act: "send_task", Workflow: string(ect.NewID())}
	for _, id := range audience {
		c.Audience = append(c.Audience, string(id))
	}
	if _, err := b.Exchange(b.t.Context(), b.say(b.caller, text("go"), b.mint(b.caller, c))); err != nil {
		b.t.Fatal(err)
	}
	return c.Workflow, c.ID, b.agent.chkpoint
}

// TestRollbackRequest_PartiesOfTheCheckpoint: who made a token on the way to what a rollback is about, or
// was given one, and nobody whom somebody else merely names.
func TestRollbackRequest_PartiesOfTheCheckpoint(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		who     func(b *signalFixture) *ecttest.Party
		mark    func(b *signalFixture, c *ect.Claims) // of the checkpoint
		also    ect.ID                                // another parent
		own     bool                                  // the parent is the caller's own token
		refused bool
	}{
		"who began it":                    {own: true},
		"who was given its token":         {own: true, who: func(b *signalFixture) *ecttest.Party { return b.server }},
		"nobody else":                     {own: true, who: func(b *signalFixture) *ecttest.Party { return b.outsider }, refused: true},
		"of a checkpoint and of nothing":  {also: ect.NewID(), refused: true},
		"who is named by the agent alone": {who: func(b *signalFixture) *ecttest.Party { return b.outsider }, mark: namesCaller, refused: true},
		"who is given it by the agent": {who: func(b *signalFixture) *ecttest.Party { return b.outsider }, mark: func(b *signalFixture, c *ect.Claims) {
			c.Audience = append(c.Audience, string(b.outsider.ID))
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newSignalFixture(t)
			if c.mark != nil {
				b.agent.mark = func(claims *ect.Claims) { c.mark(b, claims) }
			}
			workflow, parent, checkpoint := b.sent(b.self.ID, b.server.ID)
			if !c.own {
				parent = checkpoint
			}
			parents := []ect.ID{parent}
			if c.also != "" {
				parents = append(parents, c.also)
			}
			who := b.caller
			if c.who != nil {
				who = c.who(b)
			}
			received := len(b.agent.received)
			_, err := b.Exchange(t.Context(), b.say(who, b.rollback(who, workflow, parents...)))
			if got := problem.From(err).Code; c.refused && got != problem.CodeForbidden || !c.refused && err != nil {
				t.Errorf("got %v", err)
			}
			if c.refused != (len(b.agent.received) == received) {
				t.Errorf("the agent heard of it: %t", c.refused)
			}
		})
	}
}

// namesCaller lets a token say, as only ours may, whose message it was made of.
func namesCaller(b *signalFixture, c *ect.Claims) {
	c.Ext = ect.Ext{}
	c.Ext.SetString(ect.ExtCaller, string(b.outsider.ID))
}

// TestSignal_OnlyGatewaysCarryOthers: nobody travels on another's request because he has a
// token of his own beside it, except gateways, which carry those of others.
func TestSignal_OnlyGatewaysCarryOthers(t *testing.T) {
	t.Parallel()
	b := newSignalFixture(t)
	workflow, checkpoint := b.work("")
	own := b.mint(b.outsider, ect.Claims{Act: "send_task", Audience: []string{string(b.self.ID)}, Workflow: workflow})
	call := func() transport.Call { return b.say(b.outsider, b.rollback(b.caller, workflow, checkpoint), own) }
	received := len(b.agent.received)
	if _, err := b.Exchange(t.Context(), call()); problem.From(err).Code != problem.CodeECTInvalid || len(b.agent.received) != received {
		t.Errorf("got %v", err)
	}
	b.Apply(gateway.Settings{Gateways: []ect.Identity{b.outsider.ID}})
	asks := b.rollback(b.caller, workflow, checkpoint)
	own = b.mint(b.outsider, ect.Claims{
		Act: "send_task", Audience: []string{string(b.self.ID)}, Workflow: workflow, Parents: []ect.ID{claims(t, asks.Body.(*canonical.Signal).Token).ID},
	})
	if _, err := b.Exchange(t.Context(), b.say(b.outsider, asks, own)); err != nil {
		t.Errorf("a gateway carries it: %v", err)
	}
}

// TestAttack_GatewayFillsAnothersShare: a user of a listed gateway sends tokens of another
// issuer that were never seen here. Before, they counted in their issuer's share. They
// count as the gateway's, and what we signed stays where it is when it comes back.
func TestAttack_GatewayFillsAnothersShare(t *testing.T) {
	t.Parallel()
	b := newSignalFixture(t)
	b.Apply(gateway.Settings{Gateways: []ect.Identity{b.outsider.ID}})
	wantHolder := func(id ect.ID, holder ect.Identity) {
		t.Helper()
		records, err := ecttest.Find(t.Context(), b.memory, id)
		if err != nil || len(records) != 1 || records[0].Holder != limit.Identity(string(holder)) {
			t.Errorf("got %+v, %v; want it with %s", records, err, holder)
		}
	}
	c := ect.Claims{Act: "send_task", Audience: []string{string(b.self.ID)}, Workflow: string(ect.NewID())}
	unseen := b.mint(b.caller, c)
	c.Parents = []ect.ID{claims(t, unseen).ID}
	carries := b.mint(b.outsider, c)
	if _, err := b.Exchange(t.Context(), b.say(b.outsider, text("go"), unseen, carries)); err != nil {
		t.Fatal(err)
	}
	wantHolder(claims(t, unseen).ID, b.outsider.ID)
	wantHolder(claims(t, carries).ID, b.outsider.ID)

	request := b.say(b.caller, text("go"), b.mint(b.caller, ect.Claims{
		Act: "send_task", Audience: []string{string(b.self.ID)}, Workflow: string(ect.NewID()),
	}))
	answer, err := b.Exchange(t.Context(), request)
	if err != nil {
		t.Fatal(err)
	}
	ours := claims(t, answer.Evidence[0])
	c.Workflow, c.Parents = ours.Workflow, []ect.ID{ours.ID}
	source := b.mint(b.caller, c) // of a user who belongs
	c.Parents, c.Ext = []ect.ID{claims(t, source).ID}, ect.Ext{}
	c.Ext.SetString(ect.ExtCaller, string(b.caller.ID))
	if _, err = b.Exchange(t.Context(), b.say(b.outsider, text("go on"), answer.Evidence[0], source, b.mint(b.outsider, c))); err != nil {
		t.Fatal(err)
	}
	wantHolder(ours.ID, b.caller.ID)
}

// TestCheckpoint_ForeignTokenWithSameID: a stranger's token with the checkpoint's id is
// refused in the checkpoint's workflow, and in another one it does not keep the
// caller from undoing its own work.
func TestCheckpoint_ForeignTokenWithSameID(t *testing.T) {
	t.Parallel()
	b := newSignalFixture(t)
	workflow, checkpoint := b.work("")
	namesake := ect.Claims{ID: checkpoint, Act: "send_task", Audience: []string{string(b.self.ID)}, Workflow: workflow, Parents: b.parents(checkpoint)}
	if _, err := b.Exchange(t.Context(), b.say(b.outsider, text("go"), b.mint(b.outsider, namesake))); problem.From(err).Code != problem.CodeECTInvalid {
		t.Errorf("in the same workflow: %v", err)
	}
	namesake.Workflow = string(ect.NewID())
	if _, err := b.Exchange(t.Context(), b.say(b.outsider, text("go"), b.mint(b.outsider, namesake))); err != nil {
		t.Fatal(err)
	}
	if _, err := b.Exchange(t.Context(), b.say(b.caller, b.rollback(b.caller, workflow, checkpoint))); err != nil {
		t.Error(err)
	}
}

// TestRollbackResult_InvalidIsRejected: what an agent answers to a rollback request
// that is no result of its own for it.
func TestRollbackResult_InvalidIsRejected(t *testing.T) {
	t.Parallel()
	ended := &ending{}
	for name, change := range map[string]func(b *signalFixture){
		"of another workflow": func(b *signalFixture) { b.agent.spoil = func(c *ect.Claims) { c.Workflow = string(ect.NewID()) } },
		"by somebody else":    func(b *signalFixture) { b.agent.by = b.caller },
		"by nobody known":     func(b *signalFixture) { b.agent.by = ecttest.NewParty(b.t, b.server.ID) },
		"a stream": func(b *signalFixture) {
			b.agent.answer = func() (transport.Reply, error) { return transport.Reply{Events: ended}, nil }
		},
	} {
		t.Run(name, func(t *testing.T) {
			b := newSignalFixture(t)
			workflow, checkpoint := b.work("")
			change(b)
			answer, err := b.Exchange(t.Context(), b.say(b.caller, b.rollback(b.caller, workflow, checkpoint)))
			if problem.From(err).Code != problem.CodeBadReply || len(answer.Wire().Body) != 0 {
				t.Errorf("got %v", err)
			}
		})
	}
	if !ended.closed {
		t.Error("the stream is still open")
	}
	b := newSignalFixture(t)
	workflow, checkpoint := b.work("")
	b.agent.answer = func() (transport.Reply, error) {
		return transport.Reply{}, &transport.UnreachableError{Agent: "undoer", Err: io.ErrUnexpectedEOF}
	}
	_, err := b.Exchange(t.Context(), b.say(b.caller, b.rollback(b.caller, workflow, checkpoint)))
	if gone := (*transport.UnreachableError)(nil); !errors.As(err, &gone) {
		t.Errorf("an agent that is away: %v", err)
	}
}

// ending is a stream of nothing.
type ending struct{ closed bool }

func (*ending) Next(context.Context) (transport.Event, error) { return transport.Event{}, io.EOF }

func (e *ending) Close() error {
	e.closed = true
	return nil
}

// TestDecision_Refusals: by who asks for them, whoever else asks likewise,
// and by tokens for something else.
func TestDecision_Refusals(t *testing.T) {
	t.Parallel()
	b := newSignalFixture(t)
	const hook = "https://client.example/hook"
	workflow, gate := b.work(hook)
	for _, act := range []ect.Act{"send_task", ect.ActRollbackRequest} {
		if _, err := b.Exchange(t.Context(), b.say(b.server, b.decision(b.server, act, workflow, gate))); problem.From(err).Code != problem.CodeECTInvalid {
			t.Errorf("%s: %v", act, err)
		}
	}
	if err := b.Parts().Callbacks.Await(t.Context(), b.server.ID, workflow, hook); err != nil {
		t.Fatal(err)
	}
	own := b.decision(b.server, ect.ActApprovalGranted, workflow, gate)
	if _, err := b.Exchange(t.Context(), b.say(b.server, own)); problem.From(err).Code != problem.CodeForbidden {
		t.Errorf("by who asks, at another's place: %v", err)
	}
	if err := b.Close(); err != nil || len(b.notified.list) != 0 {
		t.Errorf("told %d times, %v", len(b.notified.list), err)
	}
}

// TestCallback_RequiresWorkflowURIAndSender: a callback has a workflow, a bounded URI, and
// somebody who would call it.
func TestCallback_RequiresWorkflowURIAndSender(t *testing.T) {
	t.Parallel()
	b := newSignalFixture(t)
	const hook = "https://client.example/"
	longest := hook + strings.Repeat("x", 2048-len(hook))
	if err := b.Parts().Callbacks.Await(t.Context(), b.caller.ID, string(ect.NewID()), longest); err != nil {
		t.Errorf("the longest: %v", err)
	}
	bad := (*canonical.Error)(nil)
	if err := b.Parts().Callbacks.Await(t.Context(), b.caller.ID, string(ect.NewID()), longest+"x"); !errors.As(err, &bad) || bad.Code != canonical.CodeBadParams {
		t.Errorf("too long: %v", err)
	}
	if err := b.Parts().Callbacks.Await(t.Context(), b.caller.ID, "", hook); !errors.As(err, &bad) || bad.Code != canonical.CodeBadParams {
		t.Errorf("for no workflow: %v", err)
	}
	b.Network.Callbacks = nil
	if err := b.Parts().Callbacks.Await(t.Context(), b.caller.ID, string(ect.NewID()), hook); !errors.As(err, &bad) || bad.Code != canonical.CodePushUnsupported {
		t.Errorf("where nobody is told: %v", err)
	}
}

// TestEvidence_AgentTokenBoundToItsAnswer: for us, now, of these bytes, and new.
func TestEvidence_AgentTokenBoundToItsAnswer(t *testing.T) {
	t.Parallel()
	id, now := ect.NewID(), time.Now().Unix()
	for name, c := range map[string]struct {
		mark  func(*ect.Claims)
		calls int // that are answered before it is refused
	}{
		"of another answer": {mark: func(c *ect.Claims) { c.Act, c.OutputHash = "send_task", ect.Hash([]byte("another")) }},
		"for somebody else": {mark: func(c *ect.Claims) { c.Audience = []string{"spiffe://example.com/else"} }},
		"run out":           {mark: func(c *ect.Claims) { c.IssuedAt, c.Expires = now-7200, now-3600 }},
		"not yet":           {mark: func(c *ect.Claims) { c.IssuedAt, c.Expires = now+3600, now+7200 }},
		"shown before":      {mark: func(c *ect.Claims) { c.ID = id; c.Workflow = "6f1f8f3c-9a37-4b6e-9c55-0a4a0b7b7f10" }, calls: 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newSignalFixture(t)
			b.agent.mark = c.mark
			for range c.calls {
				if _, err := b.Exchange(t.Context(), b.say(b.caller, text("go"))); err != nil {
					t.Fatal(err)
				}
			}
			answer, err := b.Exchange(t.Context(), b.say(b.caller, text("go on")))
			if problem.From(err).Code != problem.CodeBadReply || len(answer.Wire().Body) != 0 {
				t.Errorf("got %v", err)
			}
		})
	}
}

// TestDecision_OfAMemberWithoutTheRole: a member of the workflow who neither asked for
// the work nor signed what waits decides only with the role of an approver (R23).
func TestDecision_OfAMemberWithoutTheRole(t *testing.T) {
	t.Parallel()
	b := newSignalFixture(t)
	b.agent.mark = func(c *ect.Claims) { c.Audience = append(c.Audience, string(b.outsider.ID)) } // a member by that
	workflow, gate := b.work("https://client.example/hook")
	child := b.mint(b.outsider, ect.Claims{Act: "send_task", Audience: []string{string(b.self.ID)}, Workflow: workflow, Parents: []ect.ID{gate}})
	if _, err := b.Exchange(t.Context(), b.say(b.outsider, text("go"), child)); err != nil {
		t.Fatalf("the member works in the workflow: %v", err)
	}
	received := len(b.agent.received)
	for _, act := range []ect.Act{ect.ActApprovalGranted, ect.ActApprovalDenied} {
		if _, err := b.Exchange(t.Context(), b.say(b.outsider, b.decision(b.outsider, act, workflow, gate))); problem.From(err).Code != problem.CodeForbidden {
			t.Errorf("%s: got %v, want forbidden", act, err)
		}
	}
	b.wantDecidedOnce(b.decision(b.approver, ect.ActApprovalGranted, workflow, gate), 1)
	if len(b.agent.received) != received {
		t.Error("the agent heard of a decision")
	}
}

// TestDecision_OfTheHooksRegistrant: an approver who had itself told of decisions about
// this workflow has asked for one, and does not give it (R23).
func TestDecision_OfTheHooksRegistrant(t *testing.T) {
	t.Parallel()
	for name, registrant := range map[string]func(b *signalFixture) *ecttest.Party{
		"the approver": func(b *signalFixture) *ecttest.Party { return b.approver }, "another": outsider,
	} {
		b := newSignalFixture(t)
		workflow, gate := b.work("")
		who := registrant(b)
		if err := b.Parts().Callbacks.Await(t.Context(), who.ID, workflow, "https://client.example/hook"); err != nil {
			t.Fatal(err)
		}
		granted := b.decision(b.approver, ect.ActApprovalGranted, workflow, gate)
		if who != b.approver {
			b.wantDecidedOnce(granted, 1)
			continue
		}
		if _, err := b.Exchange(t.Context(), b.say(b.approver, granted)); problem.From(err).Code != problem.CodeForbidden {
			t.Errorf("%s has registered: got %v, want forbidden", name, err)
		}
		if err := b.Close(); err != nil || len(b.notified.list) != 0 {
			t.Errorf("%s has registered: told %d times, %v", name, len(b.notified.list), err)
		}
	}
}

// wantDecidedOnce makes the approver's decision, and expects that it alone was told, to
// so many hooks. It ends the gateway.
func (b *signalFixture) wantDecidedOnce(granted *canonical.Message, hooks int) {
	b.t.Helper()
	if _, err := b.Exchange(b.t.Context(), b.say(b.approver, granted)); err != nil {
		b.t.Errorf("the approver decides: %v", err)
	}
	if err := b.Close(); err != nil { // waits for what is told in the background
		b.t.Fatal(err)
	}
	token := granted.Body.(*canonical.Signal).Token
	if len(b.notified.list) != hooks || slices.ContainsFunc(b.notified.list, func(d transport.Decision) bool { return d.Token != token }) {
		b.t.Errorf("told %d times, want the approver's decision %d times", len(b.notified.list), hooks)
	}
}
