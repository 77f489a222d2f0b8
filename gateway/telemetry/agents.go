package telemetry

import (
	"slices"

	"github.com/prometheus/client_golang/prometheus"
)

// circuitStates are those of a circuit breaker, by the value that shows them.
var circuitStates = []string{"closed", "half_open", "open"}

// Agents are the metrics of how agents stand: their circuit breakers, and their lifecycles.
type Agents struct {
	names       *firstSeen
	state       *prometheus.GaugeVec
	transitions *prometheus.CounterVec
	escalations *prometheus.CounterVec
	lifecycles  *prometheus.GaugeVec
}

func defineAgents(d *definitions, names *firstSeen) Agents {
	return Agents{
		names: names,
		state: d.gaugeVec("breaker_state",
			"The circuit breaker of an agent that has ever opened: 0 closed, 1 half open, 2 open.",
			"Alert on 2: the agent is not asked for. aepbctl breakers shows since when; upstream_failures_total says why.",
			"agent"),
		transitions: d.counter("breaker_transitions_total",
			"Times that the circuit breaker of an agent became open, half_open or closed.",
			"Many: the agent recovers and fails again.",
			"agent", "to"),
		escalations: d.counter("breaker_escalations_total",
			"Calls for a human: three probes of an agent in a row have failed (probes); within a minute breakers of three gateways have opened for one agent (coordinated), or breakers of three agents at this gateway (many_agents).",
			"Look after the agent, whose name the log line has; of many_agents, after this gateway.",
			"reason"),
		lifecycles: d.gaugeVec("lifecycle_state",
			"Agents, this gateway among them, whose lifecycle was ever changed, by the state that they are in now.",
			"Draining for long: work is under way at an agent that does not end. See aepbctl lifecycle show.",
			"state"),
	}
}

// Agents are the metrics of how agents stand.
func (m *Metrics) Agents() Agents { return m.standing.agents }

// BreakerChanged notes that the circuit breaker of an agent became closed, half_open or open.
func (a Agents) BreakerChanged(agent, to string) {
	agent = a.names.label(agent)
	a.state.WithLabelValues(agent).Set(float64(slices.Index(circuitStates, to)))
	a.transitions.WithLabelValues(agent, circuit.label(to)).Inc()
}

// BreakerEscalated counts a call for a human: probes, coordinated or many_agents.
func (a Agents) BreakerEscalated(reason string) {
	a.escalations.WithLabelValues(alarms.label(reason)).Inc()
}

// lifecycleStates are those in which agents can be.
var lifecycleStates = []string{"active", "deprecated", "draining", "retired"}

// Lifecycles notes how many agents are in each state.
func (a Agents) Lifecycles(states map[string]int) {
	for _, state := range lifecycleStates {
		a.lifecycles.WithLabelValues(state).Set(float64(states[state]))
	}
}
