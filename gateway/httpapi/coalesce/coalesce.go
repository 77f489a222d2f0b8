// Package coalesce lets the answers of an HTTP server leave in one piece.
//
// net/http writes what is larger than 4 KiB, header included, piece by piece. An
// answer with its evidence is a little larger, and a second piece costs us a
// write and its reader a wait. So a connection holds back the pieces of an answer
// whose length is known until it is complete. What is streamed is not held back.
//
// Alternative considered: fewer bytes. The certificate in each token is half of
// them, and it is what lets a token be verified offline.
package coalesce

import (
	"bufio"
	"bytes"
	"context"
	"net"
	"net/http"
	"sync"
)

// What a connection holds back, in bytes.
const (
	usuallyHeld = 8 << 10
	maxHeld     = 32 << 10
)

// Listen prepares a listener below TLS. Its server needs Conn as its ConnContext
// and Handler around its handler.
func Listen(l net.Listener) net.Listener {
	return &listener{Listener: l, buffers: sync.Pool{New: func() any { return bytes.NewBuffer(make([]byte, 0, usuallyHeld)) }}}
}

// Conn finds the connection of a request: http.Server.ConnContext.
func Conn(ctx context.Context, c net.Conn) context.Context {
	if secured, ok := c.(interface{ NetConn() net.Conn }); ok {
		c = secured.NetConn()
	}
	if buffering, ok := c.(*conn); ok {
		return context.WithValue(ctx, key{}, buffering)
	}
	return ctx
}

// Handler lets answers of a known length leave in one piece.
func Handler(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		conn, ok := r.Context().Value(key{}).(*conn)
		if !ok || r.ProtoMajor != 1 { // HTTP/2 has other requests on the same connection
			next.ServeHTTP(w, r)
			return
		}
		whole := &writer{ResponseWriter: w, conn: conn}
		next.ServeHTTP(whole, r) // if it panics, the connection is closed over what was held
		if whole.coalescing {
			whole.Flush()
		}
	})
}

type key struct{}

type listener struct {
	net.Listener
	buffers sync.Pool // of *bytes.Buffer
}

// Accept implements net.Listener.
func (l *listener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return &conn{Conn: c, buffers: &l.buffers}, nil
}

// conn is a connection that can hold back what is written.
type conn struct {
	net.Conn
	buffers  *sync.Pool
	mu       sync.Mutex
	buffered *bytes.Buffer // nil: nothing is held back
}

// NetConn is the connection below.
func (c *conn) NetConn() net.Conn { return c.Conn }

// Write implements io.Writer.
func (c *conn) Write(b []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.buffered == nil {
		return c.Conn.Write(b)
	}
	_, _ = c.buffered.Write(b) // which cannot fail
	if c.buffered.Len() < maxHeld {
		return len(b), nil
	}
	return len(b), c.let()
}

func (c *conn) hold() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.buffered == nil {
		c.buffered, _ = c.buffers.Get().(*bytes.Buffer)
	}
}

// release writes what was held back, and holds back nothing more.
func (c *conn) release() {
	c.mu.Lock()
	defer c.mu.Unlock()
	_ = c.let() // the next who writes or reads hears of it
}

func (c *conn) let() error {
	buffered := c.buffered
	if c.buffered = nil; buffered == nil {
		return nil
	}
	_, err := c.Conn.Write(buffered.Bytes())
	buffered.Reset()
	c.buffers.Put(buffered)
	return err
}

// writer tells its connection when an answer begins, and when it goes out.
type writer struct {
	http.ResponseWriter
	conn       *conn
	began      bool
	coalescing bool
}

// WriteHeader implements http.ResponseWriter.
func (w *writer) WriteHeader(status int) {
	if status >= http.StatusOK && !w.began {
		w.began = true
		if w.coalescing = w.Header().Get("Content-Length") != ""; w.coalescing {
			w.conn.hold()
		}
	}
	w.ResponseWriter.WriteHeader(status)
}

// Write implements io.Writer.
func (w *writer) Write(b []byte) (int, error) {
	if !w.began {
		w.WriteHeader(http.StatusOK)
	}
	return w.ResponseWriter.Write(b)
}

// Flush implements http.Flusher.
func (w *writer) Flush() {
	_ = http.NewResponseController(w.ResponseWriter).Flush()
	if w.coalescing {
		w.conn.release()
		w.coalescing = false
	}
}

// Hijack implements http.Hijacker.
func (w *writer) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	return http.NewResponseController(w.ResponseWriter).Hijack()
}

// Unwrap is for http.ResponseController.
func (w *writer) Unwrap() http.ResponseWriter { return w.ResponseWriter }
