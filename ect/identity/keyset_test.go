package identity

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/json"
	"errors"
	"maps"
	"math/big"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/ect/ecttest"
)

// jwk is a public key as its owner would publish it; more are further members,
// nil takes one away.
func jwk(t *testing.T, key crypto.PublicKey, more map[string]any) map[string]any {
	t.Helper()
	members := map[string]any{}
	switch key := key.(type) {
	case ed25519.PublicKey:
		members["kty"], members["crv"], members["x"] = "OKP", "Ed25519", encode(key)
	case *ecdsa.PublicKey:
		point, err := key.Bytes()
		if err != nil {
			t.Fatal(err)
		}
		half := 1 + len(point)/2
		members["kty"], members["crv"] = "EC", key.Params().Name
		members["x"], members["y"] = encode(point[1:half]), encode(point[half:])
	case *rsa.PublicKey:
		members["kty"], members["n"], members["e"] = "RSA", encode(key.N.Bytes()), encode(big.NewInt(int64(key.E)).Bytes())
	default:
		t.Fatalf("no such key: %T", key)
	}
	maps.Copy(members, more)
	maps.DeleteFunc(members, func(_ string, value any) bool { return value == nil })
	return members
}

func document(t *testing.T, keys ...map[string]any) []byte {
	t.Helper()
	text, err := json.Marshal(map[string]any{"keys": keys})
	if err != nil {
		t.Fatal(err)
	}
	return text
}

func setOf(t *testing.T, keys ...map[string]any) *KeySet {
	t.Helper()
	set, err := ParseKeySet(document(t, keys...))
	if err != nil {
		t.Fatal(err)
	}
	return set
}

func ecKey(t *testing.T, curve elliptic.Curve) *ecdsa.PublicKey {
	t.Helper()
	key, err := ecdsa.GenerateKey(curve, rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return &key.PublicKey
}

func edKey(t *testing.T) ed25519.PublicKey {
	t.Helper()
	key, _, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

func rsaKey(t *testing.T, bits int) *rsa.PublicKey {
	t.Helper()
	n := new(big.Int).Lsh(big.NewInt(1), uint(bits-1))
	return &rsa.PublicKey{N: n.SetBit(n, 0, 1), E: 65537} // a number of the right size: nothing is signed with it
}

func TestParseKeySet_Inputs(t *testing.T) {
	t.Parallel()
	ed, p256, p384 := edKey(t), ecKey(t, elliptic.P256()), ecKey(t, elliptic.P384())
	type m = map[string]any
	good := jwk(t, ed, nil)
	point, err := p256.Bytes()
	if err != nil {
		t.Fatal(err)
	}
	for name, tc := range map[string]struct {
		document []byte
		keys     int // 0: refused
	}{
		"one of each":             {document(t, good, jwk(t, p256, nil), jwk(t, p384, nil), jwk(t, rsaKey(t, 2048), nil)), 4},
		"with all that is usual":  {document(t, jwk(t, p256, m{"kid": "a", "alg": "ES256", "use": "sig", "key_ops": []string{"verify"}, "x5t": "x"})), 1},
		"SPIFFE's word":           {document(t, jwk(t, ed, m{"use": "wit-svid"})), 1},
		"members beside the keys": {[]byte(`{"spiffe_refresh_hint":1,` + strings.TrimPrefix(string(document(t, good)), "{")), 1},
		"other uses are skipped":  {document(t, good, jwk(t, p256, m{"use": "enc"}), jwk(t, p256, m{"use": "x509-svid"}), jwk(t, p256, m{"use": "jwt-svid"})), 1},
		"other kinds are skipped": {document(t, good, m{"kty": "AKP", "alg": "ML-DSA-44"}, m{"kty": "OKP", "crv": "X25519", "x": "AA"}, m{"kty": "EC", "crv": "secp256k1"}), 1},
		"as many as may be":       {document(t, many(good, 128)...), 128},
		"one more":                {document(t, many(good, 129)...), 0},
		"too large":               {document(t, jwk(t, ed, m{"x5c": strings.Repeat("x", 256<<10)})), 0},
		"no JSON":                 {[]byte(`keys`), 0},
		"an array":                {[]byte(`[]`), 0},
		"empty":                   {[]byte(`{}`), 0},
		"no keys":                 {[]byte(`{"keys":[]}`), 0},
		"keys null":               {[]byte(`{"keys":null}`), 0},
		"keys an object":          {[]byte(`{"keys":{}}`), 0},
		"keys twice":              {[]byte(`{"keys":[],` + strings.TrimPrefix(string(document(t, good)), "{")), 0},
		"a key that is none":      {[]byte(`{"keys":["x"]}`), 0},
		"a member twice":          {[]byte(`{"keys":[{"kty":"OKP","crv":"Ed25519","x":"` + encode(ed) + `","x":"` + encode(edKey(t)) + `"}]}`), 0},
		"only other uses":         {document(t, jwk(t, p256, m{"use": "enc"})), 0},
		"a private key":           {document(t, good, jwk(t, p256, m{"d": "AA"})), 0},
		"a private RSA key":       {document(t, good, jwk(t, rsaKey(t, 2048), m{"d": "AA"})), 0},
		"a shared key":            {document(t, good, m{"kty": "oct", "k": "AA"}), 0},
		"not to verify":           {document(t, jwk(t, p256, m{"key_ops": []string{"sign"}})), 0},
		"operations of no kind":   {document(t, jwk(t, p256, m{"key_ops": "verify"})), 0},
		"kid a number":            {document(t, jwk(t, p256, m{"kid": 1})), 0},
		"kid empty":               {document(t, jwk(t, p256, m{"kid": ""})), 0},
		"alg of another kind":     {document(t, jwk(t, p256, m{"alg": "EdDSA"})), 0},
		"alg of another curve":    {document(t, jwk(t, p384, m{"alg": "ES256"})), 0},
		"kty missing":             {document(t, jwk(t, p256, m{"kty": nil})), 0},
		"kty of another":          {document(t, jwk(t, p256, m{"kty": "OKP"})), 0},
		"crv of another":          {document(t, jwk(t, p256, m{"crv": "P-384"})), 0},
		"off the curve":           {document(t, jwk(t, p256, m{"y": encode(make([]byte, 32))})), 0},
		"coordinate short":        {document(t, jwk(t, p256, m{"x": "AAAA"})), 0},
		"coordinates shifted":     {document(t, jwk(t, p256, m{"x": encode(point[1:34]), "y": encode(point[34:])})), 0},
		"coordinate padded":       {document(t, jwk(t, ed, m{"x": encode(ed) + "="})), 0},
		"coordinate of order 1":   {document(t, jwk(t, ed, m{"x": "AQ" + strings.Repeat("A", 41)})), 0},
		"RSA too small":           {document(t, jwk(t, rsaKey(t, 1024), nil)), 0},
		"RSA too large":           {document(t, jwk(t, rsaKey(t, 16384), nil)), 0},
		"RSA exponent one":        {document(t, jwk(t, rsaKey(t, 2048), m{"e": "AQ"})), 0},
		"RSA exponent even":       {document(t, jwk(t, rsaKey(t, 2048), m{"e": "Ag"})), 0},
		"RSA exponent huge":       {document(t, jwk(t, rsaKey(t, 2048), m{"e": encode([]byte{1, 0, 0, 0, 0, 0, 0, 0, 1})})), 0},
	} {
		set, err := ParseKeySet(tc.document)
		if (err == nil) != (tc.keys > 0) || err == nil && len(set.keys) != tc.keys {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func many(key map[string]any, count int) []map[string]any {
	keys := make([]map[string]any, count)
	for i := range keys {
		keys[i] = key
	}
	return keys
}

func TestLoadKeySet_Files(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "keys.json")
	if _, err := LoadKeySet(file); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("no file: %v", err)
	}
	for _, tc := range []struct {
		text []byte
		ok   bool
	}{{document(t, jwk(t, edKey(t), nil)), true}, {nil, false}, {make([]byte, maxKeySet+1), false}} {
		if err := os.WriteFile(file, tc.text, publicMode); err != nil {
			t.Fatal(err)
		}
		if _, err := LoadKeySet(file); (err == nil) != tc.ok {
			t.Errorf("%d bytes: %v", len(tc.text), err)
		}
	}
}

func TestKeySet_Find(t *testing.T) {
	t.Parallel()
	ed, p256, other, p384, strong := edKey(t), ecKey(t, elliptic.P256()), ecKey(t, elliptic.P256()), ecKey(t, elliptic.P384()), rsaKey(t, 2048)
	type m = map[string]any
	set := setOf(t, jwk(t, ed, m{"kid": "a"}), jwk(t, p256, m{"kid": "a"}), jwk(t, other, m{"kid": "b"}), jwk(t, p384, nil),
		jwk(t, strong, m{"kid": "r", "alg": "PS256"}), jwk(t, rsaKey(t, 2056), m{"kid": "c"}), jwk(t, rsaKey(t, 2064), m{"kid": "c"}))
	for name, tc := range map[string]struct {
		alg, kid string
		want     crypto.PublicKey // nil: none
	}{
		"by kid and algorithm":       {"ES256", "a", p256},
		"the other of the kid":       {"EdDSA", "a", ed},
		"by kid":                     {"ES256", "b", other},
		"by thumbprint":              {"ES256", thumbprint(other), other},
		"the only one that fits":     {"ES384", "", p384},
		"the only one, by algorithm": {"EdDSA", "", ed},
		"two fit":                    {"ES256", "", nil},
		"two of a name":              {"RS256", "c", nil},
		"kid of another algorithm":   {"EdDSA", "b", nil},
		"kid unknown":                {"ES256", "z", nil},
		"alg of the key's own":       {"PS256", "r", strong},
		"alg not the key's own":      {"RS256", "r", nil},
		"no algorithm":               {"", "a", nil},
		"none":                       {"none", "a", nil},
		"a secret's":                 {"HS256", "a", nil},
	} {
		got, ok := set.Find(tc.alg, tc.kid)
		if ok != (tc.want != nil) || ok && !got.(interface{ Equal(crypto.PublicKey) bool }).Equal(tc.want) {
			t.Errorf("%s: %v", name, ok)
		}
	}
}

func TestJWKSource_Verifies(t *testing.T) {
	t.Parallel()
	const ours, theirs = ect.Identity("https://agent.example.com"), ect.Identity("urn:uuid:550e8400-e29b-41d4-a716-446655440000")
	one, two := ecttest.NewParty(t, ours), ecttest.NewEdwardsParty(t, ours)
	third := ecttest.NewParty(t, theirs)
	type m = map[string]any
	source, err := NewJWKSource(map[ect.Identity]*KeySet{
		ours:   setOf(t, jwk(t, one.Peer().Key, m{"kid": "k1"}), jwk(t, two.Peer().Key, m{"kid": "k2"})),
		theirs: setOf(t, jwk(t, third.Peer().Key, m{"kid": "k1"})),
	})
	if err != nil {
		t.Fatal(err)
	}
	verifier, err := ect.NewVerifier(ect.VerifierDeps{Keys: source, Now: at(noon)})
	if err != nil {
		t.Fatal(err)
	}
	for name, tc := range map[string]struct {
		from   *ecttest.Party
		kid    string
		issuer ect.Identity
		want   ect.Reason // empty: accepted
	}{
		"by kid":                   {one, `"k1"`, ours, ""},
		"by kid, EdDSA":            {two, `"k2"`, ours, ""},
		"by thumbprint":            {one, `"` + one.KeyID + `"`, ours, ""},
		"by algorithm":             {two, ``, ours, ""},
		"another issuer, same kid": {third, `"k1"`, theirs, ""},
		"kid of the other key":     {one, `"k2"`, ours, ect.ReasonUnknownKey},
		"kid unknown":              {one, `"k3"`, ours, ect.ReasonUnknownKey},
		"issuer unknown":           {one, `"k1"`, "https://agent.example.com/", ect.ReasonUnknownKey},
		"in another's name":        {third, `"k1"`, ours, ect.ReasonInvalidSignature},
		"in the other's name":      {one, `"k1"`, theirs, ect.ReasonInvalidSignature},
	} {
		compact := ecttest.Mint(t, tc.from, ecttest.Recipe{Claims: ect.Claims{Issuer: tc.issuer}, Header: ecttest.Raw{"kid": tc.kid, "x5c": ``}})
		_, err := verifier.Verify(t.Context(), compact, ect.Check{Purpose: ect.Parent})
		var invalid *ect.InvalidError
		if tc.want == "" && err != nil || tc.want != "" && (!errors.As(err, &invalid) || invalid.Reason != tc.want) {
			t.Errorf("%s: got %v, want %q", name, err, tc.want)
		}
	}

	compact := ecttest.Mint(t, one, ecttest.Recipe{Header: ecttest.Raw{"kid": `"k1"`, "x5c": ``}})
	if err := source.Replace(nil); err != nil {
		t.Fatal(err)
	}
	if _, err := verifier.Verify(t.Context(), compact, ect.Check{Purpose: ect.Parent}); err == nil {
		t.Error("a withdrawn key is still good")
	}
	for name, sets := range map[string]map[ect.Identity]*KeySet{"nobody's": {"": setOf(t, jwk(t, edKey(t), nil))}, "no keys": {ours: nil}} {
		if _, err := NewJWKSource(sets); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
}

func TestKeySources_InOrder(t *testing.T) {
	t.Parallel()
	a := authority(t, domain)
	agent := issue(t, a, "/agents/a", SVIDRequest{})
	foreign := issue(t, authority(t, "foreign.org"), "/agents/f", SVIDRequest{})
	jwks, err := NewJWKSource(map[ect.Identity]*KeySet{foreign.ID: setOf(t, jwk(t, foreign.Key.Public(), map[string]any{"kid": "f"}))})
	if err != nil {
		t.Fatal(err)
	}
	chain := ring(t, bundleOf(t, a), 0)
	request := func(s *SVID, kid string) ect.KeyRequest {
		return ect.KeyRequest{Header: ect.Header{Algorithm: "ES256", KeyID: kid, Chain: x5c(s.Chain...)}, Issuer: s.ID, At: noon}
	}
	for name, tc := range map[string]struct {
		sources KeySources
		request ect.KeyRequest
		want    ect.Reason // empty: found
	}{
		"in the first":                {KeySources{jwks, chain}, request(foreign, "f"), ""},
		"in the second":               {KeySources{jwks, chain}, request(agent, ""), ""},
		"in none":                     {KeySources{jwks}, request(agent, ""), ect.ReasonUnknownKey},
		"nowhere to look":             {nil, request(agent, ""), ect.ReasonUnknownKey},
		"found and not trusted":       {KeySources{jwks, chain}, request(foreign, "g"), ect.ReasonKeyNotTrusted},
		"the last word comes earlier": {KeySources{chain, jwks}, request(foreign, "f"), ect.ReasonKeyNotTrusted},
	} {
		got, err := tc.sources.Resolve(t.Context(), tc.request)
		var invalid *ect.InvalidError
		switch {
		case tc.want == "" && (err != nil || got.ID != tc.request.Issuer):
			t.Errorf("%s: got %q, %v", name, got.ID, err)
		case tc.want != "" && (!errors.As(err, &invalid) || invalid.Reason != tc.want):
			t.Errorf("%s: got %v", name, err)
		}
	}
}

func TestBundle_TokenKeys(t *testing.T) {
	t.Parallel()
	bundle := bundleOf(t, authority(t, domain))
	text, err := bundle.MarshalJWKS()
	if err != nil {
		t.Fatal(err)
	}
	if _, ok := bundle.TokenKeys(domain); ok {
		t.Error("keys out of nothing")
	}
	p256 := ecKey(t, elliptic.P256())
	with := func(key map[string]any) []byte {
		one, err := json.Marshal(key)
		if err != nil {
			t.Fatal(err)
		}
		return []byte(strings.Replace(string(text), `"keys": [`, `"keys": [`+string(one)+`,`, 1))
	}
	type m = map[string]any
	for name, tc := range map[string]struct {
		key   map[string]any
		ok    bool // the document is accepted
		found bool
	}{
		"a key":             {jwk(t, p256, m{"use": "jwt-svid", "kid": "k"}), true, true},
		"without a name":    {jwk(t, p256, m{"use": "jwt-svid"}), true, false},
		"of another use":    {jwk(t, p256, m{"use": "sig", "kid": "k"}), true, false},
		"of another kind":   {m{"use": "jwt-svid", "kid": "k", "kty": "AKP"}, true, false},
		"a private one":     {jwk(t, p256, m{"use": "jwt-svid", "kid": "k", "d": "AA"}), false, false},
		"a broken one":      {jwk(t, p256, m{"use": "jwt-svid", "kid": "k", "x": "AA"}), false, false},
		"not even a member": {m{"use": 1}, false, false},
	} {
		parsed, err := ParseBundle(domain, with(tc.key))
		if (err == nil) != tc.ok {
			t.Errorf("%s: %v", name, err)
		}
		if err != nil {
			continue
		}
		keys, ok := parsed.TokenKeys(domain)
		if ok {
			_, ok = keys.Find("ES256", "k")
		}
		if ok != tc.found {
			t.Errorf("%s: found %v", name, ok)
		}
	}
	own, err := ParseBundle(domain, with(jwk(t, p256, m{"use": "jwt-svid", "kid": "k"})))
	if err != nil {
		t.Fatal(err)
	}
	bundle.Trust(own)
	if _, ok := bundle.TokenKeys(domain); !ok {
		t.Error("the keys of the other were not taken over")
	}
	bundle.Trust(bundleOf(t, authority(t, domain)))
	if _, ok := bundle.TokenKeys(domain); ok {
		t.Error("keys outlive their anchor")
	}
	for _, domain := range []string{"", "elsewhere.org", "no domain"} {
		if _, ok := bundle.TokenKeys(domain); ok {
			t.Errorf("%q has keys", domain)
		}
	}
}

// An Ed25519 SVID signs, is kept and is found again like any other.
func TestSVID_Ed25519(t *testing.T) {
	t.Parallel()
	_, key, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	a := authority(t, domain)
	s := issue(t, a, "/agents/ed", SVIDRequest{Key: key})
	certs, keys := filepath.Join(t.TempDir(), "c.pem"), filepath.Join(t.TempDir(), "k.pem")
	if err := s.WritePEM(certs, keys); err != nil {
		t.Fatal(err)
	}
	read, err := LoadSVID(certs, keys)
	if err != nil {
		t.Fatal(err)
	}
	signer, err := ect.NewSigner(ect.SignerDeps{Key: read.Key, Chain: read.Chain, Issuer: read.ID, Now: at(noon)})
	if err != nil {
		t.Fatal(err)
	}
	token, err := signer.Sign(ect.Claims{Audience: []string{"x"}, Act: "send_task"})
	if err != nil {
		t.Fatal(err)
	}
	verifier, err := ect.NewVerifier(ect.VerifierDeps{Keys: ring(t, bundleOf(t, a), 0), Now: at(noon)})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := verifier.Verify(t.Context(), token.Compact(), ect.Check{Purpose: ect.Parent}); err != nil {
		t.Error(err)
	}
	web := craft(t, a.anchors[0], a.key, func(c *x509.Certificate) { c.IsCA = true })
	if sameKey(key, web.Chain[0]) || !sameKey(key, s.Chain[0]) {
		t.Error("keys are mixed up")
	}
}
