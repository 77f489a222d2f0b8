package credential_test

import (
	"crypto"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"math/big"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/ect/identity"
	"github.com/aepb/aepb-gateway/ect/identity/credential"
)

// bundleWith is a trust domain's bundle as a SPIFFE document: an anchor, and
// these keys beside it.
func bundleWith(tb testing.TB, domain string, keys ...raw) *identity.Bundle {
	tb.Helper()
	authority, err := identity.NewAuthority(identity.AuthorityDeps{TrustDomain: domain, Now: func() time.Time { return noon }})
	if err != nil {
		tb.Fatal(err)
	}
	own, err := authority.Bundle()
	if err != nil {
		tb.Fatal(err)
	}
	text, err := own.MarshalJWKS()
	if err != nil {
		tb.Fatal(err)
	}
	var document struct {
		Keys []json.RawMessage `json:"keys"`
	}
	if err := json.Unmarshal(text, &document); err != nil {
		tb.Fatal(err)
	}
	for _, key := range keys {
		document.Keys = append(document.Keys, json.RawMessage(key.String()))
	}
	if text, err = json.Marshal(document); err != nil {
		tb.Fatal(err)
	}
	bundle, err := identity.ParseBundle(domain, text)
	if err != nil {
		tb.Fatal(err)
	}
	return bundle
}

// bearing is a request with a JWT-SVID as it should be.
type bearing struct {
	key             crypto.Signer
	header, payload raw
	scheme          string
	edit            func(string) string
	bundle          *identity.Bundle
}

func newBearing(tb testing.TB) *bearing {
	tb.Helper()
	key, now := newEC(tb, elliptic.P256()), noon.Unix()
	bundle := bundleWith(tb, "example.org",
		jwk(tb, key.Public(), raw{"use": `"jwt-svid"`, "kid": `"k1"`}),
		jwk(tb, newEC(tb, elliptic.P256()).Public(), raw{"use": `"jwt-svid"`, "kid": `"k2"`}),
		jwk(tb, newEC(tb, elliptic.P256()).Public(), raw{"use": `"jwt-svid"`}),
		jwk(tb, edwards(5).Public(), raw{"use": `"wit-svid"`, "kid": `"w"`}))
	bundle.Federate(bundleWith(tb, "elsewhere.io", jwk(tb, key.Public(), raw{"use": `"jwt-svid"`, "kid": `"far"`})))
	bundle.Federate(bundleWith(tb, "keyless.io"))
	return &bearing{
		key: key, scheme: "Bearer ", bundle: bundle,
		header:  raw{"alg": `"ES256"`, "typ": `"JWT"`, "kid": `"k1"`},
		payload: raw{"sub": `"` + caller + `"`, "aud": `["` + self + `"]`, "exp": number(now + 300), "iat": number(now)},
	}
}

func (b *bearing) caller(tb testing.TB) (identity.Caller, bool, error) {
	tb.Helper()
	bearer, err := credential.NewBearer(credential.BearerDeps{
		Bundle: b.bundle, Audience: []string{"https://gw.example.com", self}, Now: func() time.Time { return noon },
	})
	if err != nil {
		tb.Fatal(err)
	}
	token := mint(tb, b.key, b.header.String(), b.payload.String())
	if b.edit != nil {
		token = b.edit(token)
	}
	return bearer.Caller(credential.Request{Fields: http.Header{"Authorization": {b.scheme + token}}.Values})
}

func TestBearer_Accepts(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*bearing){
		"plain":                  func(*bearing) {},
		"the scheme in capitals": func(b *bearing) { b.scheme = "BEARER  " },
		"typ JOSE":               func(b *bearing) { b.header["typ"] = `"JOSE"` },
		"no typ":                 func(b *bearing) { b.header["typ"] = `` },
		"one audience":           func(b *bearing) { b.payload["aud"] = `"` + self + `"` },
		"one audience of many":   func(b *bearing) { b.payload["aud"] = `["x","https://gw.example.com"]` },
		"in its last second":     func(b *bearing) { b.payload["exp"] = number(noon.Unix() - 29) },
		"a federated domain":     func(b *bearing) { b.payload["sub"], b.header["kid"] = `"spiffe://elsewhere.io/a"`, `"far"` },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBearing(t)
			change(b)
			who, found, err := b.caller(t)
			if err != nil || !found || who.Key != nil || who.Anonymous {
				t.Fatalf("got %+v, %v, %v", who, found, err)
			}
			if want := ect.Identity(strings.Trim(b.payload["sub"], `"`)); who.ID != want {
				t.Errorf("got %s, want %s", who.ID, want)
			}
		})
	}
}

func TestBearer_Refuses(t *testing.T) {
	t.Parallel()
	now := noon.Unix()
	header := func(name, value string) func(*bearing) { return func(b *bearing) { b.header[name] = value } }
	claim := func(name, value string) func(*bearing) { return func(b *bearing) { b.payload[name] = value } }
	for name, tc := range map[string]struct {
		change func(*bearing)
		want   identity.CredentialReason
	}{
		"nothing":                 {func(b *bearing) { b.edit = func(string) string { return "" } }, identity.CredentialMalformed},
		"opaque":                  {func(b *bearing) { b.edit = func(string) string { return "abc" } }, identity.CredentialMalformed},
		"too long":                {func(b *bearing) { b.edit = func(text string) string { return text + strings.Repeat("A", 8<<10) } }, identity.CredentialTooLong},
		"a blank inside":          {func(b *bearing) { b.edit = func(text string) string { return text[:9] + " " + text[9:] } }, identity.CredentialInvalidEncoding},
		"typ of an identity":      {header("typ", `"wit+jwt"`), identity.CredentialWrongType},
		"typ of a proof":          {header("typ", `"wpt+jwt"`), identity.CredentialWrongType},
		"typ of an ECT":           {header("typ", `"exec+jwt"`), identity.CredentialWrongType},
		"typ of an access token":  {header("typ", `"at+jwt"`), identity.CredentialWrongType},
		"crit":                    {header("crit", `["exp"]`), identity.CredentialUnsupportedCritical},
		"alg none":                {header("alg", `"none"`), identity.CredentialUnsupportedAlg},
		"alg HS256":               {header("alg", `"HS256"`), identity.CredentialUnsupportedAlg},
		"alg EdDSA":               {header("alg", `"EdDSA"`), identity.CredentialUnsupportedAlg},
		"alg of another kind":     {header("alg", `"RS256"`), identity.CredentialUnknownKey},
		"kid of another key":      {header("kid", `"k2"`), identity.CredentialInvalidSignature},
		"kid unknown":             {header("kid", `"k3"`), identity.CredentialUnknownKey},
		"kid of another domain":   {header("kid", `"far"`), identity.CredentialUnknownKey},
		"kid of another use":      {header("kid", `"w"`), identity.CredentialUnknownKey},
		"no kid, two keys":        {header("kid", ``), identity.CredentialUnknownKey},
		"signature of another":    {func(b *bearing) { b.key = newEC(t, elliptic.P256()) }, identity.CredentialInvalidSignature},
		"signature of nobody":     {func(b *bearing) { b.key = nil }, identity.CredentialInvalidSignature},
		"a domain without keys":   {claim("sub", `"spiffe://keyless.io/a"`), identity.CredentialUnknownKey},
		"a domain of nobody's":    {claim("sub", `"spiffe://nowhere.org/a"`), identity.CredentialUnknownKey},
		"another domain's name":   {claim("sub", `"spiffe://elsewhere.io/a"`), identity.CredentialUnknownKey},
		"sub missing":             {claim("sub", ``), identity.CredentialMissingClaim},
		"sub a trust domain":      {claim("sub", `"spiffe://example.org"`), identity.CredentialInvalidClaim},
		"sub nobody":              {claim("sub", `"spiffe://example.org/anonymous"`), identity.CredentialInvalidClaim},
		"sub in wimse":            {claim("sub", `"wimse://example.org/a"`), identity.CredentialInvalidClaim},
		"sub twice":               {claim("", `"sub":"`+caller+`"`), identity.CredentialInvalidEncoding},
		"aud missing":             {claim("aud", ``), identity.CredentialMissingClaim},
		"aud empty":               {claim("aud", `[]`), identity.CredentialInvalidClaim},
		"aud of another":          {claim("aud", `"spiffe://example.org/other"`), identity.CredentialAudienceMismatch},
		"aud longer than ours":    {claim("aud", `"`+self+`/x"`), identity.CredentialAudienceMismatch},
		"exp missing":             {claim("exp", ``), identity.CredentialMissingClaim},
		"exp a fraction":          {claim("exp", number(now+60)+".0"), identity.CredentialInvalidClaim},
		"expired":                 {claim("exp", number(now-30)), identity.CredentialExpired},
		"issued in the future":    {claim("iat", number(now+31)), identity.CredentialIssuedInFuture},
		"not valid yet":           {claim("nbf", number(now+31)), identity.CredentialIssuedInFuture},
		"the domain lost its key": {func(b *bearing) { b.bundle.Trust(bundleWith(t, "example.org")) }, identity.CredentialUnknownKey},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBearing(t)
			tc.change(b)
			who, found, err := b.caller(t)
			wantRefusal(t, who, err, tc.want)
			if found {
				t.Error("found somebody")
			}
		})
	}
}

// What SDKs send to every server is told from a token of ours that is bad.
func TestBearer_TellsForeignTokens(t *testing.T) {
	t.Parallel()
	theirs := func(change func(*bearing)) func(*bearing) {
		return func(b *bearing) {
			b.payload["sub"], b.payload["aud"] = `"auth0|123"`, `"https://api.example.com"`
			change(b)
		}
	}
	as := func(text string) func(*bearing) {
		return func(b *bearing) { b.edit = func(string) string { return text } }
	}
	spoiled := func(part int, text string) func(*bearing) {
		return func(b *bearing) {
			b.edit = func(token string) string {
				parts := strings.Split(token, ".")
				parts[part] = text
				return strings.Join(parts, ".")
			}
		}
	}
	for name, tc := range map[string]struct {
		change  func(*bearing)
		foreign bool
	}{
		"nothing":                         {as(""), true},
		"opaque":                          {as("ya29.a0AfH6SM"), true},
		"three parts that are no JWT":     {as("MTk4NjIy.Cl2FMQ.ZnCjm1XVW7vRze4b7C"), true},
		"an encrypted token":              {as("eyJhbGciOiJkaXIifQ..aaaa.bbbb.cccc"), true},
		"of another service":              {theirs(func(*bearing) {}), true},
		"of another service, HS256":       {theirs(func(b *bearing) { b.header["alg"] = `"HS256"` }), true},
		"of another service, no aud":      {theirs(func(b *bearing) { b.payload["aud"] = `` }), true},
		"of another service, no sub":      {theirs(func(b *bearing) { b.payload["sub"] = `` }), true},
		"of another service, long":        {theirs(func(b *bearing) { b.payload["groups"] = `"` + strings.Repeat("x", 9<<10) + `"` }), true},
		"an access token of a workload":   {func(b *bearing) { b.header["typ"], b.payload["aud"] = `"at+jwt"`, `"https://api.example.com"` }, true},
		"an access token for us":          {func(b *bearing) { b.header["typ"] = `"at+jwt"` }, false},
		"of another service, also ours":   {theirs(func(b *bearing) { b.payload["aud"] = `["x","` + self + `"]` }), false},
		"of a workload, for another":      {func(b *bearing) { b.payload["aud"] = `"spiffe://example.org/other"` }, false},
		"of a domain that is not trusted": {func(b *bearing) { b.payload["sub"] = `"spiffe://nowhere.org/a"` }, false},
		"long, and ours":                  {func(b *bearing) { b.payload["groups"] = `"` + strings.Repeat("x", 9<<10) + `"` }, false},
		"expired":                         {func(b *bearing) { b.payload["exp"] = number(noon.Unix() - 60) }, false},
		"signature of another":            {func(b *bearing) { b.key = newEC(t, elliptic.P256()) }, false},
		"alg none":                        {func(b *bearing) { b.header["alg"] = `"none"` }, false},
		"spoiled signature":               {spoiled(2, "*"), false},
		"spoiled payload":                 {spoiled(1, "e30*"), false},
		"an identity token":               {func(b *bearing) { b.header["typ"] = `"wit+jwt"`; b.payload["aud"] = `` }, false},
		"an ECT for another":              {theirs(func(b *bearing) { b.header["typ"] = `"exec+jwt"` }), false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBearing(t)
			tc.change(b)
			_, found, err := b.caller(t)
			refused, ok := errors.AsType[*identity.CredentialError](err)
			if found || !ok || refused.Foreign != tc.foreign {
				t.Errorf("got %v, %+v, want foreign %v", found, err, tc.foreign)
			}
		})
	}
	b := newBearing(t)
	bearer, err := credential.NewBearer(credential.BearerDeps{Bundle: b.bundle, Audience: []string{self}})
	if err != nil {
		t.Fatal(err)
	}
	_, _, err = bearer.Caller(credential.Request{Fields: http.Header{"Authorization": {"Bearer a", "Bearer b"}}.Values})
	if refused, ok := errors.AsType[*identity.CredentialError](err); !ok || refused.Foreign {
		t.Errorf("two fields, of which one may be ours: %v", err)
	}
}

func TestBearer_OtherSchemesAreIgnored(t *testing.T) {
	t.Parallel()
	b := newBearing(t)
	for _, scheme := range []string{"Basic ", "DPoP ", "WPT ", "Bearers ", ""} {
		b.scheme = scheme
		if who, found, err := b.caller(t); found || err != nil {
			t.Errorf("%q: got %s, %v", scheme, who.ID, err)
		}
	}
	bearer, err := credential.NewBearer(credential.BearerDeps{Bundle: b.bundle, Audience: []string{self}})
	if err != nil {
		t.Fatal(err)
	}
	if _, found, err := bearer.Caller(credential.Request{Fields: http.Header{}.Values}); found || err != nil {
		t.Errorf("nothing: %v, %v", found, err)
	}
	who, _, err := bearer.Caller(credential.Request{Fields: http.Header{"Authorization": {"Bearer a", "Bearer b"}}.Values})
	wantRefusal(t, who, err, identity.CredentialRepeated)
}

func TestBearer_RSA(t *testing.T) {
	t.Parallel()
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	b := newBearing(t)
	b.bundle = bundleWith(t, "example.org", raw{
		"kty": `"RSA"`, "use": `"jwt-svid"`, "kid": `"r"`,
		"n": quoted(encode(key.N.Bytes())), "e": quoted(encode(big.NewInt(int64(key.E)).Bytes())),
	})
	b.key, b.header["alg"], b.header["kid"] = nil, `"RS256"`, `"r"`
	b.edit = func(text string) string {
		sum := sha256.Sum256([]byte(strings.TrimSuffix(text, ".")))
		sig, err := rsa.SignPKCS1v15(nil, key, crypto.SHA256, sum[:])
		if err != nil {
			t.Fatal(err)
		}
		return text + encode(sig)
	}
	if who, found, err := b.caller(t); err != nil || !found || who.ID != caller {
		t.Errorf("got %v, %v", found, err)
	}
}

func TestNewBearer_Refuses(t *testing.T) {
	t.Parallel()
	bundle := bundleWith(t, "example.org")
	for name, deps := range map[string]credential.BearerDeps{
		"no bundle":         {Audience: []string{self}},
		"no audience":       {Bundle: bundle},
		"an empty audience": {Bundle: bundle, Audience: []string{""}},
		"negative skew":     {Bundle: bundle, Audience: []string{self}, Skew: -time.Second},
		"negative size":     {Bundle: bundle, Audience: []string{self}, MaxToken: -1},
	} {
		if _, err := credential.NewBearer(deps); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
}

// TestKnown_NamesATrustedKey: what names one of the keys is known, forged or late as it may
// be; everything that is refused without a look at its signature is not.
func TestKnown_NamesATrustedKey(t *testing.T) {
	t.Parallel()
	b, s := newBearing(t), newScene(t)
	bearer, err := credential.NewBearer(credential.BearerDeps{Bundle: b.bundle, Audience: []string{self}, Now: func() time.Time { return noon }})
	if err != nil {
		t.Fatal(err)
	}
	forger := newEC(t, elliptic.P256())
	for name, tc := range map[string]struct {
		header, payload raw // over the good ones, of both kinds of tokens
		known           bool
	}{
		"good":              {nil, nil, true},
		"late":              {nil, raw{"exp": number(noon.Unix() - 900)}, true},
		"for others":        {nil, raw{"aud": `"x"`, "iss": `"x"`}, true},
		"another key":       {raw{"kid": `"other"`}, nil, false},
		"another issuer":    {nil, raw{"sub": `"spiffe://nowhere.io/a"`}, false},
		"no issuer":         {nil, raw{"sub": ""}, false},
		"no workload":       {nil, raw{"sub": `"auth0|1"`}, false},
		"another algorithm": {raw{"alg": `"HS256"`}, nil, false},
		"another type":      {raw{"typ": `"exec+jwt"`}, nil, false},
		"critical":          {raw{"crit": `["x"]`}, nil, false},
	} {
		fields := http.Header{"Authorization": {"Bearer " + mint(t, forger, b.header.with(tc.header).String(), b.payload.with(tc.payload).String())}}
		if got := bearer.Known(credential.Request{Fields: fields.Values}); got != tc.known {
			t.Errorf("a JWT-SVID, %s: %v", name, got)
		}
		fields = http.Header{credential.IdentityField: {mint(t, forger, s.tokenHeader.with(tc.header).String(), s.tokenPayload.with(tc.payload).String())}}
		if got := s.wimse(t).Known(credential.Request{Fields: fields.Values}); got != tc.known {
			t.Errorf("an identity token, %s: %v", name, got)
		}
	}
	good := mint(t, b.key, b.header.String(), b.payload.String())
	for name, lines := range map[string][]string{
		"no token": nil, "opaque": {"Bearer abc"}, "two": {"Bearer " + good, "Bearer " + good}, "another scheme": {"Basic " + good},
		"too long": {"Bearer " + good + strings.Repeat("A", credential.DefaultMaxToken)},
	} {
		r := credential.Request{Fields: http.Header{"Authorization": lines, credential.IdentityField: lines}.Values}
		if bearer.Known(r) || s.wimse(t).Known(r) {
			t.Errorf("%s is known", name)
		}
	}
}
