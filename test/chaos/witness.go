package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
)

// maxEvent bounds what is kept of a stream's newest event.
const maxEvent = 1 << 20

// witness reads what passes through a client, because an SDK does not say whether
// a stream that ended had its end, nor that its answer to a question went down with
// a connection.
type witness struct {
	mu     sync.Mutex
	silent []string
	broken [][]byte // the answers that went down
}

// via is a client's own way, seen by a witness.
type via struct {
	next    http.RoundTripper
	witness *witness
}

// RoundTrip looks at answers that are streams; those that a client opened only to
// listen have no end. What breaks because the caller gave up is not looked at.
func (v *via) RoundTrip(r *http.Request) (*http.Response, error) {
	resp, err := v.next.RoundTrip(r)
	if err != nil && r.Context().Err() == nil {
		v.witness.broke(r)
	}
	if err != nil || r.Method != http.MethodPost || !strings.HasPrefix(resp.Header.Get("Content-Type"), "text/event-stream") {
		return resp, err
	}
	resp.Body = &watched{ReadCloser: resp.Body, ended: func(last []byte) {
		if !final(last) {
			v.witness.note(r.URL.Path + " ended with " + string(last))
		}
	}}
	return resp, nil
}

// CloseIdleConnections passes it on.
func (v *via) CloseIdleConnections() {
	if idle, ok := v.next.(interface{ CloseIdleConnections() }); ok {
		idle.CloseIdleConnections()
	}
}

func (w *witness) note(what string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.silent = append(w.silent, what)
}

func (w *witness) streams() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.silent)
}

// broke keeps what a request said whose connection broke, if it was an answer.
func (w *witness) broke(r *http.Request) {
	if r.GetBody == nil {
		return
	}
	body, err := r.GetBody()
	if err != nil {
		return
	}
	defer func() { _ = body.Close() }()
	text, err := io.ReadAll(io.LimitReader(body, maxEvent))
	var m struct {
		Method string          `json:"method"`
		Result json.RawMessage `json:"result"`
	}
	if err != nil || json.Unmarshal(text, &m) != nil || m.Method != "" || m.Result == nil {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.broken = append(w.broken, text)
}

// wentDown: the caller's answer in this call broke with its connection. The MCP
// SDKs say so to nobody, and wait for what will not come.
func (w *witness) wentDown(key string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.ContainsFunc(w.broken, func(text []byte) bool { return bytes.Contains(text, []byte(key)) })
}

// watched is a stream as its reader reads it.
type watched struct {
	io.ReadCloser
	ended func(last []byte)

	line, event, last []byte // of the data: what is not a line yet, and not an event yet; the newest event
	over              bool
}

func (s *watched) Read(b []byte) (int, error) {
	n, err := s.ReadCloser.Read(b)
	s.feed(b[:n])
	if errors.Is(err, io.EOF) && !s.over {
		s.over = true
		s.ended(s.last)
	}
	return n, err
}

func (s *watched) feed(b []byte) {
	for {
		line, rest, whole := bytes.Cut(b, []byte("\n"))
		if len(s.line)+len(line) <= maxEvent {
			s.line = append(s.line, line...)
		}
		if !whole {
			return
		}
		s.take(bytes.TrimSuffix(s.line, []byte("\r")))
		s.line, b = s.line[:0], rest
	}
}

func (s *watched) take(line []byte) {
	if data, ok := bytes.CutPrefix(line, []byte("data:")); ok && len(s.event)+len(data) <= maxEvent {
		s.event = append(s.event, bytes.TrimPrefix(data, []byte(" "))...)
	}
	if len(line) == 0 && len(s.event) > 0 {
		s.last, s.event = append(s.last[:0], s.event...), s.event[:0]
	}
}

// final: the event ends a stream, of A2A or of MCP.
func final(event []byte) bool {
	type status struct {
		Status struct {
			State string `json:"state"`
		} `json:"status"`
	}
	var m struct {
		Error  json.RawMessage `json:"error"`
		Result *struct {
			Task     *status         `json:"task"`
			Status   *status         `json:"statusUpdate"`
			Artifact json.RawMessage `json:"artifactUpdate"`
			Message  json.RawMessage `json:"message"`
		} `json:"result"`
	}
	switch err := json.Unmarshal(event, &m); {
	case err != nil:
		return false
	case m.Error != nil:
		return true
	case m.Result == nil || m.Result.Artifact != nil:
		return false
	case m.Result.Task != nil:
		return settles(m.Result.Task.Status.State)
	case m.Result.Status != nil:
		return settles(m.Result.Status.Status.State)
	default:
		return true
	}
}

func settles(state string) bool {
	switch state {
	case "TASK_STATE_COMPLETED", "TASK_STATE_FAILED", "TASK_STATE_CANCELED", "TASK_STATE_REJECTED",
		"TASK_STATE_INPUT_REQUIRED", "TASK_STATE_AUTH_REQUIRED":
		return true
	default:
		return false
	}
}
