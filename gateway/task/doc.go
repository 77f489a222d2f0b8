// Package task answers messages about the tasks of callers (architecture section 9): from their
// records, or by asking the agent.
//
// Read query.go first. subscription.go tells a caller of work that goes on elsewhere, from its record.
// input.go is the message that answers what a task asks, and the questions of the gateway's own: which
// tool is meant, and with which arguments.
// exchange.go is the port to the pipeline, which carries such a message. failover.go goes on with tasks
// of replicas that are lost, for as long as a webhook is told of them. Package store, below, keeps the
// records, and package execution does the work.
package task
