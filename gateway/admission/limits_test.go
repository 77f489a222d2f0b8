package admission_test

import (
	"errors"
	"slices"
	"testing"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/ect/identity"
	"github.com/aepb/aepb-gateway/gateway/admission"
	"github.com/aepb/aepb-gateway/gateway/problem"
	"github.com/aepb/aepb-gateway/gateway/transport"
	"github.com/aepb/aepb-gateway/policy/limit"
	"github.com/aepb/aepb-gateway/translators"
	"github.com/aepb/aepb-gateway/translators/a2a"
	"github.com/aepb/aepb-gateway/translators/canonical"
)

const address = "192.0.2.1"

// limited are limits of two requests for each source, and what was counted.
type limited struct {
	*admission.Limits

	e      *env
	scopes []limit.Scope
}

func newLimited(t *testing.T) *limited {
	t.Helper()
	e := newEnv(t)
	limiter, err := limit.New(limit.Config{Rate: 1e-3, Burst: 2}, limit.Deps{})
	e.must(err)
	l := &limited{e: e}
	l.Limits = admission.NewLimits(limiter, func(s limit.Scope) { l.scopes = append(l.scopes, s) }, e.deps.Attest)
	return l
}

// results are those of asking four times: whether each may pass.
func results(ask func() error) (passed []bool) {
	for range 4 {
		passed = append(passed, !is[*limit.ExceededError](ask()))
	}
	return passed
}

// TestLimits_BySource: each source has its own share: an identity wherever it comes from, and
// an address for all who have none.
func TestLimits_BySource(t *testing.T) {
	t.Parallel()
	l, ctx := newLimited(t), t.Context()
	known := identity.Caller{Peer: ect.Peer{ID: l.e.caller.ID}}
	limit2 := []bool{true, true, false, false}
	ask := func(caller identity.Caller, address string) func() error {
		return func() error {
			_, err := l.Limit(ctx, transport.CallInfo{Caller: caller, Address: address})
			return err
		}
	}
	if got := results(ask(known, address)); !slices.Equal(got, limit2) {
		t.Errorf("a known caller: %v", got)
	}
	if err := ask(known, "192.0.2.2")(); !is[*limit.ExceededError](err) {
		t.Errorf("from another address: %v", err)
	}
	if got := results(ask(identity.Anonymous("example.com"), address)); !slices.Equal(got, limit2) {
		t.Errorf("anonymous: %v", got)
	}
	if err := ask(identity.Anonymous("example.com"), "192.0.2.2")(); err != nil {
		t.Errorf("anonymous, from another address: %v", err)
	}
	want := []limit.Scope{limit.ScopeIdentity, limit.ScopeIdentity, limit.ScopeIdentity, limit.ScopeAddress, limit.ScopeAddress}
	if !slices.Equal(l.scopes, want) {
		t.Errorf("counted %v, expected %v", l.scopes, want)
	}
}

// TestLimits_Strangers: a caller without credentials is refused for that, until its address has
// no requests left; one whose credential was judged before is not charged again.
func TestLimits_Strangers(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		refusal error
		passed  []bool
	}{
		"no credentials":        {&problem.UnauthenticatedError{}, []bool{true, true, false, false}},
		"credential was judged": {&problem.IdentityError{}, []bool{true, true, true, true}},
		"it was judged before":  {errors.Join(&problem.UnauthenticatedError{}), []bool{true, true, true, true}},
	} {
		l := newLimited(t)
		ctx := transport.WithoutCaller(t.Context(), c.refusal, address)
		got := results(func() error {
			_, err := l.Limit(ctx, transport.CallInfo{Address: address})
			if err == nil || !is[*limit.ExceededError](err) && !errors.Is(err, c.refusal) {
				t.Errorf("%s: %v", name, err)
			}
			return err
		})
		if !slices.Equal(got, c.passed) {
			t.Errorf("%s: %v, expected %v", name, got, c.passed)
		}
	}
}

// TestLimits_Authentication: to ask whether credentials may be judged takes nothing; that they
// were refused takes from the share of the identity that the connection has proved, else of
// the address.
func TestLimits_Authentication(t *testing.T) {
	t.Parallel()
	l, ctx := newLimited(t), t.Context()
	may := func() error { return l.MayAuthenticate(ctx, address) }
	if got := results(may); !slices.Equal(got, []bool{true, true, true, true}) {
		t.Errorf("before any failure: %v", got)
	}
	if got := results(func() error { return l.FailedAuthentication(ctx, l.e.caller.ID, address) }); !slices.Equal(got, []bool{true, true, false, false}) {
		t.Errorf("failures of an identity: %v", got)
	}
	if err := may(); err != nil {
		t.Errorf("after failures of an identity: %v", err)
	}
	if got := results(func() error { return l.FailedAuthentication(ctx, "", address) }); !slices.Equal(got, []bool{true, true, false, false}) {
		t.Errorf("failures of an address: %v", got)
	}
	if err := may(); !is[*limit.ExceededError](err) {
		t.Errorf("after failures of the address: %v", err)
	}
	if err := l.MayAuthenticate(ctx, "192.0.2.2"); err != nil {
		t.Errorf("of another address: %v", err)
	}
}

// framer reads what travels in brackets.
type framer struct{ transport.Dialer }

var errFrame = errors.New("no brackets")

func (framer) Frame(w translators.Wire) (translators.Wire, []canonical.Loss, error) {
	return w, nil, nil
}

func (framer) Unframe(w translators.Wire) (translators.Wire, error) {
	if len(w.Body) < 2 || w.Body[0] != '[' {
		return w, errFrame
	}
	w.Body, w.Losses = w.Body[1:len(w.Body)-1], []canonical.Loss{{Path: "/frame"}}
	return w, nil
}

// TestRead_Framed: what travels in frames is read without them, and what only the frame said
// is lost.
func TestRead_Framed(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	form, _ := e.deps.Registry.Translator(a2a.Binding)
	read := func(body string) (*canonical.Message, error) {
		return e.Read(form, translators.Wire{Binding: a2a.Binding, Media: "application/json", Body: []byte(body)})
	}
	if m, err := read(addBody); err != nil || slices.ContainsFunc(m.Losses, func(l canonical.Loss) bool { return l.Path == "/frame" }) {
		t.Errorf("without frames: %v", err)
	}
	e.deps.Network.Agents = map[canonical.Binding]transport.Dialer{a2a.Binding: framer{}}
	if m, err := read("[" + addBody + "]"); err != nil || !slices.ContainsFunc(m.Losses, func(l canonical.Loss) bool { return l.Path == "/frame" }) {
		t.Errorf("framed: %v", err)
	}
	if _, err := read(addBody); !errors.Is(err, errFrame) {
		t.Errorf("not framed: %v", err)
	}
}
