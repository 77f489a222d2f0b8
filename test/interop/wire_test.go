package interop

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
)

// exchange is one call that did work, as it went over the wire. The JavaScript
// clients print the same members.
type exchange struct {
	Request  string `json:"request"`
	Status   int    `json:"status"`
	Type     string `json:"type"`
	Evidence string `json:"evidence"` // the Execution-Context lines of the response, joined
	Response string `json:"response"`
}

// recorder is a transport that keeps the exchanges that went through it.
type recorder struct {
	next   http.RoundTripper
	mu     sync.Mutex
	stored []exchange
}

// RoundTrip passes everything on and keeps what did work.
func (r *recorder) RoundTrip(req *http.Request) (*http.Response, error) {
	if req.Body == nil {
		return r.next.RoundTrip(req)
	}
	body, err := io.ReadAll(req.Body)
	if err != nil {
		return nil, err
	}
	again := req.Clone(req.Context())
	again.Body = io.NopCloser(bytes.NewReader(body))
	resp, err := r.next.RoundTrip(again)
	if err != nil || !works(body) {
		return resp, err
	}
	answer, err := io.ReadAll(resp.Body)
	if err != nil {
		return nil, err
	}
	resp.Body = io.NopCloser(bytes.NewReader(answer))
	r.mu.Lock()
	defer r.mu.Unlock()
	r.stored = append(r.stored, exchange{
		Request:  string(body),
		Status:   resp.StatusCode,
		Type:     resp.Header.Get("Content-Type"),
		Evidence: strings.Join(resp.Header.Values("Execution-Context"), ", "),
		Response: string(answer),
	})
	return resp, nil
}

// CloseIdleConnections lets http.Client.CloseIdleConnections reach the transport.
func (r *recorder) CloseIdleConnections() {
	if c, ok := r.next.(interface{ CloseIdleConnections() }); ok {
		c.CloseIdleConnections()
	}
}

func (r *recorder) exchanges() []exchange {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.stored)
}

// works tells the calls that do work from discovery and session keeping, which
// the gateway answers without evidence of their own.
func works(body []byte) bool {
	var envelope struct {
		Method  string          `json:"method"`
		Message json.RawMessage `json:"message"` // A2A without JSON-RPC
	}
	return json.Unmarshal(body, &envelope) == nil &&
		(envelope.Message != nil || slices.Contains([]string{"SendMessage", "message/send", "tools/call"}, envelope.Method))
}

// payload is the JSON-RPC message in a response: the body, or the last event of
// an event stream.
func (e exchange) payload() string {
	if !strings.HasPrefix(e.Type, "text/event-stream") {
		return e.Response
	}
	last := ""
	for line := range strings.Lines(e.Response) {
		if data, ok := strings.CutPrefix(line, "data:"); ok {
			last = strings.TrimSpace(data)
		}
	}
	return last
}
