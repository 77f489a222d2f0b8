// Package breakers holds a circuit breaker for each agent, peer gateway and host of webhooks
// that the gateway sends to (ATD, Circuit Breaker Pattern; rulings R21). [Set.Stage] is a stage
// of the sender chain: it refuses what an open breaker does not let through, and counts how
// calls end. What a reply says is known when it was read: [Set.Report] is told so then.
//
// breakers.go is the set and its stage, destination.go one breaker with its lock, callers.go how
// the callers of one destination fare, outcome.go what counts as a failure and whose (README.md
// has the table), shared.go the lease of the one probe that all replicas have together, watch.go
// what operators see, coordinated.go what breakers of several gateways mean together (package peers
// reads those of the others).
//
// A change is recorded before the other replicas can see it, since who adopts a change records nothing.
//
// What an agent says of itself opens nothing and closes nothing: an agent that can say what it
// is may fail at its work. Where that question is the first to come after a cool-down, the next
// message is the probe.
//
// # Weapons
//
// A breaker that one caller can open keeps all others out. So failures count for who can have
// caused them. What no caller can cause (no connection, TLS, no answer to the gateway's own
// question what an agent is) are samples of the agent's breaker. All else counts for its caller,
// which is refused alone from five failures in a row on. Callers open the agent's breaker only if
// at least two fail, each of whom counts three failures at most, while no other has had an answer
// within the window, and those who fail are four times as many as others with an answer within
// the hour. Such a breaker lets each caller through that does not fail itself, one call at a
// time, and an answer closes it. A probe of a caller that fails anyway is no failed probe: it
// neither doubles the cool-down nor calls a human, its caller waits alone, and while it is under
// way a caller that has failed less gets through. Two callers can so open the breaker of an agent
// that no other uses, and keep no other out.
//
// How callers fare is known to one process, for 256 callers of each destination; the one that was
// there least recently gives way. What a caller names (hosts of webhooks, documents) has a breaker
// for each caller, 256 of one and 4096 of all; closed ones of the same caller give way.
//
// # Alternatives considered
//
// sony/gobreaker knows neither replicas nor evidence, and compares rates as floating point
// numbers. A breaker in each dialer is what the chain replaces.
package breakers
