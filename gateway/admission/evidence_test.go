package admission_test

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/ect/dag"
	"github.com/aepb/aepb-gateway/ect/ecttest"
	"github.com/aepb/aepb-gateway/ect/identity"
	"github.com/aepb/aepb-gateway/gateway/admission"
	"github.com/aepb/aepb-gateway/gateway/problem"
	"github.com/aepb/aepb-gateway/gateway/transport"
	"github.com/aepb/aepb-gateway/policy"
	"github.com/aepb/aepb-gateway/translators"
	"github.com/aepb/aepb-gateway/translators/a2a"
	"github.com/aepb/aepb-gateway/translators/canonical"
	"github.com/aepb/aepb-gateway/translators/embedded"
)

// verified is a token of a party as it was verified.
func (e *env) verified(by *ecttest.Party, c ect.Claims) ect.Verified {
	e.t.Helper()
	v, err := e.deps.Verifier.Verify(e.t.Context(), e.sign(by, c), ect.Check{Purpose: ect.Parent})
	e.must(err)
	return v
}

// TestOrigins_OfWorkflow: a message came of those sources that are in the workflow of the
// newest one of its caller.
func TestOrigins_OfWorkflow(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	token := func(by *ecttest.Party, workflow string, age int64) ect.Verified {
		c := e.claims("")
		c.Workflow, c.IssuedAt = workflow, c.IssuedAt-age
		return e.verified(by, c)
	}
	one, two := string(ect.NewID()), string(ect.NewID())
	old, recent, also, foreign := token(e.caller, one, 20), token(e.caller, two, 10), token(e.caller, two, 15), token(e.outsider, one, 0)
	record := ect.Record{ID: ect.NewID(), Workflow: one}
	for name, c := range map[string]struct {
		evidence admission.Evidence
		workflow string
		ids      []ect.ID
	}{
		"nothing":              {admission.Evidence{}, "", nil},
		"named":                {admission.Evidence{Named: &record}, one, []ect.ID{record.ID}},
		"one":                  {admission.Evidence{Caller: e.caller.ID, Sources: []ect.Verified{old}}, one, []ect.ID{old.ID()}},
		"the newest counts":    {admission.Evidence{Caller: e.caller.ID, Sources: []ect.Verified{old, recent, also}}, two, []ect.ID{recent.ID(), also.ID()}},
		"not that of others":   {admission.Evidence{Caller: e.caller.ID, Sources: []ect.Verified{foreign, recent}}, two, []ect.ID{recent.ID()}},
		"in the other order":   {admission.Evidence{Caller: e.caller.ID, Sources: []ect.Verified{recent, foreign}}, two, []ect.ID{recent.ID()}},
		"of others in it, too": {admission.Evidence{Caller: e.caller.ID, Sources: []ect.Verified{foreign, old}}, one, []ect.ID{foreign.ID(), old.ID()}},
		"only of others":       {admission.Evidence{Caller: e.peer.ID, Sources: []ect.Verified{foreign, recent}}, one, []ect.ID{foreign.ID()}},
		"parents are no part":  {admission.Evidence{Caller: e.caller.ID, Sources: []ect.Verified{old}, Parents: []ect.Verified{recent}}, one, []ect.ID{old.ID()}},
	} {
		if workflow, ids := c.evidence.Origins(); workflow != c.workflow || !slices.Equal(ids, c.ids) {
			t.Errorf("%s: %v in %s, expected %v in %s", name, ids, workflow, c.ids, c.workflow)
		}
	}
}

// TestForeign_Workflow: only evidence in a workflow to which the caller belongs stays in it.
func TestForeign_Workflow(t *testing.T) {
	t.Parallel()
	permit, err := policy.Evaluate(policy.Request{Caller: "spiffe://example.com/client", Native: true, Rules: policy.Rules{Open: true}, Self: "spiffe://example.com/gateway"})
	if err != nil {
		t.Fatal(err)
	}
	named := admission.Evidence{Named: &ect.Record{ID: ect.NewID()}}
	for name, c := range map[string]struct {
		admitted admission.Admitted
		want     bool
	}{
		"refused":                  {admission.Admitted{Evidence: named}, true},
		"refused, recorded":        {admission.Admitted{Evidence: named, Recorded: true}, true},
		"permitted, not recorded":  {admission.Admitted{Evidence: named, Permit: permit}, true},
		"permitted and recorded":   {admission.Admitted{Evidence: named, Permit: permit, Recorded: true}, false},
		"a member's, refused":      {admission.Admitted{Evidence: named, Membership: true}, false},
		"of no workflow, refused":  {admission.Admitted{}, false},
		"of no workflow, recorded": {admission.Admitted{Recorded: true}, false},
	} {
		if got := c.admitted.Foreign(); got != c.want {
			t.Errorf("%s: %t", name, got)
		}
	}
}

// TestAncestors_Fit: sources travel along first, then what is on the path or made of it, as
// many as fit; the size is that of all.
func TestAncestors_Fit(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	token := func(bytes int) ect.Verified {
		c := e.claims("")
		c.Ext = ect.Ext{"note": []byte(`"` + strings.Repeat("x", bytes) + `"`)}
		return e.verified(e.caller, c)
	}
	source, onPath, made, beside, large := token(0), token(0), token(0), token(0), token(2500)
	path := dag.Path{Nodes: []dag.Node{{ID: onPath.ID(), Parents: []ect.ID{made.ID()}}}}
	length := func(list ...ect.Verified) (n int) {
		for _, v := range list {
			n += len(v.Compact())
		}
		return n
	}
	for name, c := range map[string]struct {
		evidence admission.Evidence
		want     []ect.Verified
		size     int
	}{
		"nothing":            {admission.Evidence{}, nil, 0},
		"on the path":        {admission.Evidence{Sources: []ect.Verified{source}, Parents: []ect.Verified{made, beside, onPath}, Path: path}, []ect.Verified{source, made, onPath}, length(source, made, onPath)},
		"sources need none":  {admission.Evidence{Sources: []ect.Verified{source, beside}}, []ect.Verified{source, beside}, length(source, beside)},
		"too large is left":  {admission.Evidence{Sources: []ect.Verified{large, large, source}}, []ect.Verified{large, source}, length(large, large, source)},
		"parents after that": {admission.Evidence{Sources: []ect.Verified{large, large}, Parents: []ect.Verified{made}, Path: path}, []ect.Verified{large, made}, length(large, large, made)},
	} {
		along, size := c.evidence.Ancestors()
		var want []string
		for _, v := range c.want {
			want = append(want, v.Compact())
		}
		if !slices.Equal(along, want) || size != c.size {
			t.Errorf("%s: %d tokens of %d bytes, expected %d of %d", name, len(along), size, len(want), c.size)
		}
		if total := len(strings.Join(along, "")); total > admission.MaxAncestors {
			t.Errorf("%s: %d bytes travel along", name, total)
		}
	}
}

// TestAdmit_NamedParent: a message without a token goes on with one on record which its
// caller made, or which was made for it, in a workflow to which it belongs; any other is
// not found, whether there is one or not.
func TestAdmit_NamedParent(t *testing.T) {
	t.Parallel()
	unknown := func(err error) bool {
		invalid, ok := errors.AsType[*ect.InvalidError](err)
		return ok && invalid.Reason == ect.ReasonUnknownParent
	}
	for name, c := range map[string]struct {
		edit func(*env, *transport.Call)
		is   func(error) bool
	}{
		"of its own": {func(e *env, c *transport.Call) { c.Parent = string(e.workflowOf(e.caller).ID) }, nil},
		"made for it": {func(e *env, c *transport.Call) {
			root := e.workflowOf(e.agent, e.caller.ID)
			root.ID, root.Compact, root.Audience = ect.NewID(), "h.p.s", []string{string(e.caller.ID)}
			root.Parents = []ect.ID{ect.NewID()}
			e.must(e.store.Put(e.t.Context(), root))
			c.Parent = string(root.ID)
		}, nil},
		"of no workflow": {func(e *env, c *transport.Call) {
			r := ect.Record{ID: ect.NewID(), Compact: "h.p.s", Issuer: e.caller.ID, Until: e.now.Add(1e12)}
			e.must(e.store.Put(e.t.Context(), r))
			c.Parent = string(r.ID)
		}, nil},
		"of another": {func(e *env, c *transport.Call) { c.Parent = string(e.workflowOf(e.agent).ID) }, unknown},
		"of another, in a workflow of its caller": {func(e *env, c *transport.Call) {
			c.Parent = string(e.workflowOf(e.agent, e.caller.ID).ID)
		}, unknown},
		"of its own, in a workflow of others": {func(e *env, c *transport.Call) {
			root := e.workflowOf(e.agent)
			root.ID, root.Compact, root.Issuer, root.Parents = ect.NewID(), "h.p.s", e.caller.ID, []ect.ID{root.ID}
			e.must(e.store.Put(e.t.Context(), root))
			c.Parent = string(root.ID)
		}, unknown},
		"anonymous": {func(e *env, c *transport.Call) {
			c.Caller = identity.Anonymous("example.com")
			r := ect.Record{ID: ect.NewID(), Compact: "h.p.s", Issuer: c.Caller.ID, Until: e.now.Add(1e12)}
			e.must(e.store.Put(e.t.Context(), r))
			c.Parent = string(r.ID)
		}, unknown},
		"not there": {func(_ *env, c *transport.Call) { c.Parent = string(ect.NewID()) }, unknown},
		"no id":     {func(_ *env, c *transport.Call) { c.Parent = "7" }, is[*ect.MalformedError]},
		"evidence away": {func(e *env, c *transport.Call) {
			c.Parent, e.store.get = string(ect.NewID()), errors.New("away")
		}, is[*problem.RecordingError]},
		"standing away": {func(e *env, c *transport.Call) {
			c.Parent, e.store.standing = string(e.workflowOf(e.caller).ID), errors.New("away")
		}, is[*problem.RecordingError]},
	} {
		e := newEnv(t)
		call := e.call(addBody)
		c.edit(e, &call)
		got, err := e.admit(call)
		if (c.is == nil) != (err == nil) || c.is != nil && !c.is(err) {
			t.Errorf("%s: %T %v", name, err, err)
		}
		if _, ids := got.Evidence.Origins(); (len(ids) == 1 && string(ids[0]) == call.Parent) != (err == nil) {
			t.Errorf("%s: it came of %v", name, ids)
		}
	}
}

// TestAdmit_ParentBesideToken: the name beside a token is its own or of a parent.
func TestAdmit_ParentBesideToken(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		parent func(root ect.Record, own, along ect.Claims) string
		is     func(error) bool
	}{
		"nothing":      {func(ect.Record, ect.Claims, ect.Claims) string { return "" }, nil},
		"its own":      {func(_ ect.Record, own, _ ect.Claims) string { return string(own.ID) }, nil},
		"a parent":     {func(_ ect.Record, _, along ect.Claims) string { return string(along.ID) }, nil},
		"a parent's":   {func(root ect.Record, _, _ ect.Claims) string { return string(root.ID) }, nil},
		"another":      {func(ect.Record, ect.Claims, ect.Claims) string { return string(ect.NewID()) }, is[*ect.InvalidError]},
		"is no id":     {func(ect.Record, ect.Claims, ect.Claims) string { return "7" }, is[*ect.MalformedError]},
		"another case": {func(_ ect.Record, own, _ ect.Claims) string { return strings.ToUpper(string(own.ID)) }, func(err error) bool { return err != nil }},
	} {
		e := newEnv(t)
		root, along, own := e.workflowOf(e.caller), e.claims(addBody), e.claims(addBody)
		along.Workflow, along.Parents = root.Workflow, []ect.ID{root.ID}
		own.Workflow, own.Parents = root.Workflow, []ect.ID{along.ID}
		call := e.call(addBody, e.sign(e.caller, along), e.sign(e.caller, own))
		call.Parent = c.parent(root, own, along)
		got, err := e.admit(call)
		if (c.is == nil) != (err == nil) || c.is != nil && !c.is(err) {
			t.Errorf("%s: %T %v", name, err, err)
		}
		if err == nil && (len(got.Evidence.Sources) != 1 || len(got.Evidence.Parents) != 1 || len(got.Used) != 1 || e.usedUp(call.Evidence[0])) {
			t.Errorf("%s: %d sources, %d parents, %d used up", name, len(got.Evidence.Sources), len(got.Evidence.Parents), len(got.Used))
		}
	}
}

// TestAdmit_Path: the path is found among the tokens that came along and those on record.
func TestAdmit_Path(t *testing.T) {
	t.Parallel()
	for _, ancestry := range []bool{false, true} {
		for _, along := range []bool{false, true} {
			e := newEnv(t)
			e.rules.Gateways = []ect.Identity{e.peer.ID}
			if ancestry {
				e.rules.Constraints.HopScope = policy.ScopeAncestry
			}
			begun, translated := e.claims("begun"), e.claims(addBody)
			root := ect.Record{ID: begun.ID, Workflow: begun.Workflow, Compact: e.sign(e.caller, begun)}
			if !along {
				root = e.workflowOf(e.caller, e.peer.ID)
			}
			translated.Workflow, translated.Parents, translated.Act = root.Workflow, []ect.ID{root.ID}, ect.ActTranslate
			call := e.call(addBody, e.sign(e.peer, translated))
			call.Caller.Peer = e.peer.Peer()
			if along {
				call.Evidence = append(call.Evidence, root.Compact)
			}
			got, err := e.admit(call)
			if err != nil || got.Evidence.Path.Hops() != 1 || got.Evidence.Path.Incomplete || (got.Evidence.Ancestry.Hops() == 1) != ancestry {
				t.Errorf("along %t, ancestry %t: %v, hops %d and %d", along, ancestry, err, got.Evidence.Path.Hops(), got.Evidence.Ancestry.Hops())
			}
		}
	}
}

// TestAdmit_PathAway: while evidence is away, nothing that depends on it is let in.
func TestAdmit_PathAway(t *testing.T) {
	t.Parallel()
	for _, scope := range []policy.HopScope{policy.ScopePath, policy.ScopeAncestry} {
		e := newEnv(t)
		e.rules.Constraints.HopScope = scope
		root := e.workflowOf(e.caller)
		claims := e.claims(addBody)
		claims.Workflow, claims.Parents, claims.Act = root.Workflow, []ect.ID{root.ID}, ect.ActTranslate
		e.store.getAfter = 1 // membership is known
		if _, err := e.admit(e.call(addBody, e.sign(e.caller, claims))); err == nil {
			t.Errorf("%s: it is let in", scope)
		}
	}
}

// TestAdmit_TokensInBody: those of a peer that has them there are taken out before the
// message is hashed.
func TestAdmit_TokensInBody(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	e.rules.ECTInBody = map[ect.Identity]bool{e.caller.ID: true}
	token := e.sign(e.caller, e.claims(addBody))
	form := a2a.New(translators.Config{})
	wire, ok := embedded.Insert(form, e.call(addBody).Wire, []string{token})
	if !ok {
		t.Fatal("the message has no place for a token")
	}
	call := e.call(string(wire.Body))
	call.Message = &canonical.Message{Op: canonical.OpTaskGet} // of other bytes
	got, err := e.admit(call)
	if err != nil || len(got.Evidence.Sources) != 1 || string(got.Call.Wire.Body) != addBody || got.Input != ect.Hash([]byte(addBody)) || got.Message.Op != canonical.OpInvoke {
		t.Errorf("%v: %d tokens beside %s", err, len(got.Evidence.Sources), got.Call.Wire.Body)
	}
	call.Evidence = []string{e.sign(e.caller, e.claims(addBody))}
	if _, err := e.admit(call); !is[*ect.MalformedError](err) {
		t.Errorf("with others in the header: %T %v", err, err)
	}
}
