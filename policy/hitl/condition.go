package hitl

import (
	"slices"
	"strings"
)

// input is what a condition looks at. Those that are cheap to judge come first.
type input uint8

const (
	inputSeverity input = iota
	inputErrorType
	inputAgent
	inputTool
	inputCaller
	inputOperation
	inputArgument
	inputLoss
)

var inputNames = [...]string{"atd.severity", "atd.error_type", "agent", "tool", "caller", "operation", "args", "loss"}

func inputOf(name string) (input, bool) {
	for in := inputSeverity; in <= inputLoss; in++ {
		if inputNames[in] == name {
			return in, true
		}
	}
	return 0, false
}

// ofError reports whether it belongs to an error, not to a call.
func (in input) ofError() bool { return in <= inputErrorType }

// operator is how a condition compares.
type operator string

const (
	opEqual        operator = "eq"
	opNotEqual     operator = "ne"
	opContains     operator = "contains"
	opMatches      operator = "matches" // a glob for the whole text
	opLess         operator = "lt"
	opLessEqual    operator = "le"
	opGreater      operator = "gt"
	opGreaterEqual operator = "ge"
)

// maxText bounds the arguments that are compared, in bytes; a condition on a longer one holds.
const maxText = 256 << 10

// condition is one thing that a rule demands of a call or an error.
type condition struct {
	in       input
	pointer  string // of inputArgument
	op       operator
	value    string
	isNumber bool // numbers alone are compared, as the kind threshold does

	exact   bool // a text has to be value
	target  int  // of inputArgument: the number of its place
	glob    glob
	number  decimal
	numeric bool // value is a number
}

// compiled is the condition with what its value means.
func (c condition) compiled() condition {
	c.glob = newGlob(c.value)
	c.exact = c.op == opEqual || c.op == opMatches && c.glob.parts == nil
	c.number, c.numeric = parseDecimal(c.value)
	return c
}

// holds judges a text.
func (c *condition) holds(text string) bool {
	if c.exact {
		return text == c.value
	}
	switch c.op {
	case opNotEqual:
		return text != c.value
	case opContains:
		return strings.Contains(text, c.value)
	case opMatches:
		return c.glob.matches(text)
	default:
		return true
	}
}

// holdsAny judges losses: one suffices.
func (c *condition) holdsAny(texts []string) bool { return slices.ContainsFunc(texts, c.holds) }

// holdsAt judges the value at a pointer. What is missing or null differs from every value, and is nothing
// else. A value that is too long, or of another type than the comparison needs, is not certain: the condition
// holds.
func (c *condition) holdsAt(f finding) bool {
	if f.ambiguous || len(f.raw) > maxText {
		return true
	}
	if f.raw == nil || f.raw[0] == 'n' {
		return c.op == opNotEqual
	}
	text := string(f.raw)
	switch f.raw[0] {
	case '{', '[':
		return true
	case '"':
		text = unquote(f.raw)
	}
	switch c.op {
	case opEqual, opNotEqual:
		return c.holdsEqual(text)
	case opContains, opMatches:
		isNumber := f.raw[0] == '-' || f.raw[0]-'0' <= 9
		return isNumber || c.holds(text)
	default:
		number, ok := parseDecimal(text)
		return !ok || c.holdsOrder(number.compare(c.number))
	}
}

// holdsEqual compares texts as they are, and numbers by what they are worth, also if they are in quotes.
func (c *condition) holdsEqual(text string) bool {
	number, ok := decimal{}, false
	if c.numeric {
		number, ok = parseDecimal(text)
	}
	if c.isNumber && !ok {
		return true
	}
	equal := text == c.value || ok && number.compare(c.number) == 0
	return equal == (c.op == opEqual)
}

func (c *condition) holdsOrder(order int) bool {
	switch c.op {
	case opLess:
		return order < 0
	case opLessEqual:
		return order <= 0
	case opGreater:
		return order > 0
	default:
		return order >= 0
	}
}
