// Package credentials is what the gateway shows to agents besides its certificate: a header, a bearer token, basic
// authentication, an OAuth token or another client certificate, as the operator says for each agent.
//
// # How to read it
//
//   - config.go: what an operator says
//   - service.go: what a request shows, and what becomes of a 401
//   - minting.go: tokens that are fetched: one fetch at a time, renewals, pauses after failures
//   - oauth.go: requests to token endpoints and their answers
//   - command.go: tokens that a command writes
//   - cache.go: tokens of callers, bounded
//   - file.go: secrets in files
//
// # Where a credential goes
//
// The guard of package egress asks for it at each request, so that it is in no message, no session and no evidence. It
// is added if the request is for a listed agent ([egress.WithPurpose]) and goes to an origin that the operator wrote
// for that agent: scheme, host and port. A redirect is not followed, and a card that names another host gets nothing.
//
// # Exchanged tokens
//
// With RFC 8693 a token is one caller's, for one token that the caller showed: a caller who comes with another token,
// of other scopes, gets no token that the first one was exchanged for. What the gateway asks an agent for itself (its
// card, its lists) is known to all callers, so it shows a token of the gateway's own (RFC 6749, section 4.4).
//
// # Bounds
//
// There are at most 4,096 tokens of callers, of 8 MiB together, and 16 of one caller; the token that was used least
// recently is dropped for another. A token is at most 8 KiB, an answer of a token endpoint at most 64 KiB, and both it and a
// command have 10 seconds. After a failure there is one attempt a second per agent.
//
// # Alternatives considered
//
// golang.org/x/oauth2/clientcredentials sends the same form, but has neither private_key_jwt nor token exchange, reads
// answers by their own media type and quotes them in its errors, where a token could stand.
package credentials
