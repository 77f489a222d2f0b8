// Package checkpoint says what needs a checkpoint, and reads and writes what an atd:checkpoint says (ATD,
// Checkpoint Mechanism; R22).
//
// # When a checkpoint is needed
//
//	the message                                           needs one
//	begins no work (polls, cancellations, signals)        no
//	policy demands a checkpoint before it                 yes
//	is in no workflow that has a start on record          no
//	the agent says that the tool destroys or changes      yes
//	the operator says that the tool only reads            no
//	anything else                                         yes
//
// What an agent says of its own tools can only make the gateway more careful: a tool that the operator calls
// read-only and the agent destructive is not read-only, and one that the agent alone calls read-only is not either.
//
// # Groups
//
// A checkpoint whose parents are checkpoints groups them (ATD, Hierarchical Checkpoints): to roll it back rolls all of
// them back. Whether a parent is one is known to those who have the workflow's tokens ([Checkpoint.Parents]).
package checkpoint
