// Package schedule has calls wait until their agent has a free place (ATD, Fair-Share Scheduling; R30). Which call begins
// next, package lifecycle/schedule decides.
//
// An agent without a concurrency in the configuration has no queue: [Scheduler.Enter] looks it up and returns. A call of
// another agent enters as late as possible, after every refusal that policy, approvals and the workflow can bring, and
// before its request is signed: what waits has left no evidence that it was sent. It gives its place back when its
// exchange ends; a stream, at its end. Work that goes on in the background after the answer has the place until that work
// ends or another replica follows it. The scheduler of each replica has places of its own: an agent gets at most
// concurrency calls per replica.
//
// What continues work needs no place, such as the answer to a question or a call of the agent to itself: it could wait
// for a place that its own work has.
// A task that is answered with a question gives its place back, so that callers that never answer block no other; what
// follows the answer has none, and an agent that asks may get some calls more than its concurrency.
//
// A call waits in the goroutine of its request, so nothing here runs in the background; the only timer is that of a
// critical call.
//
// Alternatives considered: a semaphore per agent (golang.org/x/sync/semaphore): it knows neither classes nor shares. Places
// that replicas share in the store: a write for each call, and a lost replica would have to be noticed for its places to
// be free again.
package schedule
