// Package crowd is the act of command abuse in which 4,096 callers without an identity
// send one public request each and keep their connection open. They come from 12 addresses
// to a gateway with the default limits, and from one address to a gateway with
// connections_per_address: 0, which is the setting behind a load balancer. A caller whose
// connection ends opens another one. The same happens at listen.metrics, where half of the
// callers send a request and half send nothing.
//
// Meanwhile a caller with a certificate opens a new connection for each of its calls, from
// its own address and from one of the attackers' addresses. New connections also come from
// one more caller without an identity, and from clients that request what probes and
// Prometheus request. These are violations: a new connection that fails; an answer other
// than 200; more than 192 MiB resident; and too few attackers, since the test then proves nothing.
//
// How to read it: crowd.go has the attackers, which run in the attacking process; visits.go
// has the new connections; judge.go finds the violations.
//
// Alternative considered: one more attack beside the others. With the default limits these
// callers would take the connections of the other attacks, which would then prove less, and
// their memory could not be told from that of the others.
package crowd
