// Package breaker is the circuit breaker before one agent (ATD, Circuit Breaker
// Pattern): after too many failures it refuses calls at once, and after a cool-down it lets
// a single one through to find out.
//
// [Breaker] is an immutable value and a function of what it was given: times come from
// outside, and nothing here waits, logs or reads a clock. Its owner asks before a
// call ([Breaker.Ask]), reports how it ended ([Breaker.Report]), opens and closes it for
// what it counts itself ([Breaker.Open], [Breaker.Close]), and signs what a
// [Change] claims ([Change.Claims]). All who use one breaker use one [Config]: another
// window begins anew.
//
// Replicas of one gateway share what they find out (R21): each stores its [Shared] by
// compare-and-swap and adopts that of others. A replica whose swap fails drops the value
// that Ask or Report returned, and with it its verdict, its change and the token, and
// adopts what is stored into the value that it had: so there is one probe and one token
// for all. Samples of a window are not shared. The times of shared states are ordered
// even where clocks differ: a change is always later than what was adopted before it.
//
// [Openings] counts distinct breakers that opened, of several gateways for one agent or of
// several agents at one gateway, which is a matter for a human when there are several (ATD,
// Coordinated Circuit Breaking and ATD-to-HITL Escalation). [Breaker.Slow] then spares the agent
// the probes of each gateway.
//
// Read breaker.go for the states, window.go for the samples, shared.go for replicas,
// claims.go for evidence, openings.go for escalation.
//
// # Alternatives considered
//
// github.com/sony/gobreaker: it reads the clock, has one mutex and no value that can be
// compared and swapped, so replicas probe each for itself; its rate is a float of its
// caller; it counts in fixed intervals; and nothing tells of a change what evidence needs.
// Consecutive failures instead of a rate: the draft wants a rate. A list of all samples:
// exact to the nanosecond, but as large as the load; the tests keep one as the judge.
package breaker
