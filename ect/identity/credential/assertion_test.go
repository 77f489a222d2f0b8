package credential_test

import (
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"

	"github.com/aepb/aepb-gateway/ect/identity/credential"
)

// TestAssertion_VerifiesElsewhere: another library takes an assertion, of both kinds of keys, and of no other client,
// audience or time.
func TestAssertion_VerifiesElsewhere(t *testing.T) {
	t.Parallel()
	public, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	ec := newEC(t, elliptic.P256())
	for name, key := range map[string]struct {
		deps   credential.AssertionDeps
		public any
	}{
		"ES256": {credential.AssertionDeps{Key: ec}, ec.Public().(*ecdsa.PublicKey)}, //nolint:forcetypeassert // it is
		"EdDSA": {credential.AssertionDeps{Key: private}, public},
	} {
		d := key.deps
		d.Client, d.Audience, d.ID, d.Now = `gw "1"`, "https://as.example/token", "j1", noon
		text, err := credential.Assertion(d)
		if err != nil {
			t.Fatal(err)
		}
		parse := func(at time.Time, more ...jwt.ParserOption) error {
			more = append(more, jwt.WithTimeFunc(func() time.Time { return at }), jwt.WithExpirationRequired(), jwt.WithIssuedAt())
			_, err := jwt.ParseWithClaims(text, &jwt.RegisteredClaims{}, func(*jwt.Token) (any, error) { return key.public, nil }, more...)
			return err
		}
		if err := parse(noon, jwt.WithIssuer(d.Client), jwt.WithSubject(d.Client), jwt.WithAudience(d.Audience)); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if parse(noon, jwt.WithAudience("https://other.example/")) == nil || parse(noon.Add(credential.AssertionLife+time.Second)) == nil {
			t.Errorf("%s: it is good elsewhere, or for ever", name)
		}
	}
}

func TestAssertion_Refuses(t *testing.T) {
	t.Parallel()
	good := credential.AssertionDeps{Key: newEC(t, elliptic.P256()), Client: "c", Audience: "a", ID: "i", Now: noon}
	for name, change := range map[string]func(*credential.AssertionDeps){
		"P-384":       func(d *credential.AssertionDeps) { d.Key = newEC(t, elliptic.P384()) },
		"no key":      func(d *credential.AssertionDeps) { d.Key = nil },
		"no client":   func(d *credential.AssertionDeps) { d.Client = "" },
		"no audience": func(d *credential.AssertionDeps) { d.Audience = "" },
		"no id":       func(d *credential.AssertionDeps) { d.ID = "" },
	} {
		d := good
		change(&d)
		if _, err := credential.Assertion(d); err == nil {
			t.Errorf("%s: taken", name)
		}
	}
}
