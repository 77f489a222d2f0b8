// Package session makes conversations out of messages that nodes may lose,
// double, delay and reorder: reliable ones between two applications, and ones
// with many members to which a moderator invites us.
//
//   - machine.go: one session as a machine of states: what comes in, what time
//     it is, what goes out; no clock, no lock, no network
//   - handshake.go, membership.go: how it begins, lives and ends
//   - sender.go, receiver.go: acknowledged and ordered delivery
//   - session.go: the same for users: Send, Receive, Close
//   - app.go: an application with its name and all its sessions
//
// # Rules
//
// A message that exceeds what a session may buffer is not acknowledged, so its
// sender sends it again: a slow reader slows its own peer alone. A
// message that cannot be delivered, either way, breaks the session: a stream
// with a hole in it is worse than none. Nothing that comes without a valid
// token is looked at, nor a control message without a valid signature; a
// sender without a token gets no answer, as with SLIM's own software.
//
// Sessions that ask for end-to-end encryption (MLS) are refused at once: there
// is no implementation of it that could be built in here.
//
// # Alternatives considered
//
// Timers for each message, as SLIM's own software has them, cost more than they
// tell; a session computes when it next has something to do. A queue without
// bounds would acknowledge at once and keep what its user never reads.
package session
