package config

import (
	"cmp"

	"github.com/aepb/aepb-gateway/gateway/state"
)

// What one of each takes in memory, in bytes: estimates, generous ones. What test/abuse
// measured stayed below a quarter of the sum.
const (
	bytesOfUse          = 80        // of a token, in the replay cache
	bytesOfConversation = 256       // where it stands
	bytesOfRequest      = 128 << 10 // under way: its stacks, and an answer that is too small to count as in flight
	bytesOfConnection   = 64 << 10  // open: buffers of TLS and HTTP/2, and stacks
	bytesOfTask         = 128 << 10 // in the background: stacks, its record, and 32 KiB of a message in three copies
	bytesOfWaiting      = 128 << 20 // evidence that is not in the file yet: twice what may wait, and its tables
	bytesOfProgram      = 64 << 20  // code, tables, and what an idle gateway has
)

const (
	copiesInFlight   = 4 // of a message in flight: as it came, as it was read, as it is translated, as it is sent
	copiesOfPages    = 3 // what is kept, as much that has left and is not written anew yet, and the ends of pages
	copiesOfEvidence = 2 // what is kept, and what its tables take beyond what they count
	copiesInFile     = 2 // bbolt's pages are half full at worst; the kernel counts those that were read as ours

	unidentifiedPart = 4 // callers without an identity have a quarter of the requests and bytes besides
)

// MemoryBound is how many bytes of memory one process with this configuration has
// resident at most, whatever callers do. check-config prints it, serve makes it the soft
// limit of Go's memory, and test/abuse attacks gateways and holds them to it. It adds up,
// all of it full at once:
//
//   - state that is kept here and not in Redis: evidence, answers, records, uses of
//     tokens, conversations. With state.path evidence is in the file, and what is read of
//     it is mapped into memory that the kernel takes back when it needs it; the rest of the
//     file counts;
//   - what is in flight: bodies that are being read and answers that are being written;
//   - requests and streams under way, and tasks in the background;
//   - connections: over HTTP, gRPC and µACP, and WebSockets of AINP.
//
// A quarter is added for the collector. By itself Go's lets the heap grow to twice what
// is alive; near the soft limit it collects earlier, and with a quarter to spare it need
// not do so all the time.
//
// Agents and operators are not bounded by it: an agent's answer counts when it is being
// written to its caller, and not while it is being read (each at most 16 MiB), and the
// admin listener has the same limits once more.
func (c Config) MemoryBound() int64 {
	const mib = 1 << 20
	flight, accept := c.InFlight(), c.Accept(false)
	bytes := c.stateBound()
	bytes += copiesInFlight * (flight.Bytes + flight.Bytes/unidentifiedPart)
	busy := int64(flight.Requests + flight.Streams)
	bytes += (busy+busy/unidentifiedPart)*bytesOfRequest + int64(cmp.Or(c.Limits.AllWorkers, maxWorkers))*bytesOfTask
	connections := accept.Connections + max(1, accept.Connections/2)
	for _, b := range []ConnectionBounds{c.Listen.UACPConnections.WithDefaults(), c.AINP.Sockets.WithDefaults()} {
		connections += b.Total + b.Unidentified
	}
	bytes += int64(connections) * bytesOfConnection
	return (bytes + bytes/4 + bytesOfProgram + mib - 1) / mib * mib
}

// stateBound is what the state takes that is kept in this process.
func (c Config) stateBound() int64 {
	s := c.State
	if s.Redis.Used() {
		return 0
	}
	pages := cmp.Or(int64(s.AnswersMiB)<<20, state.DefaultMaxAnswersBytes)
	records := cmp.Or(int64(s.RecordsMiB)<<20, state.DefaultMaxEntriesBytes)
	rest := int64(state.DefaultMaxReplays)*bytesOfUse + int64(state.DefaultMaxConversations)*bytesOfConversation
	bytes := copiesOfPages*pages + records + rest
	if s.Path == "" {
		return bytes + copiesOfEvidence*s.EvidenceBytes()
	}
	return bytes + copiesInFile*(pages+records+rest) + bytesOfWaiting
}

// DefaultEvidenceOnDisk is how much evidence a file holds unless state.evidence_mib says
// otherwise, in bytes: a day of one caller at the default rate.
const DefaultEvidenceOnDisk = 24 << 30

// EvidenceBytes is how much evidence is kept, in bytes; 0: as much as Redis takes by default.
func (s State) EvidenceBytes() int64 {
	switch {
	case s.EvidenceMiB > 0 || s.Redis.Used():
		return int64(s.EvidenceMiB) << 20
	case s.Path != "":
		return DefaultEvidenceOnDisk
	default:
		return state.DefaultMaxTokenBytes
	}
}
