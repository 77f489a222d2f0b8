package config_test

import (
	"flag"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"unicode/utf8"
)

var update = flag.Bool("update", false, "write the reference and the schema of the configuration")

// The table of keys is between these marks of docs/configuration.md. It is made from the comments
// of the types.
const (
	referenceBegin = "<!-- The keys, generated from gateway/config by make vectors. -->\n"
	referenceEnd   = "<!-- End of the keys. -->\n"
)

// maxText is as long as the comment of a key may be, in characters.
const maxText = 200

var (
	documents     = filepath.Join("..", "..", "docs")
	referenceFile = filepath.Join(documents, "configuration.md")
)

// key is one key of the configuration, as the Go types declare it.
type key struct {
	name string
	path string // from the top, such as agents.NAME.endpoints[].url
	kind string // map or list, of the values below; empty: one value
	of   string // the Go type of a value: string, bool, int, float64, Duration or a struct
	text string
	keys []key // of the struct
}

// below is the path of the values of a key.
func (k key) below() string {
	return k.path + map[string]string{"map": ".NAME", "list": "[]"}[k.kind]
}

// each calls f for every key, outer keys first.
func each(keys []key, f func(key)) {
	for _, k := range keys {
		f(k)
		each(k.keys, f)
	}
}

// declared are the keys of Config.
func declared(t *testing.T) []key {
	t.Helper()
	structs := map[string]*ast.StructType{}
	files, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.ParseComments)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(parsed, func(n ast.Node) bool {
			if spec, ok := n.(*ast.TypeSpec); ok {
				if s, ok := spec.Type.(*ast.StructType); ok {
					structs[spec.Name.Name] = s
				}
			}
			return true
		})
	}
	return keysOf(structs, "Config", "")
}

func keysOf(structs map[string]*ast.StructType, name, prefix string) (keys []key) {
	for _, field := range structs[name].Fields.List {
		if field.Tag == nil {
			continue // no key
		}
		k := key{name: reflect.StructTag(strings.Trim(field.Tag.Value, "`")).Get("yaml"), text: strings.TrimSpace(field.Comment.Text())}
		k.path = prefix + k.name
		k.kind, k.of = describe(field.Type)
		if structs[k.of] != nil {
			k.keys = keysOf(structs, k.of, k.below()+".")
		}
		keys = append(keys, k)
	}
	return keys
}

func describe(e ast.Expr) (kind, name string) {
	switch e := e.(type) {
	case *ast.StarExpr:
		return describe(e.X)
	case *ast.MapType:
		_, name = describe(e.Value)
		return "map", name
	case *ast.ArrayType:
		_, name = describe(e.Elt)
		return "list", name
	case *ast.Ident:
		return "", e.Name
	default:
		return "", ""
	}
}

func TestReference_IsThatOfTheCode(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile(referenceFile)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, begins := strings.Cut(string(text), referenceBegin)
	_, after, ends := strings.Cut(rest, referenceEnd)
	if !begins || !ends {
		t.Fatalf("%s has no place for the keys: expected the lines %q and %q", referenceFile, referenceBegin, referenceEnd)
	}
	compare(t, referenceFile, before+referenceBegin+reference(declared(t))+referenceEnd+after)
}

// compare compares a generated file with the one that is there, or with -update writes it.
func compare(t *testing.T, file, want string) {
	t.Helper()
	if *update {
		if err := os.WriteFile(file, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	got, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if want != string(got) {
		t.Errorf("%s is not what the code says: run make vectors", file)
	}
}

// reference is a heading and a table for each key of the top that has keys, and one table for the others.
func reference(keys []key) string {
	const header = "\n| key | type | meaning |\n|---|---|---|\n"
	var single, sections strings.Builder
	for _, top := range keys {
		if top.keys == nil {
			single.WriteString(row(top))
			continue
		}
		sections.WriteString("\n### " + top.name + "\n\n" + top.text + "\n" + header)
		each(top.keys, func(k key) { sections.WriteString(row(k)) })
	}
	return "\n### Single values\n" + header + single.String() + sections.String() + "\n"
}

func row(k key) string {
	kind := map[string]string{"string": "text", "bool": "true or false", "int": "integer", "float64": "number", "Duration": "duration", "Arguments": "mapping", "Patterns": "list of text"}[k.of]
	if k.keys != nil {
		kind = "section"
	}
	switch k.kind {
	case "map":
		kind += " by name"
	case "list":
		kind = "list of " + strings.Replace(kind, "section", "sections", 1)
	}
	return "| `" + k.path + "` | " + kind + " | " + strings.ReplaceAll(k.text, "|", `\|`) + " |\n"
}

// TestReference_EveryKeyHasAText: a comment is the documentation of its key.
func TestReference_EveryKeyHasAText(t *testing.T) {
	t.Parallel()
	each(declared(t), func(k key) {
		if n := utf8.RuneCountInString(k.text); n == 0 || n > maxText || !strings.HasSuffix(k.text, ".") {
			t.Errorf("%s: expected a text of 1 to %d characters that ends with a full stop, found %d: %q", k.path, maxText, n, k.text)
		}
	})
}
