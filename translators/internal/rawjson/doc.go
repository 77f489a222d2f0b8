// Package rawjson reads and writes JSON without giving values a Go type.
//
// [Check] is the gate: one pass that demands valid JSON, valid UTF-8 (lone
// surrogates included), no duplicate member names, exact names, and bounded
// size and depth. After it, [Object] walks members: a codec takes what it
// knows, and what is left over is its extension, verbatim. A member that has the
// name of one that is looked for in another case is a failure. Nothing here
// decodes a number, so nothing can round one.
//
// The tokenizer is the Go team's jsontext; encoding/json folds case, lets the
// last duplicate win and replaces broken surrogates, all silently. Before it stands
// a quick look (sound.go) that takes what is surely valid and leaves the rest to it,
// and [Canonical] is written in the same way: a gateway reads each message several
// times, and this takes a third of the time. The fuzz targets hold both to it.
package rawjson
