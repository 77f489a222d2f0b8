package accept_test

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/aepb/aepb-gateway/gateway/transport/accept"
	"github.com/aepb/aepb-gateway/policy/quota"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// pipes is a listener whose connections are pipes from given addresses.
type pipes struct {
	next chan net.Conn
	once sync.Once
}

func newPipes() *pipes { return &pipes{next: make(chan net.Conn)} }

func (p *pipes) Accept() (net.Conn, error) {
	if c, ok := <-p.next; ok {
		return c, nil
	}
	return nil, net.ErrClosed
}

func (p *pipes) Close() error { p.once.Do(func() { close(p.next) }); return nil }

func (p *pipes) Addr() net.Addr { return &net.TCPAddr{} }

// from is a connection from an address, and its other end.
type from struct {
	net.Conn
	at string
}

func (f from) RemoteAddr() net.Addr {
	at, _ := net.ResolveTCPAddr("tcp", f.at)
	return at
}

// connect offers a connection, and says whether it is still open.
func (p *pipes) connect(at string) net.Conn {
	near, far := net.Pipe()
	p.next <- from{near, at}
	return far
}

func newGate(t *testing.T, c accept.Config) *accept.Gate {
	t.Helper()
	if c.FirstRequest == 0 {
		c.FirstRequest = time.Minute
	}
	if c.WriteWait == 0 {
		c.WriteWait = time.Minute
	}
	g, err := accept.New(c)
	if err != nil {
		t.Fatal(err)
	}
	return g
}

// accepting accepts connections until the listener closes.
func accepting(l net.Listener) <-chan net.Conn {
	out := make(chan net.Conn, 64)
	go func() {
		defer close(out)
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			out <- c
		}
	}()
	return out
}

func closed(c net.Conn) bool {
	_ = c.SetReadDeadline(time.Now().Add(time.Millisecond))
	_, err := c.Read(make([]byte, 1))
	return errors.Is(err, io.EOF)
}

func TestGate_OneAddressHasItsLimitAndOthersHaveTheirs(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := newPipes()
		got := accepting(newGate(t, accept.Config{Connections: 64, PerAddress: 2, PerIdentity: 2}).Listen(p))
		var far []net.Conn
		for _, at := range []string{"192.0.2.1:1", "192.0.2.1:2", "192.0.2.1:3", "192.0.2.2:1"} {
			far = append(far, p.connect(at))
		}
		synctest.Wait()
		for i, want := range []bool{false, false, true, false} {
			if closed(far[i]) != want {
				t.Errorf("connection %d: closed %v, want %v", i, !want, want)
			}
		}
		first := <-got
		if err := first.Close(); err != nil {
			t.Error(err)
		}
		_ = first.Close()
		if again := p.connect("192.0.2.1:4"); closed(again) {
			t.Error("what was given back is not granted again")
		}
		if more := p.connect("192.0.2.1:5"); !closed(more) {
			t.Error("a connection that was closed twice is given back twice")
		}
		_ = p.Close()
		for c := range got {
			_ = c.Close()
		}
	})
}

func TestGate_WithoutALimitForAddressesTheTotalHolds(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := newPipes()
		got := accepting(newGate(t, accept.Config{Connections: 20, PerIdentity: 20}).Listen(p))
		var all []net.Conn
		for i := range 16 {
			all = append(all, p.connect("192.0.2.1:"+string(rune('1'+i%9))+"0"+string(rune('0'+i/9))))
			synctest.Wait()
		}
		for i, c := range all { // the oldest have given way
			if want := i < 6; closed(c) != want {
				t.Errorf("connection %d of 16 is closed: %v, want %v: half of 20 may be open", i, !want, want)
			}
		}
		_ = p.Close()
		for c := range got {
			_ = c.Close()
		}
	})
}

// A connection that begins counts for its identity, and no more for its address.
func TestConn_CountsForItsIdentity(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := newPipes()
		g := newGate(t, accept.Config{Connections: 64, PerAddress: 1, PerIdentity: 2})
		got := accepting(g.Listen(p))
		var conns []*accept.Conn
		begin := func(id string) error {
			p.connect("192.0.2.1:1")
			c := accept.From(tlsLike{<-got})
			conns = append(conns, c)
			return c.Begin(id)
		}
		for range 2 {
			if err := begin("spiffe://a.test/x"); err != nil {
				t.Fatal(err)
			}
		}
		if err := begin("spiffe://a.test/x"); err == nil {
			t.Error("a third connection of one identity is taken")
		} else if _, ok := errors.AsType[*quota.ExceededError](err); !ok {
			t.Errorf("error %v", err)
		}
		if conns[2].Begun() {
			t.Error("a refused connection has begun")
		}
		_ = conns[2].Close()
		if err := begin("spiffe://a.test/y"); err != nil {
			t.Errorf("another identity at the same address: %v", err)
		}
		if err := conns[3].Begin("spiffe://a.test/x"); err != nil {
			t.Errorf("a second beginning: %v", err)
		}
		_ = conns[0].Close()
		if err := begin("spiffe://a.test/x"); err != nil {
			t.Errorf("after one was closed: %v", err)
		}
		_ = p.Close()
		for _, c := range conns {
			_ = c.Close()
		}
		if err := (*accept.Conn)(nil).Begin("x"); err != nil || accept.From(&net.TCPConn{}) != nil {
			t.Error("a connection that does not count is refused")
		}
	})
}

// tlsLike wraps a connection as crypto/tls does.
type tlsLike struct{ net.Conn }

func (c tlsLike) NetConn() net.Conn { return c.Conn }

func TestConn_WithoutARequestItEnds(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := newPipes()
		got := accepting(newGate(t, accept.Config{Connections: 64, PerAddress: 8, PerIdentity: 8, FirstRequest: 10 * time.Second}).Listen(p))
		idle, busy := p.connect("192.0.2.1:1"), p.connect("192.0.2.1:2")
		<-got
		if err := accept.From(<-got).Begin(""); err != nil {
			t.Fatal(err)
		}
		time.Sleep(9 * time.Second)
		if closed(idle) {
			t.Error("closed before its time")
		}
		time.Sleep(2 * time.Second)
		if !closed(idle) || closed(busy) {
			t.Errorf("without a request closed %v, with one %v", closed(idle), closed(busy))
		}
		_ = p.Close()
		_ = busy.Close()
	})
}

// A reader that takes something now and then is not cut off, one that takes
// nothing is; a deadline that the connection's user sets stands.
func TestConn_WritesWaitForProgress(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := newPipes()
		got := accepting(newGate(t, accept.Config{Connections: 64, PerAddress: 8, PerIdentity: 8, WriteWait: 10 * time.Second}).Listen(p))
		far := p.connect("192.0.2.1:1")
		near := <-got
		read := make(chan error)
		go func() {
			var err error
			for range 5 {
				time.Sleep(9 * time.Second)
				_, err = io.ReadFull(far, make([]byte, 4))
			}
			read <- err
		}()
		for range 5 {
			if _, err := near.Write([]byte("some")); err != nil {
				t.Errorf("to a slow reader: %v", err)
			}
		}
		if err := <-read; err != nil {
			t.Error(err)
		}
		begun := time.Now()
		_, err := near.Write([]byte("more"))
		if late, ok := errors.AsType[net.Error](err); !ok || !late.Timeout() || time.Since(begun) != 10*time.Second {
			t.Errorf("to a reader that reads nothing: %v after %v", err, time.Since(begun))
		}
		for name, set := range map[string]func(time.Time) error{"SetDeadline": near.SetDeadline, "SetWriteDeadline": near.SetWriteDeadline} {
			begun = time.Now()
			if err := set(begun.Add(time.Second)); err != nil {
				t.Fatal(err)
			}
			if _, err := near.Write([]byte("x")); err == nil || time.Since(begun) != time.Second {
				t.Errorf("%s: %v after %v", name, err, time.Since(begun))
			}
		}
		_ = p.Close()
		_ = near.Close()
	})
}

func TestGate_NewBoundsHoldFromNowOn(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := newPipes()
		g := newGate(t, accept.Config{Connections: 64, PerAddress: 1, PerIdentity: 1})
		got := accepting(g.Listen(p))
		p.connect("192.0.2.1:1")
		if c := p.connect("192.0.2.1:2"); !closed(c) {
			t.Error("a second connection is open")
		}
		if err := g.Reconfigure(accept.Config{Connections: 64, PerAddress: 2, PerIdentity: 1, FirstRequest: time.Minute, WriteWait: time.Minute}); err != nil {
			t.Fatal(err)
		}
		if c := p.connect("192.0.2.1:3"); closed(c) {
			t.Error("the new limit is not in force")
		}
		if err := g.Reconfigure(accept.Config{}); err == nil {
			t.Error("bounds that bound nothing are taken")
		}
		_ = p.Close()
		for c := range got {
			_ = c.Close()
		}
	})
}

func TestConfig_BoundsThatBoundNothingAreRefused(t *testing.T) {
	t.Parallel()
	good := accept.Config{Connections: 1, PerIdentity: 1, FirstRequest: 1, WriteWait: 1}
	for name, change := range map[string]func(*accept.Config){
		"no connections": func(c *accept.Config) { c.Connections = 0 }, "no identity": func(c *accept.Config) { c.PerIdentity = 0 },
		"no time to begin": func(c *accept.Config) { c.FirstRequest = 0 }, "no time to write": func(c *accept.Config) { c.WriteWait = 0 },
		"a negative address": func(c *accept.Config) { c.PerAddress = -1 },
	} {
		c := good
		change(&c)
		if _, err := accept.New(c); err == nil {
			t.Errorf("%s: taken", name)
		}
	}
	if _, err := accept.New(good); err != nil {
		t.Error(err)
	}
}

// The first request of a connection begins it; of an identity with too many, it is
// refused, and the connection ends.
func TestHandler_BeginsConnections(t *testing.T) {
	t.Parallel()
	g := newGate(t, accept.Config{Connections: 64, PerAddress: 8, PerIdentity: 8, FirstRequest: 200 * time.Millisecond})
	s := httptest.NewUnstartedServer(accept.Handler(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "ok") })))
	s.Listener = g.Listen(s.Listener)
	s.Config.ConnContext = accept.Context
	s.Start()
	t.Cleanup(s.Close)
	var d net.Dialer
	c, err := d.DialContext(context.WithoutCancel(t.Context()), "tcp", s.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	for range 2 {
		if _, err := io.WriteString(c, "GET / HTTP/1.1\r\nHost: x\r\n\r\n"); err != nil {
			t.Fatal(err)
		}
		_ = c.SetReadDeadline(time.Now().Add(time.Second))
		if n, err := c.Read(make([]byte, 1<<10)); n == 0 {
			t.Fatalf("no answer: %v", err)
		}
		_ = c.SetReadDeadline(time.Now().Add(400 * time.Millisecond))
		if _, err := c.Read(make([]byte, 1)); errors.Is(err, io.EOF) {
			t.Error("a connection that had a request ended for want of one")
		}
	}
}

// TestAttack_SilentConnectionsKeepCallersOut: connections from many addresses, on
// which nothing is asked, take all places of callers who have proved no identity yet,
// and so keep out those who would. The one that is silent for longest gives way; those
// that asked something stay.
func TestAttack_SilentConnectionsKeepCallersOut(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := newPipes()
		conns := accepting(newGate(t, accept.Config{Connections: 8, PerIdentity: 8}).Listen(p)) // 4 places
		var far []net.Conn
		var near []*accept.Conn
		open := func(at string) {
			far = append(far, p.connect(at))
			near = append(near, accept.From(<-conns))
		}
		for _, at := range []string{"192.0.2.1:1", "192.0.2.2:1", "192.0.2.3:1", "192.0.2.4:1"} {
			open(at)
		}
		if err := near[0].Begin(""); err != nil {
			t.Fatal(err)
		}
		open("192.0.2.5:1")
		for i, want := range []bool{false, true, false, false, false} {
			if got := closed(far[i]); got != want {
				t.Errorf("connection %d is closed: %v, want %v", i, got, want)
			}
		}
		_ = p.Close()
		for _, c := range near {
			_ = c.Close()
		}
	})
}
