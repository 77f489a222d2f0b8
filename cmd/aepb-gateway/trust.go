package main

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/ect/identity"
	"github.com/aepb/aepb-gateway/ect/identity/credential"
	"github.com/aepb/aepb-gateway/gateway/config"
	"github.com/aepb/aepb-gateway/gateway/httpapi"
	"github.com/aepb/aepb-gateway/gateway/problem"
	"github.com/aepb/aepb-gateway/gateway/transport/egress"
)

// papers are who we are and whom we trust, as the configured files say now.
type papers struct {
	svid    *identity.SVID
	bundle  *identity.Bundle
	public  *tls.Certificate // nil: the SVID
	keys    map[ect.Identity]*identity.KeySet
	issuers map[string]credential.Issuer
}

// read reads every file that the configuration names. Its error joins one for
// each that will not do. Without a Workload API that is configured, who we are
// stays open: check-config asks nobody.
func read(c config.Config, workload *identity.Workload) (papers, error) {
	var m papers
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
		m.svid, err = identity.LoadSVID(c.Identity.Certificate, c.Identity.Key)
		note("identity", err)
		m.bundle, err = loadBundle(c.Identity)
		note("identity.bundle", err)
	}
	if len(errs) == 0 && m.svid != nil {
		note("identity", m.bundle.Vouches(m.svid, time.Now()))
	}
	m.public, err = loadPublic(c.TLS)
	note("tls", err)
	if err := m.readKeys(c); err != nil {
		errs = append(errs, fmt.Errorf("config: %w", err))
	}
	return m, errors.Join(errs...)
}

// readKeys reads those files that a development gateway may have too.
func (m *papers) readKeys(c config.Config) error {
	m.keys, m.issuers = map[ect.Identity]*identity.KeySet{}, map[string]credential.Issuer{}
	var errs []error
	for id, peer := range c.Peers {
		if peer.Keys == "" {
			continue
		}
		set, err := identity.LoadKeySet(peer.Keys)
		if err != nil {
			errs = append(errs, fmt.Errorf("peers.%s.keys: %w", id, err))
		}
		m.keys[ect.Identity(id)] = set
	}
	for domain, file := range c.Identity.Issuers {
		set, err := identity.LoadKeySet(file)
		if err != nil {
			errs = append(errs, fmt.Errorf("identity.issuers.%s: %w", domain, err))
		}
		m.issuers[domain] = credential.Issuer{Keys: set}
	}
	return errors.Join(errs...)
}

// errRestart: whom callers address and ledgers name does not change while
// somebody waits for an answer.
var errRestart = errors.New("identity: another SPIFFE id, trust domain or Workload API needs a restart")

// reread is what a running gateway may put in force in place of what it has.
func (out *service) reread(c config.Config) (papers, error) {
	if out.settings.dev {
		var m papers
		return m, m.readKeys(c)
	}
	m, err := read(c, out.settings.workload)
	if err == nil && (m.svid == nil || c.Identity.WorkloadAPI != out.settings.config.Identity.WorkloadAPI || m.svid.ID != out.settings.svid.ID || m.bundle.TrustDomain() != out.settings.bundle.TrustDomain()) {
		err = errRestart
	}
	return m, err
}

// renew puts it in force: for the next handshake, the next token signed and the
// next one verified. Connections stay as long as the SVIDs that opened them are
// still vouched for; the others end. On an error nothing has changed.
func (out *service) renew(ctx context.Context, c config.Config, m papers) error {
	wimse, err := out.settings.wimse(m.issuers, out.replay)
	if err == nil {
		err = out.dialects.Configure(dialects(c))
	}
	if err != nil {
		return err
	}
	if m.svid != nil {
		if err := out.signer.Renew(m.svid.Key, m.svid.Chain); err != nil {
			return err
		}
		out.settings.bundle.Trust(m.bundle)
		if err := out.settings.source.Renew(m.svid); err != nil {
			return err // cannot be: the signer took it
		}
		out.settings.source.Show(m.public)
		for _, guard := range []*egress.Guard{out.guard, out.documents, out.hooks} {
			guard.Renew()
		}
		out.logger.InfoContext(ctx, "identity in force", slog.String("id", string(m.svid.ID)),
			slog.String("serial", m.svid.Chain[0].SerialNumber.Text(16)), slog.Time("expires", m.svid.Expires()))
	}
	out.wimse.Store(wimse)
	out.peers.Store(&c.Peers)
	return out.keys.Replace(m.keys)
}

// sources are where the keys of ECTs come from: JWK sets that the operator gave
// for a peer, then the peer's connection and its certificates.
func (out *service) sources(s settings) (ect.KeySource, error) {
	var err error
	if out.keys, err = identity.NewJWKSource(s.files.keys); err != nil {
		return nil, err
	}
	ring, err := identity.NewKeyRing(identity.KeyRingDeps{Bundle: s.bundle})
	return identity.KeySources{out.keys, ring}, err
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
func (out *service) minLevel(id ect.Identity) ect.Level {
	if (*out.peers.Load())[string(id)].MinLevel == "L1" {
		return ect.L1
	}
	return ect.L2
}

// wimse takes workload identity tokens of the given issuers; nil: there are none.
func (s settings) wimse(issuers map[string]credential.Issuer, replay ect.ReplayCache) (*credential.WIMSE, error) {
	if len(issuers) == 0 {
		return nil, nil //nolint:nilnil // without issuers nobody can have such a token
	}
	return credential.NewWIMSE(credential.WIMSEDeps{Issuers: issuers, Replay: replay, Audience: []string{string(s.svid.ID)}})
}

// authenticators take callers without a client certificate: a workload identity
// token with its proof, or a JWT-SVID.
func (out *service) authenticators(s settings) ([]httpapi.Authenticator, error) {
	bearer, err := credential.NewBearer(credential.BearerDeps{Bundle: s.bundle, Audience: []string{string(s.svid.ID)}})
	if err != nil {
		return nil, err
	}
	first, err := s.wimse(s.files.issuers, out.replay)
	if err != nil {
		return nil, err
	}
	out.wimse.Store(first)
	return []httpapi.Authenticator{
		func(ctx context.Context, r credential.Request) (identity.Caller, bool, error) {
			if now := out.wimse.Load(); now != nil {
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
	}, nil
}
