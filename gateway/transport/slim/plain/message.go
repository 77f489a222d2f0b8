package plain

import (
	"bytes"
	"encoding/json"
)

// envelope is what is looked at of a message.
type envelope struct {
	ID     json.RawMessage // nil: none, or null
	Method json.RawMessage // nil: none, or null
}

// peek reads the envelope; false: it is no JSON-RPC message. A batch is none.
// Members are found by their exact names, which a struct would not do.
func peek(body []byte) (envelope, bool) {
	var members map[string]json.RawMessage
	if err := json.Unmarshal(body, &members); err != nil {
		return envelope{}, false
	}
	e := envelope{ID: present(members["id"]), Method: present(members["method"])}
	if e.Method != nil && e.Method[0] != '"' {
		return envelope{}, false
	}
	return e, e.ID != nil || e.Method != nil
}

func present(value json.RawMessage) json.RawMessage {
	if bytes.Equal(value, []byte("null")) {
		return nil
	}
	return value
}

func (e envelope) notification() bool { return e.Method != nil && e.ID == nil }
func (e envelope) response() bool     { return e.Method == nil && e.ID != nil }

// key makes ids comparable as values: "a" is "\u0061", and 1 is not "1".
func (e envelope) key() string {
	var text string
	if json.Unmarshal(e.ID, &text) == nil {
		return "s" + text
	}
	return "n" + string(bytes.TrimSpace(e.ID))
}
