package main

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

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/ect/identity"
	"github.com/aepb/aepb-gateway/gateway/config"
	"github.com/aepb/aepb-gateway/gateway/directory"
	tainp "github.com/aepb/aepb-gateway/gateway/transport/ainp"
	tuacp "github.com/aepb/aepb-gateway/gateway/transport/uacp"
	"github.com/aepb/aepb-gateway/translators"
	"github.com/aepb/aepb-gateway/translators/ainp"
	"github.com/aepb/aepb-gateway/translators/canonical"
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

func (b *bed) webHost(t *testing.T, who tainp.Identity) *webHost {
	t.Helper()
	h := &webHost{who: who}
	h.Server = httptest.NewUnstartedServer(h)
	h.TLS = serving(b.svid(t, "/web-host"))
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

// addressedTo is a signed envelope that asks for n + 1; without a recipient, if
// that is empty.
func addressedTo(t *testing.T, who tainp.Identity, recipient string, n int64) string {
	t.Helper()
	wire, _, err := ainp.New(translators.Config{}).Encode(&canonical.Message{
		Op: canonical.OpInvoke, Phase: canonical.PhaseRequest, Body: addition(n),
		Correlation: canonical.Correlation{WireID: json.RawMessage(`"` + string(ect.NewID()) + `"`)},
	}, translators.Target{Stamp: translators.Addressing{From: who.DID, To: recipient, At: time.Now()}})
	must(t, err)
	return string(signed(who, wire.Body, ainp.SigDraft))
}

// memberID is a workload that the agent "members" takes calls from.
func memberID(name string) string { return "spiffe://" + devTrustDomain + "/" + name }

// TestAttack_StrangerMakesUsFetchInternalAddress is finding 3. A stranger posted
// an AINP envelope whose sender was did:web:HOST:PATH, where HOST was a private
// address that is open to the gateway because a listed agent is there. The gateway
// fetched https://HOST/PATH/did.json with its own client certificate, before it
// knew who called. Now documents are fetched for DIDs that the configuration
// names, and without a certificate; all others are refused with one error.
func TestAttack_StrangerMakesUsFetchInternalAddress(t *testing.T) {
	t.Parallel()
	b := newBed(t, plan{serve: true})
	host := b.webHost(t, did("mallory"))
	b.listAs(t, "internal", b.dev.Client.ID, directory.Endpoint{Binding: ainp.Binding, URL: host.URL + "/ainp"})

	var refusals []string
	for _, who := range []tainp.Identity{
		host.did("127.0.0.1", ":internal:path:of:choice"), host.did("localhost", ""), did("mallory"),
		{DID: "did:web:%2", Key: did("mallory").Key},
		{DID: "did:example:mallory", Key: did("mallory").Key},
	} {
		for _, agent := range []string{"members", "internal", "does-not-exist"} {
			got := b.send(t, letter{via: b.anonymous, at: "/agents/" + agent + "/ainp", body: addressedTo(t, who, b.settings.ainp.DID, 1)})
			var said struct {
				Payload struct {
					Message string `json:"error_message"`
				} `json:"payload"`
			}
			must(t, json.Unmarshal(got.body, &said))
			refusals = append(refusals, strconv.Itoa(got.status)+" "+said.Payload.Message)
		}
	}
	for _, refusal := range refusals {
		if refusal != refusals[0] || !strings.HasPrefix(refusal, "401 ") {
			t.Errorf("strangers can tell apart %q and %q", refusals[0], refusal)
		}
	}
	got := b.send(t, letter{at: "/agents/members/ainp", body: addressedTo(t, host.did("127.0.0.1", ":x"), b.settings.ainp.DID, 1)})
	b.refusedAINP(t, got, http.StatusUnauthorized, "INVALID_SIGNATURE")
	if seen := host.seen(); len(seen) != 0 {
		t.Errorf("the gateway sent %q for callers whose DID is not configured", seen)
	}

	victim := host.did("127.0.0.1", ":victim")
	changed := b.settings.config
	changed.AINP.Callers = map[string]string{victim.DID: memberID("victim")}
	b.operate(changed)
	n := b.number()
	b.right(t, b.send(t, letter{via: b.anonymous, at: "/agents/members/ainp", body: addressedTo(t, victim, b.settings.ainp.DID, n)}), strconv.FormatInt(n+1, 10))
	if seen := host.seen(); len(seen) != 1 || seen[0] != "GET /victim/did.json without a certificate" {
		t.Errorf("for a configured caller the gateway sent %q", seen)
	}
}

// TestAttack_AgentMakesUsFetchInternalAddress is finding 3 from the other side: a
// listed agent signed its answer as did:web:HOST:PATH, and the gateway fetched
// that under its own certificate to check the signature.
func TestAttack_AgentMakesUsFetchInternalAddress(t *testing.T) {
	t.Parallel()
	b := newBed(t, plan{})
	host := b.webHost(t, did("mallory"))
	b.listAs(t, "internal", b.dev.Client.ID, directory.Endpoint{Binding: ainp.Binding, URL: host.URL + "/ainp"})
	b.ainpAgent(t, "mallory", &ainpFake{who: host.did("127.0.0.1", ":x")}, directory.Endpoint{})
	victim := host.did("127.0.0.1", ":victim")
	b.ainpAgent(t, "victim", &ainpFake{who: victim}, directory.Endpoint{DID: victim.DID})
	ask := func(agent string, n int64) reply {
		body := addBody(n)
		return b.send(t, letter{at: "/aepb/translate?from=a2a-v1&dest=" + agent, body: body, tokens: []string{b.token(t, body)}})
	}
	if got := ask("mallory", 1); got.status != http.StatusBadGateway {
		t.Errorf("an answer signed by an identity that is not configured: %d %s", got.status, short(got.body))
	}
	n := b.number()
	b.right(t, ask("victim", n), strconv.FormatInt(n+1, 10))
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
	alice := did("alice")
	b := newBed(t, plan{serve: true, config: config.Config{AINP: config.AINP{Callers: map[string]string{alice.DID: memberID("alice")}}}})
	post := func(via *http.Client, recipient string, n int64) reply {
		return b.send(t, letter{via: via, at: "/agents/members/ainp", body: addressedTo(t, alice, recipient, n)})
	}
	calls := len(b.tools.Received())
	b.refusedAINP(t, post(b.anonymous, "", 1), http.StatusForbidden, "UNAUTHORIZED")
	if len(b.tools.Received()) != calls {
		t.Error("the agent was called in the name of Alice")
	}
	n := b.number()
	b.right(t, post(b.anonymous, b.settings.ainp.DID, n), strconv.FormatInt(n+1, 10))
	n = b.number()
	b.right(t, post(b.caller(t, b.svid(t, "/alice")), "", n), strconv.FormatInt(n+1, 10)) // only she has her certificate
}

// from is a dialer that has an address of its own on this machine.
func from(address string) *net.Dialer {
	return &net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(address)}, Timeout: patience}
}

// uacpConfig is a client's configuration toward the µACP listener.
func (b *bed) uacpConfig(t *testing.T, who *identity.SVID) *tls.Config {
	t.Helper()
	conf := b.clientTLS(t, who)
	conf.NextProtos, conf.ServerName = []string{tuacp.Protocol}, "members.localhost"
	conf.InsecureSkipVerify = true // the test asks for agents by names that no certificate has
	return conf
}

// openUACP opens a connection to the µACP listener, and takes one answer to know
// that it is open.
func (b *bed) openUACP(t *testing.T, address string, who *identity.SVID) (*tls.Conn, error) {
	t.Helper()
	dialer := &tls.Dialer{NetDialer: from(address), Config: b.uacpConfig(t, who)}
	plain, err := dialer.DialContext(t.Context(), "tcp", strings.TrimPrefix(b.at.UACP, tuacp.Scheme+"://"))
	if err != nil {
		return nil, err
	}
	t.Cleanup(func() { _ = plain.Close() })
	conn, ok := plain.(*tls.Conn)
	if !ok {
		return nil, errors.New("no TLS")
	}
	must(t, conn.SetDeadline(time.Now().Add(patience)))
	_, err = b.addOver(t, conn)
	return conn, err
}

// addOver asks for a sum over a µACP connection.
func (b *bed) addOver(t *testing.T, conn *tls.Conn) (code byte, err error) {
	t.Helper()
	n := b.number()
	if err := writeFrameTo(conn, frameOf(t, uacp.FormBare, addition(n))); err != nil {
		return 0, err
	}
	body, err := readFrameOf(conn)
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
	b := newBed(t, plan{serve: true, config: config.Config{Listen: config.Listen{UACPConnections: bounds}}})
	for i := range 64 {
		plain, err := from("127.0.0."+strconv.Itoa(1+i%3)).DialContext(t.Context(), "tcp", strings.TrimPrefix(b.at.UACP, tuacp.Scheme+"://"))
		must(t, err)
		t.Cleanup(func() { _ = plain.Close() })
		if i%2 == 0 {
			continue // it says nothing at all
		}
		must(t, plain.SetDeadline(time.Now().Add(5*time.Second)))
		if _, err := tls.Client(plain, b.uacpConfig(t, nil)).Read(make([]byte, 1)); err == nil || os.IsTimeout(err) {
			t.Error("a connection without a certificate stays open")
		}
	}
	conn, err := b.openUACP(t, "127.0.0.1", b.dev.Client)
	if err != nil {
		t.Fatalf("a caller with a certificate is not served: %v", err)
	}
	if _, err := b.addOver(t, conn); err != nil {
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
	b := newBed(t, plan{serve: true, config: config.Config{Listen: config.Listen{UACPConnections: bounds}}})
	for i := range 6 {
		mallory := b.svid(t, "/mallory-"+strconv.Itoa(i))
		var held []*tls.Conn
		for range 24 {
			conn, err := b.openUACP(t, "127.0.0.2", mallory)
			if err != nil {
				t.Fatalf("a new connection, where others rest: %v", err)
			}
			held = append(held, conn)
		}
		newest, older := held[len(held)-1], held[:len(held)-1]
		if _, err := b.addOver(t, newest); err != nil { // who has its answer has been counted
			t.Errorf("its newest connection: %v", err)
		}
		within(t, listenWait, "one caller has no more connections than it may", func() bool { return stillOpen(older)+1 <= bounds.PerCaller })
	}
	if _, err := b.openUACP(t, "127.0.0.1", b.dev.Client); err != nil {
		t.Fatalf("another caller is not served: %v", err)
	}
}

// upgrade opens a WebSocket of the agent "members".
func (b *bed) upgrade(t *testing.T, address string, who *identity.SVID) (*websocket.Conn, int) {
	t.Helper()
	conf := b.clientTLS(t, who)
	conf.NextProtos = []string{"http/1.1"}
	transport := &http.Transport{TLSClientConfig: conf, DialContext: from(address).DialContext}
	t.Cleanup(transport.CloseIdleConnections)
	conn, response, err := websocket.Dial(t.Context(), "wss"+strings.TrimPrefix(b.at.Public, "https")+"/agents/members/ainp", &websocket.DialOptions{
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
func (b *bed) sumOver(t *testing.T, conn *websocket.Conn, who tainp.Identity) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	n := b.number()
	must(t, conn.Write(ctx, websocket.MessageText, []byte(addressedTo(t, who, b.settings.ainp.DID, n))))
	_, body, err := conn.Read(ctx)
	must(t, err)
	if !strings.Contains(string(body), strconv.FormatInt(n+1, 10)) {
		t.Errorf("a good call over a WebSocket got %s", short(body))
	}
}

// TestAttack_StrangersTakeAllWebSockets is finding 6. Strangers opened all
// WebSockets that there are and said nothing. Now an upgrade needs an identity
// that the connection proved; where callers are known by their DIDs, strangers
// have a number of their own, and a share for each address.
func TestAttack_StrangersTakeAllWebSockets(t *testing.T) {
	t.Parallel()
	bounds := config.ConnectionBounds{Total: 8, PerCaller: 4, Unidentified: 8, PerAddress: 2}
	victim := did("victim")
	for name, callers := range map[string]map[string]string{"no callers by DID": nil, "callers by DID": {victim.DID: memberID("victim")}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBed(t, plan{serve: true, config: config.Config{AINP: config.AINP{Callers: callers, Sockets: bounds}}})
			opened := map[int]int{}
			for i := range 24 {
				_, status := b.upgrade(t, "127.0.0."+strconv.Itoa(2+i%3), nil)
				opened[status]++
			}
			want := map[int]int{http.StatusUnauthorized: 24}
			if callers != nil {
				want = map[int]int{http.StatusSwitchingProtocols: 3 * bounds.PerAddress, http.StatusTooManyRequests: 24 - 3*bounds.PerAddress}
			}
			if len(opened) != len(want) || opened[http.StatusSwitchingProtocols] != want[http.StatusSwitchingProtocols] {
				t.Errorf("strangers' upgrades by status: %v, want %v", opened, want)
			}
			conn, status := b.upgrade(t, "127.0.0.1", b.dev.Client)
			if conn == nil {
				t.Fatalf("a caller with a certificate is refused with %d", status)
			}
			b.sumOver(t, conn, did("anybody"))
			if callers == nil {
				return
			}
			for range bounds.PerAddress + 1 { // those that have proved who they are do not count as strangers
				if conn, status = b.upgrade(t, "127.0.0.1", nil); conn == nil {
					t.Fatalf("a caller that proves itself by its DID is refused with %d", status)
				}
				b.sumOver(t, conn, victim)
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
	mallory := did("mallory")
	b := newBed(t, plan{serve: true, config: config.Config{AINP: config.AINP{Callers: map[string]string{mallory.DID: memberID("mallory")}, Sockets: bounds}}})
	for i := range 6 {
		svid, held := b.svid(t, "/mallory-"+strconv.Itoa(i)), []*websocket.Conn{}
		for range 12 {
			conn, status := b.upgrade(t, "127.0.0.2", svid)
			if conn == nil {
				t.Fatalf("an upgrade, where other connections rest: %d", status)
			}
			held = append(held, conn)
		}
		ended := 0
		for _, conn := range held[:len(held)-bounds.PerCaller] {
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			if _, _, err := conn.Read(ctx); websocket.CloseStatus(err) == websocket.StatusTryAgainLater {
				ended++
			}
			cancel()
		}
		if ended != len(held)-bounds.PerCaller {
			t.Errorf("%d of %d connections of one caller have ended, want all but %d", ended, len(held), bounds.PerCaller)
		}
	}
	for range 6 { // by its DID, too
		conn, status := b.upgrade(t, "127.0.0.2", nil)
		if conn == nil {
			t.Fatalf("refused with %d before it said who it is", status)
		}
		b.sumOver(t, conn, mallory)
	}
	conn, status := b.upgrade(t, "127.0.0.1", b.dev.Client)
	if conn == nil {
		t.Fatalf("another caller is refused with %d", status)
	}
	b.sumOver(t, conn, did("anybody"))
}
