// Package inflight bounds what requests under way hold: how many there are of one
// caller and in all, how many of them are streams, the bytes of their bodies and
// answers, how slowly a body may come, and how long a reader may not read.
//
// A body takes its Content-Length before its first byte is read; one of unknown
// length takes more as it grows. What an answer holds counts as the larger of the
// request's body and the answer. A caller over its share, or one that comes when
// all is in use, gets 429 at once; nothing waits.
//
// Callers without an identity have shares of their own, a quarter of the others:
// network addresses cost nothing to invent.
//
// [Limits.Handler] stands around an HTTP handler, and [Admit] is called in it as
// soon as the caller is known. Servers without HTTP use [Limits.Begin].
//
// Alternatives considered: http.Server's ReadTimeout and WriteTimeout bound the
// whole of a request, not its progress: short enough against a body that stopped
// they end large ones that are under way.
package inflight
