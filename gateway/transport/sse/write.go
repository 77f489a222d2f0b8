package sse

import (
	"bytes"
	"net/http"
	"time"
)

// writeLimit is how long a reader may take to take one event. One that takes
// longer is gone.
const writeLimit = 30 * time.Second

// Media is the media type of a stream of events.
const Media = "text/event-stream"

// Writer writes a stream of events as the answer to one request. It is not safe
// for concurrent use.
type Writer struct {
	w       http.ResponseWriter
	gate    *http.ResponseController
	trailer string
}

// NewWriter begins the stream: what the header has to say must be in it
// already. trailer is the field that the stream closes with. The deadline for
// reading the request does not count any more: it would end a longer stream.
func NewWriter(w http.ResponseWriter, trailer string) *Writer {
	s := &Writer{w: w, gate: http.NewResponseController(w), trailer: trailer}
	_ = s.gate.SetReadDeadline(time.Time{})
	h := w.Header()
	h.Set("Content-Type", Media)
	h.Set("Cache-Control", "no-store")
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("X-Accel-Buffering", "no")
	h.Set("Trailer", trailer)
	w.WriteHeader(http.StatusOK)
	_ = s.gate.Flush()
	return s
}

// Close sets the values of the trailer. It writes nothing yet.
func (s *Writer) Close(values []string) { s.w.Header()[s.trailer] = values }

// Send writes one event at once; data goes line by line. An error: nobody reads.
func (s *Writer) Send(data []byte) error {
	_ = s.gate.SetWriteDeadline(time.Now().Add(writeLimit)) // where the connection knows no deadlines, its own end is one
	out := make([]byte, 0, len(data)+16)
	for line := range bytes.Lines(data) {
		out = append(append(append(out, "data: "...), bytes.TrimRight(line, "\r\n")...), '\n')
	}
	if _, err := s.w.Write(append(out, '\n')); err != nil {
		return err
	}
	err := s.gate.Flush()
	_ = s.gate.SetWriteDeadline(time.Time{})
	return err
}
