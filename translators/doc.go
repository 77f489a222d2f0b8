// Package translators is the form layer: what a message looks like in each
// protocol, and nothing else. No tokens, no policy, no network, no clock.
//
// A protocol is one folder with a [Translator]: Decode turns a native message
// into the canonical one, Encode turns it back into a native message of any
// other protocol. The list of protocols is explicit (cmd wires it into a
// [Registry]); nothing registers itself.
//
// Every translator passes the laws of package translatortest: honesty (what
// does not survive is declared), purity, totality, identity, correlation and
// errors. Losses are return values, never log lines.
package translators
