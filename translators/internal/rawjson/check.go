package rawjson

import (
	"bytes"
	"errors"
	"io"
	"strconv"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/aepb/aepb-gateway/translators"
)

// Check validates one JSON value of at most size bytes and depth levels of
// nesting. Its error is a *translators.MalformedError.
func Check(data []byte, size, depth int) error {
	if len(data) > size {
		return &translators.MalformedError{Reason: "longer than " + strconv.Itoa(size) + " bytes", Large: true}
	}
	if validate(data, depth) {
		return nil
	}
	if tooDeep(data, depth) {
		return &translators.MalformedError{Reason: "nested deeper than " + strconv.Itoa(depth) + " levels"}
	}
	if jsontext.Value(data).IsValid() {
		return nil
	}
	return reason(data)
}

// reason finds out what is wrong with a value. Only refusals pay for it.
func reason(data []byte) error {
	dec := jsontext.NewDecoder(bytes.NewBuffer(data))
	if _, err := dec.ReadValue(); err != nil {
		return syntax(err)
	}
	return &translators.MalformedError{Reason: "data after the JSON value", Syntax: true}
}

func syntax(err error) error {
	if errors.Is(err, jsontext.ErrDuplicateName) {
		return &translators.MalformedError{Reason: "duplicate member name", Syntax: true}
	}
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return &translators.MalformedError{Reason: "truncated JSON", Syntax: true}
	}
	return &translators.MalformedError{Reason: "not valid JSON", Syntax: true}
}

// tooDeep counts brackets outside strings; a cheap scan, so that hostile
// nesting costs no more than its length.
func tooDeep(data []byte, limit int) bool {
	depth := 0
	for i := 0; i < len(data); i++ {
		switch data[i] {
		case '"':
			end := text(data, i)
			if end < 0 {
				return false
			}
			i = end - 1
		case '{', '[':
			if depth++; depth > limit {
				return true
			}
		case '}', ']':
			depth--
		}
	}
	return false
}
