// Package problem is the one place that says what an error becomes on the wire.
//
// Packages fail with typed errors and know nothing of HTTP. table.go has one
// row for every exported error type of the project (a test reads the source
// tree and demands it) and codes.go one for every wire code (architecture
// section 7): status, title, and what a native endpoint says instead. [From] turns
// an error into a [Problem], [Write] a Problem into an RFC 9457 document,
// [Native] into an error message of the caller's own protocol.
//
// The outermost error that has a row decides: a package that wraps an error in its own type says by
// that what it means. An error without a row becomes internal_error, and its text stays inside.
//
// errors.go holds the gateway's own errors that have no other home.
//
// Alternatives considered: a Status method on every error (spreads the wire
// over all packages, and the lower layers would learn HTTP); the first matching row of
// an ordered table (the meaning of a wrapped error would depend on the order
// of rows).
package problem
