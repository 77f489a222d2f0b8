// Package conversation names one dialogue on both sides of the gateway.
//
// An agent takes all callers of the gateway for one caller, and would let it into any
// dialogue. So a dialogue's id passes as it is only if the agent itself has given it
// to this caller (R2). Every other id may be another caller's, or forgotten, or the
// caller's own invention, which A2A allows: the agent is told an id that is made of the
// caller's name and that id. So no other caller can name the dialogue, and the id is
// the same each time, after a restart and at every replica.
//
// Read [Thread] first: it is where the dialogue of one message stands. [Store] keeps
// the workflow and the last ECT of each dialogue (R3).
//
// Alternative considered: a table of ids on both sides. It would have to be kept as
// long as any agent remembers a dialogue, which nothing bounds.
package conversation
