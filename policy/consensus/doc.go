// Package consensus decides what a group of agents agrees on: which proposals may be voted on, which votes count, what
// the outcome is and whether a participant can believe it (draft-nennemann-agent-consensus-00, "Consensus
// Protocols"; R24, R25).
//
// It is pure. [Open] judges a proposal and freezes the rules of its round, [Round.Next] takes the round one step
// further with everything that was received for it, and [Check] recomputes an outcome from the signed messages, so that
// participants and auditors need not believe a coordinator. Messages are signed and verified in package notes.
//
// How the mechanisms decide, once voting is over (approve and reject are the votes that count):
//
//	majority    at least ceil(N/2) votes, and more approve than reject
//	weighted    votes of at least half of the total weight, and approving weight*100 > threshold*total
//	leader      what the leader decided; against most of the votes with a rationale alone
//	optimistic  no vote rejects
//
// A commit needs connectivity beside that: signed messages of floor(N/2)+1 participants for this round. Without it the
// round is suspended, and decided on the votes that came before its deadline.
//
// This is no Byzantine fault tolerance: the coordinator is believed to hand in each vote that it received, and up to
// max_faulty participants may lie only as far as a larger quorum bears it.
//
// Alternatives considered: rounds that change with each vote. A vote would be a write to one record, and 500
// participants would race for it.
package consensus
