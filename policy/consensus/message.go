package consensus

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"time"
	"unicode"
	"unicode/utf8"

	json2 "github.com/go-json-experiment/json"

	"github.com/aepb/aepb-gateway/ect"
)

// Bounds of messages.
const (
	MaxParticipants = 500
	MaxText         = 1024    // of a subject, a rationale and a resource, in bytes
	MaxAction       = 8 << 10 // bytes
	MaxProposal     = 128 << 10
	MaxVote         = 16 << 10 // of a vote, an acknowledgement and an outcome, signed, in bytes
	MaxWeight       = 1_000_000
	maxDepth        = 32
)

// Mechanism says how votes decide.
type Mechanism string

// The mechanisms of the draft.
const (
	Majority   Mechanism = "majority"
	Weighted   Mechanism = "weighted"
	Leader     Mechanism = "leader"
	Optimistic Mechanism = "optimistic"
)

// Mechanisms lists them all.
func Mechanisms() []Mechanism { return []Mechanism{Majority, Weighted, Leader, Optimistic} }

// Decision is what a vote says.
type Decision string

// The decisions.
const (
	Approve Decision = "approve"
	Reject  Decision = "reject"
	Abstain Decision = "abstain"
)

// Date is a moment in whole seconds, written as an HTTP-date (RFC 9110, section 5.6.7).
type Date struct{ time.Time }

const httpDate = "Mon, 02 Jan 2006 15:04:05 GMT"

// At is the second of a moment.
func At(t time.Time) Date { return Date{t.UTC().Truncate(time.Second)} }

// MarshalText implements encoding.TextMarshaler.
func (d Date) MarshalText() ([]byte, error) { return []byte(d.UTC().Format(httpDate)), nil }

// UnmarshalText implements encoding.TextUnmarshaler. Each date has one text: nothing else that means the same is read.
func (d *Date) UnmarshalText(text []byte) error {
	moment, err := time.Parse(httpDate, string(text))
	if err != nil {
		return err
	}
	if d.Time = moment; moment.Format(httpDate) != string(text) {
		return fmt.Errorf("consensus: the date %q is not written as one of RFC 9110, section 5.6.7", text)
	}
	return nil
}

// MarshalJSON implements json.Marshaler, over that of time.Time.
func (d Date) MarshalJSON() ([]byte, error) { return json.Marshal(d.UTC().Format(httpDate)) }

// UnmarshalJSON implements json.Unmarshaler, over that of time.Time.
func (d *Date) UnmarshalJSON(text []byte) error {
	var date string
	if err := json.Unmarshal(text, &date); err != nil {
		return err
	}
	return d.UnmarshalText([]byte(date))
}

// Proposal is a message that a round is about (Proposal Message Structure). The members after Participants are our own.
type Proposal struct {
	ID           string          `json:"proposal_id"` // UUID; a proposal that is submitted again keeps it
	Proposer     ect.Identity    `json:"proposer"`
	Round        string          `json:"consensus_round_id"` // UUID
	Mechanism    Mechanism       `json:"mechanism"`
	Subject      string          `json:"subject"`
	Action       json.RawMessage `json:"action"`  // a JSON object
	Timeout      Date            `json:"timeout"` // votes that came until then count
	Quorum       int64           `json:"quorum"`  // votes; under weighted: weight
	Participants []ect.Identity  `json:"participants"`

	Group      string `json:"group"` // of the coordinator's configuration, which says who votes
	Resource   string `json:"resource,omitempty"`
	Urgency    int    `json:"urgency,omitempty"`      // 0 to 3
	Reversible bool   `json:"reversible,omitempty"`   // the action can be undone
	RevealBy   Date   `json:"reveal_by,omitzero"`     // votes are committed to until Timeout and sent until then
	Weights    string `json:"weights_hash,omitempty"` // of the table of weights; required under weighted
	Nonce      string `json:"nonce_hash,omitempty"`   // hash of what the proposer puts into a draw among deadlocked proposals
	Workflow   string `json:"wid,omitempty"`          // in which the round stands

	Timestamp time.Time `json:"timestamp"` // when it was signed
}

// Vote is a vote on a proposal (Vote Message Structure), without its signature.
type Vote struct {
	Proposal  string       `json:"proposal_id"`
	Round     string       `json:"consensus_round_id"`
	Voter     ect.Identity `json:"voter"`
	Decision  Decision     `json:"decision"`
	Rationale string       `json:"rationale,omitempty"`
	Timestamp time.Time    `json:"timestamp"` // when it was cast
	Weights   string       `json:"weights_hash,omitempty"`
}

// AckKind says what a participant acknowledges.
type AckKind string

// The kinds of acknowledgements.
const (
	Received  AckKind = "received" // it has got the proposal
	Sealed    AckKind = "sealed"   // it will send the vote with this hash
	Executed  AckKind = "executed" // it has done what was agreed
	Refuses   AckKind = "refuses"  // it does not accept the outcome: its check failed
	Disputed  AckKind = "disputed" // it has another outcome of this round: equivocation
	NonceOpen AckKind = "nonce"    // what its proposal promised for a draw
)

// Ack is a signed acknowledgement of a participant.
type Ack struct {
	Proposal    string       `json:"proposal_id"`
	Round       string       `json:"consensus_round_id"`
	Participant ect.Identity `json:"participant"`
	Kind        AckKind      `json:"kind"`
	Vote        string       `json:"vote_hash,omitempty"` // of sealed: hash of the signed vote
	Outcomes    []string     `json:"outcomes,omitempty"`  // of executed, refuses and disputed: the signed outcomes
	Nonce       string       `json:"nonce,omitempty"`     // of nonce
	Rationale   string       `json:"rationale,omitempty"` // of refuses
	Timestamp   time.Time    `json:"timestamp"`
}

// Result is how a round ended.
type Result string

// The results.
const (
	Commit Result = "commit"
	Abort  Result = "abort"
)

// Reason says in one word why a round ended as it did.
type Reason string

// The reasons.
const (
	Accepted       Reason = "accepted"
	Rejected       Reason = "rejected"        // too few approve, or a tie
	Objected       Reason = "objected"        // optimistic: a participant objects
	NoQuorum       Reason = "no_quorum"       // too few votes until the deadline
	NoConnectivity Reason = "no_connectivity" // too few participants were reached, and that did not change in time
	NoDecision     Reason = "no_decision"     // leader: none until the deadline
	Superseded     Reason = "superseded"      // a proposal of a higher rank about the same was accepted
	HumanDecided   Reason = "human"
)

func reasons() []Reason {
	return []Reason{Accepted, Rejected, Objected, NoQuorum, NoConnectivity, NoDecision, Superseded, HumanDecided}
}

// Tally counts votes. Weights are zero unless the mechanism is weighted.
type Tally struct {
	Participants  int   `json:"participants"`
	Approve       int   `json:"approve"`
	Reject        int   `json:"reject"`
	Abstain       int   `json:"abstain"`
	Doubled       int   `json:"doubled"`   // participants whose votes contradict each other: none of them counts
	Connected     int   `json:"connected"` // participants with a signed message for this round
	ApproveWeight int64 `json:"approve_weight,omitempty"`
	RejectWeight  int64 `json:"reject_weight,omitempty"`
	TotalWeight   int64 `json:"total_weight,omitempty"`
}

// Outcome is a commit or an abort signal, without its signature.
type Outcome struct {
	Proposal    string       `json:"proposal_id"`
	Round       string       `json:"consensus_round_id"`
	Signed      string       `json:"proposal_hash"` // of the signed proposal
	Coordinator ect.Identity `json:"coordinator"`
	Mechanism   Mechanism    `json:"mechanism"`
	Result      Result       `json:"outcome"`
	Reason      Reason       `json:"reason"`
	Tally       Tally        `json:"tally"`
	Rules       string       `json:"rules_hash"` // of the rules that the round was opened with
	Votes       string       `json:"votes_hash"` // of the sorted hashes of all signed messages that it rests on
	Approval    string       `json:"approval,omitempty"`
	Rival       string       `json:"rival,omitempty"` // of superseded: the outcome of the other round
	Decided     time.Time    `json:"decided"`
}

// InvalidError reports a message that is not what the draft, or this package, demands.
type InvalidError struct {
	Message string // proposal, vote, acknowledgement or outcome
	Member  string // empty: the message as a whole
	Reason  string
}

func (e *InvalidError) Error() string {
	if e.Member == "" {
		return fmt.Sprintf("consensus: the %s %s", e.Message, e.Reason)
	}
	return fmt.Sprintf("consensus: %s of the %s %s", e.Member, e.Message, e.Reason)
}

// Signer is who has to have signed a message, and when that was, as the message says.
func Signer(m any) (ect.Identity, time.Time) {
	switch m := m.(type) {
	case Proposal:
		return m.Proposer, m.Timestamp
	case Vote:
		return m.Voter, m.Timestamp
	case Ack:
		return m.Participant, m.Timestamp
	case Outcome:
		return m.Coordinator, m.Decided
	default:
		return "", time.Time{}
	}
}

// Read reads one message from JSON: names are exact, none stands twice and none is unknown. Its error is an
// *[InvalidError].
func Read[M Proposal | Vote | Ack | Outcome](text []byte) (m M, err error) {
	name := nameOf(m)
	if deep(text) {
		return m, &InvalidError{Message: name, Reason: fmt.Sprintf("is nested deeper than %d", maxDepth)}
	}
	if err := json2.Unmarshal(text, &m, json2.RejectUnknownMembers(true)); err != nil {
		return m, &InvalidError{Message: name, Reason: "is not a JSON object of the members that docs/consensus.md lists, each once and of its type"}
	}
	switch message := any(&m).(type) {
	case *Proposal:
		err = message.check()
	case *Vote:
		err = message.check()
	case *Ack:
		err = message.check()
	case *Outcome:
		err = message.check()
	}
	return m, err
}

// Encode writes a message, equal messages as equal bytes.
func Encode[M Proposal | Vote | Ack | Outcome](m M) ([]byte, error) {
	return json2.Marshal(m, json2.Deterministic(true))
}

func nameOf(m any) string {
	switch m.(type) {
	case Proposal:
		return "proposal"
	case Vote:
		return "vote"
	case Ack:
		return "acknowledgement"
	default:
		return "outcome"
	}
}

func deep(text []byte) bool {
	depth, quoted := 0, false
	for i := 0; i < len(text); i++ {
		switch c := text[i]; {
		case quoted && c == '\\':
			i++
		case c == '"':
			quoted = !quoted
		case !quoted && (c == '{' || c == '['):
			if depth++; depth > maxDepth {
				return true
			}
		case !quoted && (c == '}' || c == ']'):
			depth--
		}
	}
	return false
}

func (p *Proposal) check() error {
	bad := func(member, reason string) error { return &InvalidError{"proposal", member, reason} }
	switch {
	case !isUUID(p.ID):
		return bad("proposal_id", "is required: a UUID")
	case !isUUID(p.Round):
		return bad("consensus_round_id", "is required: a UUID")
	case p.Proposer == "":
		return bad("proposer", "is required")
	case !slices.Contains(Mechanisms(), p.Mechanism):
		return bad("mechanism", "is one of majority, weighted, leader and optimistic")
	case !isLine(p.Subject) || p.Subject == "":
		return bad("subject", "is required: one line of at most 1024 bytes")
	case !isObject(p.Action) || len(p.Action) > MaxAction:
		return bad("action", "is required: a JSON object of at most 8192 bytes")
	case p.Timeout.IsZero():
		return bad("timeout", "is required: a date of RFC 9110, section 5.6.7")
	case p.Quorum < 0 || p.Quorum > MaxParticipants*MaxWeight*100:
		return bad("quorum", "is a number of votes, under weighted of weight")
	case len(p.Participants) == 0 || len(p.Participants) > MaxParticipants || slices.Contains(p.Participants, ""):
		return bad("participants", "is required: 1 to 500 identities")
	case repeats(p.Participants):
		return bad("participants", "names an identity twice")
	case p.Group == "" || !isLine(p.Group):
		return bad("group", "is required: the group of the coordinator's configuration that votes")
	case !isLine(p.Resource):
		return bad("resource", "is one line of at most 1024 bytes")
	case p.Urgency < 0 || p.Urgency > MaxUrgency:
		return bad("urgency", "is a number from 0 to 3")
	case !p.RevealBy.IsZero() && !p.RevealBy.After(p.Timeout.Time):
		return bad("reveal_by", "is later than timeout")
	case p.Mechanism == Weighted && p.Weights == "":
		return bad("weights_hash", "is required under weighted: it binds the proposal to a table of weights")
	case !isHash(p.Weights) || !isHash(p.Nonce):
		return bad("weights_hash or nonce_hash", "is no hash: base64url of SHA-256")
	case p.Workflow != "" && !isUUID(p.Workflow):
		return bad("wid", "is a UUID")
	case p.Timestamp.IsZero():
		return bad("timestamp", "is required: when the proposal was signed")
	}
	return nil
}

func (v *Vote) check() error {
	bad := func(member, reason string) error { return &InvalidError{"vote", member, reason} }
	switch {
	case !isUUID(v.Proposal):
		return bad("proposal_id", "is required: a UUID")
	case !isUUID(v.Round):
		return bad("consensus_round_id", "is required: a UUID")
	case v.Voter == "":
		return bad("voter", "is required")
	case v.Decision != Approve && v.Decision != Reject && v.Decision != Abstain:
		return bad("decision", "is one of approve, reject and abstain")
	case !isLine(v.Rationale):
		return bad("rationale", "is one line of at most 1024 bytes")
	case v.Decision == Reject && v.Rationale == "":
		return bad("rationale", "is required of a vote that rejects")
	case v.Timestamp.IsZero():
		return bad("timestamp", "is required: when the vote was cast")
	case !isHash(v.Weights):
		return bad("weights_hash", "is no hash: base64url of SHA-256")
	}
	return nil
}

func (a *Ack) check() error {
	bad := func(member, reason string) error { return &InvalidError{"acknowledgement", member, reason} }
	outcomes := map[AckKind]int{Executed: 1, Refuses: 1, Disputed: 2}
	want, known := outcomes[a.Kind]
	switch {
	case !isUUID(a.Proposal):
		return bad("proposal_id", "is required: a UUID")
	case !isUUID(a.Round):
		return bad("consensus_round_id", "is required: a UUID")
	case a.Participant == "":
		return bad("participant", "is required")
	case !known && a.Kind != Received && a.Kind != Sealed && a.Kind != NonceOpen:
		return bad("kind", "is one of received, sealed, executed, refuses, disputed and nonce")
	case len(a.Outcomes) != want || slices.ContainsFunc(a.Outcomes, func(o string) bool { return o == "" || len(o) > MaxVote }):
		return bad("outcomes", "are the signed outcomes that it is about: one of executed and refuses, two of disputed")
	case (a.Vote != "") != (a.Kind == Sealed) || !isHash(a.Vote):
		return bad("vote_hash", "is required of sealed, and of nothing else: the hash of the signed vote")
	case (a.Nonce != "") != (a.Kind == NonceOpen) || !isLine(a.Nonce):
		return bad("nonce", "is required of nonce, and of nothing else")
	case !isLine(a.Rationale):
		return bad("rationale", "is one line of at most 1024 bytes")
	case a.Timestamp.IsZero():
		return bad("timestamp", "is required")
	}
	return nil
}

func (o *Outcome) check() error {
	bad := func(member, reason string) error { return &InvalidError{"outcome", member, reason} }
	switch {
	case !isUUID(o.Proposal) || !isUUID(o.Round):
		return bad("proposal_id or consensus_round_id", "is required: a UUID")
	case o.Signed == "" || o.Votes == "" || o.Rules == "" || !isHash(o.Signed) || !isHash(o.Votes) || !isHash(o.Rules):
		return bad("proposal_hash, rules_hash or votes_hash", "is required: base64url of SHA-256")
	case o.Coordinator == "":
		return bad("coordinator", "is required")
	case o.Result != Commit && o.Result != Abort:
		return bad("outcome", "is commit or abort")
	case !slices.Contains(Mechanisms(), o.Mechanism):
		return bad("mechanism", "is one of majority, weighted, leader and optimistic")
	case !slices.Contains(reasons(), o.Reason):
		return bad("reason", fmt.Sprintf("is one of %v", reasons()))
	case !isHash(o.Rival):
		return bad("rival", "is no hash: base64url of SHA-256")
	case o.Decided.IsZero():
		return bad("decided", "is required")
	}
	return nil
}

func repeats(ids []ect.Identity) bool {
	sorted := slices.Sorted(slices.Values(ids))
	return len(slices.Compact(sorted)) != len(ids)
}

func isLine(text string) bool {
	if len(text) > MaxText || !utf8.ValidString(text) {
		return false
	}
	for _, r := range text {
		if unicode.In(r, unicode.Cc, unicode.Zl, unicode.Zp) {
			return false
		}
	}
	return true
}

func isObject(text []byte) bool { return bytes.HasPrefix(bytes.TrimSpace(text), []byte("{")) }

// isHash reports whether a text is empty or a hash.
func isHash(text string) bool {
	if text == "" {
		return true
	}
	for i := range len(text) {
		c := text[i]
		if !(c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '-' || c == '_') {
			return false
		}
	}
	return len(text) == 43
}

func isUUID(text string) bool {
	if len(text) != 36 {
		return false
	}
	for i := range len(text) {
		c := text[i]
		dash := i == 8 || i == 13 || i == 18 || i == 23
		if dash != (c == '-') || !dash && !(c >= '0' && c <= '9' || c >= 'a' && c <= 'f') {
			return false
		}
	}
	return true
}
