package dag

import (
	"cmp"
	"maps"
	"slices"

	"github.com/aepb/aepb-gateway/ect"
)

// MaxNodes bounds the tokens of a [Graph] (ECT draft, "DAG Validation").
const MaxNodes = 10_000

// Graph is an immutable index over the tokens of one workflow. Its edges follow par, and
// stay within the workflow. Several issuers may have used one id: a token that names the
// id as parent does not say whose token it means, so the id stands for all of them: they
// share the children, and the parents of the id are those of all of them.
// The zero value is an empty graph. A Graph is safe for concurrent use.
type Graph struct {
	workflow   string
	incomplete bool
	nodes      []Node
	at         map[ect.ID]int // of an id in vertices
	vertices   []vertex
	order      []int // of vertices, parents first
	sorted     int   // how many of order come before the first vertex that is on or below a cycle
	elsewhere  map[ect.ID]bool
}

// vertex is an id with the tokens that have it, which are nodes[from:to].
type vertex struct {
	from, to          int
	parents, children []int
}

// Build makes the graph of the nodes in a workflow; empty: of those without any. Nodes of
// other workflows are remembered only for [Check], which reports parents among them. A
// node that is given twice counts once. Of more than MaxNodes nodes the first MaxNodes
// are taken, and the graph is incomplete.
//
// The graph does not depend on the order of the nodes. It takes time and memory that are
// linear in nodes and parents, but for sorting the nodes.
func Build(workflow string, nodes []Node) Graph {
	g := Graph{workflow: workflow, incomplete: len(nodes) > MaxNodes, elsewhere: map[ect.ID]bool{}}
	ours := make([]Node, 0, min(len(nodes), MaxNodes))
	for _, n := range nodes[:cap(ours)] {
		if n.Workflow == workflow {
			ours = append(ours, n)
		} else {
			g.elsewhere[n.ID] = true
		}
	}
	g.place(ours)
	g.connect()
	g.sort()
	return g
}

// place makes a vertex of each id, in the order of the times of the first token with it.
func (g *Graph) place(nodes []Node) {
	type group struct {
		id    ect.ID
		first int64
		nodes int
	}
	var groups []group
	g.at = make(map[ect.ID]int, len(nodes))
	groupOf := make([]int, len(nodes))
	for i, n := range nodes {
		at, known := g.at[n.ID]
		if !known {
			at = len(groups)
			g.at[n.ID] = at
			groups = append(groups, group{id: n.ID, first: n.IssuedAt})
		}
		groupOf[i] = at
		groups[at].nodes++
		groups[at].first = min(groups[at].first, n.IssuedAt)
	}
	sorted := make([]int, len(groups))
	for i := range sorted {
		sorted[i] = i
	}
	slices.SortFunc(sorted, func(a, b int) int {
		return cmp.Or(cmp.Compare(groups[a].first, groups[b].first), cmp.Compare(groups[a].id, groups[b].id))
	})
	g.vertices = make([]vertex, len(groups))
	vertexOf := make([]int, len(groups))
	next := 0
	for i, at := range sorted {
		vertexOf[at] = i
		g.at[groups[at].id] = i
		g.vertices[i] = vertex{from: next, to: next}
		next += groups[at].nodes
	}
	g.nodes = make([]Node, len(nodes))
	for i, n := range nodes {
		v := &g.vertices[vertexOf[groupOf[i]]]
		g.nodes[v.to] = n
		v.to++
	}
	for i := range g.vertices {
		if v := &g.vertices[i]; v.to-v.from > 1 {
			slices.SortFunc(g.nodes[v.from:v.to], compare)
			v.to = v.from + len(slices.CompactFunc(g.nodes[v.from:v.to], func(a, b Node) bool { return compare(a, b) == 0 }))
		}
	}
}

// compare orders the nodes of one id in one workflow; 0: they are one token.
func compare(a, b Node) int {
	if c := cmp.Or(cmp.Compare(a.IssuedAt, b.IssuedAt), cmp.Compare(a.Issuer, b.Issuer), cmp.Compare(a.Act, b.Act), cmp.Compare(a.Leg, b.Leg)); c != 0 {
		return c
	}
	return slices.Compare(a.Parents, b.Parents)
}

// connect adds the edges, each once.
func (g *Graph) connect() {
	added := make([]int, len(g.vertices)) // by parent: the last child that it was added to, counted from 1
	for child := range g.vertices {
		v := &g.vertices[child]
		for _, n := range g.nodesOf(child) {
			for _, id := range n.Parents {
				parent, known := g.at[id]
				if !known || added[parent] == child+1 {
					continue
				}
				added[parent] = child + 1
				v.parents = append(v.parents, parent)
				g.vertices[parent].children = append(g.vertices[parent].children, child)
			}
		}
	}
}

// sort puts each vertex behind its parents. Those that are on a cycle or below one come
// last, in the order of their times.
func (g *Graph) sort() {
	waits := make([]int, len(g.vertices)) // for so many parents
	g.order = make([]int, 0, len(g.vertices))
	for i, v := range g.vertices {
		if waits[i] = len(v.parents); waits[i] == 0 {
			g.order = append(g.order, i)
		}
	}
	for ; g.sorted < len(g.order); g.sorted++ {
		for _, child := range g.vertices[g.order[g.sorted]].children {
			if waits[child]--; waits[child] == 0 {
				g.order = append(g.order, child)
			}
		}
	}
	for i, n := range waits {
		if n > 0 {
			g.order = append(g.order, i)
		}
	}
}

// Workflow is the workflow whose graph it is; empty: the graph of tokens without any.
func (g Graph) Workflow() string { return g.workflow }

// Incomplete reports whether there were more nodes than MaxNodes. What is asked of such a
// graph has answers about a part of the workflow only.
func (g Graph) Incomplete() bool { return g.incomplete }

// Find returns the nodes with an id, those issued first before the others: none, one, or
// as many as issuers used the id.
func (g Graph) Find(id ect.ID) []Node {
	at, known := g.at[id]
	if !known {
		return nil
	}
	return slices.Clone(g.nodesOf(at))
}

// Children returns the ids of the tokens that name an id as parent, in the order of their times.
func (g Graph) Children(id ect.ID) []ect.ID {
	at, known := g.at[id]
	if !known {
		return nil
	}
	return g.ids(g.vertices[at].children)
}

// Parents returns the ids that the tokens with an id name as parents and that are in the
// graph, each once.
func (g Graph) Parents(id ect.ID) []ect.ID {
	at, known := g.at[id]
	if !known {
		return nil
	}
	return g.ids(g.vertices[at].parents)
}

// Descendants returns the ids of the tokens below an id, each once and without the id itself,
// those that are fewer steps away before the others.
func (g Graph) Descendants(id ect.ID) []ect.ID {
	return g.reach(id, func(v vertex) []int { return v.children })
}

// Ancestors returns the ids of the tokens above an id, in the same way.
func (g Graph) Ancestors(id ect.ID) []ect.ID {
	return g.reach(id, func(v vertex) []int { return v.parents })
}

// reach returns the ids that can be reached from one, without the id itself.
func (g Graph) reach(id ect.ID, next func(vertex) []int) []ect.ID {
	from, known := g.at[id]
	if !known {
		return nil
	}
	seen := make([]bool, len(g.vertices))
	seen[from] = true
	found := []int{from}
	for i := 0; i < len(found); i++ {
		for _, at := range next(g.vertices[found[i]]) {
			if !seen[at] {
				seen[at] = true
				found = append(found, at)
			}
		}
	}
	return g.ids(found[1:])
}

// Order returns all ids in topological order: each behind its parents. Ids that are on a cycle
// or below one have no such order: they come last, in the order of their times.
func (g Graph) Order() []ect.ID { return g.ids(g.order) }

// Cycle returns the ids of one cycle, each the parent of the next and the last the parent of
// the first; nil: there is no cycle.
func (g Graph) Cycle() []ect.ID {
	if g.sorted == len(g.order) {
		return nil
	}
	left := make([]bool, len(g.vertices)) // on a cycle or below one
	for _, i := range g.order[g.sorted:] {
		left[i] = true
	}
	isLeft := func(i int) bool { return left[i] }
	var path []int
	on := map[int]int{} // place in path
	for at := g.order[g.sorted]; ; {
		if from, met := on[at]; met {
			path = path[from:]
			break
		}
		on[at] = len(path)
		path = append(path, at)
		parents := g.vertices[at].parents
		at = parents[slices.IndexFunc(parents, isLeft)] // there is one, or it would be sorted
	}
	slices.Reverse(path)
	return g.ids(path)
}

// Missing returns the ids that tokens name as parents and that no token of the workflow
// has, sorted.
func (g Graph) Missing() []ect.ID {
	missing := map[ect.ID]bool{}
	for at := range g.vertices {
		for _, n := range g.nodesOf(at) {
			for _, id := range n.Parents {
				if _, known := g.at[id]; !known {
					missing[id] = true
				}
			}
		}
	}
	return slices.Sorted(maps.Keys(missing))
}

// nodesOf are the nodes of a vertex, those issued first before the others.
func (g Graph) nodesOf(at int) []Node { return g.nodes[g.vertices[at].from:g.vertices[at].to] }

func (g Graph) ids(vertices []int) []ect.ID {
	ids := make([]ect.ID, len(vertices))
	for i, at := range vertices {
		ids[i] = g.nodes[g.vertices[at].from].ID
	}
	return ids
}
