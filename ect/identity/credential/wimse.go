package credential

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spiffe/go-spiffe/v2/spiffeid"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/ect/identity"
)

// The header fields (workload-creds section 3.1.1, wpt-01 section 2).
const (
	IdentityField = "Workload-Identity-Token"
	ProofField    = "Workload-Proof-Token"
)

// DefaultMaxProof is how far in the future a proof may end.
const DefaultMaxProof = 5 * time.Minute

const (
	identityToken = "workload identity token"
	proofToken    = "workload proof token"
)

// Issuer is who issues identity tokens for a trust domain.
type Issuer struct {
	Keys *identity.KeySet // required
	Name string           // what iss must say; empty: anything, or nothing
}

// WIMSEDeps is what a WIMSE needs.
type WIMSEDeps struct {
	Issuers  map[string]Issuer // by trust domain, "example.org"; required
	Replay   ect.ReplayCache   // remembers proofs; required. It may be the one for execution context tokens
	Audience []string          // what may stand in a proof's aud instead of the target URI, as written
	Bound    []string          // header fields that oth may name, in lower case; nil: execution-context
	Skew     time.Duration     // tolerance for clocks, whole seconds; 0: DefaultSkew
	MaxProof time.Duration     // how far in the future a proof may end, whole seconds; 0: DefaultMaxProof
	MaxToken int               // bytes of either token; 0: DefaultMaxToken
	Now      func() time.Time  // nil: time.Now

	// MissingAlg lets an identity token go without cnf.jwk.alg, as early issuers
	// write it: the kind of the key then decides.
	MissingAlg bool
}

// WIMSE finds out who shows a workload identity token and proves to hold its
// key. It is safe for concurrent use.
type WIMSE struct {
	issuers    map[string]Issuer
	replay     ect.ReplayCache
	audience   []string
	bound      []string
	skew       int64
	maxProof   int64
	maxToken   int
	missingAlg bool
	now        func() time.Time
}

// NewWIMSE checks its dependencies.
func NewWIMSE(d WIMSEDeps) (*WIMSE, error) {
	w := &WIMSE{
		issuers: maps.Clone(d.Issuers), replay: d.Replay, audience: slices.Clone(d.Audience), bound: slices.Clone(d.Bound),
		skew:     int64(cmp.Or(d.Skew, DefaultSkew) / time.Second),
		maxProof: int64(cmp.Or(d.MaxProof, DefaultMaxProof) / time.Second),
		maxToken: cmp.Or(d.MaxToken, DefaultMaxToken), missingAlg: d.MissingAlg, now: d.Now,
	}
	if w.now == nil {
		w.now = time.Now
	}
	if w.bound == nil {
		w.bound = []string{strings.ToLower(ect.HeaderName)}
	}
	switch {
	case w.replay == nil:
		return nil, errors.New("credential: proofs cannot be judged without a replay cache")
	case len(w.issuers) == 0:
		return nil, errors.New("credential: no issuer of identity tokens")
	case w.skew < 0 || w.maxProof < 1 || w.maxToken < 0:
		return nil, errors.New("credential: a bound is negative, or no time at all")
	case slices.Contains(w.audience, ""):
		return nil, errors.New("credential: an audience has a name")
	}
	for _, field := range w.bound {
		if field == "" || field != strings.ToLower(field) {
			return nil, errors.New("credential: bound fields are named in lower case")
		}
	}
	for domain, issuer := range w.issuers {
		if known, err := spiffeid.TrustDomainFromString(domain); err != nil || known.Name() != domain || issuer.Keys == nil {
			return nil, fmt.Errorf("credential: %q is no trust domain with keys", domain)
		}
	}
	return w, nil
}

// Caller is who sent a request; false if it shows neither token. The caller's
// key is the one that the identity token confirms and the proof was signed
// with. Its error is *identity.CredentialError, or trouble of the replay cache.
func (w *WIMSE) Caller(ctx context.Context, r Request) (identity.Caller, bool, error) {
	token, shown, err := r.single(IdentityField, identityToken)
	if err != nil {
		return identity.Caller{}, false, err
	}
	proof, proved, err := r.single(ProofField, proofToken)
	switch {
	case err != nil:
		return identity.Caller{}, false, err
	case !shown && !proved:
		return identity.Caller{}, false, nil
	case !shown:
		return identity.Caller{}, false, &identity.CredentialError{Credential: identityToken, Reason: identity.CredentialMissing, Claim: IdentityField}
	case !proved: // an identity token is no bearer token (workload-creds section 3.1)
		return identity.Caller{}, false, &identity.CredentialError{Credential: proofToken, Reason: identity.CredentialMissing, Claim: ProofField}
	}
	now := w.now().Unix()
	owner, err := w.identity(token, now)
	if err != nil {
		return identity.Caller{}, false, err
	}
	if err := w.prove(ctx, proof, owner, r, now); err != nil {
		return identity.Caller{}, false, err
	}
	return identity.Caller{Peer: owner.peer, Until: owner.until}, true, nil
}
