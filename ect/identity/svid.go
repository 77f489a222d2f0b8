package identity

import (
	"crypto"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/spiffe/go-spiffe/v2/spiffeid"
	"github.com/spiffe/go-spiffe/v2/svid/x509svid"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/ect/internal/jose"
)

// errKeyType refuses a key that can sign no ECT: those are signed with ES256 or EdDSA.
var errKeyType = errors.New("identity: the key must be ECDSA on P-256, or Ed25519")

// SVID is a workload's own identity: its SPIFFE id, the certificate chain that
// proves it (leaf first, without the anchor) and the leaf's key, ECDSA on P-256
// or Ed25519.
type SVID struct {
	ID    ect.Identity
	Chain []*x509.Certificate
	Key   crypto.Signer
}

// LoadSVID reads an SVID from PEM files: certificates, leaf first, and a
// PKCS #8 key. The key must belong to the leaf and the leaf must have the form
// of an X.509 SVID; whether it is trusted is a [Bundle]'s question.
func LoadSVID(certFile, keyFile string) (*SVID, error) {
	read, err := x509svid.Load(certFile, keyFile)
	if err != nil {
		return nil, fmt.Errorf("identity: load SVID: %w", err)
	}
	if !signsECT(read.PrivateKey) {
		return nil, errKeyType
	}
	return &SVID{ID: ect.Identity(read.ID.String()), Chain: read.Certificates, Key: read.PrivateKey}, nil
}

// WritePEM writes the chain and the PKCS #8 key, each file whole or not at all.
// The key's file can be read by its owner only. Both are on the disk before the first
// of them takes its place: for an instant a reader may find the new key with the old
// certificate, which LoadSVID refuses.
func (s *SVID) WritePEM(certFile, keyFile string) error {
	certs, key, err := s.encode()
	if err != nil {
		return err
	}
	newKey, err := writeTemporary(keyFile, key, secretMode)
	if err != nil {
		return err
	}
	newCerts, err := writeTemporary(certFile, certs, publicMode)
	if err != nil {
		return errors.Join(err, os.Remove(newKey))
	}
	if err := os.Rename(newKey, keyFile); err != nil {
		return errors.Join(fmt.Errorf("identity: %w", err), os.Remove(newKey), os.Remove(newCerts))
	}
	if err := os.Rename(newCerts, certFile); err != nil {
		return errors.Join(fmt.Errorf("identity: %w", err), os.Remove(newCerts))
	}
	return nil
}

// CreatePEM writes what WritePEM does, and replaces nothing: fs.ErrExist if one of the files is there.
func (s *SVID) CreatePEM(certFile, keyFile string) error {
	certs, key, err := s.encode()
	if err != nil {
		return err
	}
	if err := createFile(keyFile, key, secretMode); err != nil {
		return err
	}
	if err := createFile(certFile, certs, publicMode); err != nil {
		return errors.Join(err, os.Remove(keyFile))
	}
	return nil
}

func (s *SVID) encode() (certs, key []byte, err error) {
	id, err := spiffeid.FromString(string(s.ID))
	if err == nil {
		certs, key, err = (&x509svid.SVID{ID: id, Certificates: s.Chain, PrivateKey: s.Key}).Marshal()
	}
	if err != nil {
		return nil, nil, fmt.Errorf("identity: write SVID: %w", err)
	}
	return certs, key, nil
}

// Certificate is the SVID as crypto/tls wants it.
func (s *SVID) Certificate() tls.Certificate {
	cert := tls.Certificate{PrivateKey: s.Key, Leaf: s.Chain[0]}
	for _, c := range s.Chain {
		cert.Certificate = append(cert.Certificate, c.Raw)
	}
	return cert
}

// Expires is the end of the leaf's validity.
func (s *SVID) Expires() time.Time { return s.Chain[0].NotAfter }

// stale says that a certificate is expired or in the last third of its life.
func stale(cert *x509.Certificate, now time.Time) bool {
	life := cert.NotAfter.Sub(cert.NotBefore)
	return now.After(cert.NotAfter.Add(-life / 3))
}

func signsECT(key crypto.Signer) bool {
	_, err := jose.CheckSigner(key)
	return err == nil
}

// Life is the time in which a certificate can be used.
type Life struct{ From, Until time.Time }

// How often operators are warned of an end that comes, and of one that has come.
const (
	warnAtLeast = time.Minute
	warnEnded   = 5 * time.Minute
)

// Ended reports whether the time is over. A certificate is valid up to and including
// its end.
func (l Life) Ended(now time.Time) bool { return now.After(l.Until) }

// FirstWarning is when a third of the life is left.
func (l Life) FirstWarning() time.Time { return l.Until.Add(-l.Until.Sub(l.From) / 3) }

// NextWarning is when to warn again after a warning at now: when half of what is
// left has passed, but not within a minute, and at the end; after it, every five
// minutes.
func (l Life) NextWarning(now time.Time) time.Time {
	if l.Ended(now) {
		return now.Add(warnEnded)
	}
	next := now.Add(max(l.Until.Sub(now)/2, warnAtLeast))
	if end := l.Until.Add(time.Nanosecond); next.After(end) {
		return end
	}
	return next
}

// lifeOf is the time in which all of the certificates are valid.
func lifeOf(path []*x509.Certificate) Life {
	life := Life{path[0].NotBefore, path[0].NotAfter}
	for _, cert := range path[1:] {
		if cert.NotBefore.After(life.From) {
			life.From = cert.NotBefore
		}
		if cert.NotAfter.Before(life.Until) {
			life.Until = cert.NotAfter
		}
	}
	return life
}
