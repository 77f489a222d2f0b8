package mcp_test

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"
)

// published finds the official schemas and examples. They lie beside the
// repository, not in it; without them the tests that need them say so.
func published(t testing.TB) string {
	t.Helper()
	dir := filepath.Join("..", "..", "..", "shared", "data", "mcp")
	if _, err := os.Stat(dir); err != nil {
		t.Logf("NOT CHECKED against the official schemas and examples: %s is absent", dir)
		return ""
	}
	return dir
}

// schemas compiles definitions of one revision.
type schemas struct {
	compiler *jsonschema.Compiler
	url      string
	place    string // of the definitions
}

// closed lists the definitions of which we write no member that the revision
// does not have. The schemas themselves allow any.
func closed() []string {
	return []string{
		"Tool", "TextContent", "ImageContent", "AudioContent", "EmbeddedResource", "ResourceLink",
		"TextResourceContents", "BlobResourceContents", "Implementation", "Annotations", "ToolAnnotations",
		"CallToolResult", "ListToolsResult", "InitializeResult", "DiscoverResult",
	}
}

func loadSchemas(t testing.TB, version string) *schemas {
	t.Helper()
	dir := published(t)
	if dir == "" {
		return nil
	}
	data, err := os.ReadFile(filepath.Join(dir, "schema", version+".json"))
	if err != nil {
		t.Fatal(err)
	}
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(data))
	if err != nil {
		t.Fatal(err)
	}
	s := &schemas{compiler: jsonschema.NewCompiler(), url: "mem:///" + version + ".json", place: "$defs"}
	root, _ := doc.(map[string]any)
	if root[s.place] == nil {
		s.place = "definitions"
	}
	definitions, _ := root[s.place].(map[string]any)
	for _, name := range closed() {
		if definition, ok := definitions[name].(map[string]any); ok && definition["additionalProperties"] == nil {
			definition["additionalProperties"] = false
		}
	}
	if err := s.compiler.AddResource(s.url, doc); err != nil {
		t.Fatal(err)
	}
	return s
}

// check validates body as the named definition; it does nothing without data.
func (s *schemas) check(t testing.TB, definition string, body []byte) {
	t.Helper()
	if s == nil {
		return
	}
	schema, err := s.compiler.Compile(s.url + "#/" + s.place + "/" + definition)
	if err != nil {
		t.Fatal(err)
	}
	value, err := jsonschema.UnmarshalJSON(bytes.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	if err := schema.Validate(value); err != nil {
		t.Errorf("no valid %s: %v\n%s", definition, err, body)
	}
}

func resultOf(t testing.TB, body []byte) []byte {
	t.Helper()
	var env struct{ Result json.RawMessage }
	if err := json.Unmarshal(body, &env); err != nil {
		t.Fatal(err)
	}
	return env.Result
}
