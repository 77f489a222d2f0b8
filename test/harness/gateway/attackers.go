package gatewaytest

import (
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/ect/ecttest"
	"github.com/aepb/aepb-gateway/ect/identity"
	"github.com/aepb/aepb-gateway/ect/identity/credential"
	"github.com/aepb/aepb-gateway/gateway/config"
	tainp "github.com/aepb/aepb-gateway/gateway/transport/ainp"
	"github.com/aepb/aepb-gateway/translators"
	"github.com/aepb/aepb-gateway/translators/ainp"
	"github.com/aepb/aepb-gateway/translators/canonical"
)

// ToolCall is a call of a tool of an agent of MCP by a caller of MCP, who sends it again until it is approved.
func ToolCall(agent, tool, arguments string) HTTPRequest {
	return HTTPRequest{At: "/agents/" + agent + "/mcp", Body: ModernCall(tool, arguments), Header: Mirror("tools/call", tool)}
}

// ToMembers is the way to an agent that every workload of the trust domain may call.
const ToMembers = "/aepb/translate?from=a2a-v1&dest=members"

// ManyRequests lets a flood pass the request limits, which are not what is tried here.
func ManyRequests() config.Limits { return config.Limits{Rate: 100_000, Burst: 100_000} }

// Hooked has an agent do something that takes a while, of which a webhook is told.
func (b *Fixture) Hooked(t *testing.T, agent, hook, more string) Reply {
	t.Helper()
	body := strings.Replace(AddBody(b.Number()), `"params":{`, `"params":{"configuration":{"returnImmediately":true,"taskPushNotificationConfig":{"url":"`+hook+`"`+more+`}},`, 1)
	return b.Send(t, HTTPRequest{At: "/agents/" + agent + "/a2a", Body: body, Header: map[string]string{"A2A-Version": "1.0"}})
}

// AddressedTo is a signed envelope that asks for n + 1; without a recipient, if
// that is empty.
func AddressedTo(t *testing.T, who tainp.Identity, recipient string, n int64) string {
	t.Helper()
	wire, _, err := ainp.New(translators.Config{}).Encode(&canonical.Message{
		Op: canonical.OpInvoke, Phase: canonical.PhaseRequest, Body: Addition(n),
		Correlation: canonical.Correlation{WireID: json.RawMessage(`"` + string(ect.NewRandomID()) + `"`)},
	}, translators.Target{Stamp: translators.Addressing{From: who.DID, To: recipient, At: time.Now()}})
	Must(t, err)
	return string(Signed(who, wire.Body, ainp.SigDraft))
}

// ClientOf is a client that shows a new certificate of a path, and who mints its tokens. An error ends the test.
func (b *Fixture) ClientOf(t *testing.T, path string) (*http.Client, *ecttest.Party) {
	t.Helper()
	svid := Issue(t, b.Dev.Authority, path, NoNames())
	return b.Caller(t, svid), b.Party(t, svid)
}

// A2ATo is a message of A2A to an agent.
func A2ATo(via *http.Client, agent, body string) HTTPRequest {
	return HTTPRequest{Via: via, At: "/agents/" + agent + "/a2a", Body: body, Header: map[string]string{"A2A-Version": "1.0"}}
}

// Streamed is an A2A message whose answer is a stream, which leaves a task behind.
func Streamed(body string) string {
	return strings.Replace(body, "SendMessage", "SendStreamingMessage", 1)
}

// InitializeBody is the request that begins a session of MCP of 2025-06-18.
const InitializeBody = `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"c","version":"1"}}}`

// Initialize begins an MCP session and returns its id.
func (b *Fixture) Initialize(t *testing.T, via *http.Client, agent string) string {
	t.Helper()
	got := b.Send(t, HTTPRequest{Via: via, At: "/agents/" + agent + "/mcp", Body: InitializeBody, Header: map[string]string{"Accept": "application/json, text/event-stream"}})
	id := got.Header.Get("Mcp-Session-Id")
	if got.Status != http.StatusOK || id == "" {
		t.Fatalf("initialize: %d %s", got.Status, got.Body)
	}
	return id
}

// Attacker is an identity of the trust domain that has no part in the work which it
// attacks.
type Attacker struct {
	*Fixture
	Party  *ecttest.Party
	Client *http.Client
}

// Attacker is one with a certificate of its own, /attacker. An error ends the test.
func (b *Fixture) Attacker(t *testing.T) Attacker {
	t.Helper()
	svid := b.SVID(t, "/attacker")
	return Attacker{b, b.Party(t, svid), b.Caller(t, svid)}
}

// Get asks for a path and returns the status.
func (a Attacker) Get(t *testing.T, path string) int {
	t.Helper()
	return a.Send(t, HTTPRequest{Via: a.Client, Method: http.MethodGet, Media: "-", At: path}).Status
}

// Plant sends a translate-only message with a token of the attacker's own.
func (a Attacker) Plant(t *testing.T, c ect.Claims) Reply {
	t.Helper()
	body := AddBody(a.Number())
	c.Audience, c.OutputHash = []string{a.Self()}, ect.Hash([]byte(body))
	return a.Send(t, HTTPRequest{Via: a.Client, At: ToNobody, Body: body, Tokens: []string{ecttest.Mint(t, a.Party, ecttest.Recipe{Claims: c})}})
}

// Work is a workflow of the development client's: the claims of the two legs.
func (b *Fixture) Work(t *testing.T) []ect.Claims {
	t.Helper()
	n := b.Number()
	got := b.Send(t, b.Sealed(t, HTTPRequest{Body: AddBody(n)}))
	b.Right(t, got, `"sum":`+strconv.FormatInt(n+1, 10))
	return b.Proofs(t, got)
}

// TokenKey signs JWT-SVIDs of the development trust domain.
type TokenKey struct{ *ecdsa.PrivateKey }

// NewTokenKey has the gateway trust a new key for JWT-SVIDs.
func (b *Fixture) NewTokenKey(t *testing.T) TokenKey {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	Must(t, err)
	text, err := b.Dev.Bundle.MarshalJWKS()
	Must(t, err)
	var document struct {
		Keys []json.RawMessage `json:"keys"`
	}
	Must(t, json.Unmarshal(text, &document))
	point, err := key.PublicKey.Bytes()
	Must(t, err)
	document.Keys = append(document.Keys, json.RawMessage(fmt.Sprintf(`{"kty":"EC","crv":"P-256","use":"jwt-svid","kid":"k","x":%q,"y":%q}`,
		base64.RawURLEncoding.EncodeToString(point[1:33]), base64.RawURLEncoding.EncodeToString(point[33:]))))
	text, err = json.Marshal(document)
	Must(t, err)
	bundle, err := identity.ParseBundle(TrustDomain, text)
	Must(t, err)
	b.Conf.Identity.Bundle.Trust(bundle)
	return TokenKey{key}
}

// Token is a JWT-SVID of sub for the audience aud, signed with ES256, which expires after life; a negative life makes
// one that has expired. An error ends the test.
func (k TokenKey) Token(t *testing.T, sub, aud string, life time.Duration) string {
	t.Helper()
	claims := fmt.Sprintf(`{"sub":%q,"aud":%q,"exp":%d}`, sub, aud, time.Now().Add(life).Unix())
	input := base64.RawURLEncoding.EncodeToString([]byte(`{"alg":"ES256","typ":"JWT","kid":"k"}`)) + "." + base64.RawURLEncoding.EncodeToString([]byte(claims))
	sum := sha256.Sum256([]byte(input))
	r, s, err := ecdsa.Sign(rand.Reader, k.PrivateKey, sum[:])
	Must(t, err)
	signature := make([]byte, 64)
	r.FillBytes(signature[:32])
	s.FillBytes(signature[32:])
	return input + "." + base64.RawURLEncoding.EncodeToString(signature)
}

// WitCaller is a caller with a workload identity token of another trust domain.
type WitCaller struct {
	issuer, own ed25519.PrivateKey
	ID          string
}

// NewWITCaller makes a caller with new keys and adds the file with the key of its issuer, which the gateway is to
// trust, to the configuration. An error ends the test.
func NewWITCaller(t *testing.T, c *config.Config) WitCaller {
	t.Helper()
	var w WitCaller
	var err error
	_, w.issuer, err = ed25519.GenerateKey(rand.Reader)
	Must(t, err)
	_, w.own, err = ed25519.GenerateKey(rand.Reader)
	Must(t, err)
	w.ID = "spiffe://other.example/a"
	file := filepath.Join(t.TempDir(), "issuer.json")
	Must(t, os.WriteFile(file, []byte(`{"keys":[`+edJWK(w.issuer, "issuer")+`]}`), 0o600))
	c.Identity.Issuers = map[string]string{"other.example": file}
	return w
}

func edJWK(key ed25519.PrivateKey, id string) string {
	public, _ := key.Public().(ed25519.PublicKey)
	return `{"kty":"OKP","crv":"Ed25519","alg":"EdDSA","kid":"` + id + `","x":"` + base64.RawURLEncoding.EncodeToString(public) + `"}`
}

func edToken(key ed25519.PrivateKey, header, payload string) string {
	input := base64.RawURLEncoding.EncodeToString([]byte(header)) + "." + base64.RawURLEncoding.EncodeToString([]byte(payload))
	return input + "." + base64.RawURLEncoding.EncodeToString(ed25519.Sign(key, []byte(input)))
}

// Token says who the caller is.
func (w WitCaller) Token() string { return w.TokenUntil(time.Now().Add(time.Hour)) }

// TokenUntil is a token that says who the caller is and expires at end. It was issued a minute ago.
func (w WitCaller) TokenUntil(end time.Time) string {
	now := time.Now().Unix()
	return edToken(w.issuer, `{"alg":"EdDSA","typ":"wit+jwt","kid":"issuer"}`,
		fmt.Sprintf(`{"iss":"https://other.example","sub":%q,"iat":%d,"exp":%d,"jti":"x","cnf":{"jwk":%s}}`, w.ID, now-60, end.Unix(), edJWK(w.own, "own")))
}

// Fields are the header of a request to a URL.
func (w WitCaller) Fields(token, target string) map[string]string {
	now := time.Now().Unix()
	proof := edToken(w.own, `{"alg":"EdDSA","typ":"wpt+jwt"}`,
		fmt.Sprintf(`{"aud":%q,"iat":%d,"exp":%d,"jti":%q,"wth":%q}`, target, now, now+60, ect.NewID(), ect.Hash([]byte(token))))
	return map[string]string{credential.IdentityField: token, credential.ProofField: proof, "A2A-Version": "1.0"}
}
