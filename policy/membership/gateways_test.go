package membership_test

import (
	"errors"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/ect/ecttest"
	"github.com/aepb/aepb-gateway/policy/membership"
)

// behalf is a token of the peer gateway, made of a message of its user's; nil: it says
// of no user.
func (w *world) behalf(user *ecttest.Party, workflow string, parents ...ect.ID) ect.Verified {
	w.t.Helper()
	return w.behalfTo(user, workflow, nil, parents...)
}

// behalfTo is behalf with an audience of its own.
func (w *world) behalfTo(user *ecttest.Party, workflow string, audience []string, parents ...ect.ID) ect.Verified {
	w.t.Helper()
	c := ect.Claims{Act: ect.ActTranslate, Workflow: workflow, Parents: parents, Audience: audience, Ext: ect.Ext{}}
	c.Ext.SetString(ect.ExtLeg, "request")
	if user != nil {
		c.Ext.SetString(ect.ExtCaller, string(user.ID))
	}
	return w.sign(w.peer, c)
}

// TestAdmit_GatewayForItsUser: what a listed gateway signs in a workflow that is on
// record is admitted only if the part of its user shows there.
func TestAdmit_GatewayForItsUser(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		tokens func(w *world, b begun) []ect.Verified
		want   bool
		joins  bool // the outsider belongs then
	}{
		"a member, with its source": {want: true, tokens: func(w *world, b begun) []ect.Verified {
			source := w.sign(w.caller, ect.Claims{Workflow: b.workflow, Parents: []ect.ID{b.direction.ID()}})
			return []ect.Verified{w.behalf(w.caller, b.workflow, source.ID()), source}
		}},
		"a member, its source is on record": {want: true, tokens: func(w *world, b begun) []ect.Verified {
			source := w.sign(w.caller, ect.Claims{Workflow: b.workflow, Parents: []ect.ID{b.direction.ID()}, Audience: []string{string(w.peer.ID)}})
			_, err := w.send(w.caller, source)
			w.must(err)
			return []ect.Verified{w.behalf(w.caller, b.workflow, source.ID())}
		}},
		"a member, its source is on record and was not for the gateway": {tokens: func(w *world, b begun) []ect.Verified {
			return []ect.Verified{w.behalf(w.caller, b.workflow, b.root.ID())}
		}},
		"a member, of a gateway that belongs": {want: true, tokens: func(w *world, b begun) []ect.Verified {
			w.direction(w.peer, b.workflow, b.direction.ID())
			return []ect.Verified{w.behalf(w.caller, b.workflow, b.root.ID())}
		}},
		"a member, its source is unknown": {tokens: func(w *world, b begun) []ect.Verified {
			return []ect.Verified{w.behalf(w.caller, b.workflow, ect.NewID())}
		}},
		"a member, its source is in another workflow": {tokens: func(w *world, b begun) []ect.Verified {
			return []ect.Verified{w.behalf(w.caller, b.workflow, w.begin().root.ID())}
		}},
		"an outsider, below the token of another": {tokens: func(w *world, b begun) []ect.Verified {
			return []ect.Verified{w.behalf(w.outsider, b.workflow, b.root.ID())}
		}},
		"an outsider, with the token of another": {tokens: func(w *world, b begun) []ect.Verified {
			return []ect.Verified{w.behalf(w.outsider, b.workflow, b.root.ID()), b.root}
		}},
		"an outsider, with its own token": {tokens: func(w *world, b begun) []ect.Verified {
			source := w.sign(w.outsider, ect.Claims{Workflow: b.workflow, Parents: []ect.ID{b.direction.ID()}})
			return []ect.Verified{w.behalf(w.outsider, b.workflow, source.ID()), source}
		}},
		"an outsider, with its own token, which an agent brought": {tokens: func(w *world, b begun) []ect.Verified {
			source := w.sign(w.outsider, ect.Claims{Workflow: b.workflow, Parents: []ect.ID{b.direction.ID()}})
			w.must(w.recorder.Keep(t.Context(), source, ect.Filing{}))
			return []ect.Verified{w.behalf(w.outsider, b.workflow, source.ID()), source}
		}},
		"an outsider, below its own token, which an agent brought": {tokens: func(w *world, b begun) []ect.Verified {
			source := w.sign(w.outsider, ect.Claims{Workflow: b.workflow, Parents: []ect.ID{b.direction.ID()}})
			w.must(w.recorder.Keep(t.Context(), source, ect.Filing{}))
			return []ect.Verified{w.behalf(w.outsider, b.workflow, source.ID())}
		}},
		"whom a member has named": {want: true, joins: true, tokens: func(w *world, b begun) []ect.Verified {
			handed := w.sign(w.agent, ect.Claims{Workflow: b.workflow, Parents: []ect.ID{b.direction.ID()}, Audience: []string{string(w.outsider.ID)}})
			source := w.sign(w.outsider, ect.Claims{Workflow: b.workflow, Parents: []ect.ID{handed.ID()}})
			return []ect.Verified{w.behalf(w.outsider, b.workflow, source.ID()), source, handed}
		}},
		"an outsider, as a root": {tokens: func(w *world, b begun) []ect.Verified {
			return []ect.Verified{w.behalf(w.outsider, b.workflow)}
		}},
		"no user, with a source": {want: true, tokens: func(w *world, b begun) []ect.Verified {
			source := w.sign(w.caller, ect.Claims{Workflow: b.workflow, Parents: []ect.ID{b.direction.ID()}})
			return []ect.Verified{w.behalf(nil, b.workflow, source.ID()), source}
		}},
		"no user, below the token of another": {tokens: func(w *world, b begun) []ect.Verified {
			return []ect.Verified{w.behalf(nil, b.workflow, b.root.ID())}
		}},
		"no user, of a gateway that belongs, below an unknown token": {tokens: func(w *world, b begun) []ect.Verified {
			w.direction(w.peer, b.workflow, b.direction.ID())
			return []ect.Verified{w.behalf(nil, b.workflow, ect.NewID())}
		}},
		"no user, below a token that names the gateway": {want: true, tokens: func(w *world, b begun) []ect.Verified {
			return []ect.Verified{w.behalf(nil, b.workflow, w.direction(w.peer, b.workflow, b.direction.ID()).ID())}
		}},
		"an outsider, of a gateway that belongs": {tokens: func(w *world, b begun) []ect.Verified {
			return []ect.Verified{w.behalf(w.outsider, b.workflow, w.direction(w.peer, b.workflow, b.direction.ID()).ID())}
		}},
		"ourselves: the message came from here": {want: true, tokens: func(w *world, b begun) []ect.Verified {
			request := w.requestFor(w.peer, w.caller, b.workflow, b.root.ID())
			return []ect.Verified{w.behalf(w.self, b.workflow, request.ID()), request}
		}},
	} {
		w := newWorld(t)
		b := w.begin()
		tokens := tc.tokens(w, b)
		before := w.snapshot(b.workflow)
		_, err := w.send(w.peer, tokens...)
		_, foreign := errors.AsType[*ect.ForeignRootError](err)
		if got := err == nil; got != tc.want || err != nil && !isOutsider(err) && !foreign {
			t.Errorf("%s: got %v, want admitted %v", name, err, tc.want)
		}
		if w.belongs(b.workflow, w.outsider) != tc.joins {
			t.Errorf("%s: the outsider belongs %v, want %v", name, !tc.joins, tc.joins)
		}
		if diff := cmp.Diff(before, w.snapshot(b.workflow)); !tc.want && diff != "" {
			t.Errorf("%s: the workflow changed (-before +after):\n%s", name, diff)
		}
	}
}

// TestAttack_GatewayLiesAboutItsUser is finding P1: a listed gateway knows a workflow of
// others and the ids of tokens there, signs a token for a user that never asked it, and
// names itself and a third party in the audience. Each is refused, and makes no member.
func TestAttack_GatewayLiesAboutItsUser(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		user   func(w *world) *ecttest.Party
		parent func(b begun) ect.ID
	}{
		"this gateway, by a leg of its own":  {func(w *world) *ecttest.Party { return w.self }, func(b begun) ect.ID { return b.direction.ID() }},
		"this gateway, by the user's token":  {func(w *world) *ecttest.Party { return w.self }, func(b begun) ect.ID { return b.root.ID() }},
		"the user, by the user's token":      {func(w *world) *ecttest.Party { return w.caller }, func(b begun) ect.ID { return b.root.ID() }},
		"the user, by a leg of this gateway": {func(w *world) *ecttest.Party { return w.caller }, func(b begun) ect.ID { return b.direction.ID() }},
		"an outsider":                        {func(w *world) *ecttest.Party { return w.outsider }, func(b begun) ect.ID { return b.direction.ID() }},
		"no user":                            {func(*world) *ecttest.Party { return nil }, func(b begun) ect.ID { return b.direction.ID() }},
		"the gateway that lies, as its user": {func(w *world) *ecttest.Party { return w.peer }, func(b begun) ect.ID { return b.direction.ID() }},
	} {
		w := newWorld(t)
		b := w.begin()
		before := w.snapshot(b.workflow)
		lie := w.behalfTo(tc.user(w), b.workflow, []string{string(w.self.ID), string(w.peer.ID), string(w.outsider.ID)}, tc.parent(b))
		if _, err := w.send(w.peer, lie); !isOutsider(err) {
			t.Errorf("%s: %v, want a refusal", name, err)
		}
		if w.belongs(b.workflow, w.peer) || w.isParty(b.workflow, w.peer, b.direction.ID()) {
			t.Errorf("%s: the gateway has a part in the workflow", name)
		}
		if diff := cmp.Diff(before, w.snapshot(b.workflow)); diff != "" {
			t.Errorf("%s: the workflow changed (-before +after):\n%s", name, diff)
		}
		w.wantOutside(b)
	}
}

// TestAttack_GatewayNamesAThirdParty is the other half of finding P1: a listed gateway
// that has been sent work of the workflow names a third party in the audience of its
// token. The token is admitted; the third party becomes no member, and whom the
// parent of the token names does.
func TestAttack_GatewayNamesAThirdParty(t *testing.T) {
	t.Parallel()
	for name, tokens := range map[string]func(w *world, b begun, audience []string) []ect.Verified{
		"for this gateway": func(w *world, b begun, audience []string) []ect.Verified {
			return []ect.Verified{w.behalfTo(w.self, b.workflow, audience, w.requestFor(w.peer, w.caller, b.workflow, b.root.ID()).ID())}
		},
		"for the user": func(w *world, b begun, audience []string) []ect.Verified {
			source := w.sign(w.caller, ect.Claims{Workflow: b.workflow, Parents: []ect.ID{b.direction.ID()}, Audience: []string{string(w.peer.ID)}})
			return []ect.Verified{w.behalfTo(w.caller, b.workflow, audience, source.ID()), source}
		},
		"for itself": func(w *world, b begun, audience []string) []ect.Verified {
			return []ect.Verified{w.behalfTo(w.peer, b.workflow, audience, w.requestFor(w.peer, w.caller, b.workflow, b.root.ID()).ID())}
		},
	} {
		w := newWorld(t)
		b := w.begin()
		audience := []string{string(w.self.ID), string(w.peer.ID), string(w.outsider.ID)}
		if _, err := w.send(w.peer, tokens(w, b, audience)...); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if !w.belongs(b.workflow, w.peer) {
			t.Errorf("%s: the gateway does not belong", name)
		}
		w.wantOutside(b)
	}
}

// TestAdmit_GatewayBeginsAWorkflow: a workflow that is not on record begins with the
// message of a gateway's user, whether its source is a root or not.
func TestAdmit_GatewayBeginsAWorkflow(t *testing.T) {
	t.Parallel()
	for name, parents := range map[string][]ect.ID{"a root": nil, "a child of what is known elsewhere": {ect.NewID()}} {
		w := newWorld(t)
		wid := string(ect.NewID())
		source := w.sign(w.caller, ect.Claims{Workflow: wid, Parents: parents, Audience: []string{string(w.peer.ID)}})
		if _, err := w.send(w.peer, w.behalf(w.caller, wid, source.ID()), source); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		next := w.sign(w.caller, ect.Claims{Workflow: wid, Parents: []ect.ID{source.ID()}})
		if _, err := w.send(w.peer, w.behalf(w.caller, wid, next.ID()), next); err != nil {
			t.Errorf("%s: the next message: %v", name, err)
		}
		if !w.belongs(wid, w.caller) || !w.belongs(wid, w.peer) {
			t.Errorf("%s: the user or the gateway does not belong", name)
		}
	}
}

// TestAdmit_FurtherRootOfAGateway: a gateway began the workflow for a user without a
// token. A further root makes no other user a member.
func TestAdmit_FurtherRootOfAGateway(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	wid := string(ect.NewID())
	_, err := w.send(w.peer, w.behalf(w.caller, wid))
	w.must(err)
	if _, err := w.send(w.peer, w.behalf(w.outsider, wid)); !isOutsider(err) || w.belongs(wid, w.outsider) {
		t.Errorf("for another user: %v, want a refusal", err)
	}
	if !w.belongs(wid, w.caller) {
		t.Error("the user for whom the gateway began the workflow does not belong")
	}
}

// TestBind_GatewayNamesAUser: whom a gateway names in the evidence of its reply as its
// caller belongs only if a bound parent of that token shows it.
func TestBind_GatewayNamesAUser(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		user func(w *world) *ecttest.Party
		want bool
	}{
		"an outsider": {func(w *world) *ecttest.Party { return w.outsider }, false},
		"the gateway": {func(w *world) *ecttest.Party { return w.peer }, true},
	} {
		w := newWorld(t)
		b := w.begin()
		user := tc.user(w)
		directions := w.behalf(w.self, b.workflow, b.direction.ID())
		next := w.behalf(user, b.workflow, directions.ID())
		bound, _, err := w.register.Bind(t.Context(), w.reply(b, directions, next))
		if err != nil || len(bound) != 2 {
			t.Fatalf("%s: %d bound, %v", name, len(bound), err)
		}
		if got := slices.Contains(bound[1].Members, user.ID); got != tc.want {
			t.Errorf("%s: belongs %v, want %v", name, got, tc.want)
		}
	}
}

// beside is the peer gateway: another register and store, for the same parties.
func (w *world) beside() *world {
	w.t.Helper()
	other := *w
	other.self, other.peer, other.store = w.peer, w.self, ecttest.NewStore()
	var err error
	other.register, err = membership.New(membership.Deps{Store: other.store, Self: other.self.ID})
	w.must(err)
	other.recorder, err = ect.NewRecorder(ect.RecorderDeps{Store: other.store})
	w.must(err)
	return &other
}

// binds records what came with a reply.
func (w *world) binds(b begun, tokens ...ect.Verified) {
	w.t.Helper()
	bound, unbound, err := w.register.Bind(w.t.Context(), w.reply(b, tokens...))
	w.must(err)
	if len(unbound) > 0 {
		w.t.Fatalf("%d tokens of the reply are not bound", len(unbound))
	}
	for _, f := range bound {
		w.must(w.recorder.Keep(w.t.Context(), f.Token, ect.Filing{Members: f.Members}))
	}
}

// victim is a workflow on record at a gateway, and its tokens there.
type victim struct {
	at *world
	begun
	seen []ect.Verified
}

// TestAttack_OutsiderOverTwoGateways is the property behind finding N2: two gateways
// list each other, and have the work of others on record; a further replica of one has
// forgotten it. Whatever an outsider that has seen every token sends to any of them, and
// whatever that sends on, with the source or without it: at the other gateway it becomes
// no member and no party, may read no record, and no record of the workflows changes.
func TestAttack_OutsiderOverTwoGateways(t *testing.T) {
	t.Parallel()
	for seed := range uint64(40) {
		random := rand.New(rand.NewPCG(seed, 28))
		first := newWorld(t)
		second := first.beside()
		here, there := first.begin(), second.begin()
		both := begun{workflow: string(ect.NewID())}
		both.root = first.sign(first.caller, ect.Claims{Workflow: both.workflow})
		over, err := second.send(first.caller, both.root)
		first.must(err)
		both.direction, err = first.send(first.peer, over, both.root)
		first.must(err)
		both.checkpoint = both.direction
		second.binds(begun{workflow: both.workflow, direction: over}, both.direction)
		victims := []victim{
			{first, here, []ect.Verified{here.root, here.direction, here.checkpoint}},
			{second, there, []ect.Verified{there.root, there.direction, there.checkpoint}},
			{first, both, []ect.Verified{both.root, over, both.direction}},
			{second, both, []ect.Verified{both.root, over, both.direction}},
		}
		var own, directions []ect.Verified
		for range 25 {
			target := victims[random.IntN(len(victims))]
			tokens := first.attack(random, target.begun, slices.Concat(target.seen, directions), &own)
			gateway := []*world{first, second, first.beside(), second.beside()}[random.IntN(4)]
			before := snapshots(victims)
			if direction, err := gateway.send(first.outsider, tokens...); err == nil {
				directions = append(directions, direction)
				next := first
				if gateway.self == first.self {
					next = second
				}
				if random.IntN(3) > 0 {
					tokens = nil // as if the source had been left out
				}
				if direction, err := next.send(gateway.self, append([]ect.Verified{direction}, tokens...)...); err == nil {
					directions = append(directions, direction)
				}
			}
			if diff := cmp.Diff(before, snapshots(victims)); diff != "" {
				t.Fatalf("seed %d: a workflow changed (-before +after):\n%s", seed, diff)
			}
			for _, v := range victims {
				v.at.wantNothing(seed, v.begun, v.seen, own)
			}
		}
	}
}

func snapshots(victims []victim) (all []string) {
	for _, v := range victims {
		all = append(all, v.at.snapshot(v.workflow)...)
	}
	return all
}
