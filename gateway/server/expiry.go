package server

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/aepb/aepb-gateway/ect/identity"
	"github.com/aepb/aepb-gateway/gateway/sample"
	"github.com/aepb/aepb-gateway/gateway/telemetry"
	"github.com/aepb/aepb-gateway/gateway/worker"
)

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

func (s Config) expiry() *expiry {
	e := &expiry{source: s.Identity.Source, bundle: s.Identity.Bundle, logger: s.Logger, remedy: s.remedy, failures: func() uint64 { return 0 }}
	if s.Identity.Workload != nil {
		e.failures = s.Identity.Workload.Failures
	}
	return e
}

// remedy is what an operator does before something ends.
func (s Config) remedy(kind string) string {
	switch {
	case kind == kindPublic:
		return "put renewed files in place of tls.certificate and tls.key; they are read by themselves"
	case s.Development:
		return "restart the gateway: it renews the certificates of its folder when it starts"
	case s.Identity.Workload != nil:
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
	ends := func(name func(subject) string) func() map[string]time.Time {
		return func() map[string]time.Time {
			out := map[string]time.Time{}
			for about, life := range e.lives() {
				out[name(about)] = life.Until
			}
			delete(out, "")
			return out
		}
	}
	return &telemetry.Identity{
		Failures: e.failures, Bundles: ends(func(about subject) string { return about.domain }),
		Expiry: ends(func(about subject) string {
			if about.kind == kindBundle && about.domain != e.bundle.TrustDomain() {
				return ""
			}
			return about.kind
		}),
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
