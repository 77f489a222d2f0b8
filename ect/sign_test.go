package ect_test

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"
	"github.com/google/go-cmp/cmp"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/ect/ecttest"
)

// The hashes and claims of the example in the draft's first revision.
func TestHashAndThumbprint_KnownAnswers(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"test": "n4bQgYhMfWWaL-qgxVrQFaO_TxsrC4Is0V1sFbDwCgg",
		"foo":  "LCa0a2j_xo_5m0U8HTBBNBNCLXBkg7-g-YpeiGJm564",
		"":     "47DEQpj8HBSa-_TImW-5JCeuQeRkm5NMpJWZG3hSuFU",
	} {
		if got := ect.Hash([]byte(text)); got != want {
			t.Errorf("%q: got %s, want %s", text, got, want)
		}
	}
	// RFC 7515 appendix A.3 publishes the key; the thumbprint is OpenSSL's SHA-256 of its RFC 7638 form.
	x, y := "f83OJ3D2xF1Bg8vub9tLe1gHMzV76e8Tus9uPHvRVEU", "x_FEzRu9m36HLN_tue659LNpXW6pCyStikYjKIWI5a0"
	key := publicKey(t, x, y)
	got, err := ect.Thumbprint(key)
	if err != nil {
		t.Fatal(err)
	}
	if want := "oKIywvGUpTVTyxMQ3bwIIeQUudfr_CkLMjCE19ECD-U"; got != want {
		t.Errorf("thumbprint: got %s, want %s", got, want)
	}
}

func publicKey(t *testing.T, x, y string) *ecdsa.PublicKey {
	t.Helper()
	point := []byte{4}
	for _, coordinate := range []string{x, y} {
		content, err := base64.RawURLEncoding.DecodeString(coordinate)
		if err != nil {
			t.Fatal(err)
		}
		point = append(point, content...)
	}
	key, err := ecdsa.ParseUncompressedPublicKey(elliptic.P256(), point)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

func TestSign_Verifies(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	ext := ect.Ext{"b": []byte(` {"x": 1.50} `), "a": []byte(`"é\u2028"`)}
	want := ect.Claims{
		Audience: []string{self, "spiffe://example.com/ledger"}, Act: ect.ActTranslate, Workflow: string(ect.NewID()),
		Parents: []ect.ID{ect.NewID()}, InputHash: ect.Hash([]byte("in")), OutputHash: ect.Hash(s.Body), Ext: ext,
	}
	token, err := s.From.Signer(t, s.clock).Sign(want)
	if err != nil {
		t.Fatal(err)
	}
	got := token.Claims()
	if got.Issuer != s.From.ID || got.IssuedAt != s.Now.Unix() || got.Expires != s.Now.Unix()+600 || got.ID == "" || got.ID != token.ID() {
		t.Errorf("what Sign fills: got %+v", got)
	}
	v, err := s.verifier(t).Verify(t.Context(), token.Compact(), s.source())
	if err != nil {
		t.Fatal(err)
	}
	trimmed := token.Claims()
	trimmed.Ext["b"] = bytes.TrimSpace(trimmed.Ext["b"])
	if diff := cmp.Diff(trimmed, v.Claims()); diff != "" {
		t.Errorf("signed and verified differ (-signed +verified):\n%s", diff)
	}
}

func TestSign_SeedDialect(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	id := ect.ID("550e8400-e29b-41d4-a716-446655440000")
	token, err := s.From.Signer(t, s.clock).Sign(ect.Claims{
		ID: id, Audience: []string{"spiffe://example.com/agent/b"}, Act: "review_spec",
		Ext: ect.Ext{"f": []byte(`6`), "e": []byte(`5`), "d": []byte(`4`), "c": []byte(`3`), "b": []byte(`2`), "a": []byte(`[]`)},
	})
	if err != nil {
		t.Fatal(err)
	}
	part := strings.Split(token.Compact(), ".")
	want := `{"iss":"spiffe://example.com/agent/a","aud":"spiffe://example.com/agent/b","iat":1772064000,"exp":1772064600,` +
		`"jti":"550e8400-e29b-41d4-a716-446655440000","exec_act":"review_spec","par":[],"ext":{"a":[],"b":2,"c":3,"d":4,"e":5,"f":6}}`
	if got := decode(t, part[1]); got != want {
		t.Errorf("payload:\n got %s\nwant %s", got, want)
	}
	header := fmt.Sprintf(`{"alg":"ES256","typ":"exec+jwt","kid":%q,"x5c":[%q]}`,
		s.From.KeyID, base64.StdEncoding.EncodeToString(s.From.Chain[0].Raw))
	if got := decode(t, part[0]); got != header {
		t.Errorf("header:\n got %s\nwant %s", got, header)
	}
}

func decode(t *testing.T, part string) string {
	t.Helper()
	raw, err := base64.RawURLEncoding.Strict().DecodeString(part)
	if err != nil {
		t.Fatal(err)
	}
	return string(raw)
}

// The oracle is the JWT library as anybody would use it, with the key that the
// token itself brings.
func TestSign_JWTLibraryVerifies(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	want := s.Claims()
	want.Parents = []ect.ID{ect.NewID()}
	signed, err := s.From.Signer(t, time.Now).Sign(ect.Claims{
		Audience: want.Audience, Act: want.Act, Workflow: want.Workflow, Parents: want.Parents, OutputHash: want.OutputHash,
	})
	if err != nil {
		t.Fatal(err)
	}
	leafKey := func(token *jwt.Token) (any, error) {
		chain, _ := token.Header["x5c"].([]any)
		der, err := base64.StdEncoding.DecodeString(fmt.Sprint(chain[0]))
		if err != nil {
			return nil, err
		}
		leaf, err := x509.ParseCertificate(der)
		if err != nil {
			return nil, err
		}
		return leaf.PublicKey, nil
	}
	token, err := jwt.Parse(signed.Compact(), leafKey, jwt.WithValidMethods([]string{"ES256"}), jwt.WithAudience(self),
		jwt.WithIssuer(string(s.From.ID)), jwt.WithExpirationRequired(), jwt.WithIssuedAt(), jwt.WithJSONNumber(), jwt.WithStrictDecoding())
	if err != nil {
		t.Fatal(err)
	}
	got := token.Claims.(jwt.MapClaims)
	wantClaims := jwt.MapClaims{
		"iss": string(s.From.ID), "aud": self, "jti": string(signed.ID()), "exec_act": "send_task", "wid": want.Workflow,
		"iat": json.Number(strconv.FormatInt(signed.Claims().IssuedAt, 10)), "exp": json.Number(strconv.FormatInt(signed.Claims().Expires, 10)),
		"par": []any{string(want.Parents[0])}, "out_hash": want.OutputHash,
	}
	if diff := cmp.Diff(wantClaims, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestSign_Refuses(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	signer := s.From.Signer(t, s.clock)
	id := ect.NewID()
	for name, change := range map[string]func(*ect.Claims){
		"somebody else's name":  func(c *ect.Claims) { c.Issuer = s.Other.ID },
		"no audience":           func(c *ect.Claims) { c.Audience = nil },
		"no act":                func(c *ect.Claims) { c.Act = "" },
		"broken UTF-8":          func(c *ect.Claims) { c.Act = "\xff" },
		"an id that is none":    func(c *ect.Claims) { c.ID = "1" },
		"its own parent":        func(c *ect.Claims) { c.ID, c.Parents = id, []ect.ID{id} },
		"a parent twice":        func(c *ect.Claims) { c.Parents = []ect.ID{id, id} },
		"a workflow by name":    func(c *ect.Claims) { c.Workflow = "bgp-failover" },
		"a hash with a prefix":  func(c *ect.Claims) { c.InputHash = "sha-256:" + ect.Hash(nil) },
		"an end before its day": func(c *ect.Claims) { c.Expires = s.Now.Unix() },
		"ext not JSON":          func(c *ect.Claims) { c.Ext = ect.Ext{"a": []byte(`{`)} },
		"ext empty value":       func(c *ect.Claims) { c.Ext = ect.Ext{"a": nil} },
		"ext smuggles a member": func(c *ect.Claims) { c.Ext = ect.Ext{"a": []byte(`1,"aepb.leg":"reply"`)} },
		"ext, a member in text": func(c *ect.Claims) { c.Ext = ect.Ext{"a": []byte(`"x","aepb.leg":"reply"`)} },
		"ext, half an escape":   func(c *ect.Claims) { c.Ext = ect.Ext{"a": []byte(`"x\"`)} },
		"ext, a line break":     func(c *ect.Claims) { c.Ext = ect.Ext{"a": []byte("\"x\ny\"")} },
		"ext, broken UTF-8":     func(c *ect.Claims) { c.Ext = ect.Ext{"a": []byte("\"\xff\"")} },
		"ext, one quote":        func(c *ect.Claims) { c.Ext = ect.Ext{"a": []byte(`"`)} },
		"ext, no end of text":   func(c *ect.Claims) { c.Ext = ect.Ext{"a": []byte(`"x`)} },
		"ext, no begin of text": func(c *ect.Claims) { c.Ext = ect.Ext{"a": []byte(`x"`)} },
		"ext closes the object": func(c *ect.Claims) { c.Ext = ect.Ext{"a": []byte(`1},"par":[],"x":{"a":1`)} },
		"ext has a twin inside": func(c *ect.Claims) { c.Ext = ect.Ext{"a": []byte(`{"x":1,"x":2}`)} },
		"ext has a broken key":  func(c *ect.Claims) { c.Ext = ect.Ext{"\xff": []byte(`1`)} },
		"ext too deep":          func(c *ect.Claims) { c.Ext = ect.Ext{"a": []byte(`[[[[[]]]]]`)} },
		"ext too large":         func(c *ect.Claims) { c.Ext = ect.Ext{}; c.Ext.SetString("a", strings.Repeat("x", 4096)) },
		"a token too large":     func(c *ect.Claims) { c.Audience = []string{strings.Repeat("x", 8<<10)} },
	} {
		c := s.Claims()
		change(&c)
		token, err := signer.Sign(c)
		if !errors.Is(err, ect.ErrUnsignable) || token.Compact() != "" {
			t.Errorf("%s: got %v, want ErrUnsignable", name, err)
		}
	}
}

func TestNewSigner_Refuses(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	p384, err := ecdsa.GenerateKey(elliptic.P384(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	rsaKey, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	one, two := ecttest.NewEdwardsParty(t, s.From.ID).Edwards, ecttest.NewEdwardsParty(t, s.From.ID).Edwards
	mixed := slices.Concat(one[:32], two[32:])
	for name, change := range map[string]func(*ect.SignerDeps){
		"no key":                func(d *ect.SignerDeps) { d.Key = nil },
		"a nil key":             func(d *ect.SignerDeps) { d.Key = (*ecdsa.PrivateKey)(nil) },
		"another curve":         func(d *ect.SignerDeps) { d.Key, d.Chain = p384, nil },
		"another kind of key":   func(d *ect.SignerDeps) { d.Key, d.Chain = rsaKey, nil },
		"half an Ed25519 key":   func(d *ect.SignerDeps) { d.Key, d.Chain = one[:32], nil },
		"two halves of two":     func(d *ect.SignerDeps) { d.Key, d.Chain = mixed, nil },
		"an Ed25519 key's leaf": func(d *ect.SignerDeps) { d.Key = one },
		"somebody else's leaf":  func(d *ect.SignerDeps) { d.Chain = ecttest.NewParty(t, s.From.ID).Chain },
		"a leaf of another id":  func(d *ect.SignerDeps) { d.Issuer = s.Other.ID },
		"no issuer":             func(d *ect.SignerDeps) { d.Issuer = "" },
		"less than one second":  func(d *ect.SignerDeps) { d.Lifetime = time.Millisecond },
		"an age before its day": func(d *ect.SignerDeps) { d.Lifetime = -time.Minute },
	} {
		d := ect.SignerDeps{Key: s.From.Key, Chain: s.From.Chain, Issuer: s.From.ID}
		change(&d)
		if _, err := ect.NewSigner(d); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
}

func TestSign_AddsAgentVersion(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	signer, err := ect.NewSigner(ect.SignerDeps{Key: s.From.Key, Issuer: s.From.ID, AgentVersion: "1.2.3", Now: s.clock})
	if err != nil {
		t.Fatal(err)
	}
	given := ect.Ext{"k": []byte("1")}
	for _, ext := range []ect.Ext{nil, given} {
		c := s.Claims()
		c.Ext = ext
		token, err := signer.Sign(c)
		if err != nil {
			t.Fatal(err)
		}
		if got, _ := token.Claims().Ext.String(ect.ExtAgentVersion); got != "1.2.3" {
			t.Errorf("got version %q", got)
		}
	}
	if len(given) != 1 {
		t.Error("Sign changed the caller's map")
	}
}

func TestToken_IsNeverPrinted(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	token, err := s.From.Signer(t, s.clock).Sign(s.Claims())
	if err != nil {
		t.Fatal(err)
	}
	verified, err := s.verifier(t).Verify(t.Context(), token.Compact(), s.source())
	if err != nil {
		t.Fatal(err)
	}
	recorder, err := ect.NewRecorder(ect.RecorderDeps{Store: ecttest.NewStore()})
	if err != nil {
		t.Fatal(err)
	}
	receipt, err := recorder.Record(t.Context(), token, ect.Filing{})
	if err != nil {
		t.Fatal(err)
	}
	record := ect.Record{Compact: token.Compact(), ID: token.ID()}
	var out bytes.Buffer
	log := slog.New(slog.NewTextHandler(&out, nil))
	log.InfoContext(t.Context(), "m", slog.Any("token", token), slog.Any("verified", verified), slog.Any("receipt", receipt), slog.Any("record", record))
	for _, value := range []any{token, verified, receipt} {
		fmt.Fprintf(&out, "%v %+v %#v %s\n", value, value, value, value)
	}
	if strings.Contains(out.String(), strings.Split(token.Compact(), ".")[1]) {
		t.Error("a token was printed")
	}
	if got := strings.Count(out.String(), string(token.ID())); got < 4+3*4 {
		t.Errorf("the id was printed %d times", got)
	}
}

func TestNewID_IsUniqueUUIDv7(t *testing.T) {
	t.Parallel()
	seen, last := map[ect.ID]bool{}, ect.ID("")
	for range 1000 {
		before := time.Now().UnixMilli()
		id := ect.NewID()
		if len(id) != 36 || id[14] != '7' || !strings.ContainsRune("89ab", rune(id[19])) || seen[id] {
			t.Fatalf("got %s", id)
		}
		at, err := strconv.ParseInt(string(id[:8]+id[9:13]), 16, 64)
		if err != nil || at < before || at > time.Now().UnixMilli() || id[:13] < last {
			t.Errorf("%s has the time %d, want that of now: %d", id, at, before)
		}
		seen[id], last = true, id[:13]
	}
}

// TestSigner_RenewKeepsTheName: a signer's key and chain change under its name, not the name.
func TestSigner_RenewKeepsTheName(t *testing.T) {
	t.Parallel()
	p, next := ecttest.NewParty(t, "spiffe://example.com/gateway"), ecttest.NewParty(t, "spiffe://example.com/gateway")
	signer, err := ect.NewSigner(ect.SignerDeps{Key: p.Key, Chain: p.Chain, Issuer: p.ID})
	if err != nil {
		t.Fatal(err)
	}
	header := func() string {
		t.Helper()
		token, err := signer.Sign(ect.Claims{Act: ect.ActTranslate, Audience: []string{"a"}, Workflow: string(ect.NewID())})
		if err != nil {
			t.Fatal(err)
		}
		h, _, _ := strings.Cut(token.Compact(), ".")
		return h
	}
	before := header()
	stranger := ecttest.NewParty(t, "spiffe://example.com/stranger")
	if err := signer.Renew(stranger.Key, stranger.Chain); err == nil {
		t.Error("the chain of somebody else is accepted")
	}
	if err := signer.Renew(next.Key, p.Chain); err == nil {
		t.Error("a chain of another key is accepted")
	}
	if err := signer.Renew(nil, nil); err == nil {
		t.Error("no key is accepted")
	}
	if header() != before {
		t.Error("what was refused is in force")
	}
	if err := signer.Renew(next.Key, next.Chain); err != nil || header() == before {
		t.Errorf("the new key is not in force: %v", err)
	}
}
