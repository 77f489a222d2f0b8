package attacks

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"encoding/base64"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/aepb/aepb-gateway/gateway/config"
	gatewaytest "github.com/aepb/aepb-gateway/test/harness/gateway"
)

// TestAttack_BearerTokenBesideACertificate: F19. Clients that send every server their
// bearer token could not call, whatever their certificate, so a token that cannot have
// been meant for us now counts for nothing beside one. An attacker tries to gain by it:
// to be the workload that a token names, with a token that is expired, forged or
// spoiled, or with a good one beside another's certificate; to have a bad token of its
// own forgiven; or to pass without a certificate.
func TestAttack_BearerTokenBesideACertificate(t *testing.T) {
	t.Parallel()
	b := gatewaytest.NewFixture(t, gatewaytest.Plan{Serve: true})
	key, forger := b.NewTokenKey(t), gatewaytest.TokenKey{}
	var err error
	forger.PrivateKey, err = ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	gatewaytest.Must(t, err)
	listed := "spiffe://" + gatewaytest.TrustDomain + "/somebody-else" // may call "closed"
	ask := func(via *http.Client, agent string, lines ...string) gatewaytest.Reply {
		request := b.Request(t, gatewaytest.HTTPRequest{Via: via, At: "/agents/" + agent + "/a2a", Body: gatewaytest.AddBody(b.Number())})
		for _, token := range lines {
			request.Header.Add("Authorization", "Bearer "+token)
		}
		got, err := gatewaytest.Receive(via, request)
		gatewaytest.Must(t, err)
		return got
	}
	good := key.Token(t, listed, b.Self(), time.Minute)
	if got := ask(b.Anonymous, "closed", good); got.Status != http.StatusOK || !strings.Contains(string(got.Body), `"sum":`) {
		t.Fatalf("the token that is to be stolen is not good: %d %s", got.Status, got.Body)
	}
	elsewhere := key.Token(t, "auth0|123", "https://api.example.com", time.Minute)
	spoiled := good[:len(good)-1] + "*"
	for name, tc := range map[string]struct {
		via    *http.Client
		lines  []string
		status int // at "closed", which the certificate may not call
		at     int // at "members", which it may
	}{
		"the good token of another": {b.Client, []string{good}, 400, 400},
		"it has expired":            {b.Client, []string{key.Token(t, listed, b.Self(), -time.Hour)}, 401, 401},
		"it is forged":              {b.Client, []string{forger.Token(t, listed, b.Self(), time.Minute)}, 401, 401},
		"it is for another":         {b.Client, []string{key.Token(t, listed, "spiffe://aepb.dev/other", time.Minute)}, 401, 401},
		"it is spoiled":             {b.Client, []string{spoiled}, 401, 401},
		"it comes with a foreign":   {b.Client, []string{elsewhere, good}, 401, 401},
		"our own, forged":           {b.Client, []string{forger.Token(t, string(b.Me.ID), b.Self(), time.Minute)}, 401, 401},
		"foreign":                   {b.Client, []string{elsewhere}, 403, 200},
		"opaque":                    {b.Client, []string{"abc"}, 403, 200},
		"its header is spoiled":     {b.Client, []string{"*" + good}, 403, 200},
		"foreign, no certificate":   {b.Anonymous, []string{elsewhere}, 401, 401},
		"opaque, no certificate":    {b.Anonymous, []string{"abc"}, 401, 401},
	} {
		if got := ask(tc.via, "closed", tc.lines...); got.Status != tc.status {
			t.Errorf("%s: at an agent for the other: got %d %s, want %d", name, got.Status, got.Body, tc.status)
		}
		if got := ask(tc.via, "members", tc.lines...); got.Status != tc.at {
			t.Errorf("%s: at an agent for the certificate: got %d %s, want %d", name, got.Status, got.Body, tc.at)
		}
	}
}

// TestAttack_FailedBearersLockOutTheirAddress is finding N7: a stranger behind the same
// address shows bad tokens as fast as it can. Before, the new tokens of others there were
// not judged any more. Now tokens that name a trusted key have a share of their own, which
// bounds also those that name one and are forged.
func TestAttack_FailedBearersLockOutTheirAddress(t *testing.T) {
	t.Parallel()
	b := gatewaytest.NewFixture(t, gatewaytest.Plan{Serve: true, Config: config.Config{Limits: config.Limits{Rate: 1, Burst: 40}}}) // of which the machine's speed adds little
	key, forger := b.NewTokenKey(t), gatewaytest.TokenKey{}
	var err error
	forger.PrivateKey, err = ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	gatewaytest.Must(t, err)
	ask := func(token string) gatewaytest.Reply {
		request := b.Request(t, gatewaytest.HTTPRequest{Via: b.Anonymous, At: "/agents/members/a2a", Body: gatewaytest.AddBody(b.Number())})
		request.Header.Set("Authorization", "Bearer "+token)
		got, err := gatewaytest.Receive(b.Anonymous, request)
		gatewaytest.Must(t, err)
		return got
	}
	victim := "spiffe://" + gatewaytest.TrustDomain + "/victim"
	unknownKey := strings.Replace(key.Token(t, victim, b.Self(), time.Minute), base64.RawURLEncoding.EncodeToString([]byte(`{"alg":"ES256","typ":"JWT","kid":"k"}`)),
		base64.RawURLEncoding.EncodeToString([]byte(`{"alg":"ES256","typ":"JWT","kid":"other"}`)), 1)
	refused, forged := 0, 0
	for range 100 { // more than limits.burst
		for _, bad := range []string{"abc", unknownKey, key.Token(t, "spiffe://elsewhere.test/x", b.Self(), time.Minute)} {
			if ask(bad).Status == http.StatusTooManyRequests {
				refused++
			}
		}
		if got := ask(forger.Token(t, victim, b.Self(), time.Minute)); got.Status == http.StatusUnauthorized {
			forged++
		}
	}
	if refused < 100 || forged != 100 {
		t.Errorf("%d of 300 bad tokens were refused for their number, and %d of 100 forged ones were judged", refused, forged)
	}
	for n := range 30 {
		if got := ask(key.Token(t, victim, b.Self(), time.Minute+time.Duration(n)*time.Second)); got.Status != http.StatusOK {
			t.Errorf("new token %d of the victim: %d %s", n, got.Status, gatewaytest.Short(got.Body))
		}
	}
}
