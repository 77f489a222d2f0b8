package arch_test

import (
	"fmt"
	"go/ast"
	"maps"
	"path"
	"slices"
	"strings"
)

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

// declarers maps the functions and the methods of a package to the files that
// declare them. Methods of a package that share a name are told apart by
// types alone, which are not known here.
func declarers(sources []*source) (funcs, methods map[string][]string) {
	funcs, methods = map[string][]string{}, map[string][]string{}
	for _, fn := range functionsOf(sources) {
		into := methods
		if fn.Recv == nil {
			into = funcs
		}
		if name := path.Base(fn.file.path); !slices.Contains(into[fn.Name.Name], name) {
			into[fn.Name.Name] = append(into[fn.Name.Name], name)
		}
	}
	return funcs, methods
}

// callsOf draws which file of a package calls which: a call is one of a
// function of the package, or of a method whose name only one file declares.
func callsOf(sources []*source) graph {
	g := graph{}
	funcs, methods := declarers(sources)
	for _, s := range sources {
		g.box(path.Base(s.path))
		imported := s.imports()
		ast.Inspect(s.tree, func(n ast.Node) bool {
			call, ok := n.(*ast.CallExpr)
			if !ok {
				return true
			}
			for _, target := range callee(call, imported, funcs, methods) {
				g.arrow(path.Base(s.path), target)
			}
			return true
		})
	}
	return g
}

// callee lists the file that declares what is called, if it is known.
func callee(call *ast.CallExpr, imported map[string]string, funcs, methods map[string][]string) []string {
	switch fun := baseIndex(call.Fun).(type) {
	case *ast.Ident:
		return funcs[fun.Name]
	case *ast.SelectorExpr:
		if id, ok := fun.X.(*ast.Ident); ok && imported[id.Name] != "" {
			return nil
		}
		if found := methods[fun.Sel.Name]; len(found) == 1 {
			return found
		}
	}
	return nil
}

// baseIndex takes type arguments off a function.
func baseIndex(e ast.Expr) ast.Expr {
	if index, ok := e.(*ast.IndexExpr); ok {
		return index.X
	}
	return baseType(e)
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

func rootCalls(t tree) graph { return callsOf(t.packageOf("gateway")) }

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
	for from, to := range callsOf(root) {
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
