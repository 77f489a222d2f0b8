// Package idempotency keeps what was replied to a message with an ECT, so that a
// byte-identical repetition gets the same reply and the same ECTs (R6).
//
// [Store] is what it needs of the state; [Reply] is a reply as it is stored. The format
// is a sequence of texts, each behind its length ([AppendTexts]), then the body: a reply
// is stored for each message, and JSON would quote the body once more.
package idempotency
