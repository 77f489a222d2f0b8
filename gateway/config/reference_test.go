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
)

var update = flag.Bool("update", false, "write the reference into the README")

// The reference of the configuration stands in the README between these marks
// and is made from the comments of config.go and slim.go.
const (
	referenceBegin = "<!-- config reference: made from gateway/config/config.go -->\n"
	referenceEnd   = "<!-- end of config reference -->\n"
)

func TestReferenceIsTrue(t *testing.T) {
	t.Parallel()
	file := filepath.Join("..", "..", "README.md")
	readme, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, ok := strings.Cut(string(readme), referenceBegin)
	if !ok {
		t.Fatal("the README has no place for the reference")
	}
	_, after, ok := strings.Cut(rest, referenceEnd)
	if !ok {
		t.Fatal("the README's reference does not end")
	}
	want := before + referenceBegin + reference(t) + referenceEnd + after
	if *update {
		if err := os.WriteFile(file, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if want != string(readme) {
		t.Error("the README's configuration reference is not that of the code: make vectors")
	}
}

// reference is a table of every key with its comment.
func reference(t *testing.T) string {
	t.Helper()
	structs := map[string]*ast.StructType{}
	for _, file := range []string{"config.go", "slim.go", "life.go"} {
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
	var b strings.Builder
	b.WriteString("\n| key | type | meaning |\n|---|---|---|\n")
	rows(&b, structs, "Config", "")
	b.WriteString("\n")
	return b.String()
}

func rows(b *strings.Builder, structs map[string]*ast.StructType, name, prefix string) {
	for _, field := range structs[name].Fields.List {
		if field.Tag == nil {
			continue // no key
		}
		key := prefix + reflect.StructTag(strings.Trim(field.Tag.Value, "`")).Get("yaml")
		kind, inner := describe(field.Type)
		suffix := map[string]string{"map": ".NAME", "list": "[]"}[kind]
		if structs[inner] != nil {
			if comment := strings.TrimSpace(field.Comment.Text()); comment != "" {
				b.WriteString("| `" + key + suffix + "` | | " + comment + " |\n")
			}
			rows(b, structs, inner, key+suffix+".")
			continue
		}
		if suffix == "[]" {
			inner = "list of " + inner
		}
		b.WriteString("| `" + key + "` | " + inner + " | " + strings.TrimSpace(field.Comment.Text()) + " |\n")
	}
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
		return "", map[string]string{"string": "text", "bool": "true or false", "int": "integer", "float64": "number", "Duration": "duration"}[e.Name] + structName(e.Name)
	default:
		return "", ""
	}
}

func structName(name string) string {
	switch name {
	case "string", "bool", "int", "float64", "Duration":
		return ""
	default:
		return name
	}
}
