package telemetry

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"strings"
	"time"

	"github.com/aepb/aepb-gateway/gateway/problem"
	"github.com/aepb/aepb-gateway/gateway/sample"
	"github.com/aepb/aepb-gateway/gateway/transport"
	"github.com/aepb/aepb-gateway/policy/limit"
	"github.com/aepb/aepb-gateway/policy/quota"
	"github.com/aepb/aepb-gateway/translators/canonical"
)

// refusalLines bounds the log lines about refusals in a second.
const refusalLines = 4

// Refusals counts requests and TLS handshakes that a listener refuses, and logs
// samples of them: a flood is told with its number, and does not fill the log.
type Refusals struct {
	listener string
	metrics  *Metrics
	logger   *slog.Logger
	samples  *sample.Sampler
}

// NewRefusals is for one listener, whose name is a label of metrics.
func NewRefusals(listener string, metrics *Metrics, logger *slog.Logger, now func() time.Time) (*Refusals, error) {
	if metrics == nil || logger == nil {
		return nil, errors.New("telemetry: no metrics or no logger for refusals: expected both")
	}
	samples, err := sample.New(sample.Config{Most: refusalLines}, sample.Deps{Now: now})
	if err != nil {
		return nil, err
	}
	for reason := range refused { // each at 0, so that the first refusal is a rate
		metrics.refusals.WithLabelValues(listener, reason)
	}
	return &Refusals{listener: listener, metrics: metrics, logger: logger, samples: samples}, nil
}

// refusedBy are the statuses that refuse a request, and their reasons.
var refusedBy = map[int]string{
	http.StatusUnauthorized:       "unauthenticated",
	http.StatusForbidden:          "forbidden",
	http.StatusTooManyRequests:    "rate_limited",
	http.StatusServiceUnavailable: "unavailable",
}

// Answered notes a request that was answered with a status that refuses it.
func (f *Refusals) Answered(r *http.Request, status int) {
	if reason, ok := refusedBy[status]; ok {
		f.note(r.Context(), r.RemoteAddr, reason, slog.Int("status", status), slog.String("method", r.Method), slog.String("path", r.URL.Path))
	}
}

// Handler is x for a listener without HTTP statuses: what it refuses is noted.
func (f *Refusals) Handler(x transport.Handler) transport.Handler { return refusing{x, f} }

type refusing struct {
	transport.Handler
	to *Refusals
}

func (r refusing) Limit(ctx context.Context, q transport.CallInfo) (limit.Pass, error) {
	pass, err := r.Handler.Limit(ctx, q)
	return pass, r.to.Failed(ctx, q.Agent, err)
}

func (r refusing) Admit(ctx context.Context, q transport.CallInfo) error {
	return r.to.Failed(ctx, q.Agent, r.Handler.Admit(ctx, q))
}

func (r refusing) Exchange(ctx context.Context, c transport.Call) (transport.Answer, error) {
	answer, err := r.Handler.Exchange(ctx, c)
	return answer, r.to.Failed(ctx, c.Agent, err)
}

func (r refusing) Describe(ctx context.Context, q transport.CallInfo) (*canonical.Description, error) {
	description, err := r.Handler.Describe(ctx, q)
	return description, r.to.Failed(ctx, q.Agent, err)
}

// Failed notes a failure that refuses a request, and returns it. Nil Refusals note nothing.
func (f *Refusals) Failed(ctx context.Context, agent string, err error) error {
	if err == nil || f == nil {
		return err
	}
	status := problem.From(err).Status
	if reason, ok := refusedBy[status]; ok {
		f.note(ctx, transport.AddressFrom(ctx), reason, slog.Int("status", status), slog.String("agent", agent))
	}
	return err
}

func (f *Refusals) note(ctx context.Context, remote, reason string, attrs ...slog.Attr) {
	f.metrics.refusals.WithLabelValues(f.listener, refused.label(reason)).Inc()
	counted, tell := f.samples.Note(sample.Key{Reason: reason})
	if !tell {
		return
	}
	f.logger.LogAttrs(ctx, slog.LevelInfo, "refused at the listener", append([]slog.Attr{
		slog.String("listener", f.listener), slog.String("reason", reason), slog.Uint64("count", counted.Count),
		slog.String("caller", string(transport.CallerFrom(ctx).ID)), slog.String("address", transport.Host(remote)),
	}, attrs...)...)
}

// ServerLog handles the log of the listener's server: net/http tells nothing but lines
// of text about handshakes that fail.
func (f *Refusals) ServerLog() slog.Handler { return serverLog{f.logger.Handler(), f} }

type serverLog struct {
	slog.Handler
	to *Refusals
}

const handshakeFailed = "http: TLS handshake error from "

// Enabled is slog.Handler's: handshakes count at every level.
func (serverLog) Enabled(context.Context, slog.Level) bool { return true }

// Handle is slog.Handler's.
func (s serverLog) Handle(ctx context.Context, r slog.Record) error {
	about, ok := strings.CutPrefix(r.Message, handshakeFailed)
	if !ok {
		if s.Handler.Enabled(ctx, r.Level) {
			return s.Handler.Handle(ctx, r)
		}
		return nil
	}
	address, cause, _ := strings.Cut(about, ": ")
	s.to.note(ctx, address, handshakeReason(cause), slog.String("cause", cause))
	return nil
}

// Connection notes a connection that is refused before anything is asked on it: because
// there are too many, or because its TLS handshake failed. Nil Refusals note nothing.
func (f *Refusals) Connection(ctx context.Context, address string, err error) {
	if f == nil {
		return
	}
	reason := handshakeReason(err.Error())
	if _, ok := errors.AsType[*quota.ExceededError](err); ok {
		reason = refusedBy[http.StatusTooManyRequests]
	}
	f.note(ctx, address, reason, slog.String("cause", err.Error()))
}

// handshakes are parts of the texts of crypto/tls, which has no types for them.
var handshakes = []struct{ part, reason string }{
	{"unsupported versions", "tls_version"},
	{"protocol version not supported", "tls_version"},
	{"first record does not look like a TLS handshake", "tls_plain"},
	{"client sent an HTTP request to an HTTPS server", "tls_plain"},
	{"certificate", "tls_certificate"},
	{"identity: ", "tls_certificate"},
	{"x509", "tls_certificate"},
	{"EOF", "tls_closed"},
	{"connection reset", "tls_closed"},
	{"timeout", "tls_closed"},
	{"use of closed", "tls_closed"},
}

func handshakeReason(cause string) string {
	for _, h := range handshakes {
		if strings.Contains(cause, h.part) {
			return h.reason
		}
	}
	return "tls_other"
}
