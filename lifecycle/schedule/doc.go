// Package schedule decides which call of an agent begins next (ATD, Priority Levels, Fair-Share
// Scheduling and Unsatisfiable Resource Hints; R30).
//
// It is pure: a [Pool] is the places of one agent and the calls that wait for one. Its owner says what
// happens and when, and does what the [Effects] say. Nothing here waits, locks or reads a clock.
//
// # Rules
//
// A job begins at once if a place is free. Otherwise it waits in a bounded queue. When a place becomes
// free, the first row that tells two waiting jobs apart counts.
//
//	longest wait   a job that has waited for Config.Longest goes first, of several the oldest
//	class          critical, high, normal, low
//	base share     the job of the workflow with the fewest running jobs; a job without a workflow
//	               counts under its caller
//	caller         the job of the caller with the fewest running jobs, so that a caller that makes a workflow
//	               for each of its jobs does not go before others
//	age            the oldest job
//
// Within a class each workflow that waits therefore gets up to an equal share of the places, and others
// get what a workflow does not use: no place is free while a job waits. What low jobs do not use is so
// shared by the jobs of the higher classes.
//
//	critical for 60 s   a critical job that has waited for [GiveUp] leaves the queue: exhausted
//	full queue          32 jobs per place, at least 64, at most 4096: a further job is refused, unless one of a lower
//	                    class gives way, of the lowest class the one that came last: displaced. What has waited for
//	                    Config.Longest does not give way
//	caller's share      a quarter of the queue, at least one job: a caller that fills it is refused, and no other
//
// A running job is never stopped, because a gateway cannot take work back from an agent. To pre-empt
// (ATD, Unsatisfiable Resource Hints) therefore means that critical work goes before all waiting work
// but that which has waited for the longest wait. A job waits at most for Config.Longest, for the jobs
// that reached it earlier, and for the next place to become free.
//
// # Cost
//
// An event looks at each waiting job a few times: in a queue of 4096 jobs a call that ends and one that comes take
// some 50 µs together (BenchmarkPool_FullQueue), no more than the signatures of a call.
//
// # Alternatives considered
//
// A heap per class and workflow: faster with many jobs, but each start and end changes the order of all
// jobs of its workflow. Deficit round robin: it needs the duration of a call, which is unknown.
package schedule
