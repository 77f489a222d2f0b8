package e2e

import (
	"context"
	"crypto/ed25519"
	"crypto/sha256"
	"crypto/tls"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	tainp "github.com/aepb/aepb-gateway/gateway/transport/ainp"
	tuacp "github.com/aepb/aepb-gateway/gateway/transport/uacp"
	"github.com/aepb/aepb-gateway/test/harness/wait"
	"github.com/aepb/aepb-gateway/test/interop/devgateway"
	"github.com/aepb/aepb-gateway/translators/uacp"
)

// dialect is how the agent's tool is called over one protocol, by hand.
type dialect struct {
	protocol string
	call     func(ctx context.Context, r *replica, agent, message string) (answer, error)
	// draining and retired are what the protocol's own error holds, gone is the status of the
	// latter: µACP has no word for it.
	draining, retired []string
	gone              int
	http              bool // its answers have headers that advise
}

// dialects are all protocols that a gateway without a SLIM node is spoken to in, and SLIM's
// messages over HTTP.
func (f *fleet) dialects(t *testing.T) []dialect {
	t.Helper()
	_, key, err := ed25519.GenerateKey(nil)
	must(t, err)
	svid, err := f.trust.SVID("client")
	must(t, err)
	minter, err := devgateway.NewMinterOf(svid, f.trust.GatewayID())
	must(t, err)
	post := func(path string, header http.Header, body func(message string) string) func(context.Context, *replica, string, string) (answer, error) {
		return func(ctx context.Context, r *replica, agent, message string) (answer, error) {
			return ask(ctx, f.caller, http.MethodPost, r.Process.Public+"/agents/"+agent+path, body(message), header)
		}
	}
	draining, retired := `"code":"draining","status":503,"successor":"`+f.successor, `"code":"retired","status":410,"successor":"`+f.successor
	return []dialect{
		{"A2A", post("/a2a", http.Header{"A2A-Version": {"1.0"}}, a2aCall), []string{draining, `"retryDelay":"`}, []string{retired}, http.StatusGone, true},
		{"MCP", post("/mcp", mcpHeader(), mcpCall), []string{draining, `"retryAfterMs":`}, []string{retired}, http.StatusGone, true},
		{"AINP", post("/ainp", nil, func(message string) string { return ainpCall(key, message) }), []string{draining, `"retry_after_ms":`}, []string{retired}, http.StatusGone, true},
		{"µACP", func(ctx context.Context, r *replica, agent, message string) (answer, error) {
			return uacpCall(ctx, f.trust, svid, r.uacp, agent, `{"aepb":{"id":42},"body":`+uacpBody(message)+`}`)
		}, []string{draining, `"retry_after_ns":`}, []string{retired}, http.StatusServiceUnavailable, false},
		{"bare µACP", func(ctx context.Context, r *replica, agent, message string) (answer, error) {
			return uacpCall(ctx, f.trust, svid, r.uacp, agent, uacpBody(message))
		}, []string{"is draining", f.successor}, []string{"is retired", f.successor}, http.StatusServiceUnavailable, false},
		{"SLIM over HTTP", func(ctx context.Context, r *replica, agent, message string) (answer, error) {
			for body := a2aCall(message); ; { // a store that has just begun cannot exclude at once that a token was used
				token, err := minter.Mint(body, uuid.NewString(), time.Hour)
				if err != nil {
					return answer{}, err
				}
				got, err := ask(ctx, f.caller, http.MethodPost, r.Process.Public+"/aepb/translate?from=slim-v1&dest="+agent, body, http.Header{"Execution-Context": {token}})
				if err != nil || !strings.Contains(got.body, "a replay cannot be excluded") || !wait.Pause(ctx, 100*time.Millisecond) {
					return got, err
				}
			}
		}, []string{`"code":"draining"`}, []string{`"code":"retired"`}, http.StatusGone, true},
	}
}

func quoted(text string) string {
	out, _ := json.Marshal(text) // a string has a form in JSON
	return string(out)
}

func a2aCall(message string) string {
	return `{"jsonrpc":"2.0","id":"1","method":"SendMessage","params":{"message":{"messageId":` + quoted(uuid.NewString()) +
		`,"role":"ROLE_USER","parts":[{"data":{"skill":"work","input":{"message":` + quoted(message) + `}}}]}}}`
}

func mcpHeader() http.Header {
	return http.Header{
		"Accept": {"application/json, text/event-stream"}, "Mcp-Protocol-Version": {"2026-07-28"}, "Mcp-Method": {"tools/call"}, "Mcp-Name": {"work"},
	}
}

func mcpCall(message string) string {
	return `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"work","arguments":{"message":` + quoted(message) +
		`},"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}}}`
}

// ainpCall is written in the order of RFC 8785, so that what is signed is what is sent.
func ainpCall(key ed25519.PrivateKey, message string) string {
	public, _ := key.Public().(ed25519.PublicKey)
	now, err := json.Marshal(time.Now().UnixMilli())
	if err != nil {
		return ""
	}
	id := quoted(uuid.NewString())
	head := `{"from_did":` + quoted(tainp.KeyDID(public)) + `,"id":` + id + `,"msg_type":"INTENT","payload":{"@context":"https://ainp.dev/contexts/request-service/v1"` +
		`,"@type":"RequestService","semantics":{"details":{"message":` + quoted(message) + `},"service_type":"work"},"version":"1.0.0"},` +
		`"qos":{"bid":0,"ethicalWeight":0.5,"importance":0.5,"novelty":0.5,"urgency":0.5},"schema":"https://ainp.dev/schemas/intents/request-service/v1",`
	tail := `"timestamp":` + string(now) + `,"trace_id":` + id + `,"ttl":60000,"version":"0.1.0"}`
	sum := sha256.Sum256([]byte(head + tail))
	return head + `"sig":"` + base64.StdEncoding.EncodeToString(ed25519.Sign(key, sum[:])) + `",` + tail
}

// uacpBody is a call as MCP says it, which µACP carries.
func uacpBody(message string) string {
	return strings.Replace(mcpCall(message), `"id":1`, `"id":42`, 1)
}

// uacpCall makes a call over a µACP connection of its own.
func uacpCall(ctx context.Context, trust *devgateway.Trust, svid tls.Certificate, at, agent, payload string) (answer, error) {
	const asJSON = 1
	frame, err := uacp.Frame{Verb: uacp.Ask, QoS: 1, ID: 42, Payload: []byte(payload), Options: []uacp.Option{
		{Type: uacp.OptTopic, Value: []byte(uacp.TopicCall)}, {Type: uacp.OptContentType, Value: binary.BigEndian.AppendUint32(nil, asJSON)},
	}}.Bytes()
	if err != nil {
		return answer{}, err
	}
	conn, err := (&tls.Dialer{Config: &tls.Config{
		RootCAs: trust.Roots(), Certificates: []tls.Certificate{svid}, MinVersion: tls.VersionTLS13, NextProtos: []string{tuacp.Protocol},
		ServerName: agent + ".localhost", InsecureSkipVerify: true, // the name of an agent is in no certificate
	}}).DialContext(ctx, "tcp", at)
	if err != nil {
		return answer{}, err
	}
	defer func() { _ = conn.Close() }()
	defer context.AfterFunc(ctx, func() { _ = conn.Close() })()
	if _, err := conn.Write(append(binary.BigEndian.AppendUint16(nil, uint16(len(frame))), frame...)); err != nil {
		return answer{}, err
	}
	var head [2]byte
	if _, err := io.ReadFull(conn, head[:]); err != nil {
		return answer{}, err
	}
	reply := make([]byte, binary.BigEndian.Uint16(head[:]))
	if _, err := io.ReadFull(conn, reply); err != nil {
		return answer{}, err
	}
	parsed, err := uacp.ParseFrame(reply)
	return answer{status: int(parsed.Code>>6)*100 + 300 + int(parsed.Code&63), body: string(reply)}, err
}
