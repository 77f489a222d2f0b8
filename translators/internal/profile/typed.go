package profile

import (
	"encoding/json"
	"slices"

	"github.com/aepb/aepb-gateway/translators/canonical"
	"github.com/aepb/aepb-gateway/translators/internal/form"
	"github.com/aepb/aepb-gateway/translators/internal/rawjson"
)

// TypedMedia is the media type of a P2 data part.
const TypedMedia = "application/json"

// TypedData is the value of a P2 data part: {"skill": name, "input": args}.
// Absent arguments become {}; carry FieldArgsAbsent to tell them apart.
func TypedData(call *canonical.Call) json.RawMessage {
	args := argsOf(call)
	return rawjson.NewBuilderOf(len(call.Name)+len(args)+len(`{"skill":"","input":}`)).String("skill", call.Name).Raw("input", args).Bytes()
}

// argsOf are the arguments of a call, which may have none.
func argsOf(call *canonical.Call) json.RawMessage {
	if call.Args == nil {
		return json.RawMessage("{}")
	}
	return call.Args
}

// ParseTyped reads a P2 data part's value; ok is false when it is anything but
// an object of exactly a non-empty string "skill" and an object "input", which may be
// left out where there are no arguments.
func ParseTyped(data json.RawMessage) (call *canonical.Call, ok bool) {
	if len(data) == 0 || data[0] != '{' {
		return nil, false
	}
	o := rawjson.Parse(data, "")
	name, _ := o.String("skill")
	input := json.RawMessage("{}")
	if o.Has("input") {
		input = o.RawObject("input")
	}
	if o.Err() != nil || name == "" || input == nil || len(o.Members()) > 0 {
		return nil, false
	}
	return &canonical.Call{Name: name, Args: input}, true
}

// TypedTurn derives the call of a turn that is a P2 invocation: exactly one
// data part, of that shape; text parts beside it are advisory.
func TypedTurn(parts []canonical.Part) (call *canonical.Call, ok bool) {
	at := soleDataAt(parts)
	if at < 0 {
		return nil, false
	}
	return ParseTyped(parts[at].Data)
}

// soleDataAt is the index of the one data part among texts; -1: there is another part, or no data.
func soleDataAt(parts []canonical.Part) int {
	at := -1
	for i := range parts {
		switch {
		case parts[i].Kind == canonical.KindData && at < 0:
			at = i
		case parts[i].Kind != canonical.KindText:
			return -1
		}
	}
	return at
}

// Bind is profile P3: arguments for a tool whose schema wants exactly one
// required string, named property, and nothing else. A title of one of its choices
// stands for the choice. ok is false when the schema is another, or when the text
// does not fit it.
func Bind(schema json.RawMessage, text string) (args json.RawMessage, property string, ok bool) {
	if !rawjson.IsObject(schema) {
		return nil, "", false
	}
	o := rawjson.Parse(schema, "")
	required, _ := o.Strings("required")
	properties := o.Object("properties")
	if o.Err() != nil || properties == nil || len(required) != 1 {
		return nil, "", false
	}
	declared := properties.Peek(required[0])
	if !rawjson.IsObject(declared) {
		return nil, "", false
	}
	if kind, _ := rawjson.Parse(declared, "").String("type"); kind != "string" {
		return nil, "", false
	}
	text = form.Choice(declared, text)
	if !anyText(declared) {
		if misfits, _ := form.Fit(declared, rawjson.Quote(text)); misfits != nil { // what cannot be checked the agent judges
			return nil, "", false
		}
	}
	return rawjson.NewBuilder().String(required[0], text).Bytes(), required[0], true
}

// anyText reports whether a property takes every text: most do, and need not be
// compiled for each message.
func anyText(declared json.RawMessage) bool {
	for _, m := range rawjson.Parse(declared, "").Members() {
		if !slices.Contains([]string{"type", "title", "description", "default", "examples"}, m.Name) {
			return false
		}
	}
	return true
}
