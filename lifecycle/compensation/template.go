package compensation

import (
	"encoding/json"
	"errors"
	"slices"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json/jsontext"
)

// Source is a value that references point into.
type Source string

// The sources, as a reference names them.
const (
	FromCall   Source = "call"   // the arguments of the call that is undone
	FromResult Source = "result" // its result
	FromBefore Source = "before" // what the [Reading] returned before it
)

// Bounds of a pointer.
const (
	maxPointer = 512 // bytes
	maxLevels  = 32
)

// Template makes the arguments of a call: a JSON object in which an object of one of these forms is a reference,
// and stands for a value. P and E are JSON pointers (RFC 6901).
//
//	{"call": P}              the value at P of the call's arguments; result and before likewise
//	{"call": P, "each": E}   the list of the values at E in each element of the list at P
//	{"value": V}             V as it is, without references
//
// All else stands for itself, also an object that has more members than these. The outermost object can be a
// reference into a source as well; {"value": V} there is the argument named value. The zero value is {}.
type Template struct {
	text  string // normal JSON
	parts []part
}

// part is text of a template, and the reference that follows it.
type part struct {
	literal string
	ref     *reference // nil: the template ends here
}

// reference stands for a value of a source.
type reference struct {
	from Source
	at   pointer
	each *pointer // nil: the value itself
}

// pointer is a JSON pointer (RFC 6901).
type pointer struct {
	text  string
	names []string // decoded
}

// MarshalJSON writes the template as [Template.UnmarshalJSON] reads it: without white space, members sorted.
func (t Template) MarshalJSON() ([]byte, error) {
	if t.text == "" {
		return []byte("{}"), nil
	}
	return []byte(t.text), nil
}

// UnmarshalJSON reads a template of at most [MaxRule] bytes. Its error is a *[RuleError].
func (t *Template) UnmarshalJSON(data []byte) error {
	text, err := normal(data)
	if err != nil {
		return err
	}
	p := &parser{sources: []Source{FromCall, FromResult, FromBefore}}
	read := p.template(text, "")
	if p.err != nil {
		return p.err
	}
	*t = read
	return nil
}

// sources are those that the template points into.
func (t Template) sources() (from []Source) {
	for _, p := range t.parts {
		if p.ref != nil && !slices.Contains(from, p.ref.from) {
			from = append(from, p.ref.from)
		}
	}
	return from
}

// normal checks the text of a rule or template, removes white space and unneeded escapes, and sorts members. Its error
// is a *[RuleError].
func normal(raw []byte) ([]byte, error) {
	if len(raw) > MaxRule {
		return nil, &RuleError{Reason: "it is too long: expected at most " + strconv.Itoa(MaxRule) + " bytes"}
	}
	text := jsontext.Value(slices.Clone(raw))
	err := text.Compact(append(strict(), jsontext.PreserveRawStrings(false), jsontext.ReorderRawObjects(true))...)
	wrong, located := errors.AsType[*jsontext.SyntacticError](err)
	switch {
	case err == nil:
		return text, nil
	case located && errors.Is(err, jsontext.ErrDuplicateName):
		return nil, &RuleError{string(wrong.JSONPointer), "the member stands twice: expected it once"}
	case located:
		return nil, &RuleError{string(wrong.JSONPointer), "it is no JSON: expected one JSON object"}
	default:
		return nil, &RuleError{Reason: "it is no JSON: expected one JSON object"}
	}
}

// strict are the options that check JSON from outside; numbers stay as they are written.
func strict() []jsontext.Options {
	return []jsontext.Options{jsontext.AllowDuplicateNames(false), jsontext.AllowInvalidUTF8(false)}
}

// parser reads the templates of one rule. It keeps the first mistake.
type parser struct {
	sources  []Source // that references may name
	pointers int
	parts    []part
	literal  []byte // text of the part that is not complete
	err      error  // a *RuleError
}

func (p *parser) check(ok bool, at, reason string) {
	if !ok && p.err == nil {
		p.err = &RuleError{at, reason}
	}
}

// template reads a template of normal JSON; nil: it is not written.
func (p *parser) template(raw []byte, at string) Template {
	if raw == nil {
		return Template{}
	}
	p.check(raw[0] == '{', at, "expected an object: arguments by their names")
	p.parts, p.literal = nil, nil
	if ref := p.reference(raw, at); ref != nil {
		p.refer(ref)
	} else {
		p.list(raw, at, 1, false)
	}
	return Template{string(raw), append(p.parts, part{literal: string(p.literal)})}
}

// refer ends a part with a reference.
func (p *parser) refer(ref *reference) {
	p.parts = append(p.parts, part{string(p.literal), ref})
	p.literal = nil
}

// value reads a value within depth objects and lists; plain: it has no references.
func (p *parser) value(raw []byte, at string, depth int, plain bool) {
	if p.err != nil {
		return
	}
	if raw[0] == '{' && !plain {
		if ref := p.reference(raw, at); ref != nil {
			p.refer(ref)
			return
		}
		if constant, ok := p.constant(raw, at); ok {
			p.value(constant, below(at, "value"), depth, true)
			return
		}
	}
	if raw[0] == '{' || raw[0] == '[' {
		p.list(raw, at, depth+1, plain)
		return
	}
	p.literal = append(p.literal, raw...)
}

// list reads an object or a list that is the given number of levels deep.
func (p *parser) list(raw []byte, at string, depth int, plain bool) {
	p.check(depth <= MaxDepth, at, "nested too deeply: expected at most "+strconv.Itoa(MaxDepth)+" objects and lists within each other")
	p.literal = append(p.literal, raw[0])
	first := true
	children(raw, func(name string, value []byte) bool {
		if !first {
			p.literal = append(p.literal, ',')
		}
		first = false
		if raw[0] == '{' {
			p.literal, _ = jsontext.AppendQuote(p.literal, name) // it is valid: normal has read it
			p.literal = append(p.literal, ':')
		}
		p.value(value, below(at, name), depth, plain)
		return p.err == nil
	})
	p.literal = append(p.literal, raw[len(raw)-1])
}

// reference reads an object that is a reference into a source; nil: it is something else.
func (p *parser) reference(raw []byte, at string) *reference {
	members, others := few(raw)
	each, hasEach := members["each"]
	delete(members, "each")
	if raw[0] != '{' || others || len(members) != 1 {
		return nil
	}
	for _, from := range []Source{FromCall, FromResult, FromBefore} {
		target, ok := members[string(from)]
		if !ok {
			continue
		}
		p.allow(from, below(at, string(from)))
		ref := &reference{from: from, at: p.pointer(target, below(at, string(from)))}
		if hasEach {
			e := p.pointer(each, below(at, "each"))
			ref.each = &e
		}
		return ref
	}
	return nil
}

// constant reads the object {"value": V}.
func (p *parser) constant(raw []byte, at string) (value []byte, ok bool) {
	members, others := few(raw)
	value, ok = members["value"]
	_, each := members["each"]
	p.check(!ok || others || len(members) != 2 || !each, below(at, "each"), "each goes with call, result or before: expected value alone")
	return value, ok && !others && len(members) == 1
}

// few are the members of an object that has at most two, and only ones that a reference can have; others: it has more
// or different ones.
func few(raw []byte) (members map[string][]byte, others bool) {
	members = map[string][]byte{}
	children(raw, func(name string, value []byte) bool {
		others = len(members) == 2 || !slices.Contains([]string{"call", "result", "before", "value", "each"}, name)
		members[name] = value
		return !others
	})
	return members, others
}

// allow checks that a reference may name a source.
func (p *parser) allow(from Source, at string) {
	reason := "the rule reads nothing before the call: expected a member before of the rule"
	if len(p.sources) == 1 {
		reason = "it is not known before the call: expected a pointer into the call"
	}
	p.check(slices.Contains(p.sources, from), at, reason)
}

// pointer reads a JSON pointer.
func (p *parser) pointer(raw []byte, at string) pointer {
	p.pointers++
	p.check(p.pointers <= MaxPointers, at, "too many pointers: expected at most "+strconv.Itoa(MaxPointers)+" in a rule")
	text, ok := textOf(raw)
	names := strings.Split(text, "/")
	p.check(ok && names[0] == "" && len(text) <= maxPointer && len(names)-1 <= maxLevels, at,
		"expected a JSON pointer such as /id, or an empty text for the whole value, of at most "+strconv.Itoa(maxPointer)+" bytes and "+strconv.Itoa(maxLevels)+" levels")
	for i, name := range names {
		plain := strings.NewReplacer("~0", "", "~1", "").Replace(name)
		p.check(!strings.Contains(plain, "~"), at, "expected 0 or 1 after each ~ of a JSON pointer")
		names[i] = strings.NewReplacer("~1", "/", "~0", "~").Replace(name)
	}
	return pointer{text, names[1:]}
}

// below is the pointer to a member or an element.
func below(at, name string) string {
	return at + "/" + strings.NewReplacer("~", "~0", "/", "~1").Replace(name)
}

// textOf reads a JSON string.
func textOf(raw []byte) (string, bool) {
	if len(raw) == 0 || raw[0] != '"' {
		return "", false
	}
	text, err := jsontext.AppendUnquote(nil, raw)
	return string(text), err == nil
}

var _ interface {
	json.Marshaler
	json.Unmarshaler
} = (*Template)(nil)
