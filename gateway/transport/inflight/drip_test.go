package inflight_test

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aepb/aepb-gateway/gateway/transport/inflight"
)

// pipes is a listener whose connections are in memory, so that their time is virtual.
type pipes struct {
	conns chan net.Conn
	end   chan struct{}
	close func()
}

func newPipes() *pipes {
	p := &pipes{conns: make(chan net.Conn), end: make(chan struct{})}
	p.close = sync.OnceFunc(func() { close(p.end) })
	return p
}

func (p *pipes) Accept() (net.Conn, error) {
	select {
	case c := <-p.conns:
		return c, nil
	case <-p.end:
		return nil, net.ErrClosed
	}
}

func (p *pipes) Close() error { p.close(); return nil }

func (p *pipes) Addr() net.Addr { return &net.UnixAddr{Name: "pipe"} }

func (p *pipes) dial(ctx context.Context, _, _ string) (net.Conn, error) {
	near, far := net.Pipe()
	select {
	case p.conns <- far:
		return near, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// drip is a body that comes piece by piece, each after a pause.
type drip struct {
	piece, left int
	pause       time.Duration
	now         int // left of the piece
}

func (d *drip) Read(b []byte) (int, error) {
	if d.left == 0 {
		return 0, io.EOF
	}
	if d.now == 0 {
		time.Sleep(d.pause)
		d.now = d.piece
	}
	n := min(len(b), d.now, d.left)
	d.now, d.left = d.now-n, d.left-n
	return n, nil
}

// TestHandler_BodiesMustKeepTheirRate: a body of which something comes all the time, but
// less than 8 KiB for each second, or than what it holds for each minute, is ended after
// BodyWait. One that keeps the rate may last for many times BodyWait.
func TestHandler_BodiesMustKeepTheirRate(t *testing.T) {
	t.Parallel()
	const wait, size, large = 10 * time.Second, 470 << 10, 1 << 20
	for name, tc := range map[string]struct {
		body drip
		ends bool
	}{
		"a byte each second":          {drip{piece: 1, left: size, pause: time.Second}, true},
		"less than the rate":          {drip{piece: 7 << 10, left: size, pause: time.Second}, true},
		"the rate, and a little":      {drip{piece: 9 << 10, left: size, pause: time.Second}, false},
		"much, at the rate of little": {drip{piece: 16 << 10, left: large, pause: time.Second}, true},
		"the rate, in large pieces":   {drip{piece: 31 << 10, left: size, pause: 3 * time.Second}, false},
	} {
		for _, version := range []string{"HTTP/1.1", "HTTP/2.0"} {
			t.Run(name+", "+version, func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) {
					limits := small()
					limits.BodyWait = wait
					took, err := fed(t, newLimits(t, limits), version, tc.body)
					switch {
					case tc.ends && (err == nil || took > wait):
						t.Errorf("the body was read for %v, until %v; want an end within %v", took, err, wait)
					case !tc.ends && (err != nil || took < 4*wait):
						t.Errorf("the body was read for %v, until %v; want all of it, in 40 s or more", took, err)
					}
				})
			})
		}
	}
}

// fed is how long a handler read a body, and how that ended.
func fed(t *testing.T, l *inflight.Limits, version string, body drip) (took time.Duration, err error) {
	t.Helper()
	type end struct {
		took time.Duration
		err  error
	}
	ended := make(chan end, 1)
	server := &http.Server{Protocols: new(http.Protocols), Handler: l.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Proto != version {
			t.Errorf("%s, want %s", r.Proto, version)
		}
		if err := inflight.Admit(w, r, "a", true); err != nil {
			t.Error(err)
		}
		began := time.Now()
		_, err := io.Copy(io.Discard, r.Body)
		ended <- end{time.Since(began), err}
	}))}
	server.Protocols.SetHTTP1(version == "HTTP/1.1")
	server.Protocols.SetUnencryptedHTTP2(version == "HTTP/2.0")
	listener := newPipes()
	done := make(chan error, 1)
	go func() { done <- server.Serve(listener) }()
	// A buffer of one byte: what the body gives goes out at once.
	transport := &http.Transport{DialContext: listener.dial, Protocols: server.Protocols, WriteBufferSize: 1}
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://gateway/", &body)
	if err != nil {
		t.Fatal(err)
	}
	r.ContentLength = int64(body.left)
	if got, err := transport.RoundTrip(r); err == nil { // it may break off
		_ = got.Body.Close()
	}
	got := <-ended
	transport.CloseIdleConnections()
	defer time.Sleep(2 * body.pause) // the client sees with the next piece that it is over
	if err := errors.Join(server.Close(), <-done); !errors.Is(err, http.ErrServerClosed) {
		t.Error(err)
	}
	return got.took, got.err
}
