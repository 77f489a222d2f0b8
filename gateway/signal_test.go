package gateway_test

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/ect/ecttest"
	"github.com/aepb/aepb-gateway/ect/identity"
	"github.com/aepb/aepb-gateway/gateway"
	"github.com/aepb/aepb-gateway/gateway/approval"
	"github.com/aepb/aepb-gateway/gateway/directory"
	"github.com/aepb/aepb-gateway/gateway/outbound"
	"github.com/aepb/aepb-gateway/gateway/problem"
	"github.com/aepb/aepb-gateway/gateway/state"
	"github.com/aepb/aepb-gateway/gateway/telemetry"
	"github.com/aepb/aepb-gateway/gateway/transport"
	"github.com/aepb/aepb-gateway/gateway/transport/egress"
	"github.com/aepb/aepb-gateway/policy"
	"github.com/aepb/aepb-gateway/policy/hitl"
	"github.com/aepb/aepb-gateway/policy/limit"
	"github.com/aepb/aepb-gateway/translators"
	"github.com/aepb/aepb-gateway/translators/a2a"
	"github.com/aepb/aepb-gateway/translators/canonical"
	"github.com/aepb/aepb-gateway/translators/mcp"
	"github.com/aepb/aepb-gateway/translators/uacp"
)

// undoer is a µACP agent that sets a checkpoint before it does anything, and
// can go back to it.
type undoer struct {
	*signalFixture
	t        *testing.T
	mu       sync.Mutex
	received []*canonical.Message
	tokens   [][]string
	spoil    func(*ect.Claims) // of the result of a rollback
	by       *ecttest.Party    // who signs it; nil: the agent
	refusal  *canonical.Error  // in place of that
	answer   func() (transport.Reply, error)
	mark     func(*ect.Claims) // of a checkpoint
	chkpoint ect.ID            // the latest
}

func (u *undoer) Describe(_ context.Context, e transport.Endpoint) (*canonical.Description, transport.Endpoint, error) {
	return &canonical.Description{Name: "undoer", Capabilities: []canonical.Capability{{ID: "do", Profile: canonical.ProfileMessage}}}, e, nil
}

func (u *undoer) Dial(_ context.Context, _ transport.Endpoint, sealed transport.Sealed) (transport.Reply, error) {
	wire, tokens, err := sealed.Open()
	if err != nil {
		return transport.Reply{}, err
	}
	m, err := u.form.Decode(wire)
	if err != nil {
		return transport.Reply{}, err
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	u.received, u.tokens = append(u.received, m), append(u.tokens, tokens)
	if u.answer != nil {
		return u.answer()
	}
	reply := &canonical.Message{Op: m.Op, Phase: canonical.PhaseResponse, Correlation: m.Correlation}
	var evidence []string
	switch body := m.Body.(type) {
	case *canonical.Signal:
		reply.Body = &canonical.Done{}
		if m.Op == canonical.OpRollback {
			request := claims(u.t, body.Token)
			c := ect.Claims{
				Act: ect.ActRollbackResult, Audience: []string{string(u.self.ID), string(request.Issuer)}, Workflow: request.Workflow,
				Parents: []ect.ID{request.ID}, OutputHash: ect.Hash([]byte("as it was")), Ext: ect.Ext{"atd.status": json.RawMessage(`"completed"`), "atd.checkpoint_id": json.RawMessage(`"` + string(request.Parents[0]) + `"`)},
			}
			if u.spoil != nil {
				u.spoil(&c)
			}
			by := u.server
			if u.by != nil {
				by = u.by
			}
			reply.Body = &canonical.Signal{Token: u.mint(by, c)}
		}
		if u.refusal != nil {
			reply.Phase, reply.Body = canonical.PhaseError, u.refusal
		}
	default:
		direction := claims(u.t, tokens[0])
		c := ect.Claims{Act: "atd:checkpoint", Audience: []string{string(u.self.ID)}, Workflow: direction.Workflow, Parents: []ect.ID{direction.ID}}
		if u.mark != nil {
			u.mark(&c)
		}
		checkpoint := u.mint(u.server, c)
		u.chkpoint, evidence = claims(u.t, checkpoint).ID, []string{checkpoint}
		reply.Body = &canonical.Result{Output: &canonical.Output{Parts: []canonical.Part{{Kind: canonical.KindText, Text: "done"}}}}
	}
	out, _, err := u.form.Encode(reply, translators.Target{Form: wire.Form})
	return transport.Reply{Wire: out, Evidence: evidence}, err
}

// notified is what callbacks heard.
type notified struct {
	mu   sync.Mutex
	list []transport.Decision
}

func (c *notified) Check(url string) error {
	if !strings.HasPrefix(url, "https://") {
		return &egress.DeniedError{Reason: egress.ReasonURL}
	}
	return nil
}

// count is how often one was told a decision.
func (c *notified) count() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.list)
}

func (c *notified) Tell(_ context.Context, _ ect.Identity, d transport.Decision) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.list = append(c.list, d)
	return nil
}

type signalFixture struct {
	limiting
	t                              *testing.T
	form                           *uacp.Translator
	agent                          *undoer
	notified                       *notified
	memory                         *state.Memory
	caller, outsider, self, server *ecttest.Party
	approver                       *ecttest.Party
	least                          map[ect.Identity]ect.Level // of what a caller presents; none: L2
}

func newSignalFixture(t *testing.T, edits ...func(*directory.Deps)) *signalFixture {
	t.Helper()
	b := &signalFixture{
		t: t, form: uacp.New(translators.Config{}), notified: &notified{},
		caller:   ecttest.NewParty(t, "spiffe://example.com/client"),
		outsider: ecttest.NewParty(t, "spiffe://example.com/outsider"),
		self:     ecttest.NewParty(t, "spiffe://example.com/gateway"),
		server:   ecttest.NewParty(t, "spiffe://example.com/agents/undoer"),
		approver: ecttest.NewParty(t, "spiffe://example.com/people/approver"),
	}
	b.agent = &undoer{signalFixture: b, t: t}
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	logger := slog.New(slog.DiscardHandler)
	var err error
	b.memory, err = state.New(state.Config{}, state.Deps{Now: time.Now})
	must(err)
	registry, err := translators.NewRegistry(a2a.New(translators.Config{}), mcp.New(translators.Config{}), b.form)
	must(err)
	calculator := &agent{}
	listing := directory.Deps{
		Describers: map[canonical.Binding]transport.Describer{uacp.Binding: b.agent, mcp.Binding: calculator},
		Egress:     closed{}, PlainLoopback: true, Now: time.Now, Logger: logger,
	}
	for _, edit := range edits {
		edit(&listing)
	}
	list, err := directory.New(listing)
	must(err)
	must(list.Put(directory.Agent{Name: "undoer", ID: b.server.ID, Rules: policy.Rules{Open: true}, Endpoints: []directory.Endpoint{
		{Binding: uacp.Binding, URL: "uacps://undoer.example:8888"},
	}}))
	must(list.Put(directory.Agent{Name: "calculator", Rules: policy.Rules{Open: true}, Endpoints: []directory.Endpoint{
		{Binding: mcp.Binding, URL: "https://calculator.example/mcp"},
	}}))
	verifier, err := ect.NewVerifier(ect.VerifierDeps{
		Keys: ecttest.KeysOf(b.caller, b.outsider, b.self, b.server, b.approver), Replay: b.memory, Audience: []string{string(b.self.ID)}, Now: time.Now,
		MinLevelOf: func(who ect.Identity) ect.Level { return b.least[who] },
	})
	must(err)
	recorder, err := ect.NewRecorder(ect.RecorderDeps{Store: b.memory})
	must(err)
	limiter, err := limit.New(limit.Config{Rate: 1000, Burst: 1000}, limit.Deps{Now: time.Now})
	must(err)
	metrics, err := telemetry.New(telemetry.Deps{Bindings: registry.Bindings()})
	must(err)
	dialects, err := ect.NewDialects(ect.DialectsDeps{})
	must(err)
	b.Gateway, err = gateway.New(gateway.Settings{}, chained(gateway.Deps{
		Registry: registry, Directory: list, Network: &outbound.Network{
			Agents: map[canonical.Binding]transport.Dialer{uacp.Binding: b.agent, mcp.Binding: calculator}, Callbacks: b.notified,
		},
		Tokens: gateway.Tokens{Signer: b.self.Signer(t, time.Now), Dialects: dialects, Verifier: verifier, Recorder: recorder, Evidence: b.memory},
		Stores: gateway.Stores{Answers: b.memory, Conversations: b.memory, Entries: b.memory.Entries(), Blobs: b.memory.Blobs(), Place: "https://gateway.example.com/.well-known/atd/rollback"}, Limiter: limiter, Metrics: metrics, Logger: logger, Now: time.Now,
		NewID: func() string { return string(ect.NewID()) },
		Operator: func(id ect.Identity) (policy.Operator, bool) {
			return policy.Operator{ID: id, Roles: []policy.Role{policy.RoleApprover}}, id == b.approver.ID || id == b.caller.ID
		},
	}))
	must(err)
	return b
}

func (b *signalFixture) mint(who *ecttest.Party, c ect.Claims) string {
	b.t.Helper()
	token, err := who.Signer(b.t, time.Now).Sign(c)
	if err != nil {
		b.t.Fatal(err)
	}
	return token.Compact()
}

// say is a frame of somebody's to the agent.
func (b *signalFixture) say(who *ecttest.Party, m *canonical.Message, evidence ...string) transport.Call {
	b.t.Helper()
	m.Phase, m.Correlation.WireID = canonical.PhaseRequest, json.RawMessage("7")
	wire, _, err := b.form.Encode(m, translators.Target{Form: uacp.FormEnveloped})
	if err != nil {
		b.t.Fatal(err)
	}
	return transport.Call{
		Agent: "undoer", Caller: identity.Caller{Peer: who.Peer()}, Address: "127.0.0.1", Wire: wire, Evidence: transport.Submitted(m, evidence),
	}
}

// work lets the agent do something, for a caller who waits for decisions at hook.
func (b *signalFixture) work(hook string) (workflow string, checkpoint ect.ID) {
	b.t.Helper()
	answer, err := b.Exchange(b.t.Context(), b.say(b.caller, &canonical.Message{
		Op: canonical.OpInvoke, Callback: hook,
		Body: &canonical.Invoke{Turn: canonical.Content{Role: canonical.RoleCaller, Parts: []canonical.Part{{Kind: canonical.KindText, Text: "go"}}}},
	}))
	if err != nil {
		b.t.Fatal(err)
	}
	return claims(b.t, answer.Evidence[0]).Workflow, b.agent.chkpoint
}

func (b *signalFixture) rollback(who *ecttest.Party, workflow string, parents ...ect.ID) *canonical.Message {
	return &canonical.Message{Op: canonical.OpRollback, Body: &canonical.Signal{Token: b.mint(who, ect.Claims{
		Act: ect.ActRollbackRequest, Audience: []string{string(b.self.ID), string(b.server.ID)}, Workflow: workflow, Parents: parents,
		Ext: ect.Ext{"atd.reason": json.RawMessage(`"it went wrong"`), "atd.cascade": json.RawMessage("false")},
	})}}
}

func TestRollbackRequest_RelayedWithEvidence(t *testing.T) {
	t.Parallel()
	b := newSignalFixture(t)
	workflow, checkpoint := b.work("")
	m := b.rollback(b.caller, workflow, checkpoint)
	request := claims(t, m.Body.(*canonical.Signal).Token)
	call := b.say(b.caller, m)
	answer, err := b.Exchange(t.Context(), call)
	if err != nil {
		t.Fatal(err)
	}
	received := b.agent.received[len(b.agent.received)-1]
	if message, ok := received.Body.(*canonical.Signal); !ok || message.Token != m.Body.(*canonical.Signal).Token {
		t.Fatalf("the agent heard %+v", received.Body)
	}
	if tokens := b.agent.tokens[len(b.agent.tokens)-1]; len(tokens) != 2 || tokens[0] != answer.Evidence[0] {
		t.Errorf("%d tokens travelled along", len(tokens))
	}
	reply, err := b.form.Decode(translators.Wire{Body: answer.Wire().Body, Re: canonical.OpRollback})
	if err != nil {
		t.Fatal(err)
	}
	message, ok := reply.Body.(*canonical.Signal)
	if !ok {
		t.Fatalf("the answer is %T", reply.Body)
	}
	result, there, back := claims(t, message.Token), claims(t, answer.Evidence[0]), claims(t, answer.Evidence[1])
	for name, ok := range map[string]bool{
		"the result answers the request":       result.Act == ect.ActRollbackResult && slices.Contains(result.Parents, request.ID),
		"par of leg 1 is the request":          slices.Equal(there.Parents, []ect.ID{request.ID}),
		"the first par of leg 2 is the result": back.Parents[0] == result.ID,
		"one workflow":                         there.Workflow == workflow && back.Workflow == workflow,
	} {
		if !ok {
			t.Errorf("not so: %s", name)
		}
	}
	for _, id := range []ect.ID{request.ID, result.ID, there.ID, back.ID} {
		if found, err := ecttest.Find(t.Context(), b.memory, id); err != nil || len(found) != 1 {
			t.Errorf("%s is not on record", id)
		}
	}
	before := len(b.agent.received)
	again, err := b.Exchange(t.Context(), call)
	if err != nil || string(again.Wire().Body) != string(answer.Wire().Body) || len(b.agent.received) != before {
		t.Errorf("the same again: %v, heard %d times", err, len(b.agent.received)-before)
	}
}

func TestRollbackRequest_Refusals(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		who      func(b *signalFixture) *ecttest.Party
		spoil    func(b *signalFixture, m *canonical.Message, workflow string, checkpoint ect.ID)
		agent    func(*undoer)
		dest     string
		code     string
		received bool
	}{
		"of somebody else's work": {who: func(b *signalFixture) *ecttest.Party { return b.outsider }, code: problem.CodeForbidden},
		"in another workflow": {spoil: func(b *signalFixture, m *canonical.Message, _ string, checkpoint ect.ID) {
			*m = *b.rollback(b.caller, string(ect.NewID()), checkpoint)
		}, code: problem.CodeForbidden},
		"of a checkpoint that nobody knows": {spoil: func(b *signalFixture, m *canonical.Message, workflow string, _ ect.ID) {
			*m = *b.rollback(b.caller, workflow, ect.NewID())
		}, code: problem.CodeForbidden},
		"of a namesake of the checkpoint": {
			who: func(b *signalFixture) *ecttest.Party { return b.outsider },
			spoil: func(b *signalFixture, _ *canonical.Message, _ string, checkpoint ect.ID) {
				call := b.say(b.outsider, &canonical.Message{Op: canonical.OpInvoke, Body: &canonical.Invoke{
					Turn: canonical.Content{Role: canonical.RoleCaller, Parts: []canonical.Part{{Kind: canonical.KindText, Text: "go"}}},
				}}, b.mint(b.outsider, ect.Claims{
					ID: checkpoint, Act: "send_task", Audience: []string{string(b.self.ID)}, Workflow: string(ect.NewID()),
				}))
				if _, err := b.Exchange(b.t.Context(), call); err != nil {
					b.t.Fatal(err)
				}
			}, code: problem.CodeForbidden,
		},
		"of nothing": {spoil: func(b *signalFixture, m *canonical.Message, workflow string, _ ect.ID) {
			*m = *b.rollback(b.caller, workflow)
		}, code: problem.CodeECTInvalid},
		"by a token for something else": {spoil: func(b *signalFixture, m *canonical.Message, workflow string, checkpoint ect.ID) {
			m.Body = &canonical.Signal{Token: b.mint(b.caller, ect.Claims{
				Act: "send_task", Audience: []string{string(b.self.ID)}, Workflow: workflow, Parents: []ect.ID{checkpoint},
			})}
		}, code: problem.CodeECTInvalid},
		"by another's token": {spoil: func(b *signalFixture, m *canonical.Message, workflow string, checkpoint ect.ID) {
			*m = *b.rollback(b.server, workflow, checkpoint)
		}, code: problem.CodeECTInvalid},
		"toward a protocol without rollback": {dest: "calculator", code: problem.CodeSemanticLoss},
		"with a result for another request": {agent: func(u *undoer) {
			u.spoil = func(c *ect.Claims) { c.Parents = []ect.ID{ect.NewID()} }
		}, code: problem.CodeBadReply, received: true},
		"with a result that is none": {agent: func(u *undoer) {
			u.spoil = func(c *ect.Claims) { c.Act = "send_task" }
		}, code: problem.CodeBadReply, received: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newSignalFixture(t)
			workflow, checkpoint := b.work("")
			who := b.caller
			if c.who != nil {
				who = c.who(b)
			}
			m := b.rollback(who, workflow, checkpoint)
			if c.spoil != nil {
				c.spoil(b, m, workflow, checkpoint)
			}
			if c.agent != nil {
				c.agent(b.agent)
			}
			before := len(b.agent.received)
			call := b.say(who, m)
			if c.dest != "" {
				call.Agent = c.dest
			}
			answer, err := b.Exchange(t.Context(), call)
			if got := problem.From(err).Code; err == nil || got != c.code {
				t.Errorf("got %v, want %s", err, c.code)
			}
			if received := len(b.agent.received) > before; received != c.received {
				t.Errorf("the agent heard of it: %t", received)
			}
			if len(answer.Evidence) == 0 && c.code != problem.CodeECTInvalid && who != b.outsider { // of whom nothing is recorded
				t.Error("no evidence of the failure")
			}
		})
	}
}

// TestSignal_UnsignedIsRefused: a rollback or a decision takes a signed token (ATD,
// Security Considerations), also of a caller whose unsigned tokens are evidence enough
// for everything else. The codecs refuse tokens without a signature, too; the gateway
// does not rely on that, so that here it gets messages that were read before.
func TestSignal_UnsignedIsRefused(t *testing.T) {
	t.Parallel()
	for op, act := range map[canonical.Op]ect.Act{canonical.OpRollback: ect.ActRollbackRequest, canonical.OpDecision: ect.ActApprovalGranted} {
		b := newSignalFixture(t)
		workflow, checkpoint := b.work("")
		who, signed := b.caller, b.rollback(b.caller, workflow, checkpoint)
		if op == canonical.OpDecision {
			who, signed = b.approver, b.decision(b.approver, act, workflow, checkpoint)
		}
		b.least = map[ect.Identity]ect.Level{who.ID: ect.L1}
		before := len(b.agent.received)
		call := b.say(who, signed)
		unsigned := *signed
		body := *signed.Body.(*canonical.Signal)
		body.Token = ecttest.MintUnsigned(t, who, ecttest.Recipe{Claims: ect.Claims{
			Act: act, Audience: []string{string(b.self.ID), string(b.server.ID)}, Workflow: workflow, Parents: []ect.ID{checkpoint},
		}})
		unsigned.Body = &body
		call.Message, call.Evidence = &unsigned, []string{body.Token}
		_, err := b.Exchange(t.Context(), call)
		if invalid := (*ect.InvalidError)(nil); !errors.As(err, &invalid) || invalid.Reason != ect.ReasonLevelTooLow {
			t.Errorf("%s: got %v, want %s", op, err, ect.ReasonLevelTooLow)
		}
		if len(b.agent.received) != before {
			t.Errorf("%s: the agent heard of it", op)
		}
		if _, err := b.Exchange(t.Context(), b.say(who, signed)); err != nil {
			t.Errorf("%s with a signature: %v", op, err)
		}
	}
}

// TestRollbackRequest_RefusedByTheAgent: its error is an answer like any other.
func TestRollbackRequest_RefusedByTheAgent(t *testing.T) {
	t.Parallel()
	b := newSignalFixture(t)
	workflow, checkpoint := b.work("")
	b.agent.refusal = &canonical.Error{Code: canonical.CodeForbidden, Message: "not with me"}
	answer, err := b.Exchange(t.Context(), b.say(b.caller, b.rollback(b.caller, workflow, checkpoint)))
	if err != nil || len(answer.Evidence) != 2 {
		t.Fatalf("%v, with %d tokens", err, len(answer.Evidence))
	}
	if m, err := b.form.Decode(translators.Wire{Body: answer.Wire().Body, Re: canonical.OpRollback}); err != nil || m.Phase != canonical.PhaseError {
		t.Errorf("got %v, %v", m, err)
	}
}

// parents are those of a token that is on record.
func (b *signalFixture) parents(id ect.ID) []ect.ID {
	b.t.Helper()
	found, err := ecttest.Find(b.t.Context(), b.memory, id)
	if err != nil || len(found) != 1 {
		b.t.Fatal(found, err)
	}
	return found[0].Parents
}

func (b *signalFixture) decision(who *ecttest.Party, act ect.Act, workflow string, parent ect.ID) *canonical.Message {
	return &canonical.Message{Op: canonical.OpDecision, Body: &canonical.Signal{Approval: "a-1", Token: b.mint(who, ect.Claims{
		Act: act, Audience: []string{string(b.self.ID), string(b.caller.ID)}, Workflow: workflow, Parents: []ect.ID{parent},
	})}}
}

func TestDecision_SentToRegisteredCallback(t *testing.T) {
	t.Parallel()
	b := newSignalFixture(t)
	workflow, gate := b.work("https://client.example/hook")
	if got := b.agent.received[0].Callback; got != "https://client.example/hook" {
		t.Errorf("the agent was told of %q", got)
	}
	granted := b.decision(b.approver, ect.ActApprovalGranted, workflow, gate)
	call := b.say(b.approver, granted)
	answer, err := b.Exchange(t.Context(), call)
	if err != nil {
		t.Fatal(err)
	}
	if ack := claims(t, answer.Evidence[0]); ack.Parents[0] != claims(t, granted.Body.(*canonical.Signal).Token).ID {
		t.Errorf("what says that it was heard has parents %v", ack.Parents)
	}
	if _, err := b.Exchange(t.Context(), call); err != nil {
		t.Errorf("the same again: %v", err)
	}
	denied := b.decision(b.approver, ect.ActApprovalDenied, workflow, gate)
	if _, err := b.Exchange(t.Context(), b.say(b.approver, denied)); problem.From(err).Code != problem.CodeConflict {
		t.Errorf("decided otherwise: %v", err)
	}
	own := b.decision(b.caller, ect.ActApprovalGranted, workflow, gate)
	if _, err := b.Exchange(t.Context(), b.say(b.caller, own)); problem.From(err).Code != problem.CodeForbidden {
		t.Errorf("decided by who asks: %v", err)
	}
	agent := b.decision(b.server, ect.ActApprovalGranted, workflow, gate)
	if _, err := b.Exchange(t.Context(), b.say(b.server, agent)); problem.From(err).Code != problem.CodeForbidden {
		t.Errorf("decided by an agent without the role: %v", err)
	}
	stranger := b.decision(b.outsider, ect.ActApprovalGranted, workflow, gate)
	if _, err := b.Exchange(t.Context(), b.say(b.outsider, stranger)); problem.From(err).Code != problem.CodeForbidden {
		t.Errorf("decided by an outsider: %v", err)
	}
	if err := b.Close(); err != nil { // what is told in the background has been
		t.Fatal(err)
	}
	want := transport.Decision{URL: "https://client.example/hook", Approval: "a-1", Token: granted.Body.(*canonical.Signal).Token}
	if len(b.notified.list) != 1 || b.notified.list[0] != want {
		t.Errorf("told %d times", len(b.notified.list))
	}
}

// TestDecision_SentOnce, also when it comes again in another message: here a gateway
// carries it once more, with a token of its own each time, so that no message is the
// repetition of another, which the gateway would answer without looking at it. Each of
// them is acknowledged.
func TestDecision_SentOnce(t *testing.T) {
	t.Parallel()
	b := newSignalFixture(t)
	b.Apply(gateway.Settings{Gateways: []ect.Identity{b.outsider.ID}})
	workflow, gate := b.work("https://client.example/hook")
	granted := b.decision(b.approver, ect.ActApprovalGranted, workflow, gate)
	token := granted.Body.(*canonical.Signal).Token
	if _, err := b.Exchange(t.Context(), b.say(b.approver, granted)); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		carried := b.mint(b.outsider, ect.Claims{
			Act: ect.ActTranslate, Audience: []string{string(b.self.ID)}, Workflow: workflow, Parents: []ect.ID{claims(t, token).ID},
		})
		answer, err := b.Exchange(t.Context(), b.say(b.outsider, granted, carried))
		if err != nil || len(answer.Evidence) != 1 {
			t.Errorf("carried by a gateway: %v, with %d tokens", err, len(answer.Evidence))
		}
	}
	if err := b.Close(); err != nil { // waits for what is told in the background
		t.Fatal(err)
	}
	if len(b.notified.list) != 1 || b.notified.list[0].Token != token {
		t.Errorf("told %d times", len(b.notified.list))
	}
	if received := len(b.agent.received); received != 1 {
		t.Errorf("the agent heard %d messages", received)
	}
}

// TestDecision_WithoutCallbackGoesToAgent: where nobody has registered, it goes to the agent.
func TestDecision_WithoutCallbackGoesToAgent(t *testing.T) {
	t.Parallel()
	b := newSignalFixture(t)
	workflow, gate := b.work("")
	answer, err := b.Exchange(t.Context(), b.say(b.approver, b.decision(b.approver, ect.ActApprovalDenied, workflow, gate)))
	if err != nil || len(answer.Evidence) != 2 {
		t.Fatalf("%v, with %d tokens", err, len(answer.Evidence))
	}
	if reply, ok := b.agent.received[1].Body.(*canonical.Signal); !ok || reply.Approval != "a-1" {
		t.Errorf("the agent heard %+v", b.agent.received[1].Body)
	}
}

func TestCallback_Refusals(t *testing.T) {
	t.Parallel()
	b := newSignalFixture(t)
	call := b.say(b.caller, &canonical.Message{Op: canonical.OpInvoke, Callback: "http://169.254.169.254/", Body: &canonical.Invoke{
		Turn: canonical.Content{Role: canonical.RoleCaller, Parts: []canonical.Part{{Kind: canonical.KindText, Text: "go"}}},
	}})
	if _, err := b.Exchange(t.Context(), call); problem.From(err).Code != problem.CodePolicyViolation {
		t.Errorf("a place that may not be called: %v", err)
	}
	if len(b.agent.received) != 0 {
		t.Error("the agent was asked all the same")
	}
	workflow := string(ect.NewID())
	for i := range 16 {
		for range 2 {
			if err := b.Parts().Callbacks.Await(t.Context(), b.caller.ID, workflow, "https://client.example/"+strings.Repeat("x", i)); err != nil {
				t.Fatal(err)
			}
		}
	}
	var full *canonical.Error
	if err := b.Parts().Callbacks.Await(t.Context(), b.caller.ID, workflow, "https://client.example/one/more"); !errors.As(err, &full) {
		t.Errorf("one too many: %v", err)
	}
}

// TestCallback_AgentProtocolWithoutCallbacks is kept here, and said to be.
func TestCallback_AgentProtocolWithoutCallbacks(t *testing.T) {
	t.Parallel()
	b := newSignalFixture(t)
	call := b.say(b.caller, &canonical.Message{Op: canonical.OpInvoke, Callback: "https://client.example/hook", Body: &canonical.Invoke{
		Call: &canonical.Call{Name: "add", Args: json.RawMessage(`{"a":1,"b":2}`)},
	}})
	call.Agent = "calculator"
	answer, err := b.Exchange(t.Context(), call)
	if err != nil {
		t.Fatal(err)
	}
	if !slices.ContainsFunc(answer.Losses, func(l canonical.Loss) bool { return l.Code == canonical.LossCallback }) {
		t.Errorf("losses: %v", answer.Losses)
	}
}

// TestApproval_ShowsWhoIsTold: the approval of a call shows the callback that its message registered, and those that
// were registered in its workflow while it waits; both are told the decision (AEPB, HITL Callback Registration).
func TestApproval_ShowsWhoIsTold(t *testing.T) {
	t.Parallel()
	b := newSignalFixture(t)
	rules, err := hitl.ParseRules([]hitl.Config{{Agent: "undoer"}})
	if err != nil {
		t.Fatal(err)
	}
	b.Apply(gateway.Settings{Approvals: rules})
	_, err = b.Exchange(t.Context(), b.say(b.caller, &canonical.Message{
		Op: canonical.OpInvoke, Callback: "https://example.com/first",
		Body: &canonical.Invoke{Turn: canonical.Content{Role: canonical.RoleCaller, Parts: []canonical.Part{{Kind: canonical.KindText, Text: "go"}}}},
	}))
	waits, ok := errors.AsType[*problem.ApprovalError](err)
	if !ok {
		t.Fatal(err)
	}
	approvals := b.Parts().Approvals
	view, err := approvals.Show(t.Context(), waits.ID)
	if err != nil {
		t.Fatal(err)
	}
	if err := b.Parts().Callbacks.Await(t.Context(), b.caller.ID, view.Origin.Workflow, "https://example.com/second"); err != nil {
		t.Fatal(err)
	}
	if view, err = approvals.Show(t.Context(), waits.ID); err != nil {
		t.Fatal(err)
	}
	slices.Sort(view.Callbacks)
	if want := []string{"https://example.com/first", "https://example.com/second"}; !slices.Equal(view.Callbacks, want) {
		t.Errorf("the approval shows %v, expected %v", view.Callbacks, want)
	}
	if _, err := approvals.Decide(t.Context(), waits.ID, approval.Decision{
		Grant: true, Approver: hitl.Approver{ID: b.approver.ID}, Roles: []string{"approver"}, Shown: view.Shown,
	}); err != nil {
		t.Fatal(err)
	}
	b.Drain(t.Context()) // what is told is told in the background
	if got := b.notified.count(); got != 2 {
		t.Errorf("%d callbacks were told, expected 2", got)
	}
}
