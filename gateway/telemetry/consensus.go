package telemetry

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/aepb/aepb-gateway/policy/consensus"
)

var (
	mechanisms = setOf(consensus.Mechanisms()...)
	outcomes   = setOf(consensus.Commit, consensus.Abort)
	anomalies  = setOf(append(consensus.AnomalyKinds(), consensus.AnomalyKind(consensus.Disputed), consensus.AnomalyKind(consensus.Refuses))...)
)

// Consensus are the metrics of rounds in which agents decide together.
type Consensus struct {
	rounds    *prometheus.CounterVec
	duration  *prometheus.HistogramVec
	anomalies *prometheus.CounterVec
}

func defineConsensus(d *definitions) Consensus {
	c := Consensus{}
	c.rounds = d.counter("consensus_rounds_total",
		"Consensus rounds that ended, by mechanism and outcome.",
		"Many abort: participants do not vote in time, or proposals compete. aepbctl consensus list shows them.",
		"mechanism", "outcome")
	c.duration = d.histogram("consensus_round_seconds",
		"Time from the opening of a consensus round to its outcome.",
		"Near the timeouts of the proposals: some participant never votes.",
		[]float64{.1, .5, 1, 5, 10, 30, 60, 300, 900, 3600, 21600, 86400}, "mechanism")
	c.anomalies = d.counter("consensus_anomalies_total",
		"Patterns in the votes of a round that may come of collusion (same_rationale, same_moment), and participants that do not accept an outcome (refuses) or have two of them (disputed).",
		"disputed: alert at once, and compare the two signed outcomes.",
		"kind")
	for mechanism := range mechanisms { // so that the first of a kind is an increase
		for outcome := range outcomes {
			c.rounds.WithLabelValues(mechanism, outcome)
		}
	}
	for kind := range anomalies {
		c.anomalies.WithLabelValues(kind)
	}
	return c
}

// Ended counts a round that ended.
func (c Consensus) Ended(mechanism, outcome string, took time.Duration) {
	c.rounds.WithLabelValues(mechanisms.label(mechanism), outcomes.label(outcome)).Inc()
	c.duration.WithLabelValues(mechanisms.label(mechanism)).Observe(took.Seconds())
}

// Anomaly counts a pattern of votes, or a participant that does not accept an outcome.
func (c Consensus) Anomaly(kind string) { c.anomalies.WithLabelValues(anomalies.label(kind)).Inc() }

// Consensus are the metrics of rounds in which agents decide together.
func (m *Metrics) Consensus() Consensus { return m.standing.consensus }
