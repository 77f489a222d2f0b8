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
	whole string // the text itself: it has no wildcard
	parts []part // between the stars; nil: there is no wildcard
}

// part is a run of characters of a glob.
type part struct {
	text string
	wild bool // it has a ?
}

func newGlob(pattern string) glob {
	if !strings.ContainsAny(pattern, "*?") {
		return glob{whole: pattern}
	}
	var g glob
	for text := range strings.SplitSeq(pattern, "*") {
		g.parts = append(g.parts, part{text, strings.Contains(text, "?")})
	}
	return g
}

func (g *glob) matches(text string) bool {
	if g.parts == nil {
		return text == g.whole
	}
	rest, ok := g.parts[0].cutStart(text)
	last := len(g.parts) - 1
	if last == 0 || !ok {
		return ok && rest == ""
	}
	for i := 1; i < last; i++ {
		if rest, ok = g.parts[i].cutFirst(rest); !ok {
			return false
		}
	}
	return g.parts[last].ends(rest)
}

// cutStart returns what follows a part at the start of a text.
func (p *part) cutStart(text string) (rest string, ok bool) {
	if !p.wild {
		return strings.CutPrefix(text, p.text)
	}
	for i := range len(p.text) {
		size := 1
		switch {
		case text == "":
			return "", false
		case p.text[i] == '?':
			_, size = utf8.DecodeRuneInString(text)
		case p.text[i] != text[0]:
			return "", false
		}
		text = text[size:]
	}
	return text, true
}

// cutFirst returns what follows the first occurrence of a part.
func (p *part) cutFirst(text string) (rest string, ok bool) {
	if !p.wild {
		_, rest, ok = strings.Cut(text, p.text)
		return rest, ok
	}
	for text != "" {
		if rest, ok = p.cutStart(text); ok {
			return rest, true
		}
		_, size := utf8.DecodeRuneInString(text)
		text = text[size:]
	}
	return "", false
}

// ends reports whether a text ends with a part.
func (p *part) ends(text string) bool {
	if !p.wild {
		return strings.HasSuffix(text, p.text)
	}
	for i := len(p.text) - 1; i >= 0; i-- {
		size := 1
		switch {
		case text == "":
			return false
		case p.text[i] == '?':
			_, size = utf8.DecodeLastRuneInString(text)
		case p.text[i] != text[len(text)-1]:
			return false
		}
		text = text[:len(text)-size]
	}
	return true
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
