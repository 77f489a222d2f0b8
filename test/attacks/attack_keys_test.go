package attacks

import (
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/ect/identity/apikey"
	"github.com/aepb/aepb-gateway/gateway/config"
	gatewaytest "github.com/aepb/aepb-gateway/test/harness/gateway"
)

// keyFile is a file with a key that works for an hour for each path of our trust domain, and the texts of the keys.
func keyFile(t *testing.T, paths ...string) (file string, texts []string) {
	t.Helper()
	keys := make([]apikey.Key, len(paths))
	texts = make([]string, len(paths))
	for i, path := range paths {
		var err error
		keys[i], texts[i], err = apikey.New(strings.Trim(path, "/"), ect.Identity("spiffe://"+gatewaytest.TrustDomain+path), time.Now(), time.Now().Add(time.Hour))
		gatewaytest.Must(t, err)
	}
	text, err := apikey.Format(keys)
	gatewaytest.Must(t, err)
	file = filepath.Join(t.TempDir(), "keys.yaml")
	gatewaytest.Must(t, os.WriteFile(file, text, 0o600))
	return file, texts
}

// TestAttack_KeyOfAnother: a caller with an API key tries to be another one: with its own secret under the other's id,
// with its key beside the other's certificate or token, with two keys at once, or by a bad key beside its own certificate.
func TestAttack_KeyOfAnother(t *testing.T) {
	t.Parallel()
	file, texts := keyFile(t, "/mallory", "/somebody-else") // the second may call "closed"
	mallory, other := texts[0], texts[1]
	b := gatewaytest.NewFixture(t, gatewaytest.Plan{Serve: true, Config: config.Config{APIKeys: config.APIKeys{File: file}}})
	jwt := b.NewTokenKey(t)
	listed := "spiffe://" + gatewaytest.TrustDomain + "/somebody-else"
	swapped := "aepb_somebody-else" + strings.TrimPrefix(mallory, "aepb_mallory")
	victim := b.Caller(t, b.SVID(t, "/somebody-else"))
	ask := func(via *http.Client, query string, header map[string]string) int {
		return b.Send(t, gatewaytest.HTTPRequest{Via: via, At: "/agents/closed/a2a" + query, Header: header, Body: gatewaytest.AddBody(b.Number())}).Status
	}
	if got := ask(b.Anonymous, "", map[string]string{apikey.Field: other}); got != http.StatusOK {
		t.Fatalf("the key that is to be stolen is not good: %d", got)
	}
	for name, c := range map[string]struct {
		via    *http.Client
		query  string
		header map[string]string
		want   int
	}{
		"its own":                      {b.Anonymous, "", map[string]string{apikey.Field: mallory}, 403},
		"its secret, the other's id":   {b.Anonymous, "", map[string]string{apikey.Field: swapped}, 401},
		"both keys":                    {b.Anonymous, "", map[string]string{apikey.Field: mallory, "Authorization": "Bearer " + other}, 401},
		"the other's in the URL":       {b.Anonymous, "?key=" + other, map[string]string{apikey.Field: mallory}, 401},
		"beside a certificate":         {b.Client, "", map[string]string{apikey.Field: other}, 400},
		"beside the other's":           {victim, "", map[string]string{apikey.Field: mallory}, 400},
		"a bad one beside the other's": {victim, "", map[string]string{apikey.Field: swapped}, 401},
		"beside a token of another":    {b.Anonymous, "", map[string]string{apikey.Field: mallory, "Authorization": "Bearer " + jwt.Token(t, listed, b.Self(), time.Minute)}, 401},
		"a bad one beside a token":     {b.Anonymous, "", map[string]string{apikey.Field: swapped, "Authorization": "Bearer " + jwt.Token(t, listed, b.Self(), time.Minute)}, 401},
		"a caller in its own words":    {b.Anonymous, "", map[string]string{apikey.Field: mallory, "X-Caller": listed}, 403},
	} {
		if got := ask(c.via, c.query, c.header); got != c.want {
			t.Errorf("%s: got %d, want %d", name, got, c.want)
		}
	}
}

// TestAttack_SecretsOfKeysAreGuessed: a stranger tries a thousand secrets of one key whose id it knows, in either header
// field, and a thousand ids. Most are not judged, so that the answer does not depend on them, and the owner of the key
// at the same address is served meanwhile.
func TestAttack_SecretsOfKeysAreGuessed(t *testing.T) {
	t.Parallel()
	const guesses = 1000
	file, texts := keyFile(t, "/victim")
	good := texts[0]
	// Of the rate, the machine's speed adds little.
	b := gatewaytest.NewFixture(t, gatewaytest.Plan{Serve: true, Config: config.Config{APIKeys: config.APIKeys{File: file}, Limits: config.Limits{Rate: 1, Burst: 40}}})
	ask := func(name, value string) int {
		return b.Send(t, gatewaytest.HTTPRequest{Via: b.Anonymous, At: "/agents/members/a2a", Header: map[string]string{name: value}, Body: gatewaytest.AddBody(b.Number())}).Status
	}
	if got := ask(apikey.Field, good); got != http.StatusOK {
		t.Fatalf("the key of the victim: %d", got)
	}
	guess := func(id string) string {
		_, text, err := apikey.New(id, "spiffe://"+gatewaytest.TrustDomain+"/x", time.Now(), time.Now().Add(time.Hour))
		gatewaytest.Must(t, err)
		return text
	}
	start := time.Now()
	for what, kind := range map[string]struct {
		id, field, before string
	}{
		"secrets in X-API-Key":     {"victim", apikey.Field, ""},
		"secrets in Authorization": {"victim", "Authorization", "Bearer "},
		"ids":                      {"", apikey.Field, ""},
	} {
		judged := 0
		for range guesses {
			switch got := ask(kind.field, kind.before+guess(kind.id)); got {
			case http.StatusUnauthorized:
				judged++
			case http.StatusTooManyRequests:
			default:
				t.Fatalf("%s: a guess got %d", what, got)
			}
		}
		// Of keys whose id is known, as many as all credentials that name a trusted key, 400 a second; else what the address has.
		most := 2 * 40
		if kind.id != "" {
			most += 400 + int(400*time.Since(start)/time.Second)
		}
		t.Logf("%s: %d of %d were judged", what, judged, guesses)
		if judged > most {
			t.Errorf("%s: %d of %d were judged, want at most %d", what, judged, guesses, most)
		}
		if got := ask(apikey.Field, good); got != http.StatusOK {
			t.Errorf("the victim meanwhile: %d", got)
		}
	}
}
