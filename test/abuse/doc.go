// Command abuse attacks a gateway with everything that a security review found, all
// attacks at once, while a caller that does nothing wrong makes 50 calls a second. It
// exits with 1 if the attacks disturbed that caller.
//
//	go run ./test/abuse
//	go run ./test/abuse --time 20s --backend redis
//	go run ./test/abuse --time 20s --backend crowd
//	go run ./test/abuse --time 20s --backend shares
//
// The attackers run in a process of their own: one identity with a valid certificate
// that may call one agent, and 1,000 clients without a certificate, each with its own
// address in 127.0.0.0/8. They write the protocols themselves, without an SDK. Each
// attack has a rate, a number of workers and an end. The attacks:
//
//	evidence      tokens with the longest lifetime, with messages that no agent gets
//	endless       the same with tokens that end in the year 9999
//	lineage       tokens with 40 parents that have 100 unknown parents each
//	questions     messages of 640 KiB about which the gateway has to ask a question
//	sessions      MCP sessions and open streams that are never ended
//	readers       GET /workflows whose answer is never read
//	bodies        requests that send 15 MiB and stop before the end
//	answers       calls whose answer of 1 MiB is stored for a retry
//	contexts      a new conversation with every message
//	tasks         work in the background, with a webhook for each
//	webhooks      registrations of callbacks for human approval
//	forged *      reading, callbacks, rollback and decision in another's workflow
//	unnamed       requests without identity or with a broken token
//	did:web       signed AINP envelopes that make the gateway fetch from an agent
//	idle          TLS connections on which nothing is ever sent
//	µacp, socket  more µACP connections and AINP WebSockets than a gateway accepts
//
// They run on each backend: memory, bbolt, and two replicas over a real Redis behind a
// balancer. These are violations: a call of the good caller that did not get its own
// answer; an ECT of such a call that it cannot read afterwards; a forgery that was
// accepted; a request that a caller without an identity made the gateway send; more memory,
// beside the mapped file of state, than check-config computes for the configuration (or --rss); and, in runs of a minute or
// more, a p99 above three times that of a fresh gateway beside processes that only use CPU:
// as much as the attackers used, with their low priority, and as much as the attacks cost
// the gateway and its agents, with the gateway's priority. Two more violations are an
// attack that never ran, and evidence that was refused entirely: the run then proves nothing.
//
// Before that, on memory alone, 4,096 callers without an identity send one public request
// each and stay connected, from 12 addresses and from one. Each new connection of a good
// caller and of a probe must succeed (package crowd, which says why it is separate).
// Connections are limited before any state is used, so one backend is enough. This act
// takes 20 seconds in a short run and a minute in a long one, and more on a busy machine.
// After each backend, identities attack a gateway with the default limits and try to get
// more than their share of memory, breakers and places (package shares). There 99 of 100
// good calls must be answered, and the memory must stay within what check-config computes.
// --gateway FILE attacks another program than that of this module, to see an older one fail.
//
// How to read it: main.go has the flags; gateways.go starts the gateways and agents.go the
// agents; caller.go makes the good calls and checks them afterwards; attack.go is the
// attacking process with its rates and counts, hostile.go has the attacks of the identity,
// stranger.go those of callers without one, and connection.go the connections that both
// hold open; process.go starts, measures and ends processes, and judge.go finds the
// violations.
//
// Alternative considered: a test inside the gateway's process. It could not tell the memory
// and CPU of attackers, callers and gateway apart, and a gateway that the kernel kills
// would end the test with it.
package main
