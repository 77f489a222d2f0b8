package ect

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"hash"
	"slices"
	"strings"
	"time"
)

// ID is a token's jti: a UUID (RFC 9562) in its textual form, compared as it
// is written. It names the token for replay and the task for its children.
type ID string

// Identity is the StringOrURI of a party, normally a SPIFFE id.
type Identity string

// Act is what a token says was done: its exec_act.
type Act string

// The acts of translation (AEPB, "Gateway as DAG Node" and "Translation
// Failure Handling"; CPAT, "Translation ECT").
const (
	ActTranslate      Act = "aepb:translate"
	ActTranslateError Act = "aepb:translate_error"
	ActCPATTranslate  Act = "cpat:translate"
)

// ActNegotiate says which protocol was chosen for an agent (AEPB, Protocol
// Downgrade Attacks). The name is our own: the draft registers none (R10).
const ActNegotiate Act = "aepb:negotiate"

// The acts of signals: ATD, Rollback Protocol; AEPB, HITL Callback Registration.
const (
	ActRollbackRequest Act = "atd:rollback_request"
	ActRollbackResult  Act = "atd:rollback_result"
	ActApprovalGranted Act = "hitl:approval_granted"
	ActApprovalDenied  Act = "hitl:approval_denied"

	ActConsensusPropose Act = "consensus_propose"
	ActConsensusVote    Act = "consensus_vote"
	ActConsensusCommit  Act = "consensus_commit"
)

// The acts of a workflow (ATD, Workflow Boundary ECTs, Checkpoint ECT Format and Error Signaling).
const (
	ActWorkflowStart    Act = "atd:workflow_start"
	ActWorkflowComplete Act = "atd:workflow_complete"
	ActCheckpoint       Act = "atd:checkpoint"
	ActError            Act = "atd:error"
)

// ActIntent says what a caller that sent no token wants to have done. The name is our own (R28).
const ActIntent Act = "aepb:intent"

// The acts of circuit breakers (ATD, Circuit Breaker Pattern).
const (
	ActCircuitOpen  Act = "atd:circuit_open"
	ActCircuitClose Act = "atd:circuit_close"
)

// ActEscalate says that an agent needs a human (ATD, HITL Escalation). The name is our own:
// the draft registers none (R10).
const ActEscalate Act = "atd:escalate"

// The acts of an agent's life: a change of its status, and the end of a graceful shutdown
// or of one process (AEPB, "Lifecycle State Transitions" and "Graceful Shutdown").
const (
	ActLifecycleChange Act = "aepb:lifecycle_change"
	ActShutdown        Act = "aepb:shutdown"
)

// Translation reports whether the act counts as a translation hop: both the
// AEPB and the CPAT spelling do.
func (a Act) Translation() bool { return a == ActTranslate || a == ActCPATTranslate }

// drafts are the name spaces of the acts that the drafts register. Such acts annotate the work of agents (R26).
var drafts = [...]string{"aepb:", "cpat:", "atd:", "hitl:", "consensus_"}

// ofState reports whether the out_hash of an act is that of a state, and not that of the message that the token comes with (ATD, Checkpoint ECT
// Format, Basic Rollback).
func (a Act) ofState() bool { return a == ActCheckpoint || a == ActRollbackResult }

// Namespaced reports whether an act is of a name space of the drafts, and so no task of an agent (R26).
func (a Act) Namespaced() bool {
	return slices.ContainsFunc(drafts[:], func(prefix string) bool { return strings.HasPrefix(string(a), prefix) })
}

// unsigned are the acts of the drafts that an agent of level 1 may state without a signature.
var unsigned = []Act{
	ActRollbackRequest, ActRollbackResult, ActApprovalGranted, ActApprovalDenied, ActCircuitOpen, ActCircuitClose, ActEscalate,
	ActWorkflowStart, ActWorkflowComplete, ActCheckpoint, ActError,
}

// needsSignature reports whether an act must be signed: every translation, in any name space, every other act
// of a gateway (AEPB, "Gateway Requirements" 7 and "Security Considerations"; R16), every vote, and every act
// of a draft that this program does not know: what it would allow is not known either.
func (a Act) needsSignature() bool {
	text := string(a)
	return strings.HasSuffix(text, ":translate") || strings.HasPrefix(text, "aepb:") || strings.HasPrefix(text, "cpat:") ||
		a.Namespaced() && !slices.Contains(unsigned, a)
}

// Level is an assurance level (ECT draft -01, "Assurance Levels").
type Level int

// The three levels: unsigned, signed, signed and on a ledger.
const (
	L1 Level = 1
	L2 Level = 2
	L3 Level = 3
)

// Claims is what a token says. Times are NumericDates in whole seconds.
type Claims struct {
	Issuer     Identity // iss
	Audience   []string // aud; everyone expected to verify
	IssuedAt   int64    // iat
	Expires    int64    // exp
	ID         ID       // jti
	Workflow   string   // wid, a UUID; empty: absent
	Act        Act      // exec_act
	Parents    []ID     // par; empty for a root, always written
	InputHash  string   // inp_hash as Hash makes it; empty: absent
	OutputHash string   // out_hash likewise
	Ext        Ext      // ext; nil: absent
}

// clone copies everything that could be changed through the copy, so that a
// token stays what was signed whatever its readers do.
func (c Claims) clone() Claims {
	c.Audience = slices.Clone(c.Audience)
	c.Parents = slices.Clone(c.Parents)
	c.Ext = c.Ext.clone()
	return c
}

// Ext is the extension object of a token, each value as raw JSON. A token
// holds at most MaxExtSize bytes of it, nested at most MaxExtDepth deep.
type Ext map[string]json.RawMessage

// clone copies all values into one piece.
func (e Ext) clone() Ext {
	if e == nil {
		return nil
	}
	size := 0
	for _, value := range e {
		size += len(value)
	}
	data := make([]byte, 0, size)
	out := make(Ext, len(e))
	for key, value := range e {
		if start := len(data); value != nil {
			data = append(data, value...)
			value = data[start:len(data):len(data)]
		}
		out[key] = value
	}
	return out
}

// Hash is base64url(SHA-256(bytes)) without padding, 43 characters: the form
// of inp_hash and out_hash (ECT draft, "Data Integrity Claims"). What is hashed
// are the bytes of a message body as received or sent, never a re-encoding.
func Hash(data []byte) string {
	sum := sha256.Sum256(data)
	var text [43]byte
	base64.RawURLEncoding.Encode(text[:], sum[:])
	return string(text[:])
}

// NewID makes a UUID for a jti or a wid that begins with the time, so that what is new is stored
// behind what is older (RFC 9562, UUID version 7): 48 bits of milliseconds, 74 random ones.
func NewID() ID {
	b := random()
	now := uint64(time.Now().UnixMilli())
	b[0], b[1] = byte(now>>40), byte(now>>32)      //nolint:gosec // its bytes
	binary.BigEndian.PutUint32(b[2:], uint32(now)) //nolint:gosec // its lower half
	return uuid(b, 7)
}

// NewRandomID is NewID with nothing but random bits (UUID version 4), for protocols that take no other.
func NewRandomID() ID { return uuid(random(), 4) }

func random() (b [16]byte) {
	_, _ = rand.Read(b[:]) // documented never to fail
	return b
}

// DerivedID is an id that follows from a text: always the same one (RFC 9562, UUID version 8).
func DerivedID(text string) ID {
	sum := sha256.Sum256([]byte(text))
	return uuid([16]byte(sum[:16]), 8)
}

func uuid(b [16]byte, version byte) ID {
	b[6] = b[6]&0x0f | version<<4
	b[8] = b[8]&0x3f | 0x80
	var text [36]byte
	hex.Encode(text[0:8], b[0:4])
	hex.Encode(text[9:13], b[4:6])
	hex.Encode(text[14:18], b[6:8])
	hex.Encode(text[19:23], b[8:10])
	hex.Encode(text[24:36], b[10:16])
	text[8], text[13], text[18], text[23] = '-', '-', '-', '-'
	return ID(text[:])
}

// Valid reports whether an id is a UUID in its text form.
func (id ID) Valid() bool { return isUUID(string(id)) }

// isUUID accepts the 8-4-4-4-12 form in either case, of any version.
// Whether a character is a digit or a letter cannot be foreseen, so there is no
// branch for that, as in foreign.
func isUUID(text string) bool {
	return len(text) == 36 && text[8] == '-' && text[13] == '-' && text[18] == '-' && text[23] == '-' &&
		allHex(text[:8]) && allHex(text[9:13]) && allHex(text[14:18]) && allHex(text[19:23]) && allHex(text[24:])
}

func allHex(text string) bool {
	const alphabet = 1<<6 - 1
	hex := [4]uint64{(1<<10 - 1) << '0', alphabet<<('A'-64) | alphabet<<('a'-64)}
	all := uint64(1)
	for i := range len(text) {
		all &= hex[text[i]>>6] >> (text[i] & 63)
	}
	return all == 1
}

// isHash accepts exactly what Hash can produce: 43 characters whose last one
// carries no stray bits. A sha-256: prefix, as an early draft had it, is refused.
func isHash(text string) bool {
	if len(text) != 43 {
		return false
	}
	var sum [sha256.Size + 1]byte
	n, err := base64.RawURLEncoding.Strict().Decode(sum[:], []byte(text))
	return err == nil && n == sha256.Size
}

// StreamHash hashes a stream of messages: SHA-256 over the bytes of each, each
// preceded by their number as eight bytes, the most significant first. Its
// zero value has seen nothing. It is not safe for concurrent use.
type StreamHash struct {
	sum   hash.Hash
	count int
}

// Add takes the next message.
func (h *StreamHash) Add(data []byte) {
	if h.sum == nil {
		h.sum = sha256.New()
	}
	var size [8]byte
	binary.BigEndian.PutUint64(size[:], uint64(len(data)))
	_, _ = h.sum.Write(size[:]) // documented never to fail
	_, _ = h.sum.Write(data)
	h.count++
}

// Count is how many messages there were.
func (h *StreamHash) Count() int { return h.count }

// Sum is the hash of what was added, in the form of [Hash].
func (h *StreamHash) Sum() string {
	if h.sum == nil {
		return Hash(nil)
	}
	return base64.RawURLEncoding.EncodeToString(h.sum.Sum(nil))
}
