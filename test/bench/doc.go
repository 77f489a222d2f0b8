// Command bench measures what the gateway costs, next to the alternatives.
//
//	go run ./test/bench [--json] [--only NAME] [--with PROTOCOL] [--seconds N] [--against BINARY] [--profile DIR] [--http2]
//	go run ./test/bench --cases bridge [--json] [--procs N,N] [--seconds N] [--rounds N] [--against BINARY] [--http2]
//
// The exchange named "exchange" is one A2A SendMessage that becomes one MCP
// tools/call and comes back as an A2A task. Four cases carry it:
//
//	direct   the client posts the MCP form of the request straight to the MCP
//	         server: what the call costs by itself
//	proxy    the same through httputil.ReverseProxy: what any hop over TLS costs
//	floor    the least code that does the job: one ES256 ECT verified, JSON
//	         decoded and encoded both ways, bodies hashed, two ECTs signed
//	gateway  the built binary, `aepb-gateway dev`
//
// Every server runs in its own process, so that CPU time and memory can be told
// apart, and all of them call the same MCP server, whose cost is small and
// fixed. All processes speak HTTP/1.1 over TLS 1.3 on connections that stay open; with --http2
// callers speak HTTP/2. In
// floor and gateway each call carries an ECT of its own, signed beforehand.
//
// --against BINARY adds the case "former": another build of the gateway, with the same
// keys and state of its own, and a table of the ratios of each case to it.
//
// The cases take turns: in each round each of them runs at concurrency 1, 8 and
// 32 for an equal slice of --seconds. Shared machines vary by a factor of two
// between runs, so the result is the median over the rounds of the ratio to floor
// within the same round.
//
// --only pairs measures every ordered pair of a2a, mcp, uacp, ainp and slim, at 8 callers,
// each against the floor of that pair: the least code for the same job, with the
// connections and the signatures that its two protocols demand. Each request to a µACP
// agent opens a connection and those of callers stay open; AINP is signed and
// verified in both directions; ECTs stand where the protocol has a place for them.
// Floor and gateway take turns of a tenth of a second in each round, there and back
// (floor, gateway, gateway, floor, and so on, twelve of each), and a pair whose median of
// the per-round ratios is less than 0.8 is marked. It takes eight minutes. --with
// measures the pairs of one protocol alone. With --against the other build takes its
// turns in each pair too. That takes half as long again. A second table then has the
// medians of the per-round ratios: of each build to the floor, and of this one to the other.
//
// The pairs with SLIM go over a node that SLIM's makers publish and "make tools"
// installs; without it the output says that these rows are missing. All processes
// speak TLS 1.3 with the node, and A2A on SLIMRPC in protobuf. There is no SLIM
// library for Go, so the caller, the agent and the floor use the gateway's own
// packages of the wire (link, session, rpc), and the ratio is what the gateway costs
// beyond them. These pairs have a second floor, the bridge, which only carries the
// text: it verifies, hashes and signs no ECT.
//
// --cases bridge measures something else: the gateway beside what its users would have
// otherwise, an unsigned bridge of the two official Go SDKs (package bridge), from A2A to MCP
// and from MCP to A2A, at 1, 8 and 32 callers. No caller sends an ECT. Callers of both are the
// same, in A2A 1.0 or in one session of MCP 2025-11-25; so are the agents that both call, and
// TLS 1.3 on connections that stay open. Where the bridge has a choice it takes what costs it
// less: it answers A2A with a message where the gateway makes a task, and calls the MCP server
// in 2025-11-25 where the gateway speaks 2026-07-28. The cases:
//
//	gateway        the built binary, which signs
//	gateway again  the same in another process: how far its ratio to gateway is from 1 shows
//	               what the machine adds
//	bridge         with GOGC=100, Go's default
//	bridge 225     with GOGC=225
//
// --procs 1,2,8 adds a gateway with each of these as its GOMAXPROCS, and --against another
// build. For each direction the first table has the medians, and the second the medians of the
// per-round ratios. Each direction takes --seconds for each case and number of callers: four
// minutes without --seconds, besides the time to prepare.
//
// --only refusal compares a gateway whose circuit breaker is open with its floor, a handler
// that verifies one ECT and answers 503. The agent answers once and then stops; now and then
// a call is the breaker's probe. --only breaker compares, in this process, the sender chain
// with a closed breaker to one without.
//
// What lasts longer than a call is measured by package lasting: --only stream,
// sessions, streams or limits.
//
// The output begins with the limits that the gateway's configuration raises for each
// measurement: one caller makes all the calls, which the default limits prevent.
//
// --profile DIR writes profiles of the CPU, of the allocations and of the waits for locks of each case
// of the exchange to DIR, for "go tool pprof". The gateway is then built with one file more.
//
// The columns: rps, p50_us and p99_us are seen by the client; cpu_us_per_call
// and allocs_per_call are those of the case's own process (in direct the MCP
// server's, in the others not); rss_kb is that process's resident memory after
// the slice. allocs_per_call is absent where a process does not report it. The first
// table has the resident memory of each process before its first call.
//
// How to read it: main.go parses the flags, cast.go starts the servers, rounds.go
// takes turns, load.go is the client and calls.go what it sends; child.go is
// what upstream.go and floor.go share; refusal.go is about refusals; meter.go reads /proc and
// report.go adds up. The bridge of the SDKs is a case in cast.go, rounds.go and report.go, and
// package bridge. For the pairs, pairs.go takes turns, words.go has the exchange
// in each protocol, pairfloor.go the floor and pairagents.go the agents;
// slim.go does the same for SLIM; package slimnode runs the node and connects to it.
//
// Alternative considered: testing.B. It measures a function in one process; here
// the question is the cost of a process per call while others compete with it.
package main
