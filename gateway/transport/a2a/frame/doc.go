// Package frame is what A2A 1.0 is over gRPC: messages of the published schema
// in protobuf's own form, and a google.rpc.Status for an error.
//
// The codec reads and writes the JSON of these messages. A [Framer] turns that
// into the bytes that travel, and back: evidence hashes the serialised message
// without its five-byte frame, and of an error the serialised status. What
// protobuf cannot hold is declared as a loss: its numbers are doubles (L16),
// and members that the schema lacks are gone (L29). So are fields that the schema
// lacks, where a message does not go on byte by byte: JSON has no name for them.
//
// Protobuf's own library reads and writes: its bytes in their deterministic form,
// its JSON without the blanks that it varies. What a peer sends is counted before
// anything is made of it, bytes (count.go) as JSON.
//
// # Alternatives considered
//
// Reading protobuf in the codec: translators have no protobuf, because a Struct
// rounds numbers, and all other forms keep them. The conversions of the
// protocol's SDK: they go through types of its own, which refuse what the
// schema allows and drop what it has besides. From one form to the other without
// the messages in between, which takes a fifth of the time: a thousand lines whose rules
// have to be those of the library, to save some 25 µs of a call.
package frame
