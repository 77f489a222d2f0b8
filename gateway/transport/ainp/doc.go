// Package ainp carries AINP envelopes over HTTPS, one POST for a message and
// its answer.
//
// The draft fixes no transport; its reference broker takes an envelope, says
// "routed" and delivers the RESULT later as a message of its own. Here the
// RESULT is the response to the POST: a gateway's caller waits anyway. An agent
// that only says "routed" is a bad reply; delivery through a broker would be
// another dialer beside this one.
//
// did.go finds the keys of a DID (did:key, did:web), verify.go judges an
// envelope (freshness, signature, replay, in this order: a stranger's key is
// not fetched for a message that is too old), sign.go puts evidence and
// signature into one that leaves. serve.go is the door, dial.go the way out.
//
// Who a caller is, policy asks by SPIFFE id. A DID stands for one where the
// operator says so (DoorDeps.Identity); any other DID proves that the message
// is whole and no more, and its caller is whoever the connection says.
//
// A signature is accepted under either reading of the draft (package
// translators/ainp, SigProfile), and answered under the one it came in.
package ainp
