// Package workflow says how far a workflow is: which of its tokens are steps, in which state each step
// is, whether the workflow has ended and how, and whether a next task may start (ATD, Execution Semantics
// and Node States; R26, R28).
//
// It is pure: [New] makes a [Run] of tokens, which its caller has verified and loaded. Nothing is stored:
// the states follow from the tokens alone.
//
// # Steps
//
// A step is a token of one of three kinds; every other token annotates.
//
//	task     an act outside aepb: cpat: atd: hitl: consensus_
//	intent   aepb:intent, unless a task node is among its parents
//	request  the request of a translation, unless a task node, an intent, another request, a rollback
//	         request or result, or a decision is among its parents: its caller brought no token
//
// An annotation belongs to each step that can be reached from it, along par, through annotations alone. A
// parent that is not on record leads to no step. An error, an escalation, a reply, a completion and the result of a
// rollback count only if their issuer issued one of their parents or is in its audience: another member of the
// workflow cannot spoil a step.
//
// # States
//
// The first that applies counts.
//
//	rolled_back  a checkpoint that belongs to it is named by an atd:rollback_result with atd.status completed
//	escalated    an atd:escalate belongs to it
//	failed       an aepb:translate_error belongs to it, or an atd:error whose severity is neither info nor warning
//	done         one of these:
//	             the reply of a unary exchange (no task that has not ended), the token that closes a stream, or an atd:workflow_complete belongs to it;
//	             a task node of another issuer is next below it, through annotations or directly;
//	             an atd:workflow_complete names a start above it as parent, and the step is not younger;
//	             for a task: no request and no intent belongs to it, and a task node of its issuer names it as parent
//	running      otherwise
//	pending      a node of the descriptor that no step begins
//
// Replies and requests that lie below a rollback request, a rollback result or a decision are about that
// signal, and complete nothing above it. The token that opens a stream, checkpoints, negotiations and
// requests complete nothing.
//
// A step begins a planned node with its act, and with its agent as issuer, in its audience, or in that of a request for it
// which its addressee signed; an intent or a
// request does so with aepb.work, and with its agent in its audience or aepb.work_agent; without aepb.work by its agent
// alone. A node without an agent is begun by its act. Each step begins one node, and each node begins once: of several
// that fit the first whose predecessors have all begun, else the first.
//
// # Ends
//
// A workflow has ended when no step is running or pending, or when a step failed to which no reversible
// checkpoint belongs. Pending steps are not waited for once a step failed, was rolled back, or was escalated.
// A last step is one below which there is no other. The first row that applies counts.
//
//	escalated    a step is escalated
//	success      every last step is done
//	partial      some of the last steps are done
//	rolled_back  a step is rolled back, and no last step failed
//	failed       otherwise
//
// # Several issuers of one id
//
// Each token is a step of its own, or annotates. Tokens below the id belong to all of them, and a task
// that names the id as parent waits for its issuer's own, else for all of them.
//
// # Alternatives considered
//
// States that are stored and changed by events would have to agree among replicas, and with tokens that
// arrive late or from other gateways. A set of steps per annotation is simple, and of quadratic size in
// hostile graphs; facts that flow from annotations up to steps need one visit per new fact.
package workflow
