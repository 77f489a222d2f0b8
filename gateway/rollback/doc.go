// Package rollback takes rollback requests over HTTP, apart from the endpoints of agents
// (ATD, Basic Rollback): it finds the agent that a checkpoint concerns, and answers the same
// request with the same result.
package rollback
