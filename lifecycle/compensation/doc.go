// Package compensation says how the work of a tool is undone by another call of the same agent, for agents that
// know nothing of rollback (R22). An operator writes a [Rule]; [Template.Fill] makes the arguments of the undoing
// call from the arguments of the call, from its result, and from what a [Reading] returned before it.
//
// It is pure: it makes no calls. All values are JSON text: numbers and strings stay as they are written.
//
// Read rule.go for what an operator writes, template.go for references, fill.go for how they are filled.
//
// Alternatives considered: a template language with expressions (what an undo needs are values at places, and an
// expression can fail in more ways); trees of decoded values (they take many times the memory of their text, which
// agents and callers choose).
package compensation
