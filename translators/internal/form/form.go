// Package form holds values against the schemas in which agents ask for them: the
// forms of questions (MCP, elicitation) and the arguments of tools.
//
// Schemas and values come from outside, so both are bounded: a schema has at most
// [MaxSchema] bytes and no references, the sizes of schema and value multiplied are
// at most [maxWork], patterns run in linear time, and numbers that would take much
// memory to compare are refused. Forms of questions have no references (MCP, a flat
// object of primitive properties); with them a small schema could ask for work that
// grows exponentially.
package form

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"golang.org/x/text/language"
	"golang.org/x/text/message"
)

// MaxSchema is the largest schema, in bytes, that values are held against.
const MaxSchema = 64 << 10

const (
	maxWork     = 1 << 28 // bytes of schema times bytes of value
	maxDigits   = 64      // of a number
	maxExponent = 400     // of a number: beyond those of a float64
	maxReasons  = 5
	maxReason   = 200 // bytes
)

// ErrSchema: values cannot be held against a schema.
var ErrSchema = errors.New("form: the schema cannot be read, has references, or is larger than " + strconv.Itoa(MaxSchema) + " bytes")

// Fit holds a value against a JSON Schema and returns why it does not fit: at most five
// reasons, each of at most 200 bytes; none: it fits. Formats are judged (email, uri,
// date, date-time and the others of draft 2020-12), as MCP's forms mean them.
// [ErrSchema]: it cannot be held against this schema.
func Fit(schema, value json.RawMessage) (misfits []string, err error) {
	if len(schema) > MaxSchema || !sized(schema) || refers(schema) {
		return nil, ErrSchema
	}
	if len(schema)*len(value) > maxWork {
		return []string{fmt.Sprintf("the value has %d bytes, which is too much for its schema: expected at most %d", len(value), maxWork/len(schema))}, nil
	}
	if !sized(value) {
		return []string{fmt.Sprintf("a number has more than %d characters or an exponent beyond %d", maxDigits, maxExponent)}, nil
	}
	compiled, err := compile(schema)
	if err != nil {
		return nil, fmt.Errorf("%w: %s", ErrSchema, short(err.Error()))
	}
	if !json.Valid(value) {
		return []string{"the value is no JSON"}, nil
	}
	document, err := jsonschema.UnmarshalJSON(bytes.NewReader(value))
	if err != nil {
		return nil, fmt.Errorf("form: read value: %w", err)
	}
	invalid, ok := errors.AsType[*jsonschema.ValidationError](compiled.Validate(document))
	if !ok {
		return nil, nil
	}
	return reasons(nil, invalid), nil
}

const schemaURL = "urn:form"

func compile(schema json.RawMessage) (*jsonschema.Schema, error) {
	document, err := jsonschema.UnmarshalJSON(bytes.NewReader(schema))
	if err != nil {
		return nil, err
	}
	compiler := jsonschema.NewCompiler()
	compiler.UseLoader(noLoader{}) // $schema may name a document too
	compiler.UseRegexpEngine(pattern)
	compiler.AssertFormat()
	if err := compiler.AddResource(schemaURL, document); err != nil {
		return nil, err
	}
	return compiler.Compile(schemaURL)
}

// noLoader loads nothing: a schema from outside must not make us open anything.
type noLoader struct{}

func (noLoader) Load(string) (any, error) {
	return nil, errors.New("it refers to another document")
}

// pattern compiles a pattern in linear time. One that only ECMAScript knows, such as
// a look-ahead, matches all: the agent that asks judges the answer by it.
func pattern(text string) (jsonschema.Regexp, error) {
	if compiled, err := regexp.Compile(text); err == nil {
		return compiled, nil
	}
	return anything(text), nil
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
		said := err.ErrorKind.LocalizedString(message.NewPrinter(language.English))
		return append(found, short(at+": "+said))
	}
	for _, cause := range err.Causes {
		found = reasons(found, cause)
	}
	return found
}

func short(text string) string {
	if len(text) > maxReason {
		text = strings.ToValidUTF8(text[:maxReason-3], "") + "..."
	}
	return text
}

// refers reports whether a schema has a member that refers to another schema.
func refers(schema json.RawMessage) bool {
	decoder := json.NewDecoder(bytes.NewReader(schema))
	decoder.UseNumber()
	for {
		token, err := decoder.Token()
		if err != nil {
			return false // which the compiler says better
		}
		if text, ok := token.(string); ok && slices.Contains([]string{"$ref", "$dynamicRef", "$recursiveRef"}, text) {
			return true // as a value, which is rare, it counts too
		}
	}
}

// sized reports whether all numbers of a JSON value are small enough to be compared
// exactly at little cost.
func sized(raw json.RawMessage) bool {
	decoder := json.NewDecoder(bytes.NewReader(raw))
	decoder.UseNumber()
	for {
		token, err := decoder.Token()
		if errors.Is(err, io.EOF) {
			return true
		}
		if err != nil {
			return true // which the readers of the value say better
		}
		if number, ok := token.(json.Number); ok && !sizedNumber(string(number)) {
			return false
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
	var declared struct {
		Enum      []json.RawMessage `json:"enum"`
		EnumNames []string          `json:"enumNames"`
		OneOf     []choice          `json:"oneOf"`
		AnyOf     []choice          `json:"anyOf"`
	}
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

type choice struct {
	Const json.RawMessage `json:"const"`
	Title string          `json:"title"`
}

func (c choice) value() (string, bool) {
	var value string
	err := json.Unmarshal(c.Const, &value)
	return value, err == nil && len(c.Const) > 0 && c.Const[0] == '"'
}
