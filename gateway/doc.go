// Package gateway is the roof: the road that every message takes.
//
// Read exchange.go first; it is the whole way of one message on one screen.
// stages.go holds the steps before translation (limit, evidence, destination,
// policy), choose.go what a message is for and which dialogue it belongs to,
// leg.go one leg of translation (decode, stamp, encode, judge, sign, record),
// repeat.go the same answer to the same message, failure.go what is left behind
// when it goes wrong.
//
// Data moves forward only. Order is kept by proof-carrying values rather than
// by care: a leg demands a policy.Permit, which only policy.Evaluate mints from
// ect.Verified values, and nothing leaves without a transport.Sealed, which
// only exists for bytes that a recorded ECT covers.
package gateway
