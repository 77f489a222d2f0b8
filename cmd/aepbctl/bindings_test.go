package main

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// TestBindingsNameTheirTests: every cell that is met names a test that is there,
// and no cell that is not names one.
func TestBindingsNameTheirTests(t *testing.T) {
	t.Parallel()
	known := map[string][]string{}
	for _, b := range conformance() {
		var names []string
		for _, r := range b.Requirements {
			names = append(names, r.Name)
			if r.Met != (r.Test != "") || r.How == "" || r.Met == (r.How == "not yet") {
				t.Errorf("%s %s: met %t, how %q, test %q", b.ID, r.Name, r.Met, r.How, r.Test)
			}
			if !r.Met {
				continue
			}
			file, name, _ := strings.Cut(r.Test, ":")
			if known[file] == nil {
				known[file] = testsIn(t, file)
			}
			if !slices.Contains(known[file], name) {
				t.Errorf("%s %s: there is no %s in %s", b.ID, r.Name, name, file)
			}
		}
		want := []string{needCarriage, needParent, needRollback, needHITL, needTLS, needHash}
		if !slices.Equal(names, want) {
			t.Errorf("%s: the requirements are %v", b.ID, names)
		}
	}
	registry, err := forms()
	if err != nil {
		t.Fatal(err)
	}
	for _, id := range registry.Bindings() {
		if !slices.ContainsFunc(conformance(), func(b binding) bool { return b.ID == string(id) }) {
			t.Errorf("nothing is said of %s", id)
		}
	}
}

// TestRegistryEntries: the five identifiers with what the registry says of each
// (AEPB, AEPB Protocol Binding Registry).
func TestRegistryEntries(t *testing.T) {
	t.Parallel()
	var ids []string
	for _, b := range bindings() {
		ids = append(ids, b.ID)
		if b.MinLevel != "L1" || b.Callback != "Webhook" || b.Protocol == "" || b.Reference == "" {
			t.Errorf("%s: %+v", b.ID, b.registration)
		}
	}
	if want := []string{"a2a-v1", "mcp-v1", "slim-v1", "uacp-v1", "ainp-v1"}; !slices.Equal(ids, want) {
		t.Errorf("the identifiers are %v", ids)
	}
	var out strings.Builder
	if err := printBindings(&out, bindings()); err != nil || !strings.Contains(out.String(), "Model Context Protocol") {
		t.Errorf("%v:\n%s", err, out.String())
	}
}

// testsIn lists the test functions of a file, by its path in the source tree.
func testsIn(t *testing.T, file string) []string {
	t.Helper()
	parsed, err := parser.ParseFile(token.NewFileSet(), filepath.Join("..", "..", filepath.FromSlash(file)), nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	names := []string{}
	for _, d := range parsed.Decls {
		if f, ok := d.(*ast.FuncDecl); ok && f.Recv == nil && strings.HasPrefix(f.Name.Name, "Test") {
			names = append(names, f.Name.Name)
		}
	}
	return names
}
