package consent

import (
	"encoding/json"
	"slices"
	"strings"
	"unicode"

	"github.com/aepb/aepb-gateway/translators/internal/form"
	"github.com/aepb/aepb-gateway/translators/internal/rawjson"
)

// requires reports whether a form requires a value, so that values that fit it are an
// act of the user.
func requires(schema json.RawMessage) bool {
	if len(schema) == 0 || schema[0] != '{' {
		return false
	}
	required, _ := rawjson.Parse(schema, "").Strings("required")
	return len(required) > 0
}

// answerWords are names of members with which people and programs say whether they agree,
// in other ways than those of this package. They are compared without case, "_" and "-".
var answerWords = []string{
	"accept", "accepted", "action", "agree", "agreed", "allow", "allowed", "answer", "approve", "approved", "cancel",
	"canceled", "cancelled", "confirm", "confirmed", "consent", "decline", "declined", "denied", "deny", "disagree",
	"elicitation", "inputresponses", "no", "ok", "refuse", "refused", "reject", "rejected", "response", "yes",
}

func isAnswerWord(name string) bool {
	if len(name) > maxAnswerWord {
		return false
	}
	name = strings.Map(func(r rune) rune {
		if r == '_' || r == '-' || r == ' ' {
			return -1
		}
		return unicode.ToLower(r)
	}, name)
	return slices.Contains(answerWords, name)
}

// maxAnswerWord bounds, in bytes, a name that is compared with them.
const maxAnswerWord = 32

// maxNesting bounds how deep values are searched; deeper ones do not fit any form.
const maxNesting = 16

// answerMember is the first member of a JSON value, at any depth, that looks like another
// way of answering; empty: there is none.
func answerMember(value json.RawMessage, depth int) string {
	if len(value) == 0 || depth > maxNesting {
		return ""
	}
	switch value[0] {
	case '{':
		for _, m := range rawjson.Parse(value, "").Members() {
			if isAnswerWord(m.Name) {
				return m.Name
			}
			if found := answerMember(m.Value, depth+1); found != "" {
				return found
			}
		}
	case '[':
		var items []json.RawMessage
		if json.Unmarshal(value, &items) != nil {
			return ""
		}
		for _, item := range items {
			if found := answerMember(item, depth+1); found != "" {
				return found
			}
		}
	}
	return ""
}

// isAnswerText reports whether a text is a JSON object that looks like another way of
// answering.
func isAnswerText(text string) bool {
	text = strings.TrimSpace(text)
	return strings.HasPrefix(text, "{") && json.Valid([]byte(text)) && answerMember(json.RawMessage(text), 0) != ""
}

// foreign is why values that fit a form are not taken as its values: members that it does
// not name, where it names none, or that look like another way of answering. Empty: they
// are.
func foreign(schema, value json.RawMessage) string {
	if blank(value) {
		return ""
	}
	named := rawjson.Parse(schema, "").Object("properties")
	for _, m := range rawjson.Parse(value, "").Members() {
		switch {
		case named != nil && named.Has(m.Name):
		case named == nil || len(named.Members()) == 0:
			return "it names no values: accept it without any"
		case isAnswerWord(m.Name) || answerMember(m.Value, 1) != "":
			return "a member that it does not name looks like another way of answering: answer with \"action\", and put values into \"content\""
		}
	}
	return ""
}

// wanted says what a form wants in place of a text that does not fit it.
func wanted(schema json.RawMessage) string {
	const values = "it wants values, not text"
	o := rawjson.Parse(schema, "")
	required, _ := o.Strings("required")
	properties := o.Object("properties")
	if o.Err() != nil || properties == nil || len(required) != 1 {
		return values
	}
	declared := properties.Peek(required[0])
	if choices := form.Choices(declared); len(choices) > 0 {
		return "it wants one of " + quoted(choices)
	}
	property := rawjson.Parse(declared, "")
	kind, _ := property.String("type")
	switch format, _ := property.String("format"); {
	case kind == "string" && format != "":
		return "it wants a text of the format " + quote(format)
	case kind != "string" && kind != "":
		return "it wants a value of the type " + quote(kind) + " as data, not text"
	}
	return values
}

// misresult is why an object is no result of a request for sampling or roots (MCP,
// CreateMessageResult and ListRootsResult); empty: it is one.
func misresult(method string, result *rawjson.Object) string {
	switch method {
	case "sampling/createMessage":
		role, model, content := result.PeekText("role"), result.PeekText("model"), result.Peek("content")
		switch {
		case role != "assistant":
			return `its "role" is not "assistant"`
		case model == "":
			return `it names no "model"`
		case len(content) == 0 || content[0] != '{' && content[0] != '[':
			return `its "content" is neither an object nor a list`
		}
	case "roots/list":
		if given := result.Peek("roots"); !areRoots(given) {
			return `its "roots" are no list of objects with a "uri"`
		}
	}
	return ""
}

func areRoots(given json.RawMessage) bool {
	var roots []json.RawMessage
	if len(given) == 0 || given[0] != '[' || json.Unmarshal(given, &roots) != nil {
		return false
	}
	return !slices.ContainsFunc(roots, func(root json.RawMessage) bool {
		return rawjson.Open(root).PeekText("uri") == ""
	})
}
