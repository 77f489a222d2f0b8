// Package nulls makes messages with explicit nulls from the official schema of a protocol: peers whose
// serialisers write every member write null for those that they leave out, and a codec takes that for
// absence. The values are made and not listed, so that a new revision of a schema is tried whole.
package nulls

import (
	"cmp"
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/aepb/aepb-gateway/translators/internal/rawjson"
)

// Of makes values of a definition of a JSON schema in which optional members are null: one for each
// such member, at each depth, by the place of the member. What must be there has a value that the
// schema allows. with has members that a definition gets besides, where the schema says in words alone
// what must be there. Definitions that contain themselves end at the second time.
func Of(t testing.TB, schema []byte, definition string, with map[string]string) map[string]json.RawMessage {
	t.Helper()
	g := &generator{with: with, definitions: map[string]json.RawMessage{}}
	root := rawjson.Parse(schema, "")
	if root.Err() != nil {
		t.Fatalf("the schema is no JSON object: %v", root.Err())
	}
	for _, at := range []string{"definitions", "$defs"} {
		for _, m := range rawjson.Open(root.Peek(at)).Members() {
			g.definitions[m.Name] = m.Value
		}
	}
	_, variants := g.named(definition, nil)
	return variants
}

type generator struct {
	definitions map[string]json.RawMessage
	with        map[string]string
}

// named makes the least value of a definition, and its variants with a null.
func (g *generator) named(name string, within []string) (json.RawMessage, map[string]json.RawMessage) {
	if slices.Contains(within, name) {
		return json.RawMessage("{}"), nil
	}
	return g.value(g.definitions[name], g.with[name], append(slices.Clone(within), name))
}

func (g *generator) value(schema json.RawMessage, extra string, within []string) (json.RawMessage, map[string]json.RawMessage) {
	o := rawjson.Open(schema)
	if ref := o.PeekText("$ref"); ref != "" {
		name := strings.TrimSuffix(ref[strings.LastIndexAny(ref, "/#")+1:], ".jsonschema.json")
		return g.named(name, within)
	}
	for _, of := range []string{"anyOf", "oneOf", "allOf"} {
		if all, ok := rawjson.Elements(o.Peek(of)); ok && len(all) > 0 && !o.Has("properties") {
			return g.alternatives(all, within)
		}
	}
	if choices, ok := rawjson.Elements(o.Peek("enum")); ok && len(choices) > 0 {
		return choices[0], nil
	}
	if o.Has("const") {
		return o.Peek("const"), nil
	}
	switch kind := typeIn(o.Peek("type")); {
	case o.Has("properties"):
		return g.object(o, extra, within)
	case kind == "array":
		item, variants := g.value(o.Peek("items"), "", within)
		out := map[string]json.RawMessage{}
		for at, v := range variants {
			out["/0"+at] = rawjson.ArrayOf([]json.RawMessage{v})
		}
		return rawjson.ArrayOf([]json.RawMessage{item}), out
	default:
		return least(kind, o.PeekText("format")), nil
	}
}

// alternatives is the least value of the first, and the variants of all.
func (g *generator) alternatives(all []json.RawMessage, within []string) (json.RawMessage, map[string]json.RawMessage) {
	var first json.RawMessage
	out := map[string]json.RawMessage{}
	for i, one := range all {
		value, variants := g.value(one, "", within)
		if i == 0 {
			first = value
		}
		for at, v := range variants {
			out["("+string(rune('a'+i))+")"+at] = v
		}
	}
	return first, out
}

func (g *generator) object(o *rawjson.Object, extra string, within []string) (json.RawMessage, map[string]json.RawMessage) {
	required, _ := rawjson.Texts(rawjson.Or(o.Peek("required"), "[]"))
	given := rawjson.Parse(rawjson.OrEmpty(json.RawMessage(nilIfEmpty(extra))), "")
	members := slices.Clone(given.Members())
	properties := rawjson.Open(o.Peek("properties")).Members()
	inner := map[string]map[string]json.RawMessage{}
	for _, p := range properties {
		value, variants := g.value(p.Value, "", within)
		inner[p.Name] = variants
		if slices.Contains(required, p.Name) && !given.Has(p.Name) {
			members = append(members, rawjson.Member{Name: p.Name, Value: value})
		}
	}
	with := func(name string, value json.RawMessage) json.RawMessage {
		b := rawjson.NewBuilder()
		for _, m := range members {
			if m.Name != name {
				b.Raw(m.Name, m.Value)
			}
		}
		return b.Raw(name, value).Bytes()
	}
	out := map[string]json.RawMessage{}
	for _, p := range properties {
		if !slices.Contains(required, p.Name) && !given.Has(p.Name) {
			out["/"+p.Name] = with(p.Name, json.RawMessage("null"))
		}
		for at, v := range inner[p.Name] {
			out["/"+p.Name+at] = with(p.Name, v)
		}
	}
	b := rawjson.NewBuilder()
	for _, m := range members {
		b.Raw(m.Name, m.Value)
	}
	return b.Bytes(), out
}

func nilIfEmpty(text string) []byte {
	if text == "" {
		return nil
	}
	return []byte(text)
}

// typeIn is the type of a schema, of several the first.
func typeIn(raw json.RawMessage) string {
	if list, ok := rawjson.Texts(raw); ok && len(list) > 0 {
		return list[0]
	}
	kind, _ := rawjson.Unquote(raw)
	return kind
}

// least is the least value of a type.
func least(kind, format string) json.RawMessage {
	switch kind {
	case "string":
		return rawjson.Quote(cmp.Or(map[string]string{"date-time": "2026-01-02T03:04:05Z", "byte": "eA==", "uri": "https://example.com/x"}[format], "x"))
	case "integer", "number":
		return json.RawMessage("1")
	case "boolean":
		return json.RawMessage("true")
	case "array":
		return json.RawMessage("[]")
	default:
		return json.RawMessage("{}")
	}
}
