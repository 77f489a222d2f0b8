package jose

import (
	"bytes"
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"math/big"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// RFC 8037 appendix A.4 and RFC 7515 appendix A.3, as published.
func TestVerify_PublishedSignatures(t *testing.T) {
	t.Parallel()
	for alg, tc := range map[string]struct{ key, compact string }{
		EdDSA: {
			`{"kty":"OKP","crv":"Ed25519","x":"11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo"}`,
			"eyJhbGciOiJFZERTQSJ9.RXhhbXBsZSBvZiBFZDI1NTE5IHNpZ25pbmc.hgyY0il_MGCjP0JzlnLWG1PPOt7-09PGcvMg3AIbQR6dWbhijcNR4ki4iylGjg5BhVsPt9g7sVvpAr_MuM0KAg",
		},
		ES256: {
			`{"kty":"EC","crv":"P-256","x":"f83OJ3D2xF1Bg8vub9tLe1gHMzV76e8Tus9uPHvRVEU","y":"x_FEzRu9m36HLN_tue659LNpXW6pCyStikYjKIWI5a0"}`,
			"eyJhbGciOiJFUzI1NiJ9.eyJpc3MiOiJqb2UiLA0KICJleHAiOjEzMDA4MTkzODAsDQogImh0dHA6Ly9leGFtcGxlLmNvbS9pc19yb290Ijp0cnVlfQ." +
				"DtEhU3ljbEg8L38VWAfUAqOyKAM6-Xx-F4GawxaepmXFCgfTjDxw5djxLa8ISlSApmWQxfKTUJqPP3-Kg6NU1Q",
		},
	} {
		key, err := ParseKey(&Scanner{}, json.RawMessage(tc.key))
		if err != nil {
			t.Fatal(err)
		}
		cut := strings.LastIndexByte(tc.compact, '.')
		sig, err := Decode(tc.compact[cut+1:], "signature")
		if err != nil || !Verify(alg, key.Public, []byte(tc.compact[:cut]), sig) {
			t.Errorf("%s: the published signature does not verify: %v", alg, err)
		}
		sig[0]++
		if Verify(alg, key.Public, []byte(tc.compact[:cut]), sig) {
			t.Errorf("%s: another signature verifies", alg)
		}
	}
}

// Each of the points lets anybody sign: R of order one and S zero verify for
// one message in at most eight, without any private key.
func TestSmallPoints_VerifyWithoutAPrivateKey(t *testing.T) {
	t.Parallel()
	forged := make([]byte, ed25519.SignatureSize)
	forged[0] = 1
	weak := func(key ed25519.PublicKey) bool {
		for i := range uint32(200) {
			if ed25519.Verify(key, binary.BigEndian.AppendUint32(nil, i), forged) {
				return true
			}
		}
		return false
	}
	for i, point := range smallPoints {
		for _, sign := range []byte{0, 0x80} {
			key := ed25519.PublicKey(bytes.Clone(point))
			key[31] |= sign
			if !smallOrder(key) || Fits(EdDSA, key) {
				t.Errorf("point %d, sign %d: not recognised", i, sign)
			}
			if sign == 0 && !weak(key) {
				t.Errorf("point %d is not weak at all", i)
			}
		}
	}
	for range 20 {
		key, _, err := ed25519.GenerateKey(rand.Reader)
		if err != nil {
			t.Fatal(err)
		}
		if smallOrder(key) || weak(key) {
			t.Error("an ordinary key is taken for a weak one")
		}
	}
}

func TestFits_KeysAndAlgorithms(t *testing.T) {
	t.Parallel()
	p256, p384 := newEC(t, elliptic.P256()), newEC(t, elliptic.P384())
	_, ed, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	strong, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	edPublic, _ := ed.Public().(ed25519.PublicKey)
	for name, tc := range map[string]struct {
		key  crypto.PublicKey
		want string // algorithms of all that fit
	}{
		"P-256": {&p256.PublicKey, "ES256"}, "P-384": {&p384.PublicKey, "ES384"}, "P-521": {&newEC(t, elliptic.P521()).PublicKey, "ES512"},
		"Ed25519": {edPublic, "EdDSA"}, "RSA": {&strong.PublicKey, "RS256 RS384 RS512 PS256 PS384 PS512"},
		"private EC": {p256, ""}, "private Ed25519": {ed, ""}, "private RSA": {strong, ""}, "Ed25519 cut": {edPublic[:31], ""},
		"nil": {nil, ""}, "nil EC": {(*ecdsa.PublicKey)(nil), ""}, "nil RSA": {(*rsa.PublicKey)(nil), ""}, "empty RSA": {&rsa.PublicKey{}, ""},
		"EC by value": {p256.PublicKey, ""}, "a secret": {[]byte("secret"), ""}, "a text": {"secret", ""},
	} {
		for _, alg := range []string{"ES256", "ES384", "ES512", "EdDSA", "RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "none", "HS256", "", "es256", "ES256K"} {
			if want := alg != "" && strings.Contains(tc.want, alg); Fits(alg, tc.key) != want {
				t.Errorf("%s, %s: want %v", name, alg, want)
			}
			if Verify(alg, tc.key, []byte("a.b"), nil) || Verify(alg, tc.key, []byte("a.b"), make([]byte, 64)) {
				t.Errorf("%s, %s: nothing is a signature", name, alg)
			}
		}
	}
}

func newEC(t *testing.T, curve elliptic.Curve) *ecdsa.PrivateKey {
	t.Helper()
	key, err := ecdsa.GenerateKey(curve, rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

func TestSign_Verifies(t *testing.T) {
	t.Parallel()
	_, ed, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	for _, key := range []crypto.Signer{newEC(t, elliptic.P256()), ed} {
		alg, err := CheckSigner(key)
		if err != nil || alg != AlgorithmOf(key.Public()) {
			t.Fatal(alg, err)
		}
		sig, err := Sign(alg, key, []byte("a.b"))
		if err != nil || len(sig) != 64 || !Verify(alg, key.Public(), []byte("a.b"), sig) {
			t.Errorf("%s: %d bytes, %v", alg, len(sig), err)
		}
	}
	_, other, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	for name, key := range map[string]crypto.Signer{
		"nil": nil, "nil EC": (*ecdsa.PrivateKey)(nil), "empty": ed25519.PrivateKey(nil), "short": ed[:32],
		"two halves": ed25519.PrivateKey(append(bytes.Clone(ed[:32]), other[32:]...)), "another curve": newEC(t, elliptic.P384()),
	} {
		if alg, err := CheckSigner(key); !errors.Is(err, ErrKey) || alg != "" {
			t.Errorf("%s: %q, %v", name, alg, err)
		}
	}
	if _, err := Sign("HS256", ed, []byte("a.b")); err == nil {
		t.Error("signed with a secret")
	}
}

// The signatures of RFC 6979 appendix A.2.5 (P-256, SHA-256), and numbers with zeros
// in front.
func TestSign_ES256IsDeterministic(t *testing.T) {
	t.Parallel()
	secret, err := hex.DecodeString("c9afa9d845ba75166b5c215767b1d6934e50c3db36e89b127b8a622b120f6721")
	if err != nil {
		t.Fatal(err)
	}
	key, err := ecdsa.ParseRawPrivateKey(elliptic.P256(), secret)
	if err != nil {
		t.Fatal(err)
	}
	for message, want := range map[string]string{
		"sample": "efd48b2aacb6a8fd1140dd9cd45e81d69d2c877b56aaf991c34d0ea84eaf3716f7cb1c942d657c41d436c7a1b6e29f65f3e900dbb9aff4064dc4ab2f843acda8",
		"test":   "f1abb023518351cd71d881567b1ea663ed3efcf6c5132b354f28d3b0b7d38367019f4113742a2b14bd25926b49c649155f267e60d3814b4c0cc84250e46f0083",
	} {
		if got, err := Sign(ES256, key, []byte(message)); hex.EncodeToString(got) != want || err != nil {
			t.Errorf("%s: %x, %v", message, got, err)
		}
	}
	short := 0
	for n := range 600 {
		message := []byte(strconv.Itoa(n))
		sig, err := Sign(ES256, key, message)
		if err != nil || !Verify(ES256, key.Public(), message, sig) {
			t.Fatalf("%d: %x, %v", n, sig, err)
		}
		if sig[0] == 0 || sig[32] == 0 {
			short++
		}
	}
	if short == 0 {
		t.Error("no number has a zero in front")
	}
}

// TestVerify_ES256AsIntegers: every pair of numbers is judged as the library judges them.
func TestVerify_ES256AsIntegers(t *testing.T) {
	t.Parallel()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	message := []byte("message")
	sum := sha256.Sum256(message)
	good, err := Sign(ES256, key, message)
	if err != nil {
		t.Fatal(err)
	}
	order := elliptic.P256().Params().N.Bytes()
	halves := [][]byte{good[:half], good[half:], make([]byte, half), order, bytes.Repeat([]byte{0xff}, half), append(make([]byte, half-1), 0x80), append(make([]byte, half-1), 1)}
	for _, r := range halves {
		for _, s := range halves {
			want := ecdsa.Verify(&key.PublicKey, sum[:], new(big.Int).SetBytes(r), new(big.Int).SetBytes(s))
			if got := Verify(ES256, &key.PublicKey, message, slices.Concat(r, s)); got != want {
				t.Errorf("%x, %x: %v, want %v", r, s, got, want)
			}
		}
	}
}

func BenchmarkSign_ES256(b *testing.B) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		b.Fatal(err)
	}
	input := []byte("a.b")
	b.Run("deterministic", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if _, err := Sign(ES256, key, input); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("random", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			sum := sha256.Sum256(input)
			if _, _, err := ecdsa.Sign(rand.Reader, key, sum[:]); err != nil {
				b.Fatal(err)
			}
		}
	})
}

func TestParseJWT_Inputs(t *testing.T) {
	t.Parallel()
	encode := func(text string) string { return base64.RawURLEncoding.EncodeToString([]byte(text)) }
	whole := encode(`{"typ":"Application/X+jwt","alg":"ES256","kid":"k","crit":[],"jku":"x"}`) + "." + encode(`{"a":"b"}`) + ".AA"
	token, err := ParseJWT(whole, len(whole))
	if err != nil || token.Type != "x+jwt" || token.Algorithm != "ES256" || token.KeyID != "k" || !token.Critical || token.Claims.Text("a") != "b" {
		t.Fatalf("%+v, %v", token, err)
	}
	const limit = 1024
	for name, tc := range map[string]struct {
		text string
		want Kind
	}{
		"too long":       {whole + strings.Repeat("A", limit-len(whole)+1), Size},
		"two parts":      {encode(`{}`) + "." + encode(`{}`), Shape},
		"four parts":     {"A.A.A.A", Shape},
		"empty parts":    {"..", Encoding},
		"header":         {encode(`[]`) + "." + encode(`{}`) + ".", Encoding},
		"payload":        {encode(`{}`) + "." + encode(`1`) + ".", Encoding},
		"signature":      {encode(`{}`) + "." + encode(`{}`) + ".=", Encoding},
		"stray bits":     {encode(`{}`) + "." + encode(`{}`) + ".AB", Encoding},
		"a line break":   {encode(`{}`) + "." + encode(`{}`) + ".AA\n", Encoding},
		"typ a number":   {encode(`{"typ":1}`) + "." + encode(`{}`) + ".", Encoding},
		"alg null":       {encode(`{"alg":null}`) + "." + encode(`{}`) + ".", Encoding},
		"a member twice": {encode(`{"alg":"a","\u0061lg":"b"}`) + "." + encode(`{}`) + ".", Encoding},
		"too deep":       {encode(`{}`) + "." + encode(`{"a":`+strings.Repeat("[", 200)+strings.Repeat("]", 200)+`}`) + ".", Encoding},
	} {
		_, err := ParseJWT(tc.text, limit)
		if kind, reason, ok := Unreadable(err); !ok || kind != tc.want || reason == "" {
			t.Errorf("%s: got %v", name, err)
		}
	}
}

func TestClaims_TypesAndFaults(t *testing.T) {
	t.Parallel()
	text := `{"text":"x","empty":"","time":1,"fraction":1.5,"late":253402300800,"texts":["x","y"],"none":[],"holes":["x",""],"mixed":["x",1],"object":{"a":"b"},"null":null}`
	read := func() *Claims {
		c, err := ParseClaims(&Scanner{}, []byte(text), "claims")
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	c := read()
	if c.Text("text") != "x" || c.Time("time") != 1 || len(c.Texts("texts")) != 2 || c.Texts("text")[0] != "x" || c.Object("object").Text("a") != "b" {
		t.Error("not what is written")
	}
	if c.Text("absent") != "" || c.Time("absent") != 0 || c.Texts("absent") != nil || c.Object("absent") != nil || c.Fault() != nil {
		t.Errorf("what is not there is a fault: %v", c.Fault())
	}
	for name, ask := range map[string]func(*Claims){
		"empty":    func(c *Claims) { c.Text("empty") },
		"fraction": func(c *Claims) { c.Time("fraction") },
		"late":     func(c *Claims) { c.Time("late") },
		"time":     func(c *Claims) { c.Text("time") },
		"none":     func(c *Claims) { c.Texts("none") },
		"holes":    func(c *Claims) { c.Texts("holes") },
		"mixed":    func(c *Claims) { c.Texts("mixed") },
		"text":     func(c *Claims) { c.Object("text") },
		"null":     func(c *Claims) { c.Text("null") },
		"texts":    func(c *Claims) { c.Time("texts"); c.Text("null") },
	} {
		c := read()
		ask(c)
		if f := c.Fault(); f == nil || f.Missing || f.Claim != name {
			t.Errorf("%s: got %+v", name, f)
		}
	}
	c.Demand("text", "absent", "gone")
	if f := c.Fault(); f == nil || !f.Missing || f.Claim != "absent" {
		t.Errorf("got %+v", f)
	}
}

func FuzzKey_Parse(f *testing.F) {
	f.Add([]byte(`{"kty":"OKP","crv":"Ed25519","x":"11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo","kid":"k","alg":"EdDSA"}`))
	f.Add([]byte(`{"kty":"EC","crv":"P-256","x":"f83OJ3D2xF1Bg8vub9tLe1gHMzV76e8Tus9uPHvRVEU","y":"x_FEzRu9m36HLN_tue659LNpXW6pCyStikYjKIWI5a0"}`))
	f.Add([]byte(`{"kty":"RSA","n":"AQ","e":"AQAB","key_ops":["verify"]}`))
	f.Add([]byte(`{"kty":"oct","k":"AA"}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		key, err := ParseKey(&Scanner{}, text)
		if err != nil {
			if !errors.Is(err, ErrKey) || key.Public != nil {
				t.Errorf("got %v", err)
			}
			return
		}
		fits := false
		for alg := range methods {
			fits = fits || Fits(alg, key.Public)
		}
		var members map[string]json.RawMessage
		if err := json.Unmarshal(text, &members); err != nil || !fits || members["d"] != nil || members["k"] != nil {
			t.Errorf("accepted %T: %v", key.Public, err)
		}
	})
}
