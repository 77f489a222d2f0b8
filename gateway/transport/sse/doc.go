// Package sse reads a stream of server-sent events (WHATWG HTML, section 9.2)
// from an untrusted server, and writes one ([Writer]).
//
// A [Reader] is a pure function of an io.Reader: no connection, no clock, no
// reconnection. It bounds what a hostile server can make it hold: the size of
// one event, the number of events, and the bytes of the whole stream,
// comments included, so that heartbeats without end come to an end too.
//
// Alternatives considered: bufio.Scanner with a split function (it cannot tell
// a lone CR at the end of its buffer from one that a LF follows without reading
// on, and its size error does not say which bound was missed), and the reader
// of an SDK (unbounded).
package sse
