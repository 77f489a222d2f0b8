package consensus

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aepb/aepb-gateway/policy/consensus"
)

// TestAttack_ClockOfAReplica: a replica whose clock stands still takes no vote after the deadline, and decides in time; one whose clock
// is an hour ahead decides no round early. The moments are the store's.
func TestAttack_ClockOfAReplica(t *testing.T) {
	t.Parallel()
	all := seats(t, 3)
	for name, clock := range map[string]func(begin time.Time) time.Time{
		"it stands still":     func(begin time.Time) time.Time { return begin },
		"it is an hour ahead": func(time.Time) time.Time { return time.Now().Add(time.Hour) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				w, begin := newWorld(t, 1, consensus.Majority, all), time.Now()
				w.calm, w.group.MaxFaulty, w.group.Members = true, 0, nil
				for _, s := range all[1:4] {
					w.group.Members = append(w.group.Members, consensus.Member{ID: s.ID, Weight: 1})
				}
				wrong := w.slowReplica(&slowStore{})
				now := func() time.Time { return clock(begin) }
				wrong.deps.Now, wrong.archive.deps.Now, wrong.aftermath.deps.Now = now, now, now
				round := w.plain(wrong)
				for _, s := range all[1:3] {
					_, vote := send(w, s, w.approval(round, s.ID))
					_, err := wrong.Vote(t.Context(), s.ID, round.proposal.Round, vote)
					fatal(t, err)
				}
				time.Sleep(5 * time.Second)
				wrong.Step(t.Context(), true)
				if r, err := wrong.Show(t.Context(), round.proposal.Round, ""); err != nil || r.Phase != consensus.Voting {
					t.Fatalf("five seconds before its deadline the round is %s, %v", r.Phase, err)
				}
				time.Sleep(6 * time.Second)
				_, late := send(w, all[3], w.approval(round, all[3].ID))
				_, err := wrong.Vote(t.Context(), all[3].ID, round.proposal.Round, late)
				if refused, ok := errors.AsType[*consensus.RefusedError](err); !ok || !refused.Late {
					t.Errorf("a vote a second after the deadline is answered with %v", err)
				}
				time.Sleep(2 * time.Second)
				wrong.Step(t.Context(), true)
				r, err := wrong.Show(t.Context(), round.proposal.Round, "")
				if err != nil || r.Phase != consensus.Committed || r.End.Outcome.Tally.Approve != 2 {
					t.Errorf("after its deadline the round is %s with %d votes, %v", r.Phase, r.End.Outcome.Tally.Approve, err)
				}
			})
		})
	}
}
