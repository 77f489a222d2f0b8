// Package canonical holds the pivot message: the one form through which every
// protocol is translated into every other.
//
// N protocols need N codecs and not N*(N-1) converters. A field stands here
// only if two protocols have it; whatever only one of them knows rides
// verbatim in an [Extensions] value under that protocol's binding and comes
// back out when the message returns home. What can do neither is a [Loss].
//
// Rules that the codecs rely on:
//
//   - JSON values stay raw bytes: no float64 anywhere, so an integer above
//     2^53 or a 40-digit decimal leaves as it came.
//   - Ids are opaque; a JSON-RPC id keeps its raw form because 1 and "1" differ.
//   - The zero value of a field means "absent" unless its comment says otherwise.
//   - What is kept as JSON comes back as it was: a raw value that is absent is
//     left out, because null is a value.
//   - A Message is data. Nothing here has behaviour beyond describing itself,
//     and nothing here imports another package of ours.
//
// Read message.go for the envelope, body.go for what it carries, content.go
// for turns and parts, loss.go and catalogue.go for what can be lost.
//
// Alternatives considered: pairwise converters (twenty of them, each losing in
// its own way), protobuf Struct as the value type (rounds every number to a
// double), and an interface per field (no value can then be compared or printed).
package canonical
