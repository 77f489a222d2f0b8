package interop

import (
	"crypto/ecdsa"
	"encoding/base64"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"
	"github.com/google/uuid"

	"github.com/aepb/aepb-gateway/cmd/aepb-gateway/demo/peers"
	"github.com/aepb/aepb-gateway/test/interop/devgateway"
)

// The auditor must find every lie, or what it says about the gateway is worth
// nothing. forgery is a sound exchange of which one thing can be spoilt.
type forgery struct {
	trust          *devgateway.Trust // signs
	header         func(map[string]any)
	request, reply jwt.MapClaims
	evidence       func(request, reply string) string
	wire           exchange
	sent           string // what the agent got
	unsent         bool   // the agent got it without the ECT
}

// sound is an exchange without fault; the client's SVID of the trust domain
// plays the gateway.
func sound(trust *devgateway.Trust) *forgery {
	self, now := signer(trust), time.Now().Unix()
	wid, id := uuid.NewString(), uuid.NewString()
	f := &forgery{
		trust:    trust,
		header:   func(map[string]any) {},
		evidence: func(request, reply string) string { return request + ", " + reply },
		wire:     exchange{Request: "asked", Status: 200, Type: "application/json", Response: "answered"},
		sent:     "translated",
	}
	f.request = jwt.MapClaims{
		"iss": self, "aud": []string{"spiffe://x/agent", self}, "iat": now, "exp": now + 600, "jti": id, "wid": wid,
		"exec_act": "aepb:translate", "par": []string{}, "inp_hash": digest("asked"), "out_hash": digest("translated"),
		"ext": map[string]string{"aepb.leg": "request", "aepb.caller": "spiffe://x/caller"},
	}
	f.reply = jwt.MapClaims{
		"iss": self, "aud": "spiffe://x/caller", "iat": now, "exp": now + 600, "jti": uuid.NewString(), "wid": wid,
		"exec_act": "aepb:translate", "par": []string{id}, "inp_hash": digest("got"), "out_hash": digest("answered"),
		"ext": map[string]string{"aepb.leg": "reply"},
	}
	return f
}

func signer(trust *devgateway.Trust) string { return trust.ClientSVID().Leaf.URIs[0].String() }

func (f *forgery) sign(t *testing.T, claims jwt.MapClaims) string {
	t.Helper()
	svid := f.trust.ClientSVID()
	key, ok := svid.PrivateKey.(*ecdsa.PrivateKey)
	if !ok {
		t.Fatalf("the SVID's key is a %T", svid.PrivateKey)
	}
	kid, err := devgateway.Thumbprint(&key.PublicKey)
	if err != nil {
		t.Fatal(err)
	}
	token := jwt.NewWithClaims(jwt.SigningMethodES256, claims)
	token.Header["typ"], token.Header["kid"] = "exec+jwt", kid
	token.Header["x5c"] = []string{base64.StdEncoding.EncodeToString(svid.Certificate[0])}
	f.header(token.Header)
	compact, err := token.SignedString(key)
	if err != nil {
		t.Fatal(err)
	}
	return compact
}

func (f *forgery) judge(t *testing.T, a auditor) error {
	t.Helper()
	request, reply := f.sign(t, f.request), f.sign(t, f.reply)
	f.wire.Evidence = f.evidence(request, reply)
	received := peers.Received{Body: []byte(f.sent), Evidence: []string{request}}
	if f.unsent {
		received.Evidence = nil
	}
	return a.answered(f.wire, "spiffe://x/caller", []peers.Received{{Body: []byte("other")}, received})
}

func TestAuditor_FindsEveryForgery(t *testing.T) {
	t.Parallel()
	trust, err := devgateway.NewTrust("audit.test")
	if err != nil {
		t.Fatal(err)
	}
	stranger, err := devgateway.NewTrust("audit.test")
	if err != nil {
		t.Fatal(err)
	}
	a := auditor{roots: trust.Roots(), gateway: signer(trust)}
	if err := sound(trust).judge(t, a); err != nil {
		t.Fatalf("a sound exchange is refused: %v", err)
	}
	past := time.Now().Add(-time.Hour).Unix()
	for name, spoil := range map[string]func(*forgery){
		"another trust domain's CA":         func(f *forgery) { f.trust = stranger },
		"another typ":                       func(f *forgery) { f.header = func(h map[string]any) { h["typ"] = "JWT" } },
		"no chain":                          func(f *forgery) { f.header = func(h map[string]any) { delete(h, "x5c") } },
		"another kid":                       func(f *forgery) { f.header = func(h map[string]any) { h["kid"] = "x" } },
		"another issuer":                    func(f *forgery) { f.request["iss"] = "spiffe://audit.test/other" },
		"an expired token":                  func(f *forgery) { f.reply["exp"] = past },
		"no expiry":                         func(f *forgery) { delete(f.reply, "exp") },
		"issued before its certificate":     func(f *forgery) { f.request["iat"] = past },
		"a jti that is no UUID":             func(f *forgery) { f.reply["jti"] = "7" },
		"no workflow":                       func(f *forgery) { delete(f.request, "wid") },
		"no parents":                        func(f *forgery) { delete(f.request, "par") },
		"another workflow":                  func(f *forgery) { f.reply["wid"] = uuid.NewString() },
		"a reply that does not follow":      func(f *forgery) { f.reply["par"] = []string{} },
		"a request for another audience":    func(f *forgery) { f.request["aud"] = "spiffe://x/agent" },
		"a reply for another audience":      func(f *forgery) { f.reply["aud"] = "spiffe://x/agent" },
		"another caller":                    func(f *forgery) { f.request["ext"] = map[string]string{"aepb.leg": "request"} },
		"another input":                     func(f *forgery) { f.wire.Request = "asked?" },
		"another answer":                    func(f *forgery) { f.wire.Response = "answered?" },
		"another message to the agent":      func(f *forgery) { f.sent = "translated?" },
		"a message to the agent without":    func(f *forgery) { f.unsent = true },
		"no reply leg":                      func(f *forgery) { f.evidence = func(request, _ string) string { return request } },
		"a spoilt signature":                func(f *forgery) { f.evidence = func(a, b string) string { return a + "," + b[:len(b)-8] + "AAAAAAAA" } },
		"something that is no token at all": func(f *forgery) { f.evidence = func(a, b string) string { return a + ",x," + b } },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := sound(trust)
			spoil(f)
			if f.judge(t, a) == nil {
				t.Error("not found")
			}
		})
	}
}
