// Package matrix_test carries every kind of message through every ordered pair
// of protocol versions and back.
//
// Two rules must hold. The message that comes back equals the message that left,
// except for what was declared dropped. And the losses declared on the way are exactly
// those of losses.txt: a further loss needs a decision, and a missing one means that the
// file is out of date.
//
// Alternatives considered: golden files of the translated messages (they
// change with every member order and prove nothing about the way back), and
// the losses beside each case in Go (in one table a reader sees what a pair loses).
package matrix_test
