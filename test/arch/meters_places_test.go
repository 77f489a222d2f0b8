package arch_test

import (
	"go/ast"
	"slices"
	"strings"
)

// below are the production files of gateway/.
func (t tree) below() []*source {
	return slices.DeleteFunc(t.production(), func(s *source) bool { return !s.in("gateway") })
}

// callsOn finds calls of methods on a value whose name ends in holder, in files
// that import ect: g.Signer.Sign(...), verifier.Verify(...). Other things sign
// and verify too, without ECTs.
func callsOn(sources []*source, holder string, methods ...string) reading {
	var at []string
	for _, s := range sources {
		if !slices.ContainsFunc(s.tree.Imports, func(spec *ast.ImportSpec) bool { return importPath(spec) == module+"/ect" }) {
			continue
		}
		ast.Inspect(s.tree, func(n ast.Node) bool {
			if call, ok := n.(*ast.CallExpr); ok {
				if sel, isSelector := call.Fun.(*ast.SelectorExpr); isSelector && slices.Contains(methods, sel.Sel.Name) && endsIn(sel.X, holder) {
					at = append(at, s.at(n))
				}
			}
			return true
		})
	}
	return reading{len(at), at}
}

// endsIn reports whether the last name of an expression ends in a word.
func endsIn(e ast.Expr, word string) bool {
	name := ""
	switch e := e.(type) {
	case *ast.Ident:
		name = e.Name
	case *ast.SelectorExpr:
		name = e.Sel.Name
	}
	return strings.HasSuffix(strings.ToLower(name), word)
}

func placesThatSign(t tree) reading   { return callsOn(t.below(), "signer", "Sign", "SignAs") }
func placesThatVerify(t tree) reading { return callsOn(t.below(), "verifier", "Verify") }

// levelsWrittenOut finds ect.L2 as an argument of a call: the level of what was
// done has to come from a permit or a token. Tables of names and comparisons
// with a bound are no such place.
func levelsWrittenOut(t tree) reading {
	var at []string
	for _, s := range t.below() {
		imported := s.imports()
		ast.Inspect(s.tree, func(n ast.Node) bool {
			if call, ok := n.(*ast.CallExpr); ok && slices.ContainsFunc(call.Args, func(arg ast.Expr) bool { return named(arg, imported, "ect", "L2") }) {
				at = append(at, s.at(n))
			}
			return true
		})
	}
	return reading{len(at), at}
}

// named reports whether an expression is name of our package dir.
func named(e ast.Expr, imported map[string]string, dir, name string) bool {
	sel, ok := e.(*ast.SelectorExpr)
	if !ok || sel.Sel.Name != name {
		return false
	}
	id, ok := sel.X.(*ast.Ident)
	return ok && imported[id.Name] == module+"/"+dir
}

// functionsOfHolders finds functions that choose whose share something is: they
// name both limit.Identity and limit.Address. One that names a single kind
// knows already whose it is.
func functionsOfHolders(t tree) reading {
	var at []string
	for _, fn := range functionsOf(t.production()) {
		if fn.file.in("policy/limit") {
			continue
		}
		imported, identity, address := fn.file.imports(), false, false
		ast.Inspect(fn.Body, func(n ast.Node) bool {
			if e, ok := n.(ast.Expr); ok {
				identity = identity || named(e, imported, "policy/limit", "Identity")
				address = address || named(e, imported, "policy/limit", "Address")
			}
			return true
		})
		if identity && address {
			at = append(at, fn.file.at(fn.FuncDecl)+" "+fn.Name.Name)
		}
	}
	return reading{len(at), at}
}

// assertionsOfRoot finds x.(translators.Something) in package gateway, and such
// cases of type switches: each asks anew what a codec can do.
func assertionsOfRoot(t tree) reading {
	var at []string
	for _, s := range t.packageOf("gateway") {
		imported := s.imports()
		ofTranslators := func(e ast.Expr) bool {
			sel, ok := e.(*ast.SelectorExpr)
			return ok && named(e, imported, "translators", sel.Sel.Name)
		}
		ast.Inspect(s.tree, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.TypeAssertExpr:
				if ofTranslators(n.Type) {
					at = append(at, s.at(n))
				}
			case *ast.TypeSwitchStmt:
				for _, clause := range n.Body.List {
					for _, e := range clause.(*ast.CaseClause).List {
						if ofTranslators(e) {
							at = append(at, s.at(e))
						}
					}
				}
			}
			return true
		})
	}
	return reading{len(at), at}
}
