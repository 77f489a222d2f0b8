// Package matrix_test carries every kind of message through every ordered pair
// of protocol versions and home again.
//
// Two things are demanded. The message that comes home is the message that
// left, but for what was declared dropped. And the losses declared on the way
// are exactly those of losses.txt: one more is a loss that nobody decided to
// accept, one fewer is a line that nobody may trust any longer.
//
// Alternatives considered: golden files of the translated messages (they
// change with every member order and prove nothing about the way back), and
// the losses beside each case in Go (a table that is read as one shows what a
// pair costs).
package matrix_test
