// Package conformance runs the official MCP conformance suite against the gateway's MCP
// endpoint. Behind a development gateway runs the SDK's own test server, so the suite sees
// everything through the gateway. The suite of the tasks extension runs too, with a server
// of our own (package tasked). The whole suite runs once more with an A2A agent in place of
// the server, to check the translation.
//
// eras_test.go tests tasks between revisions with the JavaScript SDK, the one SDK that
// knows the tasks of 2025-11-25: its clients with servers of the extension, and its servers
// with clients that know no tasks. A server may ask its question on the stream of the
// session in place of the stream of the call. Clients before 2026-07-28 have such a stream.
//
// Every scenario that is scored for a revision must pass. Those that cannot pass are
// listed in baseline.txt with the reason. A listed scenario that passes fails the test,
// so the list stays exact.
//
// How to read it: suite_test.go is the test, tasks_test.go that of the tasks
// extension, agentsuite_test.go that over A2A; peers_test.go and agent_test.go
// have the servers and agents that they start.
//
// Alternative considered: the suite's own baseline option. It has no place for the reason
// of an exception, and knows one set at a time.
package conformance
