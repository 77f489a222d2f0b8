package server

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync/atomic"
	"time"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/ect/identity"
	"github.com/aepb/aepb-gateway/ect/identity/apikey"
	"github.com/aepb/aepb-gateway/ect/identity/credential"
	"github.com/aepb/aepb-gateway/ect/identity/oauth"
	"github.com/aepb/aepb-gateway/gateway/config"
	"github.com/aepb/aepb-gateway/gateway/httpapi"
	"github.com/aepb/aepb-gateway/gateway/problem"
	"github.com/aepb/aepb-gateway/policy"
)

// identityFiles are who we are and whom we trust, as the configured files say now.
type identityFiles struct {
	svid    *identity.SVID
	bundle  *identity.Bundle
	public  *tls.Certificate // nil: the SVID
	keys    map[ect.Identity]*identity.KeySet
	issuers map[string]credential.Issuer
	apiKeys *apikey.Keys   // nil: none are taken
	access  []oauth.Issuer // of access tokens
}

// read reads every file that the configuration names. Its error joins one for each file that is not
// usable. A nil workload leaves the SVID of a configured Workload API out: check-config asks no
// server.
func read(c config.Config, workload *identity.Workload) (identityFiles, error) {
	var m identityFiles
	var errs []error
	note := func(what string, err error) {
		if err != nil {
			errs = append(errs, fmt.Errorf("config: %s: %w", what, err))
		}
	}
	var err error
	switch {
	case workload != nil:
		m.svid, m.bundle, err = workload.Current()
		if err == nil && m.bundle.TrustDomain() != c.Identity.TrustDomain {
			err = fmt.Errorf("the Workload API is of the trust domain %q", m.bundle.TrustDomain())
		}
		note("identity.workload_api", err)
	case c.Identity.WorkloadAPI == "":
		if c.Identity.Certificate != "" && c.Identity.Key != "" { // else that is the mistake
			m.svid, err = identity.LoadSVID(c.Identity.Certificate, c.Identity.Key)
			note("identity.certificate", err)
		}
		if c.Identity.Bundle != "" && c.Identity.TrustDomain != "" {
			m.bundle, err = loadBundle(c.Identity)
			note("identity.bundle", err)
		}
	}
	if len(errs) == 0 && m.svid != nil && m.bundle != nil {
		err := m.bundle.Vouches(m.svid, time.Now())
		if other, ok := errors.AsType[*identity.UnknownDomainError](err); ok {
			err = fmt.Errorf("the certificate says %s, trust_domain says %s: correct trust_domain, or name another certificate", other.ID, c.Identity.TrustDomain)
		}
		note("identity.certificate", err)
	}
	if c.TLS.Key != "" && c.TLS.Certificate != "" {
		pair, err := tls.LoadX509KeyPair(c.TLS.Certificate, c.TLS.Key)
		note("tls.certificate", err)
		m.public = &pair
	}
	errs = append(errs, m.readKeys(c, c.Identity.TrustDomain))
	return m, errors.Join(errs...)
}

// readKeys reads those files that a development gateway may have too. The trust domain is our own.
func (m *identityFiles) readKeys(c config.Config, domain string) error {
	m.keys, m.issuers = map[ect.Identity]*identity.KeySet{}, map[string]credential.Issuer{}
	var errs []error
	for id, peer := range c.Peers {
		if peer.Keys == "" {
			continue
		}
		set, err := identity.LoadKeySet(peer.Keys)
		if err != nil {
			errs = append(errs, fmt.Errorf("peers.'%s'.keys: %w", id, err))
		}
		m.keys[ect.Identity(id)] = set
	}
	for domain, file := range c.Identity.Issuers {
		set, err := identity.LoadKeySet(file)
		if err != nil {
			errs = append(errs, fmt.Errorf("identity.issuers.'%s': %w", domain, err))
		}
		m.issuers[domain] = credential.Issuer{Keys: set}
	}
	var broken [2]error
	m.access, broken[0] = loadIssuers(c.OAuth)
	m.apiKeys, broken[1] = loadAPIKeys(c.APIKeys, domain)
	return errors.Join(append(errs, broken[:]...)...)
}

// loadAPIKeys reads the API keys of callers of a trust domain; nil: none are configured, or the file is refused.
func loadAPIKeys(c config.APIKeys, domain string) (*apikey.Keys, error) {
	if c.File == "" {
		return nil, nil //nolint:nilnil // without a file there are no such keys
	}
	list, err := apikey.Load(c.File, domain)
	if err != nil {
		return nil, fmt.Errorf("api_keys.file: %w", err)
	}
	return apikey.NewKeys(list, nil), nil
}

// trust is what is in force of who we are and whom we trust, and what an identity may do. It is safe for concurrent use.
type trust struct {
	who       Identity // but not its files, which change
	tls       *tls.Config
	signer    *ect.Signer
	keys      *identity.JWKSource
	wimse     atomic.Pointer[credential.WIMSE] // nil: no issuers
	apiKeys   atomic.Pointer[apikey.Keys]      // nil: none are taken
	access    *accessTokens                    // nil: not made yet
	dialects  *ect.Dialects
	peers     atomic.Pointer[map[string]config.Peer]
	operators atomic.Pointer[map[ect.Identity]policy.Operator]
	dids      atomic.Pointer[map[string]ect.Identity] // the workloads that they stand for
	expiry    *expiry
}

func newTrust(s Config) (*trust, error) {
	who := s.Identity
	t := &trust{who: who, tls: who.Source.ServerConfig(), expiry: s.expiry()}
	t.operate(s.Settings)
	t.peers.Store(&s.Settings.Peers)
	var errs [3]error
	t.signer, errs[0] = ect.NewSigner(ect.SignerDeps{Key: who.SVID.Key, Chain: who.SVID.Chain, Issuer: who.SVID.ID, Now: time.Now})
	t.dialects, errs[1] = ect.NewDialects(ect.DialectsDeps{Configured: dialects(s.Settings)})
	t.keys, errs[2] = identity.NewJWKSource(who.files.keys)
	return t, errors.Join(errs[:]...)
}

// verifier takes ECTs of those whom we trust. Their keys are those of JWK sets that the operator gave for a peer, then
// those of the peer's connection and of its certificates.
func (t *trust) verifier(replay ect.ReplayCache) (*ect.Verifier, error) {
	ring, err := identity.NewKeyRing(identity.KeyRingDeps{Bundle: t.who.Bundle})
	if err != nil {
		return nil, err
	}
	return ect.NewVerifier(ect.VerifierDeps{
		Keys: identity.KeySources{t.keys, ring}, Replay: replay, Audience: []string{string(t.who.SVID.ID)}, Now: time.Now, MinLevelOf: t.minLevel,
	})
}

// errRestart: the identity that callers address and ledgers name does not change while requests
// wait for answers.
var errRestart = errors.New("identity: another SPIFFE id, trust domain or Workload API needs a restart")

// reread is what a running gateway may put in force in place of what it has.
func (t *trust) reread(s Config, c config.Config) (identityFiles, error) {
	if s.Development {
		var m identityFiles
		err := m.readKeys(c, t.who.Bundle.TrustDomain())
		return m, cmp.Or(err, oauth.Check(m.access))
	}
	m, err := read(c, t.who.Workload)
	if err == nil && (m.svid == nil || c.Identity.WorkloadAPI != s.Settings.Identity.WorkloadAPI || m.svid.ID != t.who.SVID.ID || m.bundle.TrustDomain() != t.who.Bundle.TrustDomain()) {
		err = errRestart
	}
	return m, cmp.Or(err, oauth.Check(m.access))
}

// keepIdentity renews who we are and whom we trust by the configuration in force, when
// a new one is refused: a mistake elsewhere must not let the SVID expire, nor an API key
// work that was revoked. anyway: also if what says who we are says nothing new.
func (out *Server) keepIdentity(ctx context.Context, anyway bool) error {
	if out.config.Development {
		return nil
	}
	now := *out.inForce.Load()
	files := now.Settings
	files.APIKeys, files.OAuth = config.APIKeys{}, nil // their files may be what is refused
	m, err := out.identity.reread(now, files)
	out.identity.expiry.known(m.bundle)
	if err != nil || !anyway && out.identity.who.Source.Uses(m.svid, m.bundle) {
		return err
	}
	var broken [2]error
	if m.apiKeys, broken[0] = loadAPIKeys(now.Settings.APIKeys, out.identity.who.Bundle.TrustDomain()); broken[0] != nil {
		m.apiKeys = out.identity.apiKeys.Load()
	}
	if m.access, broken[1] = loadIssuers(now.Settings.OAuth); broken[1] != nil {
		m.access = *out.identity.access.issuers.Load()
	}
	return errors.Join(append(broken[:], out.renew(ctx, now.Settings, m))...)
}

// renew puts it in force, and has the next connections to agents show it.
func (out *Server) renew(ctx context.Context, c config.Config, m identityFiles) error {
	if err := out.identity.renew(c, m, out.state.replay); err != nil || m.svid == nil {
		return err
	}
	out.agents.guards.renew()
	out.escalations.guard.Renew()
	out.config.Logger.InfoContext(ctx, "identity in force", slog.String("id", string(m.svid.ID)),
		slog.String("serial", m.svid.Chain[0].SerialNumber.Text(16)), slog.Time("expires", m.svid.Expires()))
	return nil
}

// renew puts it in force: for the next handshake, the next token signed and the
// next one verified. Connections stay as long as the SVIDs that opened them are
// still vouched for; the others end. On an error nothing has changed.
func (t *trust) renew(c config.Config, m identityFiles, replay ect.ReplayCache) error {
	wimse, err := t.tokens(m.issuers, replay)
	if err == nil {
		err = t.dialects.Configure(dialects(c))
	}
	if err != nil {
		return err
	}
	if m.svid != nil {
		if err := t.signer.Renew(m.svid.Key, m.svid.Chain); err != nil {
			return err
		}
		t.who.Bundle.Trust(m.bundle)
		if err := t.who.Source.Renew(m.svid); err != nil {
			return err // cannot be: the signer took it
		}
		t.who.Source.Show(m.public)
		t.expiry.known(m.bundle)
	}
	if err := t.access.use(m.access); err != nil {
		return err // cannot be: reread checked them
	}
	t.wimse.Store(wimse)
	t.apiKeys.Store(m.apiKeys)
	t.peers.Store(&c.Peers)
	return t.keys.Replace(m.keys)
}

// dialects are how the configuration says that peers write and read ECTs.
func dialects(c config.Config) map[ect.Identity]ect.Dialect {
	configured := map[ect.Identity]ect.Dialect{}
	for id, peer := range c.Peers {
		if peer.Dialect != "" {
			configured[ect.Identity(id)] = ect.Dialect(peer.Dialect)
		}
	}
	return configured
}

// minLevel is the lowest level that a peer's own ECTs may have.
func (t *trust) minLevel(id ect.Identity) ect.Level {
	if (*t.peers.Load())[string(id)].MinLevel == "L1" {
		return ect.L1
	}
	return ect.L2
}

// tokens takes workload identity tokens of the given issuers; nil: there are none.
func (t *trust) tokens(issuers map[string]credential.Issuer, replay ect.ReplayCache) (*credential.WIMSE, error) {
	if len(issuers) == 0 {
		return nil, nil //nolint:nilnil // without issuers there are no such tokens
	}
	return credential.NewWIMSE(credential.WIMSEDeps{Issuers: issuers, Replay: replay, Audience: []string{string(t.who.SVID.ID)}})
}

// accept is how callers are known. A refusal at an endpoint says where its clients get an access token, if those are
// accepted.
func (t *trust) accept(s Config, replay ect.ReplayCache, counter httpapi.FailureCounter) (httpapi.Callers, error) {
	domain, tokens := t.who.Bundle.TrustDomain(), t.access
	callers := httpapi.Callers{Anonymous: s.Anonymous(), TrustDomain: domain, Resources: tokens.metadata.Load, Reserved: oauth.Prefix(domain)}
	list, known, err := t.authenticators(replay)
	if err == nil {
		err = tokens.use(t.who.files.access)
	}
	if err != nil {
		return callers, err
	}
	callers.Authenticators = slices.Insert(list, 1, tokens.verifier.Caller) // behind API keys
	callers.Failures, err = httpapi.NewFailures(counter, func(r credential.Request) bool { return tokens.verifier.Known(r) || known(r) })
	return callers, err
}

// authenticators take callers without a client certificate: an API key, a workload
// identity token with its proof, or a JWT-SVID. known reports whether such a credential
// names a key that we trust.
func (t *trust) authenticators(replay ect.ReplayCache) (list []httpapi.Authenticator, known func(credential.Request) bool, err error) {
	bearer, err := credential.NewBearer(credential.BearerDeps{Bundle: t.who.Bundle, Audience: []string{string(t.who.SVID.ID)}})
	if err != nil {
		return nil, nil, err
	}
	first, err := t.tokens(t.who.files.issuers, replay)
	if err != nil {
		return nil, nil, err
	}
	t.wimse.Store(first)
	t.apiKeys.Store(t.who.files.apiKeys)
	known = func(r credential.Request) bool {
		if now := t.wimse.Load(); len(r.Fields(credential.IdentityField)) > 0 {
			return now != nil && now.Known(r)
		}
		if keys := t.apiKeys.Load(); keys != nil && keys.Known(r) {
			return true
		}
		return bearer.Known(r)
	}
	return []httpapi.Authenticator{
		t.byKey, // first: a key that is no good is refused, whatever is beside it
		func(ctx context.Context, r credential.Request) (identity.Caller, bool, error) {
			if now := t.wimse.Load(); now != nil {
				return now.Caller(ctx, r)
			}
			return identity.Caller{}, false, nil
		},
		func(_ context.Context, r credential.Request) (identity.Caller, bool, error) {
			caller, ok, err := bearer.Caller(r)
			if err != nil { // a bearer token has a challenge of its own, unlike a WIT (RFC 6750 section 3)
				err = errors.Join(&problem.UnauthenticatedError{}, err)
			}
			return caller, ok, err
		},
	}, known, nil
}

// byKey is the caller of an API key. Its error says what its owner should do.
func (t *trust) byKey(_ context.Context, r credential.Request) (identity.Caller, bool, error) {
	keys := t.apiKeys.Load()
	if keys == nil {
		return identity.Caller{}, false, nil
	}
	caller, ok, err := keys.Caller(r)
	if refused, is := errors.AsType[*identity.CredentialError](err); is {
		reason := refused.Error()
		if refused.Reason == identity.CredentialInURL {
			reason = "an API key stands in the URL, which servers and proxies log: have it revoked, and send another one in " + apikey.Field
		}
		err = errors.Join(&problem.UnauthenticatedError{Reason: reason}, err)
	}
	return caller, ok, err
}

// operate puts the configured operators, and the names of callers, in force.
func (t *trust) operate(c config.Config) {
	operators := c.Operators()
	t.operators.Store(&operators)
	dids := c.DIDs()
	t.dids.Store(&dids)
}

func (t *trust) operator(id ect.Identity) (policy.Operator, bool) {
	who, ok := (*t.operators.Load())[id]
	return who, ok
}

// auditor is the operator of that identity who may read all evidence.
func (t *trust) auditor(id ect.Identity) (name string, ok bool) {
	who, ok := t.operator(id)
	return who.Name, ok && who.May(policy.RoleAuditor)
}

// watches reports whether an identity may watch circuit breakers: an operator, or a
// gateway that is a peer.
func (t *trust) watches(id ect.Identity) bool {
	who, ok := t.operator(id)
	_, peer := (*t.peers.Load())[string(id)]
	return ok && who.May(policy.RoleViewer) || peer
}
