// Package frame builds the messages that applications exchange through nodes,
// and reads those of others into values that are safe to use: with a name at
// both ends, of a known kind, within bounds.
//
//   - build.go: our own messages
//   - read.go: theirs, and the bounds
//   - seal.go: tokens and signatures on both
package frame
