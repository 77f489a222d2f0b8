// Package egress is the one way to the network: nothing else in this module
// dials, resolves or builds an HTTP transport.
//
// Addresses reach us from operators, but also from capability documents, cards,
// callbacks and checkpoints of untrusted parties. So each request answers four
// questions before a byte leaves: is the scheme https, may this host be
// called at all, are all the addresses it resolves to of a kind that may be
// called, and is the one at the other end who it should be.
//
// # How to read it
//
//   - egress.go: the Guard, its request path and the pool of transports
//   - direct.go, quiet.go: requests to servers of HTTP/1.1, in the goroutine of the caller
//   - heard.go: ignores bytes that come after a request has ended
//   - dial.go: resolve once, check every address, dial a checked one
//   - grants.go: what the operator has allowed beyond the public internet
//   - address.go: the table of address classes
//   - credentials.go: what requests show to agents, and what becomes of a 401
//   - tell.go, bounds.go: posts to hosts that callers name, and their bounds
//   - config.go: bounds and their defaults
//
// # Rules
//
// TLS is 1.3 only, and without TLS nothing is reached but loopback, in
// development. There is no proxy, whatever the environment says: a proxy
// would resolve names for itself. Redirects are answers like any other and are
// handed back. A name is resolved once per connection and the connection goes
// to an address out of that very answer, so a second answer cannot be smuggled
// in (DNS rebinding); one bad address spoils the whole answer. No credential
// passes through: Authorization, Cookie, Proxy-* and Workload-* are removed from every
// request, and a URL with user information is refused. What the operator has configured for an
// agent is added then, by Deps.Credentials. A Host that differs from
// the URL's is dropped. Bodies are left as they are: no transparent
// decompression, because evidence hashes what the peer sent.
//
// # Grants
//
// What the operator lists may be private: an agent in the cluster, a
// development server on loopback. A grant by name or address lifts the class
// check for that host only; a grant by CIDR lifts it for those addresses. A
// grant by name never lifts the metadata and link-local classes, since the DNS
// server of the name could then grant them: the operator must list their
// address or CIDR. Multicast and unspecified addresses are never
// called. Taking a grant back also drops the pooled connections.
//
// # Alternatives considered
//
// A check in net.Dialer.Control sees each address just before connecting and
// needs no resolver of its own, but cannot refuse an answer as a whole and
// cannot tell which name it came from, so a grant per host would be impossible.
// An http.Client would follow redirects, keep cookies and turn a URL's user
// information into credentials; its Transport alone does none of that. Allowing
// by name only ("no IP literals") does not help against names that resolve to
// private addresses.
//
// # Requests in the goroutine of the caller
//
// net/http reads and writes each connection of HTTP/1.1 in goroutines of its own. For a small request
// and its answer their wake-ups cost more than the bytes. So a request that is not larger than
// 32 KiB, to a server that has answered net/http in HTTP/1.1 before, is written and read where it was
// made. net/http parses the response there too (http.ReadResponse). Everything else is left to
// its Transport: HTTP/2, larger bodies, bodies of unknown length.
//
// A connection that the server has closed, or on which it has sent what was not asked for, is not used
// again. Only a GET or a HEAD that got no byte of an answer is sent a second time. Fuzzing compares each response with what the
// Transport makes of it. fasthttp was no alternative: it has a parser of its own.
//
// # Posts to places that callers name
//
// Webhooks and callbacks have a guard of their own. It shows no client
// certificate, so that a post is never taken for the gateway's own word, and it
// refuses listed agents, peers and the gateway itself, by name and by address,
// when a place is registered and at every post. The only credential is the one
// that the caller gave for this place.
//
// A receiver is not asked to echo a token before its first post: neither A2A nor
// AEPB has such a question, and a receiver of theirs would not answer it. What
// bounds the posts to a place that wants none is that they fail: 60 failed posts
// of one caller to one host at once, tries again included, then one more each
// second, and sixteen times as many of all callers together. A host that answers 2xx has no
// such bound. There are at most 16 webhooks of one task and 16 callbacks of one
// workflow, and at most 4 tries of one post.
package egress
