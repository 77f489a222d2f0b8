// Package session makes reliable sessions out of messages that nodes may lose,
// duplicate, delay and reorder. A session is between two applications, or a group
// with many members to which a moderator invites the agent.
//
//   - machine.go: one session as a state machine. It takes messages and the time
//     and returns messages; it has no clock, no lock and no network
//   - handshake.go, membership.go: its beginning, its members and its end
//   - sender.go, receiver.go: acknowledged and ordered delivery
//   - session.go: the API for users: Send, Receive, Close
//   - app.go: an application with its name and all its sessions
//
// # Rules
//
// A message that exceeds what a session may buffer is not acknowledged, so its
// sender sends it again: a slow reader slows its own peer alone. A
// message that cannot be delivered, in either direction, breaks the session: a user
// must not read a stream that lacks a message. A message without a valid token, or a
// control message without a valid signature, is dropped. Its sender gets no answer,
// as with SLIM's own software.
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
