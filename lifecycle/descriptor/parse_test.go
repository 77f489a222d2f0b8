package descriptor_test

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/aepb/aepb-gateway/lifecycle/descriptor"
	"github.com/aepb/aepb-gateway/lifecycle/workflow"
)

// TestParse_DraftsExample: the example of the draft, byte for byte.
func TestParse_DraftsExample(t *testing.T) {
	t.Parallel()
	raw, err := os.ReadFile("testdata/draft.json")
	if err != nil {
		t.Fatal(err)
	}
	d, err := descriptor.Parse(raw)
	if err != nil {
		t.Fatal(err)
	}
	want := []descriptor.Node{
		{ID: "n1", Label: "validate-config", Act: "validate-config", Reversible: true, Severity: workflow.SeverityError, Hints: descriptor.Hints{Priority: "normal", Timeout: 30}},
		{
			ID: "n2", Label: "update-bgp-peer", Act: "update-bgp-peer", Reversible: true, Gated: true, Role: "approver", Severity: workflow.SeverityError,
			Hints: descriptor.Hints{Priority: "critical", Timeout: 120}, After: []string{"n1"},
		},
		{ID: "n3", Label: "verify-session", Act: "verify-session", Severity: workflow.SeverityError, Hints: descriptor.Hints{Priority: "high", Timeout: 60}, After: []string{"n2"}},
	}
	if diff := cmp.Diff(want, d.Order()); diff != "" || d.Name() != "bgp-failover-v2" || d.Description() != "BGP peer failover with validation" {
		t.Errorf("%s %q: %s", d.Name(), d.Description(), diff)
	}
	if n, ok := d.Node("n2"); !ok || n.TimeoutAfter().String() != "2m0s" {
		t.Errorf("node n2: %+v", n)
	}
	if _, ok := d.Node("n4"); ok {
		t.Error("there is a node n4")
	}
}

// TestParse_OwnMembers: what a node may say beside the draft's members.
func TestParse_OwnMembers(t *testing.T) {
	t.Parallel()
	d, err := descriptor.Parse([]byte(`{"wf_id":"w","nodes":[
		{"id":"a","label":"refund","act":"create_refund","agent":"billing","hitl_required":true,"required_role":"operator:alice","severity":"critical"},
		{"id":"b","label":"tell","agent":"spiffe://example.com/mail"},{"id":"c","label":"any"}],"edges":[{"from":"a","to":"c"},{"from":"b","to":"c"}]}`))
	if err != nil {
		t.Fatal(err)
	}
	n, _ := d.Node("a")
	if n.Act != "create_refund" || n.Agent != "billing" || n.Role != "operator:alice" || n.Severity != workflow.SeverityCritical {
		t.Errorf("node a: %+v", n)
	}
	want := []workflow.Planned{
		{ID: "a", Act: "create_refund", Agents: []string{"id of billing"}},
		{ID: "b", Act: "tell", Agents: []string{"spiffe://example.com/mail"}},
		{ID: "c", Act: "any", After: []string{"a", "b"}},
	}
	if diff := cmp.Diff(want, d.Planned(func(agent string) []string {
		if agent != "billing" {
			return nil
		}
		return []string{"id of " + agent}
	})); diff != "" {
		t.Error(diff)
	}
}

// TestParse_Refusals: each mistake is refused, and named.
func TestParse_Refusals(t *testing.T) {
	t.Parallel()
	node := func(members string) string { return `{"wf_id":"w","nodes":[{"id":"a","label":"x"` + members + `}]}` }
	graph := func(edges string) string {
		return `{"wf_id":"w","nodes":[{"id":"a","label":"x"},{"id":"b","label":"y"},{"id":"c","label":"z"}],"edges":[` + edges + `]}`
	}
	for name, tc := range map[string]struct{ text, want string }{
		"no JSON":                      {`no`, "not a JSON object"},
		"no object":                    {`[]`, "not a JSON object"},
		"more than an object":          {node("") + "{}", "not a JSON object"},
		"no name":                      {`{"nodes":[{"id":"a","label":"x"}]}`, "wf_id"},
		"a name with a slash":          {`{"wf_id":"a/b","nodes":[{"id":"a","label":"x"}]}`, "wf_id"},
		"a name that is a path":        {`{"wf_id":"..","nodes":[{"id":"a","label":"x"}]}`, "wf_id"},
		"a long name":                  {`{"wf_id":"` + strings.Repeat("w", 129) + `","nodes":[{"id":"a","label":"x"}]}`, "wf_id"},
		"a long description":           {`{"wf_id":"w","description":"` + strings.Repeat("w", 513) + `","nodes":[{"id":"a","label":"x"}]}`, "description"},
		"an unknown member":            {`{"wf_id":"w","node":[]}`, `"/node": an unknown member`},
		"an unknown member of a node":  {node(`,"hitl":true`), `"/nodes/0/hitl": an unknown member`},
		"a member in capitals":         {node(`,"Agent":"x"`), `"/nodes/0/Agent": an unknown member`},
		"an unknown hint":              {node(`,"resource_hints":{"cpu":1}`), `"/nodes/0/resource_hints/cpu": an unknown member`},
		"an unknown member of an edge": {graph(`{"from":"a","to":"b","if":"x"}`), `"/edges/0/if": an unknown member`},
		"a member twice":               {node(`,"id":"b"`), `"/nodes/0/id": a member that is given twice`},
		"a number as text":             {node(`,"hitl_required":"true"`), `"/nodes/0/hitl_required": a value that is not JSON, or of another type`},
		"half a second":                {node(`,"resource_hints":{"timeout_s":0.5}`), "of another type"},
		"a negative timeout":           {node(`,"resource_hints":{"timeout_s":-1}`), `node "a": timeout_s`},
		"nodes that are no list":       {`{"wf_id":"w","nodes":{}}`, "nodes is not a list"},
		"no nodes":                     {`{"wf_id":"w","nodes":[]}`, "no nodes"},
		"no id":                        {`{"wf_id":"w","nodes":[{"label":"x"}]}`, "node 1 of the list: id"},
		"an id of control characters":  {`{"wf_id":"w","nodes":[{"id":"\u001b[1m","label":"x"}]}`, "node 1 of the list: id"},
		"no label":                     {`{"wf_id":"w","nodes":[{"id":"a"}]}`, `node "a": label`},
		"a long act":                   {node(`,"act":"` + strings.Repeat("x", 129) + `"`), `node "a": act`},
		"an act that begins no work":   {node(`,"act":"aepb:translate"`), `node "a": act "aepb:translate" annotates`},
		"a long agent":                 {node(`,"agent":"` + strings.Repeat("x", 129) + `"`), `node "a": agent`},
		"an unknown priority":          {node(`,"resource_hints":{"priority":"urgent"}`), `priority "urgent": expected critical, high, normal or low`},
		"an unknown severity":          {node(`,"severity":"grave"`), `"/nodes/0/severity"`},
		"a role without a gate":        {node(`,"required_role":"approver"`), `node "a": it has a required_role and no gate`},
		"an unknown role":              {node(`,"hitl_required":true,"required_role":"king"`), `required_role "king": expected approver, operator, or operator:NAME`},
		"an approver by name":          {node(`,"hitl_required":true,"required_role":"approver:bob"`), `required_role "approver:bob"`},
		"an operator without name":     {node(`,"hitl_required":true,"required_role":"operator:"`), `required_role "operator:"`},
		"two nodes of one id":          {`{"wf_id":"w","nodes":[{"id":"a","label":"x"},{"id":"a","label":"y"}]}`, `node "a": two nodes have this id`},
		"an unknown node":              {graph(`{"from":"a","to":"q"}`), `edge from "a" to "q": one of them is not the id of a node`},
		"an edge from nothing":         {graph(`{"to":"a"}`), `edge from "" to "a"`},
		"a self edge":                  {graph(`{"from":"b","to":"b"}`), `edge from "b" to "b": a node cannot wait for itself`},
		"an edge twice":                {graph(`{"from":"a","to":"b"},{"from":"a","to":"b"}`), `edge from "a" to "b": it is given twice`},
		"a cycle":                      {graph(`{"from":"b","to":"c"},{"from":"c","to":"b"}`), "c -> b -> c"},
	} {
		d, err := descriptor.Parse([]byte(tc.text))
		if _, typed := errors.AsType[*descriptor.InvalidError](err); !typed || !strings.Contains(err.Error(), tc.want) || d.Name() != "" {
			t.Errorf("%s: %v, want one that says %s", name, err, tc.want)
		}
	}
}

// TestParse_HostileText: a hostile descriptor is refused before it costs much.
func TestParse_HostileText(t *testing.T) { //nolint:paralleltest // it counts allocations
	many := func(n int) string {
		var nodes []string
		for i := range n {
			nodes = append(nodes, fmt.Sprintf(`{"id":"%d","label":"x"}`, i))
		}
		return `{"wf_id":"w","nodes":[` + strings.Join(nodes, ",") + `]`
	}
	edges := `,"edges":[` + strings.TrimSuffix(strings.Repeat(`{"from":"0","to":"1"},`, 10_000), ",") + `]}`
	for name, tc := range map[string]struct {
		text, want string
		most       float64 // allocations
	}{
		"10,000 nodes":   {many(10_000) + "}", "more than 256 nodes", 5_000},
		"100,000 nodes":  {`{"wf_id":"w","nodes":[` + strings.Repeat("{},", 80_000) + "{}]}", "more than 256 nodes", 5_000},
		"10,000 edges":   {many(2) + edges, "more than 4096 edges", 40_000},
		"a long text":    {strings.Repeat(" ", descriptor.MaxText+1), "too long", 100},
		"lists in lists": {`{"wf_id":` + strings.Repeat("[", 100_000), "another type", 1_000},
	} {
		var err error
		allocations := testing.AllocsPerRun(1, func() { _, err = descriptor.Parse([]byte(tc.text)) })
		if _, typed := errors.AsType[*descriptor.InvalidError](err); !typed || !strings.Contains(err.Error(), tc.want) || allocations > tc.most {
			t.Errorf("%s: %v after %v allocations, want %s", name, err, allocations, tc.want)
		}
	}
	if d, err := descriptor.Parse([]byte(many(workflow.MaxPlanned) + "}")); err != nil || len(d.Order()) != workflow.MaxPlanned {
		t.Errorf("the largest one: %v", err)
	}
}
