package egress

import (
	"bufio"
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/net/http/httpguts"
)

// largestDirect is the largest request that is sent directly: the bytes of its body and of its header.
// A socket takes it at once. The sender of a larger one must read meanwhile, or waits for ever for a
// server that has answered already and reads no more.
const largestDirect = 32 << 10

// Bounds of the HTTP/1.1 servers of a pool.
const (
	maxKnown       = 1024 // of which it is known that they speak no HTTP/2
	maxInformation = 5    // responses 1xx before the one that counts

	headerSpace = maxResponseHeader + bufferSize // bytes that are read for the header of a response
)

var (
	errHeaderSize = fmt.Errorf("egress: the header of the response is larger than %d bytes", maxResponseHeader)
	errInterim    = fmt.Errorf("egress: expected a final response after at most %d interim ones", maxInformation)
	errSwitching  = errors.New("egress: the server switches protocols, which it was not asked to do")
)

// direct sends requests of HTTP/1.1 and reads their responses in the goroutine of the caller.
// net/http has two goroutines for each connection, which wake each other and the caller for each
// message. What a server may have got is sent again only as net/http does it: see repeatable.
type direct struct {
	dial    func(ctx context.Context, network, hostport string) (net.Conn, error)
	secure  func(ctx context.Context, plain net.Conn, host string) (*tls.Conn, error) // nil: without TLS
	bounds  Config
	mu      sync.Mutex
	idle    map[string][]*directConn // by host and port, the one that was used last at the end
	count   int                      // of idle
	known   map[string]bool          // hosts that speak HTTP/1.1, if there is TLS
	sweeper *time.Timer              // nil: no connection is idle
	closed  bool
}

// directConn is one connection. It is used by one request at a time.
type directConn struct {
	net.Conn

	plain net.Conn // below TLS
	key   string
	left  int64 // bytes that may still be read
	since time.Time
	in    *bufio.Reader
	out   *bufio.Writer
}

// Read implements io.Reader.
func (c *directConn) Read(p []byte) (int, error) {
	if c.left <= 0 {
		return 0, errHeaderSize
	}
	n, err := c.Conn.Read(p[:min(int64(len(p)), c.left)])
	c.left -= int64(n)
	return n, err
}

// suits reports whether a request can be sent directly: it is small, and asks for nothing but a
// response.
func suits(r *http.Request) bool {
	if r.ContentLength < 0 || r.ContentLength == 0 && r.Body != nil && r.Body != http.NoBody {
		return false
	}
	size := r.ContentLength
	for name, values := range r.Header {
		for _, value := range values {
			size += int64(len(name) + len(value))
		}
	}
	return size <= largestDirect && r.ProtoMajor <= 1 && r.Trailer == nil && len(r.TransferEncoding) == 0 && !r.Close &&
		r.Header["Expect"] == nil && r.Header["Upgrade"] == nil && r.Header["Connection"] == nil
}

// knows reports whether a host is known to speak HTTP/1.1.
func (d *direct) knows(host string) bool {
	if d.secure == nil {
		return true
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.known[host]
}

// learn notes by a response of net/http whether its server speaks HTTP/2, which was offered.
func (d *direct) learn(host string, response *http.Response) {
	if d.secure == nil || response.ProtoMajor != 1 {
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	for old := range d.known {
		if len(d.known) < maxKnown {
			break
		}
		delete(d.known, old) // any: it is learned again
	}
	d.known[host] = true
}

// RoundTrip implements http.RoundTripper for requests that [suits] admits.
func (d *direct) RoundTrip(r *http.Request) (*http.Response, error) {
	if err := check(r); err != nil {
		return nil, errors.Join(err, closeBody(r))
	}
	c, err := d.take(r)
	if err != nil {
		return nil, errors.Join(err, closeBody(r))
	}
	stop := context.AfterFunc(r.Context(), func() { _ = c.plain.Close() })
	response, err := c.exchange(r, d.bounds.HeaderTimeout)
	if err != nil {
		stop()
		err = cmp.Or(context.Cause(r.Context()), errors.Join(err, c.plain.Close()))
		if c.left == headerSpace && !c.since.IsZero() && repeatable(r) && r.Context().Err() == nil {
			return d.RoundTrip(r) // its server ended the connection when it came, as far as can be seen
		}
		return nil, err
	}
	body := &directBody{ReadCloser: response.Body, pool: d, conn: c, ctx: r.Context(), stop: stop, keep: !response.Close}
	if response.Body == http.NoBody {
		body.end(true)
	} else {
		response.Body = body
	}
	return response, nil
}

// repeatable reports whether a request may be sent again that a server may have got (RFC 9110,
// section 9.2.2). With a body it is not.
func repeatable(r *http.Request) bool {
	return r.ContentLength == 0 && (r.Method == http.MethodGet || r.Method == http.MethodHead)
}

func closeBody(r *http.Request) error {
	if r.Body == nil {
		return nil
	}
	return r.Body.Close()
}

// check refuses a header that would be written as something else.
func check(r *http.Request) error {
	if !httpguts.ValidHeaderFieldName(r.Method) { // both are tokens
		return fmt.Errorf("egress: the method %q is not valid: expected a token such as POST", r.Method)
	}
	for name, values := range r.Header {
		if !httpguts.ValidHeaderFieldName(name) {
			return fmt.Errorf("egress: the header name %q is not valid: expected a token", name)
		}
		for _, value := range values {
			if !httpguts.ValidHeaderFieldValue(value) {
				return fmt.Errorf("egress: the value of header %s has characters that no header may have", name)
			}
		}
	}
	return nil
}

// exchange sends a request and reads the header of its response.
func (c *directConn) exchange(r *http.Request, limit time.Duration) (*http.Response, error) {
	c.left = headerSpace
	if err := r.Write(c.out); err != nil {
		return nil, err
	}
	if err := c.out.Flush(); err != nil {
		return nil, err
	}
	if err := c.SetReadDeadline(time.Now().Add(limit)); err != nil {
		return nil, err
	}
	for range maxInformation + 1 {
		response, err := http.ReadResponse(c.in, r)
		switch {
		case err != nil:
			return nil, err
		case response.StatusCode == http.StatusSwitchingProtocols:
			return nil, errSwitching
		case response.StatusCode < http.StatusContinue || response.StatusCode >= http.StatusOK:
			c.left = math.MaxInt64
			_ = c.SetReadDeadline(time.Time{}) // it fails if the connection has ended, as reading then does
			return response, nil
		}
	}
	return nil, errInterim
}

// take is a connection to the host of a request: one that is idle, or a new one.
func (d *direct) take(r *http.Request) (*directConn, error) {
	key := net.JoinHostPort(r.URL.Hostname(), portOf(r.URL.Port(), r.URL.Scheme))
	for c := d.pop(key); c != nil; c = d.pop(key) {
		if c.quiet() {
			return c, nil
		}
		_ = c.plain.Close()
	}
	plain, err := d.dial(r.Context(), "tcp", key)
	if err != nil {
		return nil, err
	}
	c := &directConn{Conn: plain, plain: plain, key: key}
	if d.secure != nil {
		if c.Conn, err = d.secure(r.Context(), plain, r.URL.Hostname()); err != nil {
			return nil, err
		}
	}
	c.in, c.out = bufio.NewReaderSize(c, bufferSize), bufio.NewWriterSize(c, bufferSize)
	return c, nil
}

func (d *direct) pop(key string) *directConn {
	d.mu.Lock()
	defer d.mu.Unlock()
	waiting := d.idle[key]
	if len(waiting) == 0 {
		return nil
	}
	last := waiting[len(waiting)-1]
	waiting[len(waiting)-1] = nil
	d.idle[key] = waiting[:len(waiting)-1]
	d.count--
	return last
}

// put lets a connection wait for the next request, if there is space for it.
func (d *direct) put(c *directConn) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed || len(d.idle[c.key]) >= d.bounds.MaxIdlePerHost {
		_ = c.plain.Close()
		return
	}
	if d.count >= d.bounds.MaxIdle {
		d.dropOldest()
	}
	c.since = time.Now()
	d.idle[c.key] = append(d.idle[c.key], c)
	d.count++
	if d.sweeper == nil {
		d.sweeper = time.AfterFunc(d.bounds.IdleTimeout, d.sweep)
	}
}

// dropOldest closes the connection that waits longest, so that a caller who names many servers
// takes no space from servers that are in use.
func (d *direct) dropOldest() {
	oldest := ""
	for key, waiting := range d.idle {
		if first := d.idle[oldest]; len(waiting) > 0 && (len(first) == 0 || waiting[0].since.Before(first[0].since)) {
			oldest = key
		}
	}
	if waiting := d.idle[oldest]; len(waiting) > 0 {
		_ = waiting[0].plain.Close()
		d.idle[oldest] = append(waiting[:0:0], waiting[1:]...)
		d.count--
	}
}

// sweep closes the connections that were idle too long, and comes again when the next one is.
func (d *direct) sweep() {
	d.mu.Lock()
	defer d.mu.Unlock()
	now, next := time.Now(), time.Duration(math.MaxInt64)
	for key, waiting := range d.idle {
		old := 0
		for old < len(waiting) && now.Sub(waiting[old].since) >= d.bounds.IdleTimeout {
			_ = waiting[old].plain.Close()
			old++
		}
		d.count -= old
		if d.idle[key] = append(waiting[:0:0], waiting[old:]...); old == len(waiting) {
			delete(d.idle, key)
			continue
		}
		next = min(next, d.bounds.IdleTimeout-now.Sub(waiting[old].since))
	}
	if d.sweeper = nil; d.count > 0 {
		d.sweeper = time.AfterFunc(next, d.sweep)
	}
}

// closeIdle closes the connections that wait; for good: also those in use, when they are done.
func (d *direct) closeIdle(forGood bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.closed = d.closed || forGood
	for _, waiting := range d.idle {
		for _, c := range waiting {
			_ = c.plain.Close()
		}
	}
	d.idle, d.count = map[string][]*directConn{}, 0
	if d.sweeper != nil {
		d.sweeper.Stop()
		d.sweeper = nil
	}
}

// directBody is the body of a response. Its end frees the connection for the next request; closed
// before, it closes the connection.
type directBody struct {
	io.ReadCloser

	pool *direct
	conn *directConn
	ctx  context.Context //nolint:containedctx // the request's, as in net/http
	stop func() bool
	keep bool
	over atomic.Bool // the connection has another use, or none
}

// Read implements io.Reader.
func (b *directBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	switch {
	case err == nil:
	case errors.Is(err, io.EOF):
		b.end(true)
	default:
		b.end(false)
		err = cmp.Or(context.Cause(b.ctx), err)
	}
	return n, err
}

// Close implements io.Closer.
func (b *directBody) Close() error {
	b.end(false)
	return nil
}

// end is what follows the last byte of a response, or of what is wanted of it.
func (b *directBody) end(whole bool) {
	if b.over.Swap(true) {
		return
	}
	if running := b.stop(); running && whole && b.keep && b.conn.in.Buffered() == 0 {
		b.pool.put(b.conn)
		return
	}
	_ = b.conn.plain.Close()
}
