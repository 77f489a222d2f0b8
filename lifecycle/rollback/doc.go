// Package rollback plans rollbacks to checkpoints, and says how far each one is (ATD, Rollback Protocol; R22, R26). It is
// pure: [Make] plans, [Journal] is a rollback under way, and [ParseResult] reads what an agent answers. Its caller signs,
// sends and stores.
//
// # What is undone
//
//	target      the checkpoint that the request names; if it groups others, those too, and what these group
//	action      a parent of a checkpoint that is no known checkpoint; a checkpoint without one has nothing to undo
//	downstream  a checkpoint with an action that descends from an action of a target
//
// Targets are undone, and with atd.cascade what is downstream. What was undone before is left out. A checkpoint that has
// ended is for a human, as one that cannot be undone. If the request names one checkpoint that cannot be undone, that is
// the whole plan: a human decides.
//
// The order is that of the actions, backwards: what was built on an action is undone before it.
//
// # What is in the way
//
// A step of the workflow (R26) is undone with a checkpoint if it is the first at or above its action, or if it is the
// agent's own task node for the action: a token of one of Known.Acts that names the action as parent. It is not undone if
// a checkpoint downstream stays that holds its work, too.
//
//	a step that would be undone still runs                           RunningError
//	a step below a target, done or running, is not undone            DependsError; with atd.cascade it is in Plan.Stale
//
// # The branch of a failure
//
// A failure takes with it what led to it alone (ATD, Partial Rollback and Blast Radius Containment; AEPB, Translation Failure
// Handling): [BranchOf]. A step is in the branch if it failed, or is above a step that did, and if all of these hold:
//
//	it is of the caller whose action failed
//	it does not run
//	each of its checkpoints can be undone, has one parent, and holds the work of this step alone
//	every step below it is in the branch, was undone, or failed and left nothing to undo
//
// What an agent gave others as a part of a step goes along with the step: its own task node, and what the agent itself did
// after that alone, with the work of those to which it gave some of it. What another caller built on such a part stays. A
// part that runs, or cannot be undone, leaves the step where it is. That a step was undone is known by its checkpoints: its
// state is also what other members say.
//
// Roots are the checkpoints of the first steps of the branch. A rollback to each of them, with a cascade, undoes the branch
// and nothing else. Stuck are checkpoints that cannot be undone, of steps that would be in the branch otherwise: what is
// above them stays, until a human has decided.
//
// # The journal
//
// One step is undone at a time, in order. After a step that failed nothing more is sent: what is left is what the failed
// step was built on. Each row is an event; what the table does not have is a [StateError].
//
//	event      where it fits                                     what it changes
//	took       by another runner                                 the runner
//	paused     a review is wanted, and a step is left            the workflow is paused
//	released   a human looks                                     the review is over, and the steps begin
//	declined   a human looks, or a review is wanted              each step that is left is escalated
//	sent       the step is the next one, waiting, and in time    sent, with its request, first try
//	lost       the step is sent, fewer than 10 tries             one more try, with the same request
//	lost       the step is sent, 10 tries                        failed: what the agent did is not known
//	undone     the step is sent                                  completed
//	failed     the step is sent                                  failed
//	overdue    a step is left, and By has passed                 the atd:error; each step that is left is escalated
//	escalated  no step is left, one is for a human, first time   the atd:escalate
//	ended      no step is left, and a human knows if one has to  the result, the status and the time: the end
//
// A step with nothing to undo begins as skipped, and one that cannot be undone as escalated. An answer that comes after By
// counts if it comes before overdue. A review is wanted where a cascade reaches a critical step: no step is sent before it is
// over. At the end nothing fits any more. [Journal.Due] says what is next.
//
// The status is the first that applies.
//
//	completed  every step is completed or skipped
//	partial    a step is completed
//	failed     a step failed
//	escalated  otherwise
//
// # What follows
//
// An [Aftermath] is what follows from a failure, or from a rollback that left something to humans.
//
//	stage   event      what it changes
//	find    found      the branch is known; undo if it has roots, else ask if something is stuck, else over
//	find    refused    the branch is not known: the actions that failed are stuck: ask
//	undo    requested  the request for a rollback to the first root is signed
//	undo    restored   the first root is done; then as after found
//	undo    broken     the roots behind the first one are stuck: ask, or over
//	undo    refused    all roots that are left are stuck: ask
//	ask     called     the atd:escalate is signed that asks humans
//	ask     opened     answer
//	answer  answered   over
//
// # Alternatives considered
//
// Going on with other branches after a failure would undo more, and leave a state that no order explains: a human who
// looks at a failure finds everything below it undone and everything above it as it was. Sending several steps at once
// would be faster, and an answer that is lost would then leave more than one step unknown.
package rollback
