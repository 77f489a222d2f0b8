// Package conformance holds the gateway's MCP door to the official conformance
// suite: the SDK's own test server stands behind a development gateway, and the
// suite knocks at the door. Whatever the suite sees, it sees through the gateway.
// So does the suite of the tasks extension, with a server of our own behind the
// door (package tasked), and once more the whole suite with an A2A agent there,
// which is what it tells of the mapping.
//
// eras_test.go has the one SDK that speaks the tasks of 2025-11-25, the JavaScript
// one, work with those of the extension, and its servers with clients that know of
// none. A server that asks on the stream of its session, and not on the one of the
// outcome, is heard by clients that have such a stream: those before 2026-07-28.
//
// Every scenario that is scored for a revision must pass. Those that cannot are
// listed in baseline.txt with the reason; one that is listed and passes fails
// the test, so that the list never says too much.
//
// How to read it: suite_test.go is the test, tasks_test.go that of the tasks
// extension, agentsuite_test.go that over A2A; peers_test.go and agent_test.go
// are what they start.
//
// Alternative considered: the suite's own baseline option. It does not say why
// a scenario is excepted, and knows one set at a time.
package conformance
