package gateway_test

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/ect/identity"
	"github.com/aepb/aepb-gateway/gateway"
	"github.com/aepb/aepb-gateway/gateway/problem"
	work "github.com/aepb/aepb-gateway/gateway/workflow"
	"github.com/aepb/aepb-gateway/lifecycle/workflow"
	"github.com/aepb/aepb-gateway/policy"
)

// addsTwice is the plan of two additions one after the other.
const addsTwice = `{"wf_id":"adds","description":"adds twice","nodes":[{"id":"then","label":"add","agent":"calculator"},{"id":"first","label":"sum","act":"add"}],"edges":[{"from":"first","to":"then"}]}`

// planned stores the plan and begins a workflow that follows it.
func (b *fixture) planned(t *testing.T) (wid string, start ect.Claims) {
	t.Helper()
	if _, err := b.Parts().Descriptors.Put(t.Context(), []byte(addsTwice), "ann"); err != nil {
		t.Fatal(err)
	}
	wid, compact, err := b.Parts().Workflows.Begin(t.Context(), identity.Caller{Peer: b.caller.Peer()}, "", work.Plan{Descriptor: "adds"})
	if err != nil {
		t.Fatal(err)
	}
	return wid, claims(t, compact)
}

// TestPlan_Followed: the start names the descriptor, each call of a caller without tokens begins its node in turn, what
// is not planned is listed, and the workflow has not ended while a node is pending.
func TestPlan_Followed(t *testing.T) {
	t.Parallel()
	b := newFixture(t, gateway.Settings{}, policy.Rules{Open: true})
	wid, start := b.planned(t)
	name, _ := start.Ext.String(ect.ExtDescriptor)
	hash, _ := start.Ext.String(ect.ExtPlanHash)
	description, _ := start.Ext.String(ect.ExtATDDescription)
	if name != "adds" || hash != ect.Hash([]byte(addsTwice)) || string(start.Ext[ect.ExtPlanVersion]) != "1" || string(start.Ext[ect.ExtNodeCount]) != "2" || description != "adds twice" {
		t.Errorf("the start says %s", start.Ext)
	}
	nodes := func() (out []string) {
		t.Helper()
		for _, s := range b.report(t, wid).Steps {
			out = append(out, s.Planned+":"+string(s.State))
		}
		return out
	}
	if got := nodes(); !slices.Equal(got, []string{"first:pending", "then:pending"}) {
		t.Errorf("at first: %q", got)
	}
	for i, want := range []string{"first:done then:pending", "first:done then:done", "first:done then:done :done"} {
		call := b.call(addBody)
		call.Parent = string(start.ID)
		if _, err := b.Exchange(t.Context(), call); err != nil {
			t.Fatal(err)
		}
		b.setNow(b.now().Add(time.Second))
		if got := strings.Join(nodes(), " "); got != want {
			t.Errorf("after call %d: %s, want %s", i+1, got, want)
		}
		r := b.report(t, wid)
		if running := r.Status == string(workflow.Running); running != (i == 0) || r.Descriptor != "adds" || r.Version != 1 || (len(r.Unplanned) == 1) != (i == 2) {
			t.Errorf("after call %d: %+v", i+1, r)
		}
	}
	intent := b.tokensOf(t, wid)[1]
	tool, _ := intent.Ext.String(ect.ExtWork)
	agent, _ := intent.Ext.String(ect.ExtWorkAgent)
	if intent.Act != ect.ActIntent || tool != "add" || agent != string(b.server.ID) {
		t.Errorf("the intent is %s %s", intent.Act, intent.Ext)
	}
	d, bound, err := b.Parts().Workflows.Descriptor(t.Context(), wid)
	if err != nil || !bound || d.Name() != "adds" || len(d.Waves()) != 2 {
		t.Errorf("its descriptor: %v, %v, %v", d.Name(), bound, err)
	}
	other, _ := b.begin(t)
	if _, bound, err := b.Parts().Workflows.Descriptor(t.Context(), other); err != nil || bound {
		t.Errorf("a workflow without one: %v, %v", bound, err)
	}
	if r := b.report(t, other); r.Descriptor != "" || r.Unplanned != nil {
		t.Errorf("a workflow without one: %+v", r)
	}
}

// TestPlan_Versions: a workflow stays with the version with which it began.
func TestPlan_Versions(t *testing.T) {
	t.Parallel()
	b := newFixture(t, gateway.Settings{}, policy.Rules{Open: true})
	wid, _ := b.planned(t)
	if _, err := b.Parts().Descriptors.Put(t.Context(), []byte(`{"wf_id":"adds","nodes":[{"id":"only","label":"add"}]}`), "ann"); err != nil {
		t.Fatal(err)
	}
	caller := identity.Caller{Peer: b.caller.Peer()}
	for _, tc := range []struct {
		plan  work.Plan
		nodes int
	}{{work.Plan{Descriptor: "adds"}, 1}, {work.Plan{Descriptor: "adds", Version: 1}, 2}, {work.Plan{Descriptor: "adds", Version: 1, Steps: 2}, 2}} {
		began, _, err := b.Parts().Workflows.Begin(t.Context(), caller, "", tc.plan)
		if err != nil {
			t.Fatal(err)
		}
		if r := b.report(t, began); len(r.Steps) != tc.nodes || r.Expected != tc.nodes {
			t.Errorf("%+v: %+v", tc.plan, r)
		}
	}
	if r := b.report(t, wid); len(r.Steps) != 2 || r.Version != 1 {
		t.Errorf("begun before: %+v", r)
	}
	for _, tc := range []struct {
		plan work.Plan
		code string
	}{
		{work.Plan{Descriptor: "others"}, problem.CodeNotFound},
		{work.Plan{Descriptor: "adds", Version: 3}, problem.CodeNotFound},
		{work.Plan{Descriptor: "adds", Version: -1}, problem.CodeNotFound},
		{work.Plan{Version: 1}, problem.CodeMalformed},
		{work.Plan{Descriptor: "adds", Version: 1, Steps: 3}, problem.CodeMalformed},
	} {
		if _, _, err := b.Parts().Workflows.Begin(t.Context(), caller, "", tc.plan); err == nil || problem.From(err).Code != tc.code {
			t.Errorf("%+v: %v, want %s", tc.plan, err, tc.code)
		}
	}
}

// TestPlan_NamedByItsOwnToken: a caller's own start names its descriptor; an unknown one is refused before it is on record.
func TestPlan_NamedByItsOwnToken(t *testing.T) {
	t.Parallel()
	b := newFixture(t, gateway.Settings{}, policy.Rules{Open: true})
	b.planned(t)
	take := func(ext ect.Ext) (string, error) {
		t.Helper()
		wid := string(ect.NewID())
		ext.SetString(ect.ExtWorkflowID, wid)
		token, err := b.caller.Signer(t, func() time.Time { return b.now() }).Sign(ect.Claims{
			Audience: []string{string(b.self.ID)}, Workflow: wid, Act: ect.ActWorkflowStart, Ext: ext,
		})
		if err != nil {
			t.Fatal(err)
		}
		_, err = b.Parts().Workflows.Take(t.Context(), identity.Caller{Peer: b.caller.Peer()}, "", token.Compact())
		return wid, err
	}
	wid, err := take(ect.Ext{ect.ExtDescriptor: []byte(`"adds"`)})
	if err != nil {
		t.Fatal(err)
	}
	if d, bound, err := b.Parts().Workflows.Descriptor(t.Context(), wid); err != nil || !bound || d.Name() != "adds" {
		t.Errorf("%v, %v", bound, err)
	}
	record, _, _ := b.Parts().Workflows.Started(t.Context(), wid)
	if record.Plan == nil || *record.Plan != (work.Bound{Name: "adds", Version: 1, Hash: ect.Hash([]byte(addsTwice))}) {
		t.Errorf("on record is %+v", record.Plan)
	}
	wid, err = take(ect.Ext{ect.ExtDescriptor: []byte(`"others"`)})
	if _, missing := errors.AsType[*problem.NotFoundError](err); !missing || len(b.tokensOf(t, wid)) != 0 {
		t.Errorf("an unknown descriptor: %v, and %d tokens are on record", err, len(b.tokensOf(t, wid)))
	}
	for claim, ext := range map[string]ect.Ext{
		ect.ExtDescriptor:  {ect.ExtDescriptor: []byte(`7`)},
		ect.ExtPlanVersion: {ect.ExtDescriptor: []byte(`"adds"`), ect.ExtPlanVersion: []byte(`"1"`)},
		ect.ExtPlanHash:    {ect.ExtDescriptor: []byte(`"adds"`), ect.ExtPlanHash: []byte(`"other"`)},
	} {
		_, err := take(ext)
		if invalid, ok := errors.AsType[*ect.InvalidError](err); !ok || invalid.Claim != claim {
			t.Errorf("%s: %v", claim, err)
		}
	}
}
