package slim_test

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	a2apb "github.com/a2aproject/a2a-go/v2/a2apb/v1"
	"github.com/golang-jwt/jwt/v5"

	"github.com/aepb/aepb-gateway/cmd/aepb-gateway/demo/peers"
	"github.com/aepb/aepb-gateway/ect/identity/workloadtest"
)

const issuer = "https://issuer.slim.test"

// keyPair is a key that signs members' tokens.
type keyPair struct {
	key             *ecdsa.PrivateKey
	private, public string // PEM
	set             string // JWK set
}

func newKeyPair(t *testing.T, kid string) keyPair {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	public, err := x509.MarshalPKIXPublicKey(&key.PublicKey)
	if err != nil {
		t.Fatal(err)
	}
	point, err := key.PublicKey.Bytes()
	if err != nil {
		t.Fatal(err)
	}
	at := func(from, to int) string { return base64.RawURLEncoding.EncodeToString(point[from:to]) }
	return keyPair{
		key: key, set: fmt.Sprintf(`{"keys":[{"kty":"EC","crv":"P-256","kid":%q,"use":"%s","x":"%s","y":"%s"}]}`, kid, "sig", at(1, 33), at(33, 65)),
		private: string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: private})),
		public:  string(pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: public})),
	}
}

// jwtApp is a real application that shows JWTs.
func (w *world) jwtApp(t *testing.T, name, subject string, own, trusted keyPair, more job) *peer {
	t.Helper()
	what := job{"jwt": job{"key": own.private, "trusted": trusted.public, "issuer": issuer, "subject": subject, "audience": []string{"slim"}}, "secret": ""}
	maps.Copy(what, more)
	return w.app(t, name, what)
}

// answering is an agent that says one thing.
func answering(t *testing.T, text string) job {
	t.Helper()
	card := strings.Replace(helperCard, `"streaming":true`, `"streaming":false`, 1)
	return job{"a2a": job{"service": "lf.a2a.v1.A2AService", "methods": job{
		"GetExtendedAgentCard": job{"body": bytesOf(t, &a2apb.AgentCard{}, card)},
		"SendMessage":          job{"body": bytesOf(t, &a2apb.SendMessageResponse{}, `{"message":{"messageId":"m","role":"ROLE_AGENT","parts":[{"text":"`+text+`"}]}}`)},
	}}}
}

const echoCall = `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"echo","arguments":{"message":"who am I"}}}`

// say asks an agent of the gateway something on a session of its own.
func say(t *testing.T, app *peer, as, to, body string) (received, error) {
	t.Helper()
	var h handle
	eventually(t, func() error { return app.begin(t, job{"job": "open", "app": as, "to": to})(&h) })
	app.do(t, job{"job": "publish", "session": h.Session, "body": body}, nil)
	var got received
	return got, app.begin(t, job{"job": "receive", "session": h.Session})(&got)
}

// TestMembers_ByJWT: real applications and the gateway know each other by the
// JWTs of one issuer, both ways; each caller is who its token says, and whose
// token is signed by somebody else is not heard.
func TestMembers_ByJWT(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	_, toolbox := w.toolbox(t)
	ours, theirs, strange := newKeyPair(t, "ours"), newKeyPair(t, "theirs"), newKeyPair(t, "strange")
	w.write(t, "slim-key.pem", []byte(ours.private))
	w.write(t, "members.json", []byte(theirs.set))
	alice := w.jwtApp(t, "org/agents/alice", "alice", theirs, ours, nil)
	bob := w.jwtApp(t, "org/agents/bob", "bob", theirs, ours, nil)
	mallory := w.jwtApp(t, "org/agents/mallory", "alice", strange, ours, nil)
	w.jwtApp(t, "org/agents/helper", "helper", theirs, ours, answering(t, "hello, member"))
	config := fmt.Sprintf(`slim: {nodes: [{url: "https://%s", id: %q, organization: org, namespace: first, jwt: {key: %q, keys: %q, issuer: %q, callers: {alice: "spiffe://%s/alice"}}}]}
agents:
  toolbox: %s
  helper: %s`, w.at, id("node"), w.path("slim-key.pem"), w.path("members.json"), issuer, domain, toolbox, w.far("org/agents/helper", "", ""))
	g := w.gateway(t, "first", config)
	g.await(t, "connected to the SLIM node")

	t.Run("called", func(t *testing.T) {
		got, err := say(t, alice, "org/agents/alice", "org/first/toolbox", echoCall)
		if err != nil || !strings.Contains(got.Body, "who am I") {
			t.Fatalf("%+v %v", got, err)
		}
		ext := w.attested(t, strings.Split(got.Metadata["execution-context"], ",")[0], "inp_hash", []byte(echoCall))["ext"]
		if text := jsonOf(t, ext); !strings.Contains(text, `"spiffe://`+domain+`/alice"`) {
			t.Errorf("the caller is not who its token says: %s", text)
		}
	})
	t.Run("a member who may not call", func(t *testing.T) {
		got, err := say(t, bob, "org/agents/bob", "org/first/toolbox", echoCall)
		if err != nil || !strings.Contains(got.Body, "The caller must authenticate") {
			t.Errorf("%+v %v", got, err)
		}
	})
	t.Run("a token by another key", func(t *testing.T) {
		err := mallory.begin(t, job{"job": "open", "app": "org/agents/mallory", "to": "org/first/toolbox", "retries": 2, "interval": 300})(new(handle))
		if err == nil {
			t.Error("somebody else's token was believed")
		}
	})
	t.Run("calling", func(t *testing.T) {
		got, err := peers.A2ACall(t.Context(), w.client(t), g.public+"/agents/helper", message("hello"))
		if err != nil || got.Text() != "hello, member" {
			t.Errorf("%q %v", got.Text(), err)
		}
	})
	t.Run("other keys without a restart", func(t *testing.T) {
		w.write(t, "members.json", []byte(strange.set))
		g.await(t, "configuration reloaded")
		got, err := say(t, mallory, "org/agents/mallory", "org/first/toolbox", echoCall)
		if err != nil || !strings.Contains(got.Body, "who am I") {
			t.Errorf("%+v %v", got, err)
		}
	})
}

// agentFor is a SPIFFE agent for one workload; all agents vouch for all tokens.
func (w *world) agentFor(t *testing.T, name string, signing keyPair) *workloadtest.Agent {
	t.Helper()
	pair := w.svid(t, name).Certificates[0]
	leaf, err := x509.ParseCertificate(pair.Certificate[0])
	if err != nil {
		t.Fatal(err)
	}
	block, _ := pem.Decode(w.trust.RootsPEM())
	root, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		t.Fatal(err)
	}
	signer, _ := pair.PrivateKey.(crypto.Signer)
	agent := workloadtest.NewAgent(t)
	agent.Say(t, workloadtest.Identity{ID: id(name), Chain: []*x509.Certificate{leaf}, Key: signer, Anchors: []*x509.Certificate{root}})
	agent.SayTokens(workloadtest.Tokens{
		ID: id(name), KeySets: map[string]string{"spiffe://" + domain: strings.Replace(signing.set, `"sig"`, `"jwt-svid"`, 1)},
		Mint: func(audience []string) string {
			token := jwt.NewWithClaims(jwt.SigningMethodES256, jwt.MapClaims{
				"sub": id(name), "aud": slices.Clone(audience), "iat": time.Now().Unix(), "exp": time.Now().Add(10 * time.Minute).Unix(),
			})
			token.Header["kid"] = "svids"
			compact, err := token.SignedString(signing.key)
			if err != nil {
				return ""
			}
			return compact
		},
	})
	return agent
}

// TestMembers_BySPIFFE: the same with JWT-SVIDs, which a Workload API gives to
// each side. No map is needed: who calls stands in the token.
func TestMembers_BySPIFFE(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	_, toolbox := w.toolbox(t)
	signing, strange := newKeyPair(t, "svids"), newKeyPair(t, "svids")
	spire := func(name string, signing keyPair, more job) *peer {
		agent := w.agentFor(t, name, signing)
		what := job{"secret": "", "spire": job{"socket": agent.Address, "audience": []string{"slim"}}}
		maps.Copy(what, more)
		return w.app(t, "org/agents/"+name, what)
	}
	alice := spire("alice", signing, nil)
	spire("helper", signing, answering(t, "hello, workload"))
	config := fmt.Sprintf(`slim: {nodes: [{url: "https://%s", id: %q, organization: org, namespace: first, jwt_svid: {}}]}
agents:
  toolbox: %s
  helper: %s`, w.at, id("node"), toolbox, w.far("org/agents/helper", "", ""))
	g := w.gatewayOf(t, "first", fmt.Sprintf("workload_api: %q", w.agentFor(t, "first", signing).Address), config)
	g.await(t, "connected to the SLIM node")
	t.Run("called", func(t *testing.T) {
		got, err := say(t, alice, "org/agents/alice", "org/first/toolbox", echoCall)
		if err != nil || !strings.Contains(got.Body, "who am I") {
			t.Fatalf("%+v %v", got, err)
		}
		ext := w.attested(t, strings.Split(got.Metadata["execution-context"], ",")[0], "inp_hash", []byte(echoCall))["ext"]
		if text := jsonOf(t, ext); !strings.Contains(text, `"`+id("alice")+`"`) {
			t.Errorf("the caller is not who its token says: %s", text)
		}
	})
	t.Run("calling", func(t *testing.T) {
		got, err := peers.A2ACall(t.Context(), w.client(t), g.public+"/agents/helper", message("hello"))
		if err != nil || got.Text() != "hello, workload" {
			t.Errorf("%q %v", got.Text(), err)
		}
	})
	t.Run("a token by another key", func(t *testing.T) {
		mallory := spire("mallory", strange, nil)
		err := mallory.begin(t, job{"job": "open", "app": "org/agents/mallory", "to": "org/first/toolbox", "retries": 2, "interval": 300})(new(handle))
		if err == nil {
			t.Error("a JWT-SVID that nobody vouches for was believed")
		}
	})
}
