// Package slimnode runs a SLIM node for measurements and puts processes on it. The
// node is the published software of SLIM's makers, which test/slim/js keeps; the
// way to it is the gateway's own packages of the wire, since there is no SLIM
// library for Go.
//
// How to read it: node.go is the node's process, member.go one of ours on it.
//
// Alternative considered: a node played in Go, as tests of the transport have it.
// What a message costs there says nothing about what it costs on SLIM.
package slimnode
