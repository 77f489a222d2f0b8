package signed_test

import (
	"encoding/json"
	"errors"
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/ect/ecttest"
	"github.com/aepb/aepb-gateway/policy/consensus"
	"github.com/aepb/aepb-gateway/policy/consensus/signed"
)

const (
	proposalID = "0191f6a0-0000-7000-8000-000000000001"
	roundID    = "0191f6a0-0000-7000-8000-000000000002"
)

var now = time.Date(2026, 11, 29, 12, 0, 0, 0, time.UTC)

func proposalOf(by ect.Identity) consensus.Proposal {
	return consensus.Proposal{
		ID: proposalID, Proposer: by, Round: roundID, Mechanism: consensus.Majority, Subject: "restart <a> & b", Action: json.RawMessage(`{"tool":"<restart>","z":1.50,"a":"\u2028"}`),
		Timeout: consensus.At(now.Add(time.Minute)), Quorum: 2, Participants: []ect.Identity{by, "spiffe://example.com/b"},
		Terms: consensus.Terms{Group: "ops", Timestamp: now},
	}
}

func voteOf(by ect.Identity) consensus.Vote {
	return consensus.Vote{Proposal: proposalID, Round: roundID, Voter: by, Decision: consensus.Reject, Rationale: "it is <risky>", Timestamp: now}
}

func ackOf(by ect.Identity) consensus.Ack {
	return consensus.Ack{Proposal: proposalID, Round: roundID, Participant: by, Kind: consensus.Received, Timestamp: now}
}

func outcomeOf(by ect.Identity) consensus.Outcome {
	hash := ect.Hash(nil)
	return consensus.Outcome{
		Proposal: proposalID, Round: roundID, Signed: hash, Coordinator: by, Mechanism: consensus.Majority, Result: consensus.Commit, Reason: consensus.Accepted,
		Tally: consensus.Tally{Participants: 2, Approve: 2, Connected: 2}, Rules: hash, Votes: hash, Decided: now,
	}
}

func party(tb testing.TB, name string) *ecttest.Party {
	tb.Helper()
	return ecttest.NewParty(tb, ect.Identity("spiffe://example.com/"+name))
}

func verifierOf(tb testing.TB, parties ...*ecttest.Party) *ect.Verifier {
	tb.Helper()
	v, err := ect.NewVerifier(ect.VerifierDeps{Keys: ecttest.KeysOf(parties...), Now: func() time.Time { return now }})
	if err != nil {
		tb.Fatal(err)
	}
	return v
}

func clock() time.Time { return now }

func sign[M signed.Content](tb testing.TB, by *ecttest.Party, m M) signed.Message[M] {
	tb.Helper()
	out, err := signed.Sign(by.Signer(tb, clock), m)
	if err != nil {
		tb.Fatal(err)
	}
	return out
}

// TestMessage_RoundTrip: a message of each kind is signed, sent, read and verified; its hash names its signature.
func TestMessage_RoundTrip(t *testing.T) {
	t.Parallel()
	for _, by := range []*ecttest.Party{party(t, "a"), ecttest.NewEdwardsParty(t, "spiffe://example.com/e")} {
		roundTrip(t, by, proposalOf(by.ID))
		roundTrip(t, by, voteOf(by.ID))
		roundTrip(t, by, ackOf(by.ID))
		roundTrip(t, by, outcomeOf(by.ID))
	}
}

func roundTrip[M signed.Content](t *testing.T, by *ecttest.Party, m M) {
	t.Helper()
	sent := sign(t, by, m)
	for name, text := range map[string][]byte{"as it is": must(sent.MarshalJSON()), "inside of another value": must(json.Marshal(sent)), "with spaces": must(json.MarshalIndent(sent, "", "  "))} {
		got, err := signed.Parse[M](text)
		if err != nil {
			t.Fatalf("%T %s: %v\n%s", m, name, err, text)
		}
		want, have := must(consensus.Encode(m)), must(consensus.Encode(got.Content))
		if string(want) != string(have) || got.Compact != sent.Compact || got.Hash != ect.Hash([]byte(sent.Compact)) || sent.Hash != got.Hash {
			t.Errorf("%T %s: %s, expected %s", m, name, have, want)
		}
		if err := got.Verify(t.Context(), verifierOf(t, by)); err != nil {
			t.Errorf("%T %s: %v", m, name, err)
		}
	}
}

func must(text []byte, err error) []byte {
	if err != nil {
		return []byte(err.Error())
	}
	return text
}

// TestMessage_DraftNames: messages have the members that the draft names, dates as RFC 9110 has them, and a member signature.
func TestMessage_DraftNames(t *testing.T) {
	t.Parallel()
	by := party(t, "a")
	for kind, c := range map[string]struct {
		text  []byte
		names string
	}{
		"proposal": {must(sign(t, by, proposalOf(by.ID)).MarshalJSON()), "proposal_id proposer consensus_round_id mechanism subject action timeout quorum participants signature"},
		"vote":     {must(sign(t, by, voteOf(by.ID)).MarshalJSON()), "proposal_id voter decision rationale timestamp signature"},
		"outcome":  {must(sign(t, by, outcomeOf(by.ID)).MarshalJSON()), "proposal_id outcome tally signature"},
	} {
		var members map[string]any
		if err := json.Unmarshal(c.text, &members); err != nil {
			t.Fatal(err)
		}
		for name := range strings.FieldsSeq(c.names) {
			if members[name] == nil {
				t.Errorf("%s has no %s: %s", kind, name, c.text)
			}
		}
		if kind == "proposal" && members["timeout"] != "Sun, 29 Nov 2026 12:01:00 GMT" {
			t.Errorf("timeout is %v, expected an HTTP-date", members["timeout"])
		}
	}
}

// TestTake_OtherTypes: a message of one kind is not taken for one of another, nor an ECT for a message, nor a message for an ECT.
func TestTake_OtherTypes(t *testing.T) {
	t.Parallel()
	by := party(t, "a")
	all := map[string]string{
		"proposal": sign(t, by, proposalOf(by.ID)).Compact, "vote": sign(t, by, voteOf(by.ID)).Compact,
		"ack": sign(t, by, ackOf(by.ID)).Compact, "outcome": sign(t, by, outcomeOf(by.ID)).Compact,
		"ect":         ecttest.Mint(t, by, ecttest.Recipe{RawPayload: string(must(consensus.Encode(voteOf(by.ID))))}),
		"typ is none": ecttest.Mint(t, by, ecttest.Recipe{Header: ecttest.Raw{"typ": ""}, RawPayload: string(must(consensus.Encode(voteOf(by.ID))))}),
	}
	takes := map[string]func(string) error{
		"proposal": func(c string) error { _, err := signed.Take[consensus.Proposal](c); return err },
		"vote":     func(c string) error { _, err := signed.Take[consensus.Vote](c); return err },
		"ack":      func(c string) error { _, err := signed.Take[consensus.Ack](c); return err },
		"outcome":  func(c string) error { _, err := signed.Take[consensus.Outcome](c); return err },
	}
	for kind, take := range takes {
		for name, compact := range all {
			if err := take(compact); name == kind && err != nil {
				t.Errorf("%s: %v", name, err)
			} else if name != kind && !refusedAs(err, ect.ReasonWrongType) {
				t.Errorf("%s taken for %s: %v, expected that its type is wrong", name, kind, err)
			}
		}
	}
	audience := "spiffe://example.com/gateway"
	v, err := ect.NewVerifier(ect.VerifierDeps{Keys: ecttest.KeysOf(by), Replay: ecttest.NewReplay(), Audience: []string{audience}, MinLevel: ect.L1, Now: clock})
	if err != nil {
		t.Fatal(err)
	}
	for name, compact := range all {
		for _, purpose := range []ect.Check{{Purpose: ect.Source, Peer: by.Peer()}, {Purpose: ect.Parent, Peer: by.Peer()}} {
			if _, err := v.Verify(t.Context(), compact, purpose); err == nil {
				t.Errorf("%s is taken for an ECT", name)
			} else if name != "ect" && name != "typ is none" && !refusedAs(err, ect.ReasonWrongType) {
				t.Errorf("%s as an ECT: %v, expected that its type is wrong", name, err)
			}
		}
	}
	// Even with the payload of an ECT: the type keeps them apart.
	claims := ect.Claims{Audience: []string{audience}, IssuedAt: now.Unix(), Expires: now.Unix() + 60}
	if _, err := v.Verify(t.Context(), ecttest.Mint(t, by, ecttest.Recipe{Claims: claims}), ect.Check{Purpose: ect.Parent}); err != nil {
		t.Fatalf("the ECT itself: %v", err)
	}
	note := ecttest.Mint(t, by, ecttest.Recipe{Claims: claims, Header: ecttest.Raw{"typ": `"` + signed.TypeVote + `"`}})
	if _, err := v.Verify(t.Context(), note, ect.Check{Purpose: ect.Parent}); !refusedAs(err, ect.ReasonWrongType) {
		t.Errorf("claims of an ECT under the type of a vote: %v, expected that its type is wrong", err)
	}
}

func refusedAs(err error, reason ect.Reason) bool {
	var invalid *ect.InvalidError
	return errors.As(err, &invalid) && invalid.Reason == reason
}

// TestVerify_Refuses: a message that another agent signed, or that was changed, is not believed (CNS-56).
func TestVerify_Refuses(t *testing.T) {
	t.Parallel()
	a, b, stranger := party(t, "a"), party(t, "b"), party(t, "c")
	v := verifierOf(t, a, b)
	verify := func(compact string) error {
		m, err := signed.Take[consensus.Vote](compact)
		if err != nil {
			t.Fatal(err)
		}
		return m.Verify(t.Context(), v)
	}
	mint := func(by *ecttest.Party, voter ect.Identity, header ecttest.Raw, sign ecttest.Sign) string {
		merged := ecttest.Raw{"typ": `"` + signed.TypeVote + `"`}
		maps.Copy(merged, header)
		return ecttest.Mint(t, by, ecttest.Recipe{RawPayload: string(must(consensus.Encode(voteOf(voter)))), Header: merged, Sign: sign})
	}
	if err := verify(mint(a, a.ID, nil, nil)); err != nil {
		t.Fatalf("as it should be: %v", err)
	}
	if err := verify(mint(a, a.ID, ecttest.Raw{"typ": `"application/Consensus-Vote+JWT"`}, nil)); err != nil {
		t.Errorf("the type in its long form: %v", err)
	}
	good := strings.Split(mint(a, a.ID, nil, nil), ".")
	other := voteOf(a.ID)
	other.Decision = consensus.Approve
	changed := good[0] + "." + ecttest.Encode(string(must(consensus.Encode(other)))) + "." + good[2]
	for name, c := range map[string]struct {
		compact string
		reason  ect.Reason
	}{
		"another agent's vote":  {mint(b, a.ID, nil, nil), ect.ReasonIssuerMismatch},
		"another agent's key":   {mint(b, a.ID, ecttest.Raw{"kid": `"` + a.KeyID + `"`, "x5c": ""}, nil), ect.ReasonInvalidSignature},
		"a stranger":            {mint(stranger, stranger.ID, nil, nil), ect.ReasonUnknownKey},
		"a changed payload":     {changed, ect.ReasonInvalidSignature},
		"no signature":          {mint(a, a.ID, nil, ecttest.SignNothing), ect.ReasonInvalidSignature},
		"a shared secret":       {mint(a, a.ID, ecttest.Raw{"alg": `"HS256"`}, ecttest.SignHS256([]byte(a.KeyID))), ect.ReasonUnsupportedAlg},
		"the algorithm of none": {mint(a, a.ID, ecttest.Raw{"alg": `"none"`}, ecttest.SignNothing), ect.ReasonUnsupportedAlg},
		"another algorithm":     {mint(a, a.ID, ecttest.Raw{"alg": `"EdDSA"`}, nil), ect.ReasonUnsupportedAlg},
	} {
		if err := verify(c.compact); !refusedAs(err, c.reason) {
			t.Errorf("%s: %v, expected %s", name, err, c.reason)
		}
	}
	if err := (signed.Message[consensus.Vote]{Content: voteOf(a.ID)}).Verify(t.Context(), v); err == nil {
		t.Error("a message without a signature is believed")
	}
	if _, err := signed.Take[consensus.Vote](mint(a, a.ID, ecttest.Raw{"crit": `["b64"]`, "b64": "false"}, nil)); !refusedAs(err, ect.ReasonUnsupportedCritical) {
		t.Errorf("a critical parameter: %v", err)
	}
}

// TestParse_Refuses: members that differ from those that were signed, and texts that are no message, are refused.
func TestParse_Refuses(t *testing.T) {
	t.Parallel()
	by := party(t, "a")
	vote := sign(t, by, voteOf(by.ID))
	good := string(must(vote.MarshalJSON()))
	replaced := func(before, after string) string {
		if !strings.Contains(good, before) {
			t.Fatalf("%s is not in %s", before, good)
		}
		return strings.Replace(good, before, after, 1)
	}
	signature := `,"signature":"` + vote.Compact + `"`
	for name, text := range map[string]string{
		"another decision":         replaced(`"reject"`, `"approve"`),
		"another rationale":        replaced("risky", "safe"),
		"another voter":            replaced("example.com/a", "example.com/b"),
		"another moment":           replaced("12:00:00", "12:00:01"),
		"a member is missing":      replaced(`"rationale":"it is <risky>",`, ""),
		"a member more":            replaced(`"voter"`, `"weights_hash":"`+ect.Hash(nil)+`","voter"`),
		"an unknown member":        replaced(`"voter"`, `"more":1,"voter"`),
		"a member twice":           replaced(`"voter"`, `"decision":"reject","voter"`),
		"a signature twice":        replaced(signature, signature+signature),
		"no signature":             replaced(signature, ""),
		"a signature of null":      replaced(signature, `,"signature":null`),
		"a signature of a number":  replaced(signature, `,"signature":1`),
		"an empty signature":       replaced(signature, `,"signature":""`),
		"the signature alone":      "{" + signature[1:] + "}",
		"the signature of another": replaced(vote.Compact, sign(t, by, ackOf(by.ID)).Compact),
		"a list":                   "[" + good + "]",
		"nothing":                  "",
		"something after it":       good + "{}",
		"deep":                     strings.Repeat("[", 100_000),
	} {
		m, err := signed.Parse[consensus.Vote]([]byte(text))
		if err == nil {
			t.Errorf("%s: it is read as %+v", name, m.Content)
		}
	}
	var invalid *consensus.InvalidError
	if _, err := signed.Parse[consensus.Vote]([]byte(replaced(`"reject"`, `"approve"`))); !errors.As(err, &invalid) {
		t.Errorf("%v, expected an InvalidError", err)
	}
	if _, err := signed.Parse[consensus.Vote]([]byte(good)); err != nil {
		t.Errorf("as it should be: %v", err)
	}
}

// TestSign_Refuses: what cannot be read, or is too long, is not signed.
func TestSign_Refuses(t *testing.T) {
	t.Parallel()
	by := party(t, "a")
	bad := voteOf(by.ID)
	bad.Rationale = ""
	var invalid *consensus.InvalidError
	if m, err := signed.Sign(by.Signer(t, clock), bad); !errors.As(err, &invalid) || m.Compact != "" {
		t.Errorf("a rejection without a rationale: %v, expected an InvalidError and no signature", err)
	}
	long := voteOf(by.ID)
	long.Voter = ect.Identity("spiffe://example.com/" + strings.Repeat("a", consensus.MaxVote))
	if _, err := signed.Sign(by.Signer(t, clock), long); !errors.Is(err, ect.ErrUnsignable) {
		t.Errorf("a vote that is too long: %v, expected ErrUnsignable", err)
	}
	compact := ecttest.Mint(t, by, ecttest.Recipe{RawPayload: string(must(consensus.Encode(long))), Header: ecttest.Raw{"typ": `"` + signed.TypeVote + `"`}})
	var large *ect.TooLargeError
	if _, err := signed.Take[consensus.Vote](compact); !errors.As(err, &large) || large.Limit != consensus.MaxVote {
		t.Errorf("a signature that is too long: %v, expected a TooLargeError", err)
	}
	many := proposalOf(by.ID)
	for i := range consensus.MaxParticipants - 2 {
		many.Participants = append(many.Participants, ect.Identity("spiffe://example.com/"+strings.Repeat("a", 100)+string(rune('a'+i%26))+strings.Repeat("b", i/26)))
	}
	if m, err := signed.Sign(by.Signer(t, clock), many); err != nil || len(m.Content.Participants) != consensus.MaxParticipants {
		t.Errorf("a proposal of 500 participants: %v", err)
	}
	big := outcomeOf(by.ID)
	big.Approval = strings.Repeat("a", 8000)
	first, second := sign(t, by, big), sign(t, by, outcomeOf(by.ID))
	second.Compact = first.Compact[:len(first.Compact)-1] + "A"
	disputed := ackOf(by.ID)
	disputed.Kind, disputed.Outcomes = consensus.Disputed, []string{first.Compact, second.Compact}
	roundTrip(t, by, disputed)
}

// TestAccept_FirstOutcome: the first outcome of a round is kept; the same content, signed once more, is the same outcome, and any
// other one is equivocation (CNS-26).
func TestAccept_FirstOutcome(t *testing.T) {
	t.Parallel()
	a, b := party(t, "a"), party(t, "b")
	first := sign(t, a, outcomeOf(a.ID)).Compact
	again := ecttest.Mint(t, a, ecttest.Recipe{RawPayload: string(must(consensus.Encode(outcomeOf(a.ID)))), Header: ecttest.Raw{"typ": `"` + signed.TypeOutcome + `"`}})
	if first == again {
		t.Fatal("two signatures are equal, so this tests nothing")
	}
	for name, before := range map[string]string{"nothing was taken": "", "the same": first, "the same content": again} {
		want := first
		if before != "" {
			want = before
		}
		if stored, err := signed.Accept(before, first); err != nil || stored != want {
			t.Errorf("%s: %v, %v; expected the one that came first", name, stored == want, err)
		}
	}
	edits := map[string]func(o *consensus.Outcome){
		"another result":       func(o *consensus.Outcome) { o.Result, o.Reason = consensus.Abort, consensus.Rejected },
		"another tally":        func(o *consensus.Outcome) { o.Tally.Abstain++ },
		"another moment":       func(o *consensus.Outcome) { o.Decided = now.Add(1) },
		"other messages":       func(o *consensus.Outcome) { o.Votes = ect.Hash([]byte("other")) },
		"another coordinator":  func(o *consensus.Outcome) { o.Coordinator = b.ID },
		"other rules":          func(o *consensus.Outcome) { o.Rules = ect.Hash([]byte("other")) },
		"a rival":              func(o *consensus.Outcome) { o.Rival = ect.Hash([]byte("other")) },
		"an approval":          func(o *consensus.Outcome) { o.Approval = "approval" },
		"another signed round": func(o *consensus.Outcome) { o.Signed = ect.Hash([]byte("other")) },
	}
	for name, edit := range edits {
		o := outcomeOf(a.ID)
		edit(&o)
		second := sign(t, a, o).Compact
		stored, err := signed.Accept(first, second)
		var equivocation *signed.EquivocationError
		if !errors.As(err, &equivocation) || equivocation.First != first || equivocation.Second != second || stored != first {
			t.Errorf("%s: %v, expected an EquivocationError with both", name, err)
		}
	}
	for name, wrong := range map[string]string{"a vote": sign(t, a, voteOf(a.ID)).Compact, "nonsense": "a.b.c"} {
		stored, err := signed.Accept(first, wrong)
		var equivocation *signed.EquivocationError
		if err == nil || errors.As(err, &equivocation) || stored != first {
			t.Errorf("%s: %v, expected another error, and that the first is kept", name, err)
		}
	}
}

// FuzzMessage_Parse reads any text as a message: what is read and written reads the same again, and says what its signature says.
func FuzzMessage_Parse(f *testing.F) {
	by := party(f, "a")
	f.Add(must(sign(f, by, proposalOf(by.ID)).MarshalJSON()))
	f.Add(must(sign(f, by, voteOf(by.ID)).MarshalJSON()))
	f.Add(must(sign(f, by, ackOf(by.ID)).MarshalJSON()))
	f.Add(must(sign(f, by, outcomeOf(by.ID)).MarshalJSON()))
	f.Add([]byte(`{"signature":"a.b.c"}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		parsesAgain[consensus.Proposal](t, text)
		parsesAgain[consensus.Vote](t, text)
		parsesAgain[consensus.Ack](t, text)
		parsesAgain[consensus.Outcome](t, text)
	})
}

func parsesAgain[M signed.Content](t *testing.T, text []byte) {
	t.Helper()
	m, err := signed.Parse[M](text)
	if err != nil {
		return
	}
	written := must(m.MarshalJSON())
	again, err := signed.Parse[M](written)
	if err != nil || again.Compact != m.Compact || again.Hash != m.Hash || string(must(again.MarshalJSON())) != string(written) {
		t.Errorf("%s is written as %s: %v", text, written, err)
	}
	taken, err := signed.Take[M](m.Compact)
	if err != nil || string(must(consensus.Encode(taken.Content))) != string(must(consensus.Encode(m.Content))) {
		t.Errorf("%s says something else than its signature: %v", text, err)
	}
}
