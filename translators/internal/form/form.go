// Package form holds values against the schemas in which agents ask for them: the
// forms of questions (MCP, elicitation) and the arguments of tools.
//
// Schemas and values come from outside, and checking them costs time and memory for
// each pair of a schema's and a value's parts. So both are bounded: a schema has at
// most [MaxSchema] bytes and no references (with them a small one could ask for work
// that grows exponentially; MCP's forms have none), the depths of schema and value and
// the products of their parts and of their bytes have limits, patterns run in linear
// time and have a limit together, and numbers that would take much memory to compare
// are refused.
package form

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"regexp/syntax"
	"slices"
	"strconv"
	"strings"

	"github.com/santhosh-tekuri/jsonschema/v6"
	kinds "github.com/santhosh-tekuri/jsonschema/v6/kind"
	"golang.org/x/text/language"
	"golang.org/x/text/message"
)

// MaxSchema is the largest schema, in bytes, that values are held against.
const MaxSchema = 64 << 10

const (
	maxDepth    = 64      // of nested objects and arrays
	maxParts    = 1 << 18 // JSON tokens of the schema times those of the value
	maxBytes    = 1 << 24 // bytes of the schema times those of the value
	maxPattern  = 4 << 10 // bytes of a pattern
	maxStates   = 1 << 14 // of all patterns
	maxSteps    = 1 << 24 // states of all patterns times bytes of the value
	maxDigits   = 64      // of a number
	maxExponent = 400     // of a number: beyond those of a float64
	maxReasons  = 5
	maxReason   = 200 // bytes
)

// ErrUnchecked reports that a value cannot be checked by a schema.
var ErrUnchecked = errors.New("the schema cannot be read, has references, or is too large for the value")

// Fit holds a value against a JSON Schema and returns why it does not fit: at most five
// reasons, each of at most 200 bytes; none: it fits. Formats are judged (email, uri,
// date, date-time and the others of draft 2020-12), as MCP's forms mean them. Reasons
// do not quote the value. [ErrUnchecked]: it cannot be held against this schema.
func Fit(schema, value json.RawMessage) (misfits []string, err error) {
	if len(schema) > MaxSchema || len(schema)*len(value) > maxBytes {
		return nil, ErrUnchecked
	}
	asks, says := scan(schema), scan(value)
	switch {
	case asks.refers || asks.vast || max(asks.depth, says.depth) > maxDepth || asks.tokens*says.tokens > maxParts:
		return nil, ErrUnchecked
	case says.vast:
		return []string{fmt.Sprintf("a number has more than %d characters or an exponent beyond %d", maxDigits, maxExponent)}, nil
	case !json.Valid(value):
		return []string{"the value is no JSON"}, nil
	}
	p := &patterns{left: min(maxStates, maxSteps/max(len(value), 1))}
	compiled, err := compile(schema, p)
	if err != nil {
		return nil, fmt.Errorf("%w: %s", ErrUnchecked, short(err.Error()))
	}
	document, err := jsonschema.UnmarshalJSON(bytes.NewReader(value))
	if err != nil {
		return nil, fmt.Errorf("%w: read value: %w", ErrUnchecked, err)
	}
	invalid, ok := errors.AsType[*jsonschema.ValidationError](compiled.Validate(document))
	switch {
	case p.left < 0:
		return nil, ErrUnchecked
	case !ok:
		return nil, nil
	default:
		return reasons(nil, invalid), nil
	}
}

const schemaURL = "urn:form"

func compile(schema json.RawMessage, p *patterns) (*jsonschema.Schema, error) {
	document, err := jsonschema.UnmarshalJSON(bytes.NewReader(schema))
	if err != nil {
		return nil, err
	}
	compiler := jsonschema.NewCompiler()
	compiler.UseLoader(noLoader{}) // $schema may name a document too
	compiler.UseRegexpEngine(p.compile)
	compiler.AssertFormat()
	if err := compiler.AddResource(schemaURL, document); err != nil {
		return nil, err
	}
	return compiler.Compile(schemaURL)
}

// noLoader loads nothing: a schema from outside must not make us open anything.
type noLoader struct{}

func (noLoader) Load(string) (any, error) {
	return nil, errors.New("the schema refers to another document")
}

// patterns compiles the patterns of a schema, and of values whose format is a pattern.
type patterns struct {
	left int // states; below 0: the patterns are too large for the value
}

// compile compiles a pattern in linear time. One that only ECMAScript knows, such as
// a look-ahead, matches all: the agent that asks judges the answer by it.
func (p *patterns) compile(text string) (jsonschema.Regexp, error) {
	if len(text) > maxPattern {
		p.left = -1
		return anything(text), nil
	}
	if parsed, err := syntax.Parse(text, syntax.Perl); err == nil {
		if p.left -= states(parsed); p.left >= 0 {
			return regexp.Compile(text)
		}
	}
	return anything(text), nil
}

// states estimates the states of a compiled pattern, in which each repetition is
// written out. Go's parser bounds the repetitions that are within one another to 1000.
func states(parsed *syntax.Regexp) int {
	n := 1
	if parsed.Op == syntax.OpLiteral {
		n = len(parsed.Rune)
	}
	for _, sub := range parsed.Sub {
		n += states(sub)
	}
	if parsed.Op == syntax.OpRepeat {
		n *= max(parsed.Min, parsed.Max, 1)
	}
	return n
}

type anything string

func (anything) MatchString(string) bool { return true }
func (a anything) String() string        { return string(a) }

// reasons are the innermost errors, which say what is wrong with which member.
func reasons(found []string, err *jsonschema.ValidationError) []string {
	if len(found) == maxReasons {
		return found
	}
	if len(err.Causes) == 0 {
		at := "/" + strings.Join(err.InstanceLocation, "/")
		return append(found, short(at+": "+sentence(err.ErrorKind)))
	}
	for _, cause := range err.Causes {
		found = reasons(found, cause)
	}
	return found
}

// sentence is what was expected. The values of a person are not repeated.
func sentence(kind jsonschema.ErrorKind) string {
	switch k := kind.(type) {
	case *kinds.Format:
		return "it is no valid " + k.Want
	case *kinds.Pattern:
		return "it does not match the pattern " + k.Want
	default:
		return kind.LocalizedString(message.NewPrinter(language.English))
	}
}

func short(text string) string {
	if len(text) > maxReason {
		text = strings.ToValidUTF8(text[:maxReason-3], "") + "..."
	}
	return text
}

// scanned is what a scan of JSON has found.
type scanned struct {
	tokens int
	depth  int
	refers bool // a name or text is that of a reference; as a text, which is rare, it counts too
	vast   bool // a number is too large to be compared exactly at little cost
}

// scan reads tokens up to the end, or to what is no JSON, which the readers of the
// value say better.
func scan(raw json.RawMessage) (found scanned) {
	decoder := json.NewDecoder(bytes.NewReader(raw))
	decoder.UseNumber()
	depth := 0
	for {
		token, err := decoder.Token()
		if err != nil {
			return found
		}
		found.tokens++
		switch t := token.(type) {
		case json.Delim:
			if t == '}' || t == ']' {
				depth--
				continue
			}
			depth++
			found.depth = max(found.depth, depth)
		case json.Number:
			found.vast = found.vast || !sizedNumber(string(t))
		case string:
			found.refers = found.refers || slices.Contains([]string{"$ref", "$dynamicRef", "$recursiveRef"}, t)
		}
	}
}

func sizedNumber(number string) bool {
	if len(number) > maxDigits {
		return false
	}
	_, exponent, ok := strings.Cut(strings.ToLower(number), "e")
	if !ok {
		return true
	}
	n, err := strconv.Atoi(exponent)
	return err == nil && n >= -maxExponent && n <= maxExponent
}

// Choice maps what a person typed to the value that it stands for: the title of one
// of the choices of a property (oneOf or anyOf with const and title, or enum with
// enumNames; MCP, elicitation). Text that is no title is returned as it is.
func Choice(property json.RawMessage, text string) string {
	var declared choices
	if json.Unmarshal(property, &declared) != nil {
		return text
	}
	for _, c := range slices.Concat(declared.OneOf, declared.AnyOf) {
		if value, ok := c.value(); ok && (value == text) {
			return text
		}
	}
	for _, c := range slices.Concat(declared.OneOf, declared.AnyOf) {
		if value, ok := c.value(); ok && c.Title == text {
			return value
		}
	}
	if i := slices.Index(declared.EnumNames, text); i >= 0 && i < len(declared.Enum) {
		if value, ok := (choice{Const: declared.Enum[i]}).value(); ok {
			return value
		}
	}
	return text
}

// Choices are the texts that a property takes, where it takes one of a list; by their
// titles, if they have any. Nil: it takes others too.
func Choices(property json.RawMessage) []string {
	var declared choices
	if json.Unmarshal(property, &declared) != nil {
		return nil
	}
	var texts []string
	for i, value := range declared.Enum {
		c := choice{Const: value}
		if i < len(declared.EnumNames) {
			c.Title = declared.EnumNames[i]
		}
		declared.OneOf = append(declared.OneOf, c)
	}
	for _, c := range slices.Concat(declared.OneOf, declared.AnyOf) {
		if value, ok := c.value(); ok {
			texts = append(texts, cmp.Or(c.Title, value))
		}
	}
	return texts
}

// choices are the ways in which a property lists what it takes.
type choices struct {
	Enum      []json.RawMessage `json:"enum"`
	EnumNames []string          `json:"enumNames"`
	OneOf     []choice          `json:"oneOf"`
	AnyOf     []choice          `json:"anyOf"`
}

type choice struct {
	Const json.RawMessage `json:"const"`
	Title string          `json:"title"`
}

func (c choice) value() (string, bool) {
	var value string
	err := json.Unmarshal(c.Const, &value)
	return value, err == nil && len(c.Const) > 0 && c.Const[0] == '"'
}
