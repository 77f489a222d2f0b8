package consensus

import (
	"encoding/json"
	"fmt"
	"time"

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

// Proposal is a message that a round is about (Proposal Message Structure). What the draft does not have is in Terms.
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

	Terms Terms `json:"terms"`
}

// Terms are what this coordinator needs of a proposal beside the members that the draft has.
type Terms struct {
	Group      string    `json:"group"` // of the coordinator's configuration, which says who votes
	Resource   string    `json:"resource,omitempty"`
	Urgency    int       `json:"urgency,omitempty"`      // 0 to 3
	Reversible bool      `json:"reversible,omitempty"`   // the action can be undone
	RevealBy   Date      `json:"reveal_by,omitzero"`     // votes are committed to until Timeout and sent until then
	Weights    string    `json:"weights_hash,omitempty"` // of the table of weights; required under weighted
	Nonce      string    `json:"nonce_hash,omitempty"`   // hash of what the proposer puts into a draw among deadlocked proposals
	Workflow   string    `json:"wid,omitempty"`          // in which the round stands
	Timestamp  time.Time `json:"timestamp"`              // when it was signed
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
		return m.Proposer, m.Terms.Timestamp
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
