// Package membership decides who belongs to a workflow and who is party to a
// token. It is the only place that does: reading evidence, registering callbacks,
// rollbacks, decisions and the admission of every message ask it.
//
// Any workload can sign a token that names the workflow of others, so a token says
// nothing about its own issuer. What counts is what others recorded before
// (ruling R14):
//
//   - An identity belongs to a workflow if it issued the workflow's first root, or
//     if a token on record names it (aud, or aepb.caller in a token of a gateway)
//     and that token was signed by this gateway or by an identity that belonged.
//   - A root in a workflow that is on record is accepted only from the issuer of its
//     first root. The store decides that atomically.
//   - A token of an outsider is accepted only if one of its parents names its issuer
//     and was signed by a gateway or by an identity that belongs.
//   - An identity is party to a token if every parent, or an ancestor of it, names
//     that identity in a token that it did not issue, or if it issued the root there.
//
// Who belongs is written down with each record (ect.Filing), because the answer
// depends on what was on record at that moment.
//
// How to read it: register.go answers the questions of readers, admission.go judges
// the tokens of a message before anything is recorded, lineage.go walks from a
// signal to what it is about.
//
// Alternatives considered: deciding by a scan of the workflow at each question
// costs as much as the workflow is long, and cannot tell what came first after a
// record was evicted. Letting every token on record count, and refusing at the
// moment of recording only roots, leaves open a token with an invented parent.
package membership
