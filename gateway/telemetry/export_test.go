package telemetry

import "slices"

// Definitions are the metrics of this gateway in the order of the reference, without
// those of the Go runtime and of the process.
func (m *Metrics) Definitions() []Definition { return slices.Clone(m.defined) }
