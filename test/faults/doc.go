// Package faults puts a proxy between the real gateway and agents built with the
// official SDKs. The proxy spoils the answers of the agents. Each fault must reach an
// unmodified SDK client as the documented error, in the client's own protocol and
// within the agent's time limit, and never as a success.
//
// Tests in test/negative have the wrong messages of agents, one by one; here the
// connection fails, below the protocols, and the client is an SDK.
//
// How to read it: bed_test.go starts the processes, proxy_test.go spoils, unary_test.go
// and stream_test.go say what the client must get.
//
// Alternative considered: spoiling packets below TLS. That is one fault, a broken
// connection, in many forms; the faults that matter happen after TLS.
package faults
