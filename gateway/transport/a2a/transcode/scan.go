package transcode

import (
	"strconv"
	"strings"
	"unicode/utf16"
	"unicode/utf8"
)

// scanner reads JSON. Its methods say false for what is none, and stay where
// they are then, or anywhere: nobody goes on.
type scanner struct {
	text string
	at   int
}

// peek is the next octet that is no blank; 0: there is none.
func (s *scanner) peek() byte {
	for ; s.at < len(s.text); s.at++ {
		switch c := s.text[s.at]; c {
		case ' ', '\n', '\r', '\t':
		default:
			return c
		}
	}
	return 0
}

func (s *scanner) take(word string) bool {
	s.peek()
	found := strings.HasPrefix(s.text[s.at:], word)
	if found {
		s.at += len(word)
	}
	return found
}

// next goes on to the n-th value of a list or member of an object, or past its end.
func (s *scanner) next(n int, end byte) (another, ok bool) {
	c := s.peek()
	switch {
	case c == end:
		s.at++
		return false, true
	case n == 0:
		return true, true
	case c != ',':
		return false, false
	}
	s.at++
	return true, true // where none follows, its reader says so
}

// name is that of a member, with its colon.
func (s *scanner) name() (string, bool) {
	name, ok := s.quoted()
	return name, ok && s.take(":")
}

// quoted is a string. One without escapes is part of the text.
func (s *scanner) quoted() (string, bool) {
	if !s.take(`"`) {
		return "", false
	}
	for from := s.at; s.at < len(s.text); s.at++ {
		switch c := s.text[s.at]; {
		case c == '"':
			plain := s.text[from:s.at]
			s.at++
			return plain, utf8.ValidString(plain)
		case c == '\\':
			return s.escaped([]byte(s.text[from:s.at]))
		case c < ' ':
			return "", false
		}
	}
	return "", false
}

// escaped is the rest of a string that begins so.
func (s *scanner) escaped(out []byte) (string, bool) {
	for s.at < len(s.text) {
		c := s.text[s.at]
		s.at++
		switch {
		case c == '"':
			return string(out), utf8.Valid(out)
		case c < ' ':
			return "", false
		case c != '\\':
			out = append(out, c)
		case s.oneOf("u"):
			r, ok := s.point()
			if !ok {
				return "", false
			}
			out = utf8.AppendRune(out, r)
		default:
			which := -1
			if s.at < len(s.text) {
				which = strings.IndexByte(`"\/bfnrt`, s.text[s.at])
			}
			if which < 0 {
				return "", false
			}
			s.at++
			out = append(out, "\"\\/\b\f\n\r\t"[which])
		}
	}
	return "", false
}

// point is a code point of one escape, or of the two of a surrogate pair.
func (s *scanner) point() (rune, bool) {
	r, ok := s.hex()
	if !ok || !utf16.IsSurrogate(r) {
		return r, ok
	}
	if !strings.HasPrefix(s.text[s.at:], `\u`) {
		return 0, false
	}
	s.at += len(`\u`)
	low, ok := s.hex()
	r = utf16.DecodeRune(r, low)
	return r, ok && r != utf8.RuneError
}

func (s *scanner) hex() (rune, bool) {
	const digits = 4
	if len(s.text)-s.at < digits {
		return 0, false
	}
	r, err := strconv.ParseUint(s.text[s.at:s.at+digits], 16, 16)
	s.at += digits
	return rune(r), err == nil
}

// number is one as JSON has it: what follows is for who reads on to judge.
func (s *scanner) number() (string, bool) {
	s.peek()
	from := s.at
	s.oneOf("-")
	if !s.oneOf("0") && !s.digits() {
		return "", false
	}
	if s.oneOf(".") && !s.digits() {
		return "", false
	}
	if s.oneOf("eE") {
		s.oneOf("+-")
		if !s.digits() {
			return "", false
		}
	}
	return s.text[from:s.at], true
}

func (s *scanner) oneOf(set string) bool {
	if s.at == len(s.text) || strings.IndexByte(set, s.text[s.at]) < 0 {
		return false
	}
	s.at++
	return true
}

func (s *scanner) digits() bool {
	from := s.at
	for s.at < len(s.text) && s.text[s.at] >= '0' && s.text[s.at] <= '9' {
		s.at++
	}
	return s.at > from
}
