// Package crowd is the act of command abuse in which 4,096 strangers ask one public
// thing each and stay: from 12 addresses of a gateway with the default limits, and
// from one address of a gateway with connections_per_address: 0, as it is behind a load
// balancer. A stranger whose connection ends opens another one. So do strangers at
// listen.metrics, half of whom ask and half of whom say nothing.
//
// Meanwhile a caller with a certificate makes each of its calls on a new connection,
// from an address of its own and from one of the strangers'; one more stranger asks on
// new connections, and so do those who ask for what probes and Prometheus ask for. These
// are violations: a connection that did not come in; an answer other than 200; more than
// 192 MiB resident; and strangers who were too few for anything to be proved.
//
// How to read it: crowd.go are the strangers, who run in the attacking process; visits.go
// are the new connections; judge.go decides.
//
// Alternative considered: one more attack beside the others. With its gateway's default
// limits, these strangers would push out the connections that the other attacks hold,
// so that those proved less; and memory that the others take could not be told from
// theirs.
package crowd
