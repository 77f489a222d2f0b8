package reference

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/aepb/aepb-gateway/translators"
	"github.com/aepb/aepb-gateway/translators/builtin"
)

// TestBindings_NameTheirTests: every cell that is met names a test that is there, that
// can fail, and whose code mentions what the cell is about: the protocol, by its name,
// its door or its package, and the requirement, by what stands in messages for it. No
// cell that is not met names one.
func TestBindings_NameTheirTests(t *testing.T) {
	t.Parallel()
	known := map[string]*source{}
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
				known[file] = readSource(t, file)
			}
			mentioned := known[file].mentions(name)
			if mentioned == nil {
				t.Errorf("%s %s: there is no %s in %s", b.ID, r.Name, name, file)
				continue
			}
			for _, words := range subjects(b.ID, r.Name) {
				if !slices.ContainsFunc(words, func(word string) bool { return strings.Contains(file, word) || containsText(mentioned, word) }) {
					t.Errorf("%s %s: %s in %s mentions none of %q", b.ID, r.Name, name, file, words)
				}
			}
			if !slices.ContainsFunc([]string{"Error", "Errorf", "Fatal", "Fatalf"}, func(call string) bool { return slices.Contains(mentioned, call) }) {
				t.Errorf("%s %s: %s in %s cannot fail", b.ID, r.Name, name, file)
			}
			if slices.Contains(mentioned, "Skip") || slices.Contains(mentioned, "SkipNow") {
				t.Errorf("%s %s: %s in %s may be skipped", b.ID, r.Name, name, file)
			}
		}
		want := []string{needCarriage, needParent, needRollback, needHITL, needTLS, needHash}
		if !slices.Equal(names, want) {
			t.Errorf("%s: the requirements are %v", b.ID, names)
		}
	}
	registry, err := translators.NewRegistry(builtin.Forms(translators.Config{})...)
	if err != nil {
		t.Fatal(err)
	}
	for _, id := range registry.Bindings() {
		if !slices.ContainsFunc(conformance(), func(b binding) bool { return b.ID == string(id) }) {
			t.Errorf("nothing is said of %s", id)
		}
	}
}

// TestRegistry_Entries: the five identifiers with what the registry says of each
// (AEPB, AEPB Protocol Binding Registry).
func TestRegistry_Entries(t *testing.T) {
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

// subjects are what the test of a cell has to mention: one word of each group.
func subjects(binding, requirement string) [][]string {
	protocol := map[string][]string{
		"a2a-v1": {"a2a-v1", "/a2a"}, "mcp-v1": {"mcp-v1", "/mcp"}, "slim-v1": {"test/slim/", "transport/slim"},
		"uacp-v1": {"translators/uacp", "transport/uacp"}, "ainp-v1": {"translators/ainp", "transport/ainp"},
	}[binding]
	words := map[string][]string{
		needCarriage: {"Execution-Context", "execution-context", "Evidence"},
		needRollback: {"ActRollbackRequest"},
		needHITL:     {"/hitl/callbacks"},
		needTLS:      {"VersionTLS12"}, // which is refused
		needHash:     {"OutputHash", "out_hash"},
		needParent:   {"Aepb-Parent-Jti"},
	}[requirement]
	overHTTP := binding == "a2a-v1" || binding == "mcp-v1"
	switch {
	case requirement == needTLS && (overHTTP || binding == "ainp-v1"):
		protocol = []string{"Public"} // the listener of all that is spoken over HTTP
	case requirement == needHITL && !overHTTP:
		words = []string{"Callback", "aepb-hitl-callback"}
	case requirement == needParent && binding == "slim-v1":
		words = []string{"aepb-parent-jti"}
	case requirement == needParent && !overHTTP:
		words = []string{"parent_jti"}
	}
	return [][]string{protocol, words}
}

func containsText(list []string, text string) bool {
	return slices.ContainsFunc(list, func(one string) bool { return strings.Contains(one, text) })
}

// source is one file of tests.
type source struct {
	imports   map[string]string // paths by the name in the file
	functions map[string][]ast.Node
}

// readSource parses a file, by its path in the source tree.
func readSource(t *testing.T, file string) *source {
	t.Helper()
	parsed, err := parser.ParseFile(token.NewFileSet(), filepath.Join("..", "..", "..", filepath.FromSlash(file)), nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	s := &source{imports: map[string]string{}, functions: map[string][]ast.Node{}}
	for _, i := range parsed.Imports {
		at := strings.Trim(i.Path.Value, `"`)
		name := path.Base(at)
		if i.Name != nil {
			name = i.Name.Name
		}
		s.imports[name] = at
	}
	for _, d := range parsed.Decls {
		if f, ok := d.(*ast.FuncDecl); ok && f.Body != nil {
			s.functions[f.Name.Name] = append(s.functions[f.Name.Name], f.Body)
		}
	}
	return s
}

// mentions are the names, the texts and the imported packages in a test and in what it
// calls of its own file; nil: there is no such test.
func (s *source) mentions(test string) []string {
	if len(s.functions[test]) == 0 || !strings.HasPrefix(test, "Test") {
		return nil
	}
	var out []string
	queue, seen := []string{test}, map[string]bool{test: true}
	for len(queue) > 0 {
		bodies := s.functions[queue[0]]
		queue = queue[1:]
		for _, body := range bodies {
			ast.Inspect(body, func(n ast.Node) bool {
				switch n := n.(type) {
				case *ast.BasicLit:
					if n.Kind == token.STRING {
						out = append(out, n.Value)
					}
				case *ast.Ident:
					out = append(out, n.Name)
					if at, ok := s.imports[n.Name]; ok {
						out = append(out, at)
					}
					if !seen[n.Name] {
						seen[n.Name] = true
						queue = append(queue, n.Name)
					}
				}
				return true
			})
		}
	}
	return out
}
