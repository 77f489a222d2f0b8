package admission_test

import (
	"errors"
	"reflect"
	"strings"
	"testing"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/ect/identity"
	"github.com/aepb/aepb-gateway/gateway/admission"
	"github.com/aepb/aepb-gateway/gateway/directory"
	"github.com/aepb/aepb-gateway/gateway/problem"
	"github.com/aepb/aepb-gateway/gateway/state"
	"github.com/aepb/aepb-gateway/gateway/transport"
	"github.com/aepb/aepb-gateway/policy"
	"github.com/aepb/aepb-gateway/policy/limit"
	"github.com/aepb/aepb-gateway/translators/a2a"
	"github.com/aepb/aepb-gateway/translators/canonical"
	"github.com/aepb/aepb-gateway/translators/mcp"
	"github.com/aepb/aepb-gateway/translators/rollback"
)

func TestNew_Incomplete(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	for i := range reflect.TypeFor[admission.Deps]().NumField() {
		deps := e.deps
		reflect.ValueOf(&deps).Elem().Field(i).SetZero()
		if s, err := admission.New(deps); err == nil || s != nil {
			t.Errorf("made a service without %s", reflect.TypeFor[admission.Deps]().Field(i).Name)
		}
	}
}

// TestAdmit_Admitted: what is known of a message that is let in.
func TestAdmit_Admitted(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	token := e.sign(e.caller, e.claims(addBody))
	got, err := e.admit(e.call(addBody, token))
	e.must(err)
	for what, ok := range map[string]bool{
		"the codec":               got.Source.Info().Binding == a2a.Binding && got.Features == e.deps.Registry.Features(a2a.Binding),
		"the holder":              got.Holder == limit.Identity(string(e.caller.ID)),
		"the hash":                got.Input == ect.Hash([]byte(addBody)),
		"the source":              len(got.Evidence.Sources) == 1 && got.Evidence.Sources[0].Compact() == token && len(got.Evidence.Parents) == 0,
		"who brought it":          got.Evidence.Caller == e.caller.ID,
		"the agent":               got.To.Agent.Name == "calculator" && got.To.Codec.Info().Binding == mcp.Binding,
		"the permit":              got.Permit.Valid() && got.Permit.Caller() == e.caller.ID && got.Permit.Agent() == "calculator",
		"the message":             got.Message != nil && got.Message.Op == canonical.OpInvoke && got.Message.From.ID == string(e.caller.ID),
		"the id on the wire":      string(got.WireID) == "7",
		"that it leaves evidence": got.LeavesEvidence,
		"that it is recorded":     got.Recorded && e.recorded(token),
		"what is used up":         len(got.Used) == 1 && got.Used[0].Compact() == token && e.usedUp(token),
		"membership":              !got.ByRole && !got.Membership && !got.Foreign(),
		"no answer":               !got.Repeated && len(got.Answer.Wire().Body) == 0,
		"one reading":             e.decoded.Load() == 1,
	} {
		if !ok {
			t.Errorf("%s is not as expected: %+v", what, got.Admitted)
		}
	}
}

// leftovers is what an error leaves of a message.
type leftovers struct {
	accounts, input, evidence, permit, recorded, foreign bool

	used, decoded int
	inStore, gone bool // its token is on record; it is used up
}

// TestAdmit_ErrorLeaves: what each error leaves: who refuses early has recorded and used up
// nothing.
func TestAdmit_ErrorLeaves(t *testing.T) {
	t.Parallel()
	judged := leftovers{accounts: true, input: true, evidence: true, foreign: true}
	permitted := judged
	permitted.permit = true
	claimed := leftovers{accounts: true, input: true, evidence: true, permit: true, recorded: true, used: 1, decoded: 1, inStore: true, gone: true}
	for name, c := range map[string]struct {
		body string
		edit func(*env, *transport.Call)
		is   func(error) bool
		want leftovers
	}{
		"protocol not spoken": {addBody, func(_ *env, c *transport.Call) { c.Wire.Binding = "telex-v1" }, is[*problem.NoPathError], leftovers{}},
		"destination not spoken": {addBody, func(_ *env, c *transport.Call) {
			c.EntryPoint, c.To = transport.Translate, "telex-v1"
		}, is[*problem.NoPathError], leftovers{}},
		"token unreadable": {addBody, func(_ *env, c *transport.Call) { c.Evidence = []string{"x"} }, is[*ect.MalformedError], leftovers{input: true}},
		"too many tokens": {addBody, func(_ *env, c *transport.Call) {
			for range 9 {
				c.Evidence = append(c.Evidence, c.Evidence[0])
			}
		}, is[*ect.TooLargeError], leftovers{}},
		"another message": {goOnBody, nil, is[*ect.InvalidError], leftovers{input: true}},
		"an outsider's": {addBody, func(e *env, c *transport.Call) {
			c.Evidence = []string{e.of(e.caller, e.workflowOf(e.agent), addBody)}
		}, is[*policy.Forbidden], leftovers{input: true, evidence: true, foreign: true}},
		"evidence away":    {addBody, func(e *env, _ *transport.Call) { e.store.get = errors.New("away") }, is[*problem.RecordingError], leftovers{input: true, evidence: true, foreign: true}},
		"standing away":    {addBody, func(e *env, _ *transport.Call) { e.store.standing = errors.New("away") }, is[*problem.RecordingError], leftovers{input: true, evidence: true, foreign: true}},
		"caller refused":   {addBody, func(e *env, _ *transport.Call) { e.list("calculator", policy.Rules{}) }, is[*policy.Forbidden], judged},
		"protocol refused": {addBody, func(e *env, _ *transport.Call) { e.rules.Constraints.RestrictDest = true }, is[*policy.Denied], judged},
		"agent unknown":    {addBody, func(_ *env, c *transport.Call) { c.Agent = "abacus" }, is[*problem.UnknownAgentError], judged},
		"path unknown": {addBody, func(_ *env, c *transport.Call) {
			c.Agent, c.To, c.EntryPoint = "abacus", mcp.Binding, transport.Translate
		}, is[*problem.NoPathError], judged},
		"no token": {addBody, func(e *env, c *transport.Call) {
			e.rules.RequireECT, c.Evidence = true, nil
		}, func(err error) bool { return errors.Is(err, ect.ErrRequired) }, leftovers{accounts: true, input: true}},
		"draining": {addBody, func(e *env, _ *transport.Call) { e.draining = true }, is[*problem.DrainingError], func() leftovers {
			l := permitted
			l.decoded = 1
			return l
		}()},
		"left alone": {addBody, func(e *env, _ *transport.Call) { e.open = true }, is[*problem.CircuitOpenError], func() leftovers {
			l := permitted
			l.decoded = 1
			return l
		}()},
		"paused": {addBody, func(e *env, _ *transport.Call) { e.paused = true }, is[*problem.LevelError], func() leftovers {
			l := permitted
			l.decoded = 1
			return l
		}()},
		"draining, tasks away": {goOnBody, func(e *env, c *transport.Call) {
			e.draining, e.tasks.fail = true, &state.UnavailableError{}
			c.Evidence = []string{e.sign(e.caller, e.claims(goOnBody))}
		}, is[*state.UnavailableError], func() leftovers {
			l := permitted
			l.decoded = 1
			return l
		}()},
		"replays away": {addBody, func(e *env, _ *transport.Call) { e.memory.fail = &state.UnavailableError{} }, is[*state.UnavailableError], leftovers{input: true, permit: true}},
		"no space": {addBody, func(e *env, _ *transport.Call) { e.store.put = &state.FullError{Own: true} }, is[*state.FullError], func() leftovers {
			l := permitted
			l.used, l.gone = 1, true
			return l
		}()},
		"root of another meanwhile": {addBody, func(e *env, c *transport.Call) {
			claims := e.claims(addBody)
			claims.Parents = []ect.ID{ect.NewID()}
			c.Evidence = []string{e.sign(e.caller, claims)}
			e.store.put = &ect.ForeignRootError{}
		}, is[*policy.Forbidden], func() leftovers {
			l := permitted
			l.used, l.gone = 1, true
			return l
		}()},
		"not carried": {addBody, func(_ *env, c *transport.Call) {
			c.Message = &canonical.Message{Op: canonical.OpDescribe, Phase: canonical.PhaseRequest}
		}, is[*policy.SemanticLossError], func() leftovers {
			l := claimed
			l.decoded = 0
			return l
		}()},
		"unreadable": {"{", func(e *env, c *transport.Call) { c.Evidence = []string{e.sign(e.caller, e.claims("{"))} }, func(err error) bool { return err != nil }, claimed},
		"operation refused": {addBody, func(e *env, _ *transport.Call) {
			e.list("calculator", policy.Rules{Callers: []string{string(e.caller.ID) + "#task.get"}})
		}, is[*policy.Forbidden], claimed},
		"a role's, and no decision": {addBody, func(e *env, c *transport.Call) {
			e.decides = true
			root := e.workflowOf(e.agent)
			claims := e.claims(addBody)
			claims.Act, claims.Workflow, claims.Parents = ect.ActApprovalGranted, root.Workflow, []ect.ID{root.ID}
			c.Evidence = []string{e.sign(e.caller, claims)}
		}, is[*policy.Forbidden], claimed},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e := newEnv(t)
			call := e.call(c.body, e.sign(e.caller, e.claims(addBody)))
			if c.edit != nil {
				c.edit(e, &call)
			}
			got, err := e.admit(call)
			if err == nil || !c.is(err) {
				t.Errorf("refused with %T %v", err, err)
			}
			e.memory.fail, e.store.put, e.store.get, e.store.standing = nil, nil, nil, nil
			left := leftovers{
				accounts: got.LeavesEvidence, input: got.Input != "", evidence: len(got.Evidence.Sources) > 0, permit: got.Permit.Valid(), recorded: got.Recorded,
				foreign: got.Foreign(), used: len(got.Used), decoded: int(e.decoded.Load()),
			}
			if len(call.Evidence) == 1 {
				left.inStore, left.gone = e.recorded(call.Evidence[0]), e.usedUp(call.Evidence[0])
			}
			if left != c.want {
				t.Errorf("it leaves\n%+v, expected\n%+v", left, c.want)
			}
			if got.Message != nil && !is[*policy.Forbidden](err) {
				t.Error("the message is told although it was not read to its end")
			}
		})
	}
}

// TestAdmit_MemberIsNotForeign: what a member of a workflow is refused is evidence in it.
func TestAdmit_MemberIsNotForeign(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	e.list("calculator", policy.Rules{})
	got, err := e.admit(e.call(addBody, e.of(e.caller, e.workflowOf(e.agent, e.caller.ID), addBody)))
	if !is[*policy.Forbidden](err) || !got.Membership || got.Foreign() {
		t.Errorf("%v: membership %t, foreign %t", err, got.Membership, got.Foreign())
	}
}

// TestAdmit_ReadOnce: a message is read once, and not at all where its server has read it.
func TestAdmit_ReadOnce(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		body string
		edit func(*env, *transport.Call)
		want int32
		err  func(error) bool
	}{
		"admitted": {addBody, nil, 1, nil},
		"draining": {addBody, func(e *env, _ *transport.Call) { e.draining = true }, 1, is[*problem.DrainingError]},
		"draining, goes on": {goOnBody, func(e *env, _ *transport.Call) {
			e.draining, e.tasks.begun = true, map[string]bool{string(e.caller.ID) + " calculator begun": true}
		}, 1, nil},
		"left alone, goes on": {goOnBody, func(e *env, _ *transport.Call) {
			e.open, e.tasks.begun = true, map[string]bool{string(e.caller.ID) + " calculator begun": true}
		}, 1, nil},
		"left alone, no work": {getBody, func(e *env, _ *transport.Call) { e.open = true }, 1, nil},
		"paused, goes on": {goOnBody, func(e *env, _ *transport.Call) {
			e.paused, e.tasks.begun = true, map[string]bool{string(e.caller.ID) + " calculator begun": true}
		}, 1, nil},
		"paused, no work":   {getBody, func(e *env, _ *transport.Call) { e.paused = true }, 1, nil},
		"draining, no work": {getBody, func(e *env, _ *transport.Call) { e.draining = true }, 1, nil},
		"unreadable":        {"{", nil, 1, func(err error) bool { return err != nil }},
		"unreadable, while draining": {"{", func(e *env, _ *transport.Call) { e.draining = true }, 1, func(err error) bool {
			return err != nil && !is[*problem.DrainingError](err)
		}},
		"read by its server": {addBody, func(_ *env, c *transport.Call) {
			c.Message = &canonical.Message{Op: canonical.OpInvoke, Phase: canonical.PhaseRequest, Body: &canonical.Invoke{}}
		}, 0, nil},
		"refused by policy": {addBody, func(e *env, _ *transport.Call) { e.list("calculator", policy.Rules{}) }, 0, is[*policy.Forbidden]},
	} {
		e := newEnv(t)
		call := e.call(c.body, e.sign(e.caller, e.claims(c.body)))
		if c.edit != nil {
			c.edit(e, &call)
		}
		_, err := e.admit(call)
		if (c.err == nil) != (err == nil) || c.err != nil && !c.err(err) {
			t.Errorf("%s: %T %v", name, err, err)
		}
		if n := e.decoded.Load(); n != c.want {
			t.Errorf("%s: read %d times, expected %d", name, n, c.want)
		}
	}
}

// TestAdmit_ServerMessageIsACopy: what a server has read stays as it is, whatever the pipeline
// writes into it.
func TestAdmit_ServerMessageIsACopy(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	call := e.call(addBody)
	invoke := &canonical.Invoke{State: "as read"}
	call.Message = &canonical.Message{
		Op: canonical.OpInvoke, Phase: canonical.PhaseRequest, Body: invoke, From: canonical.Party{ID: "forged", Name: "Client"}, Conversation: canonical.Conversation{Tenant: "t"},
	}
	call.Tenanted, call.CanAnswer = true, []canonical.Mode{canonical.ModeForm}
	got, err := e.admit(call)
	e.must(err)
	body, ok := got.Message.Body.(*canonical.Invoke)
	if !ok || body == invoke {
		t.Error("the body is the server's own")
	}
	if m := call.Message; m.From.ID != "forged" || m.Conversation.Tenant != "t" || m.Preferences.CanAnswer != nil {
		t.Errorf("what the server has read was written to: %+v", m)
	}
	if m := got.Message; m.From.ID != string(e.caller.ID) || m.From.Name != "Client" || m.Conversation.Tenant != "" || len(m.Preferences.CanAnswer) != 1 {
		t.Errorf("admitted is %+v", m)
	}
}

// TestAdmit_NotCarried: what no agent is asked through the pipeline is a loss of meaning, and
// where policy allows that loss, unsupported.
func TestAdmit_NotCarried(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		op      canonical.Op
		phase   canonical.Phase
		carried bool
	}{
		"describe": {canonical.OpDescribe, canonical.PhaseRequest, false}, "capabilities": {canonical.OpCapabilities, canonical.PhaseRequest, false},
		"ping": {canonical.OpPing, canonical.PhaseRequest, false}, "notice": {canonical.OpNotice, canonical.PhaseRequest, false},
		"a reply": {canonical.OpInvoke, canonical.PhaseResponse, false}, "invoke": {canonical.OpInvoke, canonical.PhaseRequest, true},
		"native": {canonical.OpNative, canonical.PhaseRequest, true}, "a task": {canonical.OpTaskGet, canonical.PhaseRequest, true},
	} {
		for _, allowed := range []bool{false, true} {
			e := newEnv(t)
			call := e.call(addBody)
			call.Message = &canonical.Message{Op: c.op, Phase: c.phase}
			if allowed {
				e.rules.Constraints.AllowLosses = []string{string(canonical.LossOperation)}
			}
			got, err := e.admit(call)
			refused, ok := errors.AsType[*canonical.Error](err)
			unsupported := ok && refused.Code == canonical.CodeUnsupportedOp && strings.Contains(refused.Message, string(c.op))
			if (err == nil) != c.carried || (got.Message != nil) != c.carried || !c.carried && unsupported != allowed || !c.carried && !allowed && !is[*policy.SemanticLossError](err) {
				t.Errorf("%s, loss allowed %t: %T %v", name, allowed, err, err)
			}
		}
	}
}

// TestAdmit_DrainingAgent: new work for an agent that drains goes to a successor that the
// caller may call; what goes on stays.
func TestAdmit_DrainingAgent(t *testing.T) {
	t.Parallel()
	const heir = "https://heir.example/doc"
	for name, c := range map[string]struct {
		body      string
		successor string
		edit      func(*env)
		agent     string
		is        func(error) bool
	}{
		"new work":         {addBody, `"` + heir + `"`, nil, heir, nil},
		"no successor":     {addBody, "null", nil, "old", is[*directory.EndedError]},
		"not its caller's": {addBody, `"` + heir + `"`, func(e *env) { e.allow(heir, policy.Rules{}) }, heir, is[*policy.Forbidden]},
		"not its operation": {addBody, `"` + heir + `"`, func(e *env) {
			e.allow(heir, policy.Rules{Callers: []string{string(e.caller.ID) + "#task.get"}})
		}, heir, is[*policy.Forbidden]},
		"no new work": {getBody, `"` + heir + `"`, nil, "old", nil},
		"goes on":     {goOnBody, `"` + heir + `"`, func(e *env) { e.tasks.begun[string(e.caller.ID)+" old begun"] = true }, "old", nil},
		"tasks away":  {goOnBody, `"` + heir + `"`, func(e *env) { e.tasks.fail = &state.UnavailableError{} }, "old", is[*state.UnavailableError]},
	} {
		e := newEnv(t)
		e.documents["old.example"], e.documents["heir.example"] = document("old", directory.Draining, c.successor), document("heir", directory.Active, "null")
		e.must(e.deps.Directory.Put(directory.Agent{Name: "old", Capability: "https://old.example/doc", Rules: policy.Rules{Open: true}}))
		e.allow(heir, policy.Rules{Open: true})
		if c.edit != nil {
			c.edit(e)
		}
		call := e.call(c.body)
		call.Agent = "old"
		got, err := e.admit(call)
		if (c.is == nil) != (err == nil) || c.is != nil && !c.is(err) {
			t.Errorf("%s: %T %v", name, err, err)
		}
		if got.To.Agent.Name != c.agent {
			t.Errorf("%s: it goes to %q, expected %q", name, got.To.Agent.Name, c.agent)
		}
		if err == nil && got.Permit.Agent() != c.agent {
			t.Errorf("%s: permitted is %q, expected %q", name, got.Permit.Agent(), c.agent)
		}
	}
}

// allow lets callers be sent to a document.
func (e *env) allow(document string, rules policy.Rules) {
	e.t.Helper()
	host, _, _ := strings.Cut(strings.TrimPrefix(document, "https://"), "/")
	e.must(e.deps.Directory.AllowDocuments(directory.Documents{Hosts: []string{host}, Rules: rules}))
}

// TestAdmit_DecisionByRole: an approver's decision about a workflow of others is let in.
func TestAdmit_DecisionByRole(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	e.decides = true
	root, claims := e.workflowOf(e.agent), e.claims(addBody)
	claims.Act, claims.Workflow, claims.Parents = ect.ActApprovalGranted, root.Workflow, []ect.ID{root.ID}
	call := e.call(addBody, e.sign(e.caller, claims))
	call.Message = &canonical.Message{Op: canonical.OpDecision, Phase: canonical.PhaseRequest}
	got, err := e.admit(call)
	if err != nil || !got.ByRole || got.Membership {
		t.Errorf("by role %t, membership %t, %v", got.ByRole, got.Membership, err)
	}
}

// TestAdmit_RollbackForm: a request to roll back is read in the form of its own.
func TestAdmit_RollbackForm(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	call := e.call("")
	token := e.sign(e.caller, e.claims(""))
	call.Wire.Form, call.Wire.Header = rollback.Name, map[string][]string{rollback.Field: {token}}
	got, err := e.admit(call)
	e.must(err)
	if _, ok := got.Source.(*rollback.Form); !ok || got.Message.Op != canonical.OpRollback || got.Features.Signaler == nil || got.Features.Asker != nil {
		t.Errorf("its codec is %T, its operation %s", got.Source, got.Message.Op)
	}
}

// TestResume_OnBehalf: work that was let in goes on without its caller's tokens, for as long
// as its caller may call.
func TestResume_OnBehalf(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		edit func(*env, *transport.Call)
		is   func(error) bool
	}{
		"as it was let in": {nil, nil},
		"tokens required":  {func(e *env, _ *transport.Call) { e.rules.RequireECT = true }, nil},
		"required by the agent": {func(e *env, _ *transport.Call) {
			e.list("calculator", policy.Rules{Open: true, RequireECT: true})
		}, nil},
		"a level required":     {func(e *env, _ *transport.Call) { e.rules.Constraints.MinLevel = ect.L2 }, nil},
		"not allowed any more": {func(e *env, _ *transport.Call) { e.list("calculator", policy.Rules{}) }, is[*policy.Forbidden]},
		"not listed any more":  {func(_ *env, c *transport.Call) { c.Agent = "abacus" }, is[*problem.UnknownAgentError]},
		"not spoken any more":  {func(_ *env, c *transport.Call) { c.Wire.Binding = "telex-v1" }, is[*problem.NoPathError]},
	} {
		e := newEnv(t)
		call, message := e.call(""), &canonical.Message{Op: canonical.OpInvoke}
		call.Caller = identity.Caller{Peer: ect.Peer{ID: e.caller.ID}}
		if c.edit != nil {
			c.edit(e, &call)
		}
		got, err := e.Resume(t.Context(), call, message, e.rules)
		if (c.is == nil) != (err == nil) || c.is != nil && !c.is(err) || got.Permit.Valid() != (err == nil) {
			t.Errorf("%s: %T %v, permit %t", name, err, err, got.Permit.Valid())
		}
		if got.Message != message || got.Holder != limit.Identity(string(e.caller.ID)) || e.decoded.Load() != 0 {
			t.Errorf("%s: message %v, holder %q, read %d times", name, got.Message, got.Holder, e.decoded.Load())
		}
	}
}

// TestOwner_ByAddress: callers without an identity are told apart by their addresses.
func TestOwner_ByAddress(t *testing.T) {
	t.Parallel()
	known, anonymous := identity.Caller{Peer: ect.Peer{ID: "spiffe://example.com/a"}}, identity.Anonymous("example.com")
	if got := admission.Owner(known, "192.0.2.1"); got != "spiffe://example.com/a" {
		t.Errorf("with an identity: %q", got)
	}
	one, other := admission.Owner(anonymous, "192.0.2.1"), admission.Owner(anonymous, "192.0.2.2")
	if one == other || one == string(anonymous.ID) {
		t.Errorf("anonymous: %q and %q", one, other)
	}
}

func TestCountDenied_Constraints(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		err  error
		want []policy.Constraint
	}{
		"denied":    {&policy.Denied{Constraint: policy.ConstraintHops}, []policy.Constraint{policy.ConstraintHops}},
		"level":     {&policy.LevelError{Required: ect.L3}, []policy.Constraint{policy.ConstraintLevel}},
		"forbidden": {&policy.Forbidden{Constraint: policy.ConstraintCallers}, nil},
		"other":     {errors.New("other"), nil},
		"no error":  {nil, nil},
	} {
		got := &counts{}
		if admission.CountDenied(got, c.err); !reflect.DeepEqual(got.denied, c.want) {
			t.Errorf("%s: counted %v, expected %v", name, got.denied, c.want)
		}
	}
}

// TestRules_Peers: who carries the evidence of others, and has tokens in the body.
func TestRules_Peers(t *testing.T) {
	t.Parallel()
	rules := admission.Rules{Gateways: []ect.Identity{"spiffe://peer.example/*"}, ECTInBody: map[ect.Identity]bool{"spiffe://peer.example/g": true, "": true}}
	if !rules.IsGateway("spiffe://peer.example/g") || rules.IsGateway("spiffe://other.example/g") {
		t.Error("gateways are not those that are listed")
	}
	e := newEnv(t)
	bearer, _ := e.deps.Registry.Translator(mcp.Binding)
	for name, c := range map[string]struct {
		peer ect.Identity
		form string
		want bool
	}{
		"listed": {"spiffe://peer.example/g", "", true}, "not listed": {"spiffe://peer.example/h", "", false}, "without identity": {"", "", false},
	} {
		if got := rules.Embeds(c.peer, bearer, c.form); got != c.want {
			t.Errorf("%s: %t", name, got)
		}
	}
	if rules.Embeds("spiffe://peer.example/g", rollback.Over(bearer), "") {
		t.Error("a form without a place has tokens in it")
	}
}

// TestAdmit_Anonymous: an anonymous caller's token is not its own, regardless of its issuer.
func TestAdmit_Anonymous(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	call := e.call(addBody)
	call.Caller = identity.Anonymous("example.com")
	got, err := e.admit(call)
	e.must(err)
	if got.Holder != limit.Address(call.Address) {
		t.Errorf("its records count in the share of %q", got.Holder)
	}
	call.Evidence = []string{e.sign(e.caller, e.claims(addBody))}
	if _, err := e.admit(call); err == nil || e.recorded(call.Evidence[0]) || e.usedUp(call.Evidence[0]) {
		t.Errorf("with a token of another: %v", err)
	}
}

// TestAdmit_MeantAgent: who misspells the name of an agent learns the right one if it may call that agent,
// and else no name.
func TestAdmit_MeantAgent(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	e.must(e.deps.Directory.Put(directory.Agent{Name: "librarian", Capability: "https://old.example/doc", Rules: policy.Rules{Open: true}}))
	e.must(e.deps.Directory.Put(directory.Agent{Name: "treasurer", Capability: "https://old.example/doc"}))
	for name, want := range map[string]string{"libarian": "; did you mean librarian?", "tresurer": "", "nobody": ""} {
		call := e.call(addBody)
		call.Agent = name
		_, err := e.admit(call)
		native, isNative := errors.AsType[*problem.UnknownAgentError](err)
		path, isPath := errors.AsType[*problem.NoPathError](err)
		switch {
		case isNative && native.Suggestion != want, isPath && path.Suggestion != want, !isNative && !isPath:
			t.Errorf("%s: %v, want %q", name, err, want)
		}
		if strings.Contains(err.Error(), "treasurer") {
			t.Errorf("%s: a name of others is shown: %v", name, err)
		}
	}
}

// TestAdmit_UnreachableIsTold: that an agent cannot be reached is told to those who may call
// it, and the agent that a token is required for to no others.
func TestAdmit_UnreachableIsTold(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		rules    policy.Rules
		document string // empty: there is none
		is       func(error) bool
	}{
		"may call":          {policy.Rules{Open: true}, "", is[*transport.UnreachableError]},
		"may not":           {policy.Rules{}, "", is[*policy.Forbidden]},
		"no token":          {policy.Rules{Open: true, RequireECT: true}, "", func(err error) bool { return errors.Is(err, ect.ErrRequired) }},
		"ended":             {policy.Rules{Open: true}, document("old", directory.Retired, "null"), is[*directory.EndedError]},
		"ended, of others":  {policy.Rules{}, document("old", directory.Retired, "null"), is[*policy.Forbidden]},
		"active, of others": {policy.Rules{}, document("old", directory.Active, "null"), is[*policy.Forbidden]},
	} {
		e := newEnv(t)
		if c.document != "" {
			e.documents["old.example"] = c.document
		}
		e.must(e.deps.Directory.Put(directory.Agent{Name: "old", Capability: "https://old.example/doc", Rules: c.rules}))
		call := e.call(addBody)
		call.Agent = "old"
		if _, err := e.admit(call); !c.is(err) {
			t.Errorf("%s: %T %v", name, err, err)
		}
	}
}
