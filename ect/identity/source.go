package identity

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/spiffe/go-spiffe/v2/spiffeid"

	"github.com/aepb/aepb-gateway/ect"
)

// Why a peer is refused, or a Source cannot be had.
var (
	// ErrUnexpectedPeer: the peer proved an identity, but not the one that was expected.
	ErrUnexpectedPeer = errors.New("identity: the peer is not who was expected")

	errIncomplete = errors.New("identity: a source needs an SVID with chain and key, and a bundle")
)

// SourceDeps is what a Source needs.
type SourceDeps struct {
	SVID        *SVID               // our own; required
	Bundle      *Bundle             // whom we trust; required
	Public      *tls.Certificate    // what servers show instead of the SVID, for callers that judge by host name; nil: the SVID
	Roots       []*x509.Certificate // further anchors for servers judged by host name
	SystemRoots bool                // the operating system's anchors too, for servers judged by host name
	Now         func() time.Time    // nil: time.Now
}

// Source makes TLS configurations of our SVID and our bundle. All are TLS 1.3
// only. Safe for concurrent use.
type Source struct {
	deps SourceDeps
	own  atomic.Pointer[tls.Certificate]
	show atomic.Pointer[tls.Certificate] // to callers that judge by host name; nil: own
}

// NewSource makes a Source that uses nothing but an SVID and a bundle.
func NewSource(svid *SVID, bundle *Bundle) (*Source, error) {
	return NewSourceFrom(SourceDeps{SVID: svid, Bundle: bundle})
}

// NewSourceFrom makes a Source with all that it may use.
func NewSourceFrom(deps SourceDeps) (*Source, error) {
	if deps.Bundle == nil {
		return nil, errIncomplete
	}
	if deps.Now == nil {
		deps.Now = time.Now
	}
	s := &Source{deps: deps}
	s.Show(deps.Public)
	return s, s.Renew(deps.SVID)
}

// Show puts another certificate in place of SourceDeps.Public, from the next
// handshake on; nil: the SVID.
func (s *Source) Show(public *tls.Certificate) { s.show.Store(public) }

// Renew puts a new SVID in use, from the next handshake on.
func (s *Source) Renew(svid *SVID) error {
	if svid == nil || len(svid.Chain) == 0 || svid.Key == nil {
		return errIncomplete
	}
	cert := svid.Certificate()
	s.own.Store(&cert)
	return nil
}

// wholeRecords: nobody begins with a part of a message, so a message does not begin
// in small records, each with a write of its own.
const wholeRecords = true

// ServerConfig is for everything that listens. A client certificate is asked
// for, never demanded, and verified whenever given: one that is no SVID of a
// trusted domain ends the handshake (R3). Offers HTTP/2 and HTTP/1.1.
func (s *Source) ServerConfig() *tls.Config {
	return &tls.Config{
		MinVersion:       tls.VersionTLS13,
		NextProtos:       []string{"h2", "http/1.1"},
		Time:             s.deps.Now,
		GetCertificate:   func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return s.public(), nil },
		ClientAuth:       tls.RequestClientCert, // judged below; doc.go says why not by crypto/tls
		VerifyConnection: s.judgeClient,

		DynamicRecordSizingDisabled: wholeRecords,
	}
}

// ClientConfig is for everything that dials. It shows our SVID to servers that
// ask. With an expected id the server must prove exactly that id, whatever its
// host name. Without one it is judged by host name or address against the
// anchors of our own trust domain, the Source's Roots, its system roots if it
// has them, and the roots given here; these anchors are those of this moment.
// An expected id that is no SPIFFE id fails every handshake.
func (s *Source) ClientConfig(expected ect.Identity, roots ...*x509.Certificate) *tls.Config {
	config := &tls.Config{
		MinVersion:           tls.VersionTLS13,
		Time:                 s.deps.Now,
		GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return s.own.Load(), nil },

		DynamicRecordSizingDisabled: wholeRecords,
	}
	if expected != "" {
		config.InsecureSkipVerify = true // not by name: VerifyConnection judges the chain and the SPIFFE id
		config.VerifyConnection = s.judgeServer(expected)
		return config
	}
	config.RootCAs = s.hostRoots(roots)
	config.VerifyConnection = s.judgeClaim
	return config
}

// public is the certificate that servers show.
func (s *Source) public() *tls.Certificate {
	if public := s.show.Load(); public != nil {
		return public
	}
	return s.own.Load()
}

func (s *Source) judgeClient(state tls.ConnectionState) error {
	if len(state.PeerCertificates) == 0 {
		return nil
	}
	_, _, err := s.deps.Bundle.verify(state.PeerCertificates, s.deps.Now())
	return err
}

func (s *Source) judgeServer(expected ect.Identity) func(tls.ConnectionState) error {
	want, wrong := spiffeid.FromString(string(expected))
	return func(state tls.ConnectionState) error {
		if wrong != nil {
			return fmt.Errorf("%w: %w", ErrUnexpectedPeer, wrong)
		}
		id, _, err := s.deps.Bundle.verify(state.PeerCertificates, s.deps.Now())
		if err != nil {
			return err
		}
		if id != want {
			return ErrUnexpectedPeer
		}
		return nil
	}
}

// judgeClaim looks at a server that crypto/tls has accepted by host name: if
// its certificate also names a SPIFFE id, that claim must hold too, or PeerOf
// would believe what only a web authority has vouched for.
func (s *Source) judgeClaim(state tls.ConnectionState) error {
	if !claimsWorkload(state.PeerCertificates[0]) {
		return nil
	}
	_, _, err := s.deps.Bundle.verify(state.PeerCertificates, s.deps.Now())
	return err
}

// hostRoots never holds anchors of other trust domains: they vouch for their
// SPIFFE ids, not for host names.
func (s *Source) hostRoots(more []*x509.Certificate) *x509.CertPool {
	pool := x509.NewCertPool()
	if s.deps.SystemRoots {
		if system, err := x509.SystemCertPool(); err == nil { // without them fewer servers are trusted, never more
			pool = system
		}
	}
	for _, anchors := range [][]*x509.Certificate{s.deps.Bundle.Anchors(), s.deps.Roots, more} {
		for _, anchor := range anchors {
			pool.AddCert(anchor)
		}
	}
	return pool
}
