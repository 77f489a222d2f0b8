// Package envelope is the aepb object: the one extension field of protocols
// that say little by themselves (µACP, AINP). It holds whatever a message says
// beyond what its native members already say.
//
// [Codec.Write] is a difference: a codec says a message natively, reads that back the
// way a peer that has never heard of us would, and Write puts every canonical
// field that is missing or changed in that view into the object. [Codec.Read] lays
// the object over the view again. So nothing is said twice, nothing is
// forgotten, and everything that only the object says is a Loss of fate
// Carried. Content that the native members say in another order of things is
// named, not said: the turn of a call that is nothing but the call is
// "parts":"call", and an artifact counts its parts off those that are there
// ("parts":2). A protocol form without a place for the object declares the same list
// as Dropped.
//
// fields.go has the fields of every message, body.go those of bodies, and
// result.go the three kinds of result, which are recast into one another
// before they are compared: a protocol that only knows "the result" can still
// say the words of a task natively.
//
// The object is kept, not believed: codecs compare what the overlaid message
// says natively with what arrived, and drop the overlay if they differ.
//
// Alternatives considered: an object that always holds the whole message (it
// doubles every text, and µACP has 64 KiB), and outlines as in package profile
// (they describe flattening into a tool's answer, which neither protocol does).
package envelope
