package gateway

// CheckExecutions holds, from now on, the state of each execution against what came of it, before
// each step.
func (g *Gateway) CheckExecutions(fail func(string)) {
	g.executions.Check(func(err error) { fail(err.Error()) })
}
