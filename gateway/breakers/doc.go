// Package breakers holds a circuit breaker for each agent, peer gateway and host of webhooks
// that the gateway sends to (ATD, Circuit Breaker Pattern; rulings R21). [Set.Stage] is a stage
// of the sender chain: it refuses what an open breaker does not let through, and counts how
// calls end. What a reply says is known when it was read: [Set.Report] is told so then.
//
// breakers.go is the set and its stage, destination.go one breaker with its lock, outcome.go
// what counts as a failure and whose, shared.go the lease of the one probe that all replicas
// have together, watch.go what operators see.
//
// What an agent says of itself opens nothing and closes nothing: an agent that can say what it
// is may fail at its work. Where that question is the first to come after a cool-down, the next
// message is the probe.
//
// # Weapons
//
// A breaker that one caller can open keeps all others out. So a refusal that an agent means
// counts as an answer, and what a caller may have caused (a timeout, a broken connection, a
// status, a bad reply) counts only if another caller met it too in the window, or no other
// caller has had an answer for an hour. So two callers together can open the breaker of an agent
// that fails for both, and one caller that of an agent which nothing else has used for an hour.
// What a caller names without end (hosts of webhooks, documents) has a bounded number of
// breakers: closed ones give way.
//
// # Alternatives considered
//
// sony/gobreaker knows neither replicas nor evidence, and compares rates as floating point
// numbers. A breaker in each dialer is what the chain replaces.
package breakers
