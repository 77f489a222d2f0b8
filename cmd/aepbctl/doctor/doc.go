// Package doctor checks a gateway's whole set-up from an operator's side: configuration,
// certificates, both listeners, clocks, readiness, state, the machine, and each agent. Every
// check ends in a bounded time and gives a [Finding], which says what to do unless all is well.
//
// Run goes through the checks from the near to the far: what a failed check makes impossible is not
// tried. Findings hold texts of agents and gateways unchanged: a program that prints one to a
// terminal escapes it.
package doctor
