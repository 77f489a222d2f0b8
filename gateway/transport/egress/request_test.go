package egress

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/ect/identity"
)

// near is a guard that may call the world's server where it really listens.
func (w *world) near(t *testing.T, config Config) *Guard {
	t.Helper()
	config.AllowPrivate = append(config.AllowPrivate, "127.0.0.1")
	g, err := New(Deps{TLS: w.source, Config: config})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(g.CloseIdle)
	return g
}

func TestGuard_IdentityOfServer(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	g := w.near(t, Config{})
	old := w.party(t, "/agents/a").ServerConfig()
	old.MinVersion, old.MaxVersion = tls.VersionTLS12, tls.VersionTLS12
	stranger := newWorld(t, nil)
	tests := []struct {
		name     string
		server   *httptest.Server
		expected ect.Identity
		ok       bool
	}{
		{"by name", w.server, "", true},
		{"by id", w.server, agentID, true},
		{"another id", w.server, "spiffe://example.org/agents/b", false},
		{"no id", w.server, "agents/a", false},
		{"same names, another authority, by name", stranger.server, "", false},
		{"same names, another authority, by id", stranger.server, agentID, false},
		{"TLS 1.2", w.serve(t, old, nil), "", false},
		{"TLS 1.2, by id", w.serve(t, old, nil), agentID, false},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			response, err := g.DoAs(get(t, test.server.URL), test.expected)
			if (err == nil) != test.ok {
				t.Fatal(err)
			}
			if err != nil {
				return
			}
			read(t, response)
			if response.ProtoMajor != 2 || response.TLS.Version != tls.VersionTLS13 {
				t.Errorf("HTTP/%d over %x", response.ProtoMajor, response.TLS.Version)
			}
			if peer, ok := identity.PeerOf(response.TLS); !ok || peer.ID != agentID {
				t.Errorf("peer %q", peer.ID)
			}
		})
	}
	t.Run("the error says so", func(t *testing.T) {
		t.Parallel()
		if err := call(t, g, w.server.URL, "spiffe://example.org/agents/b"); !errors.Is(err, identity.ErrUnexpectedPeer) {
			t.Errorf("got %v", err)
		}
	})
}

// A connection made for one expectation is never used for another.
func TestPool_SeparatePerIdentity(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	g := w.near(t, Config{})
	if err := call(t, g, w.server.URL, agentID); err != nil {
		t.Fatal(err)
	}
	if err := call(t, g, w.server.URL, "spiffe://example.org/agents/b"); err == nil {
		t.Error("another identity was served from the pool")
	}
}

func TestPool_ReusesConnections(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	g := w.near(t, Config{})
	for range 5 {
		for _, expected := range []ect.Identity{"", agentID} {
			if err := call(t, g, w.server.URL, expected); err != nil {
				t.Fatal(err)
			}
		}
	}
	if got := w.conns.Load(); got != 2 {
		t.Errorf("10 requests for 2 expectations took %d connections", got)
	}
}

func TestPool_CountIsBounded(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	g := w.near(t, Config{MaxIdentities: 2})
	for _, expected := range []ect.Identity{"", agentID, "", "spiffe://example.org/agents/b"} {
		g.pool(poolKey{expected: expected}, nil)
	}
	for expected, want := range map[ect.Identity]bool{"": true, agentID: false, "spiffe://example.org/agents/b": true} {
		if _, got := g.pools[poolKey{expected: expected}]; got != want {
			t.Errorf("pool for %q: %v", expected, got)
		}
	}
}

func TestGuard_StripsCredentials(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	var got http.Header
	var host string
	w := newWorld(t, func(_ http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		got, host = r.Header.Clone(), r.Host
	})
	g := w.near(t, Config{})
	request := get(t, w.server.URL)
	request.Host = "internal.example"
	for _, name := range []string{
		"Authorization", "Cookie", "Proxy-Authorization", "Proxy-Connection",
		"Workload-Identity-Token", "Workload-Proof-Token", "Execution-Context", "A2a-Version",
	} {
		request.Header.Set(name, "x")
	}
	request.Header["authorization"] = []string{"not canonical"}
	before := request.Header.Clone()
	response, err := g.DoAs(request, "")
	if err != nil {
		t.Fatal(err)
	}
	read(t, response)
	mu.Lock()
	defer mu.Unlock()
	want := http.Header{"Execution-Context": {"x"}, "A2a-Version": {"x"}, "User-Agent": got["User-Agent"]}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("headers:\n%s", diff)
	}
	if want := strings.TrimPrefix(w.server.URL, "https://"); host != want {
		t.Errorf("host %q", host)
	}
	if diff := cmp.Diff(before, request.Header); diff != "" || request.Host != "internal.example" {
		t.Errorf("the caller's request was changed:\n%s", diff)
	}
}

func TestGuard_FollowsNoRedirect(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(rw http.ResponseWriter, r *http.Request) {
		http.Redirect(rw, r, "https://169.254.169.254/latest", http.StatusTemporaryRedirect)
	})
	g := w.near(t, Config{})
	response, err := g.DoAs(get(t, w.server.URL), "")
	if err != nil {
		t.Fatal(err)
	}
	read(t, response)
	if response.StatusCode != http.StatusTemporaryRedirect || w.requests.Load() != 1 {
		t.Errorf("status %d after %d requests", response.StatusCode, w.requests.Load())
	}
}

func TestGuard_LeavesBodyEncodingAlone(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(rw http.ResponseWriter, r *http.Request) {
		rw.Header().Set("Content-Encoding", "gzip")
		_, _ = fmt.Fprintf(rw, "accepts %q", r.Header.Get("Accept-Encoding"))
	})
	g := w.near(t, Config{})
	response, err := g.DoAs(get(t, w.server.URL), "")
	if err != nil {
		t.Fatal(err)
	}
	if text := read(t, response); text != `accepts ""` {
		t.Error(text)
	}
}

func TestGuard_ResponseHeaderIsBounded(t *testing.T) {
	t.Parallel()
	handler := func(size int) http.HandlerFunc {
		return func(rw http.ResponseWriter, _ *http.Request) { rw.Header().Set("X", strings.Repeat("x", size)) }
	}
	for _, proto := range []string{"h2", "http/1.1"} {
		for size, ok := range map[int]bool{16 << 10: true, maxResponseHeader * 2: false} {
			t.Run(fmt.Sprintf("%s %d", proto, size), func(t *testing.T) {
				t.Parallel()
				w := newWorld(t, nil)
				config := w.party(t, "/agents/a").ServerConfig()
				config.NextProtos = []string{proto}
				server := w.serve(t, config, handler(size))
				if err := call(t, w.near(t, Config{}), server.URL, ""); (err == nil) != ok {
					t.Errorf("got %v", err)
				}
			})
		}
	}
}

func TestGuard_Timeouts(t *testing.T) {
	t.Parallel()
	t.Run("header", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t, func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() })
		if err := call(t, w.near(t, Config{HeaderTimeout: 50 * time.Millisecond}), w.server.URL, ""); err == nil {
			t.Error("waited for ever")
		}
	})
	t.Run("handshake", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t, nil)
		silent := silence(t)
		g := w.near(t, Config{HandshakeTimeout: 50 * time.Millisecond})
		if err := call(t, g, "https://"+silent, ""); err == nil {
			t.Error("waited for ever")
		}
		if _, err := g.DialTLS(t.Context(), silent, ""); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("got %v", err)
		}
	})
	t.Run("the request's own", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t, func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() })
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		defer cancel()
		_, err := w.near(t, Config{}).DoAs(get(t, w.server.URL).WithContext(ctx), "")
		if !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("got %v", err)
		}
	})
}

// silence is a listener that accepts and says nothing.
func silence(t *testing.T) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var group sync.WaitGroup
	group.Go(func() {
		var conns []net.Conn
		for {
			conn, err := listener.Accept()
			if err != nil {
				break
			}
			conns = append(conns, conn)
		}
		for _, conn := range conns {
			_ = conn.Close()
		}
	})
	t.Cleanup(func() { _ = listener.Close(); group.Wait() })
	return listener.Addr().String()
}

func TestLoopback_PlainHTTP(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	plain := w.serve(t, nil, nil)
	g := w.near(t, Config{AllowLoopbackHTTP: true})
	if err := call(t, g, plain.URL, ""); err != nil {
		t.Error(err)
	}
	if got := reasonOf(call(t, g, plain.URL, agentID)); got != ReasonScheme {
		t.Errorf("an identity expected over plain http: %q", got)
	}
	if got := reasonOf(call(t, w.near(t, Config{}), plain.URL, "")); got != ReasonScheme {
		t.Errorf("outside development: %q", got)
	}
}

// TestLoopback_PlainHTTP2: a request of HTTP/2 without TLS is one, and goes nowhere
// else than its like.
func TestLoopback_PlainHTTP2(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	major := make(chan int, 1)
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { major <- r.ProtoMajor }))
	server.Config.Protocols = new(http.Protocols)
	server.Config.Protocols.SetUnencryptedHTTP2(true)
	server.Start()
	t.Cleanup(server.Close)
	at := strings.TrimPrefix(server.URL, "http://")
	ask := func(g *Guard, url string) error {
		request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url, http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		request.ProtoMajor = 2
		response, err := g.DoAs(request, "")
		if err == nil {
			err = response.Body.Close()
		}
		return err
	}
	g := w.near(t, Config{AllowLoopbackHTTP: true, AllowPrivate: []string{at}})
	if err := ask(g, server.URL); err != nil || <-major != 2 {
		t.Errorf("got %v", err)
	}
	if got := reasonOf(ask(g, "http://93.184.215.14/")); got != ReasonScheme {
		t.Errorf("elsewhere: %q", got)
	}
	if got := reasonOf(ask(w.near(t, Config{}), server.URL)); got != ReasonScheme {
		t.Errorf("outside development: %q", got)
	}
	g.CloseIdle()
}

// TestLoopback_DialInDevelopmentOnly: without TLS nothing is dialled but loopback, in development.
func TestLoopback_DialInDevelopmentOnly(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	at := strings.TrimPrefix(w.serve(t, nil, nil).URL, "http://")
	conn, err := w.near(t, Config{AllowLoopbackHTTP: true}).DialLoopback(t.Context(), at)
	if err != nil {
		t.Fatal(err)
	}
	if err := conn.Close(); err != nil {
		t.Error(err)
	}
	for _, row := range []struct {
		at     string
		config Config
		want   Reason
	}{
		{at, Config{}, ReasonScheme},
		{"93.184.215.14:80", Config{AllowLoopbackHTTP: true}, ReasonScheme},
		{"10.0.0.1:80", Config{AllowLoopbackHTTP: true, AllowPrivate: []string{"10.0.0.1"}}, ReasonScheme},
		{"nowhere", Config{AllowLoopbackHTTP: true}, ReasonURL},
	} {
		if _, err := w.near(t, row.config).DialLoopback(t.Context(), row.at); reasonOf(err) != row.want {
			t.Errorf("%s: %v", row.at, err)
		}
	}
}

// TestLoopback_DialDatagrams: the same of datagrams, each of which stays whole.
func TestLoopback_DialDatagrams(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	peer, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = peer.Close() })
	at := peer.LocalAddr().String()
	conn, err := w.near(t, Config{AllowLoopbackHTTP: true}).DialDatagrams(t.Context(), at)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	space := make([]byte, 16)
	for _, text := range []string{"one", "two"} {
		if _, err := conn.Write([]byte(text)); err != nil {
			t.Fatal(err)
		}
	}
	for _, text := range []string{"one", "two"} {
		if n, _, err := peer.ReadFrom(space); err != nil || string(space[:n]) != text {
			t.Errorf("got %q, %v", space[:n], err)
		}
	}
	for _, row := range []struct {
		at     string
		config Config
		want   Reason
	}{
		{at, Config{}, ReasonScheme},
		{"93.184.215.14:80", Config{AllowLoopbackHTTP: true}, ReasonScheme},
		{"10.0.0.1:80", Config{AllowLoopbackHTTP: true, AllowPrivate: []string{"10.0.0.1"}}, ReasonScheme},
		{"nowhere", Config{AllowLoopbackHTTP: true}, ReasonURL},
	} {
		if _, err := w.near(t, row.config).DialDatagrams(t.Context(), row.at); reasonOf(err) != row.want {
			t.Errorf("%s: %v", row.at, err)
		}
	}
}

func TestGuard_IgnoresProxyEnvironment(t *testing.T) {
	w := newWorld(t, nil)
	t.Setenv("HTTPS_PROXY", "http://127.0.0.1:1")
	if err := call(t, w.near(t, Config{}), w.server.URL, ""); err != nil {
		t.Error(err)
	}
}

type closing struct {
	io.Reader
	closed bool
}

func (c *closing) Close() error { c.closed = true; return nil }

func TestGuard_ClosesBodyOfDeniedRequest(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	body := &closing{Reader: strings.NewReader("x")}
	request := get(t, "http://agent.test/")
	request.Body = body
	if _, err := w.near(t, Config{}).DoAs(request, ""); reasonOf(err) != ReasonScheme || !body.closed {
		t.Errorf("got %v, closed %v", err, body.closed)
	}
}

func TestDialTLS_IdentityAndAddress(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	address := w.server.Listener.Addr().String()
	tests := []struct {
		name      string
		address   string
		expected  ect.Identity
		protocols []string
		want      Reason
		ok        bool
	}{
		{"by name", address, "", []string{"h2"}, "", true},
		{"by id", address, agentID, nil, "", true},
		{"another id", address, "spiffe://example.org/agents/b", nil, "", false},
		{"no common protocol", address, "", []string{"uacp"}, "", false},
		{"metadata", "169.254.169.254:80", "", nil, ReasonMetadata, false},
		{"no port", "127.0.0.1", "", nil, ReasonURL, false},
		{"named port", "127.0.0.1:https", "", nil, ReasonURL, false},
	}
	g := w.near(t, Config{})
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			conn, err := g.DialTLS(t.Context(), test.address, test.expected, test.protocols...)
			if (err == nil) != test.ok || reasonOf(err) != test.want {
				t.Fatalf("got %v", err)
			}
			if err == nil {
				_ = conn.Close()
			}
		})
	}
}

func TestDialTLS_ServerName(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	g, _ := w.guard(t, Deps{Resolver: names("other.test", []string{publicIP})})
	if _, err := g.DialTLS(t.Context(), "other.test:443", ""); err == nil {
		t.Error("a server without that name was accepted")
	}
	conn, err := g.DialTLS(t.Context(), "other.test:443", agentID)
	if err != nil {
		t.Fatal(err)
	}
	_ = conn.Close()
}

// A server that ignores the offer of protocols has agreed to none.
func TestDialTLS_ServerIgnoresALPN(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	config := w.party(t, "/agents/a").ServerConfig()
	config.NextProtos = nil
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var group sync.WaitGroup
	group.Go(func() {
		conn, err := listener.Accept()
		if err != nil {
			return
		}
		_ = tls.Server(conn, config).HandshakeContext(t.Context())
		_ = conn.Close()
	})
	t.Cleanup(func() { _ = listener.Close(); group.Wait() })
	if _, err := w.near(t, Config{}).DialTLS(t.Context(), listener.Addr().String(), "", "uacp"); !errors.Is(err, errTLS) {
		t.Errorf("got %v", err)
	}
}
