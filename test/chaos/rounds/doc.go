// Package rounds kills gateways while agents decide together, and checks that each consensus round ends with one outcome
// that follows from its signed messages (draft-nennemann-agent-consensus-00; R24, R25). It is the act "consensus" of test/chaos.
//
// Three groups run at the same time: three gateways over a cluster of Redis, two gateways over one Redis, and one gateway
// over a file. Five members, each with a key and a certificate, play rounds of all four mechanisms, several at once, at random
// gateways. A message without an answer is sent again with the same bytes. A member of a round does what its role says:
//
//	honest   acknowledges the proposal and votes
//	silent   does nothing
//	acks     acknowledges, and does not vote
//	doubles  sends two different votes
//	forges   sends votes that must not be taken, and its own
//	late     votes after the deadline
//
// Sometimes two rounds are about the same resource. Meanwhile gateways are killed (SIGKILL) and started again, a
// master of Redis is killed and its replica takes over, and members are cut off for a while. Afterwards members
// acknowledge what is suspended.
//
// These rules must hold. Each round ends, and each member reads the same signed outcome at each gateway, during the faults and
// after them. `aepbctl consensus verify` accepts what `aepbctl consensus show --save` wrote. A vote that was taken (202) is
// among the messages, unless its voter sent another one too and the round ended before its deadline by an objection or a leader; a
// forged or late one was refused and is not there. Of two rounds about one resource at most one commits. The evidence has one
// consensus_propose, one consensus_commit, and one consensus_vote for each counted vote, and all of it verifies.
//
// How to read it: play.go has the course of the act, plan.go what each round is to be; member.go sends messages, round.go is what
// members do in a round; audit.go reads what is left of a round, and judge.go decides.
//
// Alternative considered: the simulation of gateway/consensus in virtual time. It reaches more orders of events, and no
// process, no network and no real store.
package rounds
