package ecttest

import (
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"math/big"
	"net/url"
	"sync/atomic"
	"testing"
	"time"

	"github.com/aepb/aepb-gateway/ect"
)

// Party is a signer: an identity, its key, and a certificate that it signed
// itself.
type Party struct {
	ID      ect.Identity
	Key     *ecdsa.PrivateKey   // nil for a party of NewEdwardsParty
	Edwards ed25519.PrivateKey  // nil for a party of NewParty
	Chain   []*x509.Certificate // one self-signed leaf that carries ID as its URI, valid 1999 to 2099
	KeyID   string              // the key's thumbprint
}

// NewParty makes a party with a new key.
func NewParty(tb testing.TB, id ect.Identity) *Party {
	tb.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		tb.Fatal(err)
	}
	return &Party{ID: id, Key: key, Chain: selfSigned(tb, id, key), KeyID: thumbprint(tb, key)}
}

// NewEdwardsParty makes a party that signs with EdDSA.
func NewEdwardsParty(tb testing.TB, id ect.Identity) *Party {
	tb.Helper()
	_, key, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		tb.Fatal(err)
	}
	return &Party{ID: id, Edwards: key, Chain: selfSigned(tb, id, key), KeyID: thumbprint(tb, key)}
}

func thumbprint(tb testing.TB, key crypto.Signer) string {
	tb.Helper()
	kid, err := ect.Thumbprint(key.Public())
	if err != nil {
		tb.Fatal(err)
	}
	return kid
}

func selfSigned(tb testing.TB, id ect.Identity, key crypto.Signer) []*x509.Certificate {
	tb.Helper()
	uri, err := url.Parse(string(id))
	if err != nil {
		tb.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "test"}, URIs: []*url.URL{uri},
		NotBefore: time.Date(1999, 1, 1, 0, 0, 0, 0, time.UTC), NotAfter: time.Date(2099, 1, 1, 0, 0, 0, 0, time.UTC),
		KeyUsage: x509.KeyUsageDigitalSignature, BasicConstraintsValid: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		tb.Fatal(err)
	}
	leaf, err := x509.ParseCertificate(der)
	if err != nil {
		tb.Fatal(err)
	}
	return []*x509.Certificate{leaf}
}

func (p *Party) key() crypto.Signer {
	if p.Edwards != nil {
		return p.Edwards
	}
	return p.Key
}

// Peer is the party as an authenticated connection shows it.
func (p *Party) Peer() ect.Peer { return ect.Peer{ID: p.ID, Key: p.key().Public()} }

// Signer signs as the party, with its chain. now may be nil: the real clock.
func (p *Party) Signer(tb testing.TB, now func() time.Time) *ect.Signer {
	tb.Helper()
	signer, err := ect.NewSigner(ect.SignerDeps{Key: p.key(), Chain: p.Chain, Issuer: p.ID, Now: now})
	if err != nil {
		tb.Fatal(err)
	}
	return signer
}

// Keys is a KeySource that knows some parties, by kid or else by issuer.
type Keys struct {
	parties []*Party
	lookups atomic.Int64
}

// KeysOf knows these parties.
func KeysOf(parties ...*Party) *Keys { return &Keys{parties: parties} }

// Resolve finds a party's key; ReasonUnknownKey if no party matches.
func (k *Keys) Resolve(_ context.Context, r ect.KeyRequest) (ect.Peer, error) {
	k.lookups.Add(1)
	for _, p := range k.parties {
		if r.Header.KeyID == p.KeyID || r.Header.KeyID == "" && r.Issuer == p.ID {
			return p.Peer(), nil
		}
	}
	return ect.Peer{}, &ect.InvalidError{Reason: ect.ReasonUnknownKey}
}

// Lookups counts the keys asked for.
func (k *Keys) Lookups() int64 { return k.lookups.Load() }
