// Package stdio runs the programs of agents that speak over standard input and output, and
// is the one place that starts programs. What they say, lines of text, is the matter of the
// protocol that uses it (package mcp/channel).
//
// # How to read it
//
//   - program.go: what an operator has run, and its form as the URL of an endpoint
//   - host.go: the processes that there are, by agent and caller, their bounds, and who waits for a place among them
//   - process.go: one process: its lines in and out, and its end
//   - output.go: a program that is run to its end for what it writes
//   - ended.go: why it ended, and whose fault that is
//   - turns.go: callers that share a process write in turn
//   - stderr.go: what it writes for people, into the log, without the values of its variables
//   - supervise_linux.go: the small process between us and a program
//
// # Rules
//
// A process belongs to one agent and one caller, unless its operator lets callers share one.
// It starts when it is needed and ends when it was not used for a while, when its caller has
// too many, or with us. A caller has a share of the processes: at its limit its own that was
// used longest ago gives way (package quota), and one in use never does; one whose uses only
// listen for messages is not in use. While others use all, a caller waits for a place, for up
// to a second. A program that ends
// soon after its start, or cannot be started, twice in a row is not started for the same
// caller before a wait that doubles from one second to a minute; other callers do not wait.
//
// A message is one line. Each line break between the tokens of its JSON becomes one blank.
// The hashes in the evidence are those of the message as it was signed, so a line with such
// blanks has another hash. Messages of the codecs have none unless a caller's
// arguments do.
//
// The environment is PATH, HOME, USER, LANG, TMPDIR and what the operator names. Lines are
// bounded by the protocol's limit. A program that takes no line for ten seconds is ended.
//
// Where callers share a program, it may be at work for one while another waits: it
// ends when it takes no line for a minute. Callers write in turn. If it ends while calls are under way, that is the failure of the
// caller whose call was under way first: that one waits before its next call, the others do
// not, and their calls fail with an error that says so ([EndedError.Innocent]).
//
// # What dies with what
//
// On Linux a supervisor, which is our own program in another role, stands between us and
// each program. It is the parent of all that the program leaves behind (a subreaper), ends
// all of it when the program ends, when we ask for that, or when a pipe to us closes because
// we are gone, and ends a program that takes more memory or processes than it may: both are
// looked at twice a second, so a program can have more for a moment. If the supervisor is
// killed, the program goes with it by the kernel's parent-death signal, and the rest of its
// process group by us. What then survives, without a bound, is a process that left its group:
// a program that means harm can do that, as it can all that our user may. Elsewhere there is no supervisor: a program ends
// when its standard input does, as MCP demands, or is killed with its process group.
//
// # Alternatives considered
//
// A PID namespace would leave nothing behind even then, but needs privileges. Control groups
// bound memory better, but belong to the operator's service manager. A limit on address
// space (RLIMIT_AS) refuses Node, which reserves far more than it uses.
package stdio
