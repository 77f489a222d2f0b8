// Package oauth finds out who is calling from an OAuth 2.1 access token, and what the token
// permits.
//
// # How to read it
//
//   - issuer.go: an authorization server as the operator describes it, and what is wrong with that
//   - identities.go: from the claims of a token to one id; scopes.go: from its scopes to agents
//   - token.go: what a token says, judged without the network
//   - keys.go: the keys of an issuer; introspect.go: opaque tokens
//   - verifier.go: the way through a request; errors.go: every refusal
//
// # Rules
//
// A token that names a configured issuer is judged here and nowhere else: one that fails is refused,
// also beside a client certificate. No URL in a token is ever followed. A key is good for its own
// issuer. All ids lie under /oauth/NAME/ of our trust domain, so that no token gives the id of an
// SVID. No token stands in an error. While an issuer is away its last keys are used for a time
// that the operator sets; then tokens are refused as not judgeable now, never accepted.
//
// # Sources
//
// RFC 6750 (bearer tokens), RFC 7662 (introspection), RFC 8414 (metadata of servers), RFC 8707
// (resource indicators), RFC 9068 (JWT access tokens), RFC 9728 (metadata of resources), OpenID
// Connect Discovery 1.0, RFC 8725 (JWT best practices).
//
// # What real servers and clients do
//
// oidc-provider (test/interop) follows all of these, but an issuer with a path has its metadata below that path alone, where
// OpenID Connect has them; it binds a client that registers to the scopes that it names then, and
// MCP SDKs name those of the first challenge: with initial_scopes such a client cannot step up. After insufficient_scope
// the SDKs of 1.x ask for the scopes of the challenge alone, those of 2.x also for the ones they have. zitadel/oidc
// (test/oidc) has no metadata of RFC 8414, no resource indicators, and JWTs of the typ JWT for the client: it takes
// legacy_type and audiences.
//
// # Alternatives considered
//
// go-oidc reads discovery documents and key sets, and brings a second JOSE library, which takes
// the last of two equal members and tries every key of a token without a kid. Its key set asks the
// issuer for every unknown kid, so a stranger decides how often. It knows neither RFC 9068 nor RFC
// 8414.
package oauth
