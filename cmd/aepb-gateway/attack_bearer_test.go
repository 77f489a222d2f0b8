package main

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/aepb/aepb-gateway/ect/identity"
	"github.com/aepb/aepb-gateway/gateway/config"
)

// tokenKey signs JWT-SVIDs of the development trust domain.
type tokenKey struct{ *ecdsa.PrivateKey }

// newTokenKey has the gateway trust a new key for JWT-SVIDs.
func (b *bed) newTokenKey(t *testing.T) tokenKey {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must(t, err)
	text, err := b.dev.Bundle.MarshalJWKS()
	must(t, err)
	var document struct {
		Keys []json.RawMessage `json:"keys"`
	}
	must(t, json.Unmarshal(text, &document))
	point, err := key.PublicKey.Bytes()
	must(t, err)
	document.Keys = append(document.Keys, json.RawMessage(fmt.Sprintf(`{"kty":"EC","crv":"P-256","use":"jwt-svid","kid":"k","x":%q,"y":%q}`,
		base64.RawURLEncoding.EncodeToString(point[1:33]), base64.RawURLEncoding.EncodeToString(point[33:]))))
	text, err = json.Marshal(document)
	must(t, err)
	bundle, err := identity.ParseBundle(devTrustDomain, text)
	must(t, err)
	b.settings.bundle.Trust(bundle)
	return tokenKey{key}
}

func (k tokenKey) token(t *testing.T, sub, aud string, life time.Duration) string {
	t.Helper()
	claims := fmt.Sprintf(`{"sub":%q,"aud":%q,"exp":%d}`, sub, aud, time.Now().Add(life).Unix())
	input := base64.RawURLEncoding.EncodeToString([]byte(`{"alg":"ES256","typ":"JWT","kid":"k"}`)) + "." + base64.RawURLEncoding.EncodeToString([]byte(claims))
	sum := sha256.Sum256([]byte(input))
	r, s, err := ecdsa.Sign(rand.Reader, k.PrivateKey, sum[:])
	must(t, err)
	signature := make([]byte, 64)
	r.FillBytes(signature[:32])
	s.FillBytes(signature[32:])
	return input + "." + base64.RawURLEncoding.EncodeToString(signature)
}

// TestAttack_BearerTokenBesideACertificate: F19. Clients that send every server their
// bearer token could not call, whatever their certificate, so a token that cannot have
// been meant for us now counts for nothing beside one. An attacker tries to gain by it:
// to be the workload that a token names, with a token that is expired, forged or
// spoiled, or with a good one beside another's certificate; to have a bad token of its
// own forgiven; or to pass without a certificate.
func TestAttack_BearerTokenBesideACertificate(t *testing.T) {
	t.Parallel()
	b := newBed(t, plan{serve: true})
	key, forger := b.newTokenKey(t), tokenKey{}
	var err error
	forger.PrivateKey, err = ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must(t, err)
	listed := "spiffe://" + devTrustDomain + "/somebody-else" // may call "closed"
	ask := func(via *http.Client, agent string, lines ...string) reply {
		request := b.request(t, letter{via: via, at: "/agents/" + agent + "/a2a", body: addBody(b.number())})
		for _, token := range lines {
			request.Header.Add("Authorization", "Bearer "+token)
		}
		got, err := receive(via, request)
		must(t, err)
		return got
	}
	good := key.token(t, listed, b.self(), time.Minute)
	if got := ask(b.anonymous, "closed", good); got.status != http.StatusOK || !strings.Contains(string(got.body), `"sum":`) {
		t.Fatalf("the token that is to be stolen is not good: %d %s", got.status, got.body)
	}
	elsewhere := key.token(t, "auth0|123", "https://api.example.com", time.Minute)
	spoiled := good[:len(good)-1] + "*"
	for name, tc := range map[string]struct {
		via    *http.Client
		lines  []string
		status int // at "closed", which the certificate may not call
		at     int // at "members", which it may
	}{
		"the good token of another": {b.client, []string{good}, 400, 400},
		"it has expired":            {b.client, []string{key.token(t, listed, b.self(), -time.Hour)}, 401, 401},
		"it is forged":              {b.client, []string{forger.token(t, listed, b.self(), time.Minute)}, 401, 401},
		"it is for another":         {b.client, []string{key.token(t, listed, "spiffe://aepb.dev/other", time.Minute)}, 401, 401},
		"it is spoiled":             {b.client, []string{spoiled}, 401, 401},
		"it comes with a foreign":   {b.client, []string{elsewhere, good}, 401, 401},
		"our own, forged":           {b.client, []string{forger.token(t, string(b.me.ID), b.self(), time.Minute)}, 401, 401},
		"foreign":                   {b.client, []string{elsewhere}, 403, 200},
		"opaque":                    {b.client, []string{"abc"}, 403, 200},
		"its header is spoiled":     {b.client, []string{"*" + good}, 403, 200},
		"foreign, no certificate":   {b.anonymous, []string{elsewhere}, 401, 401},
		"opaque, no certificate":    {b.anonymous, []string{"abc"}, 401, 401},
	} {
		if got := ask(tc.via, "closed", tc.lines...); got.status != tc.status {
			t.Errorf("%s: at an agent for the other: got %d %s, want %d", name, got.status, got.body, tc.status)
		}
		if got := ask(tc.via, "members", tc.lines...); got.status != tc.at {
			t.Errorf("%s: at an agent for the certificate: got %d %s, want %d", name, got.status, got.body, tc.at)
		}
	}
}

// TestAttack_FailedBearersLockOutTheirAddress is finding N7: a stranger behind the same
// address shows bad tokens as fast as it can. Before, the new tokens of others there were
// not judged any more. Now tokens that name a trusted key have a share of their own, which
// bounds also those that name one and are forged.
func TestAttack_FailedBearersLockOutTheirAddress(t *testing.T) {
	t.Parallel()
	b := newBed(t, plan{serve: true, config: config.Config{Limits: config.Limits{Rate: 1, Burst: 40}}}) // of which the machine's speed adds little
	key, forger := b.newTokenKey(t), tokenKey{}
	var err error
	forger.PrivateKey, err = ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must(t, err)
	ask := func(token string) reply {
		request := b.request(t, letter{via: b.anonymous, at: "/agents/members/a2a", body: addBody(b.number())})
		request.Header.Set("Authorization", "Bearer "+token)
		got, err := receive(b.anonymous, request)
		must(t, err)
		return got
	}
	victim := "spiffe://" + devTrustDomain + "/victim"
	unknownKey := strings.Replace(key.token(t, victim, b.self(), time.Minute), base64.RawURLEncoding.EncodeToString([]byte(`{"alg":"ES256","typ":"JWT","kid":"k"}`)),
		base64.RawURLEncoding.EncodeToString([]byte(`{"alg":"ES256","typ":"JWT","kid":"other"}`)), 1)
	refused, forged := 0, 0
	for range 100 { // more than limits.burst
		for _, bad := range []string{"abc", unknownKey, key.token(t, "spiffe://elsewhere.test/x", b.self(), time.Minute)} {
			if ask(bad).status == http.StatusTooManyRequests {
				refused++
			}
		}
		if got := ask(forger.token(t, victim, b.self(), time.Minute)); got.status == http.StatusUnauthorized {
			forged++
		}
	}
	if refused < 100 || forged != 100 {
		t.Errorf("%d of 300 bad tokens were refused for their number, and %d of 100 forged ones were judged", refused, forged)
	}
	for n := range 30 {
		if got := ask(key.token(t, victim, b.self(), time.Minute+time.Duration(n)*time.Second)); got.status != http.StatusOK {
			t.Errorf("new token %d of the victim: %d %s", n, got.status, short(got.body))
		}
	}
}
