package main

import (
	"encoding/json"
	"testing"

	"github.com/aepb/aepb-gateway/translators/canonical"
)

// TestSimplest_CanBeCalledAsPrinted: dev prints programs that call the skill which demands
// the fewest arguments, with values that stand in every language as they are.
func TestSimplest_CanBeCalledAsPrinted(t *testing.T) {
	t.Parallel()
	skill := func(id, schema string) canonical.Capability {
		return canonical.Capability{ID: id, InputSchema: json.RawMessage(schema)}
	}
	two := skill("add", `{"required":["b","a"],"properties":{"a":{"type":"number"},"b":{"type":"integer"},"c":{"type":"array"}}}`)
	one := skill("echo", `{"required":["message"],"properties":{"message":{"type":"string"}}}`)
	list := skill("list", `{"required":["paths"],"properties":{"paths":{"type":"array"}}}`)
	for name, c := range map[string]struct {
		skills      []canonical.Capability
		skill, with string
	}{
		"none":                      {nil, "NAME", "{}"},
		"texts and numbers":         {[]canonical.Capability{two, one}, "echo", `{"message":"hello"}`},
		"two numbers":               {[]canonical.Capability{list, two}, "add", `{"a":1,"b":1}`},
		"the first of equals":       {[]canonical.Capability{skill("one", ""), skill("two", `{}`)}, "one", "{}"},
		"a list":                    {[]canonical.Capability{list}, "NAME", "{}"},
		"one of several types":      {[]canonical.Capability{skill("x", `{"required":["a"],"properties":{"a":{"type":["string","null"]}}}`)}, "NAME", "{}"},
		"a name that breaks a line": {[]canonical.Capability{skill("x';y", `{}`)}, "NAME", "{}"},
		"a property that does":      {[]canonical.Capability{skill("x", `{"required":["a'"],"properties":{"a'":{"type":"string"}}}`)}, "NAME", "{}"},
		"a schema of another form":  {[]canonical.Capability{skill("x", `{"required":7}`)}, "x", "{}"},
	} {
		if got, with := simplest(c.skills); got != c.skill || with != c.with {
			t.Errorf("%s: %s with %s, want %s with %s", name, got, with, c.skill, c.with)
		}
	}
}
