// Command soak runs the real gateway under mixed load for an hour and says
// whether its memory, goroutines and file descriptors stay flat. It ends with 1
// when one of them does not, and when any answer is not exactly the expected one.
//
//	go run ./test/soak --time 1h
//
// The load is everything that callers do: A2A 1.0 over JSON-RPC and REST, A2A
// 0.3, MCP of 2026-07-28 and of 2025-11-25, the translate endpoint with and
// without a destination, discovery, evidence, and what bad callers do, whose
// refusals are expected word by word; meanwhile the configuration is reloaded by
// SIGHUP, also a bad one, and agents are listed and removed.
//
// What the gateway keeps on purpose reaches its bound in the warm-up, or it would
// look like a leak: evidence is bounded to a few MiB, tokens live for seconds,
// and conversations are few.
//
// Before that come streams, as long: 8 callers begin 600 attested ones a second at a
// gateway of serve with its defaults. Any answer but a stream to its end is an error, a
// 503 too; under load no more may be resident than the bounds of the configuration add up
// to, as check-config says them, and two minutes later no more than a tenth above what it
// was at rest before, with state as full; pages of files, such as the program's own, are left
// out of that comparison. --part streams or --part mixed is one alone.
//
// --part evidence --rate 50 --time 30m is a third one, never run beside these: one caller of a
// gateway that keeps its state in a file. At the end each token of each call must be on record
// as it was, the first call must be there for aepbctl dag and an auditor, and be rolled back,
// and no more than a tenth may be resident above what was after a quarter of the time.
//
// How to read it: main.go are the flags; streams.go is the first part, evidence.go the third; cast.go starts
// everybody of the second, agents.go are the agents behind the gateways; calls.go, abuse.go
// and operator.go are the load, load.go the callers; meter.go samples and judge.go decides.
//
// Alternatives considered: comparing first and last sample, which any collection
// decides; a fitted line, which a single spike bends. Medians of quarters and the
// median of all slopes (Theil and Sen) forgive both and no leak.
package main
