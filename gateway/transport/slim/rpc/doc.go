// Package rpc is SLIMRPC: calls with one request and any number of responses,
// many at a time, on one session.
//
// All of it is metadata: which call a message belongs to, what is called, when
// it is too late, how it ended. SLIM's own servers of different age end a
// stream differently, so one rule reads both: a status other than 0 ends it,
// and so does status 0 on an empty message.
//
//   - metadata.go: the keys, and what they may say
//   - client.go: calls out; one session for each name that is called
//   - server.go: calls in
//
// SLIM's own clients always ask for end-to-end encryption, which the session
// below refuses: they cannot call us. We can call their servers.
package rpc
