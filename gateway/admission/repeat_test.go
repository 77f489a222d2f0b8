package admission_test

import (
	"errors"
	"slices"
	"strconv"
	"testing"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/ect/ecttest"
	"github.com/aepb/aepb-gateway/gateway/idempotency"
	"github.com/aepb/aepb-gateway/gateway/problem"
	"github.com/aepb/aepb-gateway/gateway/transport"
	"github.com/aepb/aepb-gateway/policy"
	"github.com/aepb/aepb-gateway/translators"
	"github.com/aepb/aepb-gateway/translators/a2a"
	"github.com/aepb/aepb-gateway/translators/rollback"
)

const answerBody = `{"jsonrpc":"2.0","id":7,"result":{}}`

// answered is a message that was admitted once, and its answer as it was kept.
type answered struct {
	*env

	call  transport.Call
	key   ect.ReplayKey
	ours  string // the token of the answer
	reply idempotency.Reply
}

func newAnswered(t *testing.T) *answered {
	t.Helper()
	e := newEnv(t)
	a := &answered{env: e, call: e.call(addBody, e.sign(e.caller, e.claims(addBody)))}
	first, err := e.admit(a.call)
	e.must(err)
	v := first.Used[0]
	a.key = ect.ReplayKey{Issuer: v.Issuer(), Workflow: v.Workflow(), ID: v.ID()}
	claims := e.claims(answerBody)
	a.ours = e.sign(e.self, claims)
	e.must(e.store.Put(t.Context(), ect.Record{Compact: a.ours, ID: claims.ID, Workflow: claims.Workflow, Issuer: e.self.ID, Act: claims.Act, Own: true, Until: e.now.Add(1e12)}))
	a.reply = idempotency.Reply{Wire: translators.Wire{Binding: a2a.Binding, Media: "application/json", Body: []byte(answerBody)}, Evidence: []ect.ID{claims.ID}}
	e.decoded.Store(0)
	return a
}

// keep keeps the answer.
func (a *answered) keep() {
	a.t.Helper()
	blob, err := a.reply.Encode()
	a.must(err)
	a.memory.Finish(a.t.Context(), a.key, blob, a.now.Add(1e12))
}

// TestAdmit_RepetitionGetsItsAnswer: the same bytes get the same answer with the same tokens,
// and the message is read once, to judge its operation.
func TestAdmit_RepetitionGetsItsAnswer(t *testing.T) {
	t.Parallel()
	a := newAnswered(t)
	a.keep()
	got, err := a.admit(a.call)
	if err != nil || !got.Repeated || string(got.Answer.Wire().Body) != answerBody || !slices.Equal(got.Answer.Evidence, []string{a.ours}) {
		t.Errorf("repeated %t, %v: %s with %q", got.Repeated, err, got.Answer.Wire().Body, got.Answer.Evidence)
	}
	if got.LeavesEvidence || len(got.Evidence.Sources) > 0 || len(got.Used) > 0 || got.Recorded || got.Message != nil || got.Foreign() {
		t.Errorf("what is on record about the first time would change: %+v", got.Admitted)
	}
	if n := a.decoded.Load(); n != 1 {
		t.Errorf("read %d times", n)
	}
}

// TestAdmit_LeftAlone: while an agent is left alone, a message for it is refused as often as it
// comes, and counts; afterwards the same message is admitted. What was answered before is
// answered again.
func TestAdmit_LeftAlone(t *testing.T) {
	t.Parallel()
	a := newAnswered(t)
	a.keep()
	a.open = true
	fresh := a.env.call(addBody, a.sign(a.caller, a.claims(addBody)))
	for range 3 {
		if _, err := a.admit(fresh); !is[*problem.CircuitOpenError](err) {
			t.Errorf("new work: %v", err)
		}
	}
	if got, err := a.admit(a.call); err != nil || !got.Repeated {
		t.Errorf("what was answered: repeated %t, %v", got.Repeated, err)
	}
	a.must(a.deps.Attest.Flush(t.Context()))
	refusals := 0
	for _, compact := range a.store.puts {
		claims, _, err := ect.ParseUnverified(compact)
		a.must(err)
		if count, ok := claims.Ext[ect.ExtRefusals]; ok {
			n, err := strconv.Atoi(string(count))
			a.must(err)
			refusals += n
		}
	}
	if refusals != 3 {
		t.Errorf("on record are %d refusals", refusals)
	}
	a.open = false
	if _, err := a.admit(fresh); err != nil {
		t.Errorf("afterwards: %v", err)
	}
}

// TestAdmit_UnderWayWhileLeftAlone: what was admitted before its agent was left alone is said to
// be under way: its caller must not begin it anew elsewhere.
func TestAdmit_UnderWayWhileLeftAlone(t *testing.T) {
	t.Parallel()
	a := newAnswered(t)
	for _, open := range []bool{false, true} {
		a.open = open
		if _, err := a.admit(a.call); !is[*problem.InProgressError](err) {
			t.Errorf("open %t: %v", open, err)
		}
	}
	a.open, a.store.get = true, errors.New("away")
	if _, err := a.admit(a.env.call(addBody, a.sign(a.caller, a.claims(addBody)))); !is[*problem.RecordingError](err) {
		t.Errorf("without evidence: %v", err)
	}
}

// TestAttack_LeftAloneShowsTheHealthOfAnAgent: whether an agent is left alone is nothing for those
// who may not invoke it.
func TestAttack_LeftAloneShowsTheHealthOfAnAgent(t *testing.T) {
	t.Parallel()
	for _, open := range []bool{false, true} {
		e := newEnv(t)
		e.open = open
		e.list("calculator", policy.Rules{Callers: []string{string(e.caller.ID) + "#task.get"}})
		if _, err := e.admit(e.call(addBody, e.sign(e.caller, e.claims(addBody)))); !is[*policy.Forbidden](err) {
			t.Errorf("who may ask about tasks, open %t: %v", open, err)
		}
		e = newEnv(t)
		e.open, e.decides = open, true
		root, claims := e.workflowOf(e.agent), e.claims(addBody)
		claims.Act, claims.Workflow, claims.Parents = ect.ActApprovalGranted, root.Workflow, []ect.ID{root.ID}
		if _, err := e.admit(e.call(addBody, e.sign(e.caller, claims))); !is[*policy.Forbidden](err) {
			t.Errorf("who may decide, open %t: %v", open, err)
		}
	}
}

// TestAdmit_RepetitionRefused: what a repetition is refused for; none changes what is on
// record.
func TestAdmit_RepetitionRefused(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		edit func(*answered)
		is   func(error) bool
	}{
		"not answered yet": {func(*answered) {}, is[*problem.InProgressError]},
		"refused the first time": {func(a *answered) {
			a.reply = idempotency.Reply{Problem: &problem.Problem{Status: 403, Code: "forbidden"}}
			a.keep()
		}, func(err error) bool {
			stored, ok := errors.AsType[*problem.StoredError](err)
			return ok && stored.Problem.Code == "forbidden"
		}},
		"unreadable": {func(a *answered) {
			a.memory.Finish(a.t.Context(), a.key, []byte("\xff"), a.now.Add(1e12))
		}, func(err error) bool { return err != nil && !is[*problem.InProgressError](err) }},
		"its token is gone": {func(a *answered) {
			a.reply.Evidence = []ect.ID{ect.NewID()}
			a.keep()
		}, is[*problem.RecordingError]},
		"another message was answered": {func(a *answered) {
			a.reply.Wire.Body = []byte("{}")
			a.keep()
		}, func(err error) bool { return errors.Is(err, transport.ErrUnsealed) }},
		"its caller may not call any more": {func(a *answered) {
			a.keep()
			a.list("calculator", policy.Rules{})
		}, is[*policy.Forbidden]},
		"its operation is not allowed any more": {func(a *answered) {
			a.keep()
			a.list("calculator", policy.Rules{Callers: []string{string(a.caller.ID) + "#task.get"}})
		}, is[*policy.Forbidden]},
		"for another agent": {func(a *answered) {
			a.keep()
			a.list("other", policy.Rules{Open: true})
			a.call.Agent = "other"
		}, is[*ect.InvalidError]},
	} {
		a := newAnswered(t)
		c.edit(a)
		got, err := a.admit(a.call)
		if !c.is(err) || len(got.Answer.Wire().Body) > 0 || len(got.Answer.Evidence) > 0 || got.Message != nil || len(got.Used) > 0 {
			t.Errorf("%s: %T %v, answered %q", name, err, err, got.Answer.Wire().Body)
		}
	}
}

// TestAdmit_UnreadableRepetition: what could not be read gets its refusal again.
func TestAdmit_UnreadableRepetition(t *testing.T) {
	t.Parallel()
	a := newAnswered(t)
	a.call = a.env.call("{", a.sign(a.caller, a.claims("{")))
	first, err := a.admit(a.call)
	if err == nil || len(first.Used) != 1 {
		t.Fatalf("%v, used %d", err, len(first.Used))
	}
	v := first.Used[0]
	a.key, a.reply = ect.ReplayKey{Issuer: v.Issuer(), Workflow: v.Workflow(), ID: v.ID()}, idempotency.Reply{Problem: &problem.Problem{Code: "malformed_message"}}
	a.keep()
	if _, err := a.admit(a.call); !is[*problem.StoredError](err) {
		t.Errorf("%T %v", err, err)
	}
}

// TestAdmit_ForeignTokens: a caller that brings the tokens of others beside its own neither
// uses them up nor gets what was answered to them, unless it is a listed gateway.
func TestAdmit_ForeignTokens(t *testing.T) {
	t.Parallel()
	a := newAnswered(t)
	a.keep()
	foreign := a.call.Evidence[0]
	second := a.sign(a.caller, a.claims(addBody)) // not used yet
	carried := func(by *ecttest.Party, token string) transport.Call {
		own := a.claims(addBody)
		call := a.env.call(addBody, a.sign(by, own), token)
		call.Caller.Peer = by.Peer()
		return call
	}
	got, err := a.admit(carried(a.outsider, foreign))
	if err != nil || got.Repeated || len(got.Used) != 1 || got.Used[0].Issuer() != a.outsider.ID {
		t.Errorf("beside its own: repeated %t, used %d, %v", got.Repeated, len(got.Used), err)
	}
	if _, err := a.admit(carried(a.outsider, second)); err != nil || a.usedUp(second) {
		t.Errorf("a token of another is used up by who brings it: %v", err)
	}
	alone := a.env.call(addBody, foreign)
	alone.Caller.Peer = a.outsider.Peer()
	if got, err := a.admit(alone); err == nil || got.Repeated {
		t.Errorf("alone: repeated %t, %v", got.Repeated, err)
	}
	a.rules.Gateways = []ect.Identity{a.peer.ID}
	alone.Caller.Peer = a.peer.Peer()
	if got, err := a.admit(alone); err != nil || !got.Repeated || string(got.Answer.Wire().Body) != answerBody {
		t.Errorf("by a listed gateway: repeated %t, %v", got.Repeated, err)
	}
	third := a.sign(a.caller, a.claims(addBody))
	if got, err := a.admit(carried(a.peer, third)); err != nil || len(got.Used) != 2 || !a.usedUp(third) {
		t.Errorf("new ones by a listed gateway: used %d, %v", len(got.Used), err)
	}
}

// TestAdmit_UsedBeforeARefusal: of several tokens the first is used up when the second is
// refused: the refusal is kept for its repetition. What is answered again is kept already.
func TestAdmit_UsedBeforeARefusal(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		body string // of which the second token is
		used int
		is   func(error) bool
	}{
		"refused":        {goOnBody, 1, is[*ect.InvalidError]},
		"answered again": {addBody, 0, func(err error) bool { return err == nil }},
	} {
		a := newAnswered(t)
		a.keep()
		fresh, second := a.claims(c.body), a.call.Evidence[0]
		if c.body != addBody {
			other := a.claims(c.body)
			other.ID, other.Workflow = a.key.ID, a.key.Workflow
			second = a.sign(a.caller, other)
		}
		call := a.env.call(c.body, a.sign(a.caller, fresh), second)
		got, err := a.admit(call)
		if !c.is(err) || got.Repeated != (err == nil) || len(got.Used) != c.used || !a.usedUp(call.Evidence[0]) || got.LeavesEvidence {
			t.Errorf("%s: %T %v, and for its repetition are kept %d", name, err, err, len(got.Used))
		}
	}
}

// TestAnswerAgain_Forms: an answer is given again if one of its tokens covers it, in the form
// in which it was given.
func TestAnswerAgain_Forms(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	covers := e.sign(e.self, e.claims(answerBody))
	for name, c := range map[string]struct {
		wire   translators.Wire
		tokens []string
		ok     bool
	}{
		"covered":           {translators.Wire{Binding: a2a.Binding, Body: []byte(answerBody)}, []string{covers}, true},
		"not covered":       {translators.Wire{Binding: a2a.Binding, Body: []byte("{}")}, []string{covers}, false},
		"without tokens":    {translators.Wire{Binding: a2a.Binding, Body: []byte(answerBody)}, nil, false},
		"a rollback's form": {translators.Wire{Binding: a2a.Binding, Form: rollback.Name, Body: []byte(answerBody)}, []string{covers}, true},
		"without a body":    {translators.Wire{Binding: a2a.Binding}, nil, true},
	} {
		answer, err := e.AnswerAgain(c.wire, c.tokens)
		if c.ok != (err == nil) || err != nil && !errors.Is(err, transport.ErrUnsealed) || c.ok && !slices.Equal(answer.Evidence, c.tokens) {
			t.Errorf("%s: %v, with %q", name, err, answer.Evidence)
		}
	}
}
