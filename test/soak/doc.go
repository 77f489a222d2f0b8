// Command soak runs the real gateway under mixed load for an hour and checks whether its
// memory, goroutines and file descriptors stay flat. It exits with 1 if one of them does
// not, and if any answer is not exactly the expected one.
//
//	go run ./test/soak --time 1h
//
// The load has everything that callers do: A2A 1.0 over JSON-RPC and REST, A2A
// 0.3, MCP of 2026-07-28 and of 2025-11-25, the translate endpoint with and
// without a destination, discovery, evidence, and wrong requests, whose refusals are
// expected word by word. Meanwhile the configuration is reloaded by SIGHUP, also a
// wrong one, and agents are added and removed.
//
// What the gateway keeps on purpose reaches its limit in the warm-up, or it would
// look like a leak: evidence is limited to a few MiB, tokens live for seconds,
// and conversations are few.
//
// Before the mixed load come streams, for the same time: 8 callers begin 600 streams with
// ECTs a second at a gateway of serve with its defaults. Each answer but a complete stream
// is an error, also a 503. Under load the resident memory must stay within the sum that
// check-config computes. Two minutes later it must be at most a tenth above what it was at
// rest before, with state as full. Pages of files, such as those of the program, do not
// count in that comparison. --part streams or --part mixed runs one of the two alone.
//
// --part evidence --rate 50 --time 30m is a third part, which never runs beside these: one
// caller of a gateway that keeps its state in a file. At the end each token of each call
// must be on record as it was. aepbctl dag and an auditor must be able to read the first
// call, and it must be possible to roll it back. The resident memory must be at most a tenth
// above what it was after a quarter of the time.
//
// How to read it: main.go has the flags; streams.go is the first part, evidence.go the third;
// cast.go starts the processes of the second, agents.go has the agents behind the gateways;
// calls.go, abuse.go and operator.go are the load, load.go the callers; meter.go samples and
// judge.go decides.
//
// Alternatives considered: comparing first and last sample, which depends on when the garbage
// collector ran; a fitted line, which a single spike bends. Medians of quarters and the median
// of all slopes (Theil and Sen) tolerate both, and still find a leak.
package main
