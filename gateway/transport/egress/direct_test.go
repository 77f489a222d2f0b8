package egress

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// rawServer answers each request on a connection with the next of its answers, over plain TCP, and
// ends the connection after the last.
type rawServer struct {
	net.Listener

	answers []string
	conns   atomic.Int32
	closed  chan struct{} // gets a value when a client has closed a connection
	done    chan struct{} // gets a value when an answer is written, and the connection closed after the last
	group   sync.WaitGroup
}

func newRawServer(t *testing.T, answers ...string) *rawServer {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0") //nolint:noctx // of a test
	if err != nil {
		t.Fatal(err)
	}
	s := &rawServer{Listener: listener, answers: answers, closed: make(chan struct{}, 64), done: make(chan struct{}, 64)}
	s.group.Go(s.serve)
	t.Cleanup(func() {
		_ = listener.Close()
		s.group.Wait()
	})
	return s
}

func (s *rawServer) serve() {
	for {
		conn, err := s.Accept()
		if err != nil {
			return
		}
		s.conns.Add(1)
		s.group.Go(func() { s.talk(conn) })
	}
}

func (s *rawServer) talk(conn net.Conn) {
	defer func() { _ = conn.Close() }()
	_ = conn.SetDeadline(time.Now().Add(10 * time.Second))
	in := bufio.NewReader(conn)
	for i, answer := range s.answers {
		r, err := http.ReadRequest(in)
		if err != nil {
			s.closed <- struct{}{}
			return
		}
		_, _ = io.Copy(io.Discard, r.Body)
		if _, err := io.WriteString(conn, answer); err != nil {
			return
		}
		if i == len(s.answers)-1 {
			_ = conn.Close()
		}
		s.done <- struct{}{}
	}
}

// pool is one that goes to a test's server without TLS.
func (s *rawServer) pool(config Config) *pool {
	g := &Guard{config: config.withDefaults()}
	p := g.newPool(nil)
	dial := func(ctx context.Context, network, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, network, s.Addr().String())
	}
	p.transport.DialContext, p.direct.dial = dial, dial
	return p
}

func newPost(t *testing.T, method, body string) *http.Request {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, "http://agent.example/mcp", strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// roundTrip is the status and the body of a response; failed: there is no whole one.
func roundTrip(p interface {
	RoundTrip(r *http.Request) (*http.Response, error)
}, r *http.Request,
) (status int, body string, failed error) {
	response, err := p.RoundTrip(r)
	if err != nil {
		return 0, "", err
	}
	whole, err := io.ReadAll(response.Body)
	return response.StatusCode, string(whole), errors.Join(err, response.Body.Close())
}

const good200 = "HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\n"

func TestDirect_ConnectionIsUsedAgain(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		answers []string
		conns   int32
	}{
		"length":              {[]string{good200 + "good", good200 + "good", good200 + "good"}, 1},
		"chunks":              {[]string{"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\ngood\r\n0\r\n\r\n", good200 + "good", good200 + "good"}, 1},
		"without a body":      {[]string{"HTTP/1.1 204 No Content\r\n\r\n", good200 + "good", good200 + "good"}, 1},
		"the server ends it":  {[]string{"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 4\r\n\r\ngood"}, 3},
		"the server says it":  {[]string{"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 4\r\n\r\ngood", good200 + "good"}, 3},
		"unannounced end":     {[]string{good200 + "good"}, 3},
		"more than the reply": {[]string{good200 + "good" + good200 + "evil", good200 + "good"}, 3},
		"more after a while":  {[]string{"HTTP/1.1 204 No Content\r\n\r\n" + good200 + "evil", good200 + "good"}, 3},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newRawServer(t, c.answers...)
			p := s.pool(Config{})
			defer p.closeIdle(true)
			for i := range 3 {
				if _, body, err := roundTrip(p.direct, newPost(t, http.MethodPost, "hello")); err != nil || body != "good" && body != "" {
					t.Errorf("request %d: %q, %v", i+1, body, err)
				}
				<-s.done
			}
			if got := s.conns.Load(); got != c.conns {
				t.Errorf("there were %d connections, want %d", got, c.conns)
			}
		})
	}
}

// TestAttack_ServerAnswersTheNextRequest: over TLS, what a server sends beyond its answer is read with
// that. It is neither in the socket nor in our buffer, which the answer fills to its last byte.
func TestAttack_ServerAnswersTheNextRequest(t *testing.T) {
	t.Parallel()
	const size = bufferSize - 4003 - len("\r\nContent-Length: 12345\r\n\r\n")
	w := newWorld(t, nil)
	var conns atomic.Int32
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		conn, out, err := http.NewResponseController(w).Hijack()
		if err != nil {
			panic(err)
		}
		defer func() { _ = conn.Close() }()
		conns.Add(1)
		begin := "X: " + strings.Repeat("x", 4000) // of a line that goes on in the next record
		_, _ = io.WriteString(conn, "HTTP/1.1 200 OK\r\n"+begin)
		rest := fmt.Sprintf("\r\nContent-Length: %d\r\n\r\n", size)
		rest += strings.Repeat("x", size)
		_, _ = io.WriteString(conn, rest+good200+"evil")
		for range 2 { // requests
			if _, err := http.ReadRequest(out.Reader); err != nil {
				return
			}
		}
	}))
	server.TLS = w.party(t, "/agents/a").ServerConfig()
	server.TLS.NextProtos, server.TLS.DynamicRecordSizingDisabled = []string{"http/1.1"}, true
	server.StartTLS()
	server.TLS.Certificates = nil // httptest adds its own
	defer server.Close()
	w.server = server
	g := w.near(t, Config{})
	for i := range 3 {
		response, err := g.DoAs(get(t, server.URL), agentID)
		if err != nil {
			t.Fatal(err)
		}
		if body := read(t, response); strings.Contains(body, "evil") || len(body) != size {
			t.Errorf("request %d got %d bytes", i+1, len(body))
		}
	}
	if got := conns.Load(); got != 3 {
		t.Errorf("there were %d connections, want one for each request", got)
	}
}

// TestDirect_RefusedResponses: what is no response, or one without end.
func TestDirect_RefusedResponses(t *testing.T) {
	t.Parallel()
	for name, answer := range map[string]string{
		"header without end":     "HTTP/1.1 200 OK\r\nX: " + strings.Repeat("x", 4*maxResponseHeader),
		"many headers":           "HTTP/1.1 200 OK\r\n" + strings.Repeat("X: y\r\n", maxResponseHeader) + "\r\n",
		"other protocol":         "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: x\r\n\r\n",
		"interim without end":    strings.Repeat("HTTP/1.1 103 Early Hints\r\n\r\n", maxInformation+1) + good200 + "good",
		"two lengths":            "HTTP/1.1 200 OK\r\nContent-Length: 4\r\nContent-Length: 3\r\n\r\ngood",
		"unknown coding":         "HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\n\r\ngood",
		"no response":            "good",
		"nothing":                "",
		"half of its body":       "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\ngood",
		"half of a chunk":        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\ngood",
		"without the last chunk": "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\ngood\r\n",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newRawServer(t, answer).pool(Config{})
			defer p.closeIdle(true)
			if status, body, err := roundTrip(p.direct, newPost(t, http.MethodPost, "hello")); err == nil {
				t.Errorf("got %d %q", status, body)
			}
			if n := p.direct.count; n != 0 {
				t.Errorf("%d connections wait for a request", n)
			}
		})
	}
}

func TestDirect_InterimResponsesArePassedOver(t *testing.T) {
	t.Parallel()
	p := newRawServer(t, strings.Repeat("HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n", maxInformation)+good200+"good").pool(Config{})
	defer p.closeIdle(true)
	if status, body, err := roundTrip(p.direct, newPost(t, http.MethodPost, "")); err != nil || status != 200 || body != "good" {
		t.Errorf("got %d %q, %v", status, body, err)
	}
}

func TestDirect_HeaderTimeout(t *testing.T) {
	t.Parallel()
	p := newRawServer(t, "HTTP/1.1 100 Continue\r\n\r\n", "").pool(Config{HeaderTimeout: 50 * time.Millisecond})
	defer p.closeIdle(true)
	_, _, err := roundTrip(p.direct, newPost(t, http.MethodPost, ""))
	if timeout := net.Error(nil); !errors.As(err, &timeout) || !timeout.Timeout() {
		t.Errorf("got %v, want a timeout", err)
	}
}

// TestDirect_EndOfTheRequest: a request that ends while its answer comes leaves an error, and no connection.
func TestDirect_EndOfTheRequest(t *testing.T) {
	t.Parallel()
	gone := errors.New("the caller has gone")
	for name, end := range map[string]func(cancel context.CancelCauseFunc, body io.Closer){
		"canceled": func(cancel context.CancelCauseFunc, _ io.Closer) { cancel(gone) },
		"closed":   func(_ context.CancelCauseFunc, body io.Closer) { _ = body.Close() },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newRawServer(t, "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n4\r\ngood\r\n", "")
			p := s.pool(Config{})
			defer p.closeIdle(true)
			ctx, cancel := context.WithCancelCause(t.Context())
			defer cancel(nil)
			response, err := p.direct.RoundTrip(newPost(t, http.MethodPost, "").WithContext(ctx))
			if err != nil {
				t.Fatal(err)
			}
			began, one := time.Now(), make([]byte, 4)
			if _, err := io.ReadFull(response.Body, one); err != nil || string(one) != "good" {
				t.Fatalf("got %q, %v", one, err)
			}
			time.AfterFunc(20*time.Millisecond, func() { end(cancel, response.Body) })
			if _, err := response.Body.Read(one); err == nil || errors.Is(err, io.EOF) || name == "canceled" && !errors.Is(err, gone) {
				t.Errorf("the rest is %v", err)
			}
			if _, err := response.Body.Read(one); err == nil || errors.Is(err, io.EOF) {
				t.Errorf("after that it is %v", err)
			}
			_ = response.Body.Close()
			<-s.closed
			if took := time.Since(began); took > 5*time.Second {
				t.Errorf("that took %s", took)
			}
		})
	}
}

// TestDirect_RefusesHeaders: nothing is written as something else than it is.
func TestDirect_RefusesHeaders(t *testing.T) {
	t.Parallel()
	s := newRawServer(t, good200+"good")
	p := s.pool(Config{})
	defer p.closeIdle(true)
	for name, change := range map[string]func(r *http.Request){
		"line in a value": func(r *http.Request) { r.Header["X"] = []string{"a\r\nEvil: yes"} },
		"line in a name":  func(r *http.Request) { r.Header["X: y\r\nEvil"] = []string{"yes"} },
		"no name":         func(r *http.Request) { r.Header[""] = []string{"a"} },
		"method":          func(r *http.Request) { r.Method = "GET / HTTP/1.1\r\nEvil:" },
	} {
		r := newPost(t, http.MethodPost, "")
		change(r)
		if _, _, err := roundTrip(p.direct, r); err == nil {
			t.Errorf("%s: it was sent", name)
		}
	}
	if got := s.conns.Load(); got != 0 {
		t.Errorf("there were %d connections", got)
	}
}

// TestDirect_IdleConnectionsAreBounded in number and in time, and given up with their pool.
func TestDirect_IdleConnectionsAreBounded(t *testing.T) {
	t.Parallel()
	s := newRawServer(t, good200+"good", good200+"good")
	p := s.pool(Config{MaxIdlePerHost: 2, IdleTimeout: 100 * time.Millisecond})
	var open []io.ReadCloser
	for range 4 {
		response, err := p.direct.RoundTrip(newPost(t, http.MethodPost, ""))
		if err != nil {
			t.Fatal(err)
		}
		open = append(open, response.Body)
	}
	for _, body := range open {
		_, _ = io.Copy(io.Discard, body)
	}
	for range 4 { // two for want of space at once, two later
		<-s.closed
	}
	p.direct.mu.Lock()
	if p.direct.count != 0 || len(p.direct.idle) != 0 || p.direct.sweeper != nil {
		t.Errorf("%d wait, %v", p.direct.count, p.direct.idle)
	}
	p.direct.mu.Unlock()
	response, err := p.direct.RoundTrip(newPost(t, http.MethodPost, ""))
	if err != nil {
		t.Fatal(err)
	}
	p.closeIdle(true)
	if body, err := io.ReadAll(response.Body); err != nil || string(body) != "good" {
		t.Errorf("a request in flight ends as %q, %v", body, err)
	}
	if p.direct.count != 0 {
		t.Error("its connection waits for another request")
	}
	<-s.closed
}

// TestAttack_ServerAnswersWithoutReading: a server that answers at once and reads nothing more holds no
// request that is too large for what a socket takes: net/http reads meanwhile.
func TestAttack_ServerAnswersWithoutReading(t *testing.T) {
	t.Parallel()
	listener, err := net.Listen("tcp", "127.0.0.1:0") //nolint:noctx // of a test
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = listener.Close() }()
	go func() { // ends with its listener
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			defer func() { _ = conn.Close() }()
			_, _ = io.ReadFull(conn, make([]byte, 16))
			_, _ = io.WriteString(conn, "HTTP/1.1 413 Too Large\r\nContent-Length: 4\r\n\r\nless")
		}
	}()
	p := (&rawServer{Listener: listener}).pool(Config{HeaderTimeout: 5 * time.Second})
	defer p.closeIdle(true)
	for _, size := range []int{largestDirect, largestDirect + 1, 8 << 20} {
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		response, err := p.send(newPost(t, http.MethodPost, strings.Repeat("x", size)).WithContext(ctx))
		if err != nil || response.StatusCode != http.StatusRequestEntityTooLarge {
			t.Errorf("%d bytes: %v, %v", size, response, err)
		}
		if err == nil {
			_ = response.Body.Close()
		}
	}
}

// TestAttack_ManyServersTakeIdleConnections: a caller who names many servers does not keep the connections
// of others from waiting for their next request.
func TestAttack_ManyServersTakeIdleConnections(t *testing.T) {
	t.Parallel()
	s := newRawServer(t, good200+"good", good200+"good", good200+"good")
	p := s.pool(Config{MaxIdle: 2})
	defer p.closeIdle(true)
	for _, host := range []string{"a", "b", "c", "used", "d", "used"} {
		r := newPost(t, http.MethodPost, "")
		r.URL.Host = host + ".example"
		if _, body, err := roundTrip(p.direct, r); err != nil || body != "good" {
			t.Fatalf("%s: %q, %v", host, body, err)
		}
	}
	if got := s.conns.Load(); got != 5 || p.direct.count != 2 {
		t.Errorf("there were %d connections, and %d wait; want 5 and 2", got, p.direct.count)
	}
	for i := range 2 * maxKnown {
		p.direct.secure = func(context.Context, net.Conn, string) (*tls.Conn, error) { return nil, io.EOF }
		p.direct.learn(fmt.Sprint(i), &http.Response{ProtoMajor: 1})
	}
	if n := len(p.direct.known); n != maxKnown || !p.direct.knows(fmt.Sprint(2*maxKnown-1)) {
		t.Errorf("%d servers are known", n)
	}
}

// TestDirect_RepeatsWhatMayBeRepeated: a GET on a connection that ends when it comes is sent again, as
// net/http does; a POST is not.
func TestDirect_RepeatsWhatMayBeRepeated(t *testing.T) {
	t.Parallel()
	for method, want := range map[string]int32{http.MethodGet: 2, http.MethodPost: 1} {
		s := newRawServer(t, good200+"good", "") // the second request is read, and not answered
		p := s.pool(Config{})
		var err error
		for range 2 {
			r := newPost(t, method, "")
			r.Body, r.ContentLength = nil, 0
			_, _, err = roundTrip(p.direct, r)
		}
		if (err == nil) != (method == http.MethodGet) || s.conns.Load() != want {
			t.Errorf("%s: %v, with %d connections", method, err, s.conns.Load())
		}
		p.closeIdle(true)
	}
}

func TestSuits_WhatIsSentDirectly(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		change func(r *http.Request)
		want   bool
	}{
		"small":            {func(*http.Request) {}, true},
		"without a body":   {func(r *http.Request) { r.Body, r.ContentLength = nil, 0 }, true},
		"large":            {func(r *http.Request) { r.ContentLength = largestDirect + 1 }, false},
		"large header":     {func(r *http.Request) { r.Header.Set("X", strings.Repeat("x", largestDirect)) }, false},
		"unknown length":   {func(r *http.Request) { r.ContentLength = -1 }, false},
		"unsaid length":    {func(r *http.Request) { r.ContentLength = 0 }, false},
		"expects":          {func(r *http.Request) { r.Header.Set("Expect", "100-continue") }, false},
		"switches":         {func(r *http.Request) { r.Header.Set("Upgrade", "websocket") }, false},
		"about connection": {func(r *http.Request) { r.Header.Set("Connection", "close") }, false},
		"closes":           {func(r *http.Request) { r.Close = true }, false},
		"trailer":          {func(r *http.Request) { r.Trailer = http.Header{"X": nil} }, false},
		"coded":            {func(r *http.Request) { r.TransferEncoding = []string{"chunked"} }, false},
		"HTTP/2":           {func(r *http.Request) { r.ProtoMajor = 2 }, false},
	} {
		r := newPost(t, http.MethodPost, "hello")
		c.change(r)
		if got := suits(r); got != c.want {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
}

// FuzzDirect_SameAsNetHTTP: a response means the same as to net/http, or is refused.
func FuzzDirect_SameAsNetHTTP(f *testing.F) {
	for _, answer := range []string{
		good200 + "good", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\ngood\r\n0\r\nX: y\r\n\r\n",
		"HTTP/1.0 200 OK\r\n\r\nuntil the end", "HTTP/1.1 204 No Content\r\nContent-Length: 4\r\n\r\ngood",
		"HTTP/1.1 304 Not Modified\r\nContent-Length: 4\r\n\r\n", "HTTP/1.1 200 OK\r\nContent-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
		"HTTP/1.1 0 \r\n\r\n0", "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 500 No\r\nContent-Length: +1\r\n\r\nx", "HTTP/1.1 200 OK\nContent-Length: 1\n\nx", "HTTP/1.1 200 OK\r\n X: y\r\n\r\n",
	} {
		f.Add(http.MethodPost, []byte(answer))
		f.Add(http.MethodHead, []byte(answer))
	}
	f.Fuzz(func(t *testing.T, method string, answer []byte) {
		if method != http.MethodPost && method != http.MethodHead && method != http.MethodGet {
			return
		}
		at, err := url.Parse("http://agent.example/")
		if err != nil {
			t.Fatal(err)
		}
		outcome := func(send func(p *pool) func(*http.Request) (*http.Response, error)) (int, string, error) {
			p := (&Guard{config: Config{HeaderTimeout: time.Second}.withDefaults()}).newPool(nil)
			defer p.closeIdle(true)
			var served sync.WaitGroup
			defer served.Wait()
			dial := func(context.Context, string, string) (net.Conn, error) {
				ours, theirs := net.Pipe()
				served.Go(func() {
					defer func() { _ = theirs.Close() }()
					if r, err := http.ReadRequest(bufio.NewReader(theirs)); err == nil {
						_, _ = io.Copy(io.Discard, r.Body)
						_, _ = theirs.Write(answer)
					}
				})
				return ours, nil
			}
			p.transport.DialContext, p.direct.dial = dial, dial
			r := &http.Request{Method: method, URL: at, Header: http.Header{}, Body: io.NopCloser(bytes.NewReader([]byte("hello"))), ContentLength: 5}
			return roundTrip(tripper(send(p)), r.WithContext(t.Context()))
		}
		status, body, err := outcome(func(p *pool) func(*http.Request) (*http.Response, error) { return p.transport.RoundTrip })
		gotStatus, gotBody, gotErr := outcome(func(p *pool) func(*http.Request) (*http.Response, error) { return p.direct.RoundTrip })
		switch {
		case gotErr != nil && (err != nil || status == http.StatusSwitchingProtocols || bytes.Count(answer, []byte("HTTP/1")) > maxInformation):
		case gotErr != nil || err != nil || gotStatus != status || gotBody != body:
			t.Errorf("got %d %q, %v; net/http has %d %q, %v", gotStatus, gotBody, gotErr, status, body, err)
		}
	})
}
