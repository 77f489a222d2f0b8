// Package dag answers questions about the graph that parent claims form. It is
// pure: it verifies nothing, keeps nothing, and sees only what it is given or what a
// [Lookup] finds.
//
// # A whole workflow
//
// [Build] makes a [Graph] of all tokens of a workflow: which children each has, in which
// order they stand, and where a cycle is. [Check] judges it by the rules of the ECT draft,
// and [Judge] one token that has just come.
//
// # The way of a message
//
// The other question is about hops. The AEPB draft ("Multi-Hop
// Translation") has a receiver count the translations in the ancestry of a
// message. Read by the letter that also counts the way back, and every earlier
// turn of a conversation: a third question through one gateway would look like a
// loop. [LegPath] therefore follows only the way that this message
// took: from its token along par, as long as the tokens are translations of the
// same leg. [Ancestry] counts by the letter, for operators who want that.
//
// A walk ends, whatever the graph: every node is looked at once, and a bound
// stops it. A walk that was stopped, or that met an unknown parent, sets
// [Path.Incomplete]; code that counts must take that for "too many".
//
// # Alternatives considered
//
// Counting along the longest branch instead of counting nodes would be kinder
// to a message with several sources, and would miss a gateway that fans out on
// purpose. Recognising a gateway by aepb.gateway_id would trust a text that
// anybody can write; the verified issuer is judged instead.
package dag
