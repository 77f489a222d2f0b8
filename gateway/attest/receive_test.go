package attest_test

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/ect/ecttest"
	"github.com/aepb/aepb-gateway/gateway/attest"
	"github.com/aepb/aepb-gateway/gateway/problem"
	"github.com/aepb/aepb-gateway/gateway/state"
	"github.com/aepb/aepb-gateway/gateway/transport"
	"github.com/aepb/aepb-gateway/policy/limit"
	"github.com/aepb/aepb-gateway/policy/membership"
	"github.com/aepb/aepb-gateway/translators"
)

// answer is what the agent says in these tests.
const answer = "answered"

// received is these tokens beside what the agent said.
func (b *env) received(tokens ...string) attest.Received {
	return attest.Received{
		Subject: b.subject(), Tokens: tokens, Check: ect.Check{Purpose: ect.Parent}, Agent: "calculator", Replier: limit.Identity(string(b.agent.ID)),
		Reply: b.replyOf(b.agent),
	}
}

func (b *env) replyOf(who *ecttest.Party) membership.Reply {
	return membership.Reply{
		Workflow: b.workflow, Agent: who.ID, Gateway: func(id ect.Identity) bool { return id == b.peer.ID || id == b.next.ID },
	}
}

// answering is these tokens beside an answer that the agent's own covers.
func (b *env) answering(tokens ...string) attest.Received {
	in := b.received(tokens...)
	in.Check = ect.Check{Purpose: ect.Reply, Body: ect.Hash([]byte(answer))}
	return in
}

// done is a party's token about the answer.
func (b *env) done(by *ecttest.Party, workflow string, parents ...ect.ID) string {
	b.t.Helper()
	return b.signed(by, ect.Claims{Workflow: workflow, Parents: parents, OutputHash: ect.Hash([]byte(answer))})
}

// begin begins an execution.
func (b *env) begin() (*attest.Trail, ect.ID) {
	b.t.Helper()
	trail := attest.Begin()
	return trail, b.translated(trail, b.request())
}

// declared is what the token of the next reply says of evidence that is not bound.
func (b *env) declared(trail *attest.Trail) []string {
	b.t.Helper()
	id := b.translated(trail, b.reply(trail.Request()))
	out, _ := b.claims(b.record(id).Compact).Ext.Strings(ect.ExtUnboundEvidence)
	return out
}

// An agent's token that is bound to the request becomes a parent of the reply; others are
// declared, and recorded outside of every workflow (R4).
func TestReceive_Bound(t *testing.T) {
	t.Parallel()
	b := newEnv(t)
	elsewhere := string(ect.NewID())
	for name, tc := range map[string]struct {
		by       *ecttest.Party
		workflow string
		loose    bool // it names another parent than the request
		parent   bool
		declared bool
		listed   bool // it is recorded in its workflow
		members  []ect.Identity
	}{
		"of the agent":                       {by: b.agent, workflow: b.workflow, parent: true, listed: true, members: []ect.Identity{}},
		"of a gateway":                       {by: b.peer, workflow: b.workflow, parent: true, listed: true, members: []ect.Identity{}},
		"of another identity":                {by: b.outsider, workflow: b.workflow, declared: true, listed: true},
		"of another workflow":                {by: b.agent, workflow: elsewhere, declared: true},
		"of no workflow":                     {by: b.agent, declared: true},
		"of another parent":                  {by: b.agent, workflow: b.workflow, loose: true, declared: true},
		"of another parent and another's":    {by: b.outsider, workflow: b.workflow, loose: true, declared: true},
		"of a gateway, in another workflow":  {by: b.peer, workflow: elsewhere, declared: true},
		"of a gateway, after another parent": {by: b.peer, workflow: b.workflow, loose: true, declared: true},
	} {
		trail, request := b.begin()
		parent := request
		if tc.loose {
			parent = ect.NewID()
		}
		compact := b.done(tc.by, tc.workflow, parent)
		id := b.claims(compact).ID
		parents, err := b.Receive(t.Context(), trail, b.answering(compact))
		if err != nil || slices.Equal(parents, []ect.ID{id}) != tc.parent || len(parents) > 1 {
			t.Errorf("%s: parents %v, %v", name, parents, err)
		}
		if got := slices.Equal(b.declared(trail), []string{string(id)}); got != tc.declared {
			t.Errorf("%s: declared unbound: %v", name, got)
		}
		rec := b.record(id)
		workflow := ""
		if tc.listed {
			workflow = b.workflow
		}
		if rec.Workflow != workflow || rec.Own || rec.Holder != limit.Identity(string(b.agent.ID)) || !slices.Equal(rec.Members, tc.members) {
			t.Errorf("%s: recorded in %q, members %v, holder %q", name, rec.Workflow, rec.Members, rec.Holder)
		}
	}
}

// A request token tells of no unbound evidence: that is the reply's to declare.
func TestReceive_DeclaredInReply(t *testing.T) {
	t.Parallel()
	b := newEnv(t)
	trail, _ := b.begin()
	foreign := b.unbound(trail, 2)
	again := b.translated(trail, b.request())
	if ext := b.claims(b.record(again).Compact).Ext; ext[ect.ExtUnboundEvidence] != nil {
		t.Errorf("a request declares %s", ext[ect.ExtUnboundEvidence])
	}
	if got := b.declared(trail); !slices.Equal(got, foreign) {
		t.Errorf("the reply declares %v, want %v", got, foreign)
	}
}

// The agent's own token is held to the answer, what it was made of is not; and a next
// gateway's token of the way there testifies to the request.
func TestReceive_Lineage(t *testing.T) {
	t.Parallel()
	b := newEnv(t)
	trail, request := b.begin()
	ext := ect.Ext{}
	ext.SetString(ect.ExtLeg, string(attest.Request))
	onward := b.signed(b.peer, ect.Claims{Act: ect.ActTranslate, Audience: []string{string(b.agent.ID)}, Workflow: b.workflow, Parents: []ect.ID{request}, OutputHash: ect.Hash([]byte("passed on")), Ext: ext})
	ancestor := b.signed(b.outsider, ect.Claims{Audience: []string{string(b.agent.ID)}, Workflow: b.workflow, Parents: ids(1)})
	own := b.done(b.agent, b.workflow, request, b.claims(ancestor).ID)
	parents, err := b.Receive(t.Context(), trail, b.answering(ancestor, onward, own))
	if err != nil || !slices.Equal(parents, []ect.ID{b.claims(own).ID}) {
		t.Fatalf("parents %v, %v", parents, err)
	}
	if got := b.declared(trail); len(got) != 0 {
		t.Errorf("declared unbound: %v", got)
	}
	for _, compact := range []string{onward, ancestor, own} {
		if rec := b.record(b.claims(compact).ID); rec.Workflow != b.workflow {
			t.Errorf("a token of %s is out of the workflow", rec.Issuer)
		}
	}
	trail, request = b.begin()
	alone := b.signed(b.peer, ect.Claims{Act: ect.ActTranslate, Workflow: b.workflow, Parents: []ect.ID{request}, OutputHash: ect.Hash([]byte("passed on")), Ext: ext})
	if _, err := b.Receive(t.Context(), trail, b.answering(alone)); !as[*transport.BadReplyError](err) {
		t.Errorf("a token of the way there alone: got %v", err)
	}
}

// Requests of the time before an execution was taken up count, and those of another do not.
func TestReceive_KeptRequests(t *testing.T) {
	t.Parallel()
	b := newEnv(t)
	_, request := b.begin()
	for _, before := range [][]ect.ID{{request}, nil} {
		in := b.answering(b.done(b.agent, b.workflow, request))
		in.Requests = before
		parents, err := b.Receive(t.Context(), attest.Begin(), in)
		if err != nil || len(parents) != len(before) {
			t.Errorf("with %d requests of the record: parents %v, %v", len(before), parents, err)
		}
	}
}

// An answer with broken evidence is not believed, and nothing of it is recorded.
func TestReceive_Broken(t *testing.T) {
	t.Parallel()
	for name, tokens := range map[string]func(*env, ect.ID) []string{
		"no token": func(*env, ect.ID) []string { return []string{"no.to.ken"} },
		"no token among others": func(b *env, r ect.ID) []string {
			return []string{b.done(b.agent, b.workflow, r), "no.to.ken"}
		},
		"too many": func(b *env, r ect.ID) (many []string) {
			for range attest.MaxSignatures + 1 {
				many = append(many, b.done(b.agent, b.workflow, r))
			}
			return many
		},
		"of an unknown key": func(b *env, r ect.ID) []string { return []string{b.done(b.unknown, b.workflow, r)} },
		"of an unknown key, beside a good one": func(b *env, r ect.ID) []string {
			return []string{b.done(b.agent, b.workflow, r), b.done(b.unknown, b.workflow, r)}
		},
		"of another answer": func(b *env, r ect.ID) []string {
			return []string{b.signed(b.agent, ect.Claims{Workflow: b.workflow, Parents: []ect.ID{r}, OutputHash: ect.Hash([]byte("other"))})}
		},
		"for another reader": func(b *env, r ect.ID) []string {
			return []string{b.signed(b.agent, ect.Claims{
				Workflow: b.workflow, Parents: []ect.ID{r}, OutputHash: ect.Hash([]byte(answer)), Audience: []string{string(b.peer.ID)},
			})}
		},
		"an ancestor of an unknown key": func(b *env, r ect.ID) []string {
			ancestor := b.signed(b.unknown, ect.Claims{Workflow: b.workflow, Parents: []ect.ID{r}})
			return []string{ancestor, b.done(b.agent, b.workflow, b.claims(ancestor).ID)}
		},
		"changed": func(b *env, r ect.ID) []string {
			parts := strings.Split(b.done(b.agent, b.workflow, r), ".")
			return []string{parts[0] + "." + parts[1] + "." + strings.Split(b.done(b.agent, b.workflow, r), ".")[2]}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newEnv(t)
			trail, request := b.begin()
			before := len(b.store.records)
			parents, err := b.Receive(t.Context(), trail, b.answering(tokens(b, request)...))
			bad, ok := errors.AsType[*transport.BadReplyError](err)
			if !ok || bad.Agent != "calculator" || len(parents) != 0 {
				t.Errorf("got %v, %v, want a bad reply of the agent", parents, err)
			}
			if len(b.store.records) != before || trail.Count() != 1 {
				t.Errorf("%d tokens are on record, %d on the trail", len(b.store.records)-before, trail.Count())
			}
		})
	}
}

// A used token is no answer to another request.
func TestReceive_Replayed(t *testing.T) {
	t.Parallel()
	b := newEnv(t)
	trail, request := b.begin()
	compact := b.done(b.agent, b.workflow, request)
	if _, err := b.Receive(t.Context(), trail, b.answering(compact)); err != nil {
		t.Fatal(err)
	}
	other := b.answering(compact)
	other.Check.Body = ect.Hash([]byte("another answer"))
	if _, err := b.Receive(t.Context(), trail, other); !as[*transport.BadReplyError](err) {
		t.Errorf("got %v", err)
	}
}

// fullUses is a memory of used tokens in which one holder has its share.
type fullUses struct {
	ect.ReplayCache
	holder ect.Identity
}

func (f fullUses) Claim(ctx context.Context, key ect.ReplayKey, use ect.ReplayUse) (ect.ReplayState, error) {
	if use.Holder == f.holder {
		return ect.ReplayUnknown, &state.UsesError{Own: true}
	}
	return f.ReplayCache.Claim(ctx, key, use)
}

// TestAttack_CallerFillsTheShareOfAnAgent: the tokens of answers count for the caller who asked,
// not for the agent: so a caller who asks much does not have the answers to others refused, and
// a full share is no fault of the agent.
func TestAttack_CallerFillsTheShareOfAnAgent(t *testing.T) {
	t.Parallel()
	for _, mine := range []bool{true, false} {
		b := newEnv(t)
		full := fullUses{ecttest.NewReplay(), b.agent.ID}
		if mine {
			full.holder = b.caller.ID
		}
		var err error
		b.deps.Verifier, err = ect.NewVerifier(ect.VerifierDeps{Keys: b.keys, Replay: full, Audience: []string{string(b.self.ID)}})
		b.must(err)
		b.Service, err = attest.New(b.deps)
		b.must(err)
		trail, request := b.begin()
		_, err = b.Receive(t.Context(), trail, b.answering(b.done(b.agent, b.workflow, request)))
		if mine != as[*state.UsesError](err) || !mine && err != nil {
			t.Errorf("the share is the caller's: %v: %v", mine, err)
		}
	}
}

// Without its evidence on record an answer goes no further.
func TestReceive_StoreFails(t *testing.T) {
	t.Parallel()
	b := newEnv(t)
	for _, workflow := range []string{b.workflow, string(ect.NewID())} {
		trail, request := b.begin()
		b.store.fail = errors.New("gone")
		parents, err := b.Receive(t.Context(), trail, b.answering(b.done(b.agent, workflow, request)))
		b.store.fail = nil
		if !as[*problem.RecordingError](err) || len(parents) != 0 {
			t.Errorf("got %v, %v, want a *problem.RecordingError", parents, err)
		}
	}
}

// A token with the id of another one of its issuer is declared, and what is on record
// stays; so does a token that others brought into its workflow before.
func TestReceive_OnRecordBefore(t *testing.T) {
	t.Parallel()
	b := newEnv(t)
	trail, request := b.begin()
	first := b.done(b.agent, b.workflow, request)
	id := b.claims(first).ID
	if _, err := b.Receive(t.Context(), trail, b.answering(first)); err != nil {
		t.Fatal(err)
	}
	second := b.signed(b.agent, ect.Claims{ID: id, Workflow: b.workflow, Parents: []ect.ID{request}, OutputHash: ect.Hash([]byte(answer)), Ext: large(9)})
	b.deps.Verifier = b.verifier(b.self.ID) // that has forgotten the first
	other, err := attest.New(b.deps)
	b.must(err)
	parents, err := other.Receive(t.Context(), trail, b.answering(second))
	if err != nil || len(parents) != 0 {
		t.Errorf("another token with its id: parents %v, %v", parents, err)
	}
	if got := b.declared(trail); !slices.Equal(got, []string{string(id)}) || b.record(id).Compact != first {
		t.Errorf("declared %v", got)
	}
	next, _ := b.begin()
	if _, err := other.Receive(t.Context(), next, b.received(first)); err != nil {
		t.Fatal(err)
	}
	if got := b.declared(next); len(got) != 1 || b.record(id).Workflow != b.workflow {
		t.Errorf("brought again, unbound: declared %v, in workflow %q", got, b.record(id).Workflow)
	}
}

// How an agent writes tokens is how it is written to, from its own word on.
func TestReceive_Dialect(t *testing.T) {
	t.Parallel()
	b := newEnv(t)
	trail, request := b.begin()
	token, err := b.agent.Signer(t, nil).SignAs(ect.Dialect01, ect.Claims{
		Act: "task_done", Audience: []string{string(b.self.ID)}, Workflow: b.workflow, Parents: []ect.ID{request}, OutputHash: ect.Hash([]byte(answer)),
	})
	b.must(err)
	if _, err := b.Receive(t.Context(), trail, b.answering(token.Compact())); err != nil {
		t.Fatal(err)
	}
	b.translated(trail, b.request())
	if v := b.read(b.agent, trail.Tokens()[1], []byte("asked of the agent")); v.Dialect() != ect.Dialect01 {
		t.Errorf("it is written to in dialect %s", v.Dialect())
	}
}

// The evidence of a gateway that refused a message is kept, without what does not verify.
func TestRefused_LeavesOutTheUnverified(t *testing.T) {
	t.Parallel()
	b := newEnv(t)
	trail, request := b.begin()
	good := b.signed(b.peer, ect.Claims{Act: ect.ActTranslateError, Workflow: b.workflow, Parents: []ect.ID{request}})
	bad := b.signed(b.unknown, ect.Claims{Act: ect.ActTranslateError, Workflow: b.workflow, Parents: []ect.ID{request}})
	in := b.received(bad, good, "no.to.ken")
	in.Reply, in.Subject.Gateway = b.replyOf(b.peer), true
	b.Refused(t.Context(), trail, in)
	if rec := b.record(b.claims(good).ID); rec.Workflow != b.workflow {
		t.Errorf("it is kept in workflow %q", rec.Workflow)
	}
	if found, err := ecttest.Find(t.Context(), b.store, b.claims(bad).ID); err != nil || len(found) != 0 {
		t.Errorf("what does not verify is on record: %d, %v", len(found), err)
	}
	if got := trail.Proof(); len(got) != 2 || got[1] != good {
		t.Errorf("the caller, a gateway, gets %d tokens", len(got))
	}
	before := len(b.store.records)
	var many []string
	for range attest.MaxSignatures + 1 {
		many = append(many, b.signed(b.peer, ect.Claims{Act: ect.ActTranslateError, Workflow: b.workflow, Parents: []ect.ID{request}}))
	}
	in.Tokens = many
	b.Refused(t.Context(), trail, in)
	in.Tokens, b.store.fail = many[:1], errors.New("gone")
	b.Refused(t.Context(), trail, in)
	if len(b.store.records) != before {
		t.Errorf("%d more are on record", len(b.store.records)-before)
	}
	if !strings.Contains(b.log.String(), "evidence of a refusal not recorded") {
		t.Error("that the store failed is not logged")
	}
}

// What a gateway further on says of a message is believed if it covers the message, and
// was made of ours step by step (AEPB, Multi-Hop Translation).
func TestLearn_Steps(t *testing.T) {
	t.Parallel()
	const unread, unverified, about, ours = "a translation without an ECT that can be read", "its ECT does not verify", "its ECT is about another message", "its ECT was not made of ours"
	for name, tc := range map[string]struct {
		tokens func(*env, ect.ID) []string
		want   string
	}{
		"one step":  {func(b *env, r ect.ID) []string { return b.steps(b.workflow, r, b.peer) }, ""},
		"two steps": {func(b *env, r ect.ID) []string { return b.steps(b.workflow, r, b.peer, b.next) }, ""},
		"none":      {func(*env, ect.ID) []string { return nil }, unread},
		"unread":    {func(b *env, r ect.ID) []string { return append(b.steps(b.workflow, r, b.peer), "no.to.ken") }, unread},
		"too many": {func(b *env, r ect.ID) []string {
			return b.steps(b.workflow, r, slices.Repeat([]*ecttest.Party{b.peer}, attest.MaxSignatures+1)...)
		}, unread},
		"unknown key":         {func(b *env, r ect.ID) []string { return b.steps(b.workflow, r, b.unknown) }, unverified},
		"unknown key between": {func(b *env, r ect.ID) []string { return b.steps(b.workflow, r, b.unknown, b.peer) }, unverified},
		"another workflow":    {func(b *env, r ect.ID) []string { return b.steps(string(ect.NewID()), r, b.peer) }, unverified},
		"no translation":      {func(b *env, r ect.ID) []string { return []string{b.done(b.peer, b.workflow, r)} }, unverified},
		"another protocol":    {func(b *env, r ect.ID) []string { return []string{b.step(b.peer, b.workflow, "a2a-v1", answer, r)} }, about},
		"another message":     {func(b *env, r ect.ID) []string { return []string{b.step(b.peer, b.workflow, "ainp-v1", "other", r)} }, about},
		"of another request":  {func(b *env, _ ect.ID) []string { return b.steps(b.workflow, ect.NewID(), b.peer) }, ours},
		"of nothing":          {func(b *env, _ ect.ID) []string { return []string{b.step(b.peer, b.workflow, "ainp-v1", answer)} }, ours},
		"a step is missing":   {func(b *env, r ect.ID) []string { return b.steps(b.workflow, r, b.peer, b.next)[1:] }, ours},
		"one is left over": {func(b *env, r ect.ID) []string {
			return append(b.steps(b.workflow, r, b.peer), b.steps(b.workflow, r, b.next)...)
		}, ours},
		"two parents on the way": {func(b *env, _ ect.ID) []string {
			return []string{b.step(b.peer, b.workflow, "ainp-v1", answer, ect.NewID(), ect.NewID())}
		}, ours},
		"of ours and another one": {func(b *env, r ect.ID) []string {
			return []string{b.step(b.peer, b.workflow, "ainp-v1", answer, ect.NewID(), r)}
		}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newEnv(t)
			trail, request := b.begin()
			tokens, before := tc.tokens(b, request), len(b.store.records)
			learned, reason, err := b.Learn(t.Context(), trail, b.passed(tokens))
			if got := string(learned.Wire().Body); tc.want == "" && got != answer || tc.want != "" && got != "" {
				t.Errorf("the answer is %q", got)
			}
			if err != nil || reason != tc.want {
				t.Fatalf("got %q, %v, want %q", reason, err, tc.want)
			}
			want := 0
			if tc.want == "" {
				want = len(tokens)
				for _, compact := range tokens {
					c := b.claims(compact)
					if rec := b.record(c.ID); rec.Workflow != b.workflow || rec.Own || rec.Holder != limit.Identity(string(c.Issuer)) || len(rec.Members) != 0 {
						t.Errorf("recorded in %q, holder %q, members %v", rec.Workflow, rec.Holder, rec.Members)
					}
				}
			}
			if got := len(b.store.records) - before; got != want || trail.Count() != 1+want || trail.Request() != request {
				t.Errorf("%d are on record, %d on the trail, want %d", got, trail.Count()-1, want)
			}
		})
	}
}

// step is a gateway's token of a translation.
func (b *env) step(by *ecttest.Party, workflow, to, body string, parents ...ect.ID) string {
	b.t.Helper()
	ext := ect.Ext{}
	ext.SetString(ect.ExtDestProtocol, to)
	return b.signed(by, ect.Claims{Act: ect.ActTranslate, Workflow: workflow, Parents: parents, OutputHash: ect.Hash([]byte(body)), Ext: ext})
}

// steps are those of gateways, one after the other, oldest first.
func (b *env) steps(workflow string, parent ect.ID, by ...*ecttest.Party) (out []string) {
	b.t.Helper()
	for i, who := range by {
		to, body := "slim-v"+strconv.Itoa(i), "between"
		if i == len(by)-1 {
			to, body = "ainp-v1", answer
		}
		out = append(out, b.step(who, workflow, to, body, parent))
		parent = b.claims(out[i]).ID
	}
	return out
}

func (b *env) passed(tokens []string) attest.Passed {
	return attest.Passed{
		Subject: b.subject(), Workflow: b.workflow, Tokens: tokens,
		Wire: translators.Wire{Binding: "ainp-v1", Body: []byte(answer)}, Known: true,
	}
}

func TestLearn_StoreFails(t *testing.T) {
	t.Parallel()
	b := newEnv(t)
	trail, request := b.begin()
	tokens := b.steps(b.workflow, request, b.peer)
	b.store.fail = errors.New("gone")
	if _, _, err := b.Learn(t.Context(), trail, b.passed(tokens)); !as[*problem.RecordingError](err) || trail.Count() != 1 {
		t.Errorf("got %v, %d tokens on the trail", err, trail.Count())
	}
}

// A signal that an agent sends is recorded if it is bound to the request.
func TestBound_Signal(t *testing.T) {
	t.Parallel()
	b := newEnv(t)
	_, request := b.begin()
	for _, parent := range []ect.ID{request, ect.NewID()} {
		compact := b.signed(b.agent, ect.Claims{Act: ect.ActRollbackResult, Workflow: b.workflow, Parents: []ect.ID{parent}})
		v, err := b.Verify(t.Context(), compact, ect.Check{Purpose: ect.Parent})
		b.must(err)
		reply := b.replyOf(b.agent)
		reply.Requests = []ect.ID{request}
		if err := b.Bound(t.Context(), v, reply, "replier"); err != nil {
			t.Fatal(err)
		}
		found, err := ecttest.Find(t.Context(), b.store, v.ID())
		if err != nil || (len(found) == 1) != (parent == request) || len(found) == 1 && found[0].Holder != "replier" {
			t.Errorf("bound %v: %d on record, %v", parent == request, len(found), err)
		}
		b.store.fail = errors.New("gone")
		if err := b.Bound(t.Context(), v, reply, "replier"); as[*problem.RecordingError](err) != (parent == request) {
			t.Errorf("the store fails: got %v", err)
		}
		b.store.fail = nil
	}
}

// Of several tokens with one id ours is meant, since all others with it came later.
func TestNamed_OursFirst(t *testing.T) {
	t.Parallel()
	b := newEnv(t)
	_, request := b.begin()
	shared := ect.NewID()
	for _, id := range []ect.ID{request, shared} {
		for _, by := range []*ecttest.Party{b.agent, b.outsider} {
			compact := b.signed(by, ect.Claims{ID: id, Workflow: string(ect.NewID())})
			v, err := b.Verify(t.Context(), compact, ect.Check{Purpose: ect.Parent})
			b.must(err)
			b.must(b.deps.Recorder.Keep(t.Context(), v, ect.Filing{}))
		}
	}
	ours, err := b.Named(t.Context(), ect.Ref{ID: request})
	if err != nil || len(ours) != 1 || ours[0].Issuer != b.self.ID {
		t.Errorf("got %d records, %v, want ours", len(ours), err)
	}
	if all, err := b.Named(t.Context(), ect.Ref{ID: shared}); err != nil || len(all) != 2 {
		t.Errorf("got %d records, %v, want those of both", len(all), err)
	}
}

func TestVerify_Counted(t *testing.T) {
	t.Parallel()
	b := newEnv(t)
	good, bad := b.signed(b.agent, ect.Claims{}), b.signed(b.unknown, ect.Claims{})
	for _, compact := range []string{good, bad, "no.to.ken"} {
		_, _ = b.Verify(t.Context(), compact, ect.Check{Purpose: ect.Parent})
	}
	if got, want := strings.Join(b.counts.verified, ", "), "L2 ok, L0 unknown_key, L0 malformed"; got != want {
		t.Errorf("counted %s, want %s", got, want)
	}
	if len(b.store.records) != 0 {
		t.Error("what is only verified is on record")
	}
}

func TestSplit_SourcesFirst(t *testing.T) {
	t.Parallel()
	b := newEnv(t)
	root := b.signed(b.agent, ect.Claims{})
	child := b.signed(b.agent, ect.Claims{Parents: []ect.ID{b.claims(root).ID}})
	other := b.signed(b.agent, ect.Claims{})
	got, err := attest.Split([]string{root, child, other})
	want := []attest.Submission{{Compact: child, Source: true}, {Compact: other, Source: true}, {Compact: root}}
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("got %d tokens, %v, want the child and the other one, and then the root", len(got), err)
	}
	if got, err := attest.Split([]string{"unread"}); err != nil || len(got) != 1 || !got[0].Source {
		t.Errorf("one: got %v, %v", got, err)
	}
	if got, err := attest.Split([]string{root, "unread"}); err == nil {
		t.Errorf("one that cannot be read: got %v", got)
	}
	if got, err := attest.Split(slices.Repeat([]string{root}, attest.MaxSignatures+1)); !as[*ect.TooLargeError](err) {
		t.Errorf("too many: got %v, %v", got, err)
	}
}
