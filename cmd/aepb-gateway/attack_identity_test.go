package main

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/base64"
	"errors"
	"io"
	"io/fs"
	"log/slog"
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
	"github.com/aepb/aepb-gateway/gateway/state/seal"
	"github.com/aepb/aepb-gateway/gateway/task/store"
	tuacp "github.com/aepb/aepb-gateway/gateway/transport/uacp"
	"github.com/aepb/aepb-gateway/translators/uacp"
)

// promptly is how long after its end a connection may still be open: far less
// than the 30 s that a test waits for anything, and than the idle limits.
const promptly = 8 * time.Second

// shortLived is an SVID that ends within two to three seconds, and its end.
func (b *bed) shortLived(t *testing.T, path string) (*identity.SVID, time.Time) {
	t.Helper()
	s := issue(t, b.dev.Authority, path, identity.SVIDRequest{DNSNames: []string{}, IPs: []net.IP{}, TTL: 3 * time.Second})
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
func (b *bed) oneConnection(t *testing.T, s *identity.SVID, protocol string) *http.Client {
	t.Helper()
	conf := b.clientTLS(t, s)
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
	return &http.Client{Transport: via, Timeout: patience}
}

// toMembers is a good call of an agent that is open to the trust domain alone.
func (b *bed) toMembers(via *http.Client) letter {
	return letter{via: via, at: "/agents/members/a2a", body: addBody(b.number()), header: map[string]string{"A2A-Version": "1.0"}}
}

// endlessAgent lists an agent "slow" that streams and does not end by itself.
func (b *bed) endlessAgent(t *testing.T) {
	t.Helper()
	b.scribeOverSocket(t, "slow").left = make(chan struct{}, 64) // not read by these tests
	agent, ok := b.directory.Find("slow")
	if !ok {
		t.Fatal("the agent is not listed")
	}
	agent.Timeout = 4 * promptly // or the agent's slowness would end the stream
	must(t, b.directory.Put(agent))
}

// forever begins work that streams and does not end by itself.
func forever(via *http.Client) letter {
	return letter{
		via: via, at: "/agents/slow/a2a", header: map[string]string{"A2A-Version": "1.0"},
		body: strings.Replace(textBody("forever"), "SendMessage", "SendStreamingMessage", 1),
	}
}

// opened is a stream whose first event has come.
func (b *bed) opened(t *testing.T, l letter) io.Reader {
	t.Helper()
	response, err := l.via.Do(b.request(t, l))
	must(t, err)
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
	caller := newWITCaller(t, &c)
	b := newBed(t, plan{serve: true, config: c})
	b.endlessAgent(t)
	for _, name := range []string{"slow", "members"} {
		agent, ok := b.directory.Find(name)
		if !ok {
			t.Fatalf("there is no agent %s", name)
		}
		agent.Rules.Open = true
		must(t, b.directory.Put(agent))
	}
	standing := map[string]string{"Accept": "text/event-stream", "Mcp-Protocol-Version": "2025-11-25"}
	for name, l := range map[string]letter{
		"A2A":      forever(nil),
		"MCP":      {at: "/agents/slow/mcp", header: mirror("tools/call", "message"), body: strings.Replace(callBody("message", "forever"), `"_meta":{`, `"_meta":{"progressToken":7,`, 1)},
		"standing": {method: http.MethodGet, at: "/agents/members/mcp", media: "-", header: standing},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			end := time.Now().Truncate(time.Second).Add(4 * time.Second)
			token := caller.tokenUntil(end.Add(-credential.DefaultSkew)) // accepted until end
			show := func(l letter) letter {
				l.via, l.header = b.anonymous, maps.Clone(l.header)
				maps.Copy(l.header, caller.fields(token, b.at.Public+l.at))
				return l
			}
			if name == "standing" {
				begin := letter{at: l.at, header: map[string]string{"Accept": "application/json, text/event-stream"}, body: initializeBody}
				l.header = maps.Clone(l.header)
				l.header["Mcp-Session-Id"] = b.send(t, show(begin)).header.Get("Mcp-Session-Id")
				l.header["Mcp-Protocol-Version"] = "2025-06-18"
			}
			l = show(l)
			response, err := l.via.Do(b.request(t, l))
			must(t, err)
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
	b := newBed(t, plan{serve: true})
	b.endlessAgent(t)
	for _, protocol := range []string{"http/1.1", "h2"} {
		t.Run(protocol, func(t *testing.T) {
			t.Parallel()
			s, end := b.shortLived(t, "/late")
			via := b.oneConnection(t, s, protocol)
			b.right(t, b.send(t, b.toMembers(via)), `"sum":`)
			passed(t, end)
			if got, err := b.try(t, b.toMembers(via)); err == nil && got.status == http.StatusOK {
				t.Errorf("a call after the end of the certificate is answered: %s", got.body)
			}
		})
		t.Run(protocol+", a stream", func(t *testing.T) {
			t.Parallel()
			s, end := b.shortLived(t, "/late")
			stream := b.opened(t, forever(b.oneConnection(t, s, protocol)))
			endsBy(t, end, "the stream", reading(stream))
		})
	}
	for name, l := range map[string]letter{
		"MCP":       {at: "/agents/slow/mcp", header: mirror("tools/call", "message"), body: strings.Replace(callBody("message", "forever"), `"_meta":{`, `"_meta":{"progressToken":7,`, 1)},
		"translate": {at: "/aepb/translate?from=a2a-v1&dest=slow", body: forever(nil).body},
		"standing":  {method: http.MethodGet, at: "/agents/members/mcp", media: "-", header: map[string]string{"Accept": "text/event-stream", "Mcp-Protocol-Version": "2025-11-25"}},
	} {
		t.Run("a stream of "+name, func(t *testing.T) {
			t.Parallel()
			s, end := b.shortLived(t, "/late")
			l.via = b.oneConnection(t, s, "h2")
			if name == "standing" {
				begin := l
				begin.method, begin.media, begin.header = http.MethodPost, "", map[string]string{"Accept": "application/json, text/event-stream"}
				begin.body = `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"x","version":"1"}}}`
				l.header["Mcp-Session-Id"] = b.send(t, begin).header.Get("Mcp-Session-Id")
			}
			if l.body != "" && name == "translate" {
				l.tokens = []string{ecttest.Mint(t, b.party(t, s), b.recipe(l.body))}
			}
			response, err := l.via.Do(b.request(t, l))
			must(t, err)
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
		s, end := b.shortLived(t, "/late")
		c := b.remote(t, b.clientTLS(t, s))
		call := func() string {
			sent := request(t, "SendMessage", strings.Replace(addTo, "calculator", "members", 1))
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
		s, end := b.shortLived(t, "/late")
		c := b.remote(t, b.clientTLS(t, s))
		var code string
		endsBy(t, end, "the stream", func() error {
			sent := request(t, "SendStreamingMessage", strings.Replace(messageTo("slow", "forever"), "hello", "forever", 1))
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
		s, end := b.shortLived(t, "/late")
		conn := b.dialUACP(t, "members", s)
		must(t, writeFrameTo(conn, frameOf(t, uacp.FormBare, addition(b.number()))))
		reply, err := readFrameOf(conn)
		must(t, err)
		if f, err := uacp.ParseFrame(reply); err != nil || f.Code >= 0x40 {
			t.Fatalf("before the end: %02x", f.Code)
		}
		passed(t, end)
		_ = writeFrameTo(conn, frameOf(t, uacp.FormBare, addition(b.number()))) // if the connection is closed, reading fails too
		if reply, err := readFrameOf(conn); err == nil {
			t.Errorf("a call after the end of the certificate is answered: %q", short(reply))
		}
	})
	t.Run("WebSocket", func(t *testing.T) {
		t.Parallel()
		s, end := b.shortLived(t, "/late")
		conn, response, err := websocket.Dial(t.Context(), "wss"+strings.TrimPrefix(b.at.Public, "https")+"/agents/members/ainp",
			&websocket.DialOptions{HTTPClient: b.oneConnection(t, s, "http/1.1")})
		if err != nil {
			t.Fatalf("no WebSocket: %v %v", err, response)
		}
		t.Cleanup(func() { _ = conn.CloseNow() })
		tell(t, conn, did("late"), addition(b.number()))
		if got := hear(t, conn); got.Payload.Status != "success" {
			t.Fatalf("before the end: %s", got.raw)
		}
		endsBy(t, end, "the WebSocket", func() error { _, _, err = conn.Read(t.Context()); return err })
		if websocket.CloseStatus(err) != websocket.StatusPolicyViolation {
			t.Errorf("it ends with %v", err)
		}
	})
	t.Run("resumed", func(t *testing.T) {
		t.Parallel()
		s, end := b.shortLived(t, "/late")
		conf := b.clientTLS(t, s)
		conf.ClientSessionCache, conf.NextProtos = tls.NewLRUClientSessionCache(4), []string{"http/1.1"}
		via := b.dialing(t, conf)
		b.right(t, b.send(t, b.toMembers(via)), `"sum":`)
		via.CloseIdleConnections()
		passed(t, end)
		if got, err := b.try(t, b.toMembers(via)); err == nil && got.status == http.StatusOK {
			t.Error("a resumed TLS session is as good as a valid certificate")
		}
	})
}

// The other side of it: what was asked in time is answered, on a connection that
// then is closed, and a further call on it is refused with 401 and not with
// silence. A client whose SVID was renewed is told to connect again (GOAWAY) before
// anything is refused.
func TestWhatWasAskedInTimeIsAnswered(t *testing.T) {
	t.Parallel()
	b := newBed(t, plan{serve: true})
	entered, release := make(chan struct{}, 1), make(chan struct{})
	slow := &fake{conduct: held(entered, release)}
	b.serve(t, "slow", "a2a-v1", slow, host{})
	s, end := b.shortLived(t, "/late")
	via := b.oneConnection(t, s, "h2")
	type outcome struct {
		reply
		err error
	}
	early := make(chan outcome, 1)
	asking := b.request(t, letter{at: "/agents/slow/a2a", body: textBody("hi"), header: map[string]string{"A2A-Version": "1.0"}})
	go func() {
		got, err := receive(via, asking)
		early <- outcome{got, err}
	}()
	<-entered
	passed(t, end)
	if got, err := b.try(t, b.toMembers(via)); err != nil || got.status != http.StatusUnauthorized {
		t.Errorf("a call after the end: %d %s %v", got.status, got.body, err)
	}
	close(release)
	if got := <-early; got.err != nil || got.status != http.StatusOK || !strings.Contains(string(got.body), "done") {
		t.Errorf("a call from before the end: %d %s %v", got.status, got.body, got.err)
	}
	if got, err := b.try(t, b.toMembers(via)); err == nil {
		t.Errorf("the connection is still open: %d %s", got.status, got.body)
	}
}

// Finding 11: the same with a trust anchor that was withdrawn, as one does when an
// authority's key is lost. Handshakes were refused within seconds; connections that
// its SVIDs had opened went on. Now they end with the reload, streams too, and
// those of other anchors are left alone.
func TestAttack_WithdrawnAnchorKeepsConnections(t *testing.T) {
	t.Parallel()
	b := newBed(t, plan{serve: true})
	b.endlessAgent(t)
	c := onFiles(b)
	second := authority(t, devTrustDomain, nil)
	other := t.TempDir()
	must(t, second.Save(other))
	one, err := os.ReadFile(c.Identity.Bundle)
	must(t, err)
	more, err := os.ReadFile(filepath.Join(other, identity.AnchorFile))
	must(t, err)
	must(t, os.WriteFile(c.Identity.Bundle, append(append([]byte{}, one...), more...), 0o600))
	must(t, b.reload(t.Context(), c))

	lost := issue(t, second, "/lost", noNames())
	via, stays := b.oneConnection(t, lost, "h2"), b.oneConnection(t, b.dev.Client, "h2")
	idle := b.oneConnection(t, lost, "http/1.1")
	for _, via := range []*http.Client{via, stays, idle} {
		b.right(t, b.send(t, b.toMembers(via)), `"sum":`)
	}
	stream := b.opened(t, forever(b.oneConnection(t, lost, "http/1.1")))
	conn := b.dialUACP(t, "members", lost)
	must(t, writeFrameTo(conn, frameOf(t, uacp.FormBare, addition(b.number()))))
	_, err = readFrameOf(conn)
	must(t, err)
	rpc := b.remote(t, b.clientTLS(t, lost))
	sent := request(t, "SendMessage", strings.Replace(addTo, "calculator", "members", 1))
	if got := rpc.Call(t.Context(), "SendMessage", [][]byte{sent}); got.Code != "OK" {
		t.Fatalf("before: %s", got.Code)
	}

	must(t, os.WriteFile(c.Identity.Bundle, one, 0o600))
	must(t, b.reload(t.Context(), c))
	now := time.Now()
	for name, via := range map[string]*http.Client{"HTTP/2": via, "HTTP/1.1": idle} {
		if got, err := b.try(t, b.toMembers(via)); err == nil && got.status == http.StatusOK {
			t.Errorf("%s: the withdrawn anchor still vouches: %s", name, got.body)
		}
	}
	endsBy(t, now, "the stream", reading(stream))
	endsBy(t, now, "the µACP connection", func() error { _, err := readFrameOf(conn); return err })
	if got := rpc.Call(t.Context(), "SendMessage", [][]byte{sent}); got.Code == "OK" {
		t.Error("gRPC: the withdrawn anchor still vouches")
	}
	b.right(t, b.send(t, b.toMembers(stays)), `"sum":`)
}

// Finding 10, F1. A partner's trust domain was federated and then taken out of the
// configuration. Its workloads, also those with certificates issued afterwards,
// were let in until the gateway was restarted: Bundle.Trust only added. Now what we
// are told to trust is all that we trust, from the reload on, for connections that
// are open as for new ones.
func TestAttack_DefederatedDomainStaysTrusted(t *testing.T) {
	t.Parallel()
	b := newBed(t, plan{serve: true})
	partner, dir := authority(t, "partner.example", nil), t.TempDir()
	must(t, partner.Save(dir))
	c := onFiles(b)
	members := c.Agents["members"]
	members.Callers = append(members.Callers, "spiffe://partner.example/*")
	c.Agents = maps.Clone(c.Agents)
	c.Agents["members"] = members
	apart := c
	apart.Identity.Federated = nil
	for _, file := range []string{identity.AnchorFile, identity.BundleFile} {
		t.Run(file, func(t *testing.T) {
			c.Identity.Federated = map[string]string{"partner.example": filepath.Join(dir, file)}
			must(t, b.reload(t.Context(), c))
			via := b.oneConnection(t, issue(t, partner, "/agents/p", noNames()), "h2")
			b.right(t, b.send(t, b.toMembers(via)), `"sum":`)
			idle, err := tls.Dial("tcp", strings.TrimPrefix(b.at.UACP, tuacp.Scheme+"://"), b.uacpTLS(t, issue(t, partner, "/agents/q", noNames())))
			must(t, err)
			t.Cleanup(func() { _ = idle.Close() })
			must(t, b.reload(t.Context(), apart))
			if got, err := b.try(t, b.toMembers(via)); err == nil && got.status == http.StatusOK {
				t.Errorf("an open connection of the former partner is served: %s", got.body)
			}
			later := issue(t, partner, "/agents/later", noNames())
			if got, err := b.try(t, b.toMembers(b.caller(t, later))); err == nil && got.status == http.StatusOK {
				t.Errorf("a new connection of the former partner is served: %s", got.body)
			}
			must(t, idle.SetReadDeadline(time.Now().Add(promptly)))
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
func (b *bed) uacpTLS(t *testing.T, s *identity.SVID) *tls.Config {
	t.Helper()
	conf := b.clientTLS(t, s)
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
	b := newBed(t, plan{config: config.Config{State: config.State{Path: file}}})
	header := map[string]string{"A2A-Version": "1.0"}
	hook := func(name string) string {
		return `"id":"` + name + `","url":"https://hook.example/x","token":"` + token + `","authentication":{"scheme":"Bearer","credentials":"` + password + `"}`
	}
	begin := strings.Replace(textBody("how is it?"), `"params":{`, `"params":{"configuration":{"taskPushNotificationConfig":{`+hook("hook-one")+`}},`, 1)
	asked := b.send(t, letter{at: "/agents/forecast/a2a", header: header, body: begin})
	id := regexp.MustCompile(`"task":\{"id":"([^"]+)"`).FindStringSubmatch(string(asked.body))
	if id == nil {
		t.Fatalf("no task: %s", asked.body)
	}
	call := func(method, params string) reply {
		body := `{"jsonrpc":"2.0","id":1,"method":"` + method + `","params":{"taskId":"` + id[1] + `",` + params + `}}`
		return b.send(t, b.sealed(t, letter{at: "/agents/forecast/a2a", header: header, body: body}))
	}
	b.right(t, call("CreateTaskPushNotificationConfig", hook("hook-two")), password)
	b.right(t, call("GetTaskPushNotificationConfig", `"id":"hook-two"`), token) // it is there, and is read back
	written := 0
	for end, tick := time.Now().Add(patience), time.NewTicker(100*time.Millisecond); written < 20 && time.Now().Before(end); <-tick.C {
		content, err := os.ReadFile(file)
		must(t, err)
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

// The key of a file is made once and kept; without it, or with another, what is
// sealed is not taken for nothing, and the error says what to do. No new one is made
// beside what the lost one has sealed.
func TestStateKeyIsKept(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	path := filepath.Join(dir, "state.db")
	s := settings{config: config.Config{State: config.State{Path: path}}, logger: slog.New(slog.DiscardHandler)}
	name := store.EntryKey{Kind: "push", Group: "g", ID: "1"}
	open := func() stores {
		k, err := openState(s)
		must(t, err)
		k, _, err = k.sealed(s)
		must(t, err)
		return k
	}
	first := open()
	_, ok, err := first.entries.Swap(t.Context(), name, 0, []byte("hush"), time.Now().Add(time.Hour))
	if must(t, err); !ok {
		t.Fatal("not written")
	}
	must(t, first.close())
	must(t, os.Chmod(path+".key", 0o644))
	again := open()
	if e, ok, err := again.entries.Get(t.Context(), name); err != nil || !ok || string(e.Value) != "hush" {
		t.Errorf("after a restart: %q, %v, %v", e.Value, ok, err)
	}
	must(t, again.close())
	if made, err := os.Stat(path + ".key"); err != nil || made.Mode().Perm() != 0o600 {
		t.Errorf("others may read the key: %v, %v", made, err)
	}
	former, err := os.ReadFile(path + ".key")
	must(t, err)
	must(t, os.Remove(path+".key"))
	without, err := openState(s)
	must(t, err)
	if _, _, err := without.sealed(s); !errors.Is(err, errKeyLost) || !strings.Contains(err.Error(), path+".key") {
		t.Errorf("without the key: %v", err)
	}
	must(t, without.close())
	if _, err := os.Stat(path + ".key"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a new key is made beside what another sealed: %v", err)
	}
	s.config.State.Key = filepath.Join(dir, "keys")
	must(t, os.WriteFile(s.config.State.Key, seal.NewKey(), 0o600))
	s.stateKeys, err = loadStateKeys(s.config.State.Key)
	must(t, err)
	other := open()
	if _, ok, err := other.entries.Get(t.Context(), name); ok || !errors.Is(err, seal.ErrUnknownKey) {
		t.Errorf("with another key: %v, %v", ok, err)
	}
	must(t, other.close())
	must(t, os.WriteFile(s.config.State.Key, append(seal.NewKey(), former...), 0o600))
	s.stateKeys, err = loadStateKeys(s.config.State.Key)
	must(t, err)
	rotated := open()
	if e, ok, err := rotated.entries.Get(t.Context(), name); err != nil || !ok || string(e.Value) != "hush" {
		t.Errorf("behind a new key: %q, %v, %v", e.Value, ok, err)
	}
	must(t, rotated.close())
	must(t, os.WriteFile(s.config.State.Key, []byte("secret words"), 0o600))
	if _, err := loadStateKeys(s.config.State.Key); !errors.Is(err, seal.ErrKeys) || strings.Contains(err.Error(), "words") {
		t.Errorf("no key: %v", err)
	}
	shared := stores{backend: "redis"}
	if _, plain, err := shared.sealed(settings{logger: s.logger}); !errors.Is(err, errNoStateKey) || plain {
		t.Errorf("Redis without a key: plain %v, %v", plain, err)
	}
	unverified := settings{logger: s.logger, config: config.Config{State: config.State{Unverified: true}}}
	if _, plain, err := shared.sealed(unverified); err != nil || !plain {
		t.Errorf("Redis that is not verified: plain %v, %v", plain, err)
	}
}

// Where nothing can be sealed (Redis without state.key), credentials of webhooks
// are refused with the reason, before anything of the message is stored; webhooks
// without any are taken.
func TestWebhookCredentialsNeedAKey(t *testing.T) {
	t.Parallel()
	b := newBed(t, plan{})
	b.gateway.StatePlain = true
	header := map[string]string{"A2A-Version": "1.0"}
	begin := func(hook string) reply {
		body := strings.Replace(textBody("how is it?"), `"params":{`, `"params":{"configuration":{"taskPushNotificationConfig":{"url":"https://hook.example/x"`+hook+`}},`, 1)
		return b.send(t, letter{at: "/agents/forecast/a2a", header: header, body: body})
	}
	for what, hook := range map[string]string{
		"a token": `,"token":"mine"`, "an authentication": `,"authentication":{"scheme":"Bearer","credentials":"mine"}`,
	} {
		if got := string(begin(hook).body); !strings.Contains(got, "-32003") || !strings.Contains(got, "state.key") {
			t.Errorf("%s: %s", what, got)
		}
	}
	id := regexp.MustCompile(`"task":\{"id":"([^"]+)"`).FindStringSubmatch(string(begin("").body))
	if id == nil {
		t.Fatal("a webhook without credentials is refused")
	}
	create := func(hook string) string {
		body := `{"jsonrpc":"2.0","id":1,"method":"CreateTaskPushNotificationConfig","params":{"taskId":"` + id[1] + `","url":"https://hook.example/y"` + hook + `}}`
		return string(b.send(t, letter{at: "/agents/forecast/a2a", header: header, body: body}).body)
	}
	if got := create(`,"token":"mine"`); !strings.Contains(got, "-32003") || !strings.Contains(got, "state.key") {
		t.Errorf("set later: %s", got)
	}
	if got := create(""); !strings.Contains(got, "hook.example/y") {
		t.Errorf("set later, without credentials: %s", got)
	}
}
