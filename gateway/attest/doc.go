// Package attest is the one place in which the gateway signs and verifies evidence of an
// execution (AEPB, Gateway as DAG Node; architecture section 5, steps 7b to 13). Nothing
// may be forwarded or answered without the receipt that [Service.Translate] returns (AEPB,
// Gateway Requirements item 3).
//
// service.go is what a service is built from and the one place that signs; trail.go is what
// is known of one execution; translation.go, stream.go, failure.go, negotiation.go and
// refusal.go are the kinds of tokens of ours; receive.go is the tokens of others.
//
// # Alternatives considered
//
// To sign where a message is made is what this replaces: five places signed, and each of
// them had to know of dialects, members and metrics. A value that goes through all steps
// instead of a [Trail] would be copied into every goroutine that works on one execution,
// and what one of them learned would be lost to the others.
package attest
