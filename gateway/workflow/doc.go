// Package workflow begins and completes workflows, and says how far they are (ATD, Execution Semantics; R26,
// R27).
//
// A workflow begins with an atd:workflow_start. A caller that signs tokens sends its own along with its first
// message, in whatever protocol; for others the gateway signs one, of which they are the audience. Either is
// one record, which all replicas decide alike. Only a workflow with a record gets what a start promises: a
// task waits until its parents are done, and failures leave an atd:error. Without a start messages pass as
// ever, and nothing is looked up for those without parents.
//
// The states themselves are not kept: they follow from the tokens of the workflow ([lifecycle/workflow]).
//
// # What its bounds are worth as a weapon
//
// To read a large workflow costs a tenth of a second. What was read is remembered, and a caller that has large
// workflows read one after the other rests in between, so that it takes a twentieth of a processor.
//
// A caller's starts count in its own share of the store. A member that fills its workflow with tokens makes
// the states of that workflow unknown ([workflow.TooLargeError]), and with them its tasks wait: it had to be
// let in for that, and hurts no other workflow. A start that came along with a message counts only if its
// issuer sent it and is the workflow's root issuer, so that no identity can declare the work of others to be
// a workflow.
//
// # Alternatives considered
//
// A flag in the evidence store: it has no swap, and two completions could be announced. States that are kept
// and updated with each token: they would have to be right at every replica at each moment.
package workflow
