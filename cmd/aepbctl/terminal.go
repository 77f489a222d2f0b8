package main

import (
	"bytes"
	"fmt"
	"io"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"
)

// What others have written may hold terminal escapes, line breaks, and marks
// that turn the direction of text. Everything that is printed as text goes
// through one of these three; -o json needs none.

// word is foreign text as one field of a line: as it is if it is ASCII without
// spaces and quotes, else in double quotes with everything unusual escaped.
func word[T ~string](text T) string {
	plain := func(r rune) bool { return r > ' ' && r < unicode.MaxASCII && r != '"' && r != '\\' }
	if strings.IndexFunc(string(text), func(r rune) bool { return !plain(r) }) < 0 {
		return string(text)
	}
	return strconv.QuoteToASCII(string(text))
}

// words are several, with commas.
func words(list []string) string {
	out := make([]string, len(list))
	for i, text := range list {
		out[i] = word(text)
	}
	return strings.Join(out, ", ")
}

// line is a sentence that may quote others, such as an error: one line, with
// everything escaped that is not printed as a character of its own.
func line(text string) string {
	var out strings.Builder
	for _, r := range strings.ReplaceAll(text, "\n", "; ") {
		if strconv.IsPrint(r) {
			out.WriteRune(r)
			continue
		}
		quoted := strconv.QuoteRuneToASCII(r)
		out.WriteString(quoted[1 : len(quoted)-1])
	}
	return out.String()
}

// visible is JSON as one line with the same meaning: the terminal would obey some
// characters that JSON lets stand as they are.
func visible(text []byte) []byte { return escaped(bytes.Map(spaced, text)) }

// spaced turns the line breaks and tabs between the tokens of JSON into spaces.
// Within its strings there are none.
func spaced(r rune) rune {
	if r == '\n' || r == '\r' || r == '\t' {
		return ' '
	}
	return r
}

// escaped writes what is neither printed as a character of its own nor a line break
// as JSON escapes: control characters, and marks that turn the direction of text.
func escaped(text []byte) []byte {
	var out bytes.Buffer
	for len(text) > 0 {
		r, size := utf8.DecodeRune(text)
		text = text[size:]
		switch {
		case r == '\n' || strconv.IsPrint(r):
			out.WriteRune(r)
		case r > 0xffff:
			high, low := utf16.EncodeRune(r)
			fmt.Fprintf(&out, `\u%04x\u%04x`, high, low)
		default:
			fmt.Fprintf(&out, `\u%04x`, r)
		}
	}
	return out.Bytes()
}

// printable writes JSON of our own encoder, lines and all, as escaped does.
type printable struct{ to io.Writer }

// Write implements io.Writer. The encoder writes whole characters.
func (a printable) Write(text []byte) (int, error) {
	if _, err := a.to.Write(escaped(text)); err != nil {
		return 0, err
	}
	return len(text), nil
}

// complain prints why a command failed.
func complain(w io.Writer, err error) { fmt.Fprintln(w, "aepbctl:", line(err.Error())) }
