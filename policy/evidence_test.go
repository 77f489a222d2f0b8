package policy_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"testing"
	"time"

	"github.com/aepb/aepb-gateway/ect"
)

const (
	self  = ect.Identity("spiffe://gw.test/gateway")
	alice = ect.Identity("spiffe://a.test/agents/alice")
	bob   = ect.Identity("spiffe://a.test/agents/bob")
	peer  = ect.Identity("spiffe://gw.test/peers/one")
	wid   = "6f0a1c52-6a83-4d6f-9f6e-0d2f3a4b5c6d"
)

var issued = time.Unix(1_800_000_000, 0)

// world verifies what its parties sign, as the pipeline would.
type world struct {
	keys map[ect.Identity]*ecdsa.PrivateKey
}

func newWorld(t *testing.T) world {
	t.Helper()
	w := world{keys: map[ect.Identity]*ecdsa.PrivateKey{}}
	for _, id := range []ect.Identity{self, alice, bob, peer} {
		key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
		if err != nil {
			t.Fatal(err)
		}
		w.keys[id] = key
	}
	return w
}

// Resolve makes the world a key source.
func (w world) Resolve(_ context.Context, r ect.KeyRequest) (ect.Peer, error) {
	key, ok := w.keys[r.Issuer]
	if !ok {
		return ect.Peer{}, &ect.InvalidError{Reason: ect.ReasonUnknownKey}
	}
	return ect.Peer{ID: r.Issuer, Key: &key.PublicKey}, nil
}

// Claim makes the world a replay cache that has never seen anything.
func (world) Claim(context.Context, ect.ReplayKey, ect.ReplayUse) (ect.ReplayState, error) {
	return ect.ReplayFresh, nil
}

func (w world) verify(t *testing.T, compact string) ect.Verified {
	t.Helper()
	verifier, err := ect.NewVerifier(ect.VerifierDeps{
		Keys: w, Replay: w, Audience: []string{string(self)}, MinLevel: ect.L1,
		Now: func() time.Time { return issued.Add(time.Minute) },
	})
	if err != nil {
		t.Fatal(err)
	}
	v, err := verifier.Verify(t.Context(), compact, ect.Check{Purpose: ect.Source, Peer: ect.Peer{ID: alice}})
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// token is a verified token of an issuer, so many seconds after issued.
func (w world) token(t *testing.T, issuer ect.Identity, act ect.Act, after int64) ect.Verified {
	t.Helper()
	return w.tokenWith(t, issuer, act, after, nil)
}

func (w world) tokenWith(t *testing.T, issuer ect.Identity, act ect.Act, after int64, ext ect.Ext) ect.Verified {
	t.Helper()
	signer, err := ect.NewSigner(ect.SignerDeps{Key: w.keys[issuer], Issuer: issuer})
	if err != nil {
		t.Fatal(err)
	}
	token, err := signer.Sign(ect.Claims{
		Audience: []string{string(self)}, IssuedAt: issued.Unix() + after, Workflow: wid, Act: act, Parents: []ect.ID{}, Ext: ext,
	})
	if err != nil {
		t.Fatal(err)
	}
	return w.verify(t, token.Compact())
}

// unsigned is a level 1 token of alice, who says it herself.
func (w world) unsigned(t *testing.T, act ect.Act) ect.Verified {
	t.Helper()
	payload, err := json.Marshal(map[string]any{
		"iss": alice, "aud": []ect.Identity{self}, "iat": issued.Unix(), "exp": issued.Unix() + 600,
		"jti": ect.NewID(), "wid": wid, "exec_act": act, "par": []ect.ID{},
	})
	if err != nil {
		t.Fatal(err)
	}
	return w.verify(t, base64.RawURLEncoding.EncodeToString(payload))
}
