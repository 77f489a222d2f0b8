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
// Checks are syntax alone, and run on a tree that does not build. Some meters
// resolve types (types_test.go): fields of embedded structs, methods of embedded
// interfaces, and which file calls which. They check our packages from source.
// Packages of others are left empty, but for a few of the standard library, so
// nothing is downloaded or built, and what does not resolve is not counted.
//
// Alternatives considered: linter configuration (it states what is forbidden
// but has no place for why, and knows nothing of our packages), and go/packages
// (exact, but minutes instead of seconds, and blind while anything is broken).
package arch
