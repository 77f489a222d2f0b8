package dag_test

import (
	"cmp"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/ect/dag"
)

const agentA, agentB = ect.Identity("spiffe://example.com/a"), ect.Identity("spiffe://example.com/b")

// task is a node of workflow w.
func task(id ect.ID, at int64, parents ...ect.ID) dag.Node {
	return dag.Node{ID: id, Workflow: "w", Issuer: agentA, Act: "work", IssuedAt: at, Parents: parents, Leg: dag.Request}
}

func of(issuer ect.Identity, n dag.Node) dag.Node { n.Issuer = issuer; return n }

func in(workflow string, n dag.Node) dag.Node { n.Workflow = workflow; return n }

func list(ids ...ect.ID) []ect.ID { return ids }

func TestGraph_OrderAndRelations(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		nodes                                                []dag.Node
		order, children, parents, descendants, cycle, absent []ect.ID // children, parents and descendants: of b
	}{
		"empty": {},
		"a diamond": {
			nodes: []dag.Node{task("d", 4, "b", "c"), task("c", 3, "a"), task("b", 2, "a"), task("a", 1)},
			order: list("a", "b", "c", "d"), children: list("d"), parents: list("a"), descendants: list("d"),
		},
		"parents before children, whatever the clocks say": {
			nodes: []dag.Node{task("a", 30), task("b", 20, "a"), task("c", 10, "b")},
			order: list("a", "b", "c"), children: list("c"), parents: list("a"), descendants: list("c"),
		},
		"a missing parent": {
			nodes: []dag.Node{task("b", 1, "x", "a"), task("c", 2, "b", "x")},
			order: list("b", "c"), children: list("c"), descendants: list("c"), absent: list("a", "x"),
		},
		"a parent of another workflow": {
			nodes: []dag.Node{in("v", task("a", 1)), task("b", 2, "a")},
			order: list("b"), absent: list("a"),
		},
		"a parent that is named twice": {
			nodes: []dag.Node{task("b", 1), task("c", 2, "b", "b")},
			order: list("b", "c"), children: list("c"), descendants: list("c"),
		},
		"a node that is given twice": {
			nodes: []dag.Node{task("b", 1), task("b", 1), task("c", 2, "b"), task("c", 2, "b")},
			order: list("b", "c"), children: list("c"), descendants: list("c"),
		},
		"two issuers of one id": {
			nodes: []dag.Node{task("a", 1), task("x", 1), task("b", 2, "a"), of(agentB, task("b", 3, "x")), task("c", 4, "b")},
			order: list("a", "x", "b", "c"), children: list("c"), parents: list("a", "x"), descendants: list("c"),
		},
		"its own parent": {
			nodes: []dag.Node{task("a", 1), task("b", 2, "b"), task("c", 3, "b")},
			order: list("a", "b", "c"), children: list("b", "c"), parents: list("b"), descendants: list("c"), cycle: list("b"),
		},
		"a cycle of two": {
			nodes: []dag.Node{task("a", 1, "b"), task("b", 2, "a")},
			order: list("a", "b"), children: list("a"), parents: list("a"), descendants: list("a"), cycle: list("b", "a"),
		},
		"a long cycle between a root and a leaf": {
			nodes: []dag.Node{task("r", 0), task("a", 1, "r", "c"), task("b", 2, "a"), task("c", 3, "b"), task("l", 4, "c")},
			order: list("r", "a", "b", "c", "l"), children: list("c"), parents: list("a"), descendants: list("c", "a", "l"), cycle: list("b", "c", "a"),
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g := dag.Build("w", tc.nodes)
			for what, pair := range map[string][2][]ect.ID{
				"order": {tc.order, g.Order()}, "children": {tc.children, g.Children("b")}, "parents": {tc.parents, g.Parents("b")},
				"descendants": {tc.descendants, g.Descendants("b")}, "cycle": {tc.cycle, g.Cycle()}, "missing": {tc.absent, g.Missing()},
			} {
				if !slices.Equal(pair[0], pair[1]) {
					t.Errorf("%s: got %v, want %v", what, pair[1], pair[0])
				}
			}
		})
	}
}

func TestGraph_Find(t *testing.T) {
	t.Parallel()
	given := []dag.Node{of(agentB, task("a", 2)), task("a", 1), in("v", task("a", 0))}
	g := dag.Build("w", given)
	if diff := gocmp.Diff([]dag.Node{task("a", 1), of(agentB, task("a", 2))}, g.Find("a")); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	g.Find("a")[0].ID = "changed"
	given[0].ID = "changed"
	if g.Find("a")[0].ID != "a" || g.Find("a")[1].ID != "a" || g.Find("b") != nil || g.Workflow() != "w" {
		t.Errorf("got %v of %s", g.Find("a"), g.Workflow())
	}
}

func TestGraph_TooManyNodesAreIncomplete(t *testing.T) {
	t.Parallel()
	nodes := randomNodes(rand.New(rand.NewPCG(1, 1)), dag.MaxNodes+1, dag.MaxNodes)
	if g := dag.Build("w", nodes[:dag.MaxNodes]); g.Incomplete() {
		t.Error("MaxNodes nodes: got an incomplete graph")
	}
	g := dag.Build("w", nodes)
	if findings := dag.Check(g); !g.Incomplete() || !slices.ContainsFunc(findings, func(f dag.Finding) bool { return f.Rule == dag.RuleBounded }) {
		t.Errorf("MaxNodes+1 nodes: got incomplete %v and %v", g.Incomplete(), findings)
	}
}

// randomNodes makes nodes of few ids and times, so that there are cycles, namesakes, and
// parents that are missing or of another workflow.
func randomNodes(r *rand.Rand, n, ids int) []dag.Node {
	id := func() ect.ID { return ect.ID(fmt.Sprint("t", r.IntN(ids))) }
	nodes := make([]dag.Node, n)
	for i := range nodes {
		nodes[i] = in([]string{"w", "w", "w", "v"}[r.IntN(4)], of([]ect.Identity{agentA, agentB}[r.IntN(2)], task(id(), int64(r.IntN(4))*dag.Tolerance)))
		for range r.IntN(3) {
			nodes[i].Parents = append(nodes[i].Parents, id())
		}
	}
	return nodes
}

// twin answers the questions of a graph from its nodes, by their definitions.
type twin []dag.Node

func (w twin) ids() []ect.ID {
	var ids []ect.ID
	for _, n := range w {
		if !slices.Contains(ids, n.ID) {
			ids = append(ids, n.ID)
		}
	}
	return ids
}

// names reports whether a token with the id names the parent.
func (w twin) names(id, parent ect.ID) bool {
	return slices.ContainsFunc(w, func(n dag.Node) bool { return n.ID == id && slices.Contains(n.Parents, parent) })
}

// below finds the ids that can be reached from one by at least one step.
func (w twin) below(from ect.ID) map[ect.ID]bool {
	found := map[ect.ID]bool{}
	for range len(w) + 1 {
		for _, id := range w.ids() {
			for _, parent := range w.ids() {
				if w.names(id, parent) && (parent == from || found[parent]) {
					found[id] = true
				}
			}
		}
	}
	return found
}

func TestGraph_Twin(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(7, 7))
	cycles := 0
	for range 400 {
		nodes := randomNodes(r, r.IntN(9), 1+r.IntN(12))
		w := twin(slices.DeleteFunc(slices.Clone(nodes), func(n dag.Node) bool { return n.Workflow != "w" }))
		g := dag.Build("w", nodes)
		order, cyclic := g.Order(), map[ect.ID]bool{}
		absent := map[ect.ID]bool{}
		for _, n := range w {
			for _, parent := range n.Parents {
				if !slices.Contains(w.ids(), parent) {
					absent[parent] = true
				}
			}
		}
		equalSets(t, "missing", slices.Sorted(maps.Keys(absent)), g.Missing())
		equalSets(t, "order", w.ids(), order)
		for _, id := range w.ids() {
			below := w.below(id)
			cyclic[id] = below[id]
			delete(below, id)
			equalSets(t, "descendants", slices.Collect(maps.Keys(below)), g.Descendants(id))
			var children []ect.ID
			for _, child := range w.ids() {
				if w.names(child, id) {
					children = append(children, child)
				}
			}
			equalSets(t, "children", children, g.Children(id))
			var above []ect.ID
			for _, other := range w.ids() {
				if other != id && w.below(other)[id] {
					above = append(above, other)
				}
			}
			equalSets(t, "ancestors", above, g.Ancestors(id))
		}
		for _, id := range w.ids() {
			after := slices.Index(order, id)
			for parent, onCycle := range cyclic {
				if w.names(id, parent) && !onCycle && !cyclic[id] && !slices.ContainsFunc(w.ids(), func(c ect.ID) bool { return cyclic[c] && w.below(c)[parent] }) &&
					slices.Index(order, parent) > after {
					t.Errorf("%s stands before its parent %s in %v", id, parent, order)
				}
			}
		}
		cycles += judgeCycle(t, w, g, slices.Contains(slices.Collect(maps.Values(cyclic)), true))
		shuffled := slices.Clone(nodes)
		r.Shuffle(len(shuffled), func(i, j int) { shuffled[i], shuffled[j] = shuffled[j], shuffled[i] })
		if other := dag.Build("w", shuffled); !slices.Equal(other.Order(), order) || !slices.Equal(other.Cycle(), g.Cycle()) {
			t.Error("the graph depends on the order of its nodes")
		}
	}
	if cycles < 50 {
		t.Errorf("only %d graphs have a cycle", cycles)
	}
}

func judgeCycle(t *testing.T, w twin, g dag.Graph, expected bool) int {
	t.Helper()
	cycle := g.Cycle()
	if (len(cycle) > 0) != expected {
		t.Errorf("got cycle %v, want one: %v", cycle, expected)
	}
	for i, id := range cycle {
		if !w.names(cycle[(i+1)%len(cycle)], id) {
			t.Errorf("%v: %s is no parent of the next", cycle, id)
		}
	}
	return min(len(cycle), 1)
}

func equalSets(t *testing.T, what string, want, got []ect.ID) {
	t.Helper()
	sorted := func(ids []ect.ID) []ect.ID { return slices.SortedFunc(slices.Values(ids), cmp.Compare) }
	if !slices.Equal(sorted(want), sorted(got)) {
		t.Errorf("%s: got %v, want %v", what, got, want)
	}
}

// Hostile graphs at the bound cost time that is linear in their edges: every node names
// the same parents, every id has many issuers, or all nodes are one chain or one cycle.
func TestGraph_HostileGraphsEnd(t *testing.T) {
	t.Parallel()
	const width = 100
	shapes := map[string]func(i int) dag.Node{
		"namesakes": func(i int) dag.Node {
			n := of(ect.Identity(fmt.Sprint("i", i)), task(ect.ID(fmt.Sprint("t", i%width)), int64(i)))
			for p := range width {
				n.Parents = append(n.Parents, ect.ID(fmt.Sprint("t", p)))
			}
			return n
		},
		"a chain": func(i int) dag.Node {
			return task(ect.ID(fmt.Sprint("t", i)), int64(i), ect.ID(fmt.Sprint("t", i-1)))
		},
		"a cycle": func(i int) dag.Node {
			return task(ect.ID(fmt.Sprint("t", i)), 1, ect.ID(fmt.Sprint("t", (i+1)%dag.MaxNodes)))
		},
	}
	for name, shape := range shapes {
		nodes := make([]dag.Node, dag.MaxNodes)
		for i := range nodes {
			nodes[i] = shape(i)
		}
		began := time.Now()
		g := dag.Build("w", nodes)
		g.Descendants("t1")
		g.Order()
		g.Cycle()
		g.Missing()
		findings := dag.Check(g)
		if took := time.Since(began); took > 5*time.Second || len(findings) > dag.MaxFindings {
			t.Errorf("%s: %d findings after %s", name, len(findings), took)
		}
	}
}

func BenchmarkBuild_MaxNodes(b *testing.B) {
	nodes := make([]dag.Node, dag.MaxNodes)
	for i := range nodes {
		nodes[i] = task(ect.NewID(), int64(i))
		for p := 1; p <= min(i, 2); p++ {
			nodes[i].Parents = append(nodes[i].Parents, nodes[i-p].ID)
		}
	}
	b.ReportAllocs()
	for b.Loop() {
		if g := dag.Build("w", nodes); g.Cycle() != nil || len(dag.Check(g)) > 0 {
			b.Fatal("a valid graph was refused")
		}
	}
}
