package arch_test

import (
	"go/ast"
	"go/token"
	"path"
	"slices"
	"strings"
)

// mostWritersWanted is how many files may write one field of a struct.
const mostWritersWanted = 2

// writersOf lists, for each field of a package as Struct.field, the files that
// write it: it stands on the left of an assignment, is counted up or down, or
// its address is taken. Literals that build a struct do not count. Whose field
// it is: of the type that a parameter or receiver has, or a variable that a
// literal of the type began; else of the one struct of the package that has a
// field of that name, and of nothing if there are several or if the name is
// exported: it may then be a field of another package.
func writersOf(sources []*source) map[string][]string {
	structs := fieldNames(sources)
	writers := map[string][]string{}
	for _, fn := range functionsOf(sources) {
		known := typesIn(fn.FuncDecl, structs)
		ast.Inspect(fn.Body, func(n ast.Node) bool {
			for _, target := range written(n) {
				field := fieldOf(target, known, structs)
				if name := path.Base(fn.file.path); field != "" && !slices.Contains(writers[field], name) {
					writers[field] = append(writers[field], name)
				}
			}
			return true
		})
	}
	return writers
}

// fieldNames maps the structs of a package to the names of their fields.
func fieldNames(sources []*source) map[string]map[string]bool {
	structs := map[string]map[string]bool{}
	for _, s := range sources {
		for name, fields := range structsOf(s) {
			structs[name] = map[string]bool{}
			for _, field := range fields.List {
				for _, id := range field.Names {
					structs[name][id.Name] = true
				}
				if id := root(baseType(field.Type)); len(field.Names) == 0 && id != nil {
					structs[name][id.Name] = true
				}
			}
		}
	}
	return structs
}

// typesIn maps the receiver, parameters and variables of a function, those of
// its literals too, to the struct of the package that they are said to be.
func typesIn(fn *ast.FuncDecl, structs map[string]map[string]bool) map[string]string {
	known := map[string]string{}
	set := func(name string, form ast.Expr) {
		if star, ok := form.(*ast.StarExpr); ok {
			form = star.X
		}
		if id := root(baseType(form)); id != nil && structs[id.Name] != nil {
			known[name] = id.Name
		}
	}
	ast.Inspect(fn, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.Field:
			for _, name := range n.Names {
				set(name.Name, n.Type)
			}
		case *ast.ValueSpec:
			for _, name := range n.Names {
				set(name.Name, n.Type)
			}
		case *ast.AssignStmt:
			for i, value := range n.Rhs {
				if id, ok := n.Lhs[i].(*ast.Ident); ok && n.Tok == token.DEFINE {
					set(id.Name, built(value))
				}
			}
		}
		return true
	})
	return known
}

// built is the type of a literal, or of the address of one.
func built(value ast.Expr) ast.Expr {
	if address, ok := value.(*ast.UnaryExpr); ok && address.Op == token.AND {
		value = address.X
	}
	if literal, ok := value.(*ast.CompositeLit); ok {
		return literal.Type
	}
	return nil
}

// written are the expressions that a statement writes to.
func written(n ast.Node) []ast.Expr {
	switch n := n.(type) {
	case *ast.AssignStmt:
		if n.Tok != token.DEFINE {
			return n.Lhs
		}
	case *ast.IncDecStmt:
		return []ast.Expr{n.X}
	case *ast.RangeStmt:
		if n.Tok == token.ASSIGN {
			return []ast.Expr{n.Key, n.Value}
		}
	case *ast.UnaryExpr:
		if n.Op == token.AND {
			return []ast.Expr{n.X}
		}
	}
	return nil
}

// fieldOf says which field an expression writes: x.f, and x.f[k] as well.
func fieldOf(target ast.Expr, known map[string]string, structs map[string]map[string]bool) string {
	for {
		switch e := target.(type) {
		case *ast.IndexExpr:
			target = e.X
			continue
		case *ast.StarExpr:
			target = e.X
			continue
		case *ast.ParenExpr:
			target = e.X
			continue
		}
		break
	}
	sel, ok := target.(*ast.SelectorExpr)
	if !ok {
		return ""
	}
	if id, isIdent := sel.X.(*ast.Ident); isIdent && structs[known[id.Name]][sel.Sel.Name] {
		return known[id.Name] + "." + sel.Sel.Name
	}
	if sel.Sel.IsExported() {
		return ""
	}
	var owners []string
	for name, fields := range structs {
		if fields[sel.Sel.Name] {
			owners = append(owners, name)
		}
	}
	if len(owners) != 1 {
		return ""
	}
	return owners[0] + "." + sel.Sel.Name
}

// writers counts the writers of each field of the packages of gateway/.
func writers(t tree) map[string]int {
	figures := map[string]int{}
	dirs := map[string][]*source{}
	for _, s := range t.production() {
		if s.in("gateway") {
			dirs[s.dir] = append(dirs[s.dir], s)
		}
	}
	for dir, sources := range dirs {
		for field, files := range writersOf(sources) {
			figures[strings.TrimPrefix(dir, "gateway/")+"."+field] = len(files)
		}
	}
	return figures
}

func mostWriters(t tree) reading         { return largest(writers(t)) }
func fieldsOfManyWriters(t tree) reading { return over(writers(t), mostWritersWanted) }
