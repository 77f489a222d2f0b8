// Package translatortest is the contract that every translator must pass.
//
// A plugin proves itself with one call:
//
//	func TestContract(t *testing.T) {
//		translatortest.Run(t, a2a.New(translators.Config{}), translatortest.Samples{…})
//	}
//
// The laws are ordinary functions that answer with a list of failures, so that
// they can be turned on deliberately broken translators as well; the tests of
// this package do that with at least one mutant per law. A law that no mutant
// can break proves nothing.
//
// How the honesty law compares. A message is taken apart into leaves, each
// with its place in JSON Pointer form: field names in lower camel case, list
// indexes, and inside raw JSON the member names, as in
// /body/turn/parts/0/media or /body/extensions/a2a-v1/metadata. A [canonical.Loss]
// at a place covers everything below it. Letter case does not matter, and the
// leading /body may be left out; the whole message, "" or /body, covers
// nothing, since it would excuse everything.
//
// When a destination has no such view of a thing, a turn that becomes the
// arguments of a call, say, its leaves may be found anywhere in the message
// that comes back; the value counts and no longer its place.
//
// Alternatives considered: golden files per pair of protocols (they pin what is,
// not what must be; the matrix has them besides), and deep equality after a
// round trip through two codecs (it cannot say which of the two lied).
package translatortest
