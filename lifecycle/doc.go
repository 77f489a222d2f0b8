// Package lifecycle says how an agent lives and ends (AEPB, "Agent Lifecycle Management"): the
// four states, which of them follows which, what each lets through, the graceful end, and what
// a new version may change.
//
// It is pure: no clock, no context, no store. Times come with the [Order] and the call of
// [Record.Next], work under way with the latter. A [Record] is a value; each transition makes the next one, whose
// bytes a store swaps in under its term (R18), and returns a [Change] whose claims are to be
// signed. So every decision can be repeated from what is stored.
//
// Read lifecycle.go for the states and their table, record.go for the stored form, end.go for
// the graceful end, version.go for versions, claims.go for what is signed.
//
// Alternatives considered: a state machine that owns its record, its lock and its signer
// (replicas share the record, and a crash between any two steps has to resume with stored
// bytes, so the state must be a value); a library for state machines (sixteen cells are a table
// that fits on a screen); a timer in here that ends the 24 hours of notice (a clock per replica
// would decide; the operator's order carries the time instead, and is refused when too early);
// the steps of the graceful end as further states (the draft has four, and documents show them);
// golang.org/x/mod/semver (it takes short forms and a leading v, which the draft does not, and
// would be a dependency for thirty lines).
package lifecycle
