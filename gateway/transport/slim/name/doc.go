// Package name is what SLIM calls its applications: three words, and perhaps
// the id of one instance.
//
// Nodes route by hashes of the words and never see more of them; the words
// travel along for people and for signatures. A name without an id means any
// instance (anycast), a name with one means that instance.
//
//   - name.go: the name, its text and its ids
//   - encoding.go: its form on the wire, hashes included
package name
