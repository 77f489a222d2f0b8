// Package dataplane holds the messages between a SLIM application and its node,
// generated from dataplane.proto beside it: protoc 3.21 with protoc-gen-go of
// the version that go.mod names for google.golang.org/protobuf,
//
//	protoc --go_out=. --go_opt=paths=source_relative dataplane.proto
//
// There is no published Go form of these messages, so the file is our own,
// written from the field numbers that SLIM 2.x and 3.x nodes use. Extensible messages
// keep unknown fields, and nodes may add some, so nothing here is compared
// byte by byte with what a peer sent.
//
// The one gRPC method is called by name in package link: a generated client for
// one stream would be longer than the stream's use.
package dataplane
