// Package telemetry is what operators see: every metric of the gateway, with what
// it means and what to do about it, in one file (metrics.go), and the set-up of the
// log (log.go). README.md is the reference for operators, made of metrics.go.
//
// Metric names and labels are a promise (README.md). No label takes a
// value that an outsider can invent: labels.go maps everything that is not on a
// list to "other". Methods take the types of the lower layers where there are any,
// so that a label cannot be mixed up.
//
// Logs are JSON lines. Whatever is logged, an attribute stays short and bytes
// are counted, not shown: a message body or a token that slips into a log call
// does not slip into the log.
//
// Alternatives considered: the global Prometheus registry (two gateways in one
// process, as in tests, would collide, and any import could add series); a
// metrics interface per layer (layers return values, the pipeline counts them).
package telemetry
