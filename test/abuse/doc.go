// Command abuse attacks a gateway with everything that a security review found, all
// at once, while a caller who does nothing wrong makes 50 calls a second. It ends
// with 1 if that caller noticed.
//
//	go run ./test/abuse
//	go run ./test/abuse --time 20s --backend redis
//	go run ./test/abuse --time 20s --backend crowd
//	go run ./test/abuse --time 20s --backend shares
//
// The attackers are a process of their own: one identity with a valid certificate
// that may call one agent, and 1,000 clients without a certificate, each with an
// address of its own in 127.0.0.0/8. They speak the protocols themselves, without
// an SDK. Every attack has a pace, a number of workers and an end. The attacks:
//
//	evidence      tokens that live as long as any may, with messages that no agent gets
//	endless       the same with tokens that end in the year 9999
//	lineage       tokens with 40 parents that have 100 unknown parents each
//	questions     messages of 640 KiB that the gateway has to ask back about
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
//	µacp, socket  µACP connections and AINP WebSockets, more than a gateway takes
//
// It happens on each backend: memory, bbolt, and two replicas over a real Redis
// behind a balancer. These are violations: a call of the good caller that was not
// answered with its own answer; an ECT of such a call that it cannot get afterwards;
// a forgery that was taken; a request that a stranger made the gateway send; more
// memory than check-config says of the configuration (or --rss); and, in runs of a
// minute or more, a p99 of more than three times that of a fresh gateway beside
// processes that only burn CPU: what the attackers used, with their low priority, and
// what the attacks cost the gateway and its agents, with that of the gateway.
// So is an attack that never ran, and evidence that was all refused: then nothing
// was proved.
//
// Before that comes an act of its own, on memory alone: 4,096 strangers ask one public
// thing each and stay, from 12 addresses and from one, and every new connection of a
// good caller and of a probe must come in (package crowd, which says why it is apart).
// Connections are bounded before any state is asked for, so that one backend is enough.
// It takes 20 seconds in a short run and a minute in a long one, and more on a busy
// machine. And after each backend comes an act on a gateway with its default limits, where
// identities try to have more than their share of memory, breakers and places (package
// shares): there 99 of 100 good calls must be answered, and the memory is judged that such a
// gateway may have. --gateway FILE attacks another program than that of this module, to see an
// older one fail.
//
// How to read it: main.go are the flags; gateways.go starts what is attacked and
// agents.go the agents; caller.go are the good calls and what is asked about them
// afterwards; attack.go is the other process with its pace and its counts, hostile.go
// what the identity does, stranger.go what those without one do, and connection.go
// what both hold open; process.go starts, measures and ends processes, and judge.go
// decides.
//
// Alternative considered: a test inside the gateway's process. Memory and CPU of
// attackers, callers and gateway could not be told apart then, and a gateway that
// the kernel kills would take its judge along.
package main
