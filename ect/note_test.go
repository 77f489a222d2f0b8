package ect_test

import (
	"context"
	"errors"
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/ect/ecttest"
)

const noteType = "consensus-vote+jwt"

func noteOf(tb testing.TB, by *ecttest.Party, payload string, header ecttest.Raw) string {
	tb.Helper()
	merged := ecttest.Raw{"typ": `"` + noteType + `"`}
	maps.Copy(merged, header)
	return ecttest.Mint(tb, by, ecttest.Recipe{RawPayload: payload, Header: merged})
}

// TestNote_RoundTrip: a note that was signed is taken apart and verified, with any payload.
func TestNote_RoundTrip(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	for _, payload := range []string{`{"a":1}`, "", "no JSON", "\x00\xff", strings.Repeat("x", 2000)} {
		compact, err := s.From.Signer(t, s.clock).SignNote(noteType, []byte(payload), 8<<10)
		if err != nil {
			t.Fatal(err)
		}
		n, err := ect.ParseNote(compact, noteType, 8<<10)
		if err != nil || string(n.Payload) != payload || n.Compact() != compact || n.Hash() != ect.Hash([]byte(compact)) {
			t.Fatalf("%.20q: %+v, %v", payload, n, err)
		}
		if err := s.verifier(t).Authentic(t.Context(), n, s.From.ID, s.Now); err != nil {
			t.Errorf("%.20q: %v", payload, err)
		}
	}
}

// TestNote_Bounds: a note of exactly the limit is signed and read, and one byte more is not.
func TestNote_Bounds(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	signer := s.From.Signer(t, s.clock)
	compact, err := signer.SignNote(noteType, []byte("payload"), 8<<10)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := signer.SignNote(noteType, []byte("payload"), len(compact)); err != nil {
		t.Errorf("of the limit: %v", err)
	}
	if _, err := signer.SignNote(noteType, []byte("payload"), len(compact)-1); !errors.Is(err, ect.ErrUnsignable) {
		t.Errorf("beyond the limit: %v, expected ErrUnsignable", err)
	}
	if _, err := ect.ParseNote(compact, noteType, len(compact)); err != nil {
		t.Errorf("read of the limit: %v", err)
	}
	var large *ect.TooLargeError
	if _, err := ect.ParseNote(compact, noteType, len(compact)-1); !errors.As(err, &large) {
		t.Errorf("read beyond the limit: %v, expected a TooLargeError", err)
	}
}

// TestParseNote_Refuses: what is no note of this type is not taken apart.
func TestParseNote_Refuses(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	good := noteOf(t, s.From, "payload", nil)
	parts := strings.Split(good, ".")
	for name, compact := range map[string]string{
		"nothing": "", "one part": parts[0], "two parts": parts[0] + "." + parts[1], "four parts": good + "." + parts[2],
		"a payload in another alphabet": parts[0] + ".a+b=." + parts[2], "a broken payload": parts[0] + ".a." + parts[2],
		"a broken signature": parts[0] + "." + parts[1] + ".a", "a header that is no JSON": ecttest.Encode("x") + "." + parts[1] + "." + parts[2],
		"a header with a member twice": ecttest.Encode(`{"alg":"ES256","typ":"x","typ":"`+noteType+`"}`) + "." + parts[1] + "." + parts[2],
		"spaces":                       " " + good, "a line": good + "\n",
	} {
		var malformed *ect.MalformedError
		if n, err := ect.ParseNote(compact, noteType, 8<<10); !errors.As(err, &malformed) || n.Payload != nil {
			t.Errorf("%s: %v, expected a MalformedError", name, err)
		}
	}
	for name, header := range map[string]ecttest.Raw{
		"an ECT": {"typ": `"exec+jwt"`}, "no typ": {"typ": ""}, "a plain JWT": {"typ": `"JWT"`}, "another note": {"typ": `"consensus-ack+jwt"`},
		"a longer typ": {"typ": `"` + noteType + `x"`},
	} {
		if _, err := ect.ParseNote(noteOf(t, s.From, "payload", header), noteType, 8<<10); reasonOf(err) != ect.ReasonWrongType {
			t.Errorf("%s: %v, expected %s", name, err, ect.ReasonWrongType)
		}
	}
	if _, err := ect.ParseNote(noteOf(t, s.From, "payload", ecttest.Raw{"crit": `["exp"]`}), noteType, 8<<10); reasonOf(err) != ect.ReasonUnsupportedCritical {
		t.Errorf("a critical parameter: %v", err)
	}
}

func reasonOf(err error) ect.Reason {
	if invalid, ok := errors.AsType[*ect.InvalidError](err); ok {
		return invalid.Reason
	}
	return ""
}

// TestAuthentic_Refuses: a note is believed of its issuer alone, signed with an algorithm that is allowed.
func TestAuthentic_Refuses(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	v := s.verifier(t)
	judge := func(v *ect.Verifier, compact string, issuer ect.Identity) error {
		t.Helper()
		n, err := ect.ParseNote(compact, noteType, 8<<10)
		if err != nil {
			t.Fatal(err)
		}
		return v.Authentic(t.Context(), n, issuer, s.Now)
	}
	good := noteOf(t, s.From, "payload", nil)
	if err := judge(v, good, s.From.ID); err != nil {
		t.Fatalf("as it should be: %v", err)
	}
	parts := strings.Split(good, ".")
	deps := s.deps()
	deps.Algorithms = []string{"EdDSA"}
	for name, c := range map[string]struct {
		verifier *ect.Verifier
		compact  string
		issuer   ect.Identity
		reason   ect.Reason
	}{
		"another issuer":          {v, good, s.Other.ID, ect.ReasonIssuerMismatch},
		"no issuer":               {v, good, "", ect.ReasonIssuerMismatch},
		"a stranger":              {v, noteOf(t, s.Stranger, "payload", nil), s.Stranger.ID, ect.ReasonUnknownKey},
		"another payload":         {v, parts[0] + "." + ecttest.Encode("other") + "." + parts[2], s.From.ID, ect.ReasonInvalidSignature},
		"the signature of others": {v, parts[0] + "." + parts[1] + "." + strings.Split(noteOf(t, s.Other, "payload", nil), ".")[2], s.From.ID, ect.ReasonInvalidSignature},
		"an empty signature":      {v, parts[0] + "." + parts[1] + ".", s.From.ID, ect.ReasonInvalidSignature},
		"an algorithm not ours":   {verifierOf(t, deps), good, s.From.ID, ect.ReasonUnsupportedAlg},
		"that of another key":     {v, noteOf(t, s.From, "payload", ecttest.Raw{"alg": `"EdDSA"`}), s.From.ID, ect.ReasonUnsupportedAlg},
		"none":                    {v, noteOf(t, s.From, "payload", ecttest.Raw{"alg": `"none"`}), s.From.ID, ect.ReasonUnsupportedAlg},
	} {
		if err := judge(c.verifier, c.compact, c.issuer); reasonOf(err) != c.reason {
			t.Errorf("%s: %v, expected %s", name, err, c.reason)
		}
	}
	if err := v.Authentic(t.Context(), ect.Note{}, s.From.ID, s.Now); !errors.Is(err, ect.ErrNoToken) {
		t.Errorf("no note: %v, expected ErrNoToken", err)
	}
}

// keysAt records for which issuer and moment a key is asked for.
type keysAt struct {
	inner ect.KeySource
	last  ect.KeyRequest
	err   error
}

func (k *keysAt) Resolve(ctx context.Context, r ect.KeyRequest) (ect.Peer, error) {
	if k.last = r; k.err != nil {
		return ect.Peer{}, k.err
	}
	return k.inner.Resolve(ctx, r)
}

// TestAuthentic_AsksForTheKeyOfThatMoment: the key source is asked for the key of the issuer at the time of the note, without a peer;
// its trouble is no refusal.
func TestAuthentic_AsksForTheKeyOfThatMoment(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	keys, deps := &keysAt{inner: s.keys}, s.deps()
	deps.Keys = keys
	n, err := ect.ParseNote(noteOf(t, s.From, "payload", nil), noteType, 8<<10)
	if err != nil {
		t.Fatal(err)
	}
	at := s.Now.Add(-1000 * time.Hour)
	if err := verifierOf(t, deps).Authentic(t.Context(), n, s.From.ID, at); err != nil {
		t.Fatal(err)
	}
	if keys.last.Issuer != s.From.ID || !keys.last.At.Equal(at) || keys.last.Peer.ID != "" || keys.last.Header.KeyID != s.From.KeyID {
		t.Errorf("a key is asked for with %+v", keys.last)
	}
	keys.err = errors.New("the directory is away")
	if err := verifierOf(t, deps).Authentic(t.Context(), n, s.From.ID, at); !errors.Is(err, keys.err) || reasonOf(err) != "" {
		t.Errorf("%v, expected the trouble of the key source", err)
	}
	other, err := ect.ParseNote(noteOf(t, s.From, "payload", ecttest.Raw{"alg": `"none"`}), noteType, 8<<10)
	if err != nil {
		t.Fatal(err)
	}
	if err := verifierOf(t, deps).Authentic(t.Context(), other, s.From.ID, at); reasonOf(err) != ect.ReasonUnsupportedAlg {
		t.Errorf("%v, expected that the algorithm is refused before a key is asked for", err)
	}
}
