package config

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/aepb/aepb-gateway/gateway/state"
	"github.com/aepb/aepb-gateway/gateway/worker"
)

// What one of each takes in memory, in bytes: estimates, generous ones, that test/abuse and
// test/soak hold gateways to.
const (
	BytesOfUse          = 88        // of a token, in the replay cache
	BytesOfConversation = 256       // where it stands
	BytesOfRequest      = 112 << 10 // under way: its stacks, its connection to its agent, and an answer that is too small to count as in flight
	bytesOfRefusal      = 32 << 10  // the same of a caller without an identity, for whom no agent is asked
	BytesOfConnection   = 48 << 10  // open: buffers of TLS and HTTP/2, and stacks
	bytesOfDisk         = 64 << 20  // what evidence on disk takes in memory until it is written
)

const (
	copiesInFlight  = 4 // of a message in flight: as it came, as it was read, as it is translated, as it is sent
	copiesOfRefused = 2 // of one of a caller without an identity: it is never translated
	copiesOfTables  = 2 // evidence that is kept, and what its tables take beyond what they count
	copiesOfPages   = 3 // what is kept, as much that has left and is not written anew yet, and the ends of pages

	unidentifiedPart = 4 // callers without an identity have a quarter of the requests and bytes besides
)

// The memory of a process whose file does not say limits.memory_mib: it leaves a container
// of 1 GiB a quarter, for agents' answers that are not booked before they have been read,
// operators, and the kernel's buffers. programMiB of it are the code, tables, and what an idle gateway has.
const (
	defaultMemoryMiB = 768
	leastMemoryMiB   = 192
	programMiB       = 64
)

// scaled is a bound that the file does not say: the one that goes with 768 MiB, in the
// proportion of what limits.memory_mib leaves beside the program.
func (l Limits) scaled(bound int) int {
	beside := cmp.Or(l.MemoryMiB, defaultMemoryMiB) - programMiB
	return max(1, bound*beside/(defaultMemoryMiB-programMiB))
}

// StateBounds are the bounds of state in the words of package state. What Redis keeps is not
// of our memory, and does not follow from it; nor does evidence that lies in a file.
func (c Config) StateBounds() state.Config {
	s := c.State
	out := state.Config{
		MaxTokenBytes: int64(s.EvidenceMiB) << 20, MaxEntries: s.Records, MaxEntriesBytes: int64(s.RecordsMiB) << 20,
		MaxEntriesPerOwner: s.CallerRecords, MaxEntriesBytesPerOwner: int64(s.CallerRecordsKiB) << 10,
		MaxAnswersBytes: int64(s.AnswersMiB) << 20, MaxAnswersBytesPerOwner: int64(s.CallerAnswersKiB) << 10,
	}
	if s.Redis.Used() {
		return out
	}
	l := c.Limits
	evidence := int64(l.scaled(defaultEvidenceMiB)) << 20
	if s.Path != "" {
		evidence = defaultEvidenceOnDisk
	}
	out.MaxTokenBytes = cmp.Or(out.MaxTokenBytes, evidence)
	out.MaxEntriesBytes, out.MaxAnswersBytes = int64(c.recordsMiB())<<20, int64(c.answersMiB())<<20
	out.MaxReplays, out.MaxConversations = l.scaled(defaultReplays), l.scaled(defaultConversations)
	out.MaxReplaysPerIssuer = l.part(out.MaxReplays)
	return out
}

func (c Config) recordsMiB() int {
	return c.State.orOurs(c.State.RecordsMiB, c.Limits.scaled(defaultRecordsMiB))
}

func (c Config) answersMiB() int {
	return c.State.orOurs(c.State.AnswersMiB, c.Limits.scaled(defaultAnswersMiB))
}

// orOurs is what the file says, else what follows from our memory; with Redis 64 MiB.
func (s State) orOurs(set, ours int) int {
	if s.Redis.Used() {
		ours = state.DefaultMaxEntriesBytes >> 20
	}
	return cmp.Or(set, ours)
}

// memoryPart is what the bounds of one key let callers hold, in bytes.
type memoryPart struct {
	key   string
	bytes int64
}

// MemoryBound is how many bytes of memory one process with this configuration has
// resident at most, whatever callers do. check-config prints it, serve refuses one above
// limits.memory_mib and makes it the soft limit of Go's memory, and test/abuse and
// test/soak hold gateways to it. It adds up, all of it full at once:
//
//   - state that is kept here and not in Redis: evidence, answers, records, uses of
//     tokens, conversations; with state.path evidence lies on disk;
//   - what is in flight: bodies that are being read, and agents' answers of 64 KiB and more
//     from when they are read until they are written, each in its caller's share;
//   - requests and streams under way, those of MCP clients over HTTP with SSE besides, and
//     tasks in the background;
//   - connections: over HTTP and gRPC, and where they are served of µACP, and WebSockets
//     of AINP.
//
// A quarter is added for the collector. By itself Go's lets the heap grow to twice what
// is alive; near the soft limit it collects earlier, and with a quarter to spare it need
// not do so all the time.
//
// Programs of agents have memory of their own beside it, each its memory_mib.
//
// An agent's answer counts while it is read over HTTP, and from when it has been read, at
// most 16 MiB, over gRPC, SLIM, µACP, WebSockets and stdio: what is being read there is not
// bounded by it. Nor are operators, since the admin listener has the same limits once more,
// nor pages of the file of state.path, which the kernel takes back when it needs them.
func (c Config) MemoryBound() int64 {
	const mib = 1 << 20
	var bytes int64
	for _, part := range c.parts() {
		bytes += part.bytes
	}
	return (bytes + bytes/4 + programMiB<<20 + mib - 1) / mib * mib
}

// parts are what callers can hold, by the keys that bound it.
func (c Config) parts() []memoryPart {
	l, flight, accept := c.Limits, c.InFlight(), c.Accept(false)
	background, _ := l.Background()
	request := int64(BytesOfRequest + bytesOfRefusal/unidentifiedPart)
	out := append(c.partsOfState(),
		memoryPart{"limits.in_flight_mib", copiesInFlight*flight.Bytes + copiesOfRefused*flight.Bytes/unidentifiedPart},
		memoryPart{"limits.requests", int64(flight.Requests) * request},
		memoryPart{"limits.streams", int64(flight.Streams) * request},
		memoryPart{"limits.memory_mib", l.OldSSE()},
		memoryPart{"limits.background", int64(background) * worker.BytesOfWork},
		memoryPart{"limits.connections", int64(accept.Connections+2*max(1, accept.Connections/unidentifiedPart)) * BytesOfConnection},
	)
	sockets := func(key string, b ConnectionBounds) {
		b = c.Sockets(b)
		out = append(out, memoryPart{key, int64(b.Total+b.Unidentified) * BytesOfConnection})
	}
	if c.Listen.UACP != "" {
		sockets("listen.uacp_connections", c.Listen.UACPConnections)
	}
	if c.AINP.Key != "" {
		sockets("ainp.sockets", c.AINP.Sockets)
	}
	return out
}

// partsOfState is what the state takes that is kept in this process.
func (c Config) partsOfState() []memoryPart {
	if c.State.Redis.Used() {
		return nil
	}
	b := c.StateBounds()
	evidence := copiesOfTables * b.MaxTokenBytes
	if c.State.Path != "" {
		evidence = bytesOfDisk
	}
	return []memoryPart{
		{"state.evidence_mib", evidence},
		{"state.answers_mib", copiesOfPages * b.MaxAnswersBytes},
		{"state.records_mib", b.MaxEntriesBytes},
		{"limits.memory_mib", int64(b.MaxReplays)*BytesOfUse + int64(b.MaxConversations)*BytesOfConversation},
	}
}

// checkMemory refuses bounds that add up to more than limits.memory_mib.
func (c Config) checkMemory() error {
	sum, most := c.MemoryBound()>>20, int64(cmp.Or(c.Limits.MemoryMiB, defaultMemoryMiB))
	if sum <= most || most < leastMemoryMiB { // which is a mistake of its own
		return nil
	}
	parts := c.parts()
	slices.SortFunc(parts, func(a, b memoryPart) int { return cmp.Compare(b.bytes, a.bytes) })
	var largest []string
	for _, h := range parts[:3] {
		largest = append(largest, fmt.Sprintf("%s (%d MiB of the sum)", h.key, (h.bytes+h.bytes/4)>>20))
	}
	return &Error{Reason: fmt.Sprintf("limits.memory_mib: the bounds add up to %d MiB of memory, and it is %d: raise it to %d, or lower %s",
		sum, most, sum, strings.Join(largest, ", "))}
}
