// Package arch holds the tree to its own rules: who may import whom, where the
// network begins, how large things may grow, what must be documented, and
// which constructs have no place here.
//
// Every rule is a check with a reason, and the reason is printed with each
// failure: a rule whose reason no longer holds is to be changed here, in the
// open. Exceptions are rows of a table, each with its own reason.
//
// To read it: arch_test.go runs every check twice, once over the repository
// and once over planted violations, because a check that cannot fail proves
// nothing. tree_test.go parses the sources; the other files hold the checks by
// subject. meters_test.go has the figures that may only fall, with the ceiling
// of each; the other meters files compute them.
//
// Everything is syntax, nothing is type-checked: the checks run in a second,
// and on a tree that does not build.
//
// Alternatives considered: linter configuration (it states what is forbidden
// but has no room for why, and knows nothing of our rooms), and go/packages (exact,
// but minutes instead of a second, and blind while anything is broken).
package arch
