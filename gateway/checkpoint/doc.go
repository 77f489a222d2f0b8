// Package checkpoint makes and keeps checkpoints: what is needed to undo the consequential actions of workflows (ATD,
// Checkpoint Mechanism; R22). What an agent has done cannot be put back by the gateway itself, so what it keeps of a call is
// the plan to undo it: the agent's own rollback, or the compensating call that the operator configured for the tool,
// with the arguments that come from the call, its result, and what was read before it. An agent that makes checkpoints
// itself deposits its state here; the gateway does not look into it.
//
//	sign      the atd:checkpoint, whose parent is the token of the action
//	store     token and state, sealed, in a store of their own; returns when they last
//	record    the token, and wait until it lasts
//	          now the action may leave
//	outcome   what of the call's result the plan needs, when the agent has answered
//
// A process that ends between two of these steps leaves a checkpoint without a record, which is not rolled back to: its
// action did not leave. One that ends before the outcome is stored leaves a checkpoint whose plan may lack what it
// needs: then a rollback says so, and a human is told.
//
// The state is nowhere but in its store: tokens, logs and errors have its hash alone.
//
// # What its bounds are worth as a weapon
//
// A workflow has a thousand checkpoints, one caller in it a quarter of them, and the last quarter is for callers that
// have few. So a member that fills its workflow stops only its own consequential steps. The rate is bounded per caller
// and workflow as well. What is refused was not sent to the agent.
package checkpoint
