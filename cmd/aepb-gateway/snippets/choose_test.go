package snippets_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/aepb/aepb-gateway/cmd/aepb-gateway/snippets"
	"github.com/aepb/aepb-gateway/translators/canonical"
)

func skill(id, schema, hints string) canonical.Capability {
	return canonical.Capability{ID: id, InputSchema: json.RawMessage(schema), Annotations: json.RawMessage(hints)}
}

// TestChoose_CanBeCalledAsPrinted: the programs call the skill which demands the fewest arguments, with
// values that stand in every language as they are.
func TestChoose_CanBeCalledAsPrinted(t *testing.T) {
	t.Parallel()
	two := skill("add", `{"required":["b","a"],"properties":{"a":{"type":"number"},"b":{"type":"integer"},"c":{"type":"array"}}}`, "")
	one := skill("echo", `{"required":["message"],"properties":{"message":{"type":"string"}}}`, "")
	list := skill("list", `{"required":["paths"],"properties":{"paths":{"type":"array"}}}`, "")
	for name, c := range map[string]struct {
		skills      []canonical.Capability
		skill, with string
	}{
		"none":                      {nil, "NAME", "{}"},
		"texts and numbers":         {[]canonical.Capability{two, one}, "echo", `{"message":"hello"}`},
		"two numbers":               {[]canonical.Capability{list, two}, "add", `{"a":1,"b":1}`},
		"the first of equals":       {[]canonical.Capability{skill("one", "", ""), skill("two", `{}`, "")}, "one", "{}"},
		"a list":                    {[]canonical.Capability{list}, "NAME", "{}"},
		"one of several types":      {[]canonical.Capability{skill("x", `{"required":["a"],"properties":{"a":{"type":["string","null"]}}}`, "")}, "NAME", "{}"},
		"a name that breaks a line": {[]canonical.Capability{skill("x';y", `{}`, "")}, "NAME", "{}"},
		"a property that does":      {[]canonical.Capability{skill("x", `{"required":["a'"],"properties":{"a'":{"type":"string"}}}`, "")}, "NAME", "{}"},
		"a schema of another form":  {[]canonical.Capability{skill("x", `{"required":7}`, "")}, "x", "{}"},
	} {
		if got := snippets.Choose(c.skills); got.Skill != c.skill || got.Input != c.with || (got.Why != "") != (c.skill == snippets.Placeholder) {
			t.Errorf("%s: %+v, want %s with %s", name, got, c.skill, c.with)
		}
	}
}

// TestChoose_CallsNothingHarmful: a tool is not called that may destroy or reveal something, as its hints
// or its name say; hints that a tool only reads come first, then such names.
func TestChoose_CallsNothingHarmful(t *testing.T) {
	t.Parallel()
	const reads, destroys, neither = `{"readOnlyHint":true}`, `{"destructiveHint":true}`, `{"readOnlyHint":false,"destructiveHint":false}`
	needs := `{"required":["id"],"properties":{"id":{"type":"string"}}}`
	for name, c := range map[string]struct {
		skills []canonical.Capability
		want   string
	}{
		"reads before nothing to say":     {[]canonical.Capability{skill("delete_all", "", destroys), skill("read_note", needs, reads)}, "read_note"},
		"the hint before the name":        {[]canonical.Capability{skill("get", "", ""), skill("note", needs, reads)}, "note"},
		"the name before others":          {[]canonical.Capability{skill("chart", "", ""), skill("listNotes", needs, "")}, "listNotes"},
		"others":                          {[]canonical.Capability{skill("boom", "", destroys), skill("chart", "", "")}, "chart"},
		"says it does neither":            {[]canonical.Capability{skill("chart", "", neither)}, "chart"},
		"destroys":                        {[]canonical.Capability{skill("list", "", destroys)}, "NAME"},
		"destroys and reads":              {[]canonical.Capability{skill("list", "", `{"readOnlyHint":true,"destructiveHint":true}`)}, "NAME"},
		"reads secrets":                   {[]canonical.Capability{skill("read_secrets", "", reads)}, "NAME"},
		"prints the environment":          {[]canonical.Capability{skill("get-env", "", "")}, "NAME"},
		"in capitals":                     {[]canonical.Capability{skill("DropTable", "", "")}, "NAME"},
		"within a word":                   {[]canonical.Capability{skill("deleteall", "", "")}, "NAME"},
		"a short word within another":     {[]canonical.Capability{skill("skills", "", "")}, "skills"},
		"a program":                       {[]canonical.Capability{skill("shell.exec", "", "")}, "NAME"},
		"tokens":                          {[]canonical.Capability{skill("list/tokens", "", "")}, "NAME"},
		"hints of another form":           {[]canonical.Capability{skill("chart", "", `[7]`)}, "chart"},
		"harmless, with unknown argument": {[]canonical.Capability{skill("chart", `{"required":["a"]}`, reads)}, "NAME"},
	} {
		if got := snippets.Choose(c.skills); got.Skill != c.want || (got.Why != "") != (c.want == snippets.Placeholder) {
			t.Errorf("%s: %+v, want %s", name, got, c.want)
		}
	}
}

// TestPrint_SaysWhyNothingIsCalled: programs without a skill have a name to fill in, and the reason.
func TestPrint_SaysWhyNothingIsCalled(t *testing.T) {
	t.Parallel()
	for a2a, want := range map[bool]string{true: "with the name of a skill in place of NAME", false: "with the name of a tool in place of NAME"} {
		var out strings.Builder
		if err := snippets.Print(&out, snippets.Agent{Name: "n", Example: snippets.Choose([]canonical.Capability{skill("wipe", "", "")})}, a2a); err != nil {
			t.Fatal(err)
		}
		if got, _, _ := strings.Cut(out.String(), "\n"); !strings.Contains(got, want) || !strings.Contains(got, "may destroy or reveal") || strings.Contains(out.String(), "wipe") {
			t.Errorf("printed %s", out.String())
		}
	}
}
