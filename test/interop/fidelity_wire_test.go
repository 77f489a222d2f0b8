package interop

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
)

// take is one request of a caller and everything that came back, the trailer
// included. It is read while it goes by.
type take struct {
	request, path, method string
	status                int
	kind                  string
	opening, closing      string // Execution-Context of the header, of the trailer
	body                  string
	whole                 bool // it was heard to its end
}

// tape is a transport that keeps takes without holding anything up.
type tape struct {
	next   http.RoundTripper
	mu     sync.Mutex
	stored []*reel
}

type reel struct {
	tape *tape
	take
	response *http.Response
	inner    io.ReadCloser
	text     bytes.Buffer
}

func (p *tape) RoundTrip(r *http.Request) (*http.Response, error) {
	var body []byte
	if r.Body != nil {
		var err error
		if body, err = io.ReadAll(r.Body); err != nil {
			return nil, err
		}
		again := r.Clone(r.Context())
		again.Body = io.NopCloser(bytes.NewReader(body))
		r = again
	}
	response, err := p.next.RoundTrip(r)
	if err != nil {
		return nil, err
	}
	l := &reel{tape: p, response: response, inner: response.Body, take: take{
		request: string(body), path: r.URL.RequestURI(), method: r.Method, status: response.StatusCode, kind: response.Header.Get("Content-Type"),
		opening: strings.Join(response.Header.Values("Execution-Context"), ", "),
	}}
	response.Body = l
	p.mu.Lock()
	p.stored = append(p.stored, l)
	p.mu.Unlock()
	return response, nil
}

func (l *reel) Read(b []byte) (int, error) {
	n, err := l.inner.Read(b)
	l.tape.mu.Lock()
	defer l.tape.mu.Unlock()
	l.text.Write(b[:n])
	if errors.Is(err, io.EOF) && l.response.Request.Context().Err() == nil { // else it is the end of who read it
		l.whole, l.closing = true, strings.Join(l.response.Trailer.Values("Execution-Context"), ", ")
	}
	return n, err
}

// Close hears the rest first, which an SDK has no use for: the trailer. Whoever
// has left gets an error here, and no more.
func (l *reel) Close() error {
	if l.status == http.StatusOK && l.method == http.MethodPost {
		_, _ = io.Copy(io.Discard, l)
	}
	return l.inner.Close()
}

func (p *tape) CloseIdleConnections() {
	if c, ok := p.next.(interface{ CloseIdleConnections() }); ok {
		c.CloseIdleConnections()
	}
}

// takes are those that did work.
func (p *tape) takes() []take {
	p.mu.Lock()
	defer p.mu.Unlock()
	var list []take
	for _, l := range p.stored {
		if l.work() {
			t := l.take
			t.body = l.text.String()
			list = append(list, t)
		}
	}
	return list
}

// work tells work from discovery and the keeping of sessions.
func (t *take) work() bool {
	var env struct{ Method string }
	_ = json.Unmarshal([]byte(t.request), &env)
	switch env.Method {
	case "initialize", "server/discover", "tools/list", "ping":
		return false
	}
	return !strings.HasPrefix(env.Method, "notifications/") && !strings.Contains(t.path, "agent-card") &&
		(t.status == http.StatusOK || !strings.HasSuffix(t.path, "/mcp")) && (t.method == http.MethodPost || !strings.HasSuffix(t.path, "/mcp"))
}

// framed is the hash of a stream: SHA-256 over its messages, each behind its
// length in eight bytes.
func framed(messages []string) string {
	h := sha256.New()
	for _, m := range messages {
		var length [8]byte
		binary.BigEndian.PutUint64(length[:], uint64(len(m)))
		h.Write(length[:])
		_, _ = io.WriteString(h, m)
	}
	return base64.RawURLEncoding.EncodeToString(h.Sum(nil))
}

func (c *claims) events() (in, out int) {
	var n [2]int
	_ = json.Unmarshal(c.Ext["aepb.events"], &n)
	return n[0], n[1]
}

// proven checks the evidence of one take: every token, how they hang together,
// and that their hashes are those of what went over both wires.
func (a auditor) proven(t take, callerID string, at *callee) error {
	all, err := a.list(t.opening + ", " + t.closing)
	if err != nil {
		return err
	}
	if len(all) == 0 {
		return fmt.Errorf("no evidence of %.200s", t.request)
	}
	if slices.ContainsFunc(all, func(c claims) bool { return c.Act == "aepb:translate_error" }) {
		return nil // what it says was verified with it
	}
	var errs []error
	if request := pick(all, "request"); request != nil {
		errs = append(errs, a.requested(t, *request, callerID, at))
	}
	texts, stream := messagesIn(t.kind, t.body)
	if !stream {
		return errors.Join(append(errs, a.replied(t, all, callerID, at))...)
	}
	return errors.Join(append(errs, a.notified(t, all, texts, callerID, at))...)
}

// requested checks the request leg against what was sent, and what arrived.
func (a auditor) requested(t take, request claims, callerID string, at *callee) error {
	var errs []error
	if t.request != "" && request.InputHash != digest(t.request) {
		errs = append(errs, errors.New("inp_hash of the request leg is not the hash of what the client sent"))
	}
	if request.ext("aepb.caller") != callerID {
		errs = append(errs, fmt.Errorf("aepb.caller is %s", request.ext("aepb.caller")))
	}
	for _, s := range at.all() {
		if strings.Contains(strings.Join(s.Evidence, ","), request.compact) {
			if request.OutputHash != digest(string(s.Body)) {
				errs = append(errs, errors.New("out_hash of the request leg is not the hash of what the agent got"))
			}
			return errors.Join(errs...)
		}
	}
	return errors.Join(append(errs, errors.New("no request that reached the agent carries the request leg's ECT"))...)
}

func (a auditor) replied(t take, all []claims, callerID string, at *callee) error {
	reply := pick(all, "reply")
	if reply == nil {
		return fmt.Errorf("no reply leg among %d tokens of %.200s", len(all), t.request)
	}
	var errs []error
	if !slices.Contains(reply.Audience, callerID) {
		errs = append(errs, fmt.Errorf("aud of the reply leg is %v", reply.Audience))
	}
	if reply.OutputHash != digest(t.body) {
		errs = append(errs, errors.New("out_hash of the reply leg is not the hash of what the client got"))
	}
	if request := pick(all, "request"); request != nil {
		if reply.Workflow != request.Workflow || !slices.Contains(reply.Parents, request.ID) {
			errs = append(errs, errors.New("the reply leg does not follow the request leg"))
		}
		errs = append(errs, a.arrived(*request, *reply, at))
	}
	return errors.Join(errs...)
}

// notified checks the two tokens of a stream.
func (a auditor) notified(t take, all []claims, texts []string, callerID string, at *callee) error {
	var opened, closed *claims
	for i := range all {
		switch all[i].ext("aepb.stream") {
		case "open":
			opened = &all[i]
		case "close":
			closed = &all[i]
		}
	}
	switch {
	case opened == nil:
		return errors.New("no token opens the stream")
	case !t.whole:
		return nil // its reader left: nothing can close it for him
	case closed == nil:
		return errors.New("no token closes the stream")
	}
	var errs []error
	demand := func(holds bool, format string, values ...any) {
		if !holds {
			errs = append(errs, fmt.Errorf(format, values...))
		}
	}
	demand(strings.Contains(t.closing, closed.compact), "what closes the stream is not in the trailer")
	demand(slices.Contains(closed.Parents, opened.ID), "what closes the stream does not follow what opens it")
	demand(closed.Workflow == opened.Workflow, "wid changes within the stream")
	demand(slices.Contains(closed.Audience, callerID), "aud of the stream is %v", closed.Audience)
	demand(closed.OutputHash == framed(texts), "out_hash is not the hash of the %d events that the client got", len(texts))
	_, out := closed.events()
	demand(out == len(texts), "aepb.events says %d, the client got %d", out, len(texts))
	if request := pick(all, "request"); request != nil {
		demand(slices.Contains(opened.Parents, request.ID), "what opens the stream does not follow the request")
		errs = append(errs, a.arrived(*request, *closed, at))
	}
	return errors.Join(errs...)
}

// arrived checks that the hash of what came from the agent is that of what it said
// to this request, and to those that the gateway made of its own for it.
func (a auditor) arrived(request, reply claims, at *callee) error {
	var texts []string
	for _, s := range at.all() {
		tokens, err := a.list(strings.Join(s.Evidence, ","))
		if err != nil {
			return err
		}
		if slices.ContainsFunc(tokens, func(c claims) bool {
			return c.ID == request.ID || slices.Equal(c.Parents, []string{request.ID}) && c.InputHash == ""
		}) {
			list, _ := s.messages()
			texts = append(texts, list...)
		}
	}
	if raw := reply.Ext["aepb.events"]; raw != nil {
		in, _ := reply.events()
		if in > len(texts) {
			return fmt.Errorf("aepb.events says that %d came from the agent, it said %d", in, len(texts))
		}
		texts = texts[:in] // the rest came later, or after what counts
	}
	if reply.InputHash != framed(texts) && (len(texts) != 1 || reply.InputHash != digest(texts[0])) {
		return fmt.Errorf("inp_hash is not the hash of the %d messages that the agent said", len(texts))
	}
	return nil
}
