package telemetry

import (
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/aepb/aepb-gateway/policy/hitl"
)

var approvalStates = setOf(hitl.States()...)

// Approvals are the metrics of calls about which humans decide.
type Approvals struct {
	counted *prometheus.CounterVec
	waiting prometheus.Collector
	oldest  prometheus.Collector
	usage   *atomic.Pointer[func() (int, time.Duration)]
}

func defineApprovals(d *definitions) Approvals {
	a := Approvals{usage: &atomic.Pointer[func() (int, time.Duration)]{}}
	a.counted = d.counter("approvals_total",
		"Approvals of calls, each time that one came to a state: pending when it was asked for, granted, denied, expired, canceled, and consumed when its call was released.",
		"Many expired: no approver looks at them. aepbctl approvals list shows what waits.",
		"state")
	for state := range approvalStates { // so that the first of a kind is an increase
		a.counted.WithLabelValues(state)
	}
	a.waiting = d.gaugeFunc("approvals_waiting",
		"Approvals that are not over: their calls wait for humans, or for their callers to send them again.",
		"Grows: approvers are too few, or a rule matches too much.",
		nil, func() float64 { waiting, _ := a.used(); return float64(waiting) })
	a.oldest = d.gaugeFunc("approvals_oldest_seconds",
		"How long the oldest approval that is not over waits.",
		"Alert when it comes near the wait of your rules: then calls expire.",
		nil, func() float64 { _, oldest := a.used(); return oldest.Seconds() })
	return a
}

func (a Approvals) used() (waiting int, oldest time.Duration) {
	if f := a.usage.Load(); f != nil {
		return (*f)()
	}
	return 0, 0
}

// Uses has f asked at every scrape how many approvals wait, and how long the oldest does.
func (a Approvals) Uses(f func() (waiting int, oldest time.Duration)) { a.usage.Store(&f) }

// Changed counts an approval that came to a state.
func (a Approvals) Changed(state string) {
	a.counted.WithLabelValues(approvalStates.label(state)).Inc()
}

// Approvals are the metrics of calls about which humans decide.
func (m *Metrics) Approvals() Approvals { return m.standing.approvals }
