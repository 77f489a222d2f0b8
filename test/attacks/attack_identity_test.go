package attacks

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/base64"
	"errors"
	"io"
	"maps"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/coder/websocket"

	"github.com/aepb/aepb-gateway/ect/ecttest"
	"github.com/aepb/aepb-gateway/ect/identity"
	"github.com/aepb/aepb-gateway/ect/identity/credential"
	"github.com/aepb/aepb-gateway/gateway/config"
	tuacp "github.com/aepb/aepb-gateway/gateway/transport/uacp"
	gatewaytest "github.com/aepb/aepb-gateway/test/harness/gateway"
	"github.com/aepb/aepb-gateway/translators/uacp"
)

// promptly is how long after its end a connection may still be open: far less
// than the 30 s that a test waits for anything, and than the idle limits.
const promptly = 8 * time.Second

// shortLived is an SVID that ends within two to three seconds, and its end.
func shortLived(t *testing.T, b *gatewaytest.Fixture, path string) (*identity.SVID, time.Time) {
	t.Helper()
	s := gatewaytest.Issue(t, b.Dev.Authority, path, identity.SVIDRequest{DNSNames: []string{}, IPs: []net.IP{}, TTL: 3 * time.Second})
	return s, s.Expires()
}

// passed waits until an instant and a little longer.
func passed(t *testing.T, at time.Time) {
	t.Helper()
	timer := time.NewTimer(time.Until(at) + 50*time.Millisecond)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-t.Context().Done():
	}
}

// oneConnection is a client that makes one connection and cannot make another.
func oneConnection(t *testing.T, b *gatewaytest.Fixture, s *identity.SVID, protocol string) *http.Client {
	t.Helper()
	conf := b.ClientTLS(t, s)
	conf.NextProtos, conf.ServerName = []string{protocol}, "127.0.0.1"
	var dialled atomic.Bool
	via := &http.Transport{
		ForceAttemptHTTP2: protocol == "h2", MaxConnsPerHost: 1, TLSClientConfig: conf,
		DialTLSContext: func(ctx context.Context, network, address string) (net.Conn, error) {
			if dialled.Swap(true) {
				return nil, errors.New("the first connection is closed")
			}
			conn, err := (&tls.Dialer{Config: conf}).DialContext(ctx, network, address)
			return conn, err
		},
	}
	t.Cleanup(via.CloseIdleConnections)
	return &http.Client{Transport: via, Timeout: gatewaytest.Patience}
}

// toMembers is a good call of an agent that is open to the trust domain alone.
func toMembers(b *gatewaytest.Fixture, via *http.Client) gatewaytest.HTTPRequest {
	return gatewaytest.HTTPRequest{Via: via, At: "/agents/members/a2a", Body: gatewaytest.AddBody(b.Number()), Header: map[string]string{"A2A-Version": "1.0"}}
}

// endlessAgent lists an agent "slow" that streams and does not end by itself.
func endlessAgent(t *testing.T, b *gatewaytest.Fixture) {
	t.Helper()
	b.ScribeOverSocket(t, "slow").Left = make(chan struct{}, 64) // not read by these tests
	agent, ok := b.Directory().Find("slow")
	if !ok {
		t.Fatal("the agent is not listed")
	}
	agent.Timeout = 4 * promptly // or the agent's slowness would end the stream
	gatewaytest.Must(t, b.Directory().Put(agent))
}

// forever begins work that streams and does not end by itself.
func forever(via *http.Client) gatewaytest.HTTPRequest {
	return gatewaytest.HTTPRequest{
		Via: via, At: "/agents/slow/a2a", Header: map[string]string{"A2A-Version": "1.0"},
		Body: strings.Replace(gatewaytest.TextBody("forever"), "SendMessage", "SendStreamingMessage", 1),
	}
}

// opened is a stream whose first event has come.
func opened(t *testing.T, b *gatewaytest.Fixture, l gatewaytest.HTTPRequest) io.Reader {
	t.Helper()
	response, err := l.Via.Do(b.Request(t, l))
	gatewaytest.Must(t, err)
	t.Cleanup(func() { _ = response.Body.Close() })
	if _, err := io.ReadAtLeast(response.Body, make([]byte, 1<<10), 16); err != nil || response.StatusCode != http.StatusOK {
		t.Fatalf("no stream: %d, %v", response.StatusCode, err)
	}
	return response.Body
}

// endsBy fails if reading goes on beyond an instant.
func endsBy(t *testing.T, at time.Time, what string, read func() error) {
	t.Helper()
	done := make(chan struct{})
	go func() {
		defer close(done)
		for read() == nil { // until it ends
		}
	}()
	late := time.NewTimer(time.Until(at) + promptly)
	defer late.Stop()
	select {
	case <-done:
	case <-late.C:
		t.Errorf("%s outlives the certificate", what)
	}
}

func reading(from io.Reader) func() error {
	part := make([]byte, 4<<10)
	return func() error { _, err := from.Read(part); return err }
}

// TestAttack_StreamOutlivesItsToken: finding 11, for callers without a certificate. A
// caller whose token had expired (because it was shut down, or its token was stolen)
// went on reading the streams that it had opened with it, for as long as it liked: the
// token was looked at when the request came. Now a stream ends with its caller's token,
// as it ends with a certificate. A caller whose token is valid notices nothing.
func TestAttack_StreamOutlivesItsToken(t *testing.T) {
	t.Parallel()
	c := config.Config{}
	caller := gatewaytest.NewWITCaller(t, &c)
	b := gatewaytest.NewFixture(t, gatewaytest.Plan{Serve: true, Config: c})
	endlessAgent(t, b)
	for _, name := range []string{"slow", "members"} {
		agent, ok := b.Directory().Find(name)
		if !ok {
			t.Fatalf("there is no agent %s", name)
		}
		agent.Rules.Open = true
		gatewaytest.Must(t, b.Directory().Put(agent))
	}
	standing := map[string]string{"Accept": "text/event-stream", "Mcp-Protocol-Version": "2025-11-25"}
	for name, l := range map[string]gatewaytest.HTTPRequest{
		"A2A":      forever(nil),
		"MCP":      {At: "/agents/slow/mcp", Header: gatewaytest.Mirror("tools/call", "message"), Body: strings.Replace(gatewaytest.CallBody("message", "forever"), `"_meta":{`, `"_meta":{"progressToken":7,`, 1)},
		"standing": {Method: http.MethodGet, At: "/agents/members/mcp", Media: "-", Header: standing},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			end := time.Now().Truncate(time.Second).Add(4 * time.Second)
			token := caller.TokenUntil(end.Add(-credential.DefaultSkew)) // accepted until end
			show := func(l gatewaytest.HTTPRequest) gatewaytest.HTTPRequest {
				l.Via, l.Header = b.Anonymous, maps.Clone(l.Header)
				maps.Copy(l.Header, caller.Fields(token, b.At.Public+l.At))
				return l
			}
			if name == "standing" {
				begin := gatewaytest.HTTPRequest{At: l.At, Header: map[string]string{"Accept": "application/json, text/event-stream"}, Body: gatewaytest.InitializeBody}
				l.Header = maps.Clone(l.Header)
				l.Header["Mcp-Session-Id"] = b.Send(t, show(begin)).Header.Get("Mcp-Session-Id")
				l.Header["Mcp-Protocol-Version"] = "2025-06-18"
			}
			l = show(l)
			response, err := l.Via.Do(b.Request(t, l))
			gatewaytest.Must(t, err)
			t.Cleanup(func() { _ = response.Body.Close() })
			if response.StatusCode != http.StatusOK || !time.Now().Before(end) {
				t.Fatalf("no stream: %d", response.StatusCode)
			}
			endsBy(t, end, "the stream", reading(response.Body))
			if time.Now().Before(end) {
				t.Error("the stream ends before the token: it proves nothing")
			}
		})
	}
}

// Finding 11, F18. A workload whose SVID was not renewed (because it was shut
// down, or its key was stolen: short lives are SPIFFE's revocation) went on using
// the connection that it had, for as long as it liked: the certificate was looked
// at in the handshake only. Calls on the old connection were answered and streams
// went on. Now a connection ends with the SVID that it was accepted with: at that
// moment an idle one is closed and a stream breaks off, a request that was taken
// before is answered, and one that comes after is not.
func TestAttack_ConnectionOutlivesItsCertificate(t *testing.T) {
	t.Parallel()
	b := gatewaytest.NewFixture(t, gatewaytest.Plan{Serve: true})
	endlessAgent(t, b)
	for _, protocol := range []string{"http/1.1", "h2"} {
		t.Run(protocol, func(t *testing.T) {
			t.Parallel()
			s, end := shortLived(t, b, "/late")
			via := oneConnection(t, b, s, protocol)
			b.Right(t, b.Send(t, toMembers(b, via)), `"sum":`)
			passed(t, end)
			if got, err := b.Try(t, toMembers(b, via)); err == nil && got.Status == http.StatusOK {
				t.Errorf("a call after the end of the certificate is answered: %s", got.Body)
			}
		})
		t.Run(protocol+", a stream", func(t *testing.T) {
			t.Parallel()
			s, end := shortLived(t, b, "/late")
			stream := opened(t, b, forever(oneConnection(t, b, s, protocol)))
			endsBy(t, end, "the stream", reading(stream))
		})
	}
	for name, l := range map[string]gatewaytest.HTTPRequest{
		"MCP":       {At: "/agents/slow/mcp", Header: gatewaytest.Mirror("tools/call", "message"), Body: strings.Replace(gatewaytest.CallBody("message", "forever"), `"_meta":{`, `"_meta":{"progressToken":7,`, 1)},
		"translate": {At: "/aepb/translate?from=a2a-v1&dest=slow", Body: forever(nil).Body},
		"standing":  {Method: http.MethodGet, At: "/agents/members/mcp", Media: "-", Header: map[string]string{"Accept": "text/event-stream", "Mcp-Protocol-Version": "2025-11-25"}},
	} {
		t.Run("a stream of "+name, func(t *testing.T) {
			t.Parallel()
			s, end := shortLived(t, b, "/late")
			l.Via = oneConnection(t, b, s, "h2")
			if name == "standing" {
				begin := l
				begin.Method, begin.Media, begin.Header = http.MethodPost, "", map[string]string{"Accept": "application/json, text/event-stream"}
				begin.Body = `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"x","version":"1"}}}`
				l.Header["Mcp-Session-Id"] = b.Send(t, begin).Header.Get("Mcp-Session-Id")
			}
			if l.Body != "" && name == "translate" {
				l.Tokens = []string{ecttest.Mint(t, b.Party(t, s), b.Recipe(l.Body))}
			}
			response, err := l.Via.Do(b.Request(t, l))
			gatewaytest.Must(t, err)
			t.Cleanup(func() { _ = response.Body.Close() })
			if response.StatusCode != http.StatusOK || !time.Now().Before(end) {
				t.Fatalf("no stream: %d", response.StatusCode)
			}
			endsBy(t, end, "the stream", reading(response.Body))
			if time.Now().Before(end) {
				t.Error("the stream ends before the certificate: it proves nothing")
			}
		})
	}
	t.Run("gRPC", func(t *testing.T) {
		t.Parallel()
		s, end := shortLived(t, b, "/late")
		c := b.Remote(t, b.ClientTLS(t, s))
		call := func() string {
			sent := gatewaytest.Request(t, "SendMessage", strings.Replace(gatewaytest.AddTo, "calculator", "members", 1))
			return c.Call(t.Context(), "SendMessage", [][]byte{sent}).Code
		}
		if got := call(); got != "OK" {
			t.Fatalf("before the end: %s", got)
		}
		passed(t, end)
		if got := call(); got == "OK" {
			t.Error("a call after the end of the certificate is answered")
		}
	})
	t.Run("gRPC, a stream", func(t *testing.T) {
		t.Parallel()
		s, end := shortLived(t, b, "/late")
		c := b.Remote(t, b.ClientTLS(t, s))
		var code string
		endsBy(t, end, "the stream", func() error {
			sent := gatewaytest.Request(t, "SendStreamingMessage", strings.Replace(gatewaytest.MessageTo("slow", "forever"), "hello", "forever", 1))
			got := c.Call(t.Context(), "SendStreamingMessage", [][]byte{sent})
			code = got.Code + " " + got.Details
			return io.EOF
		})
		if !strings.HasPrefix(code, "UNAUTHENTICATED") {
			t.Errorf("the stream ends with %s", code)
		}
	})
	t.Run("µACP", func(t *testing.T) {
		t.Parallel()
		s, end := shortLived(t, b, "/late")
		conn := b.DialUACP(t, "members", s)
		gatewaytest.Must(t, gatewaytest.WriteFrameTo(conn, gatewaytest.FrameOf(t, uacp.FormBare, gatewaytest.Addition(b.Number()))))
		reply, err := gatewaytest.ReadFrameOf(conn)
		gatewaytest.Must(t, err)
		if f, err := uacp.ParseFrame(reply); err != nil || f.Code >= 0x40 {
			t.Fatalf("before the end: %02x", f.Code)
		}
		passed(t, end)
		_ = gatewaytest.WriteFrameTo(conn, gatewaytest.FrameOf(t, uacp.FormBare, gatewaytest.Addition(b.Number()))) // if the connection is closed, reading fails too
		if reply, err := gatewaytest.ReadFrameOf(conn); err == nil {
			t.Errorf("a call after the end of the certificate is answered: %q", gatewaytest.Short(reply))
		}
	})
	t.Run("WebSocket", func(t *testing.T) {
		t.Parallel()
		s, end := shortLived(t, b, "/late")
		conn, response, err := websocket.Dial(t.Context(), "wss"+strings.TrimPrefix(b.At.Public, "https")+"/agents/members/ainp",
			&websocket.DialOptions{HTTPClient: oneConnection(t, b, s, "http/1.1")})
		if err != nil {
			t.Fatalf("no WebSocket: %v %v", err, response)
		}
		t.Cleanup(func() { _ = conn.CloseNow() })
		gatewaytest.Tell(t, conn, gatewaytest.Did("late"), gatewaytest.Addition(b.Number()))
		if got := gatewaytest.Hear(t, conn); got.Payload.Status != "success" {
			t.Fatalf("before the end: %s", got.Raw)
		}
		endsBy(t, end, "the WebSocket", func() error { _, _, err = conn.Read(t.Context()); return err })
		if websocket.CloseStatus(err) != websocket.StatusPolicyViolation {
			t.Errorf("it ends with %v", err)
		}
	})
	t.Run("resumed", func(t *testing.T) {
		t.Parallel()
		s, end := shortLived(t, b, "/late")
		conf := b.ClientTLS(t, s)
		conf.ClientSessionCache, conf.NextProtos = tls.NewLRUClientSessionCache(4), []string{"http/1.1"}
		via := b.Dialing(t, conf)
		b.Right(t, b.Send(t, toMembers(b, via)), `"sum":`)
		via.CloseIdleConnections()
		passed(t, end)
		if got, err := b.Try(t, toMembers(b, via)); err == nil && got.Status == http.StatusOK {
			t.Error("a resumed TLS session is as good as a valid certificate")
		}
	})
}

// The other side of it: what was asked in time is answered, on a connection that
// then is closed, and a further call on it is refused with 401 and not with
// silence. A client whose SVID was renewed is told to connect again (GOAWAY) before
// anything is refused.
func TestSVID_RequestsBeforeExpiryAreAnswered(t *testing.T) {
	t.Parallel()
	b := gatewaytest.NewFixture(t, gatewaytest.Plan{Serve: true})
	entered, release := make(chan struct{}, 1), make(chan struct{})
	slow := &gatewaytest.Fake{Conduct: gatewaytest.Delayed(entered, release)}
	b.Serve(t, "slow", "a2a-v1", slow, gatewaytest.Host{})
	s, end := shortLived(t, b, "/late")
	via := oneConnection(t, b, s, "h2")
	type outcome struct {
		gatewaytest.Reply
		err error
	}
	early := make(chan outcome, 1)
	asking := b.Request(t, gatewaytest.HTTPRequest{At: "/agents/slow/a2a", Body: gatewaytest.TextBody("hi"), Header: map[string]string{"A2A-Version": "1.0"}})
	go func() {
		got, err := gatewaytest.Receive(via, asking)
		early <- outcome{got, err}
	}()
	<-entered
	passed(t, end)
	if got, err := b.Try(t, toMembers(b, via)); err != nil || got.Status != http.StatusUnauthorized {
		t.Errorf("a call after the end: %d %s %v", got.Status, got.Body, err)
	}
	close(release)
	if got := <-early; got.err != nil || got.Status != http.StatusOK || !strings.Contains(string(got.Body), "done") {
		t.Errorf("a call from before the end: %d %s %v", got.Status, got.Body, got.err)
	}
	if got, err := b.Try(t, toMembers(b, via)); err == nil {
		t.Errorf("the connection is still open: %d %s", got.Status, got.Body)
	}
}

// Finding 11: the same with a trust anchor that was withdrawn, as one does when an
// authority's key is lost. Handshakes were refused within seconds; connections that
// its SVIDs had opened went on. Now they end with the reload, streams too, and
// those of other anchors are left alone.
func TestAttack_WithdrawnAnchorKeepsConnections(t *testing.T) {
	t.Parallel()
	b := gatewaytest.NewFixture(t, gatewaytest.Plan{Serve: true})
	endlessAgent(t, b)
	c := gatewaytest.OnFiles(b)
	second := gatewaytest.Authority(t, gatewaytest.TrustDomain, nil)
	other := t.TempDir()
	gatewaytest.Must(t, second.Save(other))
	one, err := os.ReadFile(c.Identity.Bundle)
	gatewaytest.Must(t, err)
	more, err := os.ReadFile(filepath.Join(other, identity.AnchorFile))
	gatewaytest.Must(t, err)
	gatewaytest.Must(t, os.WriteFile(c.Identity.Bundle, append(append([]byte{}, one...), more...), 0o600))
	gatewaytest.Must(t, b.Reload(t.Context(), c))

	losses := gatewaytest.Issue(t, second, "/lost", gatewaytest.NoNames())
	via, stays := oneConnection(t, b, losses, "h2"), oneConnection(t, b, b.Dev.Client, "h2")
	idle := oneConnection(t, b, losses, "http/1.1")
	for _, via := range []*http.Client{via, stays, idle} {
		b.Right(t, b.Send(t, toMembers(b, via)), `"sum":`)
	}
	stream := opened(t, b, forever(oneConnection(t, b, losses, "http/1.1")))
	conn := b.DialUACP(t, "members", losses)
	gatewaytest.Must(t, gatewaytest.WriteFrameTo(conn, gatewaytest.FrameOf(t, uacp.FormBare, gatewaytest.Addition(b.Number()))))
	_, err = gatewaytest.ReadFrameOf(conn)
	gatewaytest.Must(t, err)
	rpc := b.Remote(t, b.ClientTLS(t, losses))
	sent := gatewaytest.Request(t, "SendMessage", strings.Replace(gatewaytest.AddTo, "calculator", "members", 1))
	if got := rpc.Call(t.Context(), "SendMessage", [][]byte{sent}); got.Code != "OK" {
		t.Fatalf("before: %s", got.Code)
	}

	gatewaytest.Must(t, os.WriteFile(c.Identity.Bundle, one, 0o600))
	gatewaytest.Must(t, b.Reload(t.Context(), c))
	now := time.Now()
	for name, via := range map[string]*http.Client{"HTTP/2": via, "HTTP/1.1": idle} {
		if got, err := b.Try(t, toMembers(b, via)); err == nil && got.Status == http.StatusOK {
			t.Errorf("%s: the withdrawn anchor still vouches: %s", name, got.Body)
		}
	}
	endsBy(t, now, "the stream", reading(stream))
	endsBy(t, now, "the µACP connection", func() error { _, err := gatewaytest.ReadFrameOf(conn); return err })
	if got := rpc.Call(t.Context(), "SendMessage", [][]byte{sent}); got.Code == "OK" {
		t.Error("gRPC: the withdrawn anchor still vouches")
	}
	b.Right(t, b.Send(t, toMembers(b, stays)), `"sum":`)
}

// Finding 10, F1. A partner's trust domain was federated and then taken out of the
// configuration. Its workloads, also those with certificates issued afterwards,
// were let in until the gateway was restarted: Bundle.Trust only added. Now what we
// are told to trust is all that we trust, from the reload on, for connections that
// are open as for new ones.
func TestAttack_DefederatedDomainStaysTrusted(t *testing.T) {
	t.Parallel()
	b := gatewaytest.NewFixture(t, gatewaytest.Plan{Serve: true})
	partner, dir := gatewaytest.Authority(t, "partner.example", nil), t.TempDir()
	gatewaytest.Must(t, partner.Save(dir))
	c := gatewaytest.OnFiles(b)
	members := c.Agents["members"]
	members.Callers = append(members.Callers, "spiffe://partner.example/*")
	c.Agents = maps.Clone(c.Agents)
	c.Agents["members"] = members
	apart := c
	apart.Identity.Federated = nil
	for _, file := range []string{identity.AnchorFile, identity.BundleFile} {
		t.Run(file, func(t *testing.T) {
			c.Identity.Federated = map[string]string{"partner.example": filepath.Join(dir, file)}
			gatewaytest.Must(t, b.Reload(t.Context(), c))
			via := oneConnection(t, b, gatewaytest.Issue(t, partner, "/agents/p", gatewaytest.NoNames()), "h2")
			b.Right(t, b.Send(t, toMembers(b, via)), `"sum":`)
			idle, err := tls.Dial("tcp", strings.TrimPrefix(b.At.UACP, tuacp.Scheme+"://"), uacpTLS(t, b, gatewaytest.Issue(t, partner, "/agents/q", gatewaytest.NoNames())))
			gatewaytest.Must(t, err)
			t.Cleanup(func() { _ = idle.Close() })
			gatewaytest.Must(t, b.Reload(t.Context(), apart))
			if got, err := b.Try(t, toMembers(b, via)); err == nil && got.Status == http.StatusOK {
				t.Errorf("an open connection of the former partner is served: %s", got.Body)
			}
			later := gatewaytest.Issue(t, partner, "/agents/later", gatewaytest.NoNames())
			if got, err := b.Try(t, toMembers(b, b.Caller(t, later))); err == nil && got.Status == http.StatusOK {
				t.Errorf("a new connection of the former partner is served: %s", got.Body)
			}
			gatewaytest.Must(t, idle.SetReadDeadline(time.Now().Add(promptly)))
			if _, err := idle.Read(make([]byte, 1)); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
				t.Error("an idle connection of the former partner stays open")
			}
		})
	}
	if got := (config.Config{Identity: c.Identity}).Files(); len(got) != 4 {
		t.Errorf("the files that are watched: %v", got)
	}
}

// uacpTLS is how µACP callers connect.
func uacpTLS(t *testing.T, b *gatewaytest.Fixture, s *identity.SVID) *tls.Config {
	t.Helper()
	conf := b.ClientTLS(t, s)
	conf.NextProtos, conf.ServerName = []string{tuacp.Protocol}, "127.0.0.1"
	return conf
}

// Finding 18. Who can read the state file, a backup of it, or Redis, read the
// credentials that callers had registered for their webhooks: in the entry of the
// webhook, in the record of the work that keeps the request which brought them, and
// in the stored answer that repeats them. Now all of these are sealed with a key
// that is not in the file.
func TestAttack_StateFileShowsWebhookCredentials(t *testing.T) {
	t.Parallel()
	const token, password = "hook-token-5f1d", "hook-password-a77e"
	file := filepath.Join(t.TempDir(), "state.db")
	b := gatewaytest.NewFixture(t, gatewaytest.Plan{Config: config.Config{State: config.State{Path: file}}})
	header := map[string]string{"A2A-Version": "1.0"}
	hook := func(name string) string {
		return `"id":"` + name + `","url":"https://hook.example/x","token":"` + token + `","authentication":{"scheme":"Bearer","credentials":"` + password + `"}`
	}
	begin := strings.Replace(gatewaytest.TextBody("how is it?"), `"params":{`, `"params":{"configuration":{"taskPushNotificationConfig":{`+hook("hook-one")+`}},`, 1)
	request := b.Send(t, gatewaytest.HTTPRequest{At: "/agents/forecast/a2a", Header: header, Body: begin})
	id := regexp.MustCompile(`"task":\{"id":"([^"]+)"`).FindStringSubmatch(string(request.Body))
	if id == nil {
		t.Fatalf("no task: %s", request.Body)
	}
	call := func(method, params string) gatewaytest.Reply {
		body := `{"jsonrpc":"2.0","id":1,"method":"` + method + `","params":{"taskId":"` + id[1] + `",` + params + `}}`
		return b.Send(t, b.Sealed(t, gatewaytest.HTTPRequest{At: "/agents/forecast/a2a", Header: header, Body: body}))
	}
	b.Right(t, call("CreateTaskPushNotificationConfig", hook("hook-two")), password)
	b.Right(t, call("GetTaskPushNotificationConfig", `"id":"hook-two"`), token) // it is there, and is read back
	written := 0
	for end, tick := time.Now().Add(gatewaytest.Patience), time.NewTicker(100*time.Millisecond); written < 20 && time.Now().Before(end); <-tick.C {
		content, err := os.ReadFile(file)
		gatewaytest.Must(t, err)
		if bytes.Contains(content, []byte("hook-two")) { // the name of the entry: it has been written
			written++
		}
		for what, secret := range map[string]string{"the token": token, "the password": password} {
			if bytes.Contains(content, []byte(secret)) {
				t.Fatalf("the file shows %s as it is", what)
			}
			for shift := range 3 { // a record holds requests in base64
				text := base64.StdEncoding.EncodeToString([]byte(strings.Repeat("?", shift) + secret))
				if bytes.Contains(content, []byte(text[4:len(text)-4])) {
					t.Fatalf("the file shows %s in base64", what)
				}
			}
		}
	}
	if written == 0 {
		t.Error("nothing was written")
	}
	if made, err := os.Stat(file + ".key"); err != nil || made.Mode().Perm() != 0o600 {
		t.Errorf("the key: %v, %v", made, err)
	}
}

// Where nothing can be sealed (Redis without state.key), credentials of webhooks
// are refused with the reason, before anything of the message is stored; webhooks
// without any are taken.
func TestWebhooks_CredentialsNeedAKey(t *testing.T) {
	t.Parallel()
	b := gatewaytest.NewFixture(t, gatewaytest.Plan{})
	b.Gateway().StatePlain = true
	header := map[string]string{"A2A-Version": "1.0"}
	begin := func(hook string) gatewaytest.Reply {
		body := strings.Replace(gatewaytest.TextBody("how is it?"), `"params":{`, `"params":{"configuration":{"taskPushNotificationConfig":{"url":"https://hook.example/x"`+hook+`}},`, 1)
		return b.Send(t, gatewaytest.HTTPRequest{At: "/agents/forecast/a2a", Header: header, Body: body})
	}
	for what, hook := range map[string]string{
		"a token": `,"token":"mine"`, "an authentication": `,"authentication":{"scheme":"Bearer","credentials":"mine"}`,
	} {
		if got := string(begin(hook).Body); !strings.Contains(got, "-32003") || !strings.Contains(got, "state.key") {
			t.Errorf("%s: %s", what, got)
		}
	}
	id := regexp.MustCompile(`"task":\{"id":"([^"]+)"`).FindStringSubmatch(string(begin("").Body))
	if id == nil {
		t.Fatal("a webhook without credentials is refused")
	}
	create := func(hook string) string {
		body := `{"jsonrpc":"2.0","id":1,"method":"CreateTaskPushNotificationConfig","params":{"taskId":"` + id[1] + `","url":"https://hook.example/y"` + hook + `}}`
		return string(b.Send(t, gatewaytest.HTTPRequest{At: "/agents/forecast/a2a", Header: header, Body: body}).Body)
	}
	if got := create(`,"token":"mine"`); !strings.Contains(got, "-32003") || !strings.Contains(got, "state.key") {
		t.Errorf("set later: %s", got)
	}
	if got := create(""); !strings.Contains(got, "hook.example/y") {
		t.Errorf("set later, without credentials: %s", got)
	}
}
