package consensus_test

import (
	"slices"
	"testing"
	"time"

	"github.com/aepb/aepb-gateway/policy/consensus"
	"github.com/aepb/aepb-gateway/policy/consensus/signed"
)

// box is what was received for a round.
func (st *stored) box(t *testing.T) (b consensus.Box) {
	t.Helper()
	for _, m := range st.messages {
		if m.Kind == "vote" {
			v, err := signed.Parse[consensus.Vote](m.Message)
			must(t, err)
			b.Ballots = append(b.Ballots, consensus.Ballot{Vote: v.Content, Hash: v.Hash, Received: m.Received})
			continue
		}
		a, err := signed.Parse[consensus.Ack](m.Message)
		must(t, err)
		b.Receipts = append(b.Receipts, consensus.Receipt{Ack: a.Content, Hash: a.Hash, Received: m.Received})
	}
	return b
}

// tally ends the round with this number after its deadline.
func (s *setup) tally(i int) consensus.Outcome {
	s.t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	st := s.rounds[i]
	if end := st.round.Deadline().Add(consensus.Grace); s.now.Before(end) {
		s.now = end
	}
	next, err := st.round.Next(consensus.Event{Kind: consensus.Look, At: s.now, Box: st.box(s.t)})
	must(s.t, err)
	st.round = next
	if next.Phase.Decided() {
		s.sign(st)
	}
	close(s.changed)
	s.changed = make(chan struct{})
	return st.round.End.Outcome
}

// sign signs the outcome of a round.
func (s *setup) sign(st *stored) {
	s.t.Helper()
	st.round.End.Outcome.Coordinator = "spiffe://" + domain + "/gateway"
	m, err := signed.Sign(s.gateway, st.round.End.Outcome)
	must(s.t, err)
	st.round.End.Signature = m.Compact
}

// proposes opens a round by a command, with flags besides those that are required.
func (s *setup) proposes(flags ...string) string {
	s.t.Helper()
	return s.does("a", slices.Concat([]string{"propose", "--group", "ops", "--subject", "restart", "--action", `{"restart": "east"}`}, flags)...)
}

// committed is a setup with a round of three votes that was committed, and the round's id.
func committed(t *testing.T) (*setup, string) {
	t.Helper()
	s := newSetup(t)
	id := s.proposes()
	s.does("a", "vote", id, "approve")
	s.later(time.Second)
	s.does("b", "vote", id, "approve", "--rationale", "it is due")
	s.does("c", "vote", id, "reject", "--rationale", "not now")
	if o := s.tally(0); o.Result != consensus.Commit {
		t.Fatal(o)
	}
	return s, id
}

// later is the clock of a setup, moved.
func (s *setup) later(d time.Duration) { s.at(s.clock().Add(d)) }

// posted counts the messages of a kind that the gateway has in the first round.
func (s *setup) posted(kind string) (n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, m := range s.rounds[0].messages {
		if m.Kind == kind {
			n++
		}
	}
	return n
}
