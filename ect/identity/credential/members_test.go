package credential_test

import (
	"crypto"
	"crypto/ed25519"
	"crypto/elliptic"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/aepb/aepb-gateway/ect/identity"
	"github.com/aepb/aepb-gateway/ect/identity/credential"
)

const network = "https://issuer.example"

// club is a network whose members show JWTs.
type club struct {
	key             crypto.Signer
	keys            *identity.KeySet
	header, payload raw
	edit            func(string) string
}

func newClub(tb testing.TB) *club {
	tb.Helper()
	key, now := newEC(tb, elliptic.P256()), noon.Unix()
	keys, err := identity.ParseKeySet([]byte(`{"keys":[` + jwk(tb, key.Public(), raw{"kid": `"k1"`}).String() + `]}`))
	if err != nil {
		tb.Fatal(err)
	}
	return &club{
		key: key, keys: keys, header: raw{"alg": `"ES256"`, "typ": `"JWT"`, "kid": `"k1"`}, edit: func(s string) string { return s },
		payload: raw{"sub": `"org/ns/a"`, "iss": `"` + network + `"`, "aud": `["slim"]`, "exp": number(now + 300), "iat": number(now)},
	}
}

func (c *club) judge(tb testing.TB) (string, error) {
	tb.Helper()
	m, err := credential.NewMembers(credential.MembersDeps{
		Keys: c.keys, Issuer: network, Audience: []string{"slim", "other"}, Now: func() time.Time { return noon },
	})
	if err != nil {
		tb.Fatal(err)
	}
	return m.Judge(c.edit(mint(tb, c.key, c.header.String(), c.payload.String())))
}

func TestMembers_Accepts(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*club){
		"as it should be":                func(*club) {},
		"one of several audiences":       func(c *club) { c.payload["aud"] = `["x","other"]` },
		"one audience, as text":          func(c *club) { c.payload["aud"] = `"slim"` },
		"no typ":                         func(c *club) { c.header["typ"] = "" },
		"the subject as the key's name":  func(c *club) { c.header["kid"] = `"org/ns/a"` },
		"no name, and one key":           func(c *club) { c.header["kid"] = "" },
		"just within the clocks' reach":  func(c *club) { c.payload["exp"] = number(noon.Unix() - 29) },
		"claims that nobody here judges": func(c *club) { c.payload["custom_claims"] = `{"a":[1.5]}` },
	} {
		c := newClub(t)
		change(c)
		if sub, err := c.judge(t); err != nil || sub != "org/ns/a" {
			t.Errorf("%s: %q %v", name, sub, err)
		}
	}
}

func TestMembers_Refuses(t *testing.T) {
	t.Parallel()
	for name, try := range map[string]struct {
		change func(*club)
		reason identity.CredentialReason
		claim  string
	}{
		"nothing":             {func(c *club) { c.edit = func(string) string { return "" } }, identity.CredentialMalformed, ""},
		"four parts":          {func(c *club) { c.edit = func(s string) string { return s + ".x" } }, identity.CredentialMalformed, ""},
		"too long":            {func(c *club) { c.payload["x"] = `"` + strings.Repeat("x", 9<<10) + `"` }, identity.CredentialTooLong, ""},
		"another type":        {func(c *club) { c.header["typ"] = `"wit+jwt"` }, identity.CredentialWrongType, "typ"},
		"no algorithm":        {func(c *club) { c.header["alg"] = `"none"` }, identity.CredentialUnsupportedAlg, "alg"},
		"a shared secret":     {func(c *club) { c.header["alg"] = `"HS256"` }, identity.CredentialUnsupportedAlg, "alg"},
		"crit":                {func(c *club) { c.header["crit"] = `["x"]` }, identity.CredentialUnsupportedCritical, "crit"},
		"another key's name":  {func(c *club) { c.header["kid"] = `"k2"` }, identity.CredentialUnknownKey, "kid"},
		"another kind of key": {func(c *club) { c.header["alg"] = `"EdDSA"` }, identity.CredentialUnknownKey, "kid"},
		"another key":         {func(c *club) { c.key = newEC(t, elliptic.P256()) }, identity.CredentialInvalidSignature, ""},
		"changed afterwards": {func(c *club) {
			c.edit = func(s string) string {
				parts := strings.Split(s, ".")
				return parts[0] + "." + encode([]byte(c.payload.with(raw{"sub": `"org/ns/b"`}).String())) + "." + parts[2]
			}
		}, identity.CredentialInvalidSignature, ""},
		"no subject":       {func(c *club) { c.payload["sub"] = "" }, identity.CredentialMissingClaim, "sub"},
		"a long subject":   {func(c *club) { c.payload["sub"] = `"` + strings.Repeat("s", 513) + `"` }, identity.CredentialInvalidClaim, "sub"},
		"two subjects":     {func(c *club) { c.payload[""] = `"sub":"org/ns/b"` }, identity.CredentialInvalidEncoding, ""},
		"no issuer":        {func(c *club) { c.payload["iss"] = "" }, identity.CredentialMissingClaim, "iss"},
		"another issuer":   {func(c *club) { c.payload["iss"] = `"https://else.example"` }, identity.CredentialIssuerMismatch, "iss"},
		"no audience":      {func(c *club) { c.payload["aud"] = "" }, identity.CredentialMissingClaim, "aud"},
		"another audience": {func(c *club) { c.payload["aud"] = `["slim2"]` }, identity.CredentialAudienceMismatch, "aud"},
		"no end":           {func(c *club) { c.payload["exp"] = "" }, identity.CredentialMissingClaim, "exp"},
		"a fraction":       {func(c *club) { c.payload["exp"] = number(noon.Unix()+300) + ".5" }, identity.CredentialInvalidClaim, "exp"},
		"over":             {func(c *club) { c.payload["exp"] = number(noon.Unix() - 30) }, identity.CredentialExpired, "exp"},
		"of the future":    {func(c *club) { c.payload["iat"] = number(noon.Unix() + 31) }, identity.CredentialIssuedInFuture, "iat"},
		"not yet":          {func(c *club) { c.payload["nbf"] = number(noon.Unix() + 31) }, identity.CredentialIssuedInFuture, "nbf"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := newClub(t)
			try.change(c)
			_, err := c.judge(t)
			var refusal *identity.CredentialError
			if !errors.As(err, &refusal) || refusal.Credential != "JWT" || refusal.Reason != try.reason || refusal.Claim != try.claim {
				t.Errorf("%v", err)
			}
		})
	}
}

// TestMembers_MintedTokensAreAccepted: what we mint is what we take, and another's keys may follow ours.
func TestMembers_MintedTokensAreAccepted(t *testing.T) {
	t.Parallel()
	for name, key := range map[string]crypto.Signer{"ES256": newEC(t, elliptic.P256()), "EdDSA": edwards(3)} {
		minter, err := credential.NewMinter(credential.MinterDeps{Key: key, KeyID: "k", Issuer: network, Audience: []string{"slim"}, Now: func() time.Time { return noon }})
		if err != nil {
			t.Fatal(err)
		}
		token, expires, err := minter.Mint(`org/"ns"/a`, "AAAA")
		if err != nil || !expires.Equal(noon.Add(credential.DefaultLifetime)) {
			t.Fatalf("%s: %v %v", name, expires, err)
		}
		keys, err := identity.ParseKeySet([]byte(`{"keys":[` + jwk(t, key.Public(), raw{"kid": `"k"`}).String() + `]}`))
		if err != nil {
			t.Fatal(err)
		}
		m, err := credential.NewMembers(credential.MembersDeps{Keys: newClub(t).keys, Issuer: network, Audience: []string{"slim"}, Now: func() time.Time { return noon }})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := m.Judge(token); err == nil {
			t.Errorf("%s: by another's key", name)
		}
		m.Replace(keys)
		if sub, err := m.Judge(token); err != nil || sub != `org/"ns"/a` {
			t.Errorf("%s: %q %v", name, sub, err)
		}
	}
	for name, deps := range map[string]credential.MinterDeps{
		"no key":       {Issuer: "i", Audience: []string{"a"}},
		"another key":  {Key: newEC(t, elliptic.P384()), Issuer: "i", Audience: []string{"a"}},
		"no issuer":    {Key: edwards(3), Audience: []string{"a"}},
		"for nobody":   {Key: edwards(3), Issuer: "i"},
		"too short":    {Key: edwards(3), Issuer: "i", Audience: []string{"a"}, Lifetime: time.Millisecond},
		"no whole key": {Key: ed25519.PrivateKey{1}, Issuer: "i", Audience: []string{"a"}},
	} {
		if _, err := credential.NewMinter(deps); err == nil {
			t.Errorf("%s: it mints", name)
		}
	}
	if _, err := credential.NewMembers(credential.MembersDeps{Issuer: "i", Audience: []string{"a"}}); err == nil {
		t.Error("members without keys")
	}
}
