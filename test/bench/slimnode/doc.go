// Package slimnode runs a SLIM node for measurements and connects processes to it. The
// node is the software that SLIM's makers publish, installed in test/slim/js. There is
// no SLIM library for Go, so processes use the gateway's own packages of the wire.
//
// How to read it: node.go is the process of the node, member.go a process connected to it.
//
// Alternative considered: a fake node in Go, as the tests of the transport have it.
// The cost of a message there says nothing about its cost on a real node.
package slimnode
