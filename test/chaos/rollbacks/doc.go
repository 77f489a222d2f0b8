// Package rollbacks kills gateways while they make checkpoints and while they roll back, and checks that each rollback
// ends with one result, which says what was undone. It is an act of test/chaos.
//
// Four groups run at the same time. Three of them: two gateways over one Redis, one gateway over a file, and two gateways over
// a cluster of Redis. In each round a few workflows begin at one gateway, and that is killed (SIGKILL) at a random
// time after the first of them has reached a phase; in the third group a master of Redis is killed instead, and
// its replica takes over:
//
//	checkpointing  a call is sent to the gateway
//	calling        the agent has a call, and has not answered yet
//	rolling        a rollback request is sent to the gateway
//	undoing        the agent has a compensating call, and has not answered yet
//
// The agent is an MCP server that books rooms and knows nothing of rollback: the configuration says which calls undo
// its calls. What is canceled or renamed once more stays as it is. A workflow books and renames twice, one call after
// the other. A call without an answer is sent again as it is; if that brings no answer, the workflow has no more
// calls. Most workflows are then rolled back, from their first or a later checkpoint, with a request that the
// caller signs.
//
// The fourth group is two gateways over one Redis with a policy document that has atd.cascade: a failure undoes what led
// to it, and no caller asks for that. A workflow books a finished branch, sends a mail that cannot be undone, books,
// reserves at an agent that rolls back itself, and fails to pay. The gateway that carries the rollback is killed at each place of the table in failure.go. The end is the
// same each time: the reservation and the booking are undone, the finished branch stays, the workflow is paused until an approver
// grants what cannot be undone, and then goes on.
//
// These rules must hold. A call is done at most once. A request has one result, also when it is sent again, to each
// replica. The bookings are as the results say: what a completed rollback covers is undone, nothing else is, and
// nothing is undone whose workflow was not rolled back. A compensating call that comes again comes with the same token
// and the same bytes. The evidence verifies, and the results are on record.
//
// How to read it: play.go has the course of the act, hotel.go and dock.go the agents, failure.go and failure_judge.go the fourth group; package fleet runs the gateways; trip.go is what callers
// do; judge.go decides.
//
// Alternative considered: a store that fails at each write (gateway/rollback_test.go). It reaches each write, and nothing
// between them, no process and no real store.
package rollbacks
