// Package outbound is the one way in which the gateway sends (architecture section 5, step
// 12): messages to agents and to other gateways, questions to agents who they are, changes
// to webhooks, decisions to those who wait for them. A [Sender] is a chain: stages around
// what dials. What holds for all that leaves, a breaker for each destination for example, is
// one more [Stage].
//
// chain.go is calls, senders and stages, network.go what dials, describe.go what stands for
// those that ask agents who they are, metrics.go the stage that measures, and deadline.go
// the one that limits how long an answer may take.
//
// # Alternatives considered
//
// A field for each kind of dialer in the gateway is what this replaces: each place that sent
// chose one and measured by itself. Middleware of net/http would hold for HTTP alone.
package outbound
