// Package descriptor reads the plan of a workflow: the nodes that it is to have, what each of them is, and which must
// be done before which (ATD, Optional Declarative Workflow Format; R27).
//
// It is pure: [Parse] reads a text of the media type [MediaType], and refuses what it does not know: a node with a
// misspelled member would run without the gate that its author wrote down. Whether agents and operators are there is
// for the caller to check.
//
// Beside the members of the draft a node may have act, agent, required_role and severity; [Node] says what they mean.
//
// # Alternatives considered
//
// Unknown members that are left out, as JSON readers usually do: see above. One reader for the dag of a policy
// document as well: that one has other members, and ignores those of other name spaces.
package descriptor
