// Package execution is what becomes of one request to an agent until its outcome is final: the
// messages that the agent is sent meanwhile, what the caller is told, and the record of the work.
//
// Read machine.go first: an execution is a state machine (architecture section 10), pure, without a
// clock, over one table. testdata/next.txt is the same table cell by cell: what each state does with
// each event. Then execution.go, the loop that feeds it. An execution reaches the pipeline through the
// two ports in ports.go: [Agent] and [Caller]. reader.go is the request that is under way, and what
// proves the replies; outcome.go what came so far; inputs.go what the agent asks, which
// is asked again in another round where an answer does not fit; recorder.go the record. answer.go is for callers who wait and for workers, stream.go for callers who are told event by
// event, and event_stream.go the stream itself, which records have too.
//
// # Alternatives considered
//
// Flags that together mean a state: most combinations of them cannot be, and no reader can tell
// which. One port for agent and caller: what seals must not be what answers.
package execution
