package credential

import (
	"context"
	"crypto/ed25519"
	"encoding/base64"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"
)

const shared = "my_shared_secret_for_testing_purposes_only"

func member(t testing.TB, now time.Time) *Secret {
	t.Helper()
	s, err := NewSecret(SecretDeps{ID: "org/ns/gogate", Secret: []byte(shared), Now: func() time.Time { return now }})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// TestSecret_KnownToken is one that was computed by the rules and taken by real peers.
func TestSecret_KnownToken(t *testing.T) {
	t.Parallel()
	s := member(t, time.Unix(1700000000, 0))
	s.id, s.claims = "org/ns/gogate_ABCDEFGH", ""
	const want = "org/ns/gogate_ABCDEFGH:1700000000:MDEyMzQ1Njc4OWFi::tGFk0OdV_g2PFkHzXkhkfBTdIHVMQAAim1pdecO9EOs"
	if got := s.mint([]byte("0123456789ab")); got != want {
		t.Errorf("%s", got)
	}
	if who, err := s.Verify(t.Context(), want); err != nil || who.Subject != "org/ns/gogate" || who.Key != nil {
		t.Errorf("%+v %v", who, err)
	}
}

func TestSecret_TokensAndSignatures(t *testing.T) {
	t.Parallel()
	at := time.Unix(1700000000, 0)
	ours, theirs := member(t, at), member(t, at)
	token, err := ours.Token(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	who, err := theirs.Verify(t.Context(), token)
	if err != nil || who.Subject != "org/ns/gogate" {
		t.Fatalf("%+v %v", who, err)
	}
	signature, err := ours.Sign([]byte("message"))
	if err != nil || who.Check([]byte("message"), signature) != nil {
		t.Errorf("our own signature: %v", err)
	}
	if who.Check([]byte("massage"), signature) == nil || who.Check([]byte("message"), nil) == nil {
		t.Error("a signature fits another message, or none fits")
	}
	if (Identity{}).Check([]byte("message"), signature) == nil {
		t.Error("a signature without a key")
	}
	stranger, err := NewSecret(SecretDeps{ID: "x", Secret: []byte(strings.Repeat("y", MinSecret))})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := stranger.Verify(t.Context(), token); err == nil {
		t.Error("another secret accepts the token")
	}
	for i := range token {
		if spoiled := token[:i] + "!" + token[i+1:]; accepts(t, theirs, spoiled) {
			t.Fatalf("accepted with a byte changed: %s", spoiled)
		}
	}
	for what, now := range map[string]struct {
		at time.Duration
		ok bool
	}{"old": {time.Hour, true}, "too old": {time.Hour + time.Second, false}, "early": {-5 * time.Second, true}, "too early": {-6 * time.Second, false}} {
		if accepts(t, member(t, at.Add(now.at)), token) != now.ok {
			t.Errorf("%s: %v", what, !now.ok)
		}
	}
	for _, text := range []string{"", ":", "::::", "a:b:c:d:e", "a:1:n:c", token + ":x", strings.Repeat("a", MaxToken+1)} {
		if accepts(t, theirs, text) {
			t.Errorf("accepted: %.80q", text)
		}
	}
}

func accepts(t *testing.T, s *Secret, token string) bool {
	t.Helper()
	_, err := s.Verify(t.Context(), token)
	var refused *Error
	if err != nil && !errors.As(err, &refused) {
		t.Errorf("%v", err)
	}
	return err == nil
}

func TestNewSecret_Refuses(t *testing.T) {
	t.Parallel()
	long := []byte(strings.Repeat("s", MinSecret))
	for _, deps := range []SecretDeps{{ID: "", Secret: long}, {ID: "a:b", Secret: long}, {ID: "a b", Secret: long}, {ID: "a", Secret: long[1:]}} {
		if _, err := NewSecret(deps); err == nil {
			t.Errorf("%+v", deps)
		}
	}
}

func TestParsePublic_Keys(t *testing.T) {
	t.Parallel()
	key, err := NewKey()
	if err != nil {
		t.Fatal(err)
	}
	point, err := base64.StdEncoding.DecodeString(key.Public())
	if err != nil {
		t.Fatal(err)
	}
	short := append([]byte{2 + point[64]&1}, point[1:33]...)
	signature, err := key.Sign([]byte("m"))
	if err != nil {
		t.Fatal(err)
	}
	for what, bytes := range map[string][]byte{"whole": point, "compressed": short} {
		public, err := ParsePublic(base64.StdEncoding.EncodeToString(bytes))
		if err != nil || (Identity{Key: public}).Check([]byte("m"), signature) != nil {
			t.Errorf("%s: %v", what, err)
		}
	}
	public, private, err := ed25519.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	parsed, err := ParsePublic(base64.StdEncoding.EncodeToString(public))
	if err != nil || (Identity{Key: parsed}).Check([]byte("m"), ed25519.Sign(private, []byte("m"))) != nil {
		t.Errorf("Ed25519: %v", err)
	}
	for _, bytes := range [][]byte{nil, point[:64], append([]byte{5}, point[1:33]...), append([]byte{4}, make([]byte, 64)...)} {
		if _, err := ParsePublic(base64.StdEncoding.EncodeToString(bytes)); err == nil {
			t.Errorf("accepted: %x", bytes)
		}
	}
	if _, err := ParsePublic("?"); err == nil {
		t.Error("no base64 accepted")
	}
}

// issuer mints unsigned tokens, and believes them.
type issuer struct {
	minted    int
	judged    int
	place     string
	requested TokenRequest
	broken    error
}

func (i *issuer) Mint(_ context.Context, r TokenRequest) (string, time.Time, error) {
	i.minted++
	if i.requested = r; i.broken != nil {
		return "", time.Time{}, i.broken
	}
	claims := map[string]any{}
	switch i.place {
	case "pubkey":
		claims["pubkey"] = r.PublicKey
	case "custom":
		claims["custom_claims"] = map[string]string{"pubkey": r.PublicKey}
	case "audience":
		claims["aud"] = []string{"slim", r.Audience}
	case "one audience":
		claims["aud"] = r.Audience
	}
	body, err := json.Marshal(claims)
	return "e30." + base64.RawURLEncoding.EncodeToString(body) + ".c2ln", time.Unix(1000, 0), err
}

func (i *issuer) Judge(_ context.Context, token string) (string, error) {
	i.judged++
	if !strings.HasSuffix(token, ".c2ln") {
		return "", errors.New("a bad signature")
	}
	return "spiffe://example.org/alice", nil
}

// TestIssued_KeyClaimsAndTokenReuse: the key is found wherever an issuer may put it, and one token
// serves until it is nearly over.
func TestIssued_KeyClaimsAndTokenReuse(t *testing.T) {
	t.Parallel()
	for _, place := range []string{"pubkey", "custom", "audience", "one audience"} {
		now := time.Unix(900, 0)
		i := &issuer{place: place}
		mine, err := NewIssued(IssuedDeps{Source: i, Judge: i, Now: func() time.Time { return now }})
		if err != nil {
			t.Fatal(err)
		}
		token, err := mine.Token(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		who, err := mine.Verify(t.Context(), token)
		if err != nil || who.Subject != "spiffe://example.org/alice" {
			t.Fatalf("%s: %+v %v", place, who, err)
		}
		signature, err := mine.Sign([]byte("m"))
		if err != nil || who.Check([]byte("m"), signature) != nil {
			t.Errorf("%s: %v", place, err)
		}
		for range 3 {
			if again, err := mine.Verify(t.Context(), token); err != nil || again.Subject != who.Subject || i.judged != 1 {
				t.Errorf("%s: judged %d times, %v", place, i.judged, err)
			}
		}
		now = now.Add(verdictsHold)
		if _, err := mine.Verify(t.Context(), token); err != nil || i.judged != 2 {
			t.Errorf("%s: judged %d times, %v", place, i.judged, err)
		}
		now = time.Unix(969, 0)
		if _, err := mine.Token(t.Context()); err != nil || i.minted != 1 {
			t.Errorf("%s: minted %d times, %v", place, i.minted, err)
		}
		now = time.Unix(970, 0)
		if _, err := mine.Token(t.Context()); err != nil || i.minted != 2 {
			t.Errorf("%s: minted %d times, %v", place, i.minted, err)
		}
		for _, bad := range []string{"", "a.b", token + "x", strings.Repeat("a", MaxToken+1), "e30.?.c2ln", "e30.W10.c2ln"} {
			if _, err := mine.Verify(t.Context(), bad); err == nil {
				t.Errorf("%s: accepted %.50q", place, bad)
			}
		}
	}
}

// TestIssued_FailingIssuer: a token serves to its end, and no longer.
func TestIssued_FailingIssuer(t *testing.T) {
	t.Parallel()
	now := time.Unix(900, 0)
	i := &issuer{place: "pubkey"}
	mine, err := NewIssued(IssuedDeps{ID: "org/ns/a", Source: i, Now: func() time.Time { return now }})
	if err != nil {
		t.Fatal(err)
	}
	first, err := mine.Token(t.Context())
	if err != nil || i.requested.Subject != "org/ns/a" {
		t.Fatalf("%+v %v", i.requested, err)
	}
	i.broken = errors.New("no")
	now = time.Unix(999, 0)
	if again, err := mine.Token(t.Context()); err != nil || again != first {
		t.Errorf("before its end: %v", err)
	}
	now = time.Unix(1000, 0)
	if _, err := mine.Token(t.Context()); !errors.Is(err, i.broken) {
		t.Errorf("after its end: %v", err)
	}
}

// TestIssuedKey_ExactNames: names are exact, and a key that cannot be read is none
// that may be looked for elsewhere.
func TestIssuedKey_ExactNames(t *testing.T) {
	t.Parallel()
	key, err := NewKey()
	if err != nil {
		t.Fatal(err)
	}
	for claims, want := range map[string]string{
		`{"pubkey":"` + key.Public() + `"}`:                   "key",
		`{"custom_claims":{"pubkey":"` + key.Public() + `"}}`: "key",
		`{"PUBKEY":"` + key.Public() + `"}`:                   "none",
		`{"custom_claims":{"Pubkey":"` + key.Public() + `"}}`: "none",
		`{"custom_claims":7,"aud":["slim"]}`:                  "none",
		`{"aud":["slim-claims:e30="]}`:                        "none",
		`{"aud":7}`:                                           "none",
		`{}`:                                                  "none",
		`{"pubkey":""}`:                                       "none",
		`{"pubkey":7}`:                                        "the public key is not a string",
		`{"pubkey":"AAAA"}`:                                   "the public key has an unknown type",
		`{"pubkey":"AAAA","custom_claims":{"pubkey":"` + key.Public() + `"}}`: "the public key has an unknown type",
		`{"pubkey":"?"}`: "the public key is not base64",
		`{"pubkey":"` + strings.Repeat("A", 132) + `"}`: "the public key is too long",
		`{"aud":["slim-claims:?"]}`:                     "the claims in the audience are not base64",
		`{"aud":"slim-claims:W10="}`:                    "the token's claims cannot be read",
		`[]`:                                            "the token's claims cannot be read",
	} {
		found, err := issuedKey("e30." + base64.RawURLEncoding.EncodeToString([]byte(claims)) + ".c2ln")
		got := "none"
		var refused *Error
		switch {
		case errors.As(err, &refused):
			got = refused.Reason
		case found != nil:
			got = "key"
		}
		if got != want {
			t.Errorf("%s: %s, want %s", claims, got, want)
		}
	}
}

func TestIssued_WithoutSourceOrJudge(t *testing.T) {
	t.Parallel()
	if _, err := NewIssued(IssuedDeps{}); err == nil {
		t.Error("neither source nor judge")
	}
	mute, err := NewIssued(IssuedDeps{Judge: &issuer{}})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := mute.Token(t.Context()); err == nil {
		t.Error("a token without a source")
	}
	deaf, err := NewIssued(IssuedDeps{Source: &issuer{}})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := deaf.Verify(t.Context(), "e30.e30.c2ln"); err == nil {
		t.Error("believed without a judge")
	}
}

// FuzzVerify_NoForgedToken: who does not know the secret makes no token but those that he saw.
func FuzzVerify_NoForgedToken(f *testing.F) {
	const known = "org/ns/gogate_ABCDEFGH:1700000000:MDEyMzQ1Njc4OWFi::tGFk0OdV_g2PFkHzXkhkfBTdIHVMQAAim1pdecO9EOs"
	s := member(f, time.Unix(1700000000, 0))
	f.Add(known)
	f.Add("a:1:n:e30:x")
	f.Fuzz(func(t *testing.T, token string) {
		if _, err := s.Verify(t.Context(), token); err == nil && token != known {
			t.Errorf("accepted: %q", token)
		}
		if key, err := claimedKey(token); err != nil && key != nil {
			t.Errorf("a key and %v", err)
		}
	})
}

func FuzzIssuedKey_KeyOrError(f *testing.F) {
	f.Add("e30." + base64.RawURLEncoding.EncodeToString([]byte(`{"aud":["slim","slim-claims:e30="],"pubkey":"AA=="}`)) + ".x")
	f.Fuzz(func(t *testing.T, token string) {
		key, err := issuedKey(token)
		if err != nil && key != nil {
			t.Errorf("a key and %v", err)
		}
	})
}
