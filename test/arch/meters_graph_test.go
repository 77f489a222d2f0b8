package arch_test

import (
	"fmt"
	"go/ast"
	"go/types"
	"maps"
	"path"
	"slices"
	"strings"
)

// largestCircleWanted is how many files of a package may be in one circle.
const largestCircleWanted = 6

// graph maps a box to the boxes that it has an arrow to, no box to itself.
type graph map[string]map[string]bool

func (g graph) box(name string) {
	if g[name] == nil {
		g[name] = map[string]bool{}
	}
}

func (g graph) arrow(from, to string) {
	if from != to {
		g.box(from)
		g.box(to)
		g[from][to] = true
	}
}

func (g graph) names() []string { return slices.Sorted(maps.Keys(g)) }

func (g graph) arrows() int {
	total := 0
	for _, to := range g {
		total += len(to)
	}
	return total
}

// callsOf draws which file of a package calls which, for files of one package:
// a call is one of a function or a method that the package declares. A method
// of an interface leads to no file, since types alone do not say which.
func callsOf(t tree, sources []*source) graph {
	g := graph{}
	for _, s := range sources {
		g.box(path.Base(s.path))
		p := t.typed()[s.dir]
		ast.Inspect(s.tree, func(n ast.Node) bool {
			if call, ok := n.(*ast.CallExpr); ok {
				if fn := p.callee(call); fn != nil && fn.Pkg() == p.Package {
					g.arrow(path.Base(s.path), path.Base(p.fileOf(fn)))
				}
			}
			return true
		})
	}
	return g
}

// callee is the function or the method that is called, if it is one.
func (p *typedPackage) callee(call *ast.CallExpr) *types.Func {
	fun := ast.Unparen(call.Fun)
	switch generic := fun.(type) {
	case *ast.IndexExpr:
		fun = generic.X
	case *ast.IndexListExpr:
		fun = generic.X
	}
	var name *ast.Ident
	switch fun := fun.(type) {
	case *ast.Ident:
		name = fun
	case *ast.SelectorExpr:
		name = fun.Sel
	}
	fn, ok := p.Uses[name].(*types.Func)
	if !ok || fn.Signature().Recv() != nil && types.IsInterface(fn.Signature().Recv().Type()) {
		return nil
	}
	return fn
}

// circleOf is the largest set of boxes of which each reaches every other, and
// the pairs that have arrows to each other. One box alone is no circle.
func circleOf(g graph) (circle, pairs []string) {
	reach := map[string]map[string]bool{}
	for _, name := range g.names() {
		reach[name] = reached(g, name)
	}
	for _, from := range g.names() {
		var set []string
		for _, to := range g.names() {
			if reach[from][to] && reach[to][from] {
				set = append(set, to)
			}
			if from < to && g[from][to] && g[to][from] {
				pairs = append(pairs, from+" "+to)
			}
		}
		if len(set) > len(circle) && len(set) > 1 {
			circle = set
		}
	}
	return circle, pairs
}

// reached is all that arrows lead to from a box.
func reached(g graph, from string) map[string]bool {
	seen, rest := map[string]bool{}, []string{from}
	for len(rest) > 0 {
		next := rest[0]
		rest = rest[1:]
		for to := range g[next] {
			if !seen[to] {
				seen[to] = true
				rest = append(rest, to)
			}
		}
	}
	return seen
}

func rootCalls(t tree) graph { return callsOf(t, t.packageOf("gateway")) }

func (t tree) packageOf(dir string) []*source {
	return slices.DeleteFunc(t.production(), func(s *source) bool { return s.dir != dir })
}

func circleOfRoot(t tree) reading {
	g := rootCalls(t)
	circle, _ := circleOf(g)
	outside := slices.DeleteFunc(g.names(), func(name string) bool { return slices.Contains(circle, name) })
	return reading{len(circle), []string{
		fmt.Sprintf("%d arrows", g.arrows()), "outside it: " + strings.Join(outside, " "),
	}}
}

// circles counts the files in the largest circle of calls of each package.
func circles(t tree) map[string]int {
	dirs, figures := map[string][]*source{}, map[string]int{}
	for _, s := range t.production() {
		dirs[s.dir] = append(dirs[s.dir], s)
	}
	for dir, sources := range dirs {
		circle, _ := circleOf(callsOf(t, sources))
		figures[dir] = len(circle)
	}
	return figures
}

func largestCircle(t tree) reading { return largest(circles(t)) }
func largeCircles(t tree) reading  { return over(circles(t), largestCircleWanted) }

func pairsOfRoot(t tree) reading {
	_, pairs := circleOf(rootCalls(t))
	figures := map[string]int{}
	for _, pair := range pairs {
		for name := range strings.SplitSeq(pair, " ") {
			figures[name]++
		}
	}
	return reading{len(pairs), places(ranked(figures))}
}

// drawing is gateway/ as a picture: a box for each file of the root, but for
// doc.go, and for each folder below it with all that it holds. Arrows are calls
// between files of the root, and imports of all else.
func drawing(t tree) graph {
	g := graph{}
	root := slices.DeleteFunc(t.packageOf("gateway"), func(s *source) bool { return path.Base(s.path) == "doc.go" })
	for from, to := range callsOf(t, root) {
		g.box(from)
		for name := range to {
			g.arrow(from, name)
		}
	}
	for _, s := range t.production() {
		from, ok := boxOf(s.dir)
		if s.dir == "gateway" {
			from, ok = path.Base(s.path), path.Base(s.path) != "doc.go"
		}
		if !ok {
			continue
		}
		g.box(from)
		for _, spec := range s.tree.Imports {
			if to, below := boxOf(strings.TrimPrefix(importPath(spec), module+"/")); below {
				g.arrow(from, to)
			}
		}
	}
	return g
}

// boxOf is the folder of gateway/ that a package lies in.
func boxOf(dir string) (string, bool) {
	rest, ok := strings.CutPrefix(dir, "gateway/")
	first, _, _ := strings.Cut(rest, "/")
	return first, ok
}
