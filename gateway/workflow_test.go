package gateway_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/ect/ecttest"
	"github.com/aepb/aepb-gateway/ect/identity"
	"github.com/aepb/aepb-gateway/gateway"
	"github.com/aepb/aepb-gateway/gateway/breakers"
	"github.com/aepb/aepb-gateway/gateway/problem"
	"github.com/aepb/aepb-gateway/gateway/transport"
	work "github.com/aepb/aepb-gateway/gateway/workflow"
	"github.com/aepb/aepb-gateway/lifecycle/workflow"
	"github.com/aepb/aepb-gateway/policy"
)

// begin begins a workflow for the caller, and returns it with its start.
func (b *fixture) begin(t *testing.T) (wid string, start ect.Claims) {
	t.Helper()
	wid, compact, err := b.Parts().Workflows.Begin(t.Context(), identity.Caller{Peer: b.caller.Peer()}, "", work.Plan{Description: "adds up", Steps: 2})
	if err != nil {
		t.Fatal(err)
	}
	return wid, claims(t, compact)
}

// task signs a task of the caller in a workflow.
func (b *fixture) task(t *testing.T, wid, body string, parents ...ect.ID) string {
	t.Helper()
	token, err := b.caller.Signer(t, func() time.Time { return b.now() }).Sign(ect.Claims{
		Audience: []string{string(b.self.ID)}, Workflow: wid, Act: "send_task", Parents: parents, OutputHash: ect.Hash([]byte(body)),
	})
	if err != nil {
		t.Fatal(err)
	}
	return token.Compact()
}

// tokensOf are the tokens of a workflow on record, in their order.
func (b *fixture) tokensOf(t *testing.T, wid string) (list []ect.Claims) {
	t.Helper()
	records, _, err := b.memory.Workflow(t.Context(), wid, "", 100)
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range records {
		list = append(list, claims(t, r.Compact))
	}
	return list
}

func acts(list []ect.Claims) (out []ect.Act) {
	for _, c := range list {
		out = append(out, c.Act)
	}
	return out
}

// report is what the caller sees of a workflow.
func (b *fixture) report(t *testing.T, wid string) workflow.Report {
	t.Helper()
	r, err := b.Parts().Workflows.Report(t.Context(), wid, b.caller.ID)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// TestWorkflow_OfCallersWithoutTokens: a caller that signs nothing begins a workflow, names the start as parent
// of its messages, sees each of them as a step with an intent, and completes it; without a start there is no
// intent.
func TestWorkflow_OfCallersWithoutTokens(t *testing.T) {
	t.Parallel()
	b := newFixture(t, gateway.Settings{}, policy.Rules{Open: true})
	wid, start := b.begin(t)
	description, _ := start.Ext.String(ect.ExtATDDescription)
	if id, _ := start.Ext.String(ect.ExtWorkflowID); start.Act != ect.ActWorkflowStart || len(start.Parents) != 0 || start.Workflow != wid || id != wid || description != "adds up" || string(start.Ext[ect.ExtNodeCount]) != "2" {
		t.Fatalf("the start is %+v", start)
	}
	call := b.call(addBody)
	call.Parent = string(start.ID)
	if _, err := b.Exchange(t.Context(), call); err != nil {
		t.Fatal(err)
	}
	tokens := b.tokensOf(t, wid)
	if diff := cmp.Diff([]ect.Act{ect.ActWorkflowStart, ect.ActIntent, ect.ActTranslate, ect.ActCheckpoint, ect.ActTranslate}, acts(tokens)); diff != "" {
		t.Fatalf("tokens of the workflow (-want +got):\n%s", diff)
	}
	intent, request := tokens[1], tokens[2]
	caller, _ := intent.Ext.String(ect.ExtCaller)
	unattested, _ := intent.Ext.Bool(ect.ExtSourceUnattested)
	if !slices.Equal(intent.Parents, []ect.ID{start.ID}) || intent.InputHash != ect.Hash([]byte(addBody)) || caller != string(b.caller.ID) || !unattested || !slices.Equal(request.Parents, []ect.ID{intent.ID}) {
		t.Errorf("the intent is %+v, and the parents of the request are %v", intent, request.Parents)
	}
	r := b.report(t, wid)
	if r.Status != string(workflow.StatusSuccess) || len(r.Steps) != 1 || r.Steps[0].State != workflow.Done || r.Steps[0].Kind != workflow.KindIntent || r.Steps[0].Caller != b.caller.ID || r.Starter != b.caller.ID || r.Expected != 2 {
		t.Errorf("the report is %+v", r)
	}
	b.setNow(b.now().Add(5 * time.Second))
	status, compact, err := b.Parts().Workflows.Complete(t.Context(), identity.Caller{Peer: b.caller.Peer()}, "", wid, "")
	if err != nil || status != workflow.StatusSuccess {
		t.Fatal(status, err)
	}
	end := claims(t, compact)
	if end.Act != ect.ActWorkflowComplete || !slices.Equal(end.Parents, []ect.ID{start.ID}) || string(end.Ext[ect.ExtElapsed]) != "5" || string(end.Ext[ect.ExtTerminalStatus]) != `"success"` {
		t.Errorf("the completion is %+v", end)
	}
	again, same, err := b.Parts().Workflows.Complete(t.Context(), identity.Caller{Peer: b.caller.Peer()}, "", wid, workflow.StatusFailed)
	if err != nil || again != workflow.StatusSuccess || same != compact {
		t.Errorf("completed once more: %s, %v, another token: %v", again, err, same != compact)
	}
	answer, err := b.Exchange(t.Context(), b.call(addBody))
	if err != nil || slices.Contains(acts(b.tokensOf(t, claims(t, answer.Evidence[0]).Workflow)), ect.ActIntent) {
		t.Errorf("without a start: %v", err)
	}
}

// TestWorkflow_TasksWaitForTheirParents: in a workflow with a start a task whose parent still runs is refused
// with 409 and can come again; siblings run at once; an unknown parent holds a task back, and a message that
// was admitted before does not wait. Without a start tasks do not wait.
func TestWorkflow_TasksWaitForTheirParents(t *testing.T) {
	t.Parallel()
	b := newFixture(t, gateway.Settings{}, policy.Rules{Open: true})
	b.agent.gate, b.agent.entered = make(chan struct{}), make(chan struct{}, 8)
	wid, start := b.begin(t)
	first, second := b.task(t, wid, addBody, start.ID), b.task(t, wid, addBody, start.ID)
	done := make(chan error, 2)
	for _, token := range []string{first, second} { // both are under way at the agent at once
		go func() {
			_, err := b.Exchange(context.WithoutCancel(t.Context()), b.call(addBody, token))
			done <- err
		}()
		<-b.agent.entered
	}
	next := b.task(t, wid, addBody, claims(t, first).ID, claims(t, second).ID)
	waits := func(name, token string) {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second) // one that is let through waits at the agent
		defer cancel()
		_, err := b.Exchange(ctx, b.call(addBody, token))
		if waiting, ok := errors.AsType[*problem.WaitingError](err); !ok || problem.From(err).Status != 409 || problem.From(err).RetryAfter == 0 {
			t.Errorf("%s: got %v (%v)", name, err, waiting)
		}
	}
	waits("a task whose parents run", next)
	waits("a task of an unknown parent", b.task(t, wid, addBody, ect.NewID()))
	if r := b.report(t, wid); r.Status != "running" || len(r.Steps) != 2 || r.Steps[0].State != workflow.Running {
		t.Errorf("while the agent works: %+v", r)
	}
	close(b.agent.gate)
	for range 2 {
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
	b.agent.entered = make(chan struct{}, 8)
	if _, err := b.Exchange(t.Context(), b.call(addBody, next)); err != nil {
		t.Errorf("when its parents are done: %v", err)
	}
	if _, err := b.Exchange(t.Context(), b.call(addBody, next)); err != nil {
		t.Errorf("the same message again: %v", err)
	}
	if _, err := b.Exchange(t.Context(), b.call(addBody, b.source(t, addBody, nil))); err != nil {
		t.Errorf("a root of its own: %v", err)
	}
}

// TestWorkflow_BegunByItsOwnToken: a caller's own atd:workflow_start that comes along with a message begins a
// workflow, and its own atd:workflow_complete completes it; a start in the name of another workflow is refused.
func TestWorkflow_BegunByItsOwnToken(t *testing.T) {
	t.Parallel()
	b := newFixture(t, gateway.Settings{}, policy.Rules{Open: true})
	boundary := func(act ect.Act, wid, named string, ext ect.Ext, parents ...ect.ID) string {
		t.Helper()
		ext.SetString(ect.ExtWorkflowID, named)
		token, err := b.caller.Signer(t, func() time.Time { return b.now() }).Sign(ect.Claims{
			Audience: []string{string(b.self.ID)}, Workflow: wid, Act: act, Parents: parents, Ext: ext,
		})
		if err != nil {
			t.Fatal(err)
		}
		return token.Compact()
	}
	wid := string(ect.NewID())
	start := boundary(ect.ActWorkflowStart, wid, wid, ect.Ext{})
	task := b.task(t, wid, addBody, claims(t, start).ID)
	if _, err := b.Exchange(t.Context(), b.call(addBody, task, start)); err != nil {
		t.Fatal(err)
	}
	record, started, err := b.Parts().Workflows.Started(t.Context(), wid)
	if err != nil || !started || record.By != b.caller.ID || record.Start != claims(t, start).ID {
		t.Fatalf("it is on record as %+v, %v, %v", record, started, err)
	}
	foreign, err := b.server.Signer(t, func() time.Time { return b.now() }).Sign(ect.Claims{
		Audience: []string{string(b.self.ID)}, Workflow: wid, Act: ect.ActWorkflowComplete, Parents: []ect.ID{claims(t, start).ID},
		Ext: ect.Ext{ect.ExtWorkflowID: []byte(`"` + wid + `"`), ect.ExtTerminalStatus: []byte(`"failed"`)},
	})
	if err != nil {
		t.Fatal(err)
	}
	verifier, err := ect.NewVerifier(ect.VerifierDeps{
		Keys: ecttest.KeysOf(b.server), Replay: ecttest.NewReplay(), Audience: []string{string(b.self.ID)}, Now: func() time.Time { return b.now() },
	})
	if err != nil {
		t.Fatal(err)
	}
	verified, err := verifier.Verify(t.Context(), foreign.Compact(), ect.Check{Purpose: ect.Parent})
	if err != nil {
		t.Fatal(err)
	}
	if err := b.Parts().Workflows.Observe(t.Context(), b.server.ID, []ect.Verified{verified}); err != nil {
		t.Fatal(err)
	}
	if record, _, _ = b.Parts().Workflows.Started(t.Context(), wid); record.End != "" {
		t.Errorf("a member that did not begin it completed it: %+v", record)
	}
	end := boundary(ect.ActWorkflowComplete, wid, wid, ect.Ext{ect.ExtTerminalStatus: []byte(`"partial"`)}, claims(t, start).ID)
	last := b.task(t, wid, addBody, claims(t, task).ID, claims(t, end).ID)
	if _, err := b.Exchange(t.Context(), b.call(addBody, last, end)); err != nil {
		t.Fatal(err)
	}
	if record, _, _ = b.Parts().Workflows.Started(t.Context(), wid); record.Status != workflow.StatusPartial || record.End != claims(t, end).ID {
		t.Errorf("completed as %+v", record)
	}
	other := string(ect.NewID())
	wrong := boundary(ect.ActWorkflowStart, other, wid, ect.Ext{})
	_, err = b.Exchange(t.Context(), b.call(addBody, b.task(t, other, addBody, claims(t, wrong).ID), wrong))
	if invalid, ok := errors.AsType[*ect.InvalidError](err); !ok || invalid.Claim != ect.ExtWorkflowID {
		t.Errorf("a start of another wid: %v", err)
	}
	mine := string(ect.NewID())
	if got, err := b.Parts().Workflows.Take(t.Context(), identity.Caller{Peer: b.caller.Peer()}, "", boundary(ect.ActWorkflowStart, mine, mine, ect.Ext{})); err != nil || got != mine {
		t.Errorf("brought alone: %q, %v", got, err)
	}
}

// TestWorkflow_Errors: a failure inside a workflow with a start leaves an atd:error below the request, with
// severity, type, no checkpoint, and the errors of the gateways further on; a critical one is escalated below
// the error, to operators too. What the agent says itself has failed counts alike. Without a start there is
// none.
func TestWorkflow_Errors(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		fail           error
		unknown        bool // it cannot be asked what it is, and the caller brings no token
		result         string
		severity, kind string
		upstream       int
		reasons        []string // for which humans are called: a critical error, or an action that cannot be undone and of which nothing is known
	}{
		"the agent is not reached": {fail: &transport.UnreachableError{Agent: "calculator"}, severity: "error", kind: "action_failed"},
		"the agent is too slow":    {fail: &transport.TimeoutError{Agent: "calculator"}, severity: "error", kind: "timeout", reasons: []string{"irreversible"}},
		"a further gateway refuses": {
			fail:     &transport.RefusedError{Agent: "calculator", Status: 403, Code: "policy_violation"},
			severity: "error", kind: "upstream_cascade", upstream: 2,
		},
		"the gateway fails":          {fail: errors.New("a bug"), severity: "critical", kind: "unknown", reasons: []string{"critical", "irreversible"}},
		"the agent is never reached": {unknown: true, severity: "error", kind: "action_failed"},
		"the tool fails":             {result: `{"resultType":"complete","isError":true,"content":[{"type":"text","text":"secret"}]}`, severity: "error", kind: "action_failed"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				var posted []breakers.Event
				b := newFixture(t, gateway.Settings{}, policy.Rules{Open: true}, func(d *gateway.Deps) {
					d.Escalate = func(_ context.Context, e breakers.Event) { posted = append(posted, e) }
				})
				b.clock = time.Now
				wid, start := b.begin(t)
				b.agent.fail, b.agent.result = tc.fail, tc.result
				if refused, ok := errors.AsType[*transport.RefusedError](tc.fail); ok {
					for range tc.upstream {
						token, err := b.server.Signer(t, func() time.Time { return b.now() }).Sign(ect.Claims{
							Audience: []string{string(b.self.ID)}, Workflow: wid, Act: ect.ActTranslateError, Parents: []ect.ID{ect.NewID()},
							Ext: ect.Ext{ect.ExtError: []byte(`"policy_violation"`), ect.ExtSourceProtocol: []byte(`"a2a-v1"`), ect.ExtDestProtocol: []byte(`"mcp-v1"`)},
						})
						if err != nil {
							t.Fatal(err)
						}
						refused.Evidence = append(refused.Evidence, token.Compact())
					}
				}
				call := b.call(addBody, b.task(t, wid, addBody, start.ID))
				if tc.unknown {
					call = b.call(addBody)
					call.Parent = string(start.ID)
					b.agent.undescribed = &transport.UnreachableError{Agent: "calculator"}
				}
				_, _ = b.Exchange(t.Context(), call)
				synctest.Wait()
				tokens := b.tokensOf(t, wid)
				at := slices.IndexFunc(tokens, func(c ect.Claims) bool { return c.Act == ect.ActError })
				if at < 0 {
					t.Fatalf("no error among %v", acts(tokens))
				}
				failed := tokens[at]
				action := ect.ActTranslate
				if tc.unknown {
					action = ect.ActIntent
				}
				request := tokens[slices.IndexFunc(tokens, func(c ect.Claims) bool { return c.Act == action })]
				severity, _ := failed.Ext.String(ect.ExtSeverity)
				kind, _ := failed.Ext.String(ect.ExtErrorType)
				upstream, listed := failed.Ext.Strings(ect.ExtUpstreamErrors)
				of := "null"
				if at := slices.IndexFunc(tokens, func(c ect.Claims) bool { return c.Act == ect.ActCheckpoint }); at >= 0 {
					of = `"` + string(tokens[at].ID) + `"`
				}
				if severity != tc.severity || kind != tc.kind || (of == "null") != tc.unknown || string(failed.Ext[ect.ExtCheckpointID]) != of || !listed || len(upstream) != tc.upstream || !slices.Equal(failed.Parents, []ect.ID{request.ID}) {
					t.Errorf("the error is %s, %s, checkpoint %s, upstream %v, parents %v", severity, kind, failed.Ext[ect.ExtCheckpointID], upstream, failed.Parents)
				}
				var reasons []string
				for _, c := range tokens {
					if reason, _ := c.Ext.String(ect.ExtEscalation); c.Act == ect.ActEscalate && slices.Equal(c.Parents, []ect.ID{failed.ID}) {
						reasons = append(reasons, reason)
					}
				}
				slices.Sort(reasons)
				if !slices.Equal(reasons, tc.reasons) || len(posted) != len(tc.reasons) || len(posted) > 0 && posted[0].Work != wid {
					t.Fatalf("humans are called for %v, posted %+v", reasons, posted)
				}
				want := workflow.Failed
				if len(tc.reasons) > 0 {
					want = workflow.Escalated
				}
				if r := b.report(t, wid); len(r.Steps) != 1 || r.Steps[0].State != want || len(r.Steps[0].Errors) == 0 {
					t.Errorf("the report is %+v", r)
				}
				answer, _ := b.Exchange(t.Context(), b.call(addBody, b.source(t, addBody, nil)))
				if len(answer.Evidence) > 0 && slices.Contains(acts(b.tokensOf(t, claims(t, answer.Evidence[0]).Workflow)), ect.ActError) {
					t.Error("an error of a workflow without a start")
				}
			})
		})
	}
}

// TestAttack_WorkflowsOfOthers: an identity that is no member sees nothing of a workflow and completes nothing;
// a member that did not begin it does not complete it; a start that another identity sent begins nothing; and
// an anonymous caller begins none.
func TestAttack_WorkflowsOfOthers(t *testing.T) {
	t.Parallel()
	b := newFixture(t, gateway.Settings{}, policy.Rules{Open: true})
	wid, start := b.begin(t)
	workflows := b.Parts().Workflows
	outsider := ecttest.NewParty(t, "spiffe://example.com/outsider")
	if _, err := workflows.Report(t.Context(), wid, outsider.ID); problem.From(err).Status != 404 {
		t.Errorf("an outsider reads: %v", err)
	}
	if _, _, err := workflows.Complete(t.Context(), identity.Caller{Peer: outsider.Peer()}, "", wid, ""); problem.From(err).Status != 404 {
		t.Errorf("an outsider completes: %v", err)
	}
	if _, err := b.Exchange(t.Context(), b.call(addBody, b.task(t, wid, addBody, start.ID))); err != nil {
		t.Fatal(err)
	}
	if _, _, err := workflows.Complete(t.Context(), identity.Caller{Peer: b.server.Peer()}, "", wid, ""); problem.From(err).Status != 403 {
		t.Errorf("the agent, a member, completes: %v", err)
	}
	anonymous := identity.Caller{Peer: outsider.Peer(), Anonymous: true}
	if _, _, err := workflows.Begin(t.Context(), anonymous, "", work.Plan{}); problem.From(err).Status != 403 {
		t.Errorf("an anonymous caller begins: %v", err)
	}
	stolen := string(ect.NewID())
	ext := ect.Ext{}
	ext.SetString(ect.ExtWorkflowID, stolen)
	token, err := b.server.Signer(t, func() time.Time { return b.now() }).Sign(ect.Claims{Audience: []string{string(b.self.ID)}, Workflow: stolen, Act: ect.ActWorkflowStart, Ext: ext})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := workflows.Take(t.Context(), identity.Caller{Peer: b.caller.Peer()}, "", token.Compact()); err == nil {
		t.Error("a start of another identity was taken")
	}
	if _, started, err := workflows.Started(t.Context(), stolen); started || err != nil {
		t.Errorf("it is on record: %v, %v", started, err)
	}
}

// TestWorkflow_GraphRules: a task whose parent is unknown, younger than it by more than half a minute, or of
// another workflow is taken and counted, refused, or not looked at, as the operator says; a parent that came
// along is known. Its own id, used by another token of the workflow, is no other's id.
func TestWorkflow_GraphRules(t *testing.T) {
	t.Parallel()
	for rule, refused := range map[policy.GraphRule]bool{"": false, policy.GraphOff: false, policy.GraphWarn: false, policy.GraphRefuse: true} {
		b := newFixture(t, gateway.Settings{Constraints: policy.Constraints{Graph: rule}}, policy.Rules{Open: true})
		wid, other := string(ect.NewID()), string(ect.NewID())
		sign := func(wid string, id ect.ID, at time.Time, parents ...ect.ID) string {
			t.Helper()
			token, err := b.caller.Signer(t, func() time.Time { return at }).Sign(ect.Claims{
				ID: id, Audience: []string{string(b.self.ID)}, Workflow: wid, Act: "send_task", Parents: parents, OutputHash: ect.Hash([]byte(addBody)),
			})
			if err != nil {
				t.Fatal(err)
			}
			return token.Compact()
		}
		root, elsewhere := sign(wid, "", b.now()), sign(other, "", b.now())
		for _, token := range []string{root, elsewhere} {
			if _, err := b.Exchange(t.Context(), b.call(addBody, token)); err != nil {
				t.Fatal(err)
			}
		}
		known := claims(t, root).ID
		for name, tc := range map[string]struct {
			token  string
			reason ect.Reason
		}{
			"an unknown parent":    {sign(wid, "", b.now(), known, ect.NewID()), ect.ReasonGraphParent},
			"a younger parent":     {sign(wid, "", b.now().Add(-time.Minute), known), ect.ReasonGraphTime},
			"of another workflow":  {sign(wid, "", b.now(), known, claims(t, elsewhere).ID), ect.ReasonGraphWorkflow},
			"a parent that is old": {sign(wid, "", b.now(), known), ""},
		} {
			_, err := b.Exchange(t.Context(), b.call(addBody, tc.token))
			invalid, ok := errors.AsType[*ect.InvalidError](err)
			if refused && tc.reason != "" {
				if !ok || invalid.Reason != tc.reason {
					t.Errorf("%q, %s: got %v, expected %s", rule, name, err, tc.reason)
				}
			} else if err != nil {
				t.Errorf("%q, %s: got %v, expected it to be taken", rule, name, err)
			}
		}
		along := sign(wid, "", b.now(), known)
		if _, err := b.Exchange(t.Context(), b.call(addBody, sign(wid, "", b.now(), claims(t, along).ID), along)); err != nil {
			t.Errorf("%q: a parent that came along: %v", rule, err)
		}
	}
}

// TestWorkflow_NamespaceOfTheAgent: an agent whose capability document lists namespaces without atd gets no message of a workflow with a start, and the
// failure says why; outside of a workflow, and where a document lists none, all is as before (AEPB, Capability Document Format).
func TestWorkflow_NamespaceOfTheAgent(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		namespaces []string
		refused    bool
	}{"not said": {nil, false}, "without atd": {[]string{"hitl"}, true}, "none": {[]string{}, true}, "with atd": {[]string{"hitl", "atd"}, false}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newFixture(t, gateway.Settings{}, policy.Rules{Open: true}, func(d *gateway.Deps) {
				agent, _ := d.Directory.Find("calculator")
				agent.Namespaces = tc.namespaces
				if err := d.Directory.Put(agent); err != nil {
					t.Fatal(err)
				}
			})
			_, start := b.begin(t)
			call := b.call(addBody)
			call.Parent = string(start.ID)
			_, err := b.Exchange(t.Context(), call)
			var path *problem.NoPathError
			if refused := errors.As(err, &path) && strings.Contains(path.Detail, "atd"); refused != tc.refused || !refused && err != nil {
				t.Errorf("in a workflow: %v", err)
			}
			if tc.refused && len(b.agent.bodies) != 0 {
				t.Error("the agent got the message")
			}
			if _, err := b.Exchange(t.Context(), b.call(addBody)); err != nil {
				t.Errorf("outside of a workflow: %v", err)
			}
		})
	}
}
