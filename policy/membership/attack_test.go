package membership_test

import (
	"context"
	"encoding/json"
	"errors"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/aepb/aepb-gateway/ect"
)

// wantOutside checks that the outsider has no part in a workflow.
func (w *world) wantOutside(b begun) {
	w.t.Helper()
	if w.belongs(b.workflow, w.outsider) || w.isParty(b.workflow, w.outsider, b.checkpoint.ID()) {
		w.t.Error("the outsider has a part in the workflow")
	}
}

// TestAttack_RootInAnotherWorkflow: the outsider signs a root with the workflow of
// others, so that it would be the issuer of a root there.
func TestAttack_RootInAnotherWorkflow(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	b := w.begin()
	_, err := w.register.Admit(t.Context(), w.submission(w.outsider, w.sign(w.outsider, ect.Claims{Workflow: b.workflow})))
	if _, ok := errors.AsType[*ect.ForeignRootError](err); !ok { // before the store would refuse it, too
		t.Errorf("got %v, want ForeignRootError", err)
	}
	w.wantOutside(b)
}

// TestAttack_ChildOfATokenForOthers: the outsider knows tokens of the workflow and
// names them, or invented ones, as parents.
func TestAttack_ChildOfATokenForOthers(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	b := w.begin()
	for name, parents := range map[string][]ect.ID{
		"the root": {b.root.ID()}, "our leg": {b.direction.ID()}, "the checkpoint": {b.checkpoint.ID()}, "all": {b.root.ID(), b.direction.ID(), b.checkpoint.ID()}, "an invented one": {ect.NewID()},
	} {
		if _, err := w.send(w.outsider, w.sign(w.outsider, ect.Claims{Workflow: b.workflow, Parents: parents})); !isOutsider(err) {
			t.Errorf("%s: got %v, want a refusal", name, err)
		}
	}
	w.wantOutside(b)
}

// TestAttack_AncestorThatNamesItself: the outsider brings an ancestor of its own that
// names it as audience, and a token of its own below that.
func TestAttack_AncestorThatNamesItself(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	b := w.begin()
	invitation := w.sign(w.outsider, ect.Claims{Workflow: b.workflow, Parents: []ect.ID{b.direction.ID()}, Audience: []string{string(w.outsider.ID), string(w.self.ID)}})
	token := w.sign(w.outsider, ect.Claims{Workflow: b.workflow, Parents: []ect.ID{invitation.ID()}})
	if _, err := w.send(w.outsider, token, invitation); !isOutsider(err) {
		t.Errorf("got %v, want a refusal", err)
	}
	w.wantOutside(b)
}

// TestAttack_CallerClaimInAnOwnToken: the outsider writes aepb.caller into a token of
// its own, which only a gateway's word makes a member.
func TestAttack_CallerClaimInAnOwnToken(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	wid := string(ect.NewID())
	ext := ect.Ext{ect.ExtCaller: json.RawMessage(`"` + string(w.outsider.ID) + `"`)}
	if _, err := w.send(w.caller, w.sign(w.caller, ect.Claims{Workflow: wid, Ext: ext})); err != nil {
		t.Fatal(err)
	}
	if w.belongs(wid, w.outsider) {
		t.Error("aepb.caller in a token that no gateway signed makes a member")
	}
}

// TestAttack_NamesakeInTheWorkflow: the outsider uses the id of a token of the
// workflow, in the workflow and in one of its own, so that the id would mean its own.
func TestAttack_NamesakeInTheWorkflow(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	b := w.begin()
	var conflict *ect.ConflictError
	if _, err := w.send(w.outsider, w.sign(w.outsider, ect.Claims{ID: b.checkpoint.ID(), Workflow: b.workflow})); !errors.As(err, &conflict) {
		t.Errorf("in the workflow: %v, want ConflictError", err)
	}
	if _, err := w.send(w.outsider, w.sign(w.outsider, ect.Claims{ID: b.root.ID(), Workflow: string(ect.NewID())})); err != nil {
		t.Errorf("in a workflow of its own: %v", err)
	}
	if !w.isParty(b.workflow, w.caller, b.checkpoint.ID()) || !w.isParty(b.workflow, w.caller, b.root.ID()) {
		t.Error("a namesake takes the caller's own work away")
	}
	w.wantOutside(b)
}

// TestAttack_NamesakesHideAParent: as many identities as the id alone finds use the id of
// the caller's root before it, in workflows of their own. What names the root in its
// workflow finds it: the caller is party to it, and a gateway's token for the caller, which
// needs a parent there, is admitted.
func TestAttack_NamesakesHideAParent(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	root := w.sign(w.caller, ect.Claims{Workflow: string(ect.NewID()), Audience: []string{string(w.self.ID), string(w.peer.ID)}})
	for n := range ect.MaxNamesakes {
		who := "spiffe://example.org/stranger" + strconv.Itoa(n)
		w.must(w.store.Put(t.Context(), ect.Record{Compact: who, ID: root.ID(), Workflow: string(ect.NewID()), Issuer: ect.Identity(who)}))
	}
	if _, err := w.send(w.caller, root); err != nil {
		t.Fatal(err)
	}
	if !w.isParty(root.Workflow(), w.caller, root.ID()) {
		t.Error("namesakes take the caller's own work away")
	}
	if _, err := w.send(w.peer, w.behalf(w.caller, root.Workflow(), root.ID())); err != nil {
		t.Errorf("a gateway's token for the caller: %v", err)
	}
}

// TestAttack_TwoTokensWithOneID: one message brings a token of the workflow and one of
// the outsider's with the same id, so that only one of them would be judged.
func TestAttack_TwoTokensWithOneID(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	b := w.begin()
	namesake := w.sign(w.outsider, ect.Claims{ID: b.root.ID(), Workflow: b.workflow})
	for _, tokens := range [][]ect.Verified{{namesake, b.root}, {b.root, namesake}} {
		var conflict *ect.ConflictError
		if _, err := w.send(w.outsider, tokens...); !errors.As(err, &conflict) {
			t.Errorf("got %v, want ConflictError", err)
		}
	}
	w.wantOutside(b)
}

// TestAttack_OwnWorkflowBesideATokenOfOthers: the outsider sends a token of its own
// workflow beside tokens of the other one, which it has seen.
func TestAttack_OwnWorkflowBesideATokenOfOthers(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	b := w.begin()
	before := w.snapshot(b.workflow)
	own := w.sign(w.outsider, ect.Claims{Workflow: string(ect.NewID()), Parents: []ect.ID{b.checkpoint.ID()}})
	if _, err := w.send(w.outsider, own, b.checkpoint, b.direction, b.root); err != nil {
		t.Errorf("a message in a workflow of its own: %v", err)
	}
	if diff := cmp.Diff(before, w.snapshot(b.workflow)); diff != "" {
		t.Errorf("the other workflow changed (-before +after):\n%s", diff)
	}
	w.wantOutside(b)
	if w.isParty(own.Workflow(), w.outsider, b.checkpoint.ID()) || w.isParty(b.workflow, w.outsider, own.ID()) {
		t.Error("the outsider is party across workflows")
	}
}

// TestAttack_MemberSignsItselfIntoALineage: an identity that belongs to the workflow
// has no part in the caller's root. It names that root in a token of its own.
func TestAttack_MemberSignsItselfIntoALineage(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	b := w.begin()
	own := w.sign(w.agent, ect.Claims{Workflow: b.workflow, Parents: []ect.ID{b.root.ID()}, Audience: []string{string(w.self.ID), string(w.agent.ID)}})
	if _, err := w.send(w.agent, own); err != nil {
		t.Fatal(err)
	}
	for name, parents := range map[string][]ect.ID{"its own token": {own.ID()}, "that and the root": {own.ID(), b.root.ID()}} {
		if w.isParty(b.workflow, w.agent, parents...) {
			t.Errorf("%s: the agent is party to the caller's root", name)
		}
	}
}

// TestAttack_ListedGatewayForItsUser: a user of a listed gateway sends a token in the
// workflow of others through that gateway, whose own token descends from it.
func TestAttack_ListedGatewayForItsUser(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	b := w.begin()
	for name, parents := range map[string][]ect.ID{"a root": nil, "a child of our leg": {b.direction.ID()}} {
		users := w.sign(w.outsider, ect.Claims{Workflow: b.workflow, Parents: parents, Audience: []string{string(w.peer.ID)}})
		direction := w.sign(w.peer, ect.Claims{Act: ect.ActTranslate, Workflow: b.workflow, Parents: []ect.ID{users.ID()}})
		if _, err := w.send(w.peer, direction, users); err == nil {
			t.Errorf("%s of the gateway's user is admitted", name)
		}
	}
	w.wantOutside(b)
}

// TestAttack_ApproverApprovesItsOwnWork: an identity with the role of an approver has
// work done, and approves it.
func TestAttack_ApproverApprovesItsOwnWork(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	wid := string(ect.NewID())
	root := w.sign(w.approver, ect.Claims{Workflow: wid})
	direction, err := w.send(w.approver, root)
	w.must(err)
	gated := w.sign(w.agent, ect.Claims{Act: "hitl:approval_required", Workflow: wid, Parents: []ect.ID{direction.ID()}})
	w.must(w.recorder.Keep(t.Context(), gated, ect.Filing{}))
	for name, parent := range map[string]ect.ID{"its root": root.ID(), "our leg": direction.ID(), "the agent's token": gated.ID()} {
		if _, ok, err := w.register.Gate(t.Context(), w.sign(w.approver, ect.Claims{Act: ect.ActApprovalGranted, Workflow: wid, Parents: []ect.ID{parent}}), w.agent.ID); ok || err != nil {
			t.Errorf("%s: the requester approves, %v", name, err)
		}
	}
}

// TestAttack_ApproverBringsAnothersDecision: an outsider signs a decision, and an
// approver sends it. The role covers only what the approver signs itself.
func TestAttack_ApproverBringsAnothersDecision(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	b := w.begin()
	for _, act := range []ect.Act{ect.ActApprovalGranted, ect.ActApprovalDenied} {
		forged := w.sign(w.outsider, ect.Claims{Act: act, Workflow: b.workflow, Parents: []ect.ID{b.checkpoint.ID()}})
		if _, err := w.register.Admit(t.Context(), w.submission(w.approver, forged)); !isOutsider(err) {
			t.Errorf("%s: got %v, want a refusal", act, err)
		}
	}
	w.wantOutside(b)
}

// TestAttack_TwoRootsInOneMessage: a message begins a workflow with roots of two
// issuers, so that the later one would be a root issuer, too.
func TestAttack_TwoRootsInOneMessage(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	wid := string(ect.NewID())
	_, err := w.register.Admit(t.Context(), w.submission(w.outsider,
		w.sign(w.caller, ect.Claims{Workflow: wid}), w.sign(w.outsider, ect.Claims{Workflow: wid})))
	if _, ok := errors.AsType[*ect.ForeignRootError](err); !ok {
		t.Errorf("got %v, want ForeignRootError", err)
	}
}

// TestAttack_ReplyEvidenceOfAnOutsiderMakesMembers: an agent passes on a token that an
// outsider signed below our request, and that names the outsider.
func TestAttack_ReplyEvidenceOfAnOutsiderMakesMembers(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	b := w.begin()
	planted := w.sign(w.outsider, ect.Claims{Workflow: b.workflow, Parents: []ect.ID{b.direction.ID()}, Audience: []string{string(w.outsider.ID)}})
	bound, _, err := w.register.Bind(t.Context(), w.reply(b, planted))
	if err != nil || len(bound) != 1 || len(bound[0].Members) != 0 {
		t.Errorf("bound %+v, %v; want one token without members", bound, err)
	}
}

// TestAttack_OutsiderLearnsAndChangesNothing is the property behind hardening
// finding 1: whatever tokens an outsider sends, in any order, with any ids, parents,
// audiences and ancestors that it may have seen, it becomes no member and no party,
// may read no record, decides nothing, and no record of the workflow changes.
func TestAttack_OutsiderLearnsAndChangesNothing(t *testing.T) {
	t.Parallel()
	for seed := range uint64(40) {
		w := newWorld(t)
		random := rand.New(rand.NewPCG(seed, 14))
		b := w.begin()
		seen := []ect.Verified{b.root, b.direction, b.checkpoint} // it has seen every token
		var own []ect.Verified
		for range 25 {
			if random.IntN(5) == 0 { // the victim goes on
				next := w.sign(w.caller, ect.Claims{Workflow: b.workflow, Parents: []ect.ID{seen[random.IntN(len(seen))].ID()}})
				direction, err := w.send(w.caller, next)
				w.must(err)
				seen = append(seen, next, direction)
			}
			before := w.snapshot(b.workflow)
			tokens := w.attack(random, b, seen, &own)
			_, err := w.send(w.outsider, tokens...)
			if inside := slices.ContainsFunc(tokens, func(v ect.Verified) bool { return v.Workflow() == b.workflow && v.Issuer() == w.outsider.ID }); inside && err == nil {
				t.Fatalf("seed %d: a token of the outsider in the workflow is admitted", seed)
			}
			if diff := cmp.Diff(before, w.snapshot(b.workflow)); diff != "" {
				t.Fatalf("seed %d: the workflow changed (-before +after):\n%s", seed, diff)
			}
			w.wantNothing(seed, b, seen, own)
		}
	}
}

// attack makes the tokens of one hostile message.
func (w *world) attack(random *rand.Rand, b begun, seen []ect.Verified, own *[]ect.Verified) []ect.Verified {
	pool := slices.Concat(seen, *own)
	pick := func() ect.Verified { return pool[random.IntN(len(pool))] }
	c := ect.Claims{Workflow: b.workflow}
	if random.IntN(6) == 0 {
		c.Workflow = string(ect.NewID()) // a workflow of its own
	}
	for range random.IntN(3) {
		c.Parents = append(c.Parents, pick().ID())
	}
	slices.Sort(c.Parents)
	c.Parents = slices.Compact(c.Parents)
	if random.IntN(4) == 0 {
		c.ID = pick().ID() // a namesake
		c.Parents = slices.DeleteFunc(c.Parents, func(id ect.ID) bool { return id == c.ID })
	}
	c.Act = []ect.Act{"send_task", ect.ActApprovalGranted, ect.ActApprovalDenied, ect.ActRollbackRequest, "atd:checkpoint"}[random.IntN(5)]
	c.Audience = [][]string{{string(w.self.ID)}, {string(w.self.ID), string(w.outsider.ID)}, {string(w.outsider.ID), string(w.agent.ID)}}[random.IntN(3)]
	if random.IntN(2) == 0 {
		c.Ext = ect.Ext{ect.ExtCaller: json.RawMessage(`"` + string(w.outsider.ID) + `"`)}
	}
	token := w.sign(w.outsider, c)
	*own = append(*own, token)
	tokens := []ect.Verified{token}
	for range random.IntN(3) { // with tokens of others, and its own, as ancestors
		tokens = append(tokens, pick())
	}
	random.Shuffle(len(tokens), func(i, j int) { tokens[i], tokens[j] = tokens[j], tokens[i] })
	return tokens
}

func (w *world) snapshot(workflow string) []string {
	w.t.Helper()
	var all []string
	for after := ""; ; {
		records, next, err := w.store.Workflow(context.Background(), workflow, after, 50)
		w.must(err)
		for _, r := range records {
			members := make([]string, len(r.Members))
			for i, m := range r.Members {
				members[i] = string(m)
			}
			all = append(all, r.Compact+" "+strings.Join(members, ","))
		}
		if after = next; next == "" {
			return all
		}
	}
}

// wantNothing checks that the outsider has gained nothing.
func (w *world) wantNothing(seed uint64, b begun, seen, own []ect.Verified) {
	w.t.Helper()
	if w.belongs(b.workflow, w.outsider) {
		w.t.Fatalf("seed %d: the outsider belongs", seed)
	}
	for _, v := range seen {
		if w.isParty(b.workflow, w.outsider, v.ID()) {
			w.t.Fatalf("seed %d: the outsider is party", seed)
		}
		found, err := w.store.Get(context.Background(), ect.Ref{ID: v.ID()})
		w.must(err)
		for _, r := range found[0] {
			if r.Issuer == w.outsider.ID {
				continue
			}
			if may, err := w.register.MayRead(context.Background(), r, w.outsider.ID); err != nil || may {
				w.t.Fatalf("seed %d: the outsider may read: %v", seed, err)
			}
		}
		if !w.isParty(b.workflow, w.caller, v.ID()) {
			w.t.Fatalf("seed %d: the caller is no longer party to its own work", seed)
		}
	}
	for _, v := range own {
		if w.isParty(b.workflow, w.outsider, v.ID()) {
			w.t.Fatalf("seed %d: the outsider is party through its own token", seed)
		}
	}
}

// TestAttack_OwnTokenThatOthersBrought: a token of the outsider is on record in the
// workflow, since it came with an agent's reply, and made no member. Then the
// outsider sends that token itself.
func TestAttack_OwnTokenThatOthersBrought(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	b := w.begin()
	brought := w.sign(w.outsider, ect.Claims{Workflow: b.workflow, Parents: []ect.ID{b.direction.ID()}})
	w.must(w.recorder.Keep(t.Context(), brought, ect.Filing{}))
	if _, err := w.send(w.outsider, brought); !isOutsider(err) {
		t.Errorf("got %v, want a refusal", err)
	}
	w.wantOutside(b)
	if _, err := w.send(w.caller, w.sign(w.caller, ect.Claims{Workflow: b.workflow, Parents: []ect.ID{brought.ID()}}), brought); err != nil {
		t.Errorf("a member who names it as parent: %v", err)
	}
}
