// Package audit judges evidence as an auditor does: whether tokens hold and are all there, and whether
// messages are those that they are about. It is pure: signatures are verified by a [Verifier], and where
// tokens and messages come from is the business of others.
//
// What it finds are [Finding]s. No finding means that all that was given holds together. The absence
// of records that no other record needs cannot be found: an agent's own token at the end of a chain, say.
//
// Alternatives considered: to build on [dag.Check], which judges one workflow by the rules of the ECT
// draft. An auditor is given tokens of several workflows, tokens that do not verify, and messages.
package audit
