// Package policy is the permission layer: may this caller have this message
// carried to this agent, in these protocols, over this path?
//
// [Evaluate] is pure: everything that it judges is in the [Request], so every
// decision can be repeated from the evidence. It answers with a [Permit], the
// only value that lets a leg of the pipeline run (architecture section 4), or with
// a typed error: [Forbidden] says who, [Denied] says what, the errors of
// package ect say which evidence.
//
// Read policy.go for the order of questions, caller.go for who may call (R2),
// path.go for hops and loops (R1), permit.go for losses (R7), document.go for
// what a policy document or a source ECT narrows, under AEPB's names and CPAT's,
// security.go for the order of protection. The pipeline asks
// cheap questions first; the caller rules are the first of all, so that a
// stranger learns nothing else about an agent.
//
// Alternatives considered: a general policy engine with a language of its own
// (AEPB has three constraints and CPAT the same three; a language would be
// more to audit than the rules); a chain of pluggable checks (the order is a
// security property, and a chain hides it).
package policy
