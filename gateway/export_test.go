package gateway

import (
	"fmt"

	"github.com/aepb/aepb-gateway/gateway/task/execution"
	"github.com/aepb/aepb-gateway/translators/canonical"
)

// CheckExecutions holds, from now on, the state of each execution against what its other
// fields say, before each step.
func (g *Gateway) CheckExecutions(fail func(string)) {
	g.probe = func(r *run) {
		if err := r.machine.Wrong(); err != nil {
			fail(err.Error())
		}
		if is, also := r.observed(); !r.x.verbatim() && r.machine.State() != is && r.machine.State() != also {
			fail(fmt.Sprintf("the state is %s, and the fields say %s or %s (%s)", r.machine.State(), is, also, r.op))
		}
	}
}

// observed is the state that the fields show, of which some show two alike.
func (r *run) observed() (is, also execution.State) {
	switch {
	case r.machine.State().Final():
		return r.machine.State(), r.machine.State()
	case r.failure != nil, r.other != nil, r.complete() && !r.asked():
		if r.stream != nil && r.ask == nil {
			return execution.Closing, execution.Closing
		}
		return execution.Settled, execution.Settled
	case r.asked():
		return execution.Input, execution.Input
	case r.op == canonical.OpTaskSubscribe && !r.blind:
		return execution.Subscribed, execution.Subscribed
	case r.op == canonical.OpTaskSubscribe, r.op == canonical.OpTaskGet:
		return execution.Polling, execution.Fetching
	case r.op == canonical.OpTaskResult:
		return execution.Fetching, execution.Fetching
	case r.stream != nil:
		return execution.Streaming, execution.Streaming
	}
	return execution.Sent, execution.Streaming
}
