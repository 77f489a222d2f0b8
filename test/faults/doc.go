// Package faults puts a proxy between the real gateway and agents built with the
// official SDKs, and lets it spoil what they answer: each fault must reach an
// unmodified SDK client as the documented error, in the client's own protocol and
// within the agent's time limit, and never as a success.
//
// What an agent may say wrong is told message by message in cmd/aepb-gateway; here
// it is the connection that fails, below the protocols, and the listener is an SDK.
//
// How to read it: bed_test.go starts everybody, proxy_test.go spoils, unary_test.go
// and stream_test.go say what must come of it.
//
// Alternative considered: spoiling packets below TLS. That is one fault, a broken
// connection, in many forms; those that matter are made after TLS.
package faults
