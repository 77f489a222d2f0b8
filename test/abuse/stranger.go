package main

import (
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"net"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/coder/websocket"
	"github.com/google/uuid"

	"github.com/aepb/aepb-gateway/translators"
	"github.com/aepb/aepb-gateway/translators/ainp"
	"github.com/aepb/aepb-gateway/translators/canonical"
)

// What strangers do.
const (
	attackUnnamed = "unnamed"
	attackDIDWeb  = "did:web"
	attackIdle    = "idle"
	attackUACP    = "µacp"
	attackSocket  = "socket"
)

const (
	strangers   = 1000
	heldUACP    = 1200 // more than a gateway takes
	heldSockets = 1200
	heldIdle    = 600
)

// stranger is the address of one of them.
func stranger(n int) *net.TCPAddr {
	n %= strangers
	return &net.TCPAddr{IP: net.IPv4(127, 0, byte(1+n/250), byte(1+n%250))}
}

// strange are the attacks of those without a certificate.
func (a *attacker) strange() []attack {
	idle, frames, sockets := a.holder(heldIdle), a.holder(heldUACP*len(a.order.UACP)), a.holder(heldSockets*len(a.order.Public))
	return []attack{
		{attackUnnamed, 10 * time.Millisecond, 16, a.unnamed},
		{attackDIDWeb, 100 * time.Millisecond, 8, a.didWeb},
		{attackIdle, 25 * time.Millisecond, 32, func(ctx context.Context, n int) string { return a.idle(ctx, idle, n) }},
		{attackUACP, 10 * time.Millisecond, mostWorkers, func(ctx context.Context, n int) string { return a.frames(ctx, frames, n) }},
		{attackSocket, 10 * time.Millisecond, mostWorkers, func(ctx context.Context, n int) string { return a.sockets(ctx, sockets, n) }},
	}
}

// post sends a message as a stranger over a connection of its own.
func (a *attacker) post(ctx context.Context, n int, path, body string, header http.Header) string {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "https://"+a.order.Public[a.next()]+path, strings.NewReader(body))
	if err != nil {
		return classBroken
	}
	req.Header = header
	via := client(a.roots, stranger(n), n%2 == 0)
	defer via.CloseIdleConnections()
	resp, err := via.Do(req)
	if err != nil {
		return classOfError(err)
	}
	return classOfAnswer(resp)
}

// unnamed: finding 12.
func (a *attacker) unnamed(ctx context.Context, n int) string {
	header := a2aHeader()
	switch n % 3 {
	case 1:
		header.Set("Authorization", "Bearer "+uuid.NewString())
	case 2:
		header.Set("Workload-Identity-Token", "eyJhbGciOiJFUzI1NiJ9.e30."+uuid.NewString())
	}
	return a.post(ctx, n, "/agents/"+toolAgent+"/a2a", toolMessage(uuid.NewString(), howQuick, ""), header)
}

// didWeb: finding 3. The DID's document would be at the agents' server.
func (a *attacker) didWeb(ctx context.Context, n int) string {
	did := "did:web:" + strings.Replace(a.order.Agents, ":", "%3A", 1) + ":secret:" + strconv.Itoa(n)
	wire, _, err := ainp.New(translators.Config{}).Encode(&canonical.Message{
		Op: canonical.OpInvoke, Phase: canonical.PhaseRequest, Body: &canonical.Invoke{Call: &canonical.Call{Name: work, Args: json.RawMessage("{}")}},
		Correlation: canonical.Correlation{WireID: json.RawMessage(`"` + uuid.NewString() + `"`)},
	}, translators.Target{Stamp: translators.Addressing{From: did, At: time.Now()}})
	if err != nil {
		return classBroken
	}
	envelope, err := ainp.Open(wire.Body)
	if err != nil {
		return classBroken
	}
	text, err := envelope.Text()
	if err != nil {
		return classBroken
	}
	_, key, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		return classBroken
	}
	signed := envelope.WithSignature(base64.StdEncoding.EncodeToString(ed25519.Sign(key, text.SigningInput(ainp.SigDraft))))
	return a.post(ctx, n, "/agents/"+toolAgent+"/ainp", string(signed), http.Header{"Content-Type": {ainp.Media}})
}

// idle: finding 12.
func (a *attacker) idle(ctx context.Context, h *holder, n int) string {
	conn, err := dialTLS(ctx, a.order.Public[a.next()], a.roots, stranger(n))
	return held(h, conn, err)
}

// frames: finding 6.
func (a *attacker) frames(ctx context.Context, h *holder, n int) string {
	conn, err := dialUACP(ctx, a.order.UACP[a.next()], a.roots, stranger(n))
	return held(h, conn, err)
}

func held(h *holder, conn net.Conn, err error) string {
	if err != nil {
		return classOfError(err)
	}
	if !stays(conn) {
		_ = conn.Close()
		return classBroken
	}
	h.hold(func() { _ = conn.Close() })
	return classHeld
}

// sockets: finding 6.
func (a *attacker) sockets(ctx context.Context, h *holder, n int) string {
	via := client(a.roots, stranger(n), true)
	conn, resp, err := websocket.Dial(ctx, "wss://"+a.order.Public[a.next()]+"/agents/"+toolAgent+"/ainp", &websocket.DialOptions{HTTPClient: via})
	switch {
	case err != nil && resp != nil:
		via.CloseIdleConnections()
		return classOf(resp.StatusCode)
	case err != nil:
		return classOfError(err)
	}
	h.hold(func() { _ = conn.CloseNow() })
	return classHeld
}
