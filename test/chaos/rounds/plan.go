package rounds

import (
	"math/rand/v2"
	"time"

	"github.com/google/uuid"

	"github.com/aepb/aepb-gateway/policy/consensus"
)

// role is what a member does in a round.
type role string

const (
	honest  role = "honest"
	silent  role = "silent"
	acks    role = "acks"
	doubles role = "doubles"
	forges  role = "forges"
	late    role = "late"
)

const (
	size     = 5               // members of a group
	leads    = 0               // the member that leads
	votesFor = 4 * time.Second // how long a round takes votes
)

// part is what one member does in a round.
type part struct {
	role     role
	decision consensus.Decision
	after    time.Duration // the round opened
}

// plan is what a round is to be.
type plan struct {
	mechanism consensus.Mechanism
	proposer  int
	urgency   int
	resource  string // empty: none
	parts     [size]part
}

// planned are n rounds or one more, in batches that are opened together: of each mechanism one that all approve, one that all reject, and
// one that a single member votes on; two about the same resource that all approve; and then random ones, of which one in six has
// a rival about the same resource.
func planned(chance *rand.Rand, n int) (batches [][]*round) {
	all := consensus.Mechanisms()
	for count := 0; count < n; {
		p := randomPlan(chance, all[count%len(all)])
		switch count / len(all) {
		case 0:
			p.all(honest, consensus.Approve)
		case 1:
			p.all(honest, consensus.Reject)
		case 2:
			p.all(silent, consensus.Approve)
			p.parts[leads].role = honest
		}
		batch := []*round{newRound(p)}
		first := count == 3*len(all) // pair of rivals
		if first || count > 3*len(all) && chance.IntN(6) == 0 {
			rival := randomPlan(chance, all[chance.IntN(len(all))])
			if first {
				batch[0].plan.all(honest, consensus.Approve)
				rival.all(honest, consensus.Approve)
			}
			batch[0].plan.resource = "resource " + uuid.NewString()
			rival.resource = batch[0].plan.resource
			batch = append(batch, newRound(rival))
			batch[0].rival, batch[1].rival = batch[1], batch[0]
		}
		batches, count = append(batches, batch), count+len(batch)
	}
	return batches
}

// all gives each member the same role.
func (p *plan) all(r role, d consensus.Decision) {
	for i := range p.parts {
		p.parts[i].role, p.parts[i].decision = r, d
	}
}

func randomPlan(chance *rand.Rand, m consensus.Mechanism) plan {
	p := plan{mechanism: m, proposer: chance.IntN(size), urgency: chance.IntN(consensus.MaxUrgency + 1)}
	for i := range p.parts {
		p.parts[i] = part{randomRole(chance), randomDecision(chance, m), time.Duration(chance.Int64N(int64(votesFor * 3 / 4)))}
	}
	if m == consensus.Leader && chance.IntN(4) > 0 {
		p.parts[leads].role = honest
	}
	return p
}

func randomRole(chance *rand.Rand) role {
	switch n := chance.IntN(100); {
	case n < 12:
		return silent
	case n < 22:
		return acks
	case n < 30:
		return doubles
	case n < 42:
		return forges
	case n < 47:
		return late
	default:
		return honest
	}
}

func randomDecision(chance *rand.Rand, m consensus.Mechanism) consensus.Decision {
	rejects := 30
	if m == consensus.Optimistic {
		rejects = 10 // each objection aborts the round
	}
	switch n := chance.IntN(100); {
	case n < rejects:
		return consensus.Reject
	case n < rejects+10:
		return consensus.Abstain
	default:
		return consensus.Approve
	}
}
