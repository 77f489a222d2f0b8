package membership_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/ect/ecttest"
	"github.com/aepb/aepb-gateway/policy"
	"github.com/aepb/aepb-gateway/policy/membership"
)

// world is a gateway as far as membership is concerned: it admits tokens, records
// what it admitted, and signs a request leg for the agent.
type world struct {
	t        testing.TB
	store    *ecttest.Store
	register *membership.Register
	recorder *ect.Recorder
	verifier *ect.Verifier

	self, caller, agent, outsider, peer, approver *ecttest.Party
}

func newWorld(t testing.TB) *world {
	t.Helper()
	w := &world{
		t: t, store: ecttest.NewStore(),
		self:     ecttest.NewParty(t, "spiffe://example.com/gateway"),
		caller:   ecttest.NewParty(t, "spiffe://example.com/caller"),
		agent:    ecttest.NewParty(t, "spiffe://example.com/agent"),
		outsider: ecttest.NewParty(t, "spiffe://example.com/outsider"),
		peer:     ecttest.NewParty(t, "spiffe://example.org/peer-gateway"),
		approver: ecttest.NewParty(t, "spiffe://example.com/people/approver"),
	}
	var err error
	w.register, err = membership.New(membership.Deps{Store: w.store, Self: w.self.ID, AgentAt: func(url string) (ect.Identity, bool) {
		return w.agent.ID, url == "https://agent.example/a2a"
	}})
	w.must(err)
	w.recorder, err = ect.NewRecorder(ect.RecorderDeps{Store: w.store})
	w.must(err)
	w.verifier, err = ect.NewVerifier(ect.VerifierDeps{Keys: ecttest.KeysOf(w.self, w.caller, w.agent, w.outsider, w.peer, w.approver)})
	w.must(err)
	return w
}

func (w *world) must(err error) {
	w.t.Helper()
	if err != nil {
		w.t.Fatal(err)
	}
}

// sign makes a verified token of a party.
func (w *world) sign(by *ecttest.Party, c ect.Claims) ect.Verified {
	w.t.Helper()
	if c.Act == "" {
		c.Act = "send_task"
	}
	if c.Audience == nil {
		c.Audience = []string{string(w.self.ID)}
	}
	token, err := by.Signer(w.t, time.Now).Sign(c)
	w.must(err)
	v, err := w.verifier.Verify(context.Background(), token.Compact(), ect.Check{Purpose: ect.Parent})
	w.must(err)
	return v
}

func (w *world) submission(by *ecttest.Party, tokens ...ect.Verified) membership.Submission {
	return membership.Submission{
		Caller: by.ID, Gateway: func(id ect.Identity) bool { return id == w.peer.ID }, Decides: by == w.approver, Tokens: tokens,
	}
}

// send is a message of a party: what is admitted is recorded, and a request leg for
// the agent is signed. It returns the leg.
func (w *world) send(by *ecttest.Party, tokens ...ect.Verified) (ect.Verified, error) {
	w.t.Helper()
	a, err := w.register.Admit(context.Background(), w.submission(by, tokens...))
	if err != nil {
		return ect.Verified{}, err
	}
	for _, f := range a.Filed {
		if err := w.recorder.Keep(context.Background(), f.Token, ect.Filing{Members: f.Members}); err != nil {
			return ect.Verified{}, err
		}
	}
	own := tokens[max(0, slices.IndexFunc(tokens, func(v ect.Verified) bool { return v.Issuer() == by.ID }))]
	return w.direction(by, own.Workflow(), own.ID()), nil
}

// direction records a request leg of ours, made for a caller.
func (w *world) direction(caller *ecttest.Party, workflow string, parents ...ect.ID) ect.Verified {
	w.t.Helper()
	return w.requestFor(w.agent, caller, workflow, parents...)
}

// requestFor is a leg that is addressed to another than the agent.
func (w *world) requestFor(to, caller *ecttest.Party, workflow string, parents ...ect.ID) ect.Verified {
	w.t.Helper()
	ext := ect.Ext{}
	ext.SetString(ect.ExtCaller, string(caller.ID))
	ext.SetString(ect.ExtLeg, "request")
	c := ect.Claims{
		Act: ect.ActTranslate, Workflow: workflow, Parents: parents, Audience: []string{string(to.ID), string(w.self.ID)}, Ext: ext,
	}
	token, err := w.self.Signer(w.t, time.Now).Sign(c)
	w.must(err)
	_, err = w.recorder.Record(context.Background(), token, ect.Filing{Members: w.register.Own(c.Audience, caller.ID)})
	w.must(err)
	v, err := w.verifier.Verify(context.Background(), token.Compact(), ect.Check{Purpose: ect.Parent})
	w.must(err)
	return v
}

func (w *world) belongs(workflow string, who *ecttest.Party) bool {
	w.t.Helper()
	ok, err := w.register.Belongs(context.Background(), workflow, who.ID)
	w.must(err)
	return ok
}

func (w *world) isParty(workflow string, who *ecttest.Party, parents ...ect.ID) bool {
	w.t.Helper()
	ok, err := w.register.IsParty(context.Background(), membership.Signal{Workflow: workflow, Sender: who.ID, Parents: parents, Agent: w.agent.ID})
	w.must(err)
	return ok
}

// begun is a workflow of the caller's: its root, our leg for the agent, and the
// agent's checkpoint.
type begun struct {
	workflow                    string
	root, direction, checkpoint ect.Verified
}

func (w *world) begin() begun {
	w.t.Helper()
	b := begun{workflow: string(ect.NewID())}
	b.root = w.sign(w.caller, ect.Claims{Workflow: b.workflow})
	var err error
	b.direction, err = w.send(w.caller, b.root)
	w.must(err)
	b.checkpoint = w.sign(w.agent, ect.Claims{Act: "atd:checkpoint", Workflow: b.workflow, Parents: []ect.ID{b.direction.ID()}})
	bound, unbound, err := w.register.Bind(context.Background(), w.reply(b, b.checkpoint))
	w.must(err)
	if len(bound) != 1 || len(unbound) != 0 {
		w.t.Fatalf("the agent's checkpoint is not bound: %d bound, %d unbound", len(bound), len(unbound))
	}
	w.must(w.recorder.Keep(context.Background(), bound[0].Token, ect.Filing{Members: bound[0].Members}))
	return b
}

func (w *world) reply(b begun, tokens ...ect.Verified) membership.Reply {
	return membership.Reply{
		Workflow: b.workflow, Requests: []ect.ID{b.direction.ID()}, Agent: w.agent.ID,
		Gateway: func(id ect.Identity) bool { return id == w.peer.ID }, Tokens: tokens,
	}
}

func isOutsider(err error) bool {
	var forbidden *policy.Forbidden
	return errors.As(err, &forbidden)
}

func TestBelongs_RootIssuerAndThoseNamedByOthers(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	b := w.begin()
	for party, want := range map[*ecttest.Party]bool{w.caller: true, w.agent: true, w.outsider: false, w.peer: false} {
		if got := w.belongs(b.workflow, party); got != want {
			t.Errorf("%s belongs: %v, want %v", party.ID, got, want)
		}
	}
	if w.belongs("", w.caller) {
		t.Error("a workflow without a name has a member")
	}
}

func TestBelongs_AudienceURLCountsAsItsAgent(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	wid := string(ect.NewID())
	if _, err := w.send(w.caller, w.sign(w.caller, ect.Claims{Workflow: wid, Audience: []string{string(w.self.ID), "https://agent.example/a2a"}})); err != nil {
		t.Fatal(err)
	}
	if !w.belongs(wid, w.agent) {
		t.Error("the agent named by its URL does not belong")
	}
}

func TestBelongs_MemberNamesAnother(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	b := w.begin()
	if _, err := w.send(w.agent, w.sign(w.agent, ect.Claims{
		Workflow: b.workflow, Parents: []ect.ID{b.direction.ID()}, Audience: []string{string(w.self.ID), string(w.outsider.ID)},
	})); err != nil {
		t.Fatal(err)
	}
	if !w.belongs(b.workflow, w.outsider) {
		t.Error("whom a member names does not belong")
	}
}

func TestAdmit_DelegationByTheAgent(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	b := w.begin()
	// The agent delegates to the peer without us; the peer comes with both tokens.
	handed := w.sign(w.agent, ect.Claims{Workflow: b.workflow, Parents: []ect.ID{b.direction.ID()}, Audience: []string{string(w.outsider.ID)}})
	own := w.sign(w.outsider, ect.Claims{Workflow: b.workflow, Parents: []ect.ID{handed.ID()}})
	if _, err := w.send(w.outsider, own, handed); err != nil {
		t.Errorf("a delegate with the token that names it is refused: %v", err)
	}
}

func TestAdmit_ListedGatewayCarriesOthers(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	wid := string(ect.NewID())
	root := w.sign(w.caller, ect.Claims{Workflow: wid, Audience: []string{string(w.peer.ID)}})
	ext := ect.Ext{}
	ext.SetString(ect.ExtCaller, string(w.caller.ID))
	direction := w.sign(w.peer, ect.Claims{Act: ect.ActTranslate, Workflow: wid, Parents: []ect.ID{root.ID()}, Ext: ext})
	if _, err := w.send(w.peer, direction, root); err != nil {
		t.Fatal(err)
	}
	if !w.belongs(wid, w.caller) || !w.belongs(wid, w.peer) {
		t.Error("the caller or the gateway between does not belong")
	}
	// The user's next message in the workflow comes with its source, too.
	source := w.sign(w.caller, ect.Claims{Workflow: wid, Parents: []ect.ID{direction.ID()}, Audience: []string{string(w.peer.ID)}})
	next := w.sign(w.peer, ect.Claims{Act: ect.ActTranslate, Workflow: wid, Parents: []ect.ID{source.ID()}, Ext: ext})
	if _, err := w.send(w.peer, next, source); err != nil {
		t.Errorf("the gateway's next message: %v", err)
	}
	unseen := w.sign(w.peer, ect.Claims{Act: ect.ActTranslate, Workflow: wid, Parents: []ect.ID{ect.NewID()}, Ext: ext})
	if _, err := w.send(w.peer, unseen); !isOutsider(err) {
		t.Errorf("a message of the gateway that names a token that we never saw: %v, want a refusal", err)
	}
}

func TestAdmit_WorkflowThatBeginsWithoutItsRoot(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	wid := string(ect.NewID())
	token := w.sign(w.caller, ect.Claims{Workflow: wid, Parents: []ect.ID{ect.NewID()}, Audience: []string{string(w.self.ID), string(w.outsider.ID)}})
	if _, err := w.send(w.caller, token); err != nil {
		t.Fatal(err)
	}
	if !w.belongs(wid, w.caller) {
		t.Error("our leg names the caller, and it does not belong")
	}
	if w.belongs(wid, w.outsider) {
		t.Error("a token of an issuer that did not belong makes a member")
	}
	var foreign *ect.ForeignRootError
	if _, err := w.send(w.outsider, w.sign(w.outsider, ect.Claims{Workflow: wid})); !errors.As(err, &foreign) {
		t.Errorf("a root of an outsider: %v, want ForeignRootError", err)
	}
}

func TestAdmit_DecisionNeedsTheRoleAlone(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	b := w.begin()
	granted := ect.Claims{Act: ect.ActApprovalGranted, Workflow: b.workflow, Parents: []ect.ID{b.checkpoint.ID()}}
	a, err := w.register.Admit(t.Context(), w.submission(w.approver, w.sign(w.approver, granted)))
	if err != nil || !a.ByRole || len(a.Filed[0].Members) != 0 {
		t.Errorf("an approver: %v, by role %v", err, a.ByRole)
	}
	if _, err := w.register.Admit(t.Context(), w.submission(w.outsider, w.sign(w.outsider, granted))); !isOutsider(err) {
		t.Errorf("an outsider decides: %v", err)
	}
	granted.Act = "send_task"
	if _, err := w.register.Admit(t.Context(), w.submission(w.approver, w.sign(w.approver, granted))); !isOutsider(err) {
		t.Errorf("an approver sends a task into the workflow: %v", err)
	}
	granted.Act, granted.Parents = ect.ActApprovalGranted, []ect.ID{ect.NewID()}
	if _, err := w.register.Admit(t.Context(), w.submission(w.approver, w.sign(w.approver, granted))); !isOutsider(err) {
		t.Errorf("an approver decides about a token that is not on record: %v", err)
	}
}

func TestGate_BindsADecisionToItsToken(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	b := w.begin()
	hash := ect.Hash([]byte("what waits"))
	gated := w.sign(w.agent, ect.Claims{Act: "hitl:approval_required", Workflow: b.workflow, Parents: []ect.ID{b.direction.ID()}, InputHash: hash})
	w.must(w.recorder.Keep(t.Context(), gated, ect.Filing{}))
	good := ect.Claims{Act: ect.ActApprovalGranted, Workflow: b.workflow, Parents: []ect.ID{gated.ID()}, InputHash: hash}
	for name, tc := range map[string]struct {
		by   *ecttest.Party
		edit func(*ect.Claims)
		want bool
	}{
		"bound":                       {by: w.approver, want: true},
		"of another hash":             {by: w.approver, edit: func(c *ect.Claims) { c.InputHash = ect.Hash(nil) }},
		"without the hash":            {by: w.approver, edit: func(c *ect.Claims) { c.InputHash = "" }},
		"about two tokens":            {by: w.approver, edit: func(c *ect.Claims) { c.Parents = append(c.Parents, b.direction.ID()) }},
		"about an unknown token":      {by: w.approver, edit: func(c *ect.Claims) { c.Parents = []ect.ID{ect.NewID()} }},
		"in another workflow":         {by: w.approver, edit: func(c *ect.Claims) { c.Workflow = string(ect.NewID()) }},
		"by the gated token's issuer": {by: w.agent},
		"by who began the workflow":   {by: w.caller},
	} {
		c := good
		c.Parents = slices.Clone(good.Parents)
		if tc.edit != nil {
			tc.edit(&c)
		}
		_, ok, err := w.register.Gate(t.Context(), w.sign(tc.by, c), w.agent.ID)
		if err != nil || ok != tc.want {
			t.Errorf("%s: got %v, %v; want %v", name, ok, err, tc.want)
		}
	}
	// The caller on whose behalf we signed the gated token does not approve it.
	other := w.sign(w.peer, ect.Claims{Workflow: string(ect.NewID()), Parents: []ect.ID{ect.NewID()}})
	direction, err := w.send(w.peer, other)
	w.must(err)
	if _, ok, _ := w.register.Gate(t.Context(), w.sign(w.peer, ect.Claims{
		Act: ect.ActApprovalGranted, Workflow: other.Workflow(), Parents: []ect.ID{direction.ID()},
	}), w.agent.ID); ok {
		t.Error("the requester approves its own request")
	}
}

func TestIsParty_EachParentCounts(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	b := w.begin()
	for name, tc := range map[string]struct {
		who     *ecttest.Party
		parents []ect.ID
		want    bool
	}{
		"the caller, the checkpoint":      {w.caller, []ect.ID{b.checkpoint.ID()}, true},
		"the agent, the caller's root":    {w.agent, []ect.ID{b.root.ID()}, false},
		"the agent, our leg":              {w.agent, []ect.ID{b.direction.ID()}, true},
		"the outsider, the checkpoint":    {w.outsider, []ect.ID{b.checkpoint.ID()}, false},
		"the caller, nothing":             {w.caller, nil, false},
		"the caller, an unknown token":    {w.caller, []ect.ID{ect.NewID()}, false},
		"the caller, one known, one not":  {w.caller, []ect.ID{b.checkpoint.ID(), ect.NewID()}, false},
		"the agent, our leg and the root": {w.agent, []ect.ID{b.direction.ID(), b.root.ID()}, false},
		"the caller, two of the workflow": {w.caller, []ect.ID{b.checkpoint.ID(), b.direction.ID()}, true},
	} {
		if got := w.isParty(b.workflow, tc.who, tc.parents...); got != tc.want {
			t.Errorf("%s: got %v, want %v", name, got, tc.want)
		}
	}
	// A sibling: another agent of the same workflow, of a step that the checkpoint does not come from.
	w.requestFor(w.peer, w.caller, b.workflow, b.root.ID())
	if !w.belongs(b.workflow, w.peer) || w.isParty(b.workflow, w.peer, b.checkpoint.ID()) {
		t.Error("a sibling is party to a checkpoint that is not in its lineage")
	}
	if w.isParty(string(ect.NewID()), w.caller, b.checkpoint.ID()) {
		t.Error("the caller is party in another workflow")
	}
}

func TestIsParty_LongLineageEnds(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	wid := string(ect.NewID())
	root := w.sign(w.caller, ect.Claims{Workflow: wid})
	direction, err := w.send(w.caller, root)
	w.must(err)
	for range 300 {
		direction = w.direction(w.peer, wid, direction.ID())
	}
	for who, party := range map[string]*ecttest.Party{"named far above": w.caller, "named by the token itself": w.peer} {
		if w.isParty(wid, party, direction.ID()) {
			t.Errorf("a lineage of more than 256 tokens makes a party of the one %s", who)
		}
	}
}

func TestBind_OnlyWhatDescendsFromThisExecution(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	b, other := w.begin(), w.begin()
	earlier := w.direction(w.caller, b.workflow, b.root.ID()) // another exchange of the same workflow
	far := w.sign(w.outsider, ect.Claims{Act: ect.ActTranslate, Workflow: b.workflow, Parents: []ect.ID{ect.NewID()}})
	viaPeer := w.sign(w.peer, ect.Claims{Act: ect.ActTranslate, Workflow: b.workflow, Parents: []ect.ID{b.direction.ID()}})
	for name, tc := range map[string]struct {
		tokens []ect.Verified
		want   bool
	}{
		"a child of our leg":            {[]ect.Verified{w.sign(w.agent, ect.Claims{Workflow: b.workflow, Parents: []ect.ID{b.direction.ID()}})}, true},
		"a child of what is on record":  {[]ect.Verified{w.sign(w.agent, ect.Claims{Workflow: b.workflow, Parents: []ect.ID{b.checkpoint.ID()}})}, true},
		"a child of the next gateway's": {[]ect.Verified{w.sign(w.agent, ect.Claims{Workflow: b.workflow, Parents: []ect.ID{viaPeer.ID()}}), viaPeer}, true},
		"our leg and what it came of":   {[]ect.Verified{b.direction, b.root}, true},
		"an ancestor that a bound one names": {[]ect.Verified{
			w.sign(w.peer, ect.Claims{Act: ect.ActTranslate, Workflow: b.workflow, Parents: []ect.ID{b.direction.ID(), far.ID()}}), far,
		}, true},
		"the same that none names":        {[]ect.Verified{far}, false},
		"a root":                          {[]ect.Verified{w.sign(w.agent, ect.Claims{Workflow: b.workflow})}, false},
		"of another workflow":             {[]ect.Verified{w.sign(w.agent, ect.Claims{Workflow: other.workflow, Parents: []ect.ID{b.direction.ID()}})}, false},
		"of no workflow":                  {[]ect.Verified{w.sign(w.agent, ect.Claims{Parents: []ect.ID{b.direction.ID()}})}, false},
		"of an unknown parent":            {[]ect.Verified{w.sign(w.agent, ect.Claims{Workflow: b.workflow, Parents: []ect.ID{ect.NewID()}})}, false},
		"of the caller's root alone":      {[]ect.Verified{w.sign(w.agent, ect.Claims{Workflow: b.workflow, Parents: []ect.ID{b.root.ID()}})}, false},
		"of another exchange of the same": {[]ect.Verified{w.sign(w.agent, ect.Claims{Workflow: b.workflow, Parents: []ect.ID{earlier.ID()}})}, false},
		"of a leg of another workflow":    {[]ect.Verified{w.sign(w.agent, ect.Claims{Workflow: b.workflow, Parents: []ect.ID{other.direction.ID()}})}, false},
	} {
		bound, unbound, err := w.register.Bind(t.Context(), w.reply(b, tc.tokens...))
		if err != nil {
			t.Fatal(err)
		}
		if got := len(bound) == len(tc.tokens) && len(unbound) == 0; got != tc.want {
			t.Errorf("%s: %d bound, %d unbound; want bound %v", name, len(bound), len(unbound), tc.want)
		}
	}
	if reply := w.reply(b); reply.Testifies(w.outsider.ID) || !reply.Testifies(w.agent.ID) || !reply.Testifies(w.peer.ID) {
		t.Error("only the agent and listed gateways testify to a reply")
	}
}
