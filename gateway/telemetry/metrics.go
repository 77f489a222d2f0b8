package telemetry

import (
	"errors"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/gateway/problem"
	"github.com/aepb/aepb-gateway/policy"
	"github.com/aepb/aepb-gateway/policy/limit"
	"github.com/aepb/aepb-gateway/translators/canonical"
)

// Stage is a part of the pipeline whose time is measured.
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
	// Version and Commit are what runs. An empty version: nothing is told of it.
	Version, Commit string
	// Backend is what keeps the state, and BackendUp tells whether it can now.
	// Empty: nothing is told of it.
	Backend   string
	BackendUp func() bool
	// Evicted counts the execution context tokens that left before their end, by scopes
	// that are always the same. Nil: nothing is told of it.
	Evicted func() map[string]float64
	// Connections is how many are open at the public listeners, by kinds that are
	// always the same. Nil: nothing is told of it.
	Connections func() map[string]float64
	// Refused counts the uses of tokens that could not be remembered. Nil: there is no bound.
	Refused func() uint64
	// Ignored counts what the backend gave that no replica had written. Nil: nothing
	// is told of it.
	Ignored func() uint64
	// Identity is how long the identity holds. Nil: nothing is told of it.
	Identity *Identity
}

// Metrics is every metric of one gateway, on a registry of its own. It is safe
// for concurrent use.
type Metrics struct {
	registry *prometheus.Registry
	defined  definitions
	bindings set
	agents   *firstSeen
	usage    usage

	exchangeMetrics
	tokenMetrics
	limited   *prometheus.CounterVec
	denied    *prometheus.CounterVec
	upstream  *prometheus.HistogramVec
	failures  *prometheus.CounterVec
	refusals  *prometheus.CounterVec
	reloads   reloads
	questions *prometheus.CounterVec
	changes   *prometheus.CounterVec
	standing  standing
}

// standing are the metrics of how agents and calls stand.
type standing struct {
	agents    Agents
	approvals Approvals
	undo      Undo
	consensus Consensus
}

// exchangeMetrics are those of exchanges and of their translation.
type exchangeMetrics struct {
	translations *prometheus.CounterVec
	duration     *prometheus.HistogramVec
	losses       *prometheus.CounterVec
	inflight     prometheus.Gauge
}

// tokenMetrics are those of execution context tokens.
type tokenMetrics struct {
	verified *prometheus.CounterVec
	issued   *prometheus.CounterVec
	stored   *prometheus.CounterVec
}

// New registers every metric.
func New(deps Deps) (*Metrics, error) {
	if len(deps.Bindings) == 0 {
		return nil, errors.New("telemetry: no protocols: expected those that the gateway speaks")
	}
	m := &Metrics{registry: prometheus.NewRegistry(), bindings: set{}, agents: &firstSeen{max: maxAgents}}
	for _, b := range deps.Bindings {
		m.bindings[string(b)] = true
	}
	m.define()
	all := append(m.atScrape(deps),
		m.translations, m.duration, m.losses, m.verified, m.issued, m.stored, m.limited, m.denied, m.inflight, m.upstream, m.failures, m.refusals, m.reloads.counted, m.reloads.last, m.reloads.waiting, m.questions, m.changes,
		collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
		collectors.NewBuildInfoCollector(),
	)
	for _, c := range append(all, m.standing.agents.state, m.standing.agents.transitions, m.standing.agents.escalations, m.standing.agents.lifecycles, m.standing.approvals.counted, m.standing.approvals.waiting, m.standing.approvals.oldest,
		m.standing.undo.made, m.standing.undo.stored, m.standing.undo.rollbacks, m.standing.undo.refused, m.standing.consensus.rounds, m.standing.consensus.duration, m.standing.consensus.anomalies,
		m.standing.agents.Waits.waiting, m.standing.agents.Waits.waited, m.standing.agents.Waits.refused) {
		if err := m.registry.Register(c); err != nil {
			return nil, err
		}
	}
	return m, nil
}

// atScrape defines what others know and are asked for at every scrape, as far as there
// are such others.
func (m *Metrics) atScrape(deps Deps) (all []prometheus.Collector) {
	if deps.Version != "" {
		info := m.defined.gauge("build_info",
			"Always 1; its labels say what runs.",
			"Compare it between replicas after a rollout. unknown is a build without version control.",
			prometheus.Labels{"version": deps.Version, "commit": deps.Commit})
		info.Set(1)
		all = append(all, info)
	}
	backend := prometheus.Labels{"backend": deps.Backend}
	if deps.Backend != "" {
		all = append(all, m.defined.gaugeFunc("state_backend_up",
			"1 if the state backend is available, else 0.",
			"At 0 the gateway is not ready and refuses work that it would have to remember: look at the disk of state.path, or at Redis.",
			backend, func() float64 {
				if deps.BackendUp() {
					return 1
				}
				return 0
			}))
	}
	all = append(all, m.defined.gauges("state_usage_bytes",
		"Memory that a kind takes of what has a bound, as check-config counts it: state, of it the entries by their kinds (entries_session: MCP sessions), requests, streams, bytes in_flight, background tasks and connections. Not with Redis what it keeps.",
		"The largest is the one to bound if the process needs too much memory, see limits.memory_mib.",
		"kind", m.usage.each(func(u Use) float64 { return u.Bytes })),
		m.defined.gauges("state_usage_ratio",
			"Part of its bounds that a kind takes, of the number or of the bytes, of identified callers or of others. lasting_entries are those that cannot be dropped before their end: at 0.75 new tasks are refused. With Redis: memory, of maxmemory.",
			"Alert above 0.7 for lasting_entries and for memory: raise state.records, state.records_mib or maxmemory; and for requests, streams, in_flight, background and replays: raise limits.memory_mib, or the limit itself. Other kinds drop their oldest, or one at rest, when they are full.",
			"kind", m.usage.each(func(u Use) float64 { return u.Ratio })))
	if deps.Evicted != nil {
		all = append(all, m.defined.counters("state_evicted_total",
			"Execution context tokens that left the store before their end because it was full: own, which this gateway signed, and others.",
			"Alert on own: GET /ects and rollback lack them. Raise state.evidence_mib, or maxmemory of Redis.",
			"scope", deps.Evicted))
	}
	if deps.Connections != nil {
		all = append(all, m.defined.gauges("connections",
			"Connections open at the public listeners over HTTP and gRPC: fresh, on which nothing was asked yet; stranger, whose caller has proved no identity; identified.",
			"fresh or stranger near a quarter of limits.connections is a flood: new ones take the place of idle ones, and callers with an identity do not notice. identified near limits.connections: raise it.",
			"kind", deps.Connections))
	}
	if deps.Refused != nil {
		all = append(all, m.defined.counterFunc("state_uses_refused_total",
			"Tokens, proofs and AINP messages refused (429) because their use could not be remembered: its issuer has its share, or all is full.",
			"state_usage_ratio of replays says how full it is. Below 0.75 one issuer has a quarter and asks for more: raise limits.memory_mib if it is a good one. Above, several do.",
			nil, func() float64 { return float64(deps.Refused()) }))
	}
	if deps.Ignored != nil {
		all = append(all, m.defined.counterFunc("state_ignored_total",
			"Values that the backend gave and that were not believed: no replica sealed or authenticated them.",
			"Alert on any: another program writes to the backend, or the replicas have different keys in state.key.",
			backend, func() float64 { return float64(deps.Ignored()) }))
	}
	if deps.Identity != nil {
		all = append(all, deps.Identity.collectors(&m.defined)...)
	}
	return all
}

// define names every metric that is counted here (README.md).
func (m *Metrics) define() {
	d := &m.defined
	m.translations = d.counter("translations_total",
		"Exchanges, by how they ended: ok or the code of the problem.",
		"Alert on the share of results that are neither ok nor the caller's fault: upstream_unreachable and bad_upstream_reply are the agent's, internal_error is ours and has a line in the log.",
		"from", "to", "result")
	m.duration = d.histogram("translation_duration_seconds",
		"Time that an exchange took, by stage; total includes the agent's own time.",
		"If total grows and send does not, the gateway itself is slow: look at its CPU and at Redis. If both grow, it is the agent.",
		[]float64{.0001, .00025, .0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 10, 60}, "from", "to", "stage")
	m.losses = d.counter("translation_losses_total",
		"Parts of messages dropped or moved to an extension by a translation.",
		"aepbctl losses CODE explains a code. A loss that changes what the message means is refused, unless policy.allow_losses names it.",
		"from", "to", "code", "fate")
	m.verified = d.counter("ects_verified_total",
		"Execution context tokens that were checked, by outcome.",
		"Expired and issued_in_future come of clocks that differ; unknown_key and key_not_trusted of a missing trust bundle or issuer; replay of a repeated message, or an attack.",
		"level", "result")
	m.issued = d.counter("ects_issued_total",
		"Execution context tokens that were signed.",
		"None while there are exchanges is a fault. Many of aepb:translate_error are refusals: see policy_denied_total and rate_limited_total.",
		"act", "level")
	m.stored = d.counter("ects_by_reference_total",
		"Messages whose own token did not travel with them: the peer's form has no place for it (bare), or the frame has no space (full).",
		"Nothing: such a token can be fetched at GET /ects/ID. The peer's operators should know it.",
		"protocol", "reason")
	m.limited = d.counter("rate_limited_total",
		"Requests refused by the limit per source, and by the share of what one caller may hold at a time (share).",
		"If the callers are good ones, raise limits.rate or limits.burst, and for share the limit that the detail of the refusal names.",
		"scope")
	m.denied = d.counter("policy_denied_total",
		"Requests refused by policy, by constraint.",
		"A sudden rise after a change of the configuration is a mistake in it; otherwise callers try what they are not allowed to.",
		"constraint")
	m.inflight = d.gauge("inflight",
		"Exchanges that are under way.",
		"If it grows without end, an agent hangs: see upstream_request_duration_seconds. Its bound is limits.requests and limits.streams.",
		nil)
	m.upstream = d.histogram("upstream_request_duration_seconds",
		"Time until an agent had answered, or failed to.",
		"Alert per agent. An agent that is near its timeout (agents.NAME.timeout) will fail soon.",
		[]float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60}, "agent", "protocol")
	m.failures = d.counter("upstream_failures_total",
		"Exchanges that failed because their agent did: dns, refused, reset, tls_version, tls_ca, tls_name, spiffe_id, timeout, http_status, bad_reply, too_large or other.",
		"Look at the reason: dns and refused are the address or an agent that is down, tls_* and spiffe_id its certificate or its id in agents.NAME.id, the others its answer. The log line of the exchange has the error.",
		"agent", "reason")
	m.refusals = d.counter("refused_total",
		"Requests that a listener (public, admin, grpc, or of another protocol) refused with 401 (unauthenticated), 403 (forbidden), 429 (rate_limited) or 503 (unavailable), and TLS handshakes that failed there: tls_version, tls_certificate, tls_plain, tls_closed or tls_other.",
		"Look for refused in the log: samples have the path, the caller and the address, or the cause of a handshake. Many of tls_certificate after a renewal: callers trust or use an older authority.",
		"listener", "reason")
	m.changes = d.counter("description_changes_total",
		"Changes of the description that an agent gives of itself.",
		"For a pinned agent look at what has changed, and accept it: aepbctl agents show, aepbctl agents accept.",
		"agent")
	m.standing = standing{defineAgents(d, m.agents), defineApprovals(d), defineUndo(d), defineConsensus(d)}
	m.questions = d.counter("gateway_queries_total",
		"Questions to other gateways, whether they translate a pair: served, unserved or failed.",
		"Failed: the other gateway cannot be reached, or does not know our certificate. See peers.ID.gateway.",
		"result")
	m.reloads.counted = d.counter("config_reloads_total",
		"Times that a changed configuration was read, by outcome: applied, or refused with the old one left in force.",
		"Many of applied: something changes the file, or a file that it names, all the time.",
		"result")
	m.reloads.last = d.gauge("config_last_reload_successful",
		"1 if the configuration is that of the file as it was last read, 0 if that was refused and the old one is left in force.",
		"Alert on 0: the log says why, and check-config where.", nil)
	m.reloads.last.Set(1)
	m.reloads.waiting = d.gauge("config_keys_waiting_for_restart",
		"Keys whose value in the file, as it was last read, is another than the one in force, and that only a restart changes.",
		"Restart the gateway when it suits, or take the change back: the log and aepbctl doctor --config FILE name the keys.", nil)
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
	m.translations.WithLabelValues(m.bindings.label(from), m.bindings.label(to), results.label(result)).Inc()
	m.Took(from, to, StageTotal, took)
}

// Took notes how long a stage of an exchange took.
func (m *Metrics) Took(from, to string, stage Stage, took time.Duration) {
	m.duration.WithLabelValues(m.bindings.label(from), m.bindings.label(to), stages.label(string(stage))).Observe(took.Seconds())
}

// CountLoss counts one loss of a translation.
func (m *Metrics) CountLoss(from, to, code, fate string) {
	m.losses.WithLabelValues(m.bindings.label(from), m.bindings.label(to), lossLabel(code), fates.label(fate)).Inc()
}

// Verified counts a token that was checked. result is "ok", "refused" or what
// [VerifyResult] makes of an error. A level of 0 is unknown.
func (m *Metrics) Verified(level ect.Level, result string) {
	m.verified.WithLabelValues(levelLabel(level), reasons.label(result)).Inc()
}

// Issued counts a token that was signed.
func (m *Metrics) Issued(act string, level ect.Level) {
	m.issued.WithLabelValues(acts.label(act), levelLabel(level)).Inc()
}

// ByReference counts a message whose own token did not travel with it: bare or full.
func (m *Metrics) ByReference(protocol, reason string) {
	m.stored.WithLabelValues(m.bindings.label(protocol), kinds.label(reason)).Inc()
}

// RateLimited counts a request that the limit per source refused, or a share.
func (m *Metrics) RateLimited(scope limit.Scope) {
	m.limited.WithLabelValues(scopes.label(string(scope))).Inc()
}

// Denied counts a request that policy refused.
func (m *Metrics) Denied(constraint policy.Constraint) {
	m.denied.WithLabelValues(rules.label(string(constraint))).Inc()
}

// Sent notes how long an agent took to answer a caller of a protocol.
func (m *Metrics) Sent(agent, from, to string, took time.Duration) {
	m.Upstream(agent, to, took)
	m.Took(from, to, StageSend, took)
}

// Upstream notes how long an agent took.
func (m *Metrics) Upstream(agent, protocol string, took time.Duration) {
	m.upstream.WithLabelValues(m.agents.label(agent), m.bindings.label(protocol)).Observe(took.Seconds())
}

// UpstreamFailed counts an exchange that failed because its agent did.
func (m *Metrics) UpstreamFailed(agent string, reason problem.Reason) {
	m.failures.WithLabelValues(m.agents.label(agent), faults.label(string(reason))).Inc()
}

// DescriptionChanged counts an agent that described itself otherwise than before (R9).
func (m *Metrics) DescriptionChanged(agent string) {
	m.changes.WithLabelValues(m.agents.label(agent)).Inc()
}

// Queried counts a question to another gateway: served, unserved or failed.
func (m *Metrics) Queried(result string) { m.questions.WithLabelValues(queries.label(result)).Inc() }

// reloads are the configurations that were read again while running.
type reloads struct {
	counted *prometheus.CounterVec
	last    prometheus.Gauge // 1: applied
	waiting prometheus.Gauge // keys
}

// Reloaded counts a configuration that was read again while running.
func (m *Metrics) Reloaded(applied bool) {
	result, successful := "refused", 0.0
	if applied {
		result, successful = "applied", 1
	}
	m.reloads.counted.WithLabelValues(result).Inc()
	m.reloads.last.Set(successful)
}

// WaitForRestart notes how many changed keys take a restart.
func (m *Metrics) WaitForRestart(keys int) { m.reloads.waiting.Set(float64(keys)) }
