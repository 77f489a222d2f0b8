package httpapi_test

import (
	"context"
	"encoding/json"
	"maps"
	"reflect"
	"testing"
	"time"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/ect/ecttest"
	coordinator "github.com/aepb/aepb-gateway/gateway/consensus"
	rounds "github.com/aepb/aepb-gateway/gateway/httpapi/consensus"
	"github.com/aepb/aepb-gateway/policy/consensus"
	"github.com/aepb/aepb-gateway/policy/consensus/signed"
)

const roundID = "00000000-0000-4000-8000-000000000001"

// oneRound is a round that was decided, and its group.
type oneRound struct {
	round consensus.Round
	vote  string
}

func newRound(t *testing.T) oneRound {
	t.Helper()
	who := ecttest.NewParty(t, "spiffe://example.com/client")
	signer, now := who.Signer(t, nil), time.Now()
	p := consensus.Proposal{
		ID: roundID, Round: roundID, Proposer: who.ID, Mechanism: consensus.Majority, Subject: "why", Action: json.RawMessage(`{}`), Timeout: consensus.At(now.Add(time.Hour)),
		Quorum: 1, Participants: []ect.Identity{who.ID},
		Terms: consensus.Terms{Group: "team", Timestamp: now},
	}
	proposal, err := signed.Sign(signer, p)
	if err != nil {
		t.Fatal(err)
	}
	g := oneRound{}.group()
	r, err := consensus.Open(consensus.Opening{Proposal: p, Signed: proposal.Compact, Group: g, Since: func(ect.Identity) time.Time { return now }, Workflow: "w", Now: now})
	if err != nil {
		t.Fatal(err)
	}
	vote, err := signed.Sign(signer, consensus.Vote{Proposal: p.ID, Round: p.Round, Voter: who.ID, Decision: consensus.Approve, Timestamp: now})
	if err != nil {
		t.Fatal(err)
	}
	box := consensus.Box{Ballots: []consensus.Ballot{{Vote: vote.Content, Hash: vote.Hash, Received: now}}}
	if r, err = r.Next(consensus.Event{Kind: consensus.Look, At: now, Box: box}); err != nil || r.Phase != consensus.Committed {
		t.Fatal(r.Phase, err)
	}
	r.End.Outcome.Coordinator = who.ID
	outcome, err := signed.Sign(signer, r.End.Outcome)
	if err != nil {
		t.Fatal(err)
	}
	r.End.Signature, r.Proposed = outcome.Compact, "1"
	return oneRound{r, vote.Compact}
}

func (oneRound) group() consensus.Group {
	const who = "spiffe://example.com/client"
	return consensus.Group{
		Name: "team", Members: []consensus.Member{{ID: who, Weight: 1}}, Proposers: map[ect.Identity]int{who: 1}, Mechanisms: consensus.Mechanisms(),
	}
}

func (o oneRound) Group(_ context.Context, name string, who ect.Identity) (consensus.Group, []consensus.Member, ect.Identity, error) {
	if g := o.group(); name == g.Name {
		return g, g.Members, who, nil
	}
	return consensus.Group{}, nil, "", missing("group")
}

func (o oneRound) Show(_ context.Context, id string, _ ect.Identity) (consensus.Round, error) {
	if id != roundID {
		return consensus.Round{}, missing("round")
	}
	return o.round, nil
}

func (o oneRound) List(context.Context, ect.Identity, string, int) ([]consensus.Round, string, error) {
	return []consensus.Round{o.round}, roundID, nil
}

func (o oneRound) Propose(_ context.Context, _ ect.Identity, text []byte) (consensus.Round, error) {
	_, err := signed.Parse[consensus.Proposal](text)
	return o.round, err
}

func (o oneRound) Vote(_ context.Context, _ ect.Identity, _ string, text []byte) (string, error) {
	v, err := signed.Parse[consensus.Vote](text)
	return v.Hash, err
}

func (o oneRound) Acknowledge(_ context.Context, _ ect.Identity, _ string, text []byte) (string, error) {
	a, err := signed.Parse[consensus.Ack](text)
	return a.Hash, err
}

func (o oneRound) Messages(ctx context.Context, id string, who ect.Identity, after, _ int) ([]coordinator.Message, bool, error) {
	_, err := o.Show(ctx, id, who)
	return []coordinator.Message{{Kind: "vote", Compact: o.vote, Received: o.round.Opened}}, after == 0, err
}

func (o oneRound) Follow(ctx context.Context, id string, who ect.Identity, tell func(consensus.Round, bool) error) error {
	r, err := o.Show(ctx, id, who)
	if err != nil {
		return err
	}
	return tell(r, true)
}

// body is the signed proposal or vote of the round, as it is sent.
func (o oneRound) body(t *testing.T, vote bool) string {
	t.Helper()
	var text []byte
	var err error
	if vote {
		var m signed.Message[consensus.Vote]
		if m, err = signed.Take[consensus.Vote](o.vote); err == nil {
			text, err = m.MarshalJSON()
		}
	} else {
		var m signed.Message[consensus.Proposal]
		if m, err = signed.Take[consensus.Proposal](o.round.Signed); err == nil {
			text, err = m.MarshalJSON()
		}
	}
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// consensusBodies are the types of bodies of consensus rounds, by their name in the OpenAPI document.
func consensusBodies(types map[string]reflect.Type) {
	maps.Copy(types, map[string]reflect.Type{
		"ConsensusGroup": reflect.TypeFor[rounds.GroupView](), "ConsensusMember": reflect.TypeFor[consensus.Member](), "ConsensusRound": reflect.TypeFor[rounds.RoundView](),
		"ConsensusProposal": reflect.TypeFor[consensus.Proposal](), "ConsensusVote": reflect.TypeFor[consensus.Vote](), "ConsensusAck": reflect.TypeFor[consensus.Ack](),
		"ConsensusOutcome": reflect.TypeFor[consensus.Outcome](), "ConsensusTally": reflect.TypeFor[consensus.Tally](), "ConsensusRules": reflect.TypeFor[consensus.Rules](),
		"ConsensusDeadlock": reflect.TypeFor[consensus.Deadlock](), "ConsensusCandidate": reflect.TypeFor[consensus.Candidate](), "ConsensusRoundPage": reflect.TypeFor[rounds.Page](),
		"ConsensusMessage": reflect.TypeFor[rounds.MessageView](), "ConsensusMessagePage": reflect.TypeFor[rounds.Messages](), "ConsensusTaken": reflect.TypeFor[rounds.Taken](),
	})
}
