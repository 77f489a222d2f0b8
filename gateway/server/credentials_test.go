package server_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"maps"
	"math/big"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/aepb/aepb-gateway/gateway/config"
	gatewaytest "github.com/aepb/aepb-gateway/test/harness/gateway"
)

// The secrets of these tests. None may be in anything that the gateway writes.
const (
	shownHeader   = "sesame-header-7788"
	shownBearer   = "sesame-bearer-7788"
	shownPassword = "sesame-password-7788"
	shownClient   = "sesame-client-7788"
	shownToken    = "sesame-token-7788-" // and a number
	shownSecrets  = "sesame-"
)

// demanding is an agent over TLS that refuses with 401 what shows no credential.
type demanding struct {
	URL     string
	refused atomic.Int64
	taken   atomic.Int64
}

// front puts a server over TLS before an agent, which lets through what is admitted.
func front(t *testing.T, b *gatewaytest.Fixture, to string, admits func(*http.Request) bool) *demanding {
	t.Helper()
	at, err := url.Parse(to)
	gatewaytest.Must(t, err)
	through := httputil.NewSingleHostReverseProxy(&url.URL{Scheme: at.Scheme, Host: at.Host})
	through.Transport, through.FlushInterval = b.Caller(t, b.Dev.Client).Transport, -1
	d := &demanding{}
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !admits(r) {
			d.refused.Add(1)
			w.Header().Set("WWW-Authenticate", "Bearer")
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		d.taken.Add(1)
		r.Header.Del("Authorization")
		through.ServeHTTP(w, r)
	}))
	server.TLS = gatewaytest.Serving(b.SVID(t, "/front"))
	server.TLS.ClientAuth = tls.RequestClientCert
	server.StartTLS()
	t.Cleanup(server.Close)
	d.URL = server.URL + at.Path
	return d
}

// issuing is a token endpoint over TLS.
type issuing struct {
	URL    string
	mu     sync.Mutex
	forms  []url.Values
	issued int
}

func issuer(t *testing.T, b *gatewaytest.Fixture, admits func(*http.Request) error) *issuing {
	t.Helper()
	i := &issuing{}
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		if err := r.ParseForm(); err != nil || admits(r) != nil {
			t.Errorf("the token endpoint refuses: %v %v", err, admits(r))
			w.WriteHeader(http.StatusUnauthorized)
			_, _ = io.WriteString(w, `{"error":"invalid_client"}`)
			return
		}
		i.mu.Lock()
		defer i.mu.Unlock()
		i.issued++
		i.forms = append(i.forms, r.Form)
		_, _ = fmt.Fprintf(w, `{"access_token":"%s%d","token_type":"Bearer","expires_in":3600}`, shownToken, i.issued)
	}))
	server.TLS = gatewaytest.Serving(b.SVID(t, "/issuer"))
	server.StartTLS()
	t.Cleanup(server.Close)
	i.URL = server.URL + "/token"
	return i
}

func (i *issuing) latest() string {
	i.mu.Lock()
	defer i.mu.Unlock()
	return "Bearer " + shownToken + fmt.Sprint(i.issued)
}

func secretFile(t *testing.T, text string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "secret")
	gatewaytest.Must(t, os.WriteFile(file, []byte(text+"\n"), 0o600))
	return file
}

// keyFile is a new key in a file.
func keyFile(t *testing.T) (string, *ecdsa.PrivateKey) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	gatewaytest.Must(t, err)
	der, err := x509.MarshalPKCS8PrivateKey(key)
	gatewaytest.Must(t, err)
	return secretFile(t, string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}))), key
}

// lists puts agents with credentials in force.
func lists(t *testing.T, b *gatewaytest.Fixture, agents map[string]config.Agent) {
	t.Helper()
	c := b.Settings()
	c.Agents = maps.Clone(c.Agents)
	maps.Copy(c.Agents, agents)
	gatewaytest.Must(t, b.Reload(t.Context(), c))
}

func overMCP(at string, c *config.Credential) config.Agent {
	return config.Agent{Endpoints: []config.Endpoint{{Binding: "mcp-v1", URL: at}}, Credential: c, Callers: []string{"spiffe://aepb.dev/*"}}
}

// adds calls an MCP server through the gateway.
func adds(t *testing.T, b *gatewaytest.Fixture, agent string) gatewaytest.Reply {
	t.Helper()
	n := b.Number()
	got := b.Send(t, b.Sealed(t, gatewaytest.HTTPRequest{At: "/aepb/translate?from=a2a-v1&dest=" + agent, Body: gatewaytest.AddBody(n)}))
	b.Right(t, got, `"sum":`+fmt.Sprint(n+1))
	return got
}

// wrote is all that the gateway has written and says.
func wrote(t *testing.T, b *gatewaytest.Fixture) string {
	t.Helper()
	var all strings.Builder
	all.WriteString(b.Logs.String())
	for _, at := range []string{"/api/agents", "/api/agents/shown", "/api/breakers"} {
		all.Write(b.Send(t, b.Operator(http.MethodGet, at, "", nil)).Body)
	}
	_, metrics := b.Monitor(t, "/metrics", "")
	all.WriteString(metrics)
	all.Write(b.Send(t, gatewaytest.HTTPRequest{Method: http.MethodGet, At: "/.well-known/atd/capabilities", Media: "-"}).Body)
	gatewaytest.Must(t, filepath.WalkDir(b.Dir, func(file string, entry os.DirEntry, err error) error {
		if err == nil && !entry.IsDir() {
			text, err := os.ReadFile(file)
			all.Write(text)
			return err
		}
		return err
	}))
	return all.String()
}

// quiet demands that no secret is in what the gateway has written and answered.
func quiet(t *testing.T, b *gatewaytest.Fixture, answers ...gatewaytest.Reply) {
	t.Helper()
	texts := []string{wrote(t, b)}
	for _, got := range answers {
		texts = append(texts, fmt.Sprint(got.Header), string(got.Body))
		for _, compact := range got.Header.Values("Execution-Context") {
			for part := range strings.SplitSeq(compact, ".") {
				text, _ := base64.RawURLEncoding.DecodeString(part)
				texts = append(texts, string(text))
			}
		}
	}
	for _, text := range texts {
		if i := strings.Index(text, shownSecrets); i >= 0 {
			t.Errorf("a secret is in: %q", text[max(0, i-200):min(len(text), i+60)])
		}
	}
}

func withState(t *testing.T) gatewaytest.Plan {
	t.Helper()
	return gatewaytest.Plan{Config: config.Config{State: config.State{Path: filepath.Join(t.TempDir(), "state.db")}}}
}

func TestCredentials_OfEachKind(t *testing.T) {
	t.Parallel()
	p := withState(t)
	b := gatewaytest.NewFixture(t, p)
	field := func(name, value string) func(*http.Request) bool {
		return func(r *http.Request) bool { return r.Header.Get(name) == value }
	}
	other := b.SVID(t, "/another-client")
	der, err := x509.MarshalPKCS8PrivateKey(other.Key)
	gatewaytest.Must(t, err)
	certificate := secretFile(t, string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: other.Chain[0].Raw})))
	key := secretFile(t, string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der})))
	var answers []gatewaytest.Reply
	for name, tc := range map[string]struct {
		admits     func(*http.Request) bool
		credential config.Credential
		kind       string
	}{
		"header":  {field("X-Api-Key", shownHeader), config.Credential{Header: &config.CredentialHeader{Name: "x-api-key", ValueFile: secretFile(t, shownHeader)}}, "header"},
		"bearer":  {field("Authorization", "Bearer "+shownBearer), config.Credential{Bearer: &config.CredentialBearer{TokenFile: secretFile(t, shownBearer)}}, "bearer"},
		"command": {field("Authorization", "Bearer "+shownBearer), config.Credential{Bearer: &config.CredentialBearer{Command: []string{"cat", secretFile(t, shownBearer)}}}, "bearer"},
		"basic": {
			func(r *http.Request) bool {
				user, password, _ := r.BasicAuth()
				return user == "gw" && password == shownPassword
			},
			config.Credential{Basic: &config.CredentialBasic{User: "gw", PasswordFile: secretFile(t, shownPassword)}},
			"basic",
		},
		"certificate": {
			func(r *http.Request) bool {
				return len(r.TLS.PeerCertificates) > 0 && r.TLS.PeerCertificates[0].Equal(other.Chain[0])
			},
			config.Credential{Certificate: &config.CredentialCertificate{CertFile: certificate, KeyFile: key}},
			"certificate",
		},
	} {
		mcp, a2a := front(t, b, b.Tools.URL(), tc.admits), front(t, b, b.Talker.URL(), tc.admits)
		bare := overMCP(mcp.URL, nil)
		lists(t, b, map[string]config.Agent{"bare": bare})
		if got := b.Send(t, b.Sealed(t, gatewaytest.HTTPRequest{At: "/aepb/translate?from=a2a-v1&dest=bare", Body: gatewaytest.AddBody(b.Number())})); got.Status < 500 {
			t.Errorf("%s: without a credential: %d %s", name, got.Status, got.Body)
		}
		mcp.refused.Store(0)
		talker := overMCP(a2a.URL, &tc.credential)
		talker.Endpoints[0].Binding = "a2a-v1"
		lists(t, b, map[string]config.Agent{"bare": bare, "shown": overMCP(mcp.URL, &tc.credential), "talker": talker})
		answers = append(answers, adds(t, b, "shown"))
		for _, version := range []string{"2025-06-18"} { // a session: initialize, its GET and DELETE
			pinned := overMCP(mcp.URL, &tc.credential)
			pinned.Revision = version
			lists(t, b, map[string]config.Agent{"pinned": pinned})
			answers = append(answers, adds(t, b, "pinned"))
		}
		word := "word-" + fmt.Sprint(b.Number())
		got := b.Send(t, gatewaytest.HTTPRequest{At: "/agents/talker/mcp", Body: gatewaytest.CallBody("concierge", word), Header: gatewaytest.Mirror("tools/call", "concierge")})
		b.Right(t, got, "You said: "+word)
		answers = append(answers, got)
		if n, m := mcp.refused.Load(), a2a.refused.Load(); n+m != 0 {
			t.Errorf("%s: %d and %d requests without it", name, n, m)
		}
		var doc struct{ Credential struct{ Kind string } }
		gatewaytest.Must(t, json.Unmarshal(b.Send(t, b.Operator(http.MethodGet, "/api/agents/shown", "", nil)).Body, &doc))
		if doc.Credential.Kind != tc.kind {
			t.Errorf("%s: the admin API says %q", name, doc.Credential.Kind)
		}
	}
	quiet(t, b, answers...)
	b.Stop()
	state, err := os.ReadFile(p.Config.State.Path)
	gatewaytest.Must(t, err)
	if strings.Contains(string(state), shownSecrets) {
		t.Error("a secret is in the state file")
	}
}

// assertion is what of a client assertion is judged (RFC 7523, section 3).
type assertion struct {
	Alg string   `json:"alg"`
	X5c [][]byte `json:"x5c"`
	Iss string   `json:"iss"`
	Sub string   `json:"sub"`
	Aud string   `json:"aud"`
	Jti string   `json:"jti"`
	Exp int64    `json:"exp"`
}

// assertedBy judges a client assertion: its client, audience, times and key, which key finds.
func assertedBy(r *http.Request, client, audience string, key func(assertion) (*ecdsa.PublicKey, error)) error {
	parts := strings.Split(r.Form.Get("client_assertion"), ".")
	if len(parts) != 3 || r.Form.Get("client_assertion_type") != "urn:ietf:params:oauth:client-assertion-type:jwt-bearer" || r.Form.Get("client_id") != client {
		return fmt.Errorf("no assertion: %v", r.Form)
	}
	var got assertion
	for _, part := range parts[:2] {
		text, err := base64.RawURLEncoding.DecodeString(part)
		if err == nil {
			err = json.Unmarshal(text, &got)
		}
		if err != nil {
			return err
		}
	}
	public, err := key(got)
	if err != nil {
		return err
	}
	signature, err := base64.RawURLEncoding.DecodeString(parts[2])
	if err != nil || len(signature) != 64 {
		return fmt.Errorf("a signature of %d bytes: %w", len(signature), err)
	}
	digest := sha256.Sum256([]byte(parts[0] + "." + parts[1]))
	left := time.Until(time.Unix(got.Exp, 0))
	if !ecdsa.Verify(public, digest[:], new(big.Int).SetBytes(signature[:32]), new(big.Int).SetBytes(signature[32:])) || got.Alg != "ES256" ||
		got.Iss != client || got.Sub != client || got.Aud != audience || got.Jti == "" || left <= 0 || left > 2*time.Minute {
		return fmt.Errorf("not as it should be: %+v", got)
	}
	return nil
}

func TestCredentials_ByOAuth(t *testing.T) {
	t.Parallel()
	p := withState(t)
	b := gatewaytest.NewFixture(t, p)
	private, signer := keyFile(t)
	var at string // of the token endpoint
	var answers []gatewaytest.Reply
	for name, tc := range map[string]struct {
		oauth  config.CredentialOAuth
		admits func(*http.Request) error
	}{
		"secret": {config.CredentialOAuth{ClientID: "gw:1", SecretFile: secretFile(t, shownClient), Scopes: []string{"read", "write"}, Resource: []string{"https://agent.test/"}}, func(r *http.Request) error {
			if user, password, _ := r.BasicAuth(); user != "gw%3A1" || password != shownClient || r.Form.Get("scope") != "read write" || r.Form.Get("resource") != "https://agent.test/" {
				return fmt.Errorf("%s %v", user, r.Form)
			}
			return nil
		}},
		"secret in the body": {config.CredentialOAuth{ClientID: "gw", SecretFile: secretFile(t, shownClient), ClientAuth: "post"}, func(r *http.Request) error {
			if r.Form.Get("client_id") != "gw" || r.Form.Get("client_secret") != shownClient || r.Header.Get("Authorization") != "" {
				return fmt.Errorf("%v", r.Form)
			}
			return nil
		}},
		"key": {config.CredentialOAuth{ClientID: "gw", KeyFile: private}, func(r *http.Request) error {
			return assertedBy(r, "gw", at, func(assertion) (*ecdsa.PublicKey, error) { return &signer.PublicKey, nil })
		}},
		"SVID": {config.CredentialOAuth{SVID: true}, func(r *http.Request) error {
			return assertedBy(r, b.Self(), at, func(got assertion) (*ecdsa.PublicKey, error) {
				leaf, err := x509.ParseCertificate(got.X5c[0])
				if err != nil || !leaf.Equal(b.Dev.Gateway.Chain[0]) {
					return nil, fmt.Errorf("another certificate: %w", err)
				}
				public, _ := leaf.PublicKey.(*ecdsa.PublicKey)
				return public, nil
			})
		}},
	} {
		as := issuer(t, b, tc.admits)
		at = as.URL
		agent := front(t, b, b.Tools.URL(), func(r *http.Request) bool { return r.Header.Get("Authorization") == as.latest() })
		tc.oauth.TokenURL = as.URL
		lists(t, b, map[string]config.Agent{"shown": overMCP(agent.URL, &config.Credential{OAuth: &tc.oauth})})
		answers = append(answers, adds(t, b, "shown"), adds(t, b, "shown"))
		as.mu.Lock()
		if len(as.forms) != 1 || as.forms[0].Get("grant_type") != "client_credentials" || agent.refused.Load() != 0 {
			t.Errorf("%s: %d tokens, %d refused", name, len(as.forms), agent.refused.Load())
		}
		as.mu.Unlock()
		var doc struct {
			Credential struct{ Kind, Ends, Error string }
		}
		gatewaytest.Must(t, json.Unmarshal(b.Send(t, b.Operator(http.MethodGet, "/api/agents/shown", "", nil)).Body, &doc))
		if doc.Credential.Kind != "oauth" || doc.Credential.Ends == "" || doc.Credential.Error != "" {
			t.Errorf("%s: the admin API says %+v", name, doc.Credential)
		}
	}
	quiet(t, b, answers...)
}

// TestCredentials_EndpointDown: the caller reads what is missing, and no secret.
func TestCredentials_EndpointDown(t *testing.T) {
	t.Parallel()
	b := gatewaytest.NewFixture(t, withState(t))
	agent := front(t, b, b.Tools.URL(), func(*http.Request) bool { return false })
	lists(t, b, map[string]config.Agent{"shown": overMCP(agent.URL, &config.Credential{OAuth: &config.CredentialOAuth{
		TokenURL: "https://127.0.0.1:1/token", ClientID: "gw", SecretFile: secretFile(t, shownClient),
	}})})
	got := b.Send(t, b.Sealed(t, gatewaytest.HTTPRequest{At: "/aepb/translate?from=a2a-v1&dest=shown", Body: gatewaytest.AddBody(1)}))
	if got.Status != http.StatusBadGateway || !strings.Contains(string(got.Body), "agent credentials cannot be had") || agent.refused.Load() != 0 {
		t.Errorf("%d %s, %d requests", got.Status, got.Body, agent.refused.Load())
	}
	quiet(t, b, got)
}

// TestCredentials_EndInSession: the agent refuses a token once, in the middle of a session; the call goes on with a new one.
func TestCredentials_EndInSession(t *testing.T) {
	t.Parallel()
	b := gatewaytest.NewFixture(t, withState(t))
	file := secretFile(t, shownBearer)
	var valid atomic.Value
	valid.Store("Bearer " + shownBearer)
	agent := front(t, b, b.Tools.URL(), func(r *http.Request) bool { return r.Header.Get("Authorization") == valid.Load() })
	pinned := overMCP(agent.URL, &config.Credential{Bearer: &config.CredentialBearer{TokenFile: file}})
	pinned.Revision = "2025-06-18"
	lists(t, b, map[string]config.Agent{"shown": pinned})
	adds(t, b, "shown")
	valid.Store("Bearer " + shownBearer + "-2")
	gatewaytest.Must(t, os.WriteFile(file, []byte(shownBearer+"-2"), 0o600))
	got := adds(t, b, "shown")
	if n := agent.refused.Load(); n > 1 {
		t.Errorf("refused %d times", n)
	}
	valid.Store("nothing")
	before := agent.refused.Load()
	failed := b.Send(t, b.Sealed(t, gatewaytest.HTTPRequest{At: "/aepb/translate?from=a2a-v1&dest=shown", Body: gatewaytest.AddBody(1)}))
	if failed.Status < 400 || agent.refused.Load()-before > 1 {
		t.Errorf("%d, sent %d times", failed.Status, agent.refused.Load()-before)
	}
	quiet(t, b, got, failed)
}

// TestCredentials_PlainSidecar: serve calls a sidecar of this machine without TLS where the operator says so.
func TestCredentials_PlainSidecar(t *testing.T) {
	t.Parallel()
	var through atomic.Pointer[httputil.ReverseProxy]
	sidecar := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { through.Load().ServeHTTP(w, r) }))
	t.Cleanup(sidecar.Close)
	agent := overMCP(sidecar.URL+"/mcp", &config.Credential{Header: &config.CredentialHeader{Name: "X-Api-Key", ValueFile: secretFile(t, shownHeader)}})
	agent.Plain = true
	other := overMCP("http://"+strings.TrimPrefix(sidecar.URL, "http://")+"/mcp", nil)
	b := gatewaytest.NewFixture(t, gatewaytest.Plan{Serve: true, Config: config.Config{Agents: map[string]config.Agent{"shown": agent}}})
	at, err := url.Parse(front(t, b, b.Tools.URL(), func(r *http.Request) bool { return r.Header.Get("X-Api-Key") == shownHeader }).URL)
	gatewaytest.Must(t, err)
	proxy := httputil.NewSingleHostReverseProxy(&url.URL{Scheme: "https", Host: at.Host})
	proxy.Transport = b.Caller(t, b.Dev.Client).Transport
	through.Store(proxy)
	adds(t, b, "shown")
	for _, plain := range []bool{false, true} {
		far := overMCP("http://192.0.2.1/mcp", nil)
		far.Plain = plain
		for name, one := range map[string]config.Agent{"other": other, "far": far} {
			for _, found := range (config.Config{Agents: map[string]config.Agent{name: one}}).Directory(false) {
				if err := b.Directory().Check(found); err == nil {
					t.Errorf("%s is taken, plain %t", name, plain)
				}
			}
		}
	}
}
