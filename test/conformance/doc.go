// Package conformance holds the gateway's MCP door to the official conformance
// suite: the SDK's own test server stands behind a development gateway, and the
// suite knocks at the door. Whatever the suite sees, it sees through the gateway.
//
// Every scenario that is scored for a revision must pass. Those that cannot are
// listed in baseline.txt with the reason; one that is listed and passes fails
// the test, so that the list never says too much.
//
// How to read it: suite_test.go is the test, peers_test.go what it starts.
//
// Alternative considered: the suite's own baseline option. It does not say why
// a scenario is excepted, and knows one set at a time.
package conformance
