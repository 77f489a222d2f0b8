// Package transcode turns the JSON of a message into protobuf's octets and back
// as its descriptor says, without making the message in between: that costs more
// than all else that a message between A2A's codec and a wire of protobuf does.
//
// [Octets] and [Text] are pure. Each gives what google.golang.org/protobuf gives,
// octet by octet and letter by letter, or it declines: what is wrong is not
// theirs to judge, and neither is what is right and rare. The library has the
// last word then, so that no rule of acceptance is here twice. Declined are, of
// JSON, integers with a fraction or an exponent; of octets, fields said more than
// once, of which the last counts or all are merged, and members of one oneof beside
// each other; of both, kinds of fields that A2A's schema does not have, and what is
// deeper or larger than its messages are.
//
// # Alternatives considered
//
// Code for each message: faster again, and as long as the schema, of which there
// are two. The whole of the library's rules here: twice the code, for messages
// that nobody sends.
package transcode
