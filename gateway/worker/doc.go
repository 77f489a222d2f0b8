// Package worker runs goroutines that have an owner.
//
// A [Group] runs background work: at most so many goroutines in all, and at most
// so many for one holder, so that one caller cannot take the places of others. Its
// owner closes it, which ends the work and waits for it.
//
// An [Evictor] ends a holder's oldest work of a kind that its caller cannot end, when the same holder
// has no place for more.
//
// A [Pool] keeps goroutines for work of the same kind. A message goes through the
// pipeline on one goroutine, which takes some 30 KiB of stack: a new goroutine grows
// there in four steps and copies its stack in each (BenchmarkPool_Go). Connections of
// HTTP/1 keep their goroutine; protocols with many messages at once on one connection
// or node use a Pool.
//
// Alternative considered for Pool: a deep call at the start of each goroutine, which
// grows the stack in one step, but in each goroutine again. For Group: errgroup, which
// bounds the number of goroutines, but not what one holder has of them.
package worker
