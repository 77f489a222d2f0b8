package rawjson

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"slices"
	"strings"
	"unicode"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/aepb/aepb-gateway/translators"
)

// Member is one member of an object.
type Member struct {
	Name  string
	Value json.RawMessage
}

// Object walks the members of one JSON object. Take-methods remove a member,
// so that Rest returns the members that were not taken. The first wrong type is kept and
// returned by Err; after it every method answers with a zero value.
type Object struct {
	path    string
	members []Member
	err     error
}

// few is the number of members that are allocated with the object: growing to four
// from nothing takes three allocations. A larger object gets space for three times as
// many: an envelope has eleven.
const few = 4

// Parse reads the members of data, which must have passed Check as part of a
// larger value or on its own. path is where the object stands, for errors. The
// values are slices of data: neither may be changed.
func Parse(data []byte, path string) *Object {
	i := space(data, 0)
	if i >= len(data) || data[i] != '{' {
		o := &Object{path: path}
		o.Fail("", "not an object")
		return o
	}
	if i = space(data, i+1); i < len(data) && data[i] == '}' && space(data, i+1) == len(data) {
		return &Object{path: path}
	}
	roomy := &struct {
		Object
		space [few]Member
	}{Object: Object{path: path}}
	o := &roomy.Object
	o.members = roomy.space[:0]
	whole := Walk(data, func(quoted, value json.RawMessage) bool {
		name, ok := Unquote(quoted)
		if len(o.members) == few {
			o.members = slices.Grow(o.members, 2*few)
		}
		o.members = append(o.members, Member{Name: name, Value: value})
		return ok
	})
	if !whole {
		o.Fail("", "not valid JSON")
	}
	return o
}

// Empty returns an object without members, in place of one that is absent.
func Empty() *Object { return &Object{} }

// Walk hands over the members of an object, each name in its quotes, until each
// says no; false: it did, or the data ends before the object. It is for those
// who want few members of many; for data see [Parse].
func Walk(data []byte, each func(name, value json.RawMessage) bool) bool {
	return items(data, '{', '}', func(i int) int {
		if data[i] != '"' {
			return -1
		}
		end := text(data, i)
		if end < 0 {
			return -1
		}
		name := slice(data, i, end)
		if i = space(data, end); i >= len(data) || data[i] != ':' {
			return -1
		}
		i = space(data, i+1)
		if end = value(data, i); end > 0 && !each(name, slice(data, i, end)) {
			return -1
		}
		return end
	})
}

// Err is the first failure.
func (o *Object) Err() error { return o.err }

// Fail records a failure about a member; the first one stays.
func (o *Object) Fail(name, reason string) {
	if o.err == nil {
		o.err = &translators.MalformedError{Path: o.Path(name), Reason: reason}
	}
}

// expected records that a member is of another type than it must be.
func (o *Object) expected(name, want string, found json.RawMessage) {
	o.Fail(name, "not "+want+", but "+typeOf(found))
}

// Path is the JSON Pointer of a member.
func (o *Object) Path(name string) string {
	if name == "" {
		return o.path
	}
	return o.path + "/" + name
}

// Has reports whether a member stands there, null included.
func (o *Object) Has(name string) bool { return o.find(name) >= 0 }

// Peek returns a member's raw value and leaves it; nil: absent.
func (o *Object) Peek(name string) json.RawMessage {
	if i := o.find(name); i >= 0 {
		return o.members[i].Value
	}
	return nil
}

// find is where a member stands; negative: nowhere. A member of the same name in
// another case is a failure, beside it or in its place: a peer that takes the two
// for one would read what was not judged here.
func (o *Object) find(name string) int {
	at := -1
	for i := range o.members {
		other := o.members[i].Name
		switch {
		case len(other) < len(name): // folding case makes no name longer
		case other == name:
			at = i
		case alike(other, name) && strings.EqualFold(other, name):
			o.Fail(name, "a member has this name in another case")
			return -1
		}
	}
	return at
}

// alike reports whether a longer or equally long name could differ from another
// in case alone: almost none do, by their first letters.
func alike(other, name string) bool {
	return name != "" && (other[0] > unicode.MaxASCII || (other[0]^name[0])&^0x20 == 0)
}

// Put adds a member that is not there.
func (o *Object) Put(name string, value json.RawMessage) {
	o.members = append(o.members, Member{Name: name, Value: value})
}

// PutSet is Put of a value; without one it adds nothing.
func (o *Object) PutSet(name string, value json.RawMessage) {
	if value != nil {
		o.Put(name, value)
	}
}

// Insert adds a member that is not there before the first one with a greater
// name: members in order stay in order.
func (o *Object) Insert(name string, value json.RawMessage) {
	at := slices.IndexFunc(o.members, func(m Member) bool { return m.Name > name })
	if at < 0 {
		at = len(o.members)
	}
	o.members = slices.Insert(o.members, at, Member{Name: name, Value: value})
}

// Take removes and returns a member's raw value; nil: absent.
func (o *Object) Take(name string) json.RawMessage {
	if o.err != nil {
		return nil
	}
	if i := o.find(name); i >= 0 {
		value := o.members[i].Value
		o.members = append(o.members[:i], o.members[i+1:]...)
		return value
	}
	return nil
}

// String takes a string; ok: it stood there.
func (o *Object) String(name string) (value string, ok bool) {
	raw := o.Take(name)
	if raw == nil {
		return "", false
	}
	value, ok = Unquote(raw)
	if !ok {
		o.expected(name, "a string", raw)
	}
	return value, ok
}

// Required takes a string that must stand there.
func (o *Object) Required(name string) string {
	value, ok := o.String(name)
	if !ok {
		o.Fail(name, "required")
	}
	return value
}

// Bool takes a boolean; ok: it stood there.
func (o *Object) Bool(name string) (value, ok bool) {
	switch raw := o.Take(name); string(raw) {
	case "":
		return false, false
	case "true":
		return true, true
	case "false":
		return false, true
	default:
		o.expected(name, "a boolean", raw)
		return false, false
	}
}

// Object takes an object; nil: absent.
func (o *Object) Object(name string) *Object {
	raw := o.Take(name)
	if raw == nil {
		return nil
	}
	if raw[0] != '{' {
		o.expected(name, "an object", raw)
	}
	child := Parse(raw, o.Path(name))
	if child.err != nil && o.err == nil {
		o.err = child.err
	}
	return child
}

// RawObject takes a member that must be an object, unread; nil: absent.
func (o *Object) RawObject(name string) json.RawMessage {
	raw := o.Take(name)
	if raw != nil && raw[0] != '{' {
		o.expected(name, "an object", raw)
		return nil
	}
	return raw
}

// Array takes the elements of an array; ok: it stood there.
func (o *Object) Array(name string) (elements []json.RawMessage, ok bool) {
	raw := o.Take(name)
	if raw == nil {
		return nil, false
	}
	elements, ok = Elements(raw)
	if !ok {
		o.expected(name, "an array", raw)
	}
	return elements, ok
}

// Strings takes an array of strings; ok: it stood there.
func (o *Object) Strings(name string) (values []string, ok bool) {
	elements, ok := o.Array(name)
	if !ok {
		return nil, false
	}
	values = make([]string, 0, len(elements))
	for _, raw := range elements {
		value, isString := Unquote(raw)
		if !isString {
			o.Fail(name, "not an array of strings")
			return nil, false
		}
		values = append(values, value)
	}
	return values, true
}

// Base64 takes a string of standard or URL-safe base64, padded or not.
func (o *Object) Base64(name string) (data []byte, ok bool) {
	text, ok := o.String(name)
	if !ok {
		return nil, false
	}
	if data, ok = Unbase64(text); !ok {
		o.Fail(name, "not base64")
	}
	return data, ok
}

// Unbase64 takes both alphabets, padded or not, as ProtoJSON readers do.
func Unbase64(text string) ([]byte, bool) {
	for _, enc := range []*base64.Encoding{base64.StdEncoding, base64.RawStdEncoding, base64.URLEncoding, base64.RawURLEncoding} {
		if data, err := enc.Strict().DecodeString(text); err == nil {
			return data, true
		}
	}
	return nil, false
}

// Rest is what was not taken, as an object in its original order; nil: nothing.
func (o *Object) Rest() json.RawMessage {
	if o.err != nil || len(o.members) == 0 {
		return nil
	}
	size := 2
	for _, m := range o.members {
		size += len(m.Name) + len(m.Value) + 4
	}
	return NewBuilderOf(size).add(o.members).Bytes()
}

// Members returns what was not taken.
func (o *Object) Members() []Member { return o.members }

// Elements splits an array that has passed Check into slices of raw.
func Elements(raw json.RawMessage) ([]json.RawMessage, bool) {
	elements := []json.RawMessage{}
	ok := items(raw, '[', ']', func(i int) int {
		end := value(raw, i)
		if end > 0 {
			elements = append(elements, slice(raw, i, end))
		}
		return end
	})
	return elements, ok
}

// Texts reads an array of strings and nothing else; ok is false for anything else.
func Texts(raw json.RawMessage) (values []string, ok bool) {
	elements, ok := Elements(raw)
	for _, element := range elements {
		value, isString := Unquote(element)
		ok = ok && isString
		values = append(values, value)
	}
	return values, ok
}

// usual are names and words of nearly every message, which are not made anew for each.
var usual = map[string]string{
	"2.0": "2.0", "_meta": "_meta", "arguments": "arguments", "artifactId": "artifactId", "artifacts": "artifacts", "code": "code",
	"complete": "complete", "content": "content", "contextId": "contextId", "data": "data", "error": "error", "id": "id", "input": "input",
	"isError": "isError", "jsonrpc": "jsonrpc", "mediaType": "mediaType", "message": "message", "messageId": "messageId", "metadata": "metadata",
	"method": "method", "name": "name", "params": "params", "parts": "parts", "result": "result", "resultType": "resultType", "role": "role",
	"skill": "skill", "state": "state", "status": "status", "structuredContent": "structuredContent", "task": "task", "taskId": "taskId", "text": "text",
	"timestamp": "timestamp", "type": "type", "application/json": "application/json", "ROLE_AGENT": "ROLE_AGENT", "ROLE_USER": "ROLE_USER",
	"SendMessage": "SendMessage", "TASK_STATE_COMPLETED": "TASK_STATE_COMPLETED", "tools/call": "tools/call",
}

// Unquote decodes a JSON string.
func Unquote(raw json.RawMessage) (string, bool) {
	if len(raw) < 2 || raw[0] != '"' || raw[len(raw)-1] != '"' {
		return "", false
	}
	if inner := raw[1 : len(raw)-1]; bytes.IndexByte(inner, '\\') < 0 {
		if text, ok := usual[string(inner)]; ok {
			return text, true
		}
		return string(inner), true
	}
	text, err := jsontext.AppendUnquote(nil, raw)
	return string(text), err == nil
}

// Quote encodes a JSON string. Text that is not valid UTF-8 cannot come from a
// checked message; its broken bytes become U+FFFD.
func Quote(text string) json.RawMessage {
	return appendQuote(make([]byte, 0, len(text)+2), text)
}

// QuoteSet is Quote of a text that is set; empty: nil.
func QuoteSet(text string) json.RawMessage {
	if text == "" {
		return nil
	}
	return Quote(text)
}
