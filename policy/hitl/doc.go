// Package hitl decides which calls wait for humans, and what becomes of those that do (R23).
//
// It is pure: it reads no clock, and every value is immutable. [Rules] say what a call
// demands, an [Approval] is one call that waits, a [Standing] is the level of a workflow,
// and [Show] writes the text that an approver decides about.
//
// What a rule cannot judge with certainty, such as arguments that cannot be read, counts as
// a match: a human sees one call more, and none passes unseen.
package hitl
