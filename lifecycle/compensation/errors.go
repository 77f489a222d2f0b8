package compensation

import (
	"fmt"
	"strconv"
)

// RuleError says what is wrong with a rule or a template, and where.
type RuleError struct {
	Pointer string // JSON pointer into the rule or template; empty: the whole of it
	Reason  string // what is wrong, and what is expected; it never quotes the rule
}

func (e *RuleError) Error() string {
	if e.Pointer == "" {
		return "rule: " + e.Reason
	}
	return fmt.Sprintf("rule, at %s: %s", shown(e.Pointer), e.Reason)
}

// MissingError says that a template points to a value that is not there.
type MissingError struct {
	From    Source
	Pointer string // JSON pointer into From
	List    bool   // a value is there and is no list, which each needs
}

func (e *MissingError) Error() string {
	if e.List {
		return fmt.Sprintf("%s no list at %s: correct the rule, or undo the call by hand", e.From.has(), shown(e.Pointer))
	}
	return fmt.Sprintf("%s no value at %s: correct the rule, or undo the call by hand", e.From.has(), shown(e.Pointer))
}

// ValueError refuses a call, a result or a reading that cannot be read.
type ValueError struct {
	From   Source
	Reason string
}

func (e *ValueError) Error() string {
	return fmt.Sprintf("%s no value that can be read: %s", e.From.has(), e.Reason)
}

// has begins a sentence about a source.
func (s Source) has() string {
	switch s {
	case FromCall:
		return "the call has"
	case FromResult:
		return "the result of the call has"
	default:
		return "the reading before the call has"
	}
}

// SizeError refuses arguments of more than [MaxFilled] bytes.
type SizeError struct{}

func (*SizeError) Error() string {
	return "the filled arguments are too long: expected at most " + strconv.Itoa(MaxFilled) + " bytes; undo the call by hand"
}

// maxShown bounds a pointer in an error, in bytes.
const maxShown = 256

// shown is a pointer in quotation marks, without characters that cannot be printed.
func shown(pointer string) string {
	return strconv.QuoteToGraphic(pointer[:min(len(pointer), maxShown)])
}
