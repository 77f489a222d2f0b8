// Package a2aproto holds the messages of A2A 1.0 in protobuf, generated from
// a2aproto.proto beside it: protoc 3.21 with protoc-gen-go of the version that
// go.mod names for google.golang.org/protobuf,
//
//	protoc --go_out=. --go_opt=paths=source_relative a2aproto.proto
//
// The official libraries hold these messages too; they are peers here, and no
// part of the gateway. The service in the file says which message belongs to
// which method; no client is generated for it.
package a2aproto
