package execution

import (
	"fmt"
	"slices"
)

// State is how an execution stands.
type State uint8

// The states. Those from Completed on are final.
const (
	Sent       State = iota // the request is on its way, or was answered without a stream and without an outcome
	Streaming               // the agent answers with a stream
	Subscribed              // the agent is to tell what changes in its task
	Polling                 // the agent is asked again and again how its task stands
	Fetching                // the agent's task has ended, and the agent is asked what came of it
	Input                   // the agent waits for answers
	Closing                 // all was heard but the token that closes the agent's stream
	Settled                 // the outcome is known
	Canceling               // the agent is being told to stop
	Completed               // with an outcome of the agent's, which may be a failure of its own
	Failed                  // without an outcome
	Canceled                // as its caller wanted
	Released                // the agent's task goes on, and is not followed here any more
	Overtaken               // another has ended its record
	states
)

var stateNames = [states]string{
	"sent", "streaming", "subscribed", "polling", "fetching", "input", "closing", "settled", "canceling",
	"completed", "failed", "canceled", "released", "overtaken",
}

func (s State) String() string { return stateNames[s] }

// Final reports whether nothing follows.
func (s State) Final() bool { return s >= Completed }

// Event is what happens to an execution.
type Event uint8

// The events.
const (
	StreamOpened   Event = iota // the agent begins to answer with a stream
	Update                      // the agent tells what changes, or that its task is at work
	Outcome                     // the agent tells what came of it
	AgentAsks                   // the agent asks
	ResultApart                 // the agent's task has ended, and what came of it is asked apart
	CallAgain                   // the agent wants the call once more, with a state
	TaskDemanded                // the agent does as a task what it was asked for, or not at all
	Quiet                       // the agent has ended its answer without an outcome
	Broke                       // the connection broke off, or the agent was silent for too long
	Refused                     // the agent does not tell what changes in its task
	StreamClosed                // the token that closes the agent's stream was judged, or none comes
	Answered                    // answers were given to the agent
	AnswerRefused               // what the caller gave is no answer, and the agent was told so
	Deadline                    // the caller's time is over
	Cancel                      // the caller wants it ended
	AgentStopped                // the agent was told to stop, or needs not be
	Dropped                     // it cannot be followed any more: this process ends, or an error came in between
	EndedElsewhere              // the record says that it has ended
	Unchanged                   // the agent's task has not changed for as long as is allowed
	Saved                       // the outcome is on record
	Unsaid                      // what came cannot be told, or proves nothing
	events
)

var eventNames = [events]string{
	"stream opened", "update", "outcome", "asked", "result apart", "call again", "task demanded", "quiet", "broke", "refused",
	"stream closed", "answered", "answer refused", "deadline", "cancel", "agent stopped", "dropped", "ended elsewhere", "unchanged",
	"saved", "unsaid",
}

func (e Event) String() string { return eventNames[e] }

// Facts are what a transition depends on besides state and event, as bits.
type Facts uint8

// The facts.
const (
	AgentTask    Facts = 1 << iota // the agent has named a task, by which it can be asked
	CanSubscribe                   // it tells what changes in it
	StreamOpen                     // what the agent has said is a stream whose end is not proven yet
	Asking                         // the agent waits for an answer, or for one more
	AnswersApart                   // the agent takes answers apart from calls, and then is asked about its task
	Stubborn                       // the agent broke off too often in a row
	Fetches                        // the agent is being asked what came of its task
	facts        = iota
)

// ImpossibleError: the event cannot happen in the state. One of both is told wrongly.
type ImpossibleError struct {
	State State
	Event Event
}

func (e *ImpossibleError) Error() string {
	return fmt.Sprintf("execution: %q cannot happen to one that is %s", e.Event, e.State)
}

// row is one transition. Of those that fit, the first counts.
type row struct {
	from []State
	on   Event
	when Facts // which must all hold
	to   State // same: the state stays
}

// same stands for the state itself, as the end of a transition.
const same = states

var (
	asking  = []State{Sent, Streaming, Subscribed, Polling, Fetching}                                     // something of the agent is to come
	waiting = []State{Sent, Streaming, Subscribed, Polling, Fetching, Input}                              // nothing final was heard
	active  = []State{Sent, Streaming, Subscribed, Polling, Fetching, Input, Closing, Settled, Canceling} // all but the final ones
)

// table is the machine: read only.
var table = [...]row{
	{[]State{Sent}, StreamOpened, 0, Streaming},
	{asking, StreamOpened, 0, same},

	{asking, Update, 0, same},
	{[]State{Input}, Update, Fetches, Fetching}, // it goes on by itself
	{[]State{Input}, Update, 0, Streaming},

	{waiting, Outcome, StreamOpen, Closing},
	{waiting, Outcome, 0, Settled},
	{[]State{Closing, Settled}, Outcome, 0, same}, // said once more

	{waiting, AgentAsks, 0, Input},
	{[]State{Polling}, ResultApart, 0, Fetching},
	{asking, CallAgain, 0, Sent},
	{asking, TaskDemanded, 0, Sent},

	{waiting, Quiet, Stubborn, Failed},
	{[]State{Fetching}, Quiet, AgentTask, Fetching},
	{waiting, Quiet, AgentTask | CanSubscribe, Subscribed},
	{waiting, Quiet, AgentTask, Polling},
	{waiting, Quiet, 0, Failed},
	{waiting, Broke, Stubborn, Failed},
	{[]State{Fetching}, Broke, AgentTask, Fetching},
	{waiting, Broke, AgentTask | CanSubscribe, Subscribed},
	{waiting, Broke, AgentTask, Polling},
	{waiting, Broke, 0, Failed},
	{[]State{Subscribed}, Refused, 0, Polling},

	{[]State{Closing}, StreamClosed, 0, Settled},
	{waiting, StreamClosed, 0, same}, // it is ended, and what it was about is not

	{[]State{Input}, Answered, Asking, Input},
	{[]State{Input}, Answered, StreamOpen | Fetches, Fetching},
	{[]State{Input}, Answered, StreamOpen, Streaming},
	{[]State{Input}, Answered, AnswersApart | CanSubscribe, Subscribed},
	{[]State{Input}, Answered, AnswersApart, Polling},
	{[]State{Input}, Answered, 0, Sent},
	{[]State{Input}, AnswerRefused, Asking, Input},
	{[]State{Input}, AnswerRefused, Fetches, Fetching},
	{[]State{Input}, AnswerRefused, 0, Streaming},

	{[]State{Polling}, Unchanged, 0, Released},
	{active, Deadline, AgentTask, Released},
	{active, Deadline, 0, Failed},
	{active, Dropped, AgentTask, Released},
	{active, Dropped, 0, Failed},
	{active, Unsaid, 0, Failed},
	{active, Cancel, 0, Canceling},
	{[]State{Canceling}, AgentStopped, 0, Canceled},
	{active, EndedElsewhere, 0, Overtaken},
	{[]State{Closing}, Saved, 0, same},
	{[]State{Settled}, Saved, 0, Completed},
}

// Machine is the state of one execution. The zero Machine is Sent.
type Machine struct {
	state State
	wrong error
}

// Begin is the machine of an execution that stands so from the beginning.
func Begin(s State) Machine { return Machine{state: s} }

// State is how the execution stands.
func (m *Machine) State() State { return m.state }

// On takes note of what has happened. What cannot happen changes nothing, and is [Machine.Wrong].
func (m *Machine) On(e Event, f Facts) {
	next, err := Next(m.state, e, f)
	if m.state = next; err != nil && m.wrong == nil {
		m.wrong = err
	}
}

// End is On for what is relayed as it came, which has no state but how it ends.
func (m *Machine) End(e Event, f Facts) {
	if next, err := Next(m.state, e, f); err == nil && next.Final() {
		m.state = next
	}
}

// Wrong is the first event that cannot have happened, an *[ImpossibleError]; nil: there is none.
func (m *Machine) Wrong() error { return m.wrong }

// Next is the state after an event; a final one stays. Its error is an *[ImpossibleError]: then
// the state is as before.
func Next(s State, e Event, f Facts) (State, error) {
	return next(table[:], s, e, f)
}

func next(rows []row, s State, e Event, f Facts) (State, error) {
	if s.Final() {
		return s, nil
	}
	for i := range rows {
		if r := &rows[i]; r.on == e && f&r.when == r.when && slices.Contains(r.from, s) {
			if r.to == same {
				return s, nil
			}
			return r.to, nil
		}
	}
	return s, &ImpossibleError{s, e}
}
