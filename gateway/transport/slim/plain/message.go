package plain

import (
	"bytes"
	"encoding/json"
)

// envelope is what is looked at of a message.
type envelope struct {
	ID     json.RawMessage `json:"id"`
	Method *string         `json:"method"`
}

// peek reads the envelope; false: it is no JSON-RPC message. A batch is none.
func peek(body []byte) (envelope, bool) {
	var e envelope
	if err := json.Unmarshal(body, &e); err != nil {
		return envelope{}, false
	}
	if bytes.Equal(e.ID, []byte("null")) {
		e.ID = nil
	}
	return e, e.ID != nil || e.Method != nil
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
