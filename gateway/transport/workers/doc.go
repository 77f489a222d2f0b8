// Package workers gives what comes in goroutines that have worked before.
//
// A message goes through the road on one goroutine, which takes some 30 KiB of
// stack: one that is new grows there in four steps and copies its stack in each
// (BenchmarkGo). Connections of HTTP/1 keep their goroutine; for the protocols that
// have many messages at once on one connection or node, [Group] keeps a few. They
// hold nothing of the work before, and are gone when the group is over.
//
// Alternative considered: a deep call at the start of each goroutine, which grows
// the stack in one step, but in each anew.
package workers
