package hitl

import (
	"cmp"
	"math"
	"strconv"
	"strings"
	"unicode/utf8"
)

// glob is a pattern for a whole text: * stands for any run of characters, ? for one.
type glob struct {
	whole string   // the text itself: it has no wildcard
	parts []string // between the stars
}

func newGlob(pattern string) glob {
	if !strings.ContainsAny(pattern, "*?") {
		return glob{whole: pattern}
	}
	return glob{parts: strings.Split(pattern, "*")}
}

func (g glob) matches(text string) bool {
	if g.parts == nil {
		return text == g.whole
	}
	rest, ok := cutStart(g.parts[0], text)
	if len(g.parts) == 1 || !ok {
		return ok && rest == ""
	}
	last := len(g.parts) - 1
	for _, part := range g.parts[1:last] {
		if rest, ok = cutFirst(part, rest); !ok {
			return false
		}
	}
	return hasEnd(g.parts[last], rest)
}

// cutStart returns what follows a part at the start of a text.
func cutStart(part, text string) (rest string, ok bool) {
	if strings.IndexByte(part, '?') < 0 {
		return strings.CutPrefix(text, part)
	}
	for _, char := range part {
		got, size := utf8.DecodeRuneInString(text)
		if size == 0 || char != '?' && char != got {
			return "", false
		}
		text = text[size:]
	}
	return text, true
}

// cutFirst returns what follows the first occurrence of a part.
func cutFirst(part, text string) (rest string, ok bool) {
	if strings.IndexByte(part, '?') < 0 {
		_, rest, ok = strings.Cut(text, part)
		return rest, ok
	}
	for text != "" {
		if rest, ok = cutStart(part, text); ok {
			return rest, true
		}
		_, size := utf8.DecodeRuneInString(text)
		text = text[size:]
	}
	return "", false
}

// hasEnd reports whether a text ends with a part.
func hasEnd(part, text string) bool {
	start := len(text)
	for range utf8.RuneCountInString(part) {
		_, size := utf8.DecodeLastRuneInString(text[:start])
		start -= size
	}
	rest, ok := cutStart(part, text[start:])
	return ok && rest == ""
}

// decimal is a number as it was written: 0.digits times ten to the power of exp.
type decimal struct {
	negative bool
	digits   string // without zeros at either end; empty: zero
	exp      int64
}

// farExp is an exponent beyond that of every number of a rule, however many digits the other number has.
const farExp = math.MaxInt64 / 4

// parseDecimal reads a JSON number. Its cost does not depend on the exponent.
func parseDecimal(text string) (decimal, bool) {
	r := jsonReader{data: []byte(text)}
	if text == "" || !r.number() || r.at != len(text) {
		return decimal{}, false
	}
	mantissa, power := text, ""
	if at := strings.IndexAny(text, "eE"); at >= 0 {
		mantissa, power = text[:at], text[at+1:]
	}
	mantissa, negative := strings.CutPrefix(mantissa, "-")
	whole, fraction, _ := strings.Cut(mantissa, ".")
	digits := strings.TrimLeft(whole+fraction, "0")
	exp := parsePower(power) + int64(len(whole)) - int64(len(whole)+len(fraction)-len(digits))
	if digits = strings.TrimRight(digits, "0"); digits == "" {
		return decimal{}, true // zero has no sign
	}
	return decimal{negative, digits, exp}, true
}

func parsePower(text string) int64 {
	if text == "" {
		return 0
	}
	power, err := strconv.ParseInt(text, 10, 64)
	if err != nil && strings.HasPrefix(text, "-") {
		return -farExp
	}
	if err != nil {
		return farExp
	}
	return max(-farExp, min(power, farExp))
}

// compare is -1, 0 or 1, as d is less than, equal to or greater than other.
func (d decimal) compare(other decimal) int {
	if s := cmp.Compare(d.sign(), other.sign()); s != 0 || d.digits == "" {
		return s
	}
	return d.sign() * cmp.Or(cmp.Compare(d.exp, other.exp), strings.Compare(d.digits, other.digits))
}

func (d decimal) sign() int {
	switch {
	case d.digits == "":
		return 0
	case d.negative:
		return -1
	default:
		return 1
	}
}
