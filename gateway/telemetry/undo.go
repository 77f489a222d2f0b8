package telemetry

import (
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"
)

// The statuses of rollbacks (ATD, Basic Rollback), and what is counted of checkpoints.
var (
	rollbackStatuses = setOf("completed", "partial", "escalated", "failed")
	madeCheckpoints  = setOf("reversible", "irreversible", "deposited", "refused")
)

// Undo are the metrics of checkpoints and rollbacks.
type Undo struct {
	made      *prometheus.CounterVec
	stored    prometheus.Collector
	rollbacks *prometheus.CounterVec
	refused   *prometheus.CounterVec
	usage     *atomic.Pointer[func() float64]
}

func defineUndo(d *definitions) Undo {
	u := Undo{usage: &atomic.Pointer[func() float64]{}}
	u.made = d.counter("checkpoints_total",
		"Checkpoints, by what came of them: reversible, irreversible, deposited by an agent, or refused because a share is used up. A call whose checkpoint is refused is not sent.",
		"Many irreversible: say in the configuration how those tools are undone. refused: a caller fills its share.",
		"kind")
	u.stored = d.gaugeFunc("checkpoints",
		"Blobs of the store of checkpoints: a checkpoint has one, and one more for the outcome of its call.",
		"Near the bound of the store new consequential calls are refused.",
		nil, func() float64 {
			if f := u.usage.Load(); f != nil {
				return (*f)()
			}
			return 0
		})
	u.rollbacks = d.counter("rollbacks_total",
		"Rollbacks that are over, by how they ended.",
		"failed and partial: the workflow is held, look at it with aepbctl workflow held.",
		"status")
	u.refused = d.counter("false_errors_total",
		"Errors (atd:error) that were refused because they are about no step of their workflow that their issuer has a part in.",
		"Grows: an agent reports errors that are not its business, by mistake or to have work undone.")
	u.refused.WithLabelValues()
	for kind := range madeCheckpoints { // so that the first of a kind is an increase
		u.made.WithLabelValues(kind)
	}
	for status := range rollbackStatuses {
		u.rollbacks.WithLabelValues(status)
	}
	return u
}

// Uses has f asked at every scrape how many blobs the store of checkpoints has.
func (u Undo) Uses(f func() float64) { u.usage.Store(&f) }

// Made counts a checkpoint.
func (u Undo) Made(kind string) { u.made.WithLabelValues(madeCheckpoints.label(kind)).Inc() }

// RolledBack counts a rollback that is over.
func (u Undo) RolledBack(status string) {
	u.rollbacks.WithLabelValues(rollbackStatuses.label(status)).Inc()
}

// FalseError counts an error that was refused.
func (u Undo) FalseError() { u.refused.WithLabelValues().Inc() }

// Undo are the metrics of checkpoints and rollbacks.
func (m *Metrics) Undo() Undo { return m.standing.undo }

// FalseError counts an error that was refused.
func (m *Metrics) FalseError() { m.standing.undo.FalseError() }
