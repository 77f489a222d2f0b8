// Package statetest is the contract of every driver of gateway/state, as a
// test: what is kept and for how long, what happens when there is no room, what
// concurrent callers may rely on, and, for a driver that outlives its process,
// what a restart must bring back. It holds what is declared nowhere else, and
// runs the suites of package ect/ecttest with it.
//
// Read suite.go first: a driver is tested with one call of [Run]. There is one
// file per kind of state, and durable.go for restarts.
//
// Alternatives considered: tests beside each driver (two drivers would drift
// apart one case at a time, and the pipeline would notice in production); a fake
// clock in the harness (testing/synctest moves the real one, and the goroutines
// of a driver with it).
package statetest
