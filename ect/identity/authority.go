package identity

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"net"
	"net/url"
	"strings"
	"time"

	"github.com/spiffe/go-spiffe/v2/spiffeid"

	"github.com/aepb/aepb-gateway/ect"
)

// Lifetimes of development certificates, and how far they reach back so that a
// neighbour's slow clock accepts them.
const (
	authorityLife = 365 * 24 * time.Hour
	// DefaultTTL is a development SVID's lifetime when none is asked for.
	DefaultTTL = 90 * 24 * time.Hour
	backdate   = time.Minute
)

// errReserved refuses to certify the identity of callers without credentials.
var errReserved = errors.New("identity: the path /anonymous stands for callers without credentials and is never issued")

// errAuthorityEnded refuses to sign what every peer would refuse.
var errAuthorityEnded = errors.New("identity: the certificate of the CA has ended, and what it signs is refused everywhere: make a new CA")

// Authority is a certificate authority for development, demonstrations and
// tests. It has one key and no revocation: in production SPIRE, or another
// SPIFFE provider, issues the SVIDs. Safe for concurrent use.
type Authority struct {
	domain  spiffeid.TrustDomain
	key     crypto.Signer
	anchors []*x509.Certificate // the first one is of the key, and signs; the others are former ones, newest first
	now     func() time.Time
}

// AuthorityDeps is what an Authority needs.
type AuthorityDeps struct {
	TrustDomain string           // "example.org"
	Now         func() time.Time // nil: time.Now
}

// SVIDRequest says what an SVID shall carry beside its SPIFFE id.
type SVIDRequest struct {
	DNSNames []string      // for clients that judge by host name
	IPs      []net.IP      // the same, for addresses
	TTL      time.Duration // 0: DefaultTTL; never beyond the authority's own end
	Key      crypto.Signer // nil: a new one, ECDSA on P-256; also Ed25519
}

// NewAuthority makes an authority with a new key and an anchor valid for a year.
func NewAuthority(deps AuthorityDeps) (*Authority, error) {
	key, err := newKey()
	if err != nil {
		return nil, err
	}
	return newAuthority(deps, key, nil)
}

// newAuthority sets up an authority around a key; without a usable anchor among
// those given, it signs itself a new one and keeps the old behind it, because
// evidence signed under them stays.
func newAuthority(deps AuthorityDeps, key crypto.Signer, anchors []*x509.Certificate) (*Authority, error) {
	domain, err := spiffeid.TrustDomainFromString(deps.TrustDomain)
	if err != nil {
		return nil, fmt.Errorf("identity: authority: %w", err)
	}
	if deps.Now == nil {
		deps.Now = time.Now
	}
	a := &Authority{domain: domain, key: key, anchors: anchors, now: deps.Now}
	if len(anchors) == 0 || stale(anchors[0], a.now()) {
		return a, a.addAnchor()
	}
	return a, nil
}

// addAnchor makes an anchor of the authority's key the one that signs, before those of until now.
func (a *Authority) addAnchor() error {
	fresh, err := a.signItself()
	if err != nil {
		return err
	}
	a.anchors = append([]*x509.Certificate{fresh}, a.anchors[:min(len(a.anchors), maxChain)]...)
	return nil
}

// Renewed returns an authority of the same trust domain with a new key and a new anchor, valid for a
// year. Its bundle also has the former anchors, at most 5: what they signed is trusted until it ends.
func (a *Authority) Renewed() (*Authority, error) {
	key, err := newKey()
	if err != nil {
		return nil, err
	}
	next := &Authority{domain: a.domain, key: key, anchors: a.anchors, now: a.now}
	return next, next.addAnchor()
}

// Bundle is what others must trust to accept this authority's SVIDs.
func (a *Authority) Bundle() (*Bundle, error) { return NewBundle(a.domain.Name(), a.anchors...) }

// Issue makes an SVID for a path of the trust domain: "/gateway", "/client",
// "/agents/NAME". The leaf may sign and speak TLS on both sides, no more.
func (a *Authority) Issue(path string, request SVIDRequest) (*SVID, error) {
	id, err := spiffeid.FromPath(a.domain, "/"+strings.TrimPrefix(path, "/"))
	if err != nil {
		return nil, fmt.Errorf("identity: issue: %w", err)
	}
	if id.Path() == anonymousPath {
		return nil, errReserved
	}
	if a.now().After(a.anchors[0].NotAfter) {
		return nil, errAuthorityEnded
	}
	key, err := requestedKey(request.Key)
	if err != nil {
		return nil, err
	}
	leaf, err := a.sign(a.leafTemplate(id, request), a.anchors[0], key.Public())
	if err != nil {
		return nil, err
	}
	return &SVID{ID: ect.Identity(id.String()), Chain: []*x509.Certificate{leaf}, Key: key}, nil
}

func (a *Authority) leafTemplate(id spiffeid.ID, request SVIDRequest) *x509.Certificate {
	ttl := request.TTL
	if ttl <= 0 {
		ttl = DefaultTTL
	}
	end := a.now().Add(ttl)
	if last := a.anchors[0].NotAfter; end.After(last) {
		end = last
	}
	return &x509.Certificate{
		Subject:               pkix.Name{Organization: []string{"AEPB development"}, CommonName: commonName(id.Path())},
		URIs:                  []*url.URL{id.URL()},
		DNSNames:              request.DNSNames,
		IPAddresses:           request.IPs,
		NotBefore:             a.now().Add(-backdate),
		NotAfter:              end,
		KeyUsage:              x509.KeyUsageDigitalSignature,
		ExtKeyUsage:           []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
		BasicConstraintsValid: true,
	}
}

// signItself makes the anchor: an authority over leafs only.
func (a *Authority) signItself() (*x509.Certificate, error) {
	template := &x509.Certificate{
		Subject:               pkix.Name{Organization: []string{"AEPB development"}, CommonName: "development CA of " + commonName(a.domain.Name())},
		URIs:                  []*url.URL{a.domain.ID().URL()},
		NotBefore:             a.now().Add(-backdate),
		NotAfter:              a.now().Add(authorityLife),
		KeyUsage:              x509.KeyUsageCertSign | x509.KeyUsageCRLSign,
		BasicConstraintsValid: true,
		IsCA:                  true,
		MaxPathLenZero:        true,
	}
	return a.sign(template, template, a.key.Public())
}

// sign completes a certificate; crypto/x509 draws the serial number.
func (a *Authority) sign(template, parent *x509.Certificate, key crypto.PublicKey) (*x509.Certificate, error) {
	der, err := x509.CreateCertificate(rand.Reader, template, parent, key, a.key)
	if err != nil {
		return nil, fmt.Errorf("identity: sign certificate: %w", err)
	}
	return x509.ParseCertificate(der)
}

func requestedKey(key crypto.Signer) (crypto.Signer, error) {
	if key == nil {
		return newKey()
	}
	if !signsECT(key) {
		return nil, errKeyType
	}
	return key, nil
}

func newKey() (crypto.Signer, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("identity: make key: %w", err)
	}
	return key, nil
}

// commonName keeps to the 64 characters that X.509 allows.
func commonName(name string) string {
	name = strings.TrimPrefix(name, "/")
	return name[:min(len(name), 45)]
}
