// Package e2e tells what a user does with the two programs, from the outside:
// what is typed, what is printed, which files appear, with which code it ends.
//
// The stories are scripts in testdata, one for each thing that people come for;
// the commands of the README and of docs are stories too, made from their code fences. They run
// the real binaries, which are built once, race detector and all if the tests
// have it. The agents are those of the demo, run by the test.
//
// The evidence that the demo prints is judged by offline_test.go, which knows the
// trust bundle, a JWT library and nothing of ours.
//
// How to read it: testdata first. e2e_test.go builds and runs, world_test.go has
// the words that the stories use beyond testscript's own; agents_test.go,
// serve_test.go and docs_test.go are the agents, the production gateway and the
// pages behind them. demo_test.go reads what the demo prints.
//
// What only several replicas can show is tested without stories: replicas_test.go runs them
// over one Redis, dialects_test.go calls them in every protocol by hand, without a SLIM node
// (test/slim has one), and worker_test.go is the agent. lifecycle_test.go and
// lifecycle_kill_test.go retire agents, breaker_test.go has one fail.
//
// Alternative considered: calling the commands' functions in the test process.
// That is faster, but exit codes, signals, standard streams and file modes are
// what a user meets, and they would go untested.
package e2e
