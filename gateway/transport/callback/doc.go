// Package callback tells the decisions of humans to those who wait for them
// (AEPB, HITL Callback Registration): an HTTPS POST with the decision's ECT in
// Execution-Context, through the guarded way out, as often as it takes within
// bounds. The ECT is the message; its jti tells a repetition. [Post] posts webhooks of A2A
// tasks too.
//
// Alternatives considered: the webhooks of A2A tasks (a decision is about a
// workflow and no task, and its receiver may speak any protocol).
package callback
