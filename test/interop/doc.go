// Package interop tests the gateway with software of others: unmodified SDK clients on one
// side, servers built with SDKs on the other, and the real gateway binary between them, in
// Go and JavaScript, with MCP before 2026-07-28 and since.
//
// verify_test.go checks the evidence. It knows ECTs from the drafts alone, and uses
// golang-jwt, crypto/x509 and SHA-256, and none of our packages.
//
// How to read it: gateway_test.go starts the gateway and its peers, wire_test.go records
// the messages on the wire, js_test.go runs the clients in js/. The scenarios are
// a2a_test.go (A2A callers of MCP servers) and mcp_test.go (MCP callers of an A2A agent).
// direct_test.go runs the JavaScript clients without the gateway, so a failure elsewhere
// comes from the gateway. oauth_test.go has clients with tokens of a real authorization server, in
// JavaScript and Python. fidelity_test.go calls everything that an agent can do, from
// every protocol to every other one, and logs a table of the results. questions_test.go
// judges the workflows of questions and their answers, at one gateway and over two.
//
// # Features by SDK
//
// features_a2a_test.go and features_mcp_test.go have both SDKs of a protocol do the
// same, at agents of A2A and of MCP before and since 2026-07-28, and expect the same results.
// Below, a means features_a2a_test.go (over JSON-RPC and HTTP+JSON), m means
// features_mcp_test.go (in 2026-07-28 and 2025-11-25), q means mcp_asks_test.go, n
// means mcp_native_test.go, f means the fidelity tests, and - that the protocol has
// no such thing.
//
//		feature                                  A2A Go  A2A JS  MCP Go  MCP JS
//		asked: accept                            a f     a       m f     m
//		asked: decline                           a f     a       m f     m
//		asked: cancel                            a       a       m       m
//		an answer that does not fit, asked again a       a       m (1)   m (1)
//		URL questions, sampling, roots           -       -       q       q
//		webhook with a message, its posts        a       a       -       -
//		webhook set, get, list, delete           a       a       -       -
//		subscribed while work goes on            a f     a       -       -
//		subscribed too late                      a (2)   a (2)   -       -
//		first event is the task                  a       a       -       -
//		appended parts stay one text             a f     a       m f     m
//		progress                                 f       a       m f     m
//		log messages                             -       -       n       m
//		list_changed                             -       -       n       m
//		tools/list by capabilities               -       -       m       m
//		canceled requests                        -       -       m f     m
//		subscriptions of resources               -       -       n       m
//		tasks of MCP                             -       -       no API  no API (3)
//		extended card                            a       a       -       -
//		agent without skills                     a       a       m       m
//		card of one version                      a       a       -       -
//		arguments that do not fit, as a result   -       -       m       m
//		unknown tool                             a (4)   a (4)   m       m
//		filters of ListTasks, unreadable         a (5)   a       -       -
//
//	 1. Go's SDK refuses wrong values itself, so the answer is an accept without any.
//	    Between two of one revision it is relayed: the server has to judge it.
//	 2. a2a-go's server says TASK_NOT_FOUND where A2A 1.0 (3.1.6) wants
//	    UNSUPPORTED_OPERATION, and is relayed to callers of its own form.
//	 3. Go's SDK has no tasks. Version 2 of the JavaScript one has their types and no
//	    method of its client; fidelity_tasks_test.go plays both, and test/conformance runs
//	    version 1, which has.
//	 4. Over HTTP+JSON both SDKs take SKILL_NOT_FOUND, a reason that is not A2A's, for an
//	    internal error.
//	 5. But statusTimestampAfter, no API: it is a time.Time.
package interop
