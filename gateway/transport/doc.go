// Package transport receives and sends native messages.
//
// Each protocol has a folder here with two halves. serve.go is the server side: it
// authenticates nothing and decides nothing, it turns a request into a [Call] for
// the pipeline and the pipeline's [Answer] into a response. dial.go is the client
// side: it sends a [Sealed] message to an agent through package egress, the only
// package that opens connections.
//
// What leaves is [Attested]: only [Attest] makes one, which demands the receipt of an
// execution context token whose out_hash covers exactly these bytes. A Sealed and the
// message of an Answer are made of it. The stream of an Answer is made of an [Opened], which
// demands the receipt of the token that opens it. So no message leaves before its evidence
// is recorded, and the compiler enforces that order (architecture section 4).
package transport
