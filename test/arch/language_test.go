package arch_test

import (
	"fmt"
	"go/ast"
	"go/token"
	"slices"
	"strings"
)

// clock reports mentions of the passing of time.
func clock(s *source, failures *[]string) func(n ast.Node, pkg, name string) {
	return func(n ast.Node, pkg, name string) {
		if pkg == "time" && slices.Contains([]string{"Now", "Since", "Until", "Sleep", "After", "AfterFunc", "Tick", "NewTimer", "NewTicker"}, name) {
			*failures = append(*failures, fmt.Sprintf("%s: pure code asks the clock (time.%s): its caller stamps times", s.at(n), name))
		}
	}
}

// generated files are written by a tool, whose style is its own.
var generated = map[string]string{
	"gateway/transport/slim/internal/dataplane/dataplane.pb.go": "protoc-gen-go: the messages of SLIM's nodes",
	"gateway/transport/slim/internal/a2aproto/a2aproto.pb.go":   "protoc-gen-go: the messages of A2A that SLIMRPC carries",
}

// noInit: an init function runs because of an import, in an order nobody reads.
func noInit(t tree) []string {
	var failures []string
	for _, s := range t.sources {
		if generated[s.path] != "" {
			continue
		}
		for _, decl := range s.tree.Decls {
			if fn, ok := decl.(*ast.FuncDecl); ok && fn.Recv == nil && fn.Name.Name == "init" {
				failures = append(failures, s.at(fn)+": init: cmd says what is built, in an order that can be read")
			}
		}
	}
	return failures
}

// noPanic: a panic takes every other caller's exchange with it. Support of tests
// has no callers: there a pattern that does not compile may end the test.
func noPanic(t tree) []string {
	var failures []string
	for _, s := range t.sources {
		if s.test {
			continue
		}
		ast.Inspect(s.tree, func(n ast.Node) bool {
			if call, ok := n.(*ast.CallExpr); ok {
				if id, isIdent := call.Fun.(*ast.Ident); isIdent && id.Name == "panic" && !aborting(call) {
					failures = append(failures, s.at(n)+": panic: return an error")
				}
			}
			return true
		})
		s.uses(func(n ast.Node, pkg, name string) {
			if s.tree.Name.Name != "main" && (pkg == "os" && name == "Exit" || pkg == "log" && (matches("Fatal*", name) || matches("Panic*", name))) {
				failures = append(failures, fmt.Sprintf("%s: %s.%s: only main ends the process", s.at(n), pkg, name))
			}
			if pkg == "regexp" && name == "MustCompile" && s.in("test") {
				return
			}
			if strings.HasPrefix(name, "Must") && slices.Contains([]string{"regexp", "text/template", "html/template"}, pkg) {
				failures = append(failures, fmt.Sprintf("%s: %s.%s panics", s.at(n), pkg, name))
			}
		})
	}
	return failures
}

// aborting: the one panic that net/http takes as a word, that a response broke
// off. It ends that response alone.
func aborting(call *ast.CallExpr) bool {
	if len(call.Args) != 1 {
		return false
	}
	answer, ok := call.Args[0].(*ast.SelectorExpr)
	return ok && answer.Sel.Name == "ErrAbortHandler"
}

// noFloats: a double rounds integers above 2^53, and a decoded map forgets
// which members were there twice, absent or null.
func noFloats(t tree) []string {
	var failures []string
	for _, s := range t.sources {
		if s.test || !s.in("translators") {
			continue
		}
		ast.Inspect(s.tree, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.Ident:
				if n.Name == "float64" || n.Name == "float32" {
					failures = append(failures, s.at(n)+": "+n.Name+": message values are raw JSON")
				}
			case *ast.MapType:
				if id, ok := n.Value.(*ast.Ident); ok && id.Name == "any" {
					failures = append(failures, s.at(n)+": a map to any: message values are raw JSON")
				} else if face, isFace := n.Value.(*ast.InterfaceType); isFace && len(face.Methods.List) == 0 {
					failures = append(failures, s.at(n)+": a map to interface{}: message values are raw JSON")
				}
			}
			return true
		})
		s.uses(func(n ast.Node, pkg, name string) {
			if pkg == "strconv" && (name == "ParseFloat" || name == "FormatFloat") {
				failures = append(failures, s.at(n)+": strconv."+name+": message values are raw JSON")
			}
		})
	}
	return failures
}

// noSleep: a test that sleeps is slow or flaky, mostly both. Inside a synctest
// bubble time is not real, and Sleep is how it is moved.
func noSleep(t tree) []string {
	var failures []string
	for _, s := range t.sources {
		if _, bubbles := s.imports()["synctest"]; bubbles {
			continue
		}
		s.uses(func(n ast.Node, pkg, name string) {
			if pkg == "time" && name == "Sleep" {
				failures = append(failures, s.at(n)+": time.Sleep: wait for what you wait for, or use testing/synctest")
			}
		})
	}
	return failures
}

// owners may start a goroutine by hand. Everybody else uses sync.WaitGroup.Go
// or errgroup, which cannot be started without something to wait on.
var owners = map[string]string{
	"cmd/aepb-gateway/demo.go":           "the demo's stop waits for the service's end on a channel",
	"test/interop/devgateway/process.go": "the process's Stop waits for the end of its output",
}

func noNakedGo(t tree) []string {
	var failures []string
	for _, s := range t.sources {
		if s.test || owners[s.path] != "" {
			continue
		}
		ast.Inspect(s.tree, func(n ast.Node) bool {
			if _, ok := n.(*ast.GoStmt); ok {
				failures = append(failures, s.at(n)+": go: use WaitGroup.Go or errgroup, so that somebody waits for it")
			}
			return true
		})
	}
	return failures
}

// noGlobals: package variables are errors, interface guards, embedded files and
// tables that nobody writes to; the rest is state with no owner.
func noGlobals(t tree) []string {
	var failures []string
	for dir, sources := range t.packages() {
		if under(dir, "test") {
			continue
		}
		written := assigned(sources)
		for _, s := range sources {
			if generated[s.path] != "" {
				continue
			}
			for _, decl := range s.tree.Decls {
				gen, ok := decl.(*ast.GenDecl)
				if !ok || gen.Tok != token.VAR {
					continue
				}
				for _, spec := range gen.Specs {
					failures = append(failures, judgeVar(s, spec.(*ast.ValueSpec), written)...)
				}
			}
		}
	}
	return failures
}

func judgeVar(s *source, spec *ast.ValueSpec, written map[string]bool) []string {
	var failures []string
	for i, name := range spec.Names {
		switch {
		case name.Name == "_":
		case written[name.Name]:
			failures = append(failures, fmt.Sprintf("%s: %s is assigned to: state belongs in a value with an owner", s.at(name), name.Name))
		case matches("Err*", name.Name), matches("err*", name.Name), embedded(spec):
		case ast.IsExported(name.Name) || i >= len(spec.Values) || !isTable(spec.Values[i]):
			failures = append(failures, fmt.Sprintf("%s: %s is neither an error nor a table of ours", s.at(name), name.Name))
		}
	}
	return failures
}

func embedded(spec *ast.ValueSpec) bool {
	sel, ok := spec.Type.(*ast.SelectorExpr)
	return ok && sel.Sel.Name == "FS"
}

// isTable: an array, slice or map literal, one that a function of the package
// builds from literals, or a netip value, which is a constant in all but name.
func isTable(value ast.Expr) bool {
	switch value := value.(type) {
	case *ast.CompositeLit:
		switch value.Type.(type) {
		case *ast.ArrayType, *ast.MapType:
			return true
		}
	case *ast.CallExpr:
		if sel, ok := value.Fun.(*ast.SelectorExpr); ok {
			pkg := root(sel)
			return pkg != nil && pkg.Name == "netip" && matches("MustParse*", sel.Sel.Name)
		}
		id, ok := value.Fun.(*ast.Ident)
		return ok && !ast.IsExported(id.Name) && id.Name != "new" && id.Name != "make"
	}
	return false
}

// assigned collects the names that a package writes to, by whatever way.
func assigned(sources []*source) map[string]bool {
	names := map[string]bool{}
	mark := func(e ast.Expr) {
		if id := root(e); id != nil {
			names[id.Name] = true
		}
	}
	for _, s := range sources {
		ast.Inspect(s.tree, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.AssignStmt:
				for _, left := range n.Lhs {
					if n.Tok != token.DEFINE {
						mark(left)
					}
				}
			case *ast.IncDecStmt:
				mark(n.X)
			case *ast.UnaryExpr:
				if n.Op == token.AND {
					mark(n.X)
				}
			case *ast.CallExpr:
				if id, ok := n.Fun.(*ast.Ident); ok && (id.Name == "delete" || id.Name == "clear") && len(n.Args) > 0 {
					mark(n.Args[0])
				}
			}
			return true
		})
	}
	return names
}

// root is the variable that an expression reaches into; nil: none by name.
func root(e ast.Expr) *ast.Ident {
	switch e := e.(type) {
	case *ast.Ident:
		return e
	case *ast.IndexExpr:
		return root(e.X)
	case *ast.SelectorExpr:
		return root(e.X)
	case *ast.StarExpr:
		return root(e.X)
	case *ast.ParenExpr:
		return root(e.X)
	default:
		return nil
	}
}
