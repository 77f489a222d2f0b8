// Package e2e tests what a user does with the two programs: which commands are typed,
// what is printed, which files appear, and which exit code ends them.
//
// The tests are scripts in testdata, one for each task of a user; the commands of README
// and docs are made into scripts too, from their code fences. They run the real binaries,
// which are built once, with the race detector if the tests have it. The test runs the
// agents of the demo.
//
// offline_test.go checks the evidence that the demo prints with the trust bundle and a JWT
// library, without any package of ours.
//
// How to read it: testdata first. e2e_test.go builds and runs, world_test.go has
// the commands of the scripts beyond testscript's own; agents_test.go,
// serve_test.go and docs_test.go have the agents, the production gateway and the
// pages. demo_test.go reads what the demo prints.
//
// Tests that need several replicas are no scripts: replicas_test.go runs the replicas
// over one Redis, dialects_test.go calls them in every protocol by hand, without a SLIM node
// (test/slim has one), and worker_test.go is the agent. lifecycle_test.go and
// lifecycle_kill_test.go retire agents, in breaker_test.go an agent fails.
//
// Alternative considered: calling the commands' functions in the test process.
// That is faster, but it leaves exit codes, signals, standard streams and file modes
// untested, and users see those.
package e2e
