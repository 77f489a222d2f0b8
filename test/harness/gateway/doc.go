// Package gatewaytest runs, for tests, a gateway in the process: with real TLS listeners, with agents behind it and
// callers of every kind before it, and with what judges its answers and its evidence. [NewFixture] starts one with
// server.Build.
package gatewaytest
