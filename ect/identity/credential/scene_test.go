package credential_test

import (
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/ect/ecttest"
	"github.com/aepb/aepb-gateway/ect/identity"
	"github.com/aepb/aepb-gateway/ect/identity/credential"
)

const (
	caller = "spiffe://example.org/agents/a"
	self   = "spiffe://example.org/gateway"
	target = "https://gw.example.com/agents/b/mcp"
)

var noon = time.Unix(1772064000, 0)

// raw is a JSON object by member; an empty value takes the member away. The
// value of the empty name is a member as text, for one that is there already.
type raw map[string]string

func (r raw) with(over raw) raw {
	out := raw{}
	for _, members := range []raw{r, over} {
		maps.Copy(out, members)
	}
	return out
}

func (r raw) String() string {
	var members []string
	for name, value := range r {
		switch {
		case name == "" && value != "":
			members = append(members, value)
		case value != "":
			members = append(members, strconv.Quote(name)+":"+value)
		}
	}
	slices.Sort(members)
	return "{" + strings.Join(members, ",") + "}"
}

func encode(bytes []byte) string { return base64.RawURLEncoding.EncodeToString(bytes) }

// mint signs any header and payload. key nil: no signature.
func mint(tb testing.TB, key crypto.Signer, header, payload string) string {
	tb.Helper()
	input := encode([]byte(header)) + "." + encode([]byte(payload))
	var sig []byte
	switch key := key.(type) {
	case ed25519.PrivateKey:
		sig = ed25519.Sign(key, []byte(input))
	case *ecdsa.PrivateKey:
		sum := sha256.Sum256([]byte(input))
		r, s, err := ecdsa.Sign(rand.Reader, key, sum[:])
		if err != nil {
			tb.Fatal(err)
		}
		size := (key.Params().BitSize + 7) / 8
		sig = append(r.FillBytes(make([]byte, size)), s.FillBytes(make([]byte, size))...)
	}
	return input + "." + encode(sig)
}

func newEC(tb testing.TB, curve elliptic.Curve) *ecdsa.PrivateKey {
	tb.Helper()
	key, err := ecdsa.GenerateKey(curve, rand.Reader)
	if err != nil {
		tb.Fatal(err)
	}
	return key
}

// edwards is a key made of one byte, the same each time.
func edwards(octet byte) ed25519.PrivateKey {
	return ed25519.NewKeyFromSeed([]byte(strings.Repeat(string(rune(octet)), ed25519.SeedSize)))
}

// jwk is a public key; more are further members.
func jwk(tb testing.TB, key crypto.PublicKey, more raw) raw {
	tb.Helper()
	switch key := key.(type) {
	case ed25519.PublicKey:
		return raw{"kty": `"OKP"`, "crv": `"Ed25519"`, "x": `"` + encode(key) + `"`}.with(more)
	case *ecdsa.PublicKey:
		point, err := key.Bytes()
		if err != nil {
			tb.Fatal(err)
		}
		half := 1 + len(point)/2
		return raw{
			"kty": `"EC"`, "crv": strconv.Quote(key.Params().Name),
			"x": `"` + encode(point[1:half]) + `"`, "y": `"` + encode(point[half:]) + `"`,
		}.with(more)
	}
	tb.Fatalf("no such key: %T", key)
	return nil
}

func keySet(tb testing.TB, keys ...raw) *identity.KeySet {
	tb.Helper()
	texts := make([]string, len(keys))
	for i, key := range keys {
		texts[i] = key.String()
	}
	set, err := identity.ParseKeySet([]byte(`{"keys":[` + strings.Join(texts, ",") + `]}`))
	if err != nil {
		tb.Fatal(err)
	}
	return set
}

// scene is a request as it should be. Tests change one thing about it.
type scene struct {
	tb testing.TB

	issuer, own crypto.Signer // of the identity token; the caller's own, of the proof

	tokenHeader, tokenPayload raw
	proofHeader, proofPayload raw
	editToken, editProof      func(string) string

	fields http.Header // beside the two tokens
	target string
	deps   credential.WIMSEDeps
}

func newScene(tb testing.TB) *scene {
	tb.Helper()
	issuer, own := newEC(tb, elliptic.P256()), edwards(7)
	now := noon.Unix()
	return &scene{
		tb: tb, issuer: issuer, own: own, target: target, fields: http.Header{},
		tokenHeader: raw{"alg": `"ES256"`, "typ": `"wit+jwt"`, "kid": `"issuer-1"`},
		tokenPayload: raw{
			"iss": `"https://issuer.example.org"`, "sub": `"` + caller + `"`, "iat": number(now - 60), "exp": number(now + 3600),
			"jti": `"x"`, "cnf": `{"jwk":` + jwk(tb, own.Public(), raw{"alg": `"EdDSA"`, "kid": `"own-1"`}).String() + `}`,
		},
		proofHeader:  raw{"alg": `"EdDSA"`, "typ": `"wpt+jwt"`},
		proofPayload: raw{"aud": `"` + target + `"`, "exp": number(now + 60), "jti": `"` + string(ect.NewID()) + `"`},
		deps: credential.WIMSEDeps{
			Issuers: map[string]credential.Issuer{
				"example.org":  {Keys: keySet(tb, jwk(tb, issuer.Public(), raw{"kid": `"issuer-1"`})), Name: "https://issuer.example.org"},
				"elsewhere.io": {Keys: keySet(tb, jwk(tb, edwards(9).Public(), raw{"kid": `"issuer-1"`}))},
			},
			Replay: ecttest.NewReplay(), Now: func() time.Time { return noon },
		},
	}
}

func number(seconds int64) string { return strconv.FormatInt(seconds, 10) }

func quoted(text string) string { raw, _ := json.Marshal(text); return string(raw) }

func hashed(text string) string { return quoted(ect.Hash([]byte(text))) }

// request mints what the scene says.
func (s *scene) request(tb testing.TB) credential.Request {
	tb.Helper()
	token := mint(tb, s.issuer, s.tokenHeader.String(), s.tokenPayload.String())
	if s.editToken != nil {
		token = s.editToken(token)
	}
	proof := mint(tb, s.own, s.proofHeader.String(), raw{"wth": hashed(token)}.with(s.proofPayload).String())
	if s.editProof != nil {
		proof = s.editProof(proof)
	}
	fields := http.Header{credential.IdentityField: {token}, credential.ProofField: {proof}}
	maps.Copy(fields, s.fields)
	return credential.Request{Fields: fields.Values, Target: s.target}
}

func (s *scene) wimse(tb testing.TB) *credential.WIMSE {
	tb.Helper()
	w, err := credential.NewWIMSE(s.deps)
	if err != nil {
		tb.Fatal(err)
	}
	return w
}

// wantRefusal demands a *identity.CredentialError of this reason, and nobody.
func wantRefusal(tb testing.TB, who identity.Caller, err error, want identity.CredentialReason) {
	tb.Helper()
	var refusal *identity.CredentialError
	if !errors.As(err, &refusal) || refusal.Reason != want {
		tb.Errorf("got %v, want %s", err, want)
	}
	if who.ID != "" || who.Key != nil {
		tb.Errorf("a caller was handed out: %s", who.ID)
	}
}

type brokenReplay struct{ err error }

func (r brokenReplay) Claim(context.Context, ect.ReplayKey, ect.ReplayUse) (ect.ReplayState, error) {
	return ect.ReplayFresh, r.err
}
