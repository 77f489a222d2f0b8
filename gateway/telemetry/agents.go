package telemetry

import (
	"slices"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/aepb/aepb-gateway/lifecycle/schedule"
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

	Waits Waits // of calls for their agents
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
		Waits: defineWaits(d, names),
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

var (
	classes   = setOf(schedule.Classes()...)
	noPlaces  = setOf("queue", "caller", "exhausted")
	waitsUpTo = []float64{.001, .01, .1, .5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600}
)

// Waits are the metrics of calls that wait until their agent has a free place.
type Waits struct {
	names   *firstSeen
	waiting prometheus.Collector
	waited  *prometheus.HistogramVec
	refused *prometheus.CounterVec
	usage   *atomic.Pointer[func() map[string]float64]
}

func defineWaits(d *definitions, names *firstSeen) Waits {
	s := Waits{names: names, usage: &atomic.Pointer[func() map[string]float64]{}}
	s.waiting = d.gauges("schedule_waiting",
		"Calls that wait for a free place, by agent with a concurrency.",
		"Grows: the agent gets more calls than it can do. Raise agents.NAME.concurrency if it can do more at once.",
		"agent", func() map[string]float64 {
			if f := s.usage.Load(); f != nil {
				return (*f)()
			}
			return nil
		})
	s.waited = d.histogram("schedule_wait_seconds",
		"How long calls waited until their agent had a free place, by class: critical, high, normal or low. Only of agents with a concurrency.",
		"low near agents.NAME.longest_wait: the agent is always full.",
		waitsUpTo, "class")
	s.refused = d.counter("schedule_refused_total",
		"Calls that got no place at their agent: queue (too many wait), caller (too many of this caller wait) or exhausted (critical, and waited for 60 s).",
		"Alert on exhausted. caller: one caller alone sends too much.",
		"agent", "reason")
	return s
}

// Uses has f asked at every scrape how many calls wait, by agent.
func (s Waits) Uses(f func() map[string]float64) { s.usage.Store(&f) }

// Waited counts a call that got a place.
func (s Waits) Waited(class string, d time.Duration) {
	s.waited.WithLabelValues(classes.label(class)).Observe(d.Seconds())
}

// NoPlace counts a call that got none: queue, caller or exhausted.
func (s Waits) NoPlace(agent, reason string) {
	s.refused.WithLabelValues(s.names.label(agent), noPlaces.label(reason)).Inc()
}
