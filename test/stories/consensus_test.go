package stories

import (
	"encoding/json"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/gateway/config"
	rounds "github.com/aepb/aepb-gateway/gateway/httpapi/consensus"
	"github.com/aepb/aepb-gateway/policy/consensus"
	gatewaytest "github.com/aepb/aepb-gateway/test/harness/gateway"
)

// roundEvidence are the claims of the tokens of a round that a caller reads in its workflow, by act.
func roundEvidence(t *testing.T, b *gatewaytest.Fixture, via *http.Client, wid string) (status int, out map[ect.Act][]ect.Claims) {
	t.Helper()
	got := b.Send(t, gatewaytest.HTTPRequest{Via: via, Method: http.MethodGet, Media: "-", At: "/workflows/" + wid})
	var page struct {
		ECTs []string `json:"ects"`
	}
	out = map[ect.Act][]ect.Claims{}
	if got.Status != http.StatusOK {
		return got.Status, out
	}
	gatewaytest.Must(t, json.Unmarshal(got.Body, &page))
	for _, compact := range page.ECTs {
		token, err := b.Judge.Verify(t.Context(), compact, ect.Check{Purpose: ect.Parent})
		gatewaytest.Must(t, err)
		out[token.Claims().Act] = append(out[token.Claims().Act], token.Claims())
	}
	return got.Status, out
}

// TestConsensus_Majority: three participants decide over HTTP, with their certificates and keys, wherever the state is kept. Each
// reads the signed outcome, computes it anew, and reads the evidence; others read nothing of it (R24, R25).
func TestConsensus_Majority(t *testing.T) {
	t.Parallel()
	for name, state := range map[string]func(t *testing.T) config.State{
		"in memory": func(*testing.T) config.State { return config.State{} },
		"in a file": func(t *testing.T) config.State {
			t.Helper()
			return config.State{Path: filepath.Join(t.TempDir(), "state")}
		},
		"in Redis": func(t *testing.T) config.State {
			t.Helper()
			return gatewaytest.NewRedis(t).State()
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := gatewaytest.Deciding()
			p.Config.State = state(t)
			b := gatewaytest.NewFixture(t, p)
			decidesByMajority(t, b)
		})
	}
}

func decidesByMajority(t *testing.T, b *gatewaytest.Fixture) {
	t.Helper()
	members, outsider := b.ThreeVoters(t), b.Voter(t, "/mallory")
	alice, bob, carol := members[0], members[1], members[2]
	p := b.Proposal(t, alice, consensus.Majority, 20*time.Hour, nil)
	opened := b.Propose(t, alice, p)
	if again := b.Propose(t, alice, p); opened.Phase != consensus.Voting || again.Round != opened.Round || again.Proposed != opened.Proposed {
		t.Errorf("opened as %+v, and once more as %+v", opened, again)
	}
	list := gatewaytest.Answered[rounds.Page](t, b.Send(t, gatewaytest.HTTPRequest{Via: carol.Via, Method: http.MethodGet, Media: "-", At: gatewaytest.RoundsAt}), http.StatusOK)
	if len(list.Rounds) != 1 || list.Rounds[0].Round != p.Round || list.Next != "" {
		t.Errorf("listed as %+v", list)
	}
	stream := b.EventsOf(t, carol, p.Round)
	var seen rounds.RoundView
	gatewaytest.Must(t, json.Unmarshal([]byte(gatewaytest.NextData(t, stream)), &seen))
	b.Acknowledge(t, carol, p, gatewaytest.AckOf(carol, p, consensus.Received))
	b.Votes(t, alice, p, consensus.Approve, "")
	b.Votes(t, bob, p, consensus.Approve, "it is right")
	if own, others := b.Ballots(t, bob, p.Round), b.Ballots(t, carol, p.Round); len(own) != 1 || len(others) != 1 || others[0].Kind != "ack" {
		t.Errorf("before the tally bob reads %d messages, and carol %d", len(own), len(others))
	}
	b.Votes(t, carol, p, consensus.Reject, "it is wrong")
	r := b.Reaches(t, alice, p.Round, consensus.Committed)
	o := b.Holds(t, carol, r, consensus.Commit, consensus.Accepted)
	if o.Tally.Approve != 2 || o.Tally.Reject != 1 || o.Tally.Connected != 3 || len(b.Ballots(t, alice, p.Round)) != 4 {
		t.Errorf("the tally is %+v", o.Tally)
	}
	for seen.Phase != consensus.Committed {
		gatewaytest.Must(t, json.Unmarshal([]byte(gatewaytest.NextData(t, stream)), &seen))
	}
	stream.Scan() // the empty line after an event
	if string(seen.Outcome) != string(r.Outcome) || stream.Scan() {
		t.Errorf("the stream ends with %s", seen.Outcome)
	}
	decisionIsOnRecord(t, b, r, members, outsider)
}

// decisionIsOnRecord demands the tokens of a round that was decided, for its participants alone.
func decisionIsOnRecord(t *testing.T, b *gatewaytest.Fixture, r rounds.RoundView, members []gatewaytest.Voter, outsider gatewaytest.Voter) {
	t.Helper()
	var found map[ect.Act][]ect.Claims
	gatewaytest.Within(t, gatewaytest.Patience, "the votes are on record", func() bool {
		_, found = roundEvidence(t, b, members[2].Via, r.Workflow)
		return len(found[ect.ActConsensusVote]) == len(members)
	})
	opened, ended := found[ect.ActConsensusPropose], found[ect.ActConsensusCommit]
	if len(opened) != 1 || len(ended) != 1 || opened[0].ID != r.Proposed || ended[0].ID != r.Committed {
		t.Fatalf("on record are %+v", found)
	}
	o := gatewaytest.Verified[consensus.Outcome](t, b, r.Outcome)
	if !slices.Equal(ended[0].Parents, []ect.ID{r.Proposed}) || ended[0].InputHash != o.Content.Votes || ended[0].OutputHash != o.Hash {
		t.Errorf("the outcome is on record as %+v", ended[0])
	}
	for _, v := range members {
		if status, _ := roundEvidence(t, b, v.Via, r.Workflow); status != http.StatusOK {
			t.Errorf("%s reads the workflow: %d", v.ID, status)
		}
	}
	if status, _ := roundEvidence(t, b, outsider.Via, r.Workflow); status != http.StatusNotFound && status != http.StatusForbidden {
		t.Errorf("an outsider reads the workflow: %d", status)
	}
	for _, c := range slices.Concat(opened, ended, found[ect.ActConsensusVote]) {
		at := gatewaytest.HTTPRequest{Via: members[1].Via, Method: http.MethodGet, Media: "-", At: "/ects/" + string(c.ID)}
		if got := b.Send(t, at); got.Status != http.StatusOK {
			t.Errorf("a participant reads %s %s: %d", c.Act, c.ID, got.Status)
		}
		at.Via = outsider.Via
		if got := b.Send(t, at); got.Status != http.StatusNotFound && got.Status != http.StatusForbidden || strings.Contains(string(got.Body), "consensus") {
			t.Errorf("an outsider reads %s: %d %s", c.Act, got.Status, got.Body)
		}
	}
}
