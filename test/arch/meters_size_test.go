package arch_test

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/token"
	"slices"
	"strings"
)

const (
	mostMethodsWanted = 30
	mostFieldsWanted  = 16
	complexityWanted  = 15
)

// production is what the product consists of: neither tests, nor what lies
// under test/, nor generated files, nor packages that import testing.
func (t tree) production() []*source {
	support := t.support()
	var found []*source
	for _, s := range t.sources {
		if !s.test && !s.in("test") && !support[s.dir] && !ast.IsGenerated(s.tree) {
			found = append(found, s)
		}
	}
	return found
}

// support are the packages of test support: what imports testing is part of no
// program.
func (t tree) support() map[string]bool {
	dirs := map[string]bool{}
	for _, s := range t.sources {
		if !s.test && slices.ContainsFunc(s.tree.Imports, func(spec *ast.ImportSpec) bool { return importPath(spec) == "testing" }) {
			dirs[s.dir] = true
		}
	}
	return dirs
}

// count is the figure of one thing.
type count struct {
	name   string
	figure int
}

// ranked lists figures, largest first, those of one size by name.
func ranked(figures map[string]int) []count {
	var list []count
	for name, figure := range figures {
		list = append(list, count{name, figure})
	}
	slices.SortFunc(list, func(a, b count) int {
		if a.figure != b.figure {
			return b.figure - a.figure
		}
		return strings.Compare(a.name, b.name)
	})
	return list
}

func places(list []count) []string {
	var names []string
	for _, c := range list {
		names = append(names, fmt.Sprintf("%s %d", c.name, c.figure))
	}
	return names
}

// largest reads the largest of some figures.
func largest(figures map[string]int) reading {
	list := ranked(figures)
	if len(list) == 0 {
		return reading{}
	}
	return reading{list[0].figure, places(list)}
}

// over reads how many figures are above what is wanted.
func over(figures map[string]int, wanted int) reading {
	list := slices.DeleteFunc(ranked(figures), func(c count) bool { return c.figure <= wanted })
	return reading{len(list), places(list)}
}

// methodsOf counts the methods of each type, as dir.Type.
func methodsOf(sources []*source) map[string]int {
	figures := map[string]int{}
	for _, fn := range functionsOf(sources) {
		if owner := receiver(fn.FuncDecl); owner != "" {
			figures[fn.file.dir+"."+strings.TrimSuffix(owner, ".")]++
		}
	}
	return figures
}

func mostMethodsOfType(t tree) reading { return largest(methodsOf(t.production())) }
func largeTypes(t tree) reading        { return over(methodsOf(t.production()), mostMethodsWanted) }

// fieldsOf counts the fields of each struct type; an embedded type is one.
func fieldsOf(sources []*source) map[string]int {
	figures := map[string]int{}
	for _, s := range sources {
		for name, fields := range structsOf(s) {
			figures[s.dir+"."+name] = fields.NumFields()
		}
	}
	return figures
}

// structsOf maps the struct types that a file declares to their fields.
func structsOf(s *source) map[string]*ast.FieldList {
	found := map[string]*ast.FieldList{}
	ast.Inspect(s.tree, func(n ast.Node) bool {
		if spec, ok := n.(*ast.TypeSpec); ok {
			if form, isStruct := spec.Type.(*ast.StructType); isStruct {
				found[spec.Name.Name] = form.Fields
			}
		}
		return true
	})
	return found
}

func mostFieldsOfStruct(t tree) reading { return largest(fieldsOf(t.production())) }

// largeStructs leaves out gateway/config, whose structs are the operator's file.
func largeStructs(t tree) reading {
	outside := slices.DeleteFunc(t.production(), func(s *source) bool { return s.in("gateway/config") })
	return over(fieldsOf(outside), mostFieldsWanted)
}

// filesOf counts the files of each package.
func filesOf(sources []*source) map[string]int {
	figures := map[string]int{}
	for _, s := range sources {
		figures[s.dir]++
	}
	return figures
}

func mostFilesOfPackage(t tree) reading {
	figures := filesOf(t.production())
	delete(figures, "gateway")
	return largest(figures)
}

func filesOfRoot(t tree) reading { return reading{filesOf(t.production())["gateway"], nil} }

// complexityOf is 1, and 1 for each way that a function can go besides: if,
// for, range, a case or a communication that is not the default, && and ||.
// Function literals are part of the function that they stand in.
func complexityOf(fn *ast.FuncDecl) int {
	ways := 1
	ast.Inspect(fn, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.IfStmt, *ast.ForStmt, *ast.RangeStmt:
			ways++
		case *ast.CaseClause:
			if n.List != nil {
				ways++
			}
		case *ast.CommClause:
			if n.Comm != nil {
				ways++
			}
		case *ast.BinaryExpr:
			if n.Op == token.LAND || n.Op == token.LOR {
				ways++
			}
		}
		return true
	})
	return ways
}

// function is a function with a body, and the file that holds it.
type function struct {
	*ast.FuncDecl
	file *source
}

func functionsOf(sources []*source) []function {
	var list []function
	for _, s := range sources {
		for _, decl := range s.tree.Decls {
			if fn, ok := decl.(*ast.FuncDecl); ok && fn.Body != nil {
				list = append(list, function{fn, s})
			}
		}
	}
	return list
}

func complexities(t tree) map[string]int {
	figures := map[string]int{}
	for _, fn := range functionsOf(t.production()) {
		figures[fn.file.at(fn.FuncDecl)+" "+fn.Name.Name] = complexityOf(fn.FuncDecl)
	}
	return figures
}

func complexFunctions(t tree) reading { return over(complexities(t), complexityWanted) }
func mostComplex(t tree) reading      { return largest(complexities(t)) }

func linesOf(sources []*source) int {
	total := 0
	for _, s := range sources {
		total += strings.Count(s.text, "\n")
	}
	return total
}

// productionLines names test support and the largest layers beside the figure.
func productionLines(t tree) reading {
	figures, support, dirs := map[string]int{}, 0, t.support()
	for _, s := range t.production() {
		layer, _, _ := strings.Cut(s.dir, "/")
		figures[layer] += strings.Count(s.text, "\n")
	}
	for _, s := range t.sources {
		if !s.test && !s.in("test") && dirs[s.dir] && !ast.IsGenerated(s.tree) {
			support += strings.Count(s.text, "\n")
		}
	}
	return reading{linesOf(t.production()), append([]string{fmt.Sprintf("test support apart %d", support)}, places(ranked(figures))...)}
}

// codeLinesOf counts the lines of a file that hold more than space and comments.
func codeLinesOf(s *source) int {
	text := []byte(s.text)
	for _, group := range s.tree.Comments {
		for _, comment := range group.List {
			from := s.set.Position(comment.Pos()).Offset
			for i := from; i < from+len(comment.Text) && i < len(text); i++ {
				if text[i] != '\n' {
					text[i] = ' '
				}
			}
		}
	}
	total := 0
	for line := range bytes.Lines(text) {
		if len(bytes.TrimSpace(line)) > 0 {
			total++
		}
	}
	return total
}

func productionCodeLines(t tree) reading {
	figures := map[string]int{}
	for _, s := range t.production() {
		layer, _, _ := strings.Cut(s.dir, "/")
		figures[layer] += codeLinesOf(s)
	}
	return largestSum(figures)
}
