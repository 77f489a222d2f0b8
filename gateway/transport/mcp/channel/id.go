package channel

import (
	"bytes"
	"encoding/json"
	"strconv"

	exact "github.com/go-json-experiment/json"
)

// SameID compares ids and tokens as JSON values, since a server may write one in another form
// than it was told it: "a" is "\u0061", 1 is 1.0, and 1 is not "1".
func SameID(a, b json.RawMessage) bool { return bytes.Equal(a, b) || plain(a) == plain(b) }

// exactly is the first integer that a float64 does not tell from its neighbor.
const exactly = 1 << 53

// plain is an id or a token in the one form that it is compared in. What is neither a text
// nor a number stays as it is.
func plain(raw json.RawMessage) string {
	switch {
	case len(raw) == 0:
		return ""
	case raw[0] == '"' && bytes.IndexByte(raw, '\\') >= 0:
		var text string
		if json.Unmarshal(raw, &text) == nil {
			return `"` + text + `"`
		}
	case raw[0] != '"' && bytes.ContainsAny(raw, ".eE"):
		if n, err := strconv.ParseFloat(string(raw), 64); err == nil && n == float64(int64(n)) && n > -exactly && n < exactly {
			return strconv.FormatInt(int64(n), 10)
		}
	}
	return string(raw)
}

// with is a message with another value at a path, which is there but for its last step. What
// is not read stays as it is.
func with(message []byte, value json.RawMessage, name string, deeper ...string) []byte {
	members := map[string]json.RawMessage{}
	if exact.Unmarshal(message, &members) != nil {
		return message
	}
	if len(deeper) > 0 {
		value = with(members[name], value, deeper[0], deeper[1:]...)
	}
	if value == nil {
		return message
	}
	members[name] = value
	written, err := exact.Marshal(members, exact.Deterministic(true))
	if err != nil {
		return message
	}
	return written
}
