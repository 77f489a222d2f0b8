// Package credential is how SLIM applications tell each other who they are:
// every message carries a token, and every control message a signature by the
// key that the token names. Nodes check neither; the other end does.
//
//   - credential.go: what a session needs of it, and the keys
//   - secret.go: tokens of all members that know one secret
//   - issued.go: JWTs and SPIFFE JWT-SVIDs that other code mints and judges
//
// A token is shown to every receiver and to every node on the way, and a message
// with data has no other proof: a party that has seen a token can send data in its name
// until it ends. Only control messages are bound to their key. For the rest a session
// relies on honest nodes, which TLS authenticates.
//
// A shared secret proves membership and not identity: any member may sign as
// any other, which is why its subject is never a caller of ours. Tokens of
// issuers come from outside this package: JWT libraries and the Workload API
// have their own package.
package credential
