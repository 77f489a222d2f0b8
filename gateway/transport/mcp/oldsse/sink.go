package oldsse

import (
	"bytes"
	"net/http"
	"strings"

	"github.com/aepb/aepb-gateway/gateway/transport/sse"
)

// sink takes the answer to one message of a session and sends what is in it on the stream.
type sink struct {
	session *session
	header  http.Header
	code    int
	whole   bool // an answer that is no stream of events is sent too

	buffer  []byte // an event that is not complete, or all of an answer that is no stream
	replied bool   // something was sent
}

var _ http.ResponseWriter = (*sink)(nil)

// Header implements http.ResponseWriter.
func (k *sink) Header() http.Header { return k.header }

// WriteHeader implements http.ResponseWriter.
func (k *sink) WriteHeader(code int) {
	if k.code != 0 {
		return
	}
	k.code = code
	if id := k.header.Get(headerSession); id != "" {
		k.session.named(id)
	}
}

// Flush implements http.Flusher: nothing waits.
func (*sink) Flush() {}

// Write implements http.ResponseWriter.
func (k *sink) Write(data []byte) (int, error) {
	k.WriteHeader(http.StatusOK)
	k.buffer = append(k.buffer, data...)
	if !strings.HasPrefix(k.header.Get("Content-Type"), sse.Media) {
		return len(data), nil
	}
	for {
		event, rest, complete := bytes.Cut(k.buffer, []byte("\n\n"))
		if !complete {
			return len(data), nil
		}
		k.buffer = bytes.Clone(rest)
		if err := k.send(event); err != nil {
			return 0, err
		}
	}
}

// send sends the data of one event; one without data is a comment.
func (k *sink) send(event []byte) error {
	var message [][]byte
	for line := range bytes.Lines(event) {
		if data, ok := bytes.CutPrefix(bytes.TrimSuffix(line, []byte("\n")), []byte("data: ")); ok {
			message = append(message, data)
		}
	}
	if message == nil {
		return nil
	}
	k.replied = true
	return k.session.send(bytes.Join(message, []byte("\n")))
}

// finish sends an answer that is no stream.
func (k *sink) finish() {
	if !k.whole || len(k.buffer) == 0 || strings.HasPrefix(k.header.Get("Content-Type"), sse.Media) {
		return
	}
	k.replied = true
	_ = k.session.send(k.buffer) // if it fails, the session has ended
}
