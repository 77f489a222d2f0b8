// Package stream is what the protocols' ways of streaming have in common, so
// that a stream of one can be translated to another, and to a single reply for a
// caller that only waits.
//
// There are two ways (translators.Streams). In a stream of tasks (A2A) the
// events are the whole truth: first the task, then its changes, and the change
// that settles it ends the stream. In a stream with a reply (MCP) the events
// are notifications, and a reply holds the whole result.
//
//   - [Folder] adds events up to the result that a caller who waited gets.
//   - [Unfold] takes a result apart into the events that would have led to it.
//   - [Diff] finds the events between two looks at one task.
//   - [Shaper] tells each event of one way in the other, and says what that loses.
//
// Everything here is pure: events go in, events come out. It knows no protocol;
// a codec writes what comes out.
//
// Alternatives considered: a converter per pair of protocols inside the codecs
// (each would keep state, and a codec has none), and one way for all (a wait
// for the end, as bridges do it: then no caller sees an event before it).
package stream
