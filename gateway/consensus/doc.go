// Package consensus coordinates rounds in which agents decide together (draft-nennemann-agent-consensus-00; R18, R24,
// R25). What a round may do next, package policy/consensus says; this package keeps rounds and votes in the store, signs
// outcomes and announces them.
//
// Each vote is an entry of its own, so participants do not race for one record. The outcome is the record: it is signed
// once, swapped in, confirmed on the replicas and recorded, and after that it is told. A replica that finds an outcome
// adopts it. Each moment that decides something is the store's, so a replica whose clock is wrong decides nothing early or
// late.
//
// Read service.go first: what a round goes through. propose.go and ballots.go take what participants send, visit.go takes
// rounds further, aftermath.go does what follows from an outcome. store.go names the entries and keeps them, groups.go has the
// configured groups and since when their members are known, parties.go reaches agents and approvers.
//
// Alternatives considered: a leader among the replicas that alone coordinates. It would have to be elected by the same
// store, and each round would wait for its failover.
package consensus
