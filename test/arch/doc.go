// Package arch checks the repository against its own rules: which package imports
// which, where network code may be, how large functions, files and packages may grow,
// what must be documented, and which constructs are forbidden.
//
// Every rule is a check with a reason, and each failure prints the reason. If the
// reason of a rule no longer holds, change the rule here. Exceptions are rows of a
// table, each with its own reason.
//
// How to read it: arch_test.go runs every check twice, once over the repository
// and once over planted violations, because a check that cannot fail proves
// nothing. tree_test.go parses the sources; the other files hold the checks by
// subject. meters_test.go has the figures that may only fall, with the ceiling
// of each; the other meters files compute them.
//
// Checks read syntax alone, and run on a tree that does not build. Some meters
// resolve types (types_test.go): fields of embedded structs, methods of embedded
// interfaces, and which file calls which. They type-check our packages from source.
// Third-party packages stay empty, and so does the standard library but for a few
// packages. So nothing is downloaded or built, and what does not resolve is not counted.
//
// Alternatives considered: linter configuration (it states what is forbidden
// but has no place for the reason, and cannot know our packages), and go/packages
// (exact, but it takes minutes instead of seconds, and fails while anything is broken).
package arch
