package faults

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// proxy stands before an agent. What introduces the agent passes; calls meet the
// fault.
type proxy struct {
	*httptest.Server
	agent string       // its base URL
	next  *http.Client // to the agent
	fault fault
	calls atomic.Int64

	over chan struct{} // closed when the test ends
}

// fault spoils one call.
type fault func(x *spoiled)

// spoiled is a call that meets a fault.
type spoiled struct {
	p    *proxy
	w    http.ResponseWriter
	r    *http.Request
	body []byte
}

// newProxy starts a proxy before the agent at a base URL.
func newProxy(t *testing.T, b *fixture, agent string, f fault) *proxy {
	t.Helper()
	p := &proxy{agent: agent, next: b.Client(), fault: f, over: make(chan struct{})}
	conf, err := b.PeerTLS("proxy")
	if err != nil {
		t.Fatal(err)
	}
	p.Server = httptest.NewUnstartedServer(p)
	p.TLS = conf
	p.StartTLS()
	t.Cleanup(func() {
		close(p.over)
		p.CloseClientConnections()
		p.Close()
		p.next.CloseIdleConnections()
	})
	return p
}

// ServeHTTP passes on what is no call.
func (p *proxy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return
	}
	var m struct{ Method string }
	_ = json.Unmarshal(body, &m)
	x := &spoiled{p, w, r, body}
	if slices.Contains([]string{"tools/call", "SendMessage", "SendStreamingMessage"}, m.Method) {
		p.calls.Add(1)
		p.fault(x)
		return
	}
	x.pass(x.ask(r.Context()))
}

// reply is what the agent answered.
type reply struct {
	status int
	header http.Header
	body   []byte
}

// ask asks the agent.
func (x *spoiled) ask(ctx context.Context) reply {
	req, err := http.NewRequestWithContext(ctx, x.r.Method, x.p.agent+x.r.URL.RequestURI(), bytes.NewReader(x.body))
	if err != nil {
		return reply{status: http.StatusInternalServerError}
	}
	req.Header = x.r.Header.Clone()
	resp, err := x.p.next.Do(req)
	if err != nil {
		return reply{status: http.StatusBadGateway}
	}
	defer func() { _ = resp.Body.Close() }()
	body, _ := io.ReadAll(resp.Body)
	// The agent's card names where it listens: that is here.
	return reply{resp.StatusCode, resp.Header, bytes.ReplaceAll(body, []byte(x.p.agent), []byte(x.p.URL))}
}

// pass gives a reply.
func (x *spoiled) pass(r reply) {
	for name, values := range r.header {
		if name != "Content-Length" {
			x.w.Header()[name] = values
		}
	}
	x.w.WriteHeader(r.status)
	_, _ = x.w.Write(r.body)
}

// say answers with something that no agent said.
func (x *spoiled) say(status int, media, text string) {
	x.w.Header().Set("Content-Type", media)
	x.w.WriteHeader(status)
	_, _ = io.WriteString(x.w, text)
}

// wait returns after a while, or when the test ends.
func (x *spoiled) wait(d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-x.p.over:
	}
}

// raw takes the connection out of HTTP's hands.
func (x *spoiled) raw() net.Conn {
	conn, _, err := http.NewResponseController(x.w).Hijack()
	if err != nil {
		return nil
	}
	return conn
}

// reset ends a connection as a crash of the machine behind it would.
func reset(conn net.Conn) {
	if secure, ok := conn.(interface{ NetConn() net.Conn }); ok {
		conn = secure.NetConn()
	}
	if tcp, ok := conn.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0)
	}
	_ = conn.Close()
}

// The faults. Each may be met by several calls at once.

// slow answers well, and too late.
func slow(x *spoiled) {
	good := x.ask(x.r.Context())
	x.wait(agentTimeout + time.Second)
	x.pass(good)
}

// halfOpen takes the call and is never heard of again; its connection stays.
func halfOpen(x *spoiled) {
	conn := x.raw()
	<-x.p.over
	_ = conn.Close()
}

// resets breaks the connection in the middle of a good answer.
func resets(x *spoiled) {
	good := x.ask(x.r.Context())
	conn := x.raw()
	_, _ = io.WriteString(conn, "HTTP/1.1 200 OK\r\nContent-Type: "+good.header.Get("Content-Type")+"\r\nContent-Length: 100000\r\n\r\n")
	_, _ = conn.Write(good.body[:len(good.body)/2])
	reset(conn)
}

// hangsUp breaks it before anything was said.
func hangsUp(x *spoiled) { reset(x.raw()) }

func empty(x *spoiled) { x.w.Header().Set("Content-Type", "application/json") }

func html(x *spoiled) {
	x.say(http.StatusOK, "text/html", "<html><body>All systems operational.</body></html>")
}

func redirect(x *spoiled) {
	x.w.Header().Set("Location", x.p.agent+x.r.URL.Path)
	x.say(http.StatusTemporaryRedirect, "text/plain", "over there")
}

// otherID answers somebody else's call.
func otherID(x *spoiled) {
	good := x.ask(x.r.Context())
	good.body = idMember.ReplaceAll(good.body, []byte(`"id":"somebody else's"`))
	x.pass(good)
}

var idMember = regexp.MustCompile(`"id":("[^"]*"|[0-9]+)`)

// truncated is half of a good answer that ends as if it were whole.
func truncated(x *spoiled) {
	good := x.ask(x.r.Context())
	good.body = bytes.TrimRight(good.body, "\n")
	good.body = good.body[:len(good.body)-4]
	x.pass(good)
}

// noAnswer is an event stream that ends properly before its answer.
func noAnswer(x *spoiled) {
	x.say(http.StatusOK, "text/event-stream",
		`data: {"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":"at work"}}`+"\n\n")
}

// bomb is small until it is unpacked.
func bomb(x *spoiled) {
	x.w.Header().Set("Content-Encoding", "gzip")
	x.say(http.StatusOK, "application/json", packed())
}

// packed is 256 MiB of blanks.
var packed = sync.OnceValue(func() string {
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	_, _ = io.Copy(z, io.LimitReader(blanks{}, 256<<20))
	_ = z.Close()
	return b.String()
})

type blanks struct{}

func (blanks) Read(b []byte) (int, error) {
	for i := range b {
		b[i] = ' '
	}
	return len(b), nil
}

// noSession never knows the session that it has just begun.
func noSession(x *spoiled) { x.say(http.StatusNotFound, "text/plain", "session not found") }

// staleSession has forgotten a session once.
func staleSession() fault {
	var once sync.Once
	return func(x *spoiled) {
		forgot := false
		once.Do(func() { forgot = true })
		if forgot {
			noSession(x)
			return
		}
		x.pass(x.ask(x.r.Context()))
	}
}

// wrongSession asks the agent in a session that it never began.
func wrongSession(x *spoiled) {
	x.r.Header.Set("Mcp-Session-Id", strings.Repeat("0", 32))
	x.pass(x.ask(x.r.Context()))
}
