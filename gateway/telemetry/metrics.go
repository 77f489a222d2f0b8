package telemetry

import (
	"errors"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/policy"
	"github.com/aepb/aepb-gateway/policy/limit"
	"github.com/aepb/aepb-gateway/translators/canonical"
)

const namespace = "aepb"

// Stage is a part of the road whose time is measured.
type Stage string

// The stages. StageTotal is the whole exchange, StageSend included, which is the
// agent's own time and the way there and back.
const (
	StageSend  Stage = "send"
	StageTotal Stage = "total"
)

// Deps is what Metrics need.
type Deps struct {
	Bindings []canonical.Binding // the protocols spoken here; others are "other"
	// Backend is what keeps the state, and BackendUp tells whether it can now.
	// Empty: nothing is told of it.
	Backend   string
	BackendUp func() bool
	// Filled is the part of its bounds that each kind of state takes, by kinds that
	// are always the same. Nil: nothing is told of it.
	Filled func() map[string]float64
	// Ignored counts what the backend gave that no replica had written. Nil: nothing
	// is told of it.
	Ignored func() uint64
}

// Metrics is every metric of one gateway, on a registry of its own. It is safe
// for concurrent use.
type Metrics struct {
	registry *prometheus.Registry
	bindings set
	agents   *firstSeen

	translations *prometheus.CounterVec
	duration     *prometheus.HistogramVec
	losses       *prometheus.CounterVec
	verified     *prometheus.CounterVec
	issued       *prometheus.CounterVec
	often        often
	kept         *prometheus.CounterVec
	limited      *prometheus.CounterVec
	denied       *prometheus.CounterVec
	inflight     prometheus.Gauge
	upstream     *prometheus.HistogramVec
	reloads      *prometheus.CounterVec
	questions    *prometheus.CounterVec
	changes      *prometheus.CounterVec
}

// New registers every metric.
func New(deps Deps) (*Metrics, error) {
	if len(deps.Bindings) == 0 {
		return nil, errors.New("telemetry: a gateway speaks some protocol")
	}
	m := &Metrics{registry: prometheus.NewRegistry(), bindings: set{}, agents: newFirstSeen(maxAgents)}
	for _, b := range deps.Bindings {
		m.bindings[string(b)] = true
	}
	m.define()
	m.remember()
	for _, c := range []prometheus.Collector{
		m.translations, m.duration, m.losses, m.verified, m.issued, m.kept, m.limited, m.denied, m.inflight, m.upstream, m.reloads, m.questions, m.changes,
		collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
		collectors.NewBuildInfoCollector(),
	} {
		if err := m.registry.Register(c); err != nil {
			return nil, err
		}
	}
	if deps.Filled != nil {
		if err := m.registry.Register(newFilled(deps.Filled)); err != nil {
			return nil, err
		}
	}
	if deps.Ignored != nil {
		if err := m.registry.Register(ignored(deps)); err != nil {
			return nil, err
		}
	}
	if deps.Backend == "" {
		return m, nil
	}
	return m, m.registry.Register(backendUp(deps))
}

// backendUp is asked when somebody looks.
func backendUp(deps Deps) prometheus.Collector {
	return prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Namespace: namespace, Name: "state_backend_up", Help: "1 while what keeps the state can be used.",
		ConstLabels: prometheus.Labels{"backend": deps.Backend},
	}, func() float64 {
		if deps.BackendUp() {
			return 1
		}
		return 0
	})
}

// ignored tells at every look what was not believed.
func ignored(deps Deps) prometheus.Collector {
	return prometheus.NewCounterFunc(prometheus.CounterOpts{
		Namespace: namespace, Name: "state_ignored_total",
		Help:        "Evidence that the backend gave and that was not believed: its authentication code is not that of a replica.",
		ConstLabels: prometheus.Labels{"backend": deps.Backend},
	}, func() float64 { return float64(deps.Ignored()) })
}

// filled tells how full each kind of state is, at every look.
type filled struct {
	ratio *prometheus.Desc
	look  func() map[string]float64
}

func newFilled(look func() map[string]float64) filled {
	return filled{prometheus.NewDesc(namespace+"_state_usage_ratio",
		"Part of its bounds that a kind of state takes, of the number or of the bytes. lasting_entries are those that cannot be dropped before their end: at 0.75 new tasks are refused. With Redis: memory, of maxmemory.",
		[]string{"kind"}, nil), look}
}

func (f filled) Describe(out chan<- *prometheus.Desc) { out <- f.ratio }

func (f filled) Collect(out chan<- prometheus.Metric) {
	for kind, ratio := range f.look() {
		if m, err := prometheus.NewConstMetric(f.ratio, prometheus.GaugeValue, ratio, kind); err == nil {
			out <- m
		}
	}
}

// often is the way to what every exchange counts.
type often struct {
	translations series[prometheus.Counter]
	duration     series[prometheus.Observer]
	losses       series[prometheus.Counter]
	verified     series[prometheus.Counter]
	issued       series[prometheus.Counter]
	upstream     series[prometheus.Observer]
}

func (m *Metrics) remember() {
	m.often.translations.begin(m.translations, 3, func(l labels) labels { return labels{m.binding(l[0]), m.binding(l[1]), resultLabel(l[2])} })
	m.often.duration.begin(m.duration, 3, func(l labels) labels { return labels{m.binding(l[0]), m.binding(l[1]), stageLabel(Stage(l[2]))} })
	m.often.losses.begin(m.losses, 4, func(l labels) labels {
		return labels{m.binding(l[0]), m.binding(l[1]), lossLabel(l[2]), fateLabel(l[3])}
	})
	m.often.verified.begin(m.verified, 2, func(l labels) labels { return labels{l[0], verifyLabel(l[1])} })
	m.often.issued.begin(m.issued, 2, func(l labels) labels { return labels{actLabel(l[0]), l[1]} })
	m.often.upstream.begin(m.upstream, 2, func(l labels) labels { return labels{m.agents.label(l[0]), m.binding(l[1])} })
}

// define names every metric (contract section 3).
func (m *Metrics) define() {
	m.translations = counter("translations_total",
		"Exchanges, by how they ended: ok or the code of the problem.", "from", "to", "result")
	m.duration = histogram("translation_duration_seconds",
		"Time that an exchange took, by stage; total includes the agent's own time.",
		[]float64{.0001, .00025, .0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 10, 60}, "from", "to", "stage")
	m.losses = counter("translation_losses_total",
		"Things that a translation could not say natively.", "from", "to", "code", "fate")
	m.verified = counter("ects_verified_total",
		"Execution context tokens that were checked, by outcome.", "level", "result")
	m.issued = counter("ects_issued_total",
		"Execution context tokens that were signed.", "act", "level")
	m.kept = counter("ects_by_reference_total",
		"Messages whose own token did not travel with them: the peer's form has no place for it (bare), or the frame no room (full).", "protocol", "reason")
	m.limited = counter("rate_limited_total",
		"Requests refused by the limit per source, and by the share of what one caller may hold at a time (share).", "scope")
	m.denied = counter("policy_denied_total",
		"Requests refused by policy, by constraint.", "constraint")
	m.inflight = prometheus.NewGauge(prometheus.GaugeOpts{
		Namespace: namespace, Name: "inflight", Help: "Exchanges that are under way.",
	})
	m.upstream = histogram("upstream_request_duration_seconds",
		"Time until an agent had answered, or failed to.",
		[]float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60}, "agent", "protocol")
	m.changes = counter("description_changes_total",
		"Times that an agent described itself otherwise than before.", "agent")
	m.questions = counter("gateway_queries_total",
		"Questions to other gateways, whether they translate a pair: served, unserved or failed.", "result")
	m.reloads = counter("config_reloads_total",
		"Times that a changed configuration was read, by outcome: applied, or refused with the old one left in force.", "result")
}

func counter(name, help string, labels ...string) *prometheus.CounterVec {
	return prometheus.NewCounterVec(prometheus.CounterOpts{Namespace: namespace, Name: name, Help: help}, labels)
}

func histogram(name, help string, buckets []float64, labels ...string) *prometheus.HistogramVec {
	return prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Namespace: namespace, Name: name, Help: help, Buckets: buckets,
	}, labels)
}

// Handler serves the metrics in the Prometheus formats.
func (m *Metrics) Handler() http.Handler {
	return promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{
		Registry: m.registry, MaxRequestsInFlight: 4, EnableOpenMetrics: true,
	})
}

// Enter counts an exchange as under way until the function it returns is called.
func (m *Metrics) Enter() (leave func()) {
	m.inflight.Inc()
	return m.inflight.Dec
}

// Translated counts an exchange that ended. result is "ok" or the code of a problem.
func (m *Metrics) Translated(from, to, result string, took time.Duration) {
	m.often.translations.of(labels{from, to, result}).Inc()
	m.Took(from, to, StageTotal, took)
}

// Took notes how long a stage of an exchange took.
func (m *Metrics) Took(from, to string, stage Stage, took time.Duration) {
	m.often.duration.of(labels{from, to, string(stage)}).Observe(took.Seconds())
}

// Lost counts one loss of a translation.
func (m *Metrics) Lost(from, to, code, fate string) {
	m.often.losses.of(labels{from, to, code, fate}).Inc()
}

// Verified counts a token that was checked. result is "ok", "refused" or what
// [VerifyResult] makes of an error. A level of 0 is unknown.
func (m *Metrics) Verified(level ect.Level, result string) {
	m.often.verified.of(labels{levelLabel(level), result}).Inc()
}

// Issued counts a token that was signed.
func (m *Metrics) Issued(act string, level ect.Level) {
	m.often.issued.of(labels{act, levelLabel(level)}).Inc()
}

// ByReference counts a message whose own token did not travel with it: bare or full.
func (m *Metrics) ByReference(protocol, reason string) {
	m.kept.WithLabelValues(m.binding(protocol), keptLabel(reason)).Inc()
}

// RateLimited counts a request that the limit per source refused, or a share.
func (m *Metrics) RateLimited(scope limit.Scope) {
	m.limited.WithLabelValues(scopeLabel(scope)).Inc()
}

// Denied counts a request that policy refused.
func (m *Metrics) Denied(constraint policy.Constraint) {
	m.denied.WithLabelValues(constraintLabel(constraint)).Inc()
}

// Upstream notes how long an agent took.
func (m *Metrics) Upstream(agent, protocol string, took time.Duration) {
	m.often.upstream.of(labels{agent, protocol}).Observe(took.Seconds())
}

// DescriptionChanged counts an agent that described itself otherwise than before (R9).
func (m *Metrics) DescriptionChanged(agent string) {
	m.changes.WithLabelValues(m.agents.label(agent)).Inc()
}

func (m *Metrics) binding(id string) string { return m.bindings.label(id) }

// Asked counts a question to another gateway: served, unserved or failed.
func (m *Metrics) Asked(result string) { m.questions.WithLabelValues(queries.label(result)).Inc() }

// Reloaded counts a configuration that was read again while running.
func (m *Metrics) Reloaded(applied bool) {
	result := "refused"
	if applied {
		result = "applied"
	}
	m.reloads.WithLabelValues(result).Inc()
}
