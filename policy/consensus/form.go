package consensus

import (
	"bytes"
	"encoding/base64"
	"fmt"
	"slices"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/aepb/aepb-gateway/ect"
)

// rule is what a member of a message has to be.
type rule struct {
	ok     bool
	member string
	reason string
}

// first is an *[InvalidError] about the first rule that a message breaks; nil: it breaks no rule.
func first(message string, rules ...rule) error {
	for _, r := range rules {
		if !r.ok {
			return &InvalidError{message, r.member, r.reason}
		}
	}
	return nil
}

const (
	wantUUID     = "is required: a UUID"
	wantHash     = "is no hash: base64url of SHA-256"
	wantLine     = "is one line of at most 1024 bytes"
	wantIdentity = "is required: the identity of an agent"
	wantTime     = "is required: when the message was signed"
)

func (p *Proposal) check() error {
	most := int64(MaxParticipants * MaxWeight * 100)
	if err := first("proposal",
		rule{isUUID(p.ID), "proposal_id", wantUUID},
		rule{isUUID(p.Round), "consensus_round_id", wantUUID},
		rule{p.Proposer != "", "proposer", wantIdentity},
		rule{slices.Contains(Mechanisms(), p.Mechanism), "mechanism", wantMechanism},
		rule{isText(p.Subject), "subject", "is required: one line of at most 1024 bytes"},
		rule{isObject(p.Action, MaxAction), "action", "is required: a JSON object of at most 8192 bytes"},
		rule{!p.Timeout.IsZero(), "timeout", "is required: a date of RFC 9110, section 5.6.7"},
		rule{within(p.Quorum, 0, most), "quorum", "is a number of votes, under weighted of weight"},
		rule{within(len(p.Participants), 1, MaxParticipants), "participants", "is required: 1 to 500 identities"},
		rule{areDistinct(p.Participants), "participants", "names an identity twice, or an empty one"},
	); err != nil {
		return err
	}
	return p.Terms.check(p)
}

const wantMechanism = "is one of majority, weighted, leader and optimistic"

func (t *Terms) check(p *Proposal) error {
	return first("proposal",
		rule{isText(t.Group), "terms.group", "is required: the group of the coordinator's configuration that votes"},
		rule{isLine(t.Resource), "terms.resource", wantLine},
		rule{within(t.Urgency, 0, MaxUrgency), "terms.urgency", "is a number from 0 to 3"},
		rule{t.RevealBy.IsZero() || t.RevealBy.After(p.Timeout.Time), "terms.reveal_by", "is later than timeout"},
		rule{p.Mechanism != Weighted || t.Weights != "", "terms.weights_hash", "is required under weighted: it binds the proposal to a table of weights"},
		rule{isHash(t.Weights), "terms.weights_hash", wantHash},
		rule{isHash(t.Nonce), "terms.nonce_hash", wantHash},
		rule{t.Workflow == "" || isUUID(t.Workflow), "terms.wid", "is a UUID"},
		rule{!t.Timestamp.IsZero(), "terms.timestamp", wantTime},
	)
}

func (v *Vote) check() error {
	return first("vote",
		rule{isUUID(v.Proposal), "proposal_id", wantUUID},
		rule{isUUID(v.Round), "consensus_round_id", wantUUID},
		rule{v.Voter != "", "voter", wantIdentity},
		rule{slices.Contains([]Decision{Approve, Reject, Abstain}, v.Decision), "decision", "is one of approve, reject and abstain"},
		rule{isLine(v.Rationale), "rationale", wantLine},
		rule{v.Decision != Reject || v.Rationale != "", "rationale", "is required of a vote that rejects"},
		rule{!v.Timestamp.IsZero(), "timestamp", wantTime},
		rule{isHash(v.Weights), "weights_hash", wantHash},
	)
}

// outcomesOf is how many signed outcomes an acknowledgement has.
var outcomesOf = map[AckKind]int{Received: 0, Sealed: 0, Executed: 1, Refuses: 1, Disputed: 2, NonceOpen: 0}

func (a *Ack) check() error {
	want, known := outcomesOf[a.Kind]
	return first("acknowledgement",
		rule{isUUID(a.Proposal), "proposal_id", wantUUID},
		rule{isUUID(a.Round), "consensus_round_id", wantUUID},
		rule{a.Participant != "", "participant", wantIdentity},
		rule{known, "kind", "is one of received, sealed, executed, refuses, disputed and nonce"},
		rule{len(a.Outcomes) == want, "outcomes", "are the signed outcomes that it is about: one of executed and refuses, two of disputed"},
		rule{!slices.ContainsFunc(a.Outcomes, isNoOutcome), "outcomes", "are signed outcomes of at most 16384 bytes"},
		rule{(a.Vote != "") == (a.Kind == Sealed), "vote_hash", "is required of sealed, and of nothing else: the hash of the signed vote"},
		rule{isHash(a.Vote), "vote_hash", wantHash},
		rule{(a.Nonce != "") == (a.Kind == NonceOpen), "nonce", "is required of nonce, and of nothing else"},
		rule{isLine(a.Nonce), "nonce", wantLine},
		rule{isLine(a.Rationale), "rationale", wantLine},
		rule{!a.Timestamp.IsZero(), "timestamp", wantTime},
	)
}

func isNoOutcome(compact string) bool { return !within(len(compact), 1, MaxVote) }

func (o *Outcome) check() error {
	return first("outcome",
		rule{isUUID(o.Proposal), "proposal_id", wantUUID},
		rule{isUUID(o.Round), "consensus_round_id", wantUUID},
		rule{o.Signed != "" && isHash(o.Signed), "proposal_hash", "is required: base64url of SHA-256"},
		rule{o.Rules != "" && isHash(o.Rules), "rules_hash", "is required: base64url of SHA-256"},
		rule{o.Votes != "" && isHash(o.Votes), "votes_hash", "is required: base64url of SHA-256"},
		rule{o.Coordinator != "", "coordinator", wantIdentity},
		rule{slices.Contains([]Result{Commit, Abort}, o.Result), "outcome", "is commit or abort"},
		rule{slices.Contains(Mechanisms(), o.Mechanism), "mechanism", wantMechanism},
		rule{slices.Contains(reasons(), o.Reason), "reason", fmt.Sprintf("is one of %v", reasons())},
		rule{isHash(o.Rival), "rival", wantHash},
		rule{!o.Decided.IsZero(), "decided", "is required"},
	)
}

func within[N int | int64 | time.Duration](n, least, most N) bool { return n >= least && n <= most }

func areDistinct(ids []ect.Identity) bool { return !slices.Contains(ids, "") && !repeats(ids) }

// isText reports whether a text is one line that is not empty.
func isText(text string) bool { return text != "" && isLine(text) }

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

func isObject(text []byte, most int) bool {
	return len(text) <= most && bytes.HasPrefix(bytes.TrimSpace(text), []byte("{"))
}

// isHash reports whether a text is empty or a hash.
func isHash(text string) bool {
	sum, err := base64.RawURLEncoding.Strict().DecodeString(text)
	return text == "" || err == nil && len(text) == 43 && len(sum) == 32 // it skips line ends, so both lengths count
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
