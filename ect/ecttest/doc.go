// Package ecttest helps to test what makes, carries, judges or keeps execution
// context tokens.
//
//   - [NewParty] makes a party with a key: it signs, and [KeysOf] finds its key.
//     [NewEdwardsParty] signs with EdDSA.
//   - [Mint] makes any token at all, and [Vectors] a table of tokens that must be
//     refused, each with its reason. Whatever takes tokens from outside should
//     refuse every one of them.
//   - [StoreSuite] and [ReplaySuite] are the contracts of ect.Store and
//     ect.ReplayCache. Every driver runs them; [NewStore] and [NewReplay], fakes
//     for tests of other things, do too.
//
// # Alternatives considered
//
// Tokens in files would pin old keys, times and ids, and would hide what is
// wrong with each of them; a table says it in one line. Mocks would show that a
// method was called, not that evidence was kept.
package ecttest
