package execution

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
	Lost                        // it cannot be followed any more: this process ends, or an error came in between
	EndedElsewhere              // the record says that it has ended
	Unchanged                   // the agent's task has not changed for as long as is allowed
	Saved                       // the outcome is on record
	Unsaid                      // what came cannot be told, or proves nothing
	events
)

var eventNames = [events]string{
	"stream opened", "update", "outcome", "asked", "result apart", "call again", "task demanded", "quiet", "broke", "refused",
	"stream closed", "answered", "answer refused", "deadline", "cancel", "agent stopped", "lost", "ended elsewhere", "unchanged",
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
