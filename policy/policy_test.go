package policy_test

import (
	"errors"
	"reflect"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/ect/dag"
	"github.com/aepb/aepb-gateway/policy"
)

// allowed is a request that passes every question.
func allowed(evidence ...ect.Verified) policy.Request {
	return policy.Request{
		Caller: alice, Agent: "echo", Operation: "invoke", Source: "a2a-v1", Dest: "mcp-v1", Self: self,
		Rules: policy.Rules{Callers: []string{string(alice)}}, Gateways: []ect.Identity{peer}, Evidence: evidence,
	}
}

// via is a path over these gateways, newest first.
func via(issuers ...ect.Identity) dag.Path {
	var p dag.Path
	for _, id := range issuers {
		p.Nodes = append(p.Nodes, dag.Node{ID: ect.NewID(), Issuer: id, Act: ect.ActTranslate, Leg: dag.Request})
	}
	return p
}

// outcome puts the answer of Evaluate in one word.
func outcome(t *testing.T, r policy.Request) string {
	t.Helper()
	permit, err := policy.Evaluate(r)
	if permit.Valid() != (err == nil) {
		t.Errorf("permit valid: %v, error: %v", permit.Valid(), err)
	}
	var forbidden *policy.Forbidden
	var denied *policy.Denied
	var invalid *ect.InvalidError
	switch {
	case err == nil:
		return "permit"
	case errors.As(err, &forbidden):
		return "forbidden " + string(forbidden.Constraint)
	case errors.As(err, &denied):
		return "denied " + string(denied.Constraint)
	case errors.As(err, &invalid):
		return "invalid " + string(invalid.Reason)
	case errors.Is(err, ect.ErrRequired):
		return "required"
	default:
		return err.Error()
	}
}

func TestEvaluate_Callers(t *testing.T) {
	t.Parallel()
	native := func(r *policy.Request) { r.Native, r.Evidence = true, nil }
	for name, tc := range map[string]struct {
		change func(*policy.Request)
		want   string
	}{
		"listed":                 {func(*policy.Request) {}, "permit"},
		"nobody is listed":       {func(r *policy.Request) { r.Rules.Callers = nil }, "forbidden callers"},
		"somebody else":          {func(r *policy.Request) { r.Rules.Callers = []string{string(bob)} }, "forbidden callers"},
		"path prefix":            {func(r *policy.Request) { r.Rules.Callers = []string{"spiffe://a.test/agents/*"} }, "permit"},
		"whole trust domain":     {func(r *policy.Request) { r.Rules.Callers = []string{"spiffe://a.test/*"} }, "permit"},
		"other trust domain":     {func(r *policy.Request) { r.Rules.Callers = []string{"spiffe://a.tes/*"} }, "forbidden callers"},
		"prefix needs a slash":   {func(r *policy.Request) { r.Rules.Callers = []string{"spiffe://a.test/agents/ali*"} }, "forbidden callers"},
		"prefix is not the path": {func(r *policy.Request) { r.Rules.Callers = []string{string(alice) + "/*"} }, "forbidden callers"},
		"bare star":              {func(r *policy.Request) { r.Rules.Callers = []string{"*"} }, "forbidden callers"},
		"star for the domain":    {func(r *policy.Request) { r.Rules.Callers = []string{"spiffe://*"} }, "forbidden callers"},
		"operation allowed":      {func(r *policy.Request) { r.Rules.Callers = []string{string(alice) + "#invoke"} }, "permit"},
		"other operation":        {func(r *policy.Request) { r.Rules.Callers = []string{string(alice) + "#describe"} }, "forbidden operation"},
		"one of two operations": {func(r *policy.Request) {
			r.Rules.Callers = []string{string(alice) + "#describe", string(alice) + "#invoke"}
		}, "permit"},
		"operation not known yet": {func(r *policy.Request) {
			r.Rules.Callers, r.Operation = []string{string(alice) + "#invoke"}, ""
		}, "permit"},
		"open":                   {func(r *policy.Request) { r.Rules = policy.Rules{Open: true} }, "permit"},
		"open, but no caller":    {func(r *policy.Request) { r.Rules, r.Caller = policy.Rules{Open: true}, "" }, "forbidden callers"},
		"case matters":           {func(r *policy.Request) { r.Rules.Callers = []string{"spiffe://A.test/agents/alice"} }, "forbidden callers"},
		"anonymous, open":        {func(r *policy.Request) { native(r); r.Anonymous, r.Rules.Open = true, true }, "permit"},
		"anonymous, closed":      {func(r *policy.Request) { native(r); r.Anonymous = true }, "forbidden callers"},
		"anonymous at translate": {func(r *policy.Request) { r.Anonymous, r.Rules.Open = true, true }, "forbidden callers"},
		"forbidden comes before all else": {func(r *policy.Request) {
			r.Rules.Callers, r.Evidence, r.Path = nil, nil, dag.Path{Incomplete: true}
		}, "forbidden callers"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := allowed(newWorld(t).token(t, alice, "ask", 0))
			tc.change(&r)
			if got := outcome(t, r); got != tc.want {
				t.Errorf("got %q, want %q", got, tc.want)
			}
		})
	}
}

// A rule for a trust domain does not mean those who showed no credentials.
func TestCallers_PrefixExcludesAnonymous(t *testing.T) {
	t.Parallel()
	rules := policy.Rules{Callers: []string{"spiffe://gw.test/*"}}
	if err := policy.Admit("spiffe://gw.test/anonymous", rules); err == nil {
		t.Error("a prefix admitted the anonymous identity")
	}
	if err := policy.Admit("spiffe://gw.test/other", rules); err != nil {
		t.Errorf("a member of the domain: %v", err)
	}
	if err := policy.Admit("spiffe://gw.test/", rules); err == nil {
		t.Error("a prefix admitted itself")
	}
	if err := policy.Admit("", policy.Rules{Open: true}); err == nil {
		t.Error("no identity at all was admitted")
	}
}

func TestRules_Validate(t *testing.T) {
	t.Parallel()
	good := policy.Rules{Callers: []string{string(alice), "spiffe://a.test/*", "spiffe://a.test/x/*#invoke"}}
	if err := good.Validate(); err != nil {
		t.Error(err)
	}
	for _, bad := range []string{
		"", "*", "alice", "spiffe://", "spiffe://a.test", "spiffe://*", "spiffe:///x", "spiffe://a.test/x*",
		"spiffe://a.test/*/x", "spiffe://a.test/x#", "https://a.test/x", "spiffe://a.test/%2e%2e/x",
	} {
		if (policy.Rules{Callers: []string{bad}}).Validate() == nil {
			t.Errorf("accepted %q", bad)
		}
	}
}

func TestEvaluate_Evidence(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	own, late := w.token(t, alice, "ask", 0), w.token(t, alice, "ask", 5)
	foreign, foreignLate := w.token(t, bob, "ask", 0), w.token(t, bob, "ask", 5)
	for name, tc := range map[string]struct {
		evidence []ect.Verified
		change   func(*policy.Request)
		want     string
	}{
		"translate without":          {nil, func(*policy.Request) {}, "required"},
		"native without":             {nil, func(r *policy.Request) { r.Native = true }, "permit"},
		"native without, required":   {nil, func(r *policy.Request) { r.Native, r.Rules.RequireECT = true, true }, "required"},
		"native with":                {[]ect.Verified{own}, func(r *policy.Request) { r.Native, r.Rules.RequireECT = true, true }, "permit"},
		"stolen":                     {[]ect.Verified{foreign}, func(*policy.Request) {}, "invalid issuer_mismatch"},
		"stolen, native":             {[]ect.Verified{foreign}, func(r *policy.Request) { r.Native = true }, "invalid issuer_mismatch"},
		"stolen and newer":           {[]ect.Verified{own, foreignLate}, func(*policy.Request) {}, "invalid issuer_mismatch"},
		"own is newest":              {[]ect.Verified{foreign, late}, func(*policy.Request) {}, "permit"},
		"own is newest, first":       {[]ect.Verified{late, foreign}, func(*policy.Request) {}, "permit"},
		"same second":                {[]ect.Verified{own, foreign}, func(*policy.Request) {}, "permit"},
		"same second, other order":   {[]ect.Verified{foreign, own}, func(*policy.Request) {}, "permit"},
		"peer gateway carries":       {[]ect.Verified{foreign}, func(r *policy.Request) { asPeer(r, peer) }, "permit"},
		"peer gateway by prefix":     {[]ect.Verified{foreign}, func(r *policy.Request) { asPeer(r, "spiffe://gw.test/peers/*") }, "permit"},
		"not a peer gateway":         {[]ect.Verified{foreign}, func(r *policy.Request) { asPeer(r, "spiffe://gw.test/others/*") }, "invalid issuer_mismatch"},
		"stolen, newer and first":    {[]ect.Verified{foreignLate, own}, func(*policy.Request) {}, "invalid issuer_mismatch"},
		"nameless in a peer's name":  {[]ect.Verified{foreign}, func(r *policy.Request) { asPeer(r, peer); r.Native, r.Anonymous, r.Rules.Open = true, true, true }, "invalid issuer_mismatch"},
		"a peer for one operation":   {[]ect.Verified{foreign}, func(r *policy.Request) { asPeer(r, peer+"#invoke") }, "invalid issuer_mismatch"},
		"anonymous cannot own":       {[]ect.Verified{own}, func(r *policy.Request) { r.Native, r.Anonymous, r.Rules.Open = true, true, true }, "invalid issuer_mismatch"},
		"level 1 of something else":  {[]ect.Verified{w.unsigned(t, "ask")}, func(*policy.Request) {}, "permit"},
		"required before protocols":  {nil, func(r *policy.Request) { r.Constraints.RestrictDest = true }, "required"},
		"issuer before protocols":    {[]ect.Verified{foreign}, func(r *policy.Request) { r.Constraints.RestrictDest = true }, "invalid issuer_mismatch"},
		"protocols before hops":      {[]ect.Verified{own}, func(r *policy.Request) { r.Constraints.RestrictDest, r.Path = true, via(peer, peer, peer) }, "denied aepb.allowed_dest_protocols"},
		"hops before loop":           {[]ect.Verified{own}, func(r *policy.Request) { r.Path = via(self, peer, peer) }, "denied aepb.max_translation_hops"},
		"translate-only needs Open":  {[]ect.Verified{own}, func(r *policy.Request) { r.Agent, r.Rules = "", policy.Rules{} }, "forbidden callers"},
		"translate-only":             {[]ect.Verified{own}, func(r *policy.Request) { r.Agent, r.Rules = "", policy.Rules{Open: true} }, "permit"},
		"translate-only without ECT": {nil, func(r *policy.Request) { r.Agent, r.Rules = "", policy.Rules{Open: true} }, "required"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := allowed(tc.evidence...)
			tc.change(&r)
			if got := outcome(t, r); got != tc.want {
				t.Errorf("got %q, want %q", got, tc.want)
			}
		})
	}
}

// asPeer makes the call one of a gateway, with these peers known.
func asPeer(r *policy.Request, known ect.Identity) {
	r.Caller, r.Gateways = peer, []ect.Identity{known}
	r.Rules.Callers = []string{string(peer)}
}

// AEPB-35 and R1: our own translation counts.
func TestEvaluate_Hops(t *testing.T) {
	t.Parallel()
	evidence := newWorld(t).token(t, alice, "ask", 0)
	const g = peer
	for name, tc := range map[string]struct {
		path, ancestry dag.Path
		constraints    policy.Constraints
		want           string
	}{
		"first gateway":              {via(), via(), policy.Constraints{}, "permit"},
		"third of the default":       {via(g, g), via(), policy.Constraints{}, "permit"},
		"fourth of the default":      {via(g, g, g), via(), policy.Constraints{}, "denied aepb.max_translation_hops"},
		"limit 1, first":             {via(), via(), policy.Constraints{MaxHops: 1}, "permit"},
		"limit 1, second":            {via(g), via(), policy.Constraints{MaxHops: 1}, "denied aepb.max_translation_hops"},
		"limit 5, fifth":             {via(g, g, g, g), via(), policy.Constraints{MaxHops: 5}, "permit"},
		"limit 5, sixth":             {via(g, g, g, g, g), via(), policy.Constraints{MaxHops: 5}, "denied aepb.max_translation_hops"},
		"none at all":                {via(), via(), policy.Constraints{MaxHops: -1}, "denied aepb.max_translation_hops"},
		"loop":                       {via(g, self), via(), policy.Constraints{}, "denied loop"},
		"loop under a wide limit":    {via(g, self), via(), policy.Constraints{MaxHops: 100}, "denied loop"},
		"incomplete":                 {dag.Path{Incomplete: true}, via(), policy.Constraints{MaxHops: 100}, "denied lineage"},
		"ancestry is not asked":      {via(g), via(g, g, g, g, self), policy.Constraints{}, "permit"},
		"ancestry by the letter":     {via(g), via(g, g, g), policy.Constraints{HopScope: policy.ScopeAncestry}, "denied aepb.max_translation_hops"},
		"ancestry within":            {via(g), via(g, g), policy.Constraints{HopScope: policy.ScopeAncestry}, "permit"},
		"ancestry: our replies pass": {via(g), via(g, self), policy.Constraints{HopScope: policy.ScopeAncestry}, "permit"},
		"ancestry: loop on the path": {via(self), via(self), policy.Constraints{HopScope: policy.ScopeAncestry}, "denied loop"},
		"ancestry incomplete":        {via(g), dag.Path{Nodes: via(g).Nodes, Incomplete: true}, policy.Constraints{HopScope: policy.ScopeAncestry}, "denied lineage"},
		"ancestry not walked":        {via(g), via(), policy.Constraints{HopScope: policy.ScopeAncestry}, "denied lineage"},
		"unknown scope":              {via(), via(), policy.Constraints{HopScope: "none"}, "denied aepb.max_translation_hops"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := allowed(evidence)
			r.Path, r.Ancestry, r.Constraints = tc.path, tc.ancestry, tc.constraints
			if got := outcome(t, r); got != tc.want {
				t.Errorf("got %q, want %q", got, tc.want)
			}
		})
	}
}

// A gateway that does not know itself cannot see its own loops.
func TestEvaluate_SelfIsRequired(t *testing.T) {
	t.Parallel()
	r := allowed(newWorld(t).token(t, alice, "ask", 0))
	r.Self = ""
	if got := outcome(t, r); got != "denied lineage" {
		t.Errorf("got %q", got)
	}
}

func TestEvaluate_Protocols(t *testing.T) {
	t.Parallel()
	evidence := newWorld(t).token(t, alice, "ask", 0)
	const source, dest = "denied aepb.allowed_source_protocols", "denied aepb.allowed_dest_protocols"
	for name, tc := range map[string]struct {
		constraints policy.Constraints
		want        string
	}{
		"absent lists allow all":   {policy.Constraints{}, "permit"},
		"empty source list":        {policy.Constraints{RestrictSource: true}, source},
		"empty dest list":          {policy.Constraints{RestrictDest: true}, dest},
		"source listed":            {policy.Constraints{RestrictSource: true, AllowedSource: []string{"slim-v1", "a2a-v1"}}, "permit"},
		"source not listed":        {policy.Constraints{RestrictSource: true, AllowedSource: []string{"mcp-v1"}}, source},
		"dest listed":              {policy.Constraints{RestrictDest: true, AllowedDest: []string{"mcp-v1"}}, "permit"},
		"dest not listed":          {policy.Constraints{RestrictDest: true, AllowedDest: []string{"a2a-v1"}}, dest},
		"names are exact":          {policy.Constraints{RestrictDest: true, AllowedDest: []string{"MCP-v1", "mcp"}}, dest},
		"no list, no restriction":  {policy.Constraints{AllowedDest: []string{"a2a-v1"}}, "permit"},
		"source before dest":       {policy.Constraints{RestrictSource: true, RestrictDest: true}, source},
		"default losses are fatal": {policy.Constraints{AllowLosses: []string{"L33"}}, "permit"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := allowed(evidence)
			r.Constraints = tc.constraints
			if got := outcome(t, r); got != tc.want {
				t.Errorf("got %q, want %q", got, tc.want)
			}
		})
	}
}

// A protocol that is not known yet is judged when it is.
func TestEvaluate_UnknownProtocolsAreDeferred(t *testing.T) {
	t.Parallel()
	r := allowed(newWorld(t).token(t, alice, "ask", 0))
	r.Source, r.Dest = "", ""
	r.Constraints.RestrictSource, r.Constraints.RestrictDest = true, true
	if got := outcome(t, r); got != "permit" {
		t.Errorf("got %q", got)
	}
}

func TestConstraints_Validate(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		constraints policy.Constraints
		ok          bool
	}{
		"zero":                  {policy.Constraints{}, true},
		"ancestry":              {policy.Constraints{HopScope: policy.ScopeAncestry}, true},
		"unknown scope":         {policy.Constraints{HopScope: "all"}, false},
		"list without restrict": {policy.Constraints{AllowedSource: []string{"a2a-v1"}}, false},
		"dest likewise":         {policy.Constraints{AllowedDest: []string{"a2a-v1"}}, false},
		"lists that restrict":   {policy.Constraints{RestrictSource: true, AllowedSource: []string{"a2a-v1"}, RestrictDest: true, AllowedDest: []string{"a2a-v1"}}, true},
	} {
		if err := tc.constraints.Validate(); (err == nil) != tc.ok {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// R7 and AEPB, Gateway Requirements item 4.
func TestPermit_JudgesLosses(t *testing.T) {
	t.Parallel()
	r := allowed(newWorld(t).token(t, alice, "ask", 0))
	r.Constraints.AllowLosses = []string{"L07"}
	permit, err := policy.Evaluate(r)
	if err != nil {
		t.Fatal(err)
	}
	if permit.Caller() != alice || permit.Agent() != "echo" {
		t.Errorf("the permit is for %q and %q", permit.Caller(), permit.Agent())
	}
	harmless := []policy.Loss{
		{Code: "L01", Text: "L01 carried /conversation"},
		{Code: "L07", Semantic: true, Text: "L07 dropped /push"},
	}
	if err := permit.Judge(harmless); err != nil {
		t.Errorf("harmless and allowed losses: %v", err)
	}
	r.Constraints.AllowLosses[0] = "L36" // a permit does not change with the config
	fatal := append(harmless,
		policy.Loss{Code: "L36", Semantic: true, Text: "L36 dropped /op"},
		policy.Loss{Code: "L33", Semantic: true, Text: "L33 dropped /a"},
		policy.Loss{Code: "L33", Semantic: true, Text: "L33 dropped /b"})
	var got *policy.SemanticLossError
	if err := permit.Judge(fatal); !errors.As(err, &got) {
		t.Fatalf("got %v", err)
	}
	want := &policy.SemanticLossError{
		Codes: []string{"L33", "L36"}, Losses: []string{"L36 dropped /op", "L33 dropped /a", "L33 dropped /b"},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if err := (policy.Permit{}).Judge(nil); !errors.Is(err, policy.ErrNoPermit) {
		t.Errorf("a permit out of nowhere: %v", err)
	}
}

// Nobody outside can make or change a permit.
func TestPermit_IsSealed(t *testing.T) {
	t.Parallel()
	for f := range reflect.TypeFor[policy.Permit]().Fields() {
		if f.IsExported() {
			t.Errorf("field %s is exported", f.Name)
		}
	}
}

// TestRules_BothSetsMustPermit: where two sets of rules must permit, what one of them
// forbids is refused.
func TestRules_BothSetsMustPermit(t *testing.T) {
	t.Parallel()
	const caller = "spiffe://example.com/a"
	all, none := policy.Rules{Open: true}, policy.Rules{}
	one := policy.Rules{Callers: []string{caller + "#invoke", caller + "#cancel"}}
	other := policy.Rules{Callers: []string{caller + "#cancel"}}
	for name, tc := range map[string]struct {
		rules, also policy.Rules
		admitted    bool
	}{
		"both": {all, all, true}, "not the first": {none, all, false}, "not the second": {all, none, false}, "in part": {one, other, true},
	} {
		tc.rules.Also = &tc.also
		if err := policy.Admit(caller, tc.rules); (err == nil) != tc.admitted {
			t.Errorf("%s: %v", name, err)
		}
	}
	one.Also = &other
	r := policy.Request{Caller: caller, Native: true, Agent: "b", Rules: one, Self: "spiffe://example.com/self"}
	permit, err := policy.Evaluate(r)
	if err != nil || permit.Perform("cancel") != nil || permit.Perform("invoke") == nil {
		t.Errorf("%v: of two lists of operations, what both allow is allowed", err)
	}
	r.Rules = policy.Rules{Open: true, Also: &policy.Rules{Open: true, RequireECT: true}}
	if _, err := policy.Evaluate(r); err == nil {
		t.Error("an unattested message passes rules that take none")
	}
}

// TestAdmit_NamesTheCallerToItself: a caller that is not on the list reads under which id it was seen. An error that
// another may read, and that of a caller without an identity of its own, name none of them.
func TestAdmit_NamesTheCallerToItself(t *testing.T) {
	t.Parallel()
	rules := policy.Rules{Callers: []string{"spiffe://example.test/ann"}}
	const bob, name = "spiffe://example.test/bob", "you are spiffe://example.test/bob, and may not call this agent: "
	for what, tc := range map[string]struct {
		err   error
		names bool
	}{
		"admit":         {policy.Admit(bob, rules), true},
		"beside others": {policy.Admit(bob, policy.Rules{Open: true, Also: &rules}), true},
		"for another":   {policy.AdmitTo(bob, "invoke", rules), false},
		"without an id": {policy.Admit("", rules), false},
	} {
		if tc.err == nil || strings.HasPrefix(tc.err.Error(), name) != tc.names || strings.Contains(tc.err.Error(), "ann") {
			t.Errorf("%s: %v", what, tc.err)
		}
	}
}
