package main

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/ect/identity"
	"github.com/aepb/aepb-gateway/ect/identity/credential"
	"github.com/aepb/aepb-gateway/gateway/config"
	"github.com/aepb/aepb-gateway/gateway/httpapi"
	"github.com/aepb/aepb-gateway/gateway/problem"
	"github.com/aepb/aepb-gateway/gateway/sample"
	"github.com/aepb/aepb-gateway/gateway/telemetry"
	"github.com/aepb/aepb-gateway/gateway/transport/egress"
	"github.com/aepb/aepb-gateway/gateway/worker"
)

// identityFiles are who we are and whom we trust, as the configured files say now.
type identityFiles struct {
	svid    *identity.SVID
	bundle  *identity.Bundle
	public  *tls.Certificate // nil: the SVID
	keys    map[ect.Identity]*identity.KeySet
	issuers map[string]credential.Issuer
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
	if c.TLS.Key != "" {
		m.public, err = loadPublic(c.TLS)
		note("tls.certificate", err)
	}
	errs = append(errs, m.readKeys(c))
	return m, errors.Join(errs...)
}

// readKeys reads those files that a development gateway may have too.
func (m *identityFiles) readKeys(c config.Config) error {
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
	return errors.Join(errs...)
}

// errRestart: the identity that callers address and ledgers name does not change while requests
// wait for answers.
var errRestart = errors.New("identity: another SPIFFE id, trust domain or Workload API needs a restart")

// reread is what a running gateway may put in force in place of what it has.
func (out *service) reread(c config.Config) (identityFiles, error) {
	if out.settings.dev {
		var m identityFiles
		return m, m.readKeys(c)
	}
	m, err := read(c, out.settings.workload)
	if err == nil && (m.svid == nil || c.Identity.WorkloadAPI != out.settings.config.Identity.WorkloadAPI || m.svid.ID != out.settings.svid.ID || m.bundle.TrustDomain() != out.settings.bundle.TrustDomain()) {
		err = errRestart
	}
	return m, err
}

// keepIdentity renews who we are and whom we trust by the configuration in force, when
// a new one is refused: a mistake elsewhere must not let the SVID expire. anyway: also
// if what says who we are says nothing new.
func (out *service) keepIdentity(ctx context.Context, anyway bool) error {
	if out.settings.dev {
		return nil
	}
	c := out.settings.config
	m, err := out.reread(c)
	out.expiry.known(m.bundle)
	if err != nil || !anyway && out.settings.source.Uses(m.svid, m.bundle) {
		return err
	}
	return out.renew(ctx, c, m)
}

// renew puts it in force: for the next handshake, the next token signed and the
// next one verified. Connections stay as long as the SVIDs that opened them are
// still vouched for; the others end. On an error nothing has changed.
func (out *service) renew(ctx context.Context, c config.Config, m identityFiles) error {
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
		out.expiry.known(m.bundle)
		for _, guard := range []*egress.Guard{out.guards.agents, out.guards.documents, out.guards.hooks, out.escalations.guard} {
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
		return nil, nil //nolint:nilnil // without issuers there are no such tokens
	}
	return credential.NewWIMSE(credential.WIMSEDeps{Issuers: issuers, Replay: replay, Audience: []string{string(s.svid.ID)}})
}

// authenticators take callers without a client certificate: a workload identity
// token with its proof, or a JWT-SVID. known reports whether such a token names a
// key that we trust.
func (out *service) authenticators(s settings) (list []httpapi.Authenticator, known func(credential.Request) bool, err error) {
	bearer, err := credential.NewBearer(credential.BearerDeps{Bundle: s.bundle, Audience: []string{string(s.svid.ID)}})
	if err != nil {
		return nil, nil, err
	}
	first, err := s.wimse(s.files.issuers, out.replay)
	if err != nil {
		return nil, nil, err
	}
	out.wimse.Store(first)
	known = func(r credential.Request) bool {
		if now := out.wimse.Load(); len(r.Fields(credential.IdentityField)) > 0 {
			return now != nil && now.Known(r)
		}
		return bearer.Known(r)
	}
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
	}, known, nil
}

// What of an identity ends, as metrics and logs name it.
const (
	kindSVID   = "svid"
	kindPublic = "public" // the certificate of tls.certificate
	kindBundle = "bundle"
)

// errNoBundle is why a gateway is not ready.
var errNoBundle = errors.New("no trust bundle of our own trust domain is known")

// expiry tells how long our identity and our trust in others hold: as metrics, by
// warnings while there is time to act, and by readiness once the time is over.
type expiry struct {
	source   *identity.Source
	bundle   *identity.Bundle
	logger   *slog.Logger
	remedy   func(kind string) string
	failures func() uint64

	// noBundle: what says whom we trust has no anchors of our own trust domain any
	// more. Those that it said last stay in force for callers.
	noBundle atomic.Bool
	warned   map[subject]warning // only run uses it
}

// subject is one thing that ends.
type subject struct{ kind, domain string }

// warning is when operators are to be warned again of an end.
type warning struct{ end, next time.Time }

func (s settings) expiry() *expiry {
	e := &expiry{source: s.source, bundle: s.bundle, logger: s.logger, remedy: s.remedy, failures: func() uint64 { return 0 }}
	if s.workload != nil {
		e.failures = s.workload.Failures
	}
	return e
}

// remedy is what an operator does before something ends.
func (s settings) remedy(kind string) string {
	switch {
	case kind == kindPublic:
		return "put renewed files in place of tls.certificate and tls.key; they are read by themselves"
	case s.dev:
		return "restart the gateway: it renews the certificates of its folder when it starts"
	case s.workload != nil:
		return "see that the SPIFFE agent at identity.workload_api runs, and that it has a new one for this gateway"
	case kind == kindBundle:
		return "put the trust anchors of now into identity.bundle or identity.federated; they are read by themselves"
	default:
		return "put renewed files in place of identity.certificate and identity.key; they are read by themselves"
	}
}

// lives is how long everything holds. A trust bundle that is not known has no life.
func (e *expiry) lives() map[subject]identity.Life {
	out := map[subject]identity.Life{
		{kind: kindSVID}:                     e.source.Life(),
		{kindBundle, e.bundle.TrustDomain()}: {},
	}
	for domain, life := range e.bundle.Lives() {
		out[subject{kindBundle, domain}] = life
	}
	if e.noBundle.Load() {
		out[subject{kindBundle, e.bundle.TrustDomain()}] = identity.Life{}
	}
	if public, ok := e.source.PublicLife(); ok {
		out[subject{kind: kindPublic}] = public
	}
	return out
}

// known is told whether what says whom we trust has anchors of our own trust domain.
func (e *expiry) known(bundle *identity.Bundle) {
	e.noBundle.Store(bundle == nil || len(bundle.Anchors()) == 0)
}

// failing says why our identity cannot be used now; nil: it can.
func (e *expiry) failing() error {
	now, lives := time.Now(), e.lives()
	for _, one := range []struct {
		subject
		what string
	}{
		{subject{kind: kindSVID}, "the SVID of this gateway"},
		{subject{kind: kindPublic}, "the certificate of tls.certificate"},
		{subject{kindBundle, e.bundle.TrustDomain()}, "the trust bundle of our own trust domain"},
	} {
		life, ok := lives[one.subject]
		switch {
		case !ok || !life.Ended(now):
		case life.Until.IsZero():
			return errNoBundle
		default:
			return fmt.Errorf("%s expired at %s", one.what, life.Until.UTC().Format(time.RFC3339))
		}
	}
	return nil
}

// run warns until ctx ends.
func (e *expiry) run(ctx context.Context) error {
	e.warn(ctx, time.Now())
	worker.Every(ctx, lookEvery, func() { e.warn(ctx, time.Now()) })
	return nil
}

// warn logs what is due.
func (e *expiry) warn(ctx context.Context, now time.Time) {
	next := map[subject]warning{}
	for about, life := range e.lives() {
		due, warned := e.warned[about]
		if !warned || !due.end.Equal(life.Until) {
			due = warning{life.Until, life.FirstWarning()}
		}
		if !now.Before(due.next) {
			e.log(ctx, about, life, now)
			due.next = life.NextWarning(now)
		}
		next[about] = due
	}
	e.warned = next
}

func (e *expiry) log(ctx context.Context, about subject, life identity.Life, now time.Time) {
	attrs := []slog.Attr{slog.String("kind", about.kind), slog.String("do", e.remedy(about.kind))}
	if about.domain != "" {
		attrs = append(attrs, slog.String("trust_domain", about.domain))
	}
	level, text := slog.LevelWarn, "identity expires soon and was not renewed"
	switch {
	case life.Until.IsZero():
		level, text = slog.LevelError, "no trust bundle is known, the last one stays in force for callers"
	case life.Ended(now):
		level, text = slog.LevelError, "identity expired"
		fallthrough
	default:
		attrs = append(attrs, slog.Time("expires", life.Until), slog.String("left", max(0, life.Until.Sub(now)).Round(time.Second).String()))
	}
	e.logger.LogAttrs(ctx, level, text, attrs...)
}

// current is the same for metrics.
func (e *expiry) current() *telemetry.Identity {
	return &telemetry.Identity{
		Failures: e.failures,
		Expiry: func() map[string]time.Time {
			out := map[string]time.Time{}
			for about, life := range e.lives() {
				if about.kind != kindBundle || about.domain == e.bundle.TrustDomain() {
					out[about.kind] = life.Until
				}
			}
			return out
		},
		Bundles: func() map[string]time.Time {
			out := map[string]time.Time{}
			for about, life := range e.lives() {
				if about.kind == kindBundle {
					out[about.domain] = life.Until
				}
			}
			return out
		},
	}
}

// logFailures logs that the Workload API failed: at once, then once a minute with
// how often.
func logFailures(ctx context.Context, address string, logger *slog.Logger) (func(error), error) {
	failures, err := sample.New(sample.Config{Every: time.Minute}, sample.Deps{})
	if err != nil {
		return nil, err
	}
	return func(err error) {
		counted, due := failures.Note(sample.Key{Reason: "workload_api"})
		if !due {
			return
		}
		logger.WarnContext(ctx, "the SPIFFE Workload API failed, what it said last stays in force until it expires",
			slog.String("address", address), slog.Any("error", err), slog.Uint64("count", counted.Count), slog.Time("since", counted.Since),
			slog.String("do", "see that the SPIFFE agent runs, that its socket can be reached, and that it has an entry for this gateway"))
	}, nil
}
