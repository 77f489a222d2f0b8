package stories

import (
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/aepb/aepb-gateway/ect"
	gatewaytest "github.com/aepb/aepb-gateway/test/harness/gateway"
)

// TestStreamOf03_EndsWithItsFinalEvent: an agent of A2A 0.3 goes on after the status update
// that it calls final (0.3, 7.2.2). What comes after is told to no caller, neither to one
// of 0.3, to whom the stream is relayed, nor to one of 1.0, and it is no error.
func TestStreamOf03_EndsWithItsFinalEvent(t *testing.T) {
	t.Parallel()
	b := gatewaytest.NewFixture(t, gatewaytest.Plan{})
	listServerFixture(t, b, "chatty", "a2a-v1", "", http.HandlerFunc(chatty))
	ask := strings.Replace(gatewaytest.TextBody("hi"), "SendMessage", "SendStreamingMessage", 1)
	ask03 := strings.NewReplacer("SendStreamingMessage", "message/stream", `"messageId"`, `"kind":"message","messageId"`, "ROLE_USER", "user", `{"text"`, `{"kind":"text","text"`).Replace(ask)
	at := "/agents/chatty/a2a"
	for name, c := range map[string]struct {
		l    gatewaytest.HTTPRequest
		says string
	}{
		"relayed":       {gatewaytest.HTTPRequest{At: at, Body: ask03}, `"completed"`},
		"caller of 1.0": {gatewaytest.HTTPRequest{At: at, Body: ask, Header: map[string]string{"A2A-Version": "1.0"}}, "TASK_STATE_COMPLETED"},
	} {
		got := b.Send(t, b.Sealed(t, c.l))
		body := string(got.Body)
		if got.Status != http.StatusOK || !strings.Contains(body, c.says) || strings.Contains(body, `"error"`) || strings.Contains(body, "afterwards") {
			t.Errorf("%s: %d %s", name, got.Status, body)
		}
	}
}

// chatty is an agent of A2A 0.3 that streams more events than it should.
func chatty(w http.ResponseWriter, r *http.Request) {
	if r.Method == http.MethodGet {
		gatewaytest.Well(w, r, []byte(`{"protocolVersion":"0.3.0","name":"Chatty","description":"d","version":"1","url":"https://`+r.Host+`/","capabilities":{"streaming":true},`+
			`"defaultInputModes":["text/plain"],"defaultOutputModes":["text/plain"],"skills":[{"id":"s","name":"S","description":"d","tags":["t"]}]}`))
		return
	}
	var request struct{ ID json.RawMessage }
	if json.NewDecoder(r.Body).Decode(&request) != nil {
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	w.Header().Set("Content-Type", "text/event-stream")
	id := string(ect.NewID())
	task := `"taskId":"` + id + `","contextId":"c"`
	for _, result := range []string{
		`{"kind":"task","id":"` + id + `","contextId":"c","status":{"state":"submitted"}}`,
		`{"kind":"status-update",` + task + `,"status":{"state":"working"},"final":false}`,
		`{"kind":"status-update",` + task + `,"status":{"state":"completed"},"final":true}`,
		`{"kind":"artifact-update",` + task + `,"artifact":{"artifactId":"a","parts":[{"kind":"text","text":"afterwards"}]}}`,
		`{"kind":"status-update",` + task + `,"status":{"state":"working"},"final":false}`,
	} {
		_, _ = io.WriteString(w, `data: {"jsonrpc":"2.0","id":`+string(request.ID)+`,"result":`+result+"}\n\n")
		_ = http.NewResponseController(w).Flush()
	}
}
