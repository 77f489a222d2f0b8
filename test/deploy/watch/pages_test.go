package watch

import (
	"strings"

	"github.com/prometheus/prometheus/model/labels"
)

// page is a dashboard as it is written here.
type page struct {
	title, about string
	perAgent     bool // it has the variable agent
	panels       []panel
}

// panel is one of its panels.
type panel struct {
	title, about, unit string
	stat               bool // one number, and not a graph
	queries            []query
}

type query struct{ expr, legend string }

func jobMatcher(m *labels.Matcher) bool {
	return m.Name == "job" && m.Type == labels.MatchRegexp && m.Value == "$job"
}

// of is a selector in an expression: of the chosen jobs, and with more matchers.
func of(metric string, more ...string) string {
	return metric + "{" + strings.Join(append([]string{`job=~"$job"`}, more...), ", ") + "}"
}

// rate is the sum of the rates by the labels.
func rate(by, metric string, more ...string) string {
	return "sum by (" + by + ") (rate(" + of(metric, more...) + "[$__rate_interval]))"
}

func quantile(q, metric string, more ...string) string {
	return "histogram_quantile(" + q + ", " + rate("le", metric+"_bucket", more...) + ")"
}

// quantiles are p50, p95 and p99 of a histogram, less those of another one if it is named.
func quantiles(metric, with, without string) (out []query) {
	for _, q := range []struct{ of, name string }{{"0.5", "p50"}, {"0.95", "p95"}, {"0.99", "p99"}} {
		expr := quantile(q.of, metric, with)
		if without != "" {
			expr = "clamp_min(" + expr + " - " + quantile(q.of, metric, without) + ", 0)"
		}
		out = append(out, query{expr, q.name})
	}
	return out
}

func one(expr, legend string) []query { return []query{{expr, legend}} }

const (
	total      = `stage="total"`
	send       = `stage="send"`
	ofAgent    = `agent=~"$agent"`
	duration   = "aepb_translation_duration_seconds"
	upstream   = "aepb_upstream_request_duration_seconds"
	pair       = "{{from}} to {{to}}"
	perSecond  = "reqps"
	eventsRate = "ops"
	share      = "percentunit"
)

var failed = rate("agent", "aepb_upstream_failures_total", ofAgent)

// pages are the dashboards, by the names of their files.
var pages = map[string]page{
	"overview": {
		title: "AEPB gateway / overview", about: "Traffic, failures and latency of all replicas.",
		panels: []panel{
			{"Replicas", "Gateways that are scraped.", "short", true, one("count("+of("aepb_build_info")+")", "replicas")},
			{"Exchanges", "Exchanges that ended in a second.", perSecond, true, one("sum(rate("+of("aepb_translations_total")+"[$__rate_interval]))", "exchanges")},
			{"Under way", "Exchanges that have not ended.", "short", true, one("sum("+of("aepb_inflight")+")", "under way")},
			{"Identity ends in", "Time until the first SVID, bundle or public certificate in force ends.", "s", true, one("min(("+of("aepb_identity_expiry_timestamp_seconds")+" > 0) - time())", "left")},
			{"Traffic by pair", "Exchanges from the caller's protocol to the agent's.", perSecond, false, one(rate("from, to", "aepb_translations_total"), pair)},
			{"Failed by pair", "Share of exchanges that failed and not by the caller's fault, as AepbHighErrorRatio sees it.", share, false, one("max by (from, to) ("+of("job:aepb_failed:ratio5m")+")", pair)},
			{"Errors and refusals by code", "Exchanges that did not end with ok. upstream_unreachable and bad_upstream_reply are the agent's, internal_error and unavailable are the gateway's.", perSecond, false, one(rate("result", "aepb_translations_total", `result!="ok"`), "{{result}}")},
			{"Own time, mean by pair", "Time of an exchange beyond the time until its agent answers, as AepbOwnLatencyHigh sees it. Streams count until they end.", "s", false, one("max by (from, to) ("+of("job:aepb_own_seconds:mean5m")+")", pair)},
			{"Own time, estimated quantiles", "Quantiles of the whole time less those of the agent's. Streams count until they end.", "s", false, quantiles(duration, total, send)},
			{"Whole time, quantiles", "Time of an exchange with the agent's share.", "s", false, quantiles(duration, total, "")},
			{"Requests and handshakes refused", "What a listener refused before or instead of an exchange.", perSecond, false, one(rate("listener, reason", "aepb_refused_total")+" > 0", "{{listener}}: {{reason}}")},
			{"Builds", "Replicas by what they run.", "short", false, one("count by (version, commit) ("+of("aepb_build_info")+")", "{{version}} {{commit}}")},
		},
	},
	"losses": {
		title: "AEPB gateway / losses and refusals", about: "What translations lose, and what is refused and why.",
		panels: []panel{
			{"Losses by code", "Parts of messages that the other protocol cannot say. aepbctl losses CODE explains a code.", eventsRate, false, one(rate("code", "aepb_translation_losses_total"), "{{code}}")},
			{"Losses by fate", "carried: in an extension of the message, dropped: gone.", eventsRate, false, one(rate("fate", "aepb_translation_losses_total"), "{{fate}}")},
			{"Losses by pair", "Losses from the one protocol to the other.", eventsRate, false, one(rate("from, to", "aepb_translation_losses_total"), pair)},
			{"Refused for a loss, by pair", "Exchanges refused because the loss would change what the message means; policy.allow_losses allows a code.", perSecond, false, one(rate("from, to", "aepb_translations_total", `result="semantic_loss"`), pair)},
			{"Refused by policy", "Requests refused, by constraint. A sudden rise after a change of the configuration is a mistake in it.", perSecond, false, one(rate("constraint", "aepb_policy_denied_total"), "{{constraint}}")},
			{"Rate limited", "Requests refused by a rate, or by the share of one caller (share).", perSecond, false, one(rate("scope", "aepb_rate_limited_total"), "{{scope}}")},
			{"Refused by listener", "Requests and TLS handshakes that a listener refused.", perSecond, false, one(rate("listener, reason", "aepb_refused_total")+" > 0", "{{listener}}: {{reason}}")},
			{"Tokens verified, by result", "Execution context tokens by outcome. repeated is harmless: the same message came again.", eventsRate, false, one(rate("result", "aepb_ects_verified_total"), "{{result}}")},
			{"Tokens signed, by act", "Execution context tokens that the gateway signed. None while there are exchanges is a fault.", eventsRate, false, one(rate("act", "aepb_ects_issued_total"), "{{act}}")},
			{"Tokens by reference", "Messages whose own token did not travel with them; it is at GET /ects/ID.", eventsRate, false, one(rate("protocol, reason", "aepb_ects_by_reference_total"), "{{protocol}}: {{reason}}")},
			{"Questions to other gateways", "Whether they translate a pair. failed: the other gateway cannot be reached.", eventsRate, false, one(rate("result", "aepb_gateway_queries_total"), "{{result}}")},
		},
	},
	"state": {
		title: "AEPB gateway / state and process", about: "What state, connections and the process take.",
		panels: []panel{
			{"Use of bounds", "The fullest replica. Above 0.7 of lasting_entries, memory, requests, streams, in_flight, background or replays: AepbStateNearlyFull. Other kinds drop their oldest.", share, false, one("max by (kind) ("+of("aepb_state_usage_ratio")+")", "{{kind}}")},
			{"Bytes by kind", "The largest replica. Not with Redis what it keeps.", "bytes", false, one("max by (kind) ("+of("aepb_state_usage_bytes")+")", "{{kind}}")},
			{"Backend", "1: available, 0: the gateway refuses work that it would have to remember.", "short", false, one("min by (instance, backend) ("+of("aepb_state_backend_up")+")", "{{instance}}: {{backend}}")},
			{"Tokens evicted", "Execution context tokens that left the store before their end. Of own ones GET /ects and rollback have a gap.", eventsRate, false, one(rate("scope", "aepb_state_evicted_total"), "{{scope}}")},
			{"Uses refused and values ignored", "refused: a use could not be remembered. ignored: a value of the backend that no replica sealed.", eventsRate, false, []query{
				{"sum(rate(" + of("aepb_state_uses_refused_total") + "[$__rate_interval]))", "refused"},
				{"sum(rate(" + of("aepb_state_ignored_total") + "[$__rate_interval]))", "ignored"},
			}},
			{"Connections", "Open at the public listeners, of all replicas.", "short", false, one("sum by (kind) ("+of("aepb_connections")+")", "{{kind}}")},
			{"Exchanges under way", "Growth without end: an agent hangs.", "short", false, one("sum by (instance) ("+of("aepb_inflight")+")", "{{instance}}")},
			{"Resident memory", "Memory of the process.", "bytes", false, one(of("process_resident_memory_bytes"), "{{instance}}")},
			{"Heap in use", "Memory that Go uses.", "bytes", false, one(of("go_memstats_heap_inuse_bytes"), "{{instance}}")},
			{"CPU", "Cores that the process uses.", "short", false, one("rate("+of("process_cpu_seconds_total")+"[$__rate_interval])", "{{instance}}")},
			{"Goroutines", "Concurrent work in the process.", "short", false, one(of("go_goroutines"), "{{instance}}")},
			{"Open files", "Files and sockets of the process.", "short", false, one(of("process_open_fds"), "{{instance}}")},
			{"Identity ends in", "Time until the identity in force ends.", "s", false, one("min by (kind) (("+of("aepb_identity_expiry_timestamp_seconds")+" > 0) - time())", "{{kind}}")},
			{"Trust bundles end in", "Time until the last trust anchor of a trust domain ends.", "s", false, one("min by (trust_domain) (("+of("aepb_bundle_expiry_timestamp_seconds")+" > 0) - time())", "{{trust_domain}}")},
			{"Failures of the Workload API", "The SPIFFE Workload API could not be reached, refused, or gave an answer that will not do.", eventsRate, false, one("sum by (instance) (rate("+of("aepb_identity_watch_errors_total")+"[$__rate_interval]))", "{{instance}}")},
			{"Configurations read", "Since the start of the process, by outcome.", "short", false, one("sum by (instance, result) ("+of("aepb_config_reloads_total")+")", "{{instance}}: {{result}}")},
		},
	},
	"agent": {
		title: "AEPB gateway / agent", about: "One agent, as the gateway sees it.", perAgent: true,
		panels: []panel{
			{"Calls by protocol", "Calls on a connection to the agent.", perSecond, false, one(rate("protocol", upstream+"_count", ofAgent), "{{protocol}}")},
			{"Failures by reason", "dns and refused: its address, or it is down; tls_* and spiffe_id: its certificate; the others: its answer.", perSecond, false, one(rate("reason", "aepb_upstream_failures_total", ofAgent), "{{reason}}")},
			{"Failed share", "Failures of all calls, as AepbAgentFailing sees it.", share, false, one("clamp_max("+failed+" / ("+rate("agent", upstream+"_count", ofAgent)+" > 0 or "+failed+"), 1)", "{{agent}}")},
			{"Time until it answers", "Near agents.NAME.timeout it will fail soon.", "s", false, quantiles(upstream, ofAgent, "")},
			{"Breaker", "0 closed, 1 half open, 2 open: it is not called. No value: it never opened.", "short", false, one("max by (agent) ("+of("aepb_breaker_state", ofAgent)+")", "{{agent}}")},
			{"Changes of its breaker", "Many: it recovers and fails again.", eventsRate, false, one(rate("to", "aepb_breaker_transitions_total", ofAgent), "{{to}}")},
			{"Changes of its description", "Since the start of the process.", "short", false, one("sum by (instance) ("+of("aepb_description_changes_total", ofAgent)+")", "{{instance}}")},
			{"Calls for an operator, all agents", "Since the start of the process, by reason; the log line names the agent.", "short", false, one("sum by (reason) ("+of("aepb_breaker_escalations_total")+")", "{{reason}}")},
			{"Approvals that wait, all agents", "Calls about which humans decide, or that their callers have not sent again yet.", "short", false, one("max("+of("aepb_approvals_waiting")+")", "waiting")},
			{"Approvals by state, all agents", "expired: no human decided in time.", eventsRate, false, one(rate("state", "aepb_approvals_total"), "{{state}}")},
			{"Checkpoints, all agents", "irreversible: a rollback to them is left to a person; refused: a share is used up.", eventsRate, false, one(rate("kind", "aepb_checkpoints_total"), "{{kind}}")},
			{"Rollbacks, all agents", "Since the start of the process, by how they ended.", "short", false, one("sum by (status) ("+of("aepb_rollbacks_total")+")", "{{status}}")},
			{"Lifecycle, all agents", "Agents whose lifecycle was ever changed, by the state that they are in.", "short", false, one("max by (state) ("+of("aepb_lifecycle_state")+")", "{{state}}")},
		},
	},
}
