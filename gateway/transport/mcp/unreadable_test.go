package mcp_test

import (
	"net/http"
	"strings"
	"testing"
)

// TestServer_UnreadableResponseEndsItsQuestion: a client whose response to a question is neither a result
// nor an error hears that, and the call that waits for it has an error of the client's in its place.
func TestServer_UnreadableResponseEndsItsQuestion(t *testing.T) {
	t.Parallel()
	r := &notifying{handler: handler{description: chef()}}
	h := newBuilding(t, r)
	first, _ := h.do(t, http.MethodPost, "", hello)
	id := first.Header.Get("Mcp-Session-Id")
	got, text := h.do(t, http.MethodPost, id, `{"jsonrpc":"2.0","id":"q"}`)
	if got.StatusCode != http.StatusBadRequest || !strings.Contains(text, `"error":{"code":-32600`) {
		t.Errorf("the client hears %d %s, expected 400 and -32600", got.StatusCode, text)
	}
	if len(r.calls) != 1 || r.calls[0].Session != id || !strings.Contains(string(r.calls[0].Wire.Body), `"id":"q","error":{"code":-32600`) {
		t.Errorf("the waiting call has %+v, expected an error of the client's", r.calls)
	}
	if got, _ := h.do(t, http.MethodPost, id, `{"jsonrpc":"2.0","id":"q","result":7}`); got.StatusCode != http.StatusBadRequest || len(r.calls) != 2 {
		t.Errorf("a result that is no object: %d, %d calls", got.StatusCode, len(r.calls))
	}
}
