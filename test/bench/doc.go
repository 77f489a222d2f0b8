// Command bench measures what the gateway costs, next to the alternatives.
//
//	go run ./test/bench [--json] [--only NAME] [--with PROTOCOL] [--seconds N] [--against BINARY]
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
// fixed. Everybody speaks HTTP/1.1 over TLS 1.3 on connections that are kept. In
// floor and gateway each call carries an ECT of its own, signed beforehand.
//
// --against BINARY adds the case "former": another build of the gateway, with the same
// keys and state of its own, and a table of the ratios of each case to it.
//
// The cases take turns: in each round each of them runs at concurrency 1, 8 and
// 32 for an equal slice of --seconds. Machines shared with others vary by a
// factor of two between runs, so what counts is the median over the rounds of
// the ratio to floor within the same round.
//
// --only pairs measures every ordered pair of a2a, mcp, uacp, ainp and slim, at 8 callers,
// each against the floor of that pair: the same job by hand, with the sockets and
// the signatures that its two protocols demand. One µACP connection is made for
// each request to an agent and those of callers are kept; AINP is signed and
// verified in both directions; ECTs stand where the protocol has a place for them.
// Floor and gateway take turns of a tenth of a second in each round, there and back
// (floor, gateway, gateway, floor, and so on, twelve of each), and a pair whose median of
// the per-round ratios is less than 0.8 is marked. It takes eight minutes. --with
// measures the pairs of one protocol alone. With --against the other build takes its
// turns in each pair too, which takes half as long again, and a second table has the
// medians of the per-round ratios: of each build to the floor, and of this one to the other.
//
// The pairs with SLIM go over a node that is the software of SLIM's makers, which
// "make tools" installs; without it these rows are said to be missing. Everybody
// speaks TLS 1.3 with the node, and A2A on SLIMRPC in protobuf. There is no SLIM
// library for Go, so the caller, the agent and the floor use the gateway's own
// packages of the wire (link, session, rpc) as one, and the ratio tells what the
// gateway costs beyond them. These pairs have a second floor, the bridge, which
// carries the text and nothing else: no ECT is verified, hashed or signed there.
//
// --only refusal lets a gateway whose circuit breaker is open take turns with a handler that
// verifies one ECT and answers 503, which is its floor. The agent answers once and is gone;
// now and then a call is the breaker's probe. --only breaker compares, in this process, the
// sender chain with a closed breaker to one without.
//
// What lasts longer than a call is measured by package lasting: --only stream,
// sessions, streams or limits.
//
// The output begins with what the gateway's configuration raises for each measurement:
// one caller makes all the calls, which the defaults are there to prevent.
//
// The columns: rps, p50_us and p99_us are seen by the client; cpu_us_per_call
// and allocs_per_call are those of the case's own process (in direct the MCP
// server's, in the others not); rss_kb is that process's resident memory after
// the slice. allocs_per_call is absent where a process does not tell. Before all
// else stands the resident memory of each process that nobody has called yet.
//
// How to read it: main.go parses the flags, cast.go starts the servers, rounds.go
// takes turns, load.go is the client and calls.go what it sends; child.go is
// what upstream.go and floor.go share; refusal.go is about refusals; meter.go reads /proc and
// report.go adds up. Of the pairs, pairs.go takes turns, words.go says the exchange
// in each protocol, pairfloor.go is the floor and pairagents.go the agents;
// slim.go puts them on SLIM and says it there; package slimnode is the node and our
// way to it.
//
// Alternative considered: testing.B. It measures a function in one process; here
// the question is what a process costs per call while others compete with it.
package main
