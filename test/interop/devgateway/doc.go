// Package devgateway runs the real binary for whole-system tests and
// measurements: it builds aepb-gateway, starts `aepb-gateway dev` on free ports,
// waits for its ready lines, adds agents through the admin API and stops it with
// SIGTERM. It runs `aepb-gateway serve` as well, and ends it as a crash would.
//
// It knows the gateway as an operator does, from outside: command line, ready
// lines, files of the development directory, HTTP. It imports none of the
// project's packages, so that what it proves does not depend on them.
//
// How to read it: programs.go builds, process.go is the process, serve.go that of production,
// admin.go what is said to it; certs.go reads the development CA and issues
// certificates to peers, front.go is a proxy that stands in front of one.
//
// Alternative considered: starting the gateway inside the test process. That is
// faster, but then CPU and memory cannot be told apart from the clients', and
// wiring, flags, files and signals would go untested.
package devgateway
