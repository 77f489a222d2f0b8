package inflight

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/aepb/aepb-gateway/gateway/problem"
	"github.com/aepb/aepb-gateway/gateway/transport"
	"github.com/aepb/aepb-gateway/gateway/transport/sse"
)

const (
	firstStep = 64 << 10 // bytes that a body of unknown length takes first; then it doubles
	large     = 64 << 10 // bytes from which on an answer counts
	piece     = 64 << 10 // bytes that are written under one deadline
)

// errBroken aborts an answer that was refused after its beginning was written.
var errBroken = errors.New("inflight: the caller has too many bytes under way: read pending answers first")

// Handler lets requests count that [Admit] is called for.
func (l *Limits) Handler(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		x := &exchange{ResponseWriter: w, limits: l, request: r}
		defer x.release()
		next.ServeHTTP(x, r)
		x.finish()
	})
}

// Admit takes the share of a request whose caller is known now, and bounds its
// body. w may be wrapped, as long as it unwraps. Without a [Limits.Handler]
// around, nothing is bounded. holder and known are those of [Limits.Begin].
func Admit(w http.ResponseWriter, r *http.Request, holder string, known bool) error {
	x := find(w)
	if x == nil || x.share != nil {
		return nil
	}
	share, err := x.limits.Begin(holder, known)
	if err != nil {
		return err
	}
	x.share = share
	*r = *r.WithContext(transport.WithShare(r.Context(), share))
	if r.Body != nil && r.Body != http.NoBody {
		x.body = &body{ReadCloser: r.Body, x: x, length: r.ContentLength}
		r.Body = x.body
	}
	return nil
}

func find(w http.ResponseWriter) *exchange {
	for {
		if x, ok := w.(*exchange); ok {
			return x
		}
		wrapper, ok := w.(interface{ Unwrap() http.ResponseWriter })
		if !ok {
			return nil
		}
		w = wrapper.Unwrap()
	}
}

// exchange is one request and its answer. Its header goes out with the first byte
// of the body, so that an answer that exceeds the caller's share of bytes can be refused.
type exchange struct {
	http.ResponseWriter
	limits  *Limits
	request *http.Request
	share   *Request // nil: not admitted yet
	body    *body    // nil: there is none

	status    int // that waits to be written; 0: none
	committed bool
	broken    error
	taken     bool // hijacked

	mu    sync.Mutex // of over, and while a timer acts on the request
	over  bool
	timer *time.Timer // of the body; nil: it is not being read
}

// WriteHeader implements http.ResponseWriter.
func (x *exchange) WriteHeader(status int) {
	switch {
	case x.committed:
	case status < http.StatusOK:
		x.ResponseWriter.WriteHeader(status)
	case x.status == 0:
		x.status = status
	}
}

// commit writes the header before size bytes of the body.
func (x *exchange) commit(size int) error {
	if x.committed {
		return x.broken
	}
	x.committed = true
	x.status = cmp.Or(x.status, http.StatusOK)
	if x.share == nil {
		x.ResponseWriter.WriteHeader(x.status)
		return nil
	}
	if strings.HasPrefix(x.Header().Get("Content-Type"), sse.Media) {
		x.broken = x.share.Stream()
	}
	length, _ := strconv.ParseInt(x.Header().Get("Content-Length"), 10, 64)
	if length = max(length, int64(size)); length >= large && x.broken == nil {
		x.broken = x.hold(length)
	}
	if x.broken != nil {
		x.deadline()
		problem.Write(x.ResponseWriter, x.request, x.broken)
		return x.broken
	}
	x.ResponseWriter.WriteHeader(x.status)
	return nil
}

// Write implements io.Writer.
func (x *exchange) Write(b []byte) (int, error) {
	if err := x.commit(len(b)); err != nil {
		return 0, err
	}
	if len(b) >= large && x.share != nil {
		if x.hold(int64(len(b))) != nil {
			x.broken = errBroken
			return 0, errBroken
		}
		defer x.share.Sent()
	}
	if x.request.ProtoMajor < 2 {
		return x.ResponseWriter.Write(b) // its connection has deadlines that move
	}
	return x.pieces(b)
}

// hold waits for the share of a part of an answer, which goes out next. Its error is a
// *[transport.OverBudgetError]: what was asked for is done.
func (x *exchange) hold(n int64) error {
	ctx, cancel := context.WithTimeout(x.request.Context(), x.limits.config.Load().WriteWait)
	defer cancel()
	if x.share.Send(ctx, n) != nil {
		return &transport.OverBudgetError{Size: n}
	}
	return nil
}

// pieces writes piece by piece, each under its own deadline: over HTTP/2 a reader
// can leave a stream alone and still read its connection.
func (x *exchange) pieces(b []byte) (written int, err error) {
	for {
		n := min(piece, len(b))
		x.deadline()
		n, err = x.ResponseWriter.Write(b[:n])
		written, b = written+n, b[n:]
		if err != nil || len(b) == 0 {
			return written, err
		}
	}
}

func (x *exchange) deadline() {
	if x.request.ProtoMajor >= 2 {
		_ = http.NewResponseController(x.ResponseWriter).SetWriteDeadline(time.Now().Add(x.limits.config.Load().WriteWait))
	}
}

// Flush implements http.Flusher.
func (x *exchange) Flush() {
	if x.commit(0) != nil {
		return
	}
	x.deadline()
	control := http.NewResponseController(x.ResponseWriter)
	_ = control.Flush()
	if x.request.ProtoMajor >= 2 { // it may be long until the next part
		_ = control.SetWriteDeadline(time.Time{})
	}
}

// Hijack implements http.Hijacker. What takes a connection over is a stream.
func (x *exchange) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	conn, buffer, err := http.NewResponseController(x.ResponseWriter).Hijack()
	if err == nil {
		x.taken = true
		if x.share != nil {
			_ = x.share.Stream() // its protocol bounds such connections; else it counts as a request
		}
	}
	return conn, buffer, err
}

// Unwrap is for http.ResponseController.
func (x *exchange) Unwrap() http.ResponseWriter { return x.ResponseWriter }

// finish writes a header that waits, and ends visibly an answer that broke off. A
// body that was not read has no more time than one that is.
func (x *exchange) finish() {
	if x.taken {
		return
	}
	if !x.committed && x.status != 0 {
		x.committed = true
		x.ResponseWriter.WriteHeader(x.status)
	}
	if x.body != nil && !x.body.ended && x.request.ProtoMajor < 2 {
		_ = http.NewResponseController(x.ResponseWriter).SetReadDeadline(time.Now().Add(x.limits.config.Load().BodyWait))
	}
	if errors.Is(x.broken, errBroken) {
		panic(http.ErrAbortHandler)
	}
}

func (x *exchange) release() {
	x.mu.Lock()
	x.over = true
	if x.timer != nil {
		x.timer.Stop()
	}
	x.mu.Unlock()
	if x.share != nil {
		x.share.End()
	}
}

// slow ends the reading of a body that does not come.
func (x *exchange) slow() {
	x.mu.Lock()
	defer x.mu.Unlock()
	if !x.over {
		_ = http.NewResponseController(x.ResponseWriter).SetReadDeadline(time.Unix(1, 0))
	}
}

// body is a request's body that counts.
type body struct {
	io.ReadCloser // as it came

	x      *exchange
	length int64 // as the request says it; less than one: unknown
	space  int64 // bytes that the request holds for it; 0: it is not being read
	read   int64
	window int64 // bytes since the timer began
	ended  bool
	err    error // why it is refused
}

// Read implements io.Reader. A refusal is an [*quota.ExceededError].
func (b *body) Read(p []byte) (int, error) {
	if b.err == nil && b.space == 0 {
		b.err = b.begin()
	}
	if b.err != nil {
		return 0, b.err
	}
	n, err := b.ReadCloser.Read(p)
	b.read += int64(n)
	b.progress(int64(n))
	if err != nil {
		b.ended = true
		b.x.timer.Stop()
		return n, err
	}
	if b.length < 1 && b.read >= b.space {
		if b.err = b.x.share.Hold(2 * b.space); b.err != nil {
			b.x.timer.Stop()
			return n, b.err
		}
		b.space *= 2
	}
	return n, nil
}

// begin books the bytes of a body and starts the time limit for reading it.
func (b *body) begin() error {
	space := b.length
	if space < 1 {
		space = firstStep
	}
	if err := b.x.share.Hold(space); err != nil {
		return err
	}
	b.space = space
	b.x.mu.Lock()
	defer b.x.mu.Unlock()
	b.x.timer = time.AfterFunc(b.x.limits.config.Load().BodyWait, b.x.slow)
	return nil
}

// progress begins a body's time again when enough of it came in the last one.
func (b *body) progress(n int64) {
	wait := b.x.limits.config.Load().BodyWait
	rate := max(bodyRate, b.space/int64(bodyTime.Seconds()))
	if b.window += n; b.window >= max(1, rate*wait.Milliseconds()/1000) {
		b.window = 0
		b.x.timer.Reset(wait)
	}
}
