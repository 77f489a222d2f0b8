// Package devgateway runs the real binary for tests and measurements of the whole
// system: it builds aepb-gateway, starts `aepb-gateway dev` on free ports,
// waits for its ready lines, adds agents through the admin API and stops it with
// SIGTERM. It also runs `aepb-gateway serve`, and can kill it like a crash.
//
// It uses the gateway as an operator does: command line, ready lines, files of the
// development folder, HTTP. It imports none of the project's packages, so its results
// do not depend on them.
//
// How to read it: programs.go builds, process.go is the process, serve.go that of production,
// admin.go has the requests to it; certs.go reads the development CA and issues
// certificates to peers, front.go is a proxy in front of a peer.
//
// Alternative considered: starting the gateway inside the test process. That is
// faster, but CPU and memory could not be told apart from the clients', and
// wiring, flags, files and signals would stay untested.
package devgateway
