package arch_test

import (
	"go/ast"
	"go/token"
	"slices"
	"strings"
	"unicode"
)

// forbiddenWords may be no word of an identifier, nor may their plurals: they
// are images, and a reader of the code has to guess what they stand for.
var forbiddenWords = tableOf(`road roof room house pillar door herald tidings
	hearing telling keeping holding news wish crew letter mailbox shelf spine
	caption ear passage kin dress heed hearken moot wonder greet farewell commend
	papers speaker troupe cast nature hazard bed leg octet
	roads roofs rooms houses pillars doors heralds hearings tellings keepings
	holdings wishes crews letters mailboxes shelves spines captions ears passages
	dresses heeds hearkens moots wonders greets farewells commends speakers
	troupes casts natures hazards beds legs octets`)

// forbiddenNames may be no identifier as a whole: participles that do not say
// of what.
var forbiddenNames = tableOf("said told heard kept held asked meant lost owed")

// allowedNames are words of the drafts.
var allowedNames = tableOf("ect.ExtLeg ect/dag.Leg ect/dag.LegPath")

func tableOf(list string) []string { return strings.Fields(list) }

// forbiddenIn lists the identifiers that a file declares and that hold a
// forbidden word, as path:line name.
func forbiddenIn(s *source) []string {
	var found []string
	for _, id := range declared(s) {
		if !slices.Contains(allowedNames, s.dir+"."+id.Name) && isForbidden(id.Name) {
			found = append(found, s.at(id)+" "+id.Name)
		}
	}
	return found
}

func isForbidden(name string) bool {
	return slices.Contains(forbiddenNames, strings.ToLower(name)) ||
		slices.ContainsFunc(wordsOf(name), func(word string) bool { return slices.Contains(forbiddenWords, word) })
}

// wordsOf splits an identifier where a new word begins, in lower case:
// HTTPLegs2Ears is http, legs, ears.
func wordsOf(name string) []string {
	var list []string
	messages, start := []rune(name), 0
	cut := func(end int) {
		if end > start {
			list = append(list, strings.ToLower(string(messages[start:end])))
		}
	}
	for i, c := range messages {
		switch {
		case !unicode.IsLetter(c):
			cut(i)
			start = i + 1
		case unicode.IsUpper(c) && i > start && (unicode.IsLower(messages[i-1]) || i+1 < len(messages) && unicode.IsLower(messages[i+1])):
			cut(i)
			start = i
		}
	}
	cut(len(messages))
	return list
}

// declared lists the identifiers that a file declares: functions, types,
// fields, methods of interfaces, parameters, results, variables, constants,
// labels and names of imports. Of the package name see packageNames.
func declared(s *source) []*ast.Ident {
	var ids []*ast.Ident
	add := func(e ast.Expr) {
		if id, ok := e.(*ast.Ident); ok && id != nil && id.Name != "_" {
			ids = append(ids, id)
		}
	}
	ast.Inspect(s.tree, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.FuncDecl:
			add(n.Name)
		case *ast.TypeSpec:
			add(n.Name)
		case *ast.LabeledStmt:
			add(n.Label)
		case *ast.ImportSpec:
			if n.Name != nil {
				add(n.Name)
			}
		case *ast.Field:
			for _, name := range n.Names {
				add(name)
			}
		case *ast.ValueSpec:
			for _, name := range n.Names {
				add(name)
			}
		case *ast.RangeStmt:
			if n.Tok == token.DEFINE {
				add(n.Key)
				add(n.Value)
			}
		case *ast.AssignStmt:
			if n.Tok == token.DEFINE {
				for _, left := range n.Lhs {
					add(left)
				}
			}
		}
		return true
	})
	return ids
}

// wordsInProduction and wordsInTests share the tree between them: test support
// counts as tests.
func wordsInProduction(t tree) reading { return largestSum(wordsPerPackage(t.production())) }

func wordsInTests(t tree) reading {
	production := map[*source]bool{}
	for _, s := range t.production() {
		production[s] = true
	}
	return largestSum(wordsPerPackage(slices.DeleteFunc(slices.Clone(t.sources), func(s *source) bool {
		return production[s] || ast.IsGenerated(s.tree)
	})))
}

func wordsPerPackage(sources []*source) map[string]int {
	figures := map[string]int{}
	for _, s := range sources {
		if n := len(forbiddenIn(s)); n > 0 {
			figures[s.dir] += n
		}
	}
	return figures
}

// largestSum reads the sum of figures.
func largestSum(figures map[string]int) reading {
	total := 0
	for _, n := range figures {
		total += n
	}
	return reading{total, places(ranked(figures))}
}
