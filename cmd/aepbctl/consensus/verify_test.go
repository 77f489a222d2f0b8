package consensus_test

import (
	"encoding/json"
	"errors"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/policy/consensus"
	"github.com/aepb/aepb-gateway/policy/consensus/signed"
)

// saved is a round that was saved, as JSON that a test can change.
type saved struct {
	*setup

	t        *testing.T // of the test that changes it
	id       string
	round    map[string]any
	messages []map[string]any
	extra    map[string]string // files besides
}

// save saves the first round.
func (s *setup) save(id string) *saved {
	s.t.Helper()
	dir := filepath.Join(s.t.TempDir(), "saved")
	s.does("c", "show", id, "--save", dir)
	out := &saved{setup: s, t: s.t, id: id, extra: map[string]string{}}
	read := func(name string, into any) {
		text, err := os.ReadFile(filepath.Join(dir, name))
		must(s.t, err)
		must(s.t, json.Unmarshal(text, into))
	}
	read("round.json", &out.round)
	files, err := filepath.Glob(filepath.Join(dir, "messages*.json"))
	must(s.t, err)
	slices.SortFunc(files, func(a, b string) int { return len(a) - len(b) })
	for _, file := range files {
		var page struct {
			Messages []map[string]any `json:"messages"`
		}
		read(filepath.Base(file), &page)
		out.messages = append(out.messages, page.Messages...)
	}
	return out
}

// verify writes the folder and verifies it.
func (v *saved) verify(flags ...string) (string, error) {
	v.t.Helper()
	dir := v.t.TempDir()
	write := func(name string, content any) {
		text, err := json.Marshal(content)
		must(v.t, err)
		must(v.t, os.WriteFile(filepath.Join(dir, name), text, 0o600))
	}
	write("round.json", v.round)
	write("messages.json", map[string]any{"messages": v.messages})
	for name, text := range v.extra {
		must(v.t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
	}
	out, _, err := v.run("outsider", slices.Concat([]string{"verify", dir}, flags)...)
	return out, err
}

// holds fails unless the round verifies, and says all of this.
func (v *saved) holds(wants ...string) {
	v.t.Helper()
	out, err := v.verify()
	if err != nil || strings.Contains(out, "FAILED") {
		v.t.Errorf("%v: %s", err, out)
	}
	contains(v.t, out, append(wants, "the outcome holds\n")...)
}

// refused fails unless the round is refused for a reason.
func (v *saved) refused(want string, flags ...string) {
	v.t.Helper()
	out, err := v.verify(flags...)
	if !errors.Is(err, errRefused) || !strings.Contains(out, "does NOT hold") {
		v.t.Errorf("%q: it holds: %v: %s", want, err, out)
	}
	var failed []string
	for line := range strings.Lines(out) {
		if strings.HasPrefix(line, "FAILED") {
			failed = append(failed, line)
		}
	}
	contains(v.t, strings.Join(failed, ""), want)
}

// of finds a message: the nth of a kind.
func (v *saved) of(kind string, n int) map[string]any {
	for _, m := range v.messages {
		if m["kind"] != kind {
			continue
		}
		if n--; n < 0 {
			return m
		}
	}
	v.t.Fatalf("there are too few messages of kind %s", kind)
	return nil
}

// signs signs a message as an agent and gives it as JSON.
func signs[M signed.Content](s *setup, name string, m M) map[string]any {
	s.t.Helper()
	text := signedBy(s, s.signer(s.agents[name]), m)
	var out map[string]any
	must(s.t, json.Unmarshal([]byte(text), &out))
	return out
}

func signedBy[M signed.Content](s *setup, signer *ect.Signer, m M) string {
	s.t.Helper()
	done, err := signed.Sign(signer, m)
	must(s.t, err)
	text, err := json.Marshal(done)
	must(s.t, err)
	return string(text)
}

// decide has the gateway sign another outcome.
func (v *saved) decide(change func(*consensus.Outcome)) {
	v.t.Helper()
	o := v.rounds[0].round.End.Outcome
	change(&o)
	var out map[string]any
	must(v.t, json.Unmarshal([]byte(signedBy(v.setup, v.gateway, o)), &out))
	v.round["outcome"] = out
}

// rules changes the rules, and has the gateway sign an outcome that names the changed ones.
func (v *saved) rules(change func(*consensus.Rules), also func(*consensus.Outcome)) {
	v.t.Helper()
	r := v.rounds[0].round.Rules
	r.Members = slices.Clone(r.Members)
	change(&r)
	v.round["rules"] = r
	v.decide(func(o *consensus.Outcome) {
		o.Rules = r.Hash()
		also(o)
	})
}

func nothing(*consensus.Outcome) {}

func TestVerify_Holds(t *testing.T) {
	t.Parallel()
	s, id := committed(t)
	v := s.save(id)
	v.holds("by spiffe://example.org/agents/a", "signed by spiffe://example.org/gateway", "majority: 3 members, quorum 2",
		"agents/b approves at", ": it is due", "agents/c rejects at", "acknowledges: received", "messages of 3 of 3 participants, a commit needs 2",
		"2 approve, 1 reject", "commit, accepted", "else    outcome", "--coordinator checks it")
	out, err := v.verify("--coordinator", "spiffe://example.org/gateway")
	if err != nil || strings.Contains(out, "else") {
		t.Error(out, err)
	}
	v.refused("expected the coordinator spiffe://example.org/agents/x", "--coordinator", "spiffe://example.org/agents/x")
}

// TestVerify_Tampering: each change of a folder is refused, and the reason is that.
func TestVerify_Tampering(t *testing.T) {
	t.Parallel()
	s, id := committed(t)
	for want, change := range map[string]func(*saved){
		"is not a file of the round": func(v *saved) { v.extra["notes.txt"] = "x" },
		"names a next page and that is not there, or there is one that it does not name": func(v *saved) { v.extra["messages-2.json"] = `{"messages":[]}` },
		"messages-2.json is not what this version":                                       func(v *saved) { v.extra["messages-2.json"] = `{"messages":[],"messages":[]}` },
		"round.json is not what this version":                                            func(v *saved) { v.round["more"] = 1 },
		"says something else than what was signed": func(v *saved) {
			v.of("vote", 0)["message"].(map[string]any)["decision"] = "abstain" //nolint:forcetypeassert // JSON of a vote
		},
		"expected vote or ack": func(v *saved) { v.of("ack", 0)["kind"] = "note" },
		"they are not those that the outcome names: one is missing": func(v *saved) { v.messages = v.messages[1:] },
		"stands there twice": func(v *saved) { v.messages = append(v.messages, maps.Clone(v.of("vote", 0))) },
		"it is not signed by spiffe://example.org/agents/b": func(v *saved) {
			vote := v.vote(0)
			vote.Voter = idOf("b")
			v.of("vote", 0)["message"] = signs(v.setup, "a", vote)
		},
		"that of spiffe://example.org/agents/outsider does not count: the voter is no participant": func(v *saved) {
			vote := v.vote(0)
			vote.Voter = idOf("outsider")
			v.messages = append(v.messages, map[string]any{"kind": "vote", "message": signs(v.setup, "outsider", vote), "received": v.rounds[0].round.Opened})
		},
		"does not count: the vote is about another round": func(v *saved) {
			vote := v.vote(0)
			vote.Round = string(ect.NewID())
			v.of("vote", 0)["message"] = signs(v.setup, "a", vote)
		},
		"does not count: the time for votes is over": func(v *saved) { v.of("vote", 1)["received"] = v.rounds[0].round.Deadline().Add(time.Second) },
		"who is no participant of this round":        func(v *saved) { v.ack("outsider", nil) },
		"that of spiffe://example.org/agents/a is about another round": func(v *saved) {
			v.ack("a", func(a *consensus.Ack) { a.Round = string(ect.NewID()) })
		},
		"is refuses, which no outcome rests on": func(v *saved) {
			v.ack("a", func(a *consensus.Ack) { a.Kind, a.Outcomes, a.Rationale = consensus.Refuses, []string{"x"}, "x" })
		},
		"proposal      it is not signed by spiffe://example.org/agents/a": func(v *saved) {
			v.round["proposal"] = signs(v.setup, "b", v.rounds[0].round.Proposal)
		},
		"it is about another proposal or round": func(v *saved) {
			p := v.rounds[0].round.Proposal
			p.Subject = "another one"
			v.round["proposal"] = signs(v.setup, "a", p)
		},
		"outcome       it is not signed by spiffe://example.org/gateway": func(v *saved) {
			v.round["outcome"] = signs(v.setup, "b", v.rounds[0].round.End.Outcome)
		},
		"who takes part in the round": func(v *saved) {
			o := v.rounds[0].round.End.Outcome
			o.Coordinator = idOf("b")
			v.round["outcome"] = signs(v.setup, "b", o)
		},
		"has no outcome":         func(v *saved) { delete(v.round, "outcome") },
		"phase is aborted":       func(v *saved) { v.round["phase"] = "aborted" },
		"round is x":             func(v *saved) { v.round["round"] = "x" },
		"deadline is 2000-01-01": func(v *saved) { v.round["deadline"] = "2000-01-01T00:00:00Z" },
		"not those that the outcome names": func(v *saved) {
			r := v.rounds[0].round.Rules
			r.Threshold = 1
			v.round["rules"] = r
		},
		"the quorum is 1, expected at least 2": func(v *saved) { v.rules(func(r *consensus.Rules) { r.Quorum = 1 }, nothing) },
		"the quorum is 0, expected at least 2": func(v *saved) { // which the proposal allows, and the draft does not
			p := v.rounds[0].round.Proposal
			p.Quorum = 0
			v.round["proposal"] = signs(v.setup, "a", p)
			v.rules(func(r *consensus.Rules) { r.Quorum = 0 }, nothing)
		},
		"they name the leader":                 func(v *saved) { v.rules(func(r *consensus.Rules) { r.Leader = idOf("c") }, nothing) },
		"the rules ask for less":               func(v *saved) { v.rules(func(r *consensus.Rules) { r.Connected = 1 }, nothing) },
		"the members are not the participants": func(v *saved) { v.rules(func(r *consensus.Rules) { r.Members = r.Members[:2] }, nothing) },
		"by the messages it is 2 approve":      func(v *saved) { v.decide(func(o *consensus.Outcome) { o.Tally.Approve = 3 }) },
		"and the outcome says 2":               func(v *saved) { v.decide(func(o *consensus.Outcome) { o.Tally.Connected = 2 }) },
		"its outcome is abort, rejected, and by the messages it is accepted": func(v *saved) {
			v.decide(func(o *consensus.Outcome) { o.Result, o.Reason = consensus.Abort, consensus.Rejected })
			v.round["phase"] = "aborted"
		},
		"by the votes they are []": func(v *saved) { v.round["anomalies"] = []string{"same_moment"} },
	} {
		t.Run(want, func(t *testing.T) {
			t.Parallel()
			v := s.save(id)
			v.t = t
			change(v)
			v.refused(want)
		})
	}
}

// vote is a vote of the first round.
func (v *saved) vote(n int) consensus.Vote {
	v.t.Helper()
	b := v.rounds[0].box(v.t)
	return b.Ballots[n].Vote
}

// ack adds an acknowledgement of an agent.
func (v *saved) ack(name string, change func(*consensus.Ack)) {
	v.t.Helper()
	p := v.rounds[0].round.Proposal
	a := consensus.Ack{Proposal: p.ID, Round: p.Round, Participant: idOf(name), Kind: consensus.Received, Timestamp: p.Terms.Timestamp}
	if change != nil {
		change(&a)
	}
	v.messages = append(v.messages, map[string]any{"kind": "ack", "message": signs(v.setup, name, a), "received": p.Terms.Timestamp})
}

// TestVerify_VoterWithTwoVotes: both are there, and the tally says that neither counts.
func TestVerify_VoterWithTwoVotes(t *testing.T) {
	t.Parallel()
	s := newSetup(t)
	id := s.proposes()
	for _, name := range []string{"a", "b", "c"} {
		s.does(name, "vote", id, "approve")
	}
	st := s.rounds[0]
	b := st.box(t).Ballots[0].Vote
	b.Decision = consensus.Abstain
	text := signedBy(s, s.signer(s.agents["a"]), b)
	m, err := signed.Parse[consensus.Vote]([]byte(text))
	must(t, err)
	st.messages = append(st.messages, message{"vote", json.RawMessage(text), s.now, idOf("a"), m.Hash})
	s.tally(0)
	s.save(id).holds("2 approve, 0 reject, 0 abstain, of 3; 1 voted twice, which does not count")
}

// TestVerify_WhatElse: the other outcome, and the approval, are named.
func TestVerify_WhatElse(t *testing.T) {
	t.Parallel()
	s, id := committed(t)
	st := s.rounds[0]
	rival := ect.Hash([]byte("rival"))
	st.round.Phase, st.round.End.Outcome.Result, st.round.End.Outcome.Reason, st.round.End.Outcome.Rival = consensus.Aborted, consensus.Abort, consensus.Superseded, rival
	s.sign(st)
	s.save(id).holds("else    result", "outcome with hash "+rival)
	st.round.End.Outcome.Reason, st.round.End.Outcome.Rival, st.round.End.Outcome.Approval = consensus.HumanDecided, "", "approval-1"
	st.approval = "approval-1"
	s.sign(st)
	v := s.save(id)
	v.holds("else    result", "approval approval-1")
	v.round["approval"] = "approval-2"
	v.refused("approval is approval-2, and the outcome says approval-1")
}

// TestVerify_EachMechanism: what the gateway decides by each of them holds.
func TestVerify_EachMechanism(t *testing.T) {
	t.Parallel()
	for mechanism, want := range map[consensus.Mechanism]string{
		consensus.Weighted: "weight 200 for and 100 against, of 300", consensus.Leader: "led by spiffe://example.org/agents/a", consensus.Optimistic: "abort, objected",
	} {
		s := newSetup(t)
		id := s.proposes("--mechanism", string(mechanism), "--reversible")
		s.does("a", "vote", id, "approve")
		s.does("b", "vote", id, "approve")
		s.does("c", "vote", id, "reject", "--rationale", "no")
		s.tally(0)
		s.save(id).holds(want)
	}
}

// TestVerify_Weights: a table that the proposal does not name is refused.
func TestVerify_Weights(t *testing.T) {
	t.Parallel()
	s := newSetup(t)
	id := s.proposes("--mechanism", "weighted")
	s.does("a", "vote", id, "approve")
	s.does("b", "vote", id, "approve")
	s.tally(0)
	v := s.save(id)
	v.rules(func(r *consensus.Rules) { r.Members[0].Weight = 250 }, nothing)
	v.refused("the weights are not those that the proposal names")
}

func TestVerify_Folder(t *testing.T) {
	t.Parallel()
	s := newSetup(t)
	dir := t.TempDir()
	s.fails("no such file", "a", "verify", filepath.Join(dir, "none"))
	s.fails("the folder that show --save wrote", "a", "verify", dir)
	must(t, os.WriteFile(filepath.Join(dir, "round.json"), []byte("{}"), 0o600))
	s.fails("messages.json", "a", "verify", dir)
	must(t, os.Truncate(filepath.Join(dir, "round.json"), 65<<20))
	s.fails("expected at most", "a", "verify", dir)
	s.fails("--bundle needs the name", "a", "verify", dir, "--bundle", "x")
}
