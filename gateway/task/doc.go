// Package task answers for the tasks of callers (architecture section 9). failover.go goes on
// with tasks of replicas that are lost, for as long as a webhook is told of them. Package
// store, below it, keeps the records.
package task
