package attacks

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/coder/websocket"

	"github.com/aepb/aepb-gateway/ect/identity"
	"github.com/aepb/aepb-gateway/gateway/config"
	"github.com/aepb/aepb-gateway/gateway/directory"
	tainp "github.com/aepb/aepb-gateway/gateway/transport/ainp"
	tuacp "github.com/aepb/aepb-gateway/gateway/transport/uacp"
	gatewaytest "github.com/aepb/aepb-gateway/test/harness/gateway"
	"github.com/aepb/aepb-gateway/translators/ainp"
	"github.com/aepb/aepb-gateway/translators/uacp"
)

// webHost is a web server on a private address that records each request, and
// serves DID documents at every path.
type webHost struct {
	*httptest.Server
	who tainp.Identity // whose key its documents hold

	mu       sync.Mutex
	requests []string
}

func webHostFixture(t *testing.T, b *gatewaytest.Fixture, who tainp.Identity) *webHost {
	t.Helper()
	h := &webHost{who: who}
	h.Server = httptest.NewUnstartedServer(h)
	h.TLS = gatewaytest.Serving(b.SVID(t, "/web-host"))
	h.TLS.ClientAuth = tls.RequestClientCert
	h.StartTLS()
	t.Cleanup(h.Close)
	return h
}

func (h *webHost) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	seen := r.Method + " " + r.URL.Path + " without a certificate"
	if peer, ok := identity.PeerOf(r.TLS); ok {
		seen = r.Method + " " + r.URL.Path + " as " + string(peer.ID)
	}
	h.mu.Lock()
	h.requests = append(h.requests, seen)
	h.mu.Unlock()
	path := strings.TrimSuffix(strings.TrimSuffix(r.URL.Path, "/did.json"), "/.well-known")
	did := "did:web:" + strings.ReplaceAll(r.Host, ":", "%3A") + strings.ReplaceAll(path, "/", ":")
	_, _ = io.WriteString(w, `{"id":"`+did+`","verificationMethod":[{"publicKeyMultibase":"`+strings.TrimPrefix(h.who.DID, "did:key:")+`"}]}`)
}

func (h *webHost) seen() []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return append([]string(nil), h.requests...)
}

// did is a did:web whose document this host serves.
func (h *webHost) did(host, path string) tainp.Identity {
	_, port, _ := strings.Cut(strings.TrimPrefix(h.URL, "https://"), ":")
	return tainp.Identity{DID: "did:web:" + host + "%3A" + port + path, Key: h.who.Key}
}

// memberID is a workload that the agent "members" takes calls from.
func memberID(name string) string { return "spiffe://" + gatewaytest.TrustDomain + "/" + name }

// TestAttack_StrangerMakesUsFetchInternalAddress is finding 3. A stranger posted
// an AINP envelope whose sender was did:web:HOST:PATH, where HOST was a private
// address that is open to the gateway because a listed agent is there. The gateway
// fetched https://HOST/PATH/did.json with its own client certificate, before it
// knew who called. Now documents are fetched for DIDs that the configuration
// names, and without a certificate; all others are refused with one error.
func TestAttack_StrangerMakesUsFetchInternalAddress(t *testing.T) {
	t.Parallel()
	b := gatewaytest.NewFixture(t, gatewaytest.Plan{Serve: true})
	host := webHostFixture(t, b, gatewaytest.Did("mallory"))
	b.ListAs(t, "internal", b.Dev.Client.ID, directory.Endpoint{Binding: ainp.Binding, URL: host.URL + "/ainp"})

	var refusals []string
	for _, who := range []tainp.Identity{
		host.did("127.0.0.1", ":internal:path:of:choice"), host.did("localhost", ""), gatewaytest.Did("mallory"),
		{DID: "did:web:%2", Key: gatewaytest.Did("mallory").Key},
		{DID: "did:example:mallory", Key: gatewaytest.Did("mallory").Key},
	} {
		for _, agent := range []string{"members", "internal", "does-not-exist"} {
			got := b.Send(t, gatewaytest.HTTPRequest{Via: b.Anonymous, At: "/agents/" + agent + "/ainp", Body: gatewaytest.AddressedTo(t, who, b.AINP.DID, 1)})
			var answer struct {
				Payload struct {
					Message string `json:"error_message"`
				} `json:"payload"`
			}
			gatewaytest.Must(t, json.Unmarshal(got.Body, &answer))
			refusals = append(refusals, strconv.Itoa(got.Status)+" "+answer.Payload.Message)
		}
	}
	for _, refusal := range refusals {
		if refusal != refusals[0] || !strings.HasPrefix(refusal, "401 ") {
			t.Errorf("strangers can tell apart %q and %q", refusals[0], refusal)
		}
	}
	got := b.Send(t, gatewaytest.HTTPRequest{At: "/agents/members/ainp", Body: gatewaytest.AddressedTo(t, host.did("127.0.0.1", ":x"), b.AINP.DID, 1)})
	b.RefusedAINP(t, got, http.StatusUnauthorized, "INVALID_SIGNATURE")
	if seen := host.seen(); len(seen) != 0 {
		t.Errorf("the gateway sent %q for callers whose DID is not configured", seen)
	}

	victim := host.did("127.0.0.1", ":victim")
	changed := gatewaytest.OnFiles(b)
	changed.AINP.Callers = map[string]string{victim.DID: memberID("victim")}
	gatewaytest.Must(t, b.Reload(t.Context(), changed))
	n := b.Number()
	b.Right(t, b.Send(t, gatewaytest.HTTPRequest{Via: b.Anonymous, At: "/agents/members/ainp", Body: gatewaytest.AddressedTo(t, victim, b.AINP.DID, n)}), strconv.FormatInt(n+1, 10))
	if seen := host.seen(); len(seen) != 1 || seen[0] != "GET /victim/did.json without a certificate" {
		t.Errorf("for a configured caller the gateway sent %q", seen)
	}
}

// TestAttack_AgentMakesUsFetchInternalAddress is finding 3 from the other side: a
// listed agent signed its answer as did:web:HOST:PATH, and the gateway fetched
// that under its own certificate to check the signature.
func TestAttack_AgentMakesUsFetchInternalAddress(t *testing.T) {
	t.Parallel()
	b := gatewaytest.NewFixture(t, gatewaytest.Plan{})
	host := webHostFixture(t, b, gatewaytest.Did("mallory"))
	b.ListAs(t, "internal", b.Dev.Client.ID, directory.Endpoint{Binding: ainp.Binding, URL: host.URL + "/ainp"})
	b.AINPAgent(t, "mallory", &gatewaytest.AINPFake{Who: host.did("127.0.0.1", ":x")}, directory.Endpoint{})
	victim := host.did("127.0.0.1", ":victim")
	b.AINPAgent(t, "victim", &gatewaytest.AINPFake{Who: victim}, directory.Endpoint{DID: victim.DID})
	ask := func(agent string, n int64) gatewaytest.Reply {
		body := gatewaytest.AddBody(n)
		return b.Send(t, gatewaytest.HTTPRequest{At: "/aepb/translate?from=a2a-v1&dest=" + agent, Body: body, Tokens: []string{b.Token(t, body)}})
	}
	if got := ask("mallory", 1); got.Status != http.StatusBadGateway {
		t.Errorf("an answer signed by an identity that is not configured: %d %s", got.Status, gatewaytest.Short(got.Body))
	}
	n := b.Number()
	b.Right(t, ask("victim", n), strconv.FormatInt(n+1, 10))
	for _, seen := range host.seen() {
		if seen != "GET /victim/did.json without a certificate" {
			t.Errorf("the gateway sent %q", seen)
		}
	}
}

// TestAttack_EnvelopeWithoutRecipientIsReplayed is finding 18. Alice sent an
// envelope without to_did to some other service. That service played it here,
// without a certificate, and the gateway took it for a call of Alice. Now a caller
// that is known only by its DID has to name the recipient.
func TestAttack_EnvelopeWithoutRecipientIsReplayed(t *testing.T) {
	t.Parallel()
	alice := gatewaytest.Did("alice")
	b := gatewaytest.NewFixture(t, gatewaytest.Plan{Serve: true, Config: config.Config{AINP: config.AINP{Callers: map[string]string{alice.DID: memberID("alice")}}}})
	post := func(via *http.Client, recipient string, n int64) gatewaytest.Reply {
		return b.Send(t, gatewaytest.HTTPRequest{Via: via, At: "/agents/members/ainp", Body: gatewaytest.AddressedTo(t, alice, recipient, n)})
	}
	calls := len(b.Tools.Received())
	b.RefusedAINP(t, post(b.Anonymous, "", 1), http.StatusForbidden, "UNAUTHORIZED")
	if len(b.Tools.Received()) != calls {
		t.Error("the agent was called in the name of Alice")
	}
	n := b.Number()
	b.Right(t, post(b.Anonymous, b.AINP.DID, n), strconv.FormatInt(n+1, 10))
	n = b.Number()
	b.Right(t, post(b.Caller(t, b.SVID(t, "/alice")), "", n), strconv.FormatInt(n+1, 10)) // only she has her certificate
}

// from is a dialer that has an address of its own on this machine.
func from(address string) *net.Dialer {
	return &net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(address)}, Timeout: gatewaytest.Patience}
}

// uacpConfig is a client's configuration toward the µACP listener.
func uacpConfig(t *testing.T, b *gatewaytest.Fixture, who *identity.SVID) *tls.Config {
	t.Helper()
	conf := b.ClientTLS(t, who)
	conf.NextProtos, conf.ServerName = []string{tuacp.Protocol}, "members.localhost"
	conf.InsecureSkipVerify = true // the test asks for agents by names that no certificate has
	return conf
}

// openUACP opens a connection to the µACP listener, and takes one answer to know
// that it is open.
func openUACP(t *testing.T, b *gatewaytest.Fixture, address string, who *identity.SVID) (*tls.Conn, error) {
	t.Helper()
	dialer := &tls.Dialer{NetDialer: from(address), Config: uacpConfig(t, b, who)}
	plain, err := dialer.DialContext(t.Context(), "tcp", strings.TrimPrefix(b.At.UACP, tuacp.Scheme+"://"))
	if err != nil {
		return nil, err
	}
	t.Cleanup(func() { _ = plain.Close() })
	conn, ok := plain.(*tls.Conn)
	if !ok {
		return nil, errors.New("no TLS")
	}
	gatewaytest.Must(t, conn.SetDeadline(time.Now().Add(gatewaytest.Patience)))
	_, err = addOver(t, b, conn)
	return conn, err
}

// addOver asks for a sum over a µACP connection.
func addOver(t *testing.T, b *gatewaytest.Fixture, conn *tls.Conn) (code byte, err error) {
	t.Helper()
	n := b.Number()
	if err := gatewaytest.WriteFrameTo(conn, gatewaytest.FrameOf(t, uacp.FormBare, gatewaytest.Addition(n))); err != nil {
		return 0, err
	}
	body, err := gatewaytest.ReadFrameOf(conn)
	if err != nil {
		return 0, err
	}
	f, err := uacp.ParseFrame(body)
	if err == nil && !strings.Contains(string(body), strconv.FormatInt(n+1, 10)) {
		err = errors.New("refused with code " + strconv.FormatInt(int64(f.Code), 16))
	}
	return f.Code, err
}

// TestAttack_StrangersTakeAllUACPConnections is finding 6. Strangers without a
// certificate opened as many connections as the µACP listener takes, and kept
// them, with a TLS handshake or without; callers with a certificate were closed
// unheard. Now a handshake without a certificate fails, and connections in their
// handshake are bounded by themselves, in all and for each address, and the oldest
// gives way, so that a caller connects even from the address of strangers.
func TestAttack_StrangersTakeAllUACPConnections(t *testing.T) {
	t.Parallel()
	bounds := config.ConnectionBounds{Total: 16, PerCaller: 4, Unidentified: 16, PerAddress: 4}
	b := gatewaytest.NewFixture(t, gatewaytest.Plan{Serve: true, Config: config.Config{Listen: config.Listen{UACPConnections: bounds}}})
	for i := range 64 {
		plain, err := from("127.0.0."+strconv.Itoa(1+i%3)).DialContext(t.Context(), "tcp", strings.TrimPrefix(b.At.UACP, tuacp.Scheme+"://"))
		gatewaytest.Must(t, err)
		t.Cleanup(func() { _ = plain.Close() })
		if i%2 == 0 {
			continue // it says nothing at all
		}
		gatewaytest.Must(t, plain.SetDeadline(time.Now().Add(5*time.Second)))
		if _, err := tls.Client(plain, uacpConfig(t, b, nil)).Read(make([]byte, 1)); err == nil || os.IsTimeout(err) {
			t.Error("a connection without a certificate stays open")
		}
	}
	conn, err := openUACP(t, b, "127.0.0.1", b.Dev.Client)
	if err != nil {
		t.Fatalf("a caller with a certificate is not served: %v", err)
	}
	if _, err := addOver(t, b, conn); err != nil {
		t.Errorf("the second call: %v", err)
	}
}

// TestAttack_OneCallerTakesAllUACPConnections is finding 6 by callers with a
// certificate: one opened all connections that there are, on none of which it had
// anything to say. Now one identity has a share, beyond which its own oldest connection
// at rest ends; several identities that hold all connections keep no other one out.
func TestAttack_OneCallerTakesAllUACPConnections(t *testing.T) {
	t.Parallel()
	bounds := config.ConnectionBounds{Total: 16, PerCaller: 4, Unidentified: 16, PerAddress: 8}
	b := gatewaytest.NewFixture(t, gatewaytest.Plan{Serve: true, Config: config.Config{Listen: config.Listen{UACPConnections: bounds}}})
	for i := range 6 {
		mallory := b.SVID(t, "/mallory-"+strconv.Itoa(i))
		var waiting []*tls.Conn
		for range 24 {
			conn, err := openUACP(t, b, "127.0.0.2", mallory)
			if err != nil {
				t.Fatalf("a new connection, where others rest: %v", err)
			}
			waiting = append(waiting, conn)
		}
		newest, older := waiting[len(waiting)-1], waiting[:len(waiting)-1]
		if _, err := addOver(t, b, newest); err != nil { // who has its answer has been counted
			t.Errorf("its newest connection: %v", err)
		}
		gatewaytest.Within(t, listenWait, "one caller has no more connections than it may", func() bool { return stillOpen(older)+1 <= bounds.PerCaller })
	}
	if _, err := openUACP(t, b, "127.0.0.1", b.Dev.Client); err != nil {
		t.Fatalf("another caller is not served: %v", err)
	}
}

// upgrade opens a WebSocket of the agent "members".
func upgrade(t *testing.T, b *gatewaytest.Fixture, address string, who *identity.SVID) (*websocket.Conn, int) {
	t.Helper()
	conf := b.ClientTLS(t, who)
	conf.NextProtos = []string{"http/1.1"}
	transport := &http.Transport{TLSClientConfig: conf, DialContext: from(address).DialContext}
	t.Cleanup(transport.CloseIdleConnections)
	conn, response, err := websocket.Dial(t.Context(), "wss"+strings.TrimPrefix(b.At.Public, "https")+"/agents/members/ainp", &websocket.DialOptions{
		HTTPClient: &http.Client{Transport: transport},
	})
	if err != nil {
		if response == nil {
			t.Fatalf("no answer to an upgrade: %v", err)
		}
		return nil, response.StatusCode
	}
	t.Cleanup(func() { _ = conn.CloseNow() })
	conn.SetReadLimit(4 << 20)
	return conn, http.StatusSwitchingProtocols
}

// sumOver asks for a sum over a WebSocket.
func sumOver(t *testing.T, b *gatewaytest.Fixture, conn *websocket.Conn, who tainp.Identity) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), gatewaytest.Patience)
	defer cancel()
	n := b.Number()
	gatewaytest.Must(t, conn.Write(ctx, websocket.MessageText, []byte(gatewaytest.AddressedTo(t, who, b.AINP.DID, n))))
	_, body, err := conn.Read(ctx)
	gatewaytest.Must(t, err)
	if !strings.Contains(string(body), strconv.FormatInt(n+1, 10)) {
		t.Errorf("a good call over a WebSocket got %s", gatewaytest.Short(body))
	}
}

// TestAttack_StrangersTakeAllWebSockets is finding 6. Strangers opened all
// WebSockets that there are and said nothing. Now an upgrade needs an identity
// that the connection proved; where callers are known by their DIDs, strangers
// have a number of their own, and a share for each address.
func TestAttack_StrangersTakeAllWebSockets(t *testing.T) {
	t.Parallel()
	bounds := config.ConnectionBounds{Total: 8, PerCaller: 4, Unidentified: 8, PerAddress: 2}
	victim := gatewaytest.Did("victim")
	for name, callers := range map[string]map[string]string{"no callers by DID": nil, "callers by DID": {victim.DID: memberID("victim")}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := gatewaytest.NewFixture(t, gatewaytest.Plan{Serve: true, Config: config.Config{AINP: config.AINP{Callers: callers, Sockets: bounds}}})
			opened := map[int]int{}
			for i := range 24 {
				_, status := upgrade(t, b, "127.0.0."+strconv.Itoa(2+i%3), nil)
				opened[status]++
			}
			want := map[int]int{http.StatusUnauthorized: 24}
			if callers != nil {
				want = map[int]int{http.StatusSwitchingProtocols: 3 * bounds.PerAddress, http.StatusTooManyRequests: 24 - 3*bounds.PerAddress}
			}
			if len(opened) != len(want) || opened[http.StatusSwitchingProtocols] != want[http.StatusSwitchingProtocols] {
				t.Errorf("strangers' upgrades by status: %v, want %v", opened, want)
			}
			conn, status := upgrade(t, b, "127.0.0.1", b.Dev.Client)
			if conn == nil {
				t.Fatalf("a caller with a certificate is refused with %d", status)
			}
			sumOver(t, b, conn, gatewaytest.Did("anybody"))
			if callers == nil {
				return
			}
			for range bounds.PerAddress + 1 { // those that have proved who they are do not count as strangers
				if conn, status = upgrade(t, b, "127.0.0.1", nil); conn == nil {
					t.Fatalf("a caller that proves itself by its DID is refused with %d", status)
				}
				sumOver(t, b, conn, victim)
			}
		})
	}
}

// TestAttack_OneCallerTakesAllWebSockets is finding 6 by callers with an
// identity, proved by a certificate or by a DID: one had all WebSockets. Now it has
// a share, beyond which its own oldest at rest ends; several identities that hold all
// keep no other one out.
func TestAttack_OneCallerTakesAllWebSockets(t *testing.T) {
	t.Parallel()
	bounds := config.ConnectionBounds{Total: 16, PerCaller: 4, Unidentified: 16, PerAddress: 8}
	mallory := gatewaytest.Did("mallory")
	b := gatewaytest.NewFixture(t, gatewaytest.Plan{Serve: true, Config: config.Config{AINP: config.AINP{Callers: map[string]string{mallory.DID: memberID("mallory")}, Sockets: bounds}}})
	for i := range 6 {
		svid, waiting := b.SVID(t, "/mallory-"+strconv.Itoa(i)), []*websocket.Conn{}
		for range 12 {
			conn, status := upgrade(t, b, "127.0.0.2", svid)
			if conn == nil {
				t.Fatalf("an upgrade, where other connections rest: %d", status)
			}
			waiting = append(waiting, conn)
		}
		ended := 0
		for _, conn := range waiting[:len(waiting)-bounds.PerCaller] {
			ctx, cancel := context.WithTimeout(t.Context(), gatewaytest.Patience)
			if _, _, err := conn.Read(ctx); websocket.CloseStatus(err) == websocket.StatusTryAgainLater {
				ended++
			}
			cancel()
		}
		if ended != len(waiting)-bounds.PerCaller {
			t.Errorf("%d of %d connections of one caller have ended, want all but %d", ended, len(waiting), bounds.PerCaller)
		}
	}
	for range 6 { // by its DID, too
		conn, status := upgrade(t, b, "127.0.0.2", nil)
		if conn == nil {
			t.Fatalf("refused with %d before it said who it is", status)
		}
		sumOver(t, b, conn, mallory)
	}
	conn, status := upgrade(t, b, "127.0.0.1", b.Dev.Client)
	if conn == nil {
		t.Fatalf("another caller is refused with %d", status)
	}
	sumOver(t, b, conn, gatewaytest.Did("anybody"))
}
