package hitl

import (
	"encoding/json"
	"fmt"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"
)

// MaxShown bounds the text of an approval, in bytes: approvers read all of it, or deny.
const MaxShown = 64 << 10

// Shown is what an approver is shown of one call, or of a question that is not about a call.
type Shown struct {
	Grant    string // of a question: what follows from a grant; empty: it is a call
	Deny     string // of a question: what follows from a denial, and from no decision
	Call     Call
	Args     json.RawMessage // of the call; empty: it has none
	Words    string          // what the message says beside the arguments, or in place of them; empty: nothing
	Demand   Demand
	Losses   []string // codes of what the translation loses
	Workflow string
	Until    time.Time // end of the time for the decision
}

// Show is the text that an approver decides about; whole: it shows all of the call.
//
// Each line is a label and a value in quotes. The arguments follow as indented JSON: members in their order,
// numbers as they were sent, strings as what they say. In strings a backslash and a quote have a backslash
// before them, and a character that cannot be seen, or that changes how others are seen, is \u{XXXX}; a byte
// that is no UTF-8 is \x{XX}. So two calls that say different things have different texts.
func Show(s Shown) (text string, whole bool) {
	var w writer
	s.head(&w)
	end := len(w.text)
	w.line("words", s.Words)
	reason := w.arguments(s.Args)
	if len(w.text)+len(warning(reason)) > MaxShown {
		w.text = w.text[:end]
		reason = fmt.Sprintf("words of %d bytes and arguments of %d bytes are too long to be shown", len(s.Words), len(s.Args))
	}
	if end > MaxShown/2 {
		w.text, reason = nil, "names, rules and losses of the call are too long to be shown"
	}
	return string(w.text) + warning(reason), reason == ""
}

// warning says why a call is not shown whole.
func warning(reason string) string {
	if reason == "" {
		return ""
	}
	return "NOT SHOWN WHOLE: " + reason + ".\nThis call can be denied, but not approved.\n"
}

// head writes all but the arguments.
func (s *Shown) head(w *writer) {
	w.line("agent", s.Call.Agent)
	w.line("tool", s.Call.Tool)
	w.line("operation", s.Call.Operation)
	w.line("caller", string(s.Call.Caller))
	w.line("address", s.Call.Address)
	w.line("workflow", s.Workflow)
	w.line("digest of the call", s.Call.Digest)
	for _, id := range s.Demand.Rules {
		w.line("rule", id)
	}
	for _, loss := range s.Losses {
		w.line("loss", loss)
	}
	for _, role := range s.Demand.Roles {
		w.line("role of each approver", role)
	}
	until := s.Until.UTC().Format(time.RFC3339)
	grant, deny, silence := "the call is sent once", "the call is not sent", s.Demand.Unreachable.outcome()
	if s.Grant != "" {
		grant, deny, silence = s.Grant, s.Deny, s.Deny
	}
	w.add(fmt.Sprintf("approve: %s. Approvals needed: %d, before %s.\n", grant, max(s.Demand.Approvers, 1), until))
	w.add("deny: " + deny + ".\n")
	w.add("no decision until " + until + ": " + silence + ".\n")
}

func (u Unreachable) outcome() string {
	switch u {
	case Escalate:
		return "the call is not sent; operators are told before that"
	case Continue:
		return "THE CALL IS SENT without a decision"
	default:
		return "the call is not sent"
	}
}

// writer writes a text; beyond MaxShown it writes no more of the arguments.
type writer struct {
	text []byte
}

func (w *writer) add(text string) { w.text = append(w.text, text...) }

// line writes a value behind its label; nothing, if there is no value.
func (w *writer) line(label, value string) {
	if value != "" {
		w.add(label + ": ")
		w.quote(value)
		w.add("\n")
	}
}

// quote writes a text in quotes, so that all of it is seen and none of it passes for something else.
func (w *writer) quote(text string) {
	w.add(`"`)
	for len(text) > 0 && len(w.text) <= MaxShown {
		char, size := utf8.DecodeRuneInString(text)
		switch {
		case char == utf8.RuneError && size == 1:
			w.text = fmt.Appendf(w.text, `\x{%02X}`, text[0])
		case char == '\\' || char == '"':
			w.text = append(w.text, '\\', byte(char))
		case visible(char):
			w.text = utf8.AppendRune(w.text, char)
		default:
			w.text = fmt.Appendf(w.text, `\u{%04X}`, char)
		}
		text = text[size:]
	}
	w.add(`"`)
}

// braille is a blank that counts as a symbol.
const braille = '\u2800'

// visible reports whether a character is seen, and leaves the others as they are. Letters and marks that are
// drawn as nothing are not.
func visible(char rune) bool {
	return unicode.IsPrint(char) && char != braille &&
		!unicode.In(char, unicode.Other_Default_Ignorable_Code_Point, unicode.Variation_Selector)
}

// arguments writes JSON, indented; reason says why that is not all that the call says.
func (w *writer) arguments(raw []byte) (reason string) {
	if len(raw) == 0 {
		return ""
	}
	w.add("arguments:\n")
	start := len(w.text)
	j := jsonWriter{writer: w, jsonReader: jsonReader{data: raw}}
	if ok := j.value(0); !ok && len(w.text) > MaxShown || ok && j.ended() {
		w.add("\n")
		return j.reason
	}
	w.text = w.text[:start]
	w.quote(string(raw))
	w.add("\n")
	return "the arguments are no JSON that all programs read in the same way"
}

// jsonWriter writes the JSON that it reads.
type jsonWriter struct {
	*writer
	jsonReader

	reason string
}

// value writes one value; false: it cannot be read, or the text is full.
func (j *jsonWriter) value(depth int) bool {
	if len(j.writer.text) > MaxShown {
		return false
	}
	switch j.peek() {
	case '{':
		return j.members(depth)
	case '[':
		j.add("[")
		n := 0
		ok := j.array(depth, func(i int) bool {
			n = i + 1
			j.next(i, depth+1)
			return j.value(depth + 1)
		})
		j.close("]", n, depth)
		return ok
	case '"':
		raw, ok := j.jsonReader.text()
		if ok {
			j.quote(unquote(raw))
		}
		return ok
	default:
		raw, ok := j.raw(depth)
		j.add(string(raw[:min(len(raw), MaxShown+1)]))
		return ok
	}
}

func (j *jsonWriter) members(depth int) bool {
	j.add("{")
	names := map[string]bool{}
	ok := j.object(depth, func(quoted []byte) bool {
		name := unquote(quoted)
		j.next(len(names), depth+1)
		if names[name] {
			j.reason = "the arguments name a member twice, and programs differ in which of them counts"
		}
		names[name] = true
		j.quote(name)
		j.add(": ")
		return j.value(depth + 1)
	})
	j.close("}", len(names), depth)
	return ok
}

// next begins the line of a member or an element.
func (j *jsonWriter) next(i, depth int) {
	if i > 0 {
		j.add(",")
	}
	j.add("\n" + strings.Repeat("  ", depth))
}

// close ends an object or an array; one that is empty stays on its line.
func (j *jsonWriter) close(bracket string, count, depth int) {
	if count > 0 {
		j.add("\n" + strings.Repeat("  ", depth))
	}
	j.add(bracket)
}
