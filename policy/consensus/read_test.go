package consensus

import (
	"bytes"
	"encoding/json"
	"errors"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/aepb/aepb-gateway/ect"
)

// members are those of a message, each as JSON text.
type members map[string]string

func (m members) with(name, value string) members {
	out := maps.Clone(m)
	if out[name] = value; value == "" {
		delete(out, name)
	}
	return out
}

func (m members) text() []byte { return m.twice("") }

// termsMembers are those of the terms of a proposal.
var termsMembers = []string{"group", "resource", "urgency", "reversible", "reveal_by", "weights_hash", "nonce_hash", "wid", "timestamp", "TIMESTAMP", "GROUP"}

// twice is the message with a member that stands twice.
func (m members) twice(doubled string) []byte {
	var parts, terms []string
	_, proposal := m["proposer"]
	for _, name := range slices.Sorted(maps.Keys(m)) {
		part := `"` + name + `":` + m[name]
		if name == doubled {
			part += "," + part
		}
		if proposal && slices.Contains(termsMembers, name) {
			terms = append(terms, part)
		} else {
			parts = append(parts, part)
		}
	}
	if len(terms) > 0 {
		parts = append(parts, `"terms":{`+strings.Join(terms, ",")+"}")
	}
	return []byte("{" + strings.Join(parts, ",") + "}")
}

const (
	quotedUUID = `"0191f6a0-0000-7000-8000-000000000001"`
	quotedTime = `"2026-11-29T12:00:00.5Z"`
	quotedDate = `"Sun, 29 Nov 2026 12:00:00 GMT"`
	quotedHash = `"AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA0"`
)

func quoted(text string) string { return `"` + text + `"` }

func long(n int) string { return quoted(strings.Repeat("x", n)) }

func proposalMembers() members {
	return members{
		"proposal_id": quotedUUID, "proposer": `"a"`, "consensus_round_id": quotedUUID, "mechanism": `"majority"`, "subject": `"restart"`,
		"action": `{"tool":"restart"}`, "timeout": quotedDate, "quorum": "2", "participants": `["a","b"]`, "group": `"ops"`, "timestamp": quotedTime,
	}
}

func voteMembers() members {
	return members{"proposal_id": quotedUUID, "consensus_round_id": quotedUUID, "voter": `"a"`, "decision": `"approve"`, "timestamp": quotedTime}
}

func ackMembers() members {
	return members{"proposal_id": quotedUUID, "consensus_round_id": quotedUUID, "participant": `"a"`, "kind": `"received"`, "timestamp": quotedTime}
}

func outcomeMembers() members {
	return members{
		"proposal_id": quotedUUID, "consensus_round_id": quotedUUID, "proposal_hash": quotedHash, "coordinator": `"g"`, "mechanism": `"majority"`,
		"outcome": `"commit"`, "reason": `"accepted"`, "tally": `{"participants":3,"approve":2,"reject":0,"abstain":1,"doubled":0,"connected":3}`,
		"rules_hash": quotedHash, "votes_hash": quotedHash, "decided": quotedTime,
	}
}

func readsProposal(text []byte) error { _, err := Read[Proposal](text); return err }
func readsVote(text []byte) error     { _, err := Read[Vote](text); return err }
func readsAck(text []byte) error      { _, err := Read[Ack](text); return err }
func readsOutcome(text []byte) error  { _, err := Read[Outcome](text); return err }

// kinds are the kinds of messages, each with a message that is well-formed.
func kinds() map[string]struct {
	good members
	read func([]byte) error
} {
	return map[string]struct {
		good members
		read func([]byte) error
	}{
		"proposal": {proposalMembers(), readsProposal}, "vote": {voteMembers(), readsVote},
		"acknowledgement": {ackMembers(), readsAck}, "outcome": {outcomeMembers(), readsOutcome},
	}
}

func isInvalid(err error) bool {
	var invalid *InvalidError
	return errors.As(err, &invalid) && strings.HasPrefix(err.Error(), "consensus: ")
}

// TestRead_EachMember: each kind of message is read; without any one of its required members it is not, nor with a value of
// another type, twice, null, or under a name in other letters (CNS-13, CNS-14).
func TestRead_EachMember(t *testing.T) {
	t.Parallel()
	for kind, k := range kinds() {
		if err := k.read(k.good.text()); err != nil {
			t.Fatalf("%s: %v", kind, err)
		}
		for name, value := range k.good {
			optional := name == "quorum" || name == "tally" // zero, which is refused where it does not fit
			if err := k.read(k.good.with(name, "").text()); !optional && !isInvalid(err) {
				t.Errorf("%s without %s: %v, expected an InvalidError", kind, name, err)
			}
			if err := k.read(k.good.with(name, "null").text()); !optional && !isInvalid(err) {
				t.Errorf("%s with %s null: %v, expected an InvalidError", kind, name, err)
			}
			for _, wrong := range []string{"true", "1.5", `[1]`, `{"a":{}}`, `""`, "-1", `"\ud800"`} {
				if name == "action" && strings.HasPrefix(wrong, "{") {
					continue
				}
				if err := k.read(k.good.with(name, wrong).text()); !isInvalid(err) {
					t.Errorf("%s with %s %s: %v, expected an InvalidError", kind, name, wrong, err)
				}
			}
			if err := k.read(k.good.twice(name)); !isInvalid(err) {
				t.Errorf("%s with %s twice: %v, expected an InvalidError", kind, name, err)
			}
			if err := k.read(k.good.with(name, "").with(strings.ToUpper(name), value).text()); !isInvalid(err) {
				t.Errorf("%s with %s in other letters: %v, expected an InvalidError", kind, name, err)
			}
		}
		for _, text := range []string{``, `null`, `[]`, `"a"`, `1`, string(k.good.text()) + "x", string(k.good.text()) + "{}", string(k.good.with("more", "1").text()), "{\"a\xff\":1}"} {
			if err := k.read([]byte(text)); !isInvalid(err) {
				t.Errorf("%s from %.20q: %v, expected an InvalidError", kind, text, err)
			}
		}
	}
}

// TestRead_Bounds: identifiers, hashes, dates, lines and numbers of messages are bounded.
func TestRead_Bounds(t *testing.T) {
	t.Parallel()
	hash, many := `"AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA="`, make([]string, 501)
	for i := range many {
		many[i] = string(idOf(i))
	}
	list := func(n int) string { text, _ := json.Marshal(many[:n]); return string(text) }
	bad := map[string]map[string][]string{
		"proposal": {
			"proposal_id":        {`"1"`, `"0191F6A0-0000-7000-8000-000000000001"`, `"0191f6a0000070008000000000000001"`, `"0191f6a0-0000-7000-8000-00000000000g"`, `"0191f6a000-00-7000-8000-000000000001"`},
			"consensus_round_id": {`"x"`},
			"mechanism":          {`"Majority"`, `"dice"`},
			"subject":            {long(1025), `"a\nb"`, `"a\u2028b"`, `"a\u0000"`},
			"action":             {`[]`, `"{}"`, `{"a":1,"a":2}`, `{"a":{"b":1,"b":1}}`, `{"a":` + long(MaxAction-7) + `}`},
			"timeout":            {`"2026-11-29T12:00:00Z"`, `"Sun, 29 Nov 2026 12:00:00 UTC"`, `"Mon, 29 Nov 2026 12:00:00 GMT"`, `"Sun, 29 Nov 2026 12:00:00.5 GMT"`, `"Sun, 29 nov 2026 12:00:00 GMT"`, `"Sun, 29 Nov 2026 12:00:60 GMT"`, `"Sun, 29 Nov 26 12:00:00 GMT"`},
			"quorum":             {`"2"`, "50000000001", "9223372036854775808", "2.0", "2e0"},
			"participants":       {`[]`, `["a",""]`, `["a","b","a"]`, list(501), `["a",null]`},
			"group":              {`"a\tb"`, long(1025)},
			"resource":           {`"a\nb"`, long(1025)},
			"urgency":            {"-1", "4"},
			"reveal_by":          {quotedDate, `"Sun, 29 Nov 2026 11:59:59 GMT"`, `"soon"`},
			"weights_hash":       {hash, `"a"`}, "nonce_hash": {hash, `"a"`}, "wid": {`"a"`, long(36)},
			"timestamp": {`"2026-11-29 12:00:00"`, `"2026-13-29T12:00:00Z"`, quotedDate}, "reversible": {`"true"`, "1"},
		},
		"vote": {
			"proposal_id": {`"1"`}, "consensus_round_id": {`"1"`}, "decision": {`"yes"`, `"Approve"`, `"reject"`},
			"rationale": {long(1025), `"a\nb"`}, "weights_hash": {hash}, "timestamp": {`"now"`},
		},
		"acknowledgement": {
			"kind": {`"seen"`, `"sealed"`, `"nonce"`, `"executed"`, `"refuses"`, `"disputed"`}, "vote_hash": {quotedHash}, "nonce": {`"a"`},
			"outcomes": {`["a"]`}, "rationale": {long(1025), `"a\nb"`}, "proposal_id": {`"1"`}, "consensus_round_id": {`"1"`},
		},
		"outcome": {
			"proposal_id": {`"1"`}, "consensus_round_id": {`"1"`}, "proposal_hash": {hash}, "rules_hash": {hash}, "votes_hash": {hash}, "rival": {hash},
			"outcome": {`"Commit"`, `"maybe"`}, "mechanism": {`"dice"`}, "reason": {`"because"`}, "tally": {`{"votes":1}`, `{"approve":1,"approve":1}`}, "decided": {`"now"`},
		},
	}
	for kind, k := range kinds() {
		for name, values := range bad[kind] {
			for _, value := range values {
				if err := k.read(k.good.with(name, value).text()); !isInvalid(err) {
					t.Errorf("%s with %s %.60s: %v, expected an InvalidError", kind, name, value, err)
				}
			}
		}
	}
	good := map[string][]string{
		"subject": {long(1024), `"für alle"`}, "action": {`{}`, `{"a":` + long(MaxAction-8) + `}`}, "quorum": {"0", "50000000000"}, "participants": {list(500)},
		"urgency": {"0", "3"}, "reveal_by": {`"Sun, 29 Nov 2026 12:00:01 GMT"`}, "weights_hash": {quotedHash}, "nonce_hash": {quotedHash}, "wid": {quotedUUID},
	}
	for name, values := range good {
		for _, value := range values {
			if err := readsProposal(proposalMembers().with(name, value).text()); err != nil {
				t.Errorf("proposal with %s %.60s: %v", name, value, err)
			}
		}
	}
	if err := readsProposal(proposalMembers().with("mechanism", `"weighted"`).text()); !isInvalid(err) {
		t.Errorf("weighted without weights_hash: %v, expected an InvalidError", err)
	}
}

// TestRead_Rationale: a vote that rejects needs a rationale, others do not (CNS-11, CNS-15).
func TestRead_Rationale(t *testing.T) {
	t.Parallel()
	for decision, needs := range map[string]bool{"approve": false, "abstain": false, "reject": true} {
		m := voteMembers().with("decision", quoted(decision))
		if err := readsVote(m.text()); isInvalid(err) != needs {
			t.Errorf("%s without a rationale: %v", decision, err)
		}
		if err := readsVote(m.with("rationale", `""`).text()); isInvalid(err) != needs {
			t.Errorf("%s with an empty rationale: %v", decision, err)
		}
		if err := readsVote(m.with("rationale", long(1024)).text()); err != nil {
			t.Errorf("%s with a rationale: %v", decision, err)
		}
	}
}

// TestRead_KindsOfAcks: each kind of acknowledgement has what belongs to it, and nothing else.
func TestRead_KindsOfAcks(t *testing.T) {
	t.Parallel()
	own := map[string]members{
		"received": {}, "sealed": {"vote_hash": quotedHash}, "executed": {"outcomes": `["o"]`}, "refuses": {"outcomes": `["o"]`, "rationale": `"why"`},
		"disputed": {"outcomes": `["o","p"]`}, "nonce": {"nonce": `"n"`},
	}
	for kind, extra := range own {
		good := ackMembers().with("kind", quoted(kind))
		maps.Copy(good, extra)
		if err := readsAck(good.text()); err != nil {
			t.Errorf("%s: %v", kind, err)
		}
		for other, more := range own {
			for name, value := range more {
				if _, has := extra[name]; has && value == extra[name] || name == "rationale" {
					continue
				}
				if err := readsAck(good.with(name, value).text()); !isInvalid(err) {
					t.Errorf("%s with the %s of %s: %v, expected an InvalidError", kind, name, other, err)
				}
			}
		}
		for name := range extra {
			if err := readsAck(good.with(name, "").text()); name != "rationale" && !isInvalid(err) {
				t.Errorf("%s without %s: %v, expected an InvalidError", kind, name, err)
			}
		}
	}
	for _, value := range []string{`[""]`, `[` + long(MaxVote+1) + `]`, `["a","b"]`, `[]`} {
		if err := readsAck(ackMembers().with("kind", `"executed"`).with("outcomes", value).text()); !isInvalid(err) {
			t.Errorf("executed with the outcomes %.20s: %v, expected an InvalidError", value, err)
		}
	}
}

// TestRead_Depth: a message is nested at most 32 deep; what looks nested inside of a text is not.
func TestRead_Depth(t *testing.T) {
	t.Parallel()
	nested := func(n int) []byte {
		return proposalMembers().with("action", strings.Repeat(`{"a":`, n)+"1"+strings.Repeat("}", n)).text()
	}
	if err := readsProposal(nested(31)); err != nil {
		t.Errorf("32 deep: %v", err)
	}
	for _, n := range []int{32, 4000} {
		if err := readsProposal(nested(n)); !isInvalid(err) || !strings.Contains(err.Error(), "nested deeper than 32") {
			t.Errorf("%d deep: %v, expected an InvalidError about it", n+1, err)
		}
	}
	texts := proposalMembers().with("action", `{"a":"`+strings.Repeat(`{[\"\\`, 100)+`","b":[[1],[2]]}`)
	if err := readsProposal(texts.text()); err != nil {
		t.Errorf("brackets in a text: %v", err)
	}
}

// TestEncode_ReadsTheSame: what is encoded is read the same again, with each member.
func TestEncode_ReadsTheSame(t *testing.T) {
	t.Parallel()
	hash := ect.Hash(nil)
	again(t, Proposal{
		ID: uuidOf(1), Proposer: "a", Round: uuidOf(2), Mechanism: Weighted, Subject: "s<&>", Action: []byte(`{"a":"<\u2028>","b":1.50}`), Timeout: At(opened), Quorum: 3,
		Participants: []ect.Identity{"b", "a"},
		Terms:        Terms{Group: "g", Resource: "r", Urgency: 3, Reversible: true, RevealBy: At(opened.Add(time.Minute)), Weights: hash, Nonce: hash, Workflow: uuidOf(3), Timestamp: opened.Add(1)},
	})
	again(t, Vote{Proposal: uuidOf(1), Round: uuidOf(2), Voter: "a", Decision: Reject, Rationale: "no", Timestamp: opened.Add(1), Weights: hash})
	again(t, Ack{Proposal: uuidOf(1), Round: uuidOf(2), Participant: "a", Kind: Disputed, Outcomes: []string{"a", "b"}, Timestamp: opened})
	again(t, Outcome{
		Proposal: uuidOf(1), Round: uuidOf(2), Signed: hash, Coordinator: "g", Mechanism: Majority, Result: Abort, Reason: Superseded, Rules: hash, Votes: hash, Rival: hash,
		Tally: Tally{1, 2, 3, 4, 5, 6, 7, 8, 9}, Decided: opened,
	})
}

func again[M Proposal | Vote | Ack | Outcome](t *testing.T, m M) {
	t.Helper()
	text, err := Encode(m)
	if err != nil {
		t.Fatal(err)
	}
	read, err := Read[M](text)
	if err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	second, err := Encode(read)
	if err != nil || !bytes.Equal(text, second) {
		t.Errorf("%s is encoded as %s, %v", text, second, err)
	}
	issuer, at := Signer(m)
	if other, moment := Signer(read); issuer == "" || issuer != other || !at.Equal(moment) {
		t.Errorf("%s at %v signed %s, expected %s at %v", other, moment, text, issuer, at)
	}
}

// FuzzRead_Roundtrip reads any text as each kind of message: what is read and encoded reads the same again.
func FuzzRead_Roundtrip(f *testing.F) {
	for _, k := range kinds() {
		f.Add(k.good.text())
	}
	f.Add(proposalMembers().with("reveal_by", `"Sun, 29 Nov 2026 12:00:01 GMT"`).text())
	f.Add(ackMembers().with("kind", `"disputed"`).with("outcomes", `["a","b"]`).text())
	f.Fuzz(func(t *testing.T, text []byte) {
		if m, err := Read[Proposal](text); err == nil {
			again(t, m)
		}
		if m, err := Read[Vote](text); err == nil {
			again(t, m)
		}
		if m, err := Read[Ack](text); err == nil {
			again(t, m)
		}
		if m, err := Read[Outcome](text); err == nil {
			again(t, m)
		}
	})
}
