// Package consensus has the commands of aepbctl for consensus rounds (draft-nennemann-agent-consensus-00, "Consensus
// Protocols"; R24, R25): propose, vote, acknowledge, read, watch and verify.
//
// A participant does not believe the gateway where it can check: a vote is signed for a proposal whose signature was
// verified, an execution is acknowledged for an outcome that was computed anew from the signed messages, and a second vote,
// which would make both void, is not sent.
//
// Texts of the gateway and of other participants are escaped before they are printed as text.
package consensus
