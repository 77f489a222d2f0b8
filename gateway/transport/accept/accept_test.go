package accept_test

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
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
	if c.StrangerIdle == 0 {
		c.StrangerIdle = time.Minute
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

// opener opens connections and keeps both ends of them.
type opener struct {
	t     *testing.T
	pipes *pipes
	conns <-chan net.Conn
	far   []net.Conn
	near  []*accept.Conn
}

func open(t *testing.T, c accept.Config) *opener {
	t.Helper()
	o := &opener{t: t, pipes: newPipes()}
	o.conns = accepting(newGate(t, c).Listen(o.pipes))
	t.Cleanup(func() {
		_ = o.pipes.Close()
		for _, c := range o.near {
			_ = c.Close()
		}
	})
	return o
}

// connect opens one more, which must not be refused.
func (o *opener) connect(at string) *accept.Conn {
	o.t.Helper()
	o.far = append(o.far, o.pipes.connect(at))
	synctest.Wait()
	select {
	case c := <-o.conns:
		o.near = append(o.near, accept.From(c))
		return o.near[len(o.near)-1]
	default:
		o.t.Fatalf("a new connection from %s is refused", at)
		return nil
	}
}

// closed compares which connections are closed, by their number.
func (o *opener) closed(t *testing.T, want ...int) {
	t.Helper()
	for i, c := range o.far {
		if got := closed(c); got != slices.Contains(want, i) {
			t.Errorf("connection %d is closed: %v", i, got)
		}
	}
}

// TestGate_OneMoreOfAnAddress: at the limit of an address its oldest connection on which
// nothing was asked gives way to the next, and other addresses do not notice.
func TestGate_OneMoreOfAnAddress(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		o := open(t, accept.Config{Connections: 64, PerAddress: 2, PerIdentity: 2})
		for _, at := range []string{"192.0.2.2:1", "192.0.2.1:1", "192.0.2.1:2", "192.0.2.1:3"} {
			o.connect(at)
		}
		o.closed(t, 1)
		_ = o.near[2].Close()
		_ = o.near[2].Close()
		o.connect("192.0.2.1:4")
		o.closed(t, 1, 2)
		o.connect("192.0.2.1:5")
		o.closed(t, 1, 2, 3)
	})
}

// TestGate_WithoutALimitForAddresses: a quarter of the connections may be open on which
// nothing was asked; then the oldest gives way.
func TestGate_WithoutALimitForAddresses(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		o := open(t, accept.Config{Connections: 20, PerIdentity: 20})
		for i := range 8 {
			o.connect("192.0.2.1:" + strconv.Itoa(1000+i))
		}
		o.closed(t, 0, 1, 2)
	})
}

// TestGate_States: connections on which nothing was asked, strangers' and those of
// identities do not compete. Of strangers' the one that rests for longest gives way, of
// the address with most; one with a request under way does not.
func TestGate_States(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		o := open(t, accept.Config{Connections: 16, PerAddress: 4, PerIdentity: 2}) // 4 fresh ones, 4 strangers'
		stranger := func(at string) *accept.Conn {
			c := o.connect(at)
			if err := c.Begin(""); err != nil {
				t.Fatal(err)
			}
			c.Enter()
			c.Leave()
			return c
		}
		stranger("192.0.2.1:1") // 0
		stranger("192.0.2.2:1") // 1
		stranger("192.0.2.1:2") // 2
		stranger("192.0.2.3:1") // 3
		o.near[0].Enter()
		o.near[0].Leave() // it was used last
		o.closed(t)
		stranger("192.0.2.4:1") // 4
		o.closed(t, 2)
		o.near[1].Enter()
		stranger("192.0.2.5:1") // 5
		o.closed(t, 2, 3)
		if c := o.connect("192.0.2.1:4"); c.Begin("spiffe://a.test/x") != nil { // 6
			t.Error("a connection with an identity is refused because of strangers")
		}
		for range 5 {
			o.connect("192.0.2.9:1") // 7 to 11, of one address: three, for which the oldest give way
		}
		o.closed(t, 2, 3, 7, 8)
	})
}

// say has the other end of a connection say something, which is read.
func (o *opener) say(t *testing.T, conn int) {
	t.Helper()
	go func() { _, _ = o.far[conn].Write([]byte("x")) }()
	if _, err := o.near[conn].Read(make([]byte, 1)); err != nil {
		t.Errorf("connection %d was closed while its caller spoke: %v", conn, err)
	}
}

// TestConn_ThatIsReadDoesNotGiveWay: a new connection whose bytes this side is busy with,
// as those of a handshake, stays open when others come, and is among the last to give way
// afterwards: an honest caller on a busy machine was closed for the next ones of its own.
func TestConn_ThatIsReadDoesNotGiveWay(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]accept.Config{
		"at the limit of an address": {Connections: 16, PerAddress: 2, PerIdentity: 2},
		"at the limit of all":        {Connections: 8, PerIdentity: 2},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				o := open(t, c)
				o.connect("192.0.2.1:1") // 0
				o.connect("192.0.2.1:2") // 1
				o.say(t, 0)
				o.connect("192.0.2.1:3") // 2
				o.closed(t, 1)
				go func() { _, _ = o.near[0].Read(make([]byte, 1)) }()
				synctest.Wait() // it is the caller's turn from now on
				o.connect("192.0.2.1:4")
				o.closed(t, 1, 2)
				o.connect("192.0.2.1:5")
				o.closed(t, 0, 1, 2)
				o.say(t, 3)
				o.say(t, 4)
				if !closed(o.pipes.connect("192.0.2.1:6")) {
					t.Error("one more is taken where two are busy")
				}
				o.closed(t, 0, 1, 2)
				time.Sleep(time.Minute)
				o.closed(t, 0, 1, 2, 3, 4)
			})
		})
	}
}

// TestConn_StrangersMayBeIdleForSeconds: their connections end soon after the last
// request, and those of identities do not.
func TestConn_StrangersMayBeIdleForSeconds(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		o := open(t, accept.Config{Connections: 16, PerAddress: 4, PerIdentity: 4, StrangerIdle: 5 * time.Second, FirstRequest: 9 * time.Second})
		for _, id := range []string{"", "", "", "spiffe://a.test/x"} {
			if err := o.connect("192.0.2.1:1").Begin(id); err != nil {
				t.Fatal(err)
			}
		}
		o.near[1].Enter()
		o.near[2].Enter()
		o.near[2].Prove("spiffe://a.test/y")
		o.near[2].Leave()
		time.Sleep(6 * time.Second)
		o.closed(t, 0)
		o.near[1].Leave()
		time.Sleep(4 * time.Second)
		o.closed(t, 0)
		o.near[1].Enter()
		time.Sleep(4 * time.Second)
		o.near[1].Leave()
		time.Sleep(4 * time.Second)
		o.closed(t, 0)
		time.Sleep(2 * time.Second)
		o.closed(t, 0, 1)
	})
}

// TestConn_ProvesAnIdentity: a caller that shows a token counts for its identity from
// then on; one that has too many connections stays a stranger.
func TestConn_ProvesAnIdentity(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := newPipes()
		g := newGate(t, accept.Config{Connections: 16, PerAddress: 4, PerIdentity: 1})
		conns := accepting(g.Listen(p))
		var near []*accept.Conn
		for range 2 {
			p.connect("192.0.2.1:1")
			c := accept.From(<-conns)
			near = append(near, c)
			if err := c.Begin(""); err != nil {
				t.Fatal(err)
			}
			c.Enter()
			c.Prove("spiffe://a.test/x")
			c.Prove("spiffe://a.test/x")
		}
		if got := g.Usage(); got.Fresh.Used != 0 || got.Strangers.Used != 1 || got.Identified.Used != 1 {
			t.Errorf("usage %+v, want one stranger and one identified", got)
		}
		_ = p.Close()
		for _, c := range near {
			_ = c.Close()
			c.Leave()
		}
		if got := g.Usage(); got.Fresh.Used+got.Strangers.Used+got.Identified.Used != 0 {
			t.Errorf("usage %+v after all were closed", got)
		}
		(*accept.Conn)(nil).Prove("x")
		(*accept.Conn)(nil).Enter()
		(*accept.Conn)(nil).Leave()
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
		for i := range 2 {
			if err := begin("spiffe://a.test/x"); err != nil {
				t.Fatal(err)
			}
			conns[i].Enter()
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
		first := p.connect("192.0.2.1:1")
		second := p.connect("192.0.2.1:2")
		if !closed(first) || closed(second) {
			t.Error("two connections are open")
		}
		if err := g.Reconfigure(accept.Config{Connections: 64, PerAddress: 2, PerIdentity: 1, FirstRequest: time.Minute, StrangerIdle: time.Minute, WriteWait: time.Minute}); err != nil {
			t.Fatal(err)
		}
		if c := p.connect("192.0.2.1:3"); closed(c) || closed(second) {
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
	good := accept.Config{Connections: 1, PerIdentity: 1, FirstRequest: 1, StrangerIdle: 1, WriteWait: 1}
	for name, change := range map[string]func(*accept.Config){
		"no connections": func(c *accept.Config) { c.Connections = 0 }, "no identity": func(c *accept.Config) { c.PerIdentity = 0 },
		"no time to begin": func(c *accept.Config) { c.FirstRequest = 0 }, "no time to write": func(c *accept.Config) { c.WriteWait = 0 },
		"no time to be idle": func(c *accept.Config) { c.StrangerIdle = 0 },
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

// TestAttack_ConnectionsKeepCallersOut: connections from many addresses, silent ones and
// such as have asked something and stay, take all places, and so keep new callers out.
// However many come, those of a caller with few are not the ones that give way.
func TestAttack_ConnectionsKeepCallersOut(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		o := open(t, accept.Config{Connections: 64, PerAddress: 8, PerIdentity: 8}) // 16 fresh ones, 16 strangers'
		silent, request := o.connect("198.51.100.1:1"), o.connect("198.51.100.1:2")
		for _, c := range []*accept.Conn{request} {
			if err := c.Begin(""); err != nil {
				t.Fatal(err)
			}
		}
		for i := range 100 {
			at := "192.0.2." + strconv.Itoa(i%5) + ":" + strconv.Itoa(i)
			o.connect(at)
			if c := o.connect(at); c.Begin("") != nil {
				t.Fatal("a stranger is refused where others rest")
			}
		}
		if closed(o.far[0]) || closed(o.far[1]) {
			t.Errorf("the caller's connections are closed: silent %v, asked %v", closed(o.far[0]), closed(o.far[1]))
		}
		if err := silent.Begin("spiffe://a.test/x"); err != nil {
			t.Error(err)
		}
	})
}

// TestAttack_BytesWithoutARequestKeepCallersOut: connections that send a byte now and then
// and never ask anything do not give way while it is read. They hold no place by it: new
// ones of their own address come in, those of other addresses stay, and they end with the
// time for a first request.
func TestAttack_BytesWithoutARequestKeepCallersOut(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		o := open(t, accept.Config{Connections: 64, PerAddress: 8, PerIdentity: 8, FirstRequest: 10 * time.Second}) // 16 fresh ones
		caller := o.connect("198.51.100.1:1")
		for i := range 100 {
			conn := o.connect("192.0.2." + strconv.Itoa(i%5) + ":" + strconv.Itoa(i))
			go func() { _, _ = io.Copy(io.Discard, conn) }()
			for _, far := range o.far[1:] {
				_, _ = far.Write([]byte("x")) // those that gave way are closed
			}
			synctest.Wait()
			if closed(o.far[len(o.far)-1]) {
				t.Fatal("a new connection is closed where others send single bytes") // it speaks itself
			}
		}
		if closed(o.far[0]) {
			t.Error("a caller at another address had to give way")
		}
		if err := caller.Begin("spiffe://a.test/x"); err != nil {
			t.Error(err)
		}
		for range 9 {
			time.Sleep(time.Second)
			for _, far := range o.far[1:] {
				_, _ = far.Write([]byte("x"))
			}
		}
		time.Sleep(2 * time.Second)
		for i, far := range o.far[1:] {
			if !closed(far) {
				t.Errorf("connection %d is open without a request", i+1)
			}
		}
	})
}
