package identity

import (
	"crypto/x509"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/spiffe/go-spiffe/v2/bundle/x509bundle"
	"github.com/spiffe/go-spiffe/v2/spiffeid"
	"github.com/spiffe/go-spiffe/v2/svid/x509svid"

	"github.com/aepb/aepb-gateway/ect"
)

// Bounds on a chain, wherever it comes from. A leaf, two intermediates and an
// anchor are four; an EC certificate is about 700 bytes.
const (
	maxChain       = 5
	maxCertificate = 4 << 10
)

// Why a chain is refused, beyond what crypto/x509 and go-spiffe say.
var (
	errNoAnchors   = errors.New("identity: a bundle needs at least one trust anchor")
	errChainBounds = fmt.Errorf("identity: a chain has 1 to %d certificates of at most %d bytes", maxChain, maxCertificate)
	errNotDomain   = errors.New("identity: a trust domain is a name such as example.org, not a SPIFFE id")
	errNoInstant   = errors.New("identity: a chain is judged as of an instant, and there is none")
	errNotWorkload = errors.New("identity: the certificate does not name a workload")
	errCannotSign  = errors.New("identity: the certificate's key may not sign")
)

// Bundle is whom we trust: the anchors of our own trust domain, and those of
// others that we federate with. Safe for concurrent use.
type Bundle struct {
	home    spiffeid.TrustDomain
	changes atomic.Uint64 // counts changes, so that nothing judged before is believed after

	mu       sync.RWMutex
	set      *x509bundle.Set                  // never changed, only replaced
	tokens   map[spiffeid.TrustDomain]*KeySet // keys that sign JWT-SVIDs
	sessions map[*Session]struct{}            // of connections that are open now
}

// NewBundle makes a bundle of one trust domain ("example.org") from its anchors.
func NewBundle(trustDomain string, anchors ...*x509.Certificate) (*Bundle, error) {
	domain, err := spiffeid.TrustDomainFromString(trustDomain)
	if err != nil {
		return nil, fmt.Errorf("identity: bundle: %w", err)
	}
	if len(anchors) == 0 {
		return nil, errNoAnchors
	}
	return &Bundle{home: domain, set: x509bundle.NewSet(x509bundle.FromX509Authorities(domain, anchors))}, nil
}

// CheckTrustDomain says whether a text is the name of a trust domain,
// "example.org". A SPIFFE id is none.
func CheckTrustDomain(name string) error {
	domain, err := spiffeid.TrustDomainFromString(name)
	if err != nil {
		return fmt.Errorf("identity: trust domain: %w", err)
	}
	if domain.Name() != name {
		return errNotDomain
	}
	return nil
}

// LoadBundle reads a trust domain's anchors from a file of PEM certificates.
func LoadBundle(pemFile, trustDomain string) (*Bundle, error) {
	anchors, err := readCertificates(pemFile)
	if err != nil {
		return nil, err
	}
	return NewBundle(trustDomain, anchors...)
}

// ErrNoTrustDomain refuses anchors that name no trust domain, or more than one.
var ErrNoTrustDomain = errors.New("identity: the trust anchors name no trust domain, or more than one")

// LoadAnchors reads a trust domain's anchors from a file of PEM certificates, which name the domain
// themselves, as signing certificates do (X.509-SVID, Signing Certificates). Its errors are those of
// reading and [ErrNoTrustDomain].
func LoadAnchors(pemFile string) (*Bundle, error) {
	anchors, err := readCertificates(pemFile)
	if err != nil {
		return nil, err
	}
	name := ""
	for _, anchor := range anchors {
		if len(anchor.URIs) != 1 {
			return nil, ErrNoTrustDomain
		}
		id, err := spiffeid.FromURI(anchor.URIs[0])
		if err != nil || id.Path() != "" || name != "" && name != id.TrustDomain().Name() {
			return nil, ErrNoTrustDomain
		}
		name = id.TrustDomain().Name()
	}
	return NewBundle(name, anchors...)
}

// TrustDomain is the bundle's own trust domain, "example.org".
func (b *Bundle) TrustDomain() string { return b.home.Name() }

// Anchors gives the anchors of the bundle's own trust domain.
func (b *Bundle) Anchors() []*x509.Certificate {
	own, err := b.authorities().GetX509BundleForTrustDomain(b.home)
	if err != nil {
		return nil // cannot be: the home domain is never removed
	}
	return own.X509Authorities()
}

// Trust puts what the other bundle trusts in place of everything that was
// trusted before: this is how anchors are rotated, and how a federation ends. A
// trust domain that the other bundle does not know is out, with the keys of its
// JWT-SVIDs, and so are the connections whose SVIDs it vouched for (Session).
// Only our own trust domain stays if the other bundle has no anchors of it. It
// holds for the next handshake and the next token.
func (b *Bundle) Trust(other *Bundle) { b.replace(other, x509bundle.NewSet()) }

// Federate adds the trust domains of the other bundle, and replaces the anchors
// and keys of those that both know.
func (b *Bundle) Federate(other *Bundle) { b.replace(other, b.authorities()) }

// replace puts the other bundle's trust domains, beside those of base, in force.
func (b *Bundle) replace(other *Bundle, base *x509bundle.Set) {
	more, moreTokens := other.authorities().Bundles(), other.allTokenKeys()
	b.mu.Lock()
	next := x509bundle.NewSet(base.Bundles()...)
	if own, ok := b.set.Get(b.home); ok && !next.Has(b.home) {
		next.Add(own)
	}
	tokens := map[spiffeid.TrustDomain]*KeySet{}
	for domain, keys := range b.tokens {
		if next.Has(domain) {
			tokens[domain] = keys
		}
	}
	for _, bundle := range more {
		domain := bundle.TrustDomain()
		next.Add(bundle.Clone())
		delete(tokens, domain)
		if keys := moreTokens[domain]; keys != nil {
			tokens[domain] = keys
		}
	}
	changed := !sameSet(b.set, next)
	b.set, b.tokens = next, tokens
	if changed {
		b.changes.Add(1)
	}
	open := slices.Collect(maps.Keys(b.sessions))
	b.mu.Unlock()
	if !changed {
		return
	}
	for _, session := range open {
		session.judge()
	}
}

// sameSet reports whether two sets have the same anchors of the same trust domains.
func sameSet(a, b *x509bundle.Set) bool {
	return a.Len() == b.Len() && !slices.ContainsFunc(a.Bundles(), func(one *x509bundle.Bundle) bool {
		other, ok := b.Get(one.TrustDomain())
		return !ok || !one.Equal(other)
	})
}

// authorities are the anchors of all trust domains, as of now. The set is not to
// be changed.
func (b *Bundle) authorities() *x509bundle.Set {
	b.mu.RLock()
	defer b.mu.RUnlock()
	return b.set
}

// Lives are those of the anchors of each trust domain, by its name: of several
// anchors the one counts that ends last. A trust domain without anchors is left out.
func (b *Bundle) Lives() map[string]Life {
	out := map[string]Life{}
	for _, bundle := range b.authorities().Bundles() {
		for _, anchor := range bundle.X509Authorities() {
			name := bundle.TrustDomain().Name()
			if last, ok := out[name]; !ok || anchor.NotAfter.After(last.Until) {
				out[name] = Life{anchor.NotBefore, anchor.NotAfter}
			}
		}
	}
	return out
}

// TokenKeys are the keys that sign a trust domain's JWT-SVIDs; false if it has
// none that we know. Only a bundle document brings any (ParseBundle).
func (b *Bundle) TokenKeys(trustDomain string) (*KeySet, bool) {
	domain, err := spiffeid.TrustDomainFromString(trustDomain)
	if err != nil {
		return nil, false
	}
	keys := b.tokenKeys(domain)
	return keys, keys != nil
}

func (b *Bundle) tokenKeys(domain spiffeid.TrustDomain) *KeySet {
	b.mu.RLock()
	defer b.mu.RUnlock()
	return b.tokens[domain]
}

func (b *Bundle) allTokenKeys() map[spiffeid.TrustDomain]*KeySet {
	b.mu.RLock()
	defer b.mu.RUnlock()
	return maps.Clone(b.tokens)
}

// setTokenKeys replaces a domain's keys; nil: it has none any more.
func (b *Bundle) setTokenKeys(domain spiffeid.TrustDomain, keys *KeySet) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.tokens == nil {
		b.tokens = map[spiffeid.TrustDomain]*KeySet{}
	}
	b.tokens[domain] = keys
}

// Vouches says that an SVID is one of ours at an instant: not expired, and from
// an anchor of its trust domain. Who puts an SVID to use asks this first, rather
// than have every peer refuse it.
func (b *Bundle) Vouches(svid *SVID, at time.Time) error {
	_, _, err := b.verify(svid.Chain, at)
	return err
}

// UnknownDomainError: a certificate is of a trust domain whose anchors are not in the bundle.
type UnknownDomainError struct {
	ID   ect.Identity // that the certificate names
	Home string       // trust domain of the bundle
}

func (e *UnknownDomainError) Error() string {
	return "identity: the certificate of " + string(e.ID) + " is of another trust domain than " + e.Home + ", and no anchors of that one are known"
}

// verify judges a chain, leaf first, as of an instant: bounded, leading to an
// anchor of the leaf's own trust domain, and a leaf that names one workload,
// may sign and is no authority (SPIFFE X509-SVID sections 2, 4 and 5).
func (b *Bundle) verify(chain []*x509.Certificate, at time.Time) (spiffeid.ID, []*x509.Certificate, error) {
	if err := checkBounds(chain); err != nil {
		return spiffeid.ID{}, nil, err
	}
	if at.IsZero() { // crypto/x509 would take this for "now"
		return spiffeid.ID{}, nil, errNoInstant
	}
	authorities := b.authorities()
	if id, err := x509svid.IDFromCert(chain[0]); err == nil && !authorities.Has(id.TrustDomain()) {
		return spiffeid.ID{}, nil, &UnknownDomainError{ect.Identity(id.String()), b.home.Name()}
	}
	id, paths, err := x509svid.Verify(chain, authorities, x509svid.WithTime(at))
	switch {
	case err != nil:
		return spiffeid.ID{}, nil, fmt.Errorf("identity: %w", err)
	case id.Path() == "":
		return spiffeid.ID{}, nil, errNotWorkload
	case chain[0].KeyUsage&x509.KeyUsageDigitalSignature == 0:
		return spiffeid.ID{}, nil, errCannotSign
	}
	return id, paths[0], nil
}

func checkBounds(chain []*x509.Certificate) error {
	if len(chain) == 0 || len(chain) > maxChain {
		return errChainBounds
	}
	for _, cert := range chain {
		if len(cert.Raw) > maxCertificate {
			return errChainBounds
		}
	}
	return nil
}

// readCertificates reads a PEM file of certificates and nothing else.
func readCertificates(file string) ([]*x509.Certificate, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("identity: %w", err)
	}
	// The trust domain is of no matter here: only the PEM reader is wanted.
	parsed, err := x509bundle.Parse(spiffeid.TrustDomain{}, text)
	if err != nil {
		return nil, fmt.Errorf("identity: %s: %w", file, err)
	}
	return parsed.X509Authorities(), nil
}
