// Command cluster runs the gateway as deploy/compose does, as processes on one machine:
// three replicas, a Redis, an A2A agent, an MCP server, a TCP load balancer and, where
// Prometheus is installed, Prometheus with the alerts of deploy/. The configuration is
// that of the replicas in a cluster; only ports, host names and folders are replaced.
//
//	cluster [--config FILE]           run all until it is interrupted
//	cluster setup DIR                 write certificates, keys and passwords to DIR
//	cluster agent DIR NAME HOST:PORT  run one demo agent: concierge (A2A) or calculator (MCP)
//
// The last two are what the containers of deploy/compose run.
package main
