package ect_test

import (
	"crypto/ecdsa"
	"testing"
	"time"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/ect/ecttest"
	"github.com/aepb/aepb-gateway/ect/identity"
)

// A token's x5c chain is judged as of its iat (R4), not as of the time of
// judging: evidence outlives the short-lived SVIDs that signed it, and a chain
// says nothing of the time before it began.
func TestChain_IsVerifiedAsOfIat(t *testing.T) {
	t.Parallel()
	begin := time.Unix(1772064000, 0)
	authority, err := identity.NewAuthority(identity.AuthorityDeps{TrustDomain: "example.com", Now: func() time.Time { return begin }})
	if err != nil {
		t.Fatal(err)
	}
	svid, err := authority.Issue("/agent/a", identity.SVIDRequest{TTL: 10 * time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	end := svid.Expires()
	key, ok := svid.Key.(*ecdsa.PrivateKey)
	if !ok {
		t.Fatal("the key is not ECDSA")
	}
	from := &ecttest.Party{ID: svid.ID, Key: key, Chain: svid.Chain}
	bundle, err := authority.Bundle()
	if err != nil {
		t.Fatal(err)
	}
	for name, tc := range map[string]struct {
		iat, now time.Time
		purpose  ect.Purpose
		want     ect.Reason // empty: it is good
	}{
		"an ancestor of a chain that ended after iat":     {end.Add(-time.Minute), end.Add(24 * time.Hour), ect.Parent, ""},
		"an ancestor of a chain that began after iat":     {begin.Add(-time.Hour), begin.Add(time.Minute), ect.Parent, ect.ReasonKeyNotTrusted},
		"an ancestor of a chain that had ended by iat":    {end.Add(time.Minute), end.Add(time.Hour), ect.Parent, ect.ReasonKeyNotTrusted},
		"a message's token whose chain ended on the way":  {end.Add(-10 * time.Second), end.Add(10 * time.Second), ect.Source, ""},
		"a message's token whose chain began on the way":  {svid.Chain[0].NotBefore.Add(-10 * time.Second), begin, ect.Source, ect.ReasonKeyNotTrusted},
		"an ancestor within the life of the chain, later": {begin.Add(time.Minute), begin.Add(2 * time.Minute), ect.Parent, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ring, err := identity.NewKeyRing(identity.KeyRingDeps{Bundle: bundle})
			if err != nil {
				t.Fatal(err)
			}
			verifier := verifierOf(t, ect.VerifierDeps{
				Keys: ring, Replay: ecttest.NewReplay(), Audience: []string{self}, Now: func() time.Time { return tc.now },
			})
			token := ecttest.Mint(t, from, ecttest.Recipe{Claims: ect.Claims{
				Audience: []string{self}, IssuedAt: tc.iat.Unix(), Expires: tc.iat.Add(5 * time.Minute).Unix(),
			}})
			_, err = verifier.Verify(t.Context(), token, ect.Check{Purpose: tc.purpose})
			switch {
			case tc.want != "":
				wantReason(t, err, tc.want)
			case err != nil:
				t.Errorf("refused: %v", err)
			}
		})
	}
}
