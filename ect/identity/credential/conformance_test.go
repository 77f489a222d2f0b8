package credential

import (
	"context"
	"crypto/ed25519"
	"encoding/base64"
	"encoding/json"
	"errors"
	"net/http"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/ect/identity"
	"github.com/aepb/aepb-gateway/ect/internal/jose"
)

// vector is a file of the WIMSE conformance vectors, as far as we read it. A
// negative case says only what differs from the positive one.
type vector struct {
	Format, ID string
	KeyID      string `json:"kid"`
	Seed       string `json:"issuer_signing_key_seed_b64u"`

	Now       int64  `json:"verify_now"`
	IssuerKey string `json:"issuer_verifying_key_b64u"`
	Issuer    string `json:"expected_iss"`
	Token     string `json:"token"`
	Identity  string `json:"wit"`
	Proof     string `json:"proof"`
	Audience  string `json:"audience"`

	Request struct {
		Authority string      `json:"authority"`
		Path      string      `json:"path"`
		Headers   [][2]string `json:"headers"`
	} `json:"request"`

	Expect   string            `json:"expect"`
	Negative []json.RawMessage `json:"negative"`
}

// published reads a file of the vectors that lie beside the repository, not in
// it; without them the tests that need them say so.
func published(t *testing.T, name string) (vector, bool) {
	t.Helper()
	file := filepath.Join("..", "..", "..", "..", "shared", "data", "wimse", name)
	text, err := os.ReadFile(file)
	if errors.Is(err, os.ErrNotExist) {
		t.Logf("NOT CHECKED against the published vectors: %s is absent", file)
		return vector{}, false
	}
	var v vector
	if err == nil {
		err = json.Unmarshal(text, &v)
	}
	if err != nil || v.Format != "wimse-conformance/v1" {
		t.Fatalf("%s: %q, %v", name, v.Format, err)
	}
	return v, true
}

// cases are the positive case and the negative ones, whole.
func (v vector) cases(t *testing.T) map[string]vector {
	t.Helper()
	out := map[string]vector{"positive": v}
	for _, text := range v.Negative {
		negative := v
		if err := json.Unmarshal(text, &negative); err != nil {
			t.Fatal(err)
		}
		out[negative.ID] = negative
	}
	if len(out) < 6 {
		t.Fatalf("only %d cases", len(out))
	}
	return out
}

// once remembers nothing: the same proof is shown in every case.
type once struct{}

func (once) Claim(context.Context, ect.ReplayKey, ect.ReplayUse) (ect.ReplayState, error) {
	return ect.ReplayFresh, nil
}

// wimse is the verifier that a case asks for: the vectors know no tolerance for
// clocks, and their identity tokens lack cnf.jwk.alg.
func (v vector) wimse(t *testing.T, missingAlg bool) *WIMSE {
	t.Helper()
	keys, err := identity.ParseKeySet([]byte(`{"keys":[{"kty":"OKP","crv":"Ed25519","kid":"issuer-key-1","x":"` + v.IssuerKey + `"}]}`))
	if err != nil {
		t.Fatal(err)
	}
	w, err := NewWIMSE(WIMSEDeps{
		Issuers: map[string]Issuer{"example.org": {Keys: keys, Name: v.Issuer}}, Replay: once{},
		Skew: time.Nanosecond, MissingAlg: missingAlg, Now: func() time.Time { return time.Unix(v.Now, 0) },
	})
	if err != nil {
		t.Fatal(err)
	}
	return w
}

func wantCode(t *testing.T, name string, err error, want string) {
	t.Helper()
	var refusal *identity.CredentialError
	if want == "" && err == nil || errors.As(err, &refusal) && string(refusal.Reason) == want {
		return
	}
	t.Errorf("%s: got %v, want %q", name, err, want)
}

func TestIdentityToken_PublishedVectors(t *testing.T) {
	t.Parallel()
	v, ok := published(t, filepath.Join("wit", "issue-basic.json"))
	if !ok {
		return
	}
	v.IssuerKey = publicOf(t, v.Seed)
	for name, c := range v.cases(t) {
		_, err := c.wimse(t, true).identity(c.Token, c.Now)
		wantCode(t, name, err, c.Expect)
	}
	_, err := v.wimse(t, false).identity(v.Token, v.Now)
	wantCode(t, "strictly", err, "missing_confirmation_alg")
	t.Logf("wimse: identity tokens: 1 positive, %d negative", len(v.Negative)+1)
}

func TestProof_PublishedVectors(t *testing.T) {
	t.Parallel()
	v, ok := published(t, filepath.Join("wpt", "proof-basic.json"))
	if !ok {
		return
	}
	for name, c := range v.cases(t) {
		fields := http.Header{IdentityField: {c.Identity}, ProofField: {c.Proof}}
		who, found, err := c.wimse(t, true).Caller(t.Context(), Request{Fields: fields.Values, Target: c.Audience})
		wantCode(t, name, err, c.Expect)
		if found != (c.Expect == "") || found && who.ID != "spiffe://example.org/workload/api" {
			t.Errorf("%s: found %q", name, who.ID)
		}
	}
	t.Logf("wimse: proofs: 1 positive, %d negative", len(v.Negative))
}

// TestWIMSE_MessageSignaturesAreNoCredential: HTTP message signatures are no credential here. An
// identity token with one, and without a proof, makes nobody of its bearer.
func TestWIMSE_MessageSignaturesAreNoCredential(t *testing.T) {
	t.Parallel()
	v, ok := published(t, filepath.Join("httpsig", "sign-basic.json"))
	if !ok {
		return
	}
	fields := http.Header{}
	for _, field := range v.Request.Headers {
		fields.Add(field[0], field[1])
	}
	if fields.Get(IdentityField) == "" {
		t.Fatal("the vector has no identity token")
	}
	who, found, err := v.wimse(t, true).Caller(t.Context(), Request{Fields: fields.Values, Target: "https://" + v.Request.Authority + v.Request.Path})
	if err == nil || found {
		t.Errorf("taken for %q, %v", who.ID, err)
	}
	t.Log("wimse: HTTP signatures: not a credential here; its identity token alone is refused")
}

// publicOf derives the issuer's key, which the vector gives as a seed.
func publicOf(t *testing.T, seed string) string {
	t.Helper()
	bytes, err := jose.Decode(seed, "seed")
	if err != nil {
		t.Fatal(err)
	}
	public, _ := ed25519.NewKeyFromSeed(bytes).Public().(ed25519.PublicKey)
	return base64.RawURLEncoding.EncodeToString(public)
}
