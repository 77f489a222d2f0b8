// Package destination finds out for whom a message is (architecture section 5, step 4b): the
// agent, which may be behind a capability document, a successor or another gateway, and the
// protocol that is spoken there. [Resolver.Find] says what is known without the network,
// and [Resolver.Reach] asks, for callers who may call alone. Why an agent cannot be reached is part of
// the [Destination], since policy decides who learns it.
//
// destination.go has the values and the two steps, successor.go the documents, and peers.go
// the search for another gateway, also for gateways that ask whether this one serves a pair.
//
// # Alternatives considered
//
// To resolve the agent where the message is routed: policy needs the agent's rules and the
// protocol behind documents and gateways, and policy comes first.
package destination
