package config_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/goccy/go-yaml"

	"github.com/aepb/aepb-gateway/gateway/config"
)

// others are keys at the top of YAML files of other programs, which documents may show too.
var others = []string{"apiVersion", "kind", "services", "scrape_configs", "groups", "receivers", "global"}

// TestExamples_PassTheCheck: every example of a configuration in the documents can be read and suits the
// schema; one with an identity is a whole file, and serve takes it.
func TestExamples_PassTheCheck(t *testing.T) {
	t.Parallel()
	schema := compiled(t)
	files, err := filepath.Glob(filepath.Join(documents, "*.md"))
	if err != nil {
		t.Fatal(err)
	}
	below, err := filepath.Glob(filepath.Join(documents, "*", "*.md"))
	if err != nil {
		t.Fatal(err)
	}
	whole := map[string]int{}
	for _, file := range slices.Concat(files, below, []string{filepath.Join("..", "..", "README.md")}) {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, example := range fences(string(text), "yaml") {
			var top map[string]any
			if err := yaml.Unmarshal([]byte(example), &top); err != nil {
				t.Errorf("%s: an example is not YAML: %v\n%s", file, err, example)
				continue
			}
			if slices.ContainsFunc(others, func(key string) bool { _, there := top[key]; return there }) {
				continue
			}
			c, err := config.Parse([]byte(example))
			if _, identified := top["identity"]; err == nil && identified {
				whole[filepath.Base(file)]++
				err = c.Serve()
			}
			if err != nil {
				t.Errorf("%s: %v\n%s", file, err, example)
			}
			if err := accepts(schema, example); err != nil {
				t.Errorf("%s: %v\n%s", file, err, example)
			}
		}
	}
	if whole["configuration.md"] < 3 {
		t.Errorf("found %d whole files in configuration.md, expected at least 3", whole["configuration.md"])
	}
}

// fences are the blocks of a document that are marked with a language.
func fences(text, language string) (blocks []string) {
	for {
		_, rest, found := strings.Cut("\n"+text, "\n```"+language+"\n")
		if !found {
			return blocks
		}
		block, after, _ := strings.Cut(rest, "\n```")
		blocks, text = append(blocks, block+"\n"), after
	}
}
