// Package approvals kills gateways while calls wait for humans, and checks that each call is sent once or never,
// and that its caller learns which. It is an act of test/chaos.
//
// Three groups run at the same time: two gateways over one Redis, one gateway over a file, and two gateways over
// a cluster of Redis. In each round a few calls begin at one gateway, and that is killed (SIGKILL) at a random time
// after the first of them has reached a phase; in the last group a master of Redis is killed instead, and
// its replica takes over:
//
//	parking    the call is sent for the first time
//	deciding   an approver decides about it
//	releasing  it was granted, and is on its way to the agent
//	answering  the agent has it, and has not answered yet
//
// Calls come over A2A and through the translate endpoint, whose callers get a task that waits, and over MCP, whose
// callers send the call again until it has a result. Of eight calls one is denied and one is not decided about. An
// approver that finds no answer asks the other gateway.
//
// These rules must hold. A call of a task is sent at most once; if its task is completed, once; if it was rejected,
// never; if it failed, its caller is told that it is not known, or that nothing was sent. A call over MCP is
// sent at most once for each approval that was consumed, and a result comes from the agent. No approval and no task
// waits longer than its rule says and a replica that is lost takes to be known as lost. The evidence of all workflows
// verifies, and each decision is the parent of one request at most.
//
// How to read it: play.go has the course of the act, agent.go the agent; package fleet runs the gateways; calls.go is what
// callers do, approver.go what approvers do; judge.go decides.
//
// Alternative considered: a simulated store that fails at each write (gateway/approval_lost_test.go). It reaches
// each write, and nothing between them, no process and no real store.
package approvals
