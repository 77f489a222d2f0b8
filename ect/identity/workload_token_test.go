package identity

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"errors"
	"testing"
	"time"

	"github.com/aepb/aepb-gateway/ect/identity/workloadtest"
	"github.com/aepb/aepb-gateway/ect/internal/jose"
)

// issuing makes JWT-SVIDs as an agent does, and the key set that goes with them.
func issuing(t *testing.T, id string) (workloadtest.Tokens, string) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	point, err := key.PublicKey.Bytes()
	if err != nil {
		t.Fatal(err)
	}
	set := `{"keys":[{"kty":"EC","crv":"P-256","kid":"a","use":"jwt-svid","x":"` + encode(point[1:33]) + `","y":"` + encode(point[33:]) + `"}]}`
	return workloadtest.Tokens{ID: id, Mint: func(audience []string) string {
		claims, err := json.Marshal(map[string]any{"sub": id, "aud": audience, "exp": time.Now().Add(time.Hour).Unix()})
		if err != nil {
			return ""
		}
		signed := base64.RawURLEncoding.EncodeToString([]byte(`{"alg":"ES256","kid":"a","typ":"JWT"}`)) + "." + base64.RawURLEncoding.EncodeToString(claims)
		signature, err := jose.Sign(jose.ES256, key, []byte(signed))
		if err != nil {
			return ""
		}
		return signed + "." + base64.RawURLEncoding.EncodeToString(signature)
	}}, set
}

// TestWorkloadTokens_JWTSVIDsAndKeySets: an agent's JWT-SVIDs are ours, its key sets judge those of
// others, and stay when new certificates come.
func TestWorkloadTokens_JWTSVIDsAndKeySets(t *testing.T) {
	t.Parallel()
	p := newParties(t)
	agent := workloadtest.NewAgent(t)
	me := p.svid(t, "/gateway")
	agent.Say(t, saying(me, p.own))
	w := openWorkload(t, agent.Address)
	if _, _, err := w.Token(t.Context(), "slim"); err == nil {
		t.Error("a token that nobody gave")
	}
	if _, _, err := w.Token(t.Context()); !errors.Is(err, errNoAudience) {
		t.Errorf("a token for nobody: %v", err)
	}
	tokens, set := issuing(t, string(me.ID))
	tokens.KeySets = map[string]string{"spiffe://" + domain: set, "spiffe://broken.example": `{"keys":[]}`}
	agent.SayTokens(tokens)
	known := func() bool {
		_, bundle, err := w.Current()
		if err != nil {
			t.Fatal(err)
		}
		_, broken := bundle.TokenKeys("broken.example")
		_, ok := bundle.TokenKeys(domain)
		return ok && !broken
	}
	comes := func(what string) {
		for !known() { // a change may have been told that was before this one
			select {
			case <-w.Changed():
			case <-time.After(10 * time.Second):
				t.Fatal(what)
			}
		}
	}
	comes("the keys are not there")
	token, expires, err := w.Token(t.Context(), "slim", "slim-claims:e30=")
	if err != nil || time.Until(expires) < 50*time.Minute {
		t.Fatalf("until %v, %v", expires, err)
	}
	parsed, err := jose.ParseJWT(token, 8<<10)
	if err != nil || len(parsed.Claims.Texts("aud")) != 2 {
		t.Errorf("%v", err)
	}
	agent.Say(t, saying(p.svid(t, "/gateway"), p.own))
	<-w.Changed()
	comes("the keys are gone")
}
