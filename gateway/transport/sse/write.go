package sse

import (
	"bytes"
	"net/http"
	"sync"
	"time"
)

const (
	// writeLimit is how long a reader may take to take one event. One that takes
	// longer is gone.
	writeLimit = 30 * time.Second
	// beatEvery is how long nothing is written before a comment is: far less than
	// the minute after which proxies and clients close what is silent.
	beatEvery = 15 * time.Second
)

// Media is the media type of a stream of events.
const Media = "text/event-stream"

// Writer writes a stream of events as the answer to one request. While it is
// open and nothing is sent it writes a comment now and then, which no reader
// takes for an event (WHATWG HTML, section 9.2.7), so that no proxy closes the
// stream as idle. Stop it before the handler returns.
type Writer struct {
	w       http.ResponseWriter
	gate    *http.ResponseController
	trailer string
	name    string // of every event; empty: none is written

	mu   sync.Mutex // guards writing
	beat *time.Timer
	over bool
}

// NewWriter begins the stream: what the header has to say must be in it
// already. trailer is the field that the stream closes with; empty: none. The
// deadline for reading the request does not count any more: it would end a
// longer stream.
func NewWriter(w http.ResponseWriter, trailer string) *Writer {
	s := &Writer{w: w, gate: http.NewResponseController(w), trailer: trailer}
	_ = s.gate.SetReadDeadline(time.Time{})
	h := w.Header()
	h.Set("Content-Type", Media)
	h.Set("Cache-Control", "no-store")
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("X-Accel-Buffering", "no")
	if trailer != "" {
		h.Set("Trailer", trailer)
	}
	w.WriteHeader(http.StatusOK)
	_ = s.gate.Flush()
	h.Del(trailer) // of the header: it is not said again at the end, where Go's client takes 4 KiB
	s.mu.Lock()
	defer s.mu.Unlock()
	s.beat = time.AfterFunc(beatEvery, s.alive)
	return s
}

// Name gives every event that follows a type of its own.
func (s *Writer) Name(name string) { s.name = name }

// alive writes a comment. If that fails, so will the next event.
func (s *Writer) alive() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.over && s.write([]byte(":\n\n")) == nil {
		s.beat.Reset(beatEvery)
	}
}

// Stop ends the stream: nothing is written once it returns.
func (s *Writer) Stop() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.over = true
	s.beat.Stop()
}

// Close sets the values of the trailer. It writes nothing yet.
func (s *Writer) Close(values []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.w.Header()[s.trailer] = values
}

// Send writes one event at once; data goes line by line, and without carriage
// returns, which would end lines of their own. An error: the client has left.
func (s *Writer) Send(data []byte) error {
	out := make([]byte, 0, len(data)+len(s.name)+32)
	if s.name != "" {
		out = append(append(append(out, "event: "...), s.name...), '\n')
	}
	for line := range bytes.Lines(bytes.ReplaceAll(data, []byte("\r"), nil)) {
		out = append(append(append(out, "data: "...), bytes.TrimRight(line, "\n")...), '\n')
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.beat.Reset(beatEvery)
	return s.write(append(out, '\n'))
}

func (s *Writer) write(data []byte) error {
	_ = s.gate.SetWriteDeadline(time.Now().Add(writeLimit)) // where the connection knows no deadlines, its own end is one
	if _, err := s.w.Write(data); err != nil {
		return err
	}
	err := s.gate.Flush()
	_ = s.gate.SetWriteDeadline(time.Time{})
	return err
}
