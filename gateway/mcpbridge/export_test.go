package mcpbridge

// Address is what a URI names, as parse reads it.
type Address struct {
	Agent, Task, Artifact string
	Part                  int
}

// Parse is parse.
func Parse(uri string) (Address, bool) {
	a, ok := parse(uri)
	return Address{a.agent, a.task, a.artifact, a.part}, ok
}
