package arch_test

import (
	"fmt"
	"go/ast"
	"go/token"
	"path"
	"regexp"
	"slices"
	"strings"
)

// packageDocs: every package says why it exists, every exported thing what it is.
// A program's names are not checked; its package comment is for its users.
func packageDocs(t tree) []string {
	var failures []string
	for dir, sources := range t.packages() {
		if !slices.ContainsFunc(sources, func(s *source) bool { return s.tree.Doc != nil }) {
			failures = append(failures, dir+": no package comment: say in doc.go why the package exists and how to read it")
		}
		for _, s := range sources {
			if s.tree.Name.Name != "main" && !ast.IsGenerated(s.tree) {
				failures = append(failures, undocumented(s)...)
			}
		}
	}
	return failures
}

func undocumented(s *source) []string {
	var failures []string
	miss := func(n ast.Node, name string) {
		failures = append(failures, fmt.Sprintf("%s: %s is exported and says nothing: units, limits, errors, source", s.at(n), name))
	}
	for _, decl := range s.tree.Decls {
		switch decl := decl.(type) {
		case *ast.FuncDecl:
			if decl.Name.IsExported() && decl.Doc == nil && ownerExported(decl) && !selfEvident(decl) {
				miss(decl, receiver(decl)+decl.Name.Name)
			}
		case *ast.GenDecl:
			for _, spec := range decl.Specs {
				if name, bare := bareSpec(decl, spec); bare {
					miss(spec, name)
				}
			}
		}
	}
	return failures
}

func ownerExported(fn *ast.FuncDecl) bool {
	return fn.Recv == nil || ast.IsExported(receiver(fn))
}

// selfEvident methods are documented by well-known interfaces.
func selfEvident(fn *ast.FuncDecl) bool {
	return fn.Recv != nil && slices.Contains([]string{"Error", "Unwrap", "String"}, fn.Name.Name)
}

// bareSpec: a group's comment speaks for all constants or variables in it, a
// type needs one of its own.
func bareSpec(decl *ast.GenDecl, spec ast.Spec) (string, bool) {
	switch spec := spec.(type) {
	case *ast.TypeSpec:
		return spec.Name.Name, spec.Name.IsExported() && spec.Doc == nil && spec.Comment == nil && (decl.Lparen != token.NoPos || decl.Doc == nil)
	case *ast.ValueSpec:
		documented := decl.Doc != nil || spec.Doc != nil || spec.Comment != nil
		for _, name := range spec.Names {
			if name.IsExported() && !documented {
				return name.Name, true
			}
		}
	}
	return "", false
}

// vague names say where code was put, not what it is.
var vague = []string{"util", "utils", "common", "helper", "helpers", "types", "models", "misc", "shared", "base", "lib"}

func packageNames(t tree) []string {
	var failures []string
	for dir, sources := range t.packages() {
		if name := sources[0].tree.Name.Name; slices.Contains(vague, name) || slices.Contains(vague, path.Base(dir)) {
			failures = append(failures, dir+": a package is a noun of the domain")
		}
	}
	return failures
}

// The top level is fixed, so that it shows a reader the structure of the repository.
var (
	topFolders = []string{"cmd", "gateway", "translators", "ect", "policy", "lifecycle", "deploy", "docs", "test"}
	topFiles   = []string{"Dockerfile", "go.mod", "go.sum", "Makefile", "README.md", "LICENSE", "CONTRIBUTING.md", "CHANGELOG.md"}
)

func topLevel(t tree) []string {
	var failures []string
	for name := range t.files {
		first, _, nested := strings.Cut(name, "/")
		switch {
		case strings.HasPrefix(first, "."):
		case nested && !slices.Contains(topFolders, first):
			failures = append(failures, name+": "+first+" is no top-level folder of ours")
		case !nested && !slices.Contains(topFiles, first):
			failures = append(failures, name+": the top level holds no such file")
		}
	}
	return failures
}

// foreignWords are in no file of ours: addresses that are right on one machine
// only. They are put together here, or this file would be the first to fail.
var foreignWords = map[string]string{
	"/wo" + "rk/":              "a path of one machine",
	"proxy.go" + "lang.org":    "where modules come from is the builder's choice",
	"sum.go" + "lang.org":      "where modules come from is the builder's choice",
	"registry.npm" + "js":      "where packages come from is the builder's choice",
	"registry.yarn" + "pkg":    "where packages come from is the builder's choice",
	"pypi.or" + "g/simple":     "where packages come from is the builder's choice",
	"files.python" + "hosted.": "where packages come from is the builder's choice",
}

func words(t tree) []string {
	var failures []string
	for name, content := range t.files {
		for word, why := range foreignWords {
			if before, _, ok := strings.Cut(content, word); ok {
				failures = append(failures, fmt.Sprintf("%s:%d: %q: %s", name, 1+strings.Count(before, "\n"), word, why))
			}
		}
		if path.Base(name) == "package-lock.json" && strings.Contains(content, `"resolved"`) {
			failures = append(failures, name+`: "resolved" members pin the registry of one machine: omit-lockfile-registry-resolved`)
		}
	}
	return failures
}

// anyTest is the name of what the Go tool takes for a test.
var anyTest = regexp.MustCompile(`^(Test|Fuzz|Benchmark)[A-Z0-9_]`)

// testName is that of a test: its subject and the case.
var testName = regexp.MustCompile(`^(Test|Fuzz|Benchmark)[A-Z][A-Za-z0-9]*(_[A-Za-z0-9]+)+$`)

// testNames: every test is named TestSubject_Case.
func testNames(t tree) []string {
	var failures []string
	for _, s := range t.sources {
		for _, d := range s.tree.Decls {
			f, ok := d.(*ast.FuncDecl)
			if !ok || !s.test || f.Recv != nil || f.Name.Name == "TestMain" || !anyTest.MatchString(f.Name.Name) {
				continue
			}
			if !testName.MatchString(f.Name.Name) {
				failures = append(failures, s.at(f)+" "+f.Name.Name+": name it after its subject and its case, as TestSubject_Case")
			}
		}
	}
	return failures
}
