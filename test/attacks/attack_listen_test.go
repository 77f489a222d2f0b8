package attacks

import (
	"bufio"
	"crypto/tls"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/aepb/aepb-gateway/ect/identity"
	"github.com/aepb/aepb-gateway/gateway/config"
	gatewaytest "github.com/aepb/aepb-gateway/test/harness/gateway"
)

// listenWait bounds what an attack test waits for.
const listenWait = 5 * time.Second

// listenAttacker opens connections that speak HTTP/1.1 byte by byte.
type listenAttacker struct {
	fixture *gatewaytest.Fixture
	conf    *tls.Config
	from    string // its network address
	space   int    // bytes that the operating system takes for it before it reads; 0: as usual
}

// listenAttackerFixture is one with a certificate of its own; path "": without.
func listenAttackerFixture(t *testing.T, b *gatewaytest.Fixture, path, from string) listenAttacker {
	t.Helper()
	var svid *identity.SVID
	if path != "" {
		svid = b.SVID(t, path)
	}
	conf := b.ClientTLS(t, svid)
	conf.NextProtos, conf.ServerName = []string{"http/1.1"}, "127.0.0.1"
	return listenAttacker{fixture: b, conf: conf, from: from}
}

// open makes a connection to a listener's address.
func (a listenAttacker) open(t *testing.T, at string) (*tls.Conn, error) {
	t.Helper()
	where, err := url.Parse(at)
	gatewaytest.Must(t, err)
	dialer := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(a.from)}, Timeout: listenWait}
	if a.space > 0 {
		dialer.Control = func(_, _ string, c syscall.RawConn) (err error) {
			return errors.Join(c.Control(func(fd uintptr) { err = syscall.SetsockoptInt(int(fd), syscall.SOL_SOCKET, syscall.SO_RCVBUF, a.space) }), err)
		}
	}
	raw, err := dialer.DialContext(t.Context(), "tcp", where.Host)
	if err != nil {
		return nil, err
	}
	t.Cleanup(func() { _ = raw.Close() })
	conn := tls.Client(raw, a.conf)
	_ = raw.SetDeadline(time.Now().Add(listenWait))
	if err := conn.HandshakeContext(t.Context()); err != nil {
		return nil, err
	}
	return conn, nil
}

// post writes the header of a request, and so much of a body of size bytes.
func (a listenAttacker) post(t *testing.T, conn *tls.Conn, path string, size int, header, part string) {
	t.Helper()
	_, err := io.WriteString(conn, "POST "+path+" HTTP/1.1\r\nHost: "+strings.TrimPrefix(a.fixture.At.Public, "https://")+
		"\r\nContent-Type: application/json\r\nContent-Length: "+strconv.Itoa(size)+"\r\n"+header+"\r\n"+part)
	if err != nil {
		t.Logf("the gateway ended the connection: %v", err)
	}
}

// connStatus reads the status of an answer; 0: there was none in time, or the connection ended.
func connStatus(conn net.Conn, within time.Duration) int {
	_ = conn.SetReadDeadline(time.Now().Add(within))
	response, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		return 0
	}
	_ = response.Body.Close()
	return response.StatusCode
}

// connEnded reports whether the gateway closes a connection in time.
func connEnded(conn net.Conn, within time.Duration) bool {
	_ = conn.SetReadDeadline(time.Now().Add(within))
	_, err := io.Copy(io.Discard, conn)
	var late net.Error
	return err == nil || !errors.As(err, &late) || !late.Timeout()
}

// TestAttack_UnfinishedBodiesTakeMemory: finding 5b. One caller opened 40
// connections, sent 15 of 16 MiB on each and stopped; the gateway held 25 MiB for
// each of them for a minute. Now a body takes its declared length from its
// caller's share before it is read: what is over it gets 429 at once, and a body
// that stops ends after limits.body_wait. Another caller notices nothing.
func TestAttack_UnfinishedBodiesTakeMemory(t *testing.T) {
	t.Parallel()
	b := gatewaytest.NewFixture(t, gatewaytest.Plan{Config: config.Config{Limits: config.Limits{InFlightMiB: 32, Share: 16, BodyWait: config.Duration(3 * time.Second)}}})
	mallory := listenAttackerFixture(t, b, "/mallory", "127.0.0.1")
	const bodies, size = 12, 1 << 20
	conns := make([]*tls.Conn, bodies)
	for i := range conns { // handshakes first: they take time, and a body that stops ends
		conn, err := mallory.open(t, b.At.Public)
		gatewaytest.Must(t, err)
		conns[i] = conn
	}
	for _, conn := range conns {
		mallory.post(t, conn, "/agents/members/a2a", size, "A2A-Version: 1.0\r\n", strings.Repeat(" ", 64<<10))
	}
	b.Works(t)
	refused := 0
	for _, conn := range conns {
		if connStatus(conn, listenWait) == http.StatusTooManyRequests {
			refused++
		} else if !connEnded(conn, listenWait) {
			t.Error("a body that stopped is still waited for")
		}
	}
	if refused < bodies-2 {
		t.Errorf("%d of %d bodies were refused, want all that the share of 2 MiB does not hold", refused, bodies)
	}
	t.Run("of no known length", func(t *testing.T) {
		conn, err := mallory.open(t, b.At.Public)
		gatewaytest.Must(t, err)
		go func() {
			_, _ = fmt.Fprintf(conn, "POST /agents/members/a2a HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n%x\r\n%s", 3<<20, strings.Repeat(" ", 3<<20))
		}()
		if got := connStatus(conn, listenWait); got != http.StatusTooManyRequests {
			t.Errorf("3 MiB of a share of 2 MiB: %d", got)
		}
	})
	t.Run("as large as the share", func(t *testing.T) {
		svid := b.SVID(t, "/victim")
		got := b.Send(t, gatewaytest.HTTPRequest{Via: b.Caller(t, svid), At: gatewaytest.EndpointA2A, Body: gatewaytest.HugeBody(2 << 20), Header: map[string]string{"A2A-Version": "1.0"}})
		if got.Status != http.StatusOK {
			t.Errorf("a good call of 2 MiB: %d %s", got.Status, gatewaytest.Short(got.Body))
		}
	})
}

// TestAttack_ReadersThatNeverReadHoldMemory: finding 5a. One caller asked for large
// answers on 30 connections and read none of them; 2.4 GiB were held, and no
// connection was ever cut off. Now an answer counts against its caller's share, and
// a reader that takes nothing for limits.write_wait is cut off.
func TestAttack_ReadersThatNeverReadHoldMemory(t *testing.T) {
	t.Parallel()
	b := gatewaytest.NewFixture(t, gatewaytest.Plan{Config: config.Config{Limits: config.Limits{InFlightMiB: 64, WriteWait: config.Duration(700 * time.Millisecond)}}})
	const size = 12 << 20
	b.Serve(t, "big", "mcp-v1", &gatewaytest.Fake{Conduct: func(w http.ResponseWriter, r *http.Request, good []byte) {
		gatewaytest.Well(w, r, []byte(strings.Replace(string(good), "done", strings.Repeat("x", size), 1)))
	}}, gatewaytest.Host{})
	mallory := listenAttackerFixture(t, b, "/mallory", "127.0.0.1")
	mallory.space = 4096
	const endpoint = "/agents/big/mcp"
	body := gatewaytest.CallBody("echo", "x")
	var lines strings.Builder
	for name, value := range gatewaytest.Mirror("tools/call", "echo") {
		lines.WriteString(name + ": " + value + "\r\n")
	}
	header := lines.String()
	conns := []*tls.Conn{}
	for range 2 {
		conn, err := mallory.open(t, b.At.Public)
		gatewaytest.Must(t, err)
		_ = conn.SetDeadline(time.Now().Add(gatewaytest.Patience))
		mallory.post(t, conn, endpoint, len(body), header, body)
		conns = append(conns, conn)
	}
	b.Works(t)
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for _, conn := range conns {
		cut := false
		for end := time.Now().Add(2 * listenWait); !cut && time.Now().Before(end); <-tick.C {
			_, err := conn.Write([]byte("x")) // of a next request, which tells whether there still is a connection
			cut = err != nil
		}
		if !cut {
			t.Error("a reader that never reads is not cut off")
		}
	}
	b.Works(t)
	got := b.Send(t, gatewaytest.HTTPRequest{Via: b.Caller(t, b.SVID(t, "/mallory")), At: endpoint, Body: body, Header: gatewaytest.Mirror("tools/call", "echo")})
	if got.Status != http.StatusOK || len(got.Body) < size {
		t.Errorf("a large answer that is read, of the same caller: %d, %d bytes", got.Status, len(got.Body))
	}
}

// TestAttack_FailedAuthenticationsAreFree: finding 12. Strangers sent 4,500 requests
// without identity and with broken tokens, and got 401 each time, since only callers
// with an identity were limited. Now a refused authentication takes from the share
// of its address, on every listener; a caller with a certificate at the same
// address notices nothing.
func TestAttack_FailedAuthenticationsAreFree(t *testing.T) {
	t.Parallel()
	stranger := func(b *gatewaytest.Fixture, l gatewaytest.HTTPRequest) func(*testing.T) (int, string) {
		return func(t *testing.T) (int, string) {
			t.Helper()
			got := b.Send(t, l)
			return got.Status, got.Header.Get("Retry-After")
		}
	}
	for name, ask := range map[string]func(*testing.T, *gatewaytest.Fixture) func(*testing.T) (int, string){
		"without identity": func(_ *testing.T, b *gatewaytest.Fixture) func(*testing.T) (int, string) {
			return stranger(b, gatewaytest.HTTPRequest{Via: b.Anonymous, At: "/agents/members/a2a", Body: gatewaytest.AddBody(1)})
		},
		"at the translate endpoint": func(_ *testing.T, b *gatewaytest.Fixture) func(*testing.T) (int, string) {
			return stranger(b, gatewaytest.HTTPRequest{Via: b.Anonymous, At: "/aepb/translate?from=a2a-v1&dest=members", Body: gatewaytest.AddBody(1)})
		},
		"with a broken bearer token": func(_ *testing.T, b *gatewaytest.Fixture) func(*testing.T) (int, string) {
			return stranger(b, gatewaytest.HTTPRequest{Via: b.Anonymous, At: "/agents/members/mcp", Body: "{}", Header: map[string]string{"Authorization": "Bearer abc"}})
		},
		"with a broken bearer token, at no resource": func(_ *testing.T, b *gatewaytest.Fixture) func(*testing.T) (int, string) {
			return stranger(b, gatewaytest.HTTPRequest{Via: b.Anonymous, Method: http.MethodGet, At: "/.well-known/aepb", Header: map[string]string{"Authorization": "Bearer abc"}})
		},
		"at the admin listener": func(_ *testing.T, b *gatewaytest.Fixture) func(*testing.T) (int, string) {
			return stranger(b, b.Operator(http.MethodGet, "/api/agents", "", map[string]string{"Authorization": "Bearer abc"}))
		},
		"over gRPC": func(t *testing.T, b *gatewaytest.Fixture) func(*testing.T) (int, string) {
			t.Helper()
			c := b.Remote(t, b.ClientTLS(t, nil))
			good := [][]byte{gatewaytest.Request(t, "SendMessage", gatewaytest.MessageTo("members", "x"))}
			return func(t *testing.T) (int, string) {
				t.Helper()
				if got := c.Call(t.Context(), "SendMessage", good); got.Code == "RESOURCE_EXHAUSTED" {
					return http.StatusTooManyRequests, "1"
				}
				return http.StatusUnauthorized, ""
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := gatewaytest.NewFixture(t, gatewaytest.Plan{Serve: true, Config: config.Config{Limits: config.Limits{Rate: 0.001, Burst: 5}}})
			ask := ask(t, b)
			limited := 0
			for range 20 {
				if code, retry := ask(t); code == http.StatusTooManyRequests && retry != "" {
					limited++
				} else if code != http.StatusUnauthorized {
					t.Errorf("status %d", code)
				}
			}
			if limited < 15 {
				t.Errorf("%d of 20 requests were refused as too many, want all but the burst of 5", limited)
			}
			n := b.Number()
			b.Right(t, b.Send(t, b.Sealed(t, gatewaytest.HTTPRequest{At: "/aepb/translate?from=a2a-v1&dest=members", Body: gatewaytest.AddBody(n)})), `"sum":`+strconv.FormatInt(n+1, 10))
		})
	}
}

// TestAttack_FailuresRefuseGoodTokensAtTheSameAddress: what limits failed
// authentications must not be a way to refuse others. A stranger uses up the share
// of an address; a caller there whose token was good before still gets in.
func TestAttack_FailuresRefuseGoodTokensAtTheSameAddress(t *testing.T) {
	t.Parallel()
	c := config.Config{Limits: config.Limits{Rate: 0.001, Burst: 5}}
	victim := gatewaytest.NewWITCaller(t, &c)
	b := gatewaytest.NewFixture(t, gatewaytest.Plan{Serve: true, Config: c})
	const at = "/.well-known/aepb"
	token := victim.Token()
	known := victim.Fields(token, b.At.Public+at)
	ask := func(header map[string]string) int {
		return b.Send(t, gatewaytest.HTTPRequest{Via: b.Anonymous, Method: http.MethodGet, At: at, Media: "-", Header: header}).Status
	}
	if got := ask(known); got != http.StatusOK {
		t.Fatalf("a good token: %d", got)
	}
	refused := 0
	for range 10 {
		if ask(map[string]string{"Authorization": "Bearer abc"}) == http.StatusTooManyRequests {
			refused++
		}
	}
	if refused != 5 {
		t.Errorf("%d of 10 broken tokens were refused as too many, want all but the burst of 5", refused)
	}
	if got := ask(victim.Fields(token, b.At.Public+at)); got != http.StatusOK {
		t.Errorf("a good token, after a stranger failed: %d", got)
	}
}

// TestAttack_OneAddressHoldsAllConnections: findings 6 and 12. A stranger held 600
// idle TLS connections, each for two minutes, and nothing bounded how many. Now
// there is a limit for each address and each identity, beyond which its own oldest
// connection ends, and callers at other addresses, and those that are known already,
// notice nothing.
func TestAttack_OneAddressHoldsAllConnections(t *testing.T) {
	t.Parallel()
	six := 6
	limits := config.Limits{Connections: 64, ConnectionsPerAddress: &six, Share: 8, FirstRequest: config.Duration(10 * time.Minute)}
	b := gatewaytest.NewFixture(t, gatewaytest.Plan{Config: config.Config{Limits: limits}})
	open := func(at string) (waiting []*tls.Conn) { // none ends while others are opened
		stranger := listenAttackerFixture(t, b, "", "127.0.0.2")
		if !strings.HasPrefix(at, "https://") {
			at, stranger.conf.NextProtos = "https://"+at, []string{"h2"}
		}
		for range 40 {
			if conn, err := stranger.open(t, at); err == nil {
				waiting = append(waiting, conn)
			}
		}
		return waiting
	}
	for name, at := range map[string]string{"HTTP": b.At.Public, "gRPC": b.RPC, "admin": b.At.Admin} {
		waiting := open(at)
		got := stillOpen(waiting)
		for end := time.Now().Add(listenWait); got > six && time.Now().Before(end); got = stillOpen(waiting) {
			continue // one that gave way may end a moment later
		}
		if got > six {
			t.Errorf("%s: one address holds %d connections, want at most %d", name, got, six)
		}
		b.Works(t)
		if got := b.Remote(t, b.ClientTLS(t, b.Dev.Client)).Call(t.Context(), "SendMessage", [][]byte{gatewaytest.Request(t, "SendMessage", gatewaytest.AddTo)}); got.Code != "OK" {
			t.Errorf("%s: a good call over gRPC: %s %s", name, got.Code, got.Details)
		}
		if got := b.Send(t, b.Operator(http.MethodGet, "/api/agents", "", nil)); got.Status != http.StatusOK {
			t.Errorf("%s: an operator gets %d", name, got.Status)
		}
		for _, conn := range waiting {
			_ = conn.NetConn().Close()
		}
	}
	t.Run("one identity", func(t *testing.T) {
		mallory := listenAttackerFixture(t, b, "/mallory", "127.0.0.3")
		var waiting []*tls.Conn
		for range 12 {
			conn, err := mallory.open(t, b.At.Public)
			gatewaytest.Must(t, err)
			waiting = append(waiting, conn)
			_, err = io.WriteString(conn, "GET /.well-known/aepb HTTP/1.1\r\nHost: localhost\r\n\r\n")
			gatewaytest.Must(t, err)
			if got := connStatus(conn, listenWait); got != http.StatusOK {
				t.Errorf("a call on a new connection, where others rest: %d", got)
			}
		}
		if got := stillOpen(waiting); got != 8 {
			t.Errorf("one identity holds %d connections, want 8", got)
		}
		codes := map[int]int{}
		for range 12 { // on each a request is under way
			conn, err := mallory.open(t, b.At.Public)
			gatewaytest.Must(t, err)
			mallory.post(t, conn, "/agents/members/a2a", 1<<10, "A2A-Version: 1.0\r\n", "{")
			codes[connStatus(conn, 200*time.Millisecond)]++
		}
		if codes[http.StatusTooManyRequests] != 4 {
			t.Errorf("answers %v, want 4 refusals", codes)
		}
		metrics := string(b.Send(t, gatewaytest.HTTPRequest{Method: http.MethodGet, At: b.At.Admin + "/metrics"}).Body)
		if !strings.Contains(metrics, `aepb_rate_limited_total{scope="share"}`) {
			t.Error("connections over a share are in no metric")
		}
	})
}

// stillOpen counts the connections that the gateway has not closed.
func stillOpen(conns []*tls.Conn) (open int) {
	for _, c := range conns {
		if !connEnded(c, 20*time.Millisecond) {
			open++
		}
	}
	return open
}

// TestAttack_IdleConnectionsAreHeld: findings 6 and 12, how long one lasts. A
// connection without a request ends after limits.first_request.
func TestAttack_IdleConnectionsAreHeld(t *testing.T) {
	t.Parallel()
	b := gatewaytest.NewFixture(t, gatewaytest.Plan{Config: config.Config{Limits: config.Limits{FirstRequest: config.Duration(time.Second)}}})
	for name, at := range map[string]string{"HTTP": b.At.Public, "gRPC": b.RPC, "admin": b.At.Admin} {
		stranger := listenAttackerFixture(t, b, "", "127.0.0.2")
		if !strings.HasPrefix(at, "https://") {
			at, stranger.conf.NextProtos = "https://"+at, []string{"h2"}
		}
		conn, err := stranger.open(t, at)
		gatewaytest.Must(t, err)
		if !connEnded(conn, listenWait) {
			t.Errorf("%s: a connection without a request is still open", name)
		}
	}
}

// TestAttack_HostPortGetsIntoSignedDocument: finding 17. A stranger asked with the
// gateway's name and a port of its own choice in Host, and got a signed document
// that sends callers there; 600 ports cost 600 signatures. Now a foreign port gets
// the document of the public URL, which is signed once.
func TestAttack_HostPortGetsIntoSignedDocument(t *testing.T) {
	t.Parallel()
	b := gatewaytest.NewFixture(t, gatewaytest.Plan{})
	public, err := url.Parse(b.At.Public)
	gatewaytest.Must(t, err)
	documents := map[string]bool{}
	for _, host := range []string{
		public.Host, "127.0.0.1", "127.0.0.1:0", "127.0.0.1:443", "127.0.0.1:6666", "localhost:6666", "[::1]:6666", "127.0.0.1:0" + public.Port(),
		"127.0.0.1:" + public.Port() + "0", "evil.example", "evil.example:" + public.Port(),
	} {
		got := b.Send(t, gatewaytest.HTTPRequest{Via: b.Anonymous, Method: http.MethodGet, At: "/.well-known/aepb", Media: "-", Host: host, Header: map[string]string{"Accept": "application/jwt"}})
		parts := strings.Split(string(got.Body), ".")
		if got.Status != http.StatusOK || len(parts) != 3 {
			t.Fatalf("%s: %d %s", host, got.Status, gatewaytest.Short(got.Body))
		}
		payload, err := base64.RawURLEncoding.DecodeString(parts[1])
		gatewaytest.Must(t, err)
		if !strings.Contains(string(payload), `"translation_gateways":["`+b.At.Public+`/aepb/translate"]`) {
			t.Errorf("Host %s is in the signed document", host)
		}
		documents[string(got.Body)] = true
		card := b.Send(t, gatewaytest.HTTPRequest{Method: http.MethodGet, At: "/agents/members/.well-known/agent-card.json", Media: "-", Host: host})
		if card.Status != http.StatusOK || !strings.Contains(string(card.Body), b.At.Public) || strings.Contains(string(card.Body), ":6666") {
			t.Errorf("Host %s is in the card: %d", host, card.Status)
		}
	}
	if len(documents) != 1 {
		t.Errorf("%d documents were signed, want one", len(documents))
	}
	name := b.Send(t, gatewaytest.HTTPRequest{Via: b.Anonymous, Method: http.MethodGet, At: "/.well-known/aepb", Media: "-", Host: "localhost:" + public.Port()})
	if want := "https://localhost:" + public.Port() + "/aepb/translate"; !strings.Contains(string(name.Body), want) {
		t.Errorf("our own name at our own port is not in the document: %s", name.Body)
	}
}

// TestAttack_ProofForAnotherPortIsTaken: finding 17. Who was sent a proof of
// possession for a service at another port of our host could show it to us, with
// that port in Host. Now the target of a proof is where we are, whatever Host says.
func TestAttack_ProofForAnotherPortIsTaken(t *testing.T) {
	t.Parallel()
	var c config.Config
	victim := gatewaytest.NewWITCaller(t, &c)
	b := gatewaytest.NewFixture(t, gatewaytest.Plan{Config: c})
	n := b.Number()
	good := gatewaytest.HTTPRequest{Via: b.Anonymous, At: gatewaytest.EndpointA2A, Body: gatewaytest.AddBody(n), Header: victim.Fields(victim.Token(), b.At.Public+gatewaytest.EndpointA2A)}
	b.Right(t, b.Send(t, good), `"sum":`+strconv.FormatInt(n+1, 10))
	for _, host := range []string{"127.0.0.1:6666", "localhost:6666", "127.0.0.1"} {
		got := b.Send(t, gatewaytest.HTTPRequest{Via: b.Anonymous, At: gatewaytest.EndpointA2A, Body: gatewaytest.AddBody(n), Host: host, Header: victim.Fields(victim.Token(), "https://"+host+gatewaytest.EndpointA2A)})
		if got.Status == http.StatusOK {
			t.Errorf("a proof for https://%s is taken", host)
		}
	}
	n = b.Number()
	good = gatewaytest.HTTPRequest{Via: b.Anonymous, At: gatewaytest.EndpointA2A, Body: gatewaytest.AddBody(n), Header: victim.Fields(victim.Token(), b.At.Public+gatewaytest.EndpointA2A)}
	b.Right(t, b.Send(t, good), `"sum":`+strconv.FormatInt(n+1, 10))
}
