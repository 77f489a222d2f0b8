package ect_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/ed25519"
	"encoding/base64"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"github.com/golang-jwt/jwt/v5"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/ect/ecttest"
)

// RFC 8037 appendix A.3: a key and its thumbprint.
func TestThumbprint_KnownAnswersEdDSA(t *testing.T) {
	t.Parallel()
	public, err := base64.RawURLEncoding.DecodeString("11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo")
	if err != nil {
		t.Fatal(err)
	}
	got, err := ect.Thumbprint(ed25519.PublicKey(public))
	if want := "kPrK_qmxVWaYVA9wwBF6Iuo3vVzz7TxHCTwXBygrS4k"; err != nil || got != want {
		t.Errorf("thumbprint: got %s, %v", got, err)
	}
	for name, key := range map[string]any{
		"cut short": ed25519.PublicKey(public[:31]), "of order one": ed25519.PublicKey(append([]byte{1}, make([]byte, 31)...)),
		"nil": nil, "nil of a kind": (*ecdsa.PublicKey)(nil), "a pointer": (*ed25519.PublicKey)(&public),
	} {
		if _, err := ect.Thumbprint(key); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
}

func TestSign_VerifiesWithEdDSA(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	s.From = ecttest.NewEdwardsParty(t, s.From.ID)
	s.keys = ecttest.KeysOf(s.From)
	token, err := s.From.Signer(t, s.clock).Sign(s.Claims())
	if err != nil {
		t.Fatal(err)
	}
	v, err := s.verifier(t).Verify(t.Context(), token.Compact(), s.source())
	if err != nil || v.Header().Algorithm != "EdDSA" || v.Header().KeyID != s.From.KeyID || v.Level() != ect.L2 {
		t.Fatalf("got %+v, %v", v.Header(), err)
	}
	// An ordinary library agrees.
	_, err = jwt.Parse(token.Compact(), func(*jwt.Token) (any, error) { return s.From.Peer().Key, nil },
		jwt.WithValidMethods([]string{"EdDSA"}), jwt.WithoutClaimsValidation(), jwt.WithStrictDecoding())
	if err != nil {
		t.Error(err)
	}
}

// The algorithm and the key have to agree, and both with what is allowed.
func TestVerifier_Algorithms(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	edwards := ecttest.NewEdwardsParty(t, s.From.ID)
	es256, edDSA := ecttest.Raw{"alg": `"ES256"`}, ecttest.Raw{"alg": `"EdDSA"`}
	small := make(ed25519.PublicKey, ed25519.PublicKeySize)
	small[0] = 1
	zero := func(testing.TB, string) []byte { // verifies under the key of order one, whatever the message
		sig := make([]byte, 64)
		sig[0] = 1
		return sig
	}
	if !ed25519.Verify(small, []byte("anything"), zero(t, "")) {
		t.Fatal("the weak key is none")
	}
	for name, tc := range map[string]struct {
		allowed []string
		from    *ecttest.Party
		recipe  ecttest.Recipe
		key     any
		want    ect.Reason // empty: accepted
	}{
		"ES256":                          {nil, s.From, ecttest.Recipe{}, nil, ""},
		"EdDSA":                          {nil, edwards, ecttest.Recipe{}, nil, ""},
		"EdDSA, only that":               {[]string{"EdDSA"}, edwards, ecttest.Recipe{}, nil, ""},
		"EdDSA, not allowed":             {[]string{"ES256"}, edwards, ecttest.Recipe{}, nil, ect.ReasonUnsupportedAlg},
		"ES256, not allowed":             {[]string{"EdDSA"}, s.From, ecttest.Recipe{}, nil, ect.ReasonUnsupportedAlg},
		"EdDSA said of an ECDSA key":     {nil, s.From, ecttest.Recipe{Header: edDSA}, nil, ect.ReasonUnsupportedAlg},
		"ES256 said of an Ed25519 key":   {nil, edwards, ecttest.Recipe{Header: es256}, nil, ect.ReasonUnsupportedAlg},
		"an Ed25519 key by pointer":      {nil, edwards, ecttest.Recipe{}, new(ed25519.PublicKey), ect.ReasonUnsupportedAlg},
		"an Ed25519 key cut short":       {nil, edwards, ecttest.Recipe{}, edwards.Edwards.Public().(ed25519.PublicKey)[:31], ect.ReasonUnsupportedAlg},
		"an Ed25519 private key":         {nil, edwards, ecttest.Recipe{}, edwards.Edwards, ect.ReasonUnsupportedAlg},
		"a key that anybody signs for":   {nil, edwards, ecttest.Recipe{Sign: zero}, small, ect.ReasonUnsupportedAlg},
		"EdDSA of somebody else":         {nil, edwards, ecttest.Recipe{Sign: ecttest.SignEdDSA(ecttest.NewEdwardsParty(t, "x").Edwards)}, nil, ect.ReasonInvalidSignature},
		"EdDSA without a signature":      {nil, edwards, ecttest.Recipe{Sign: ecttest.SignNothing}, nil, ect.ReasonInvalidSignature},
		"EdDSA with half a signature":    {nil, edwards, ecttest.Recipe{Sign: func(testing.TB, string) []byte { return make([]byte, 32) }}, nil, ect.ReasonInvalidSignature},
		"EdDSA with an ECDSA signature":  {nil, edwards, ecttest.Recipe{Sign: ecttest.SignES256(s.From.Key)}, nil, ect.ReasonInvalidSignature},
		"EdDSA as a secret of the key's": {nil, edwards, ecttest.Recipe{Header: ecttest.Raw{"alg": `"HS256"`}, Sign: ecttest.SignHS256(edwards.Edwards.Public().(ed25519.PublicKey))}, nil, ect.ReasonUnsupportedAlg},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := s.deps()
			d.Algorithms, d.Keys = tc.allowed, ecttest.KeysOf(tc.from)
			if tc.key != nil {
				d.Keys = fixedKeys{ect.Peer{ID: tc.from.ID, Key: tc.key}}
			}
			tc.recipe.Claims = s.Claims()
			_, err := verifierOf(t, d).Verify(t.Context(), ecttest.Mint(t, tc.from, tc.recipe), s.source())
			if tc.want != "" {
				wantReason(t, err, tc.want)
			} else if err != nil {
				t.Error(err)
			}
		})
	}
}

func TestVerifier_MinLevelOfPeer(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	unsigned := func(act string) string {
		return ecttest.MintUnsigned(t, s.From, ecttest.Recipe{Claims: s.Claims(), Payload: ecttest.Raw{"exec_act": `"` + act + `"`}})
	}
	signed := s.Good(t)
	only := func(id ect.Identity, level ect.Level) func(ect.Identity) ect.Level {
		return func(peer ect.Identity) ect.Level {
			if peer == id {
				return level
			}
			return 0
		}
	}
	for name, tc := range map[string]struct {
		min     ect.Level
		of      func(ect.Identity) ect.Level
		peer    ect.Peer
		compact string
		want    ect.Reason // empty: accepted
	}{
		"a peer that may":              {0, only(s.From.ID, ect.L1), s.From.Peer(), unsigned("send_task"), ""},
		"a peer that may, signed":      {0, only(s.From.ID, ect.L1), s.From.Peer(), signed, ""},
		"another peer may":             {0, only(s.Other.ID, ect.L1), s.From.Peer(), unsigned("send_task"), ect.ReasonLevelTooLow},
		"nobody of its own may":        {0, nil, s.From.Peer(), unsigned("send_task"), ect.ReasonLevelTooLow},
		"everybody else may":           {ect.L1, only(s.From.ID, ect.L2), s.From.Peer(), unsigned("send_task"), ect.ReasonLevelTooLow},
		"everybody may":                {ect.L1, only(s.Other.ID, ect.L2), s.From.Peer(), unsigned("send_task"), ""},
		"somebody else presents it":    {0, only(s.Other.ID, ect.L1), s.Other.Peer(), unsigned("send_task"), ect.ReasonIssuerMismatch},
		"the name in it is not asked":  {0, only(s.From.ID, ect.L1), s.Other.Peer(), unsigned("send_task"), ect.ReasonLevelTooLow},
		"nobody presents it":           {0, only("", ect.L1), ect.Peer{}, unsigned("send_task"), ect.ReasonLevelTooLow},
		"nobody presents it, lax":      {ect.L1, nil, ect.Peer{}, unsigned("send_task"), ect.ReasonIssuerMismatch},
		"a level that is none":         {0, only(s.From.ID, -1), s.From.Peer(), unsigned("send_task"), ect.ReasonLevelTooLow},
		"a level no token reaches":     {0, only(s.From.ID, ect.L3), s.From.Peer(), signed, ect.ReasonLevelTooLow},
		"a translation":                {0, only(s.From.ID, ect.L1), s.From.Peer(), unsigned("aepb:translate"), ect.ReasonLevelTooLow},
		"a CPAT translation":           {0, only(s.From.ID, ect.L1), s.From.Peer(), unsigned("cpat:translate"), ect.ReasonLevelTooLow},
		"a translation of others":      {0, only(s.From.ID, ect.L1), s.From.Peer(), unsigned("x:translate"), ect.ReasonLevelTooLow},
		"a gateway's error":            {0, only(s.From.ID, ect.L1), s.From.Peer(), unsigned("aepb:translate_error"), ect.ReasonLevelTooLow},
		"a lifecycle change":           {0, only(s.From.ID, ect.L1), s.From.Peer(), unsigned("aepb:lifecycle_change"), ect.ReasonLevelTooLow},
		"something like a translation": {0, only(s.From.ID, ect.L1), s.From.Peer(), unsigned("translate"), ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := s.deps()
			d.MinLevel, d.MinLevelOf, d.Replay = tc.min, tc.of, ecttest.NewReplay()
			for _, purpose := range []ect.Purpose{ect.Parent, ect.Source} {
				_, err := verifierOf(t, d).Verify(t.Context(), tc.compact, ect.Check{Purpose: purpose, Peer: tc.peer, Body: ect.Hash(s.Body)})
				if tc.want != "" {
					wantReason(t, err, tc.want)
				} else if err != nil {
					t.Error(err)
				}
			}
		})
	}
}

type spyReplay struct{ key ect.ReplayKey }

func (r *spyReplay) Claim(_ context.Context, key ect.ReplayKey, _ ect.ReplayUse) (ect.ReplayState, error) {
	r.key = key
	return ect.ReplayFresh, nil
}

// Whoever signs nothing and names nobody cannot use up the ids of others.
func TestUnsigned_BelongsToItsPeer(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	d := s.deps()
	spy := &spyReplay{}
	d.MinLevel, d.Replay = ect.L1, spy
	compact := ecttest.MintUnsigned(t, s.From, ecttest.Recipe{Claims: s.Claims(), Payload: ecttest.Raw{"iss": ``}})
	v, err := verifierOf(t, d).Verify(t.Context(), compact, s.source())
	if err != nil || v.Claims().Issuer != s.From.ID || spy.key.Issuer != s.From.ID {
		t.Errorf("issuer %q, replay key %v, %v", v.Claims().Issuer, spy.key, err)
	}
	_, err = verifierOf(t, d).Verify(t.Context(), compact, ect.Check{Purpose: ect.Source, Body: ect.Hash(s.Body)})
	wantReason(t, err, ect.ReasonIssuerMismatch)
}

func TestAssert_UnsignedIsVerified(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	friend := "spiffe://gw.example.com/friend"
	signer, err := ect.NewSigner(ect.SignerDeps{Key: s.From.Key, Issuer: s.From.ID, Now: s.clock, UnsignedFor: []string{self, friend}})
	if err != nil {
		t.Fatal(err)
	}
	d := s.deps()
	d.MinLevelOf = func(ect.Identity) ect.Level { return ect.L1 }
	for _, dialect := range allDialects {
		a, err := signer.Assert(dialect, s.Claims())
		if err != nil || strings.Contains(a.Compact(), ".") {
			t.Fatalf("%s: %v", dialect, err)
		}
		v, err := verifierOf(t, d).Verify(t.Context(), a.Compact(), s.source())
		if err != nil || v.ID() != a.ID() || v.Level() != ect.L1 {
			t.Errorf("%s: got %s, %v", dialect, v.ID(), err)
		}
		var out strings.Builder
		slog.New(slog.NewTextHandler(&out, nil)).InfoContext(t.Context(), "m", slog.Any("a", a))
		if text := out.String() + fmt.Sprintf("%v %#v %s", a, a, a); strings.Contains(text, a.Compact()) || strings.Count(text, string(a.ID())) != 4 {
			t.Error("an unsigned token was printed")
		}
	}
	for name, change := range map[string]func(*ect.Claims){
		"a translation":           func(c *ect.Claims) { c.Act = ect.ActTranslate },
		"a CPAT translation":      func(c *ect.Claims) { c.Act = ect.ActCPATTranslate },
		"a translation of others": func(c *ect.Claims) { c.Act = "x:translate" },
		"a gateway's error":       func(c *ect.Claims) { c.Act = ect.ActTranslateError },
		"a vote":                  func(c *ect.Claims) { c.Act = "consensus_vote" },
		"an unknown act of ATD":   func(c *ect.Claims) { c.Act = "atd:future" },
		"an unknown act of HITL":  func(c *ect.Claims) { c.Act = "hitl:future" },
		"an intent":               func(c *ect.Claims) { c.Act = ect.ActIntent },
		"for a stranger":          func(c *ect.Claims) { c.Audience = []string{string(s.Other.ID)} },
		"for a stranger too":      func(c *ect.Claims) { c.Audience = []string{friend, string(s.Other.ID)} },
		"for nobody":              func(c *ect.Claims) { c.Audience = nil },
		"in another's name":       func(c *ect.Claims) { c.Issuer = s.Other.ID },
		"no act":                  func(c *ect.Claims) { c.Act = "" },
		"too large":               func(c *ect.Claims) { c.Act = ect.Act(strings.Repeat("x", 8<<10)) },
	} {
		c := s.Claims()
		change(&c)
		if a, err := signer.Assert(ect.DialectSeed, c); !errors.Is(err, ect.ErrUnsignable) || a.Compact() != "" {
			t.Errorf("%s: got %v", name, err)
		}
	}
	for _, act := range []ect.Act{ect.ActCheckpoint, ect.ActError, ect.ActWorkflowStart, ect.ActWorkflowComplete, ect.ActCircuitOpen, ect.ActRollbackRequest} {
		c := s.Claims()
		c.Act = act
		if _, err := signer.Assert(ect.DialectSeed, c); err != nil {
			t.Errorf("%s, which an agent of level 1 may state: %v", act, err)
		}
	}
	if _, err := s.From.Signer(t, s.clock).Assert(ect.DialectSeed, s.Claims()); !errors.Is(err, ect.ErrUnsignable) {
		t.Errorf("a signer that was told of nobody: %v", err)
	}
}
