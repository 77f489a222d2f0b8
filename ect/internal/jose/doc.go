// Package jose parses untrusted tokens strictly, and signs and verifies.
// Everything of ours that takes a JWT (execution context tokens, workload
// identity and proof tokens, JWT-SVIDs) stands on it, so that there is one
// place where a spelling, an algorithm or a key is found acceptable.
//
//   - json.go: JSON objects by exact member name, none of them twice
//   - token.go: the compact form, and the header and claims of an ordinary JWT
//   - algorithm.go: which algorithm goes with which key; signatures
//   - key.go: JSON Web Keys, sets of them, thumbprints
//
// Nothing here says who is trusted: a key that can be read is just a key.
//
// # Alternatives considered
//
// The signature library's own Parse reads claims into Go maps and floats, lets
// the last of two equal names win and accepts several spellings of one token;
// it is used to compute and check signatures only. A second JOSE library, as
// go-spiffe's JWT packages bring along, would have a second opinion on all of
// that.
package jose
