package rawjson

import "encoding/json"

// IsObject reports whether a JSON value is an object.
func IsObject(raw json.RawMessage) bool { return len(raw) > 0 && raw[0] == '{' }

// IsNumber reports whether a JSON value is a number.
func IsNumber(raw json.RawMessage) bool {
	return len(raw) > 0 && (raw[0] == '-' || raw[0] >= '0' && raw[0] <= '9')
}

// ObjectOr is an object, or an empty one instead of anything else.
func ObjectOr(raw json.RawMessage) json.RawMessage {
	if IsObject(raw) {
		return raw
	}
	return json.RawMessage("{}")
}

// OrEmpty is a JSON value, or an empty object if there is none.
func OrEmpty(raw json.RawMessage) json.RawMessage { return Or(raw, "{}") }

// Or is a JSON value, or another if there is none.
func Or(raw json.RawMessage, other string) json.RawMessage {
	if raw == nil {
		return json.RawMessage(other)
	}
	return raw
}

// ArrayOf is a JSON array of these values.
func ArrayOf(values []json.RawMessage) json.RawMessage {
	b := NewBuilder().Array("", values).Bytes()
	return b[len(`{"":`) : len(b)-1]
}

// ArrayOfStrings is a JSON array of these texts; nil: there are no texts.
func ArrayOfStrings(values []string) json.RawMessage {
	if len(values) == 0 {
		return nil
	}
	b := NewBuilder().Strings("", values, true).Bytes()
	return b[len(`{"":`) : len(b)-1]
}

// Without is an object without some of its members; nil: it is no object, or has no others.
func Without(raw json.RawMessage, names ...string) json.RawMessage {
	if !IsObject(raw) {
		return nil
	}
	o := Parse(raw, "")
	for _, name := range names {
		o.Take(name)
	}
	return o.Rest()
}

// List is each of a list as JSON.
func List[T any](list []T, write func(*T) json.RawMessage) []json.RawMessage {
	out := make([]json.RawMessage, len(list))
	for i := range list {
		out[i] = write(&list[i])
	}
	return out
}

// Open reads an object without a failure: anything else is taken for an empty one.
func Open(raw json.RawMessage) *Object { return Parse(ObjectOr(raw), "") }

// PeekText is a member that is a string and stays; empty: there is none.
func (o *Object) PeekText(name string) string {
	text, _ := Unquote(o.Peek(name))
	return text
}

// TakeText takes a string that says something.
func (o *Object) TakeText(name string) string {
	if len(o.Peek(name)) < len(`"x"`) {
		return ""
	}
	text, _ := o.String(name)
	return text
}

// typeOf names the JSON type of a value.
func typeOf(raw json.RawMessage) string {
	switch {
	case len(raw) == 0:
		return "nothing"
	case raw[0] == '{':
		return "an object"
	case raw[0] == '[':
		return "an array"
	case raw[0] == '"':
		return "a string"
	case raw[0] == 'n':
		return "null"
	case IsNumber(raw):
		return "a number"
	default:
		return "a boolean"
	}
}
