package rounds

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"sync"
	"time"

	"github.com/google/uuid"
	"golang.org/x/sync/errgroup"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/policy/consensus"
	"github.com/aepb/aepb-gateway/policy/consensus/signed"
	"github.com/aepb/aepb-gateway/test/harness/wait"
)

const (
	pathRounds = "/consensus/rounds"
	openIn     = 20 * time.Second // a proposal is sent again for this long
	looksFor   = 6 * time.Second  // after its deadline, while the faults last
	lookEvery  = 300 * time.Millisecond
	afterwards = 700 * time.Millisecond // a late vote is first sent this long after the deadline
)

// sentVote is a vote that was sent, also a forged one.
type sentVote struct {
	voter  ect.Identity
	hash   string
	forged bool // also: late
	taken  bool // 202
	why    string
}

// sight is an outcome as a member read it at a gateway.
type sight struct {
	member, replica int // replica -1: a random one, while the faults lasted
	outcome         string
}

// round is one round, and what its members know of it.
type round struct {
	plan  plan
	rival *round // about the same resource; nil: none
	id    string

	mu        sync.Mutex
	proposal  consensus.Proposal
	opened    view
	last      view
	refusal   string // why it was not opened
	votes     []sentVote
	sights    []sight
	suspended bool
	wrong     []string // found while it was played
	audit     audit
}

func newRound(p plan) *round { return &round{plan: p, id: uuid.NewString()} }

func (r *round) say(format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.wrong = append(r.wrong, fmt.Sprintf(format, args...))
}

func (r *round) path() string { return pathRounds + "/" + r.id }

// run plays rounds that are opened together, until their deadlines are over.
func (g *group) run(ctx context.Context, batch []*round) error {
	var opening errgroup.Group
	for _, r := range batch {
		opening.Go(func() error { return g.propose(ctx, r) })
	}
	if err := opening.Wait(); err != nil {
		return err
	}
	var parts errgroup.Group
	for _, r := range batch {
		if r.opened.Round == "" {
			continue
		}
		for i := range g.members {
			parts.Go(func() error { return g.takePart(ctx, r, i) })
		}
		parts.Go(func() error { return g.intrude(ctx, r) })
	}
	return parts.Wait()
}

// propose opens a round.
func (g *group) propose(ctx context.Context, r *round) error {
	m := g.members[r.plan.proposer]
	a, err := g.insist(ctx, m, openIn, http.MethodGet, "/consensus/groups/"+groupName, nil)
	if err != nil {
		r.refusal = err.Error()
		return ctx.Err()
	}
	var table struct {
		Participants []ect.Identity                `json:"participants"`
		Weights      string                        `json:"weights_hash"`
		Quorum       map[consensus.Mechanism]int64 `json:"quorum"`
	}
	if err := json.Unmarshal(a.body, &table); err != nil || a.status != http.StatusOK {
		return fmt.Errorf("rounds: the group cannot be read: %d %.300s %w", a.status, a.body, err)
	}
	now := time.Now()
	r.proposal = consensus.Proposal{
		ID: uuid.NewString(), Proposer: m.id, Round: r.id, Mechanism: r.plan.mechanism, Subject: "round " + r.id, Action: json.RawMessage(`{"do":"it"}`),
		Timeout: consensus.At(now.Add(votesFor + time.Second)), Quorum: table.Quorum[r.plan.mechanism], Participants: table.Participants,
		Terms: consensus.Terms{Group: groupName, Resource: r.plan.resource, Urgency: r.plan.urgency, Reversible: true, Timestamp: now.UTC()},
	}
	if r.plan.mechanism == consensus.Weighted {
		r.proposal.Terms.Weights = table.Weights
	}
	text, _, err := encode(m.signer, r.proposal)
	if err != nil {
		return err
	}
	a, err = g.insist(ctx, m, openIn, http.MethodPost, pathRounds, text)
	switch {
	case err != nil:
		r.refusal = err.Error()
	case a.status != http.StatusCreated:
		r.refusal = fmt.Sprintf("%d %.300s", a.status, a.body)
	default:
		return json.Unmarshal(a.body, &r.opened)
	}
	return ctx.Err()
}

// takePart is what one member does in a round.
func (g *group) takePart(ctx context.Context, r *round, i int) error {
	m, p := g.members[i], r.plan.parts[i]
	if p.role != silent {
		wait.Pause(ctx, p.after/2)
		if err := g.acknowledge(ctx, r, m, consensus.Received, nil); err != nil {
			return err
		}
	}
	at := r.opened.Opened.Add(p.after)
	if p.role == late {
		at = r.opened.Deadline.Add(afterwards)
	}
	wait.Pause(ctx, time.Until(at))
	var err error
	switch p.role {
	case silent, acks:
	case forges:
		err = g.forge(ctx, r, i)
		if err == nil {
			err = g.vote(ctx, r, m, m, g.ballot(r, m, p.decision), false)
		}
	case doubles:
		var both errgroup.Group
		for _, d := range []consensus.Decision{p.decision, other(p.decision)} {
			both.Go(func() error { return g.vote(ctx, r, m, m, g.ballot(r, m, d), false) })
		}
		err = both.Wait()
	default:
		err = g.vote(ctx, r, m, m, g.ballot(r, m, p.decision), p.role == late)
	}
	if err != nil {
		return err
	}
	g.watch(ctx, r, i)
	return ctx.Err()
}

func other(d consensus.Decision) consensus.Decision {
	if d == consensus.Approve {
		return consensus.Reject
	}
	return consensus.Approve
}

// ballot is a vote of a member. Each has a rationale of its own.
func (g *group) ballot(r *round, m *member, d consensus.Decision) consensus.Vote {
	return consensus.Vote{
		Proposal: r.proposal.ID, Round: r.id, Voter: m.id, Decision: d, Rationale: string(d) + " " + uuid.NewString(), Timestamp: time.Now().UTC(), Weights: r.proposal.Terms.Weights,
	}
}

// vote sends a vote that one member signed and another one sends, until it is taken or refused.
func (g *group) vote(ctx context.Context, r *round, signer, sender *member, v consensus.Vote, forged bool) error {
	text, hash, err := encode(signer.signer, v)
	if err != nil {
		return err
	}
	c := sentVote{voter: v.Voter, hash: hash, forged: forged}
	for again := range 2 { // one in four is sent once more, to another replica perhaps
		a, err := g.insist(ctx, sender, time.Until(r.opened.Deadline)+looksFor, http.MethodPost, r.path()+"/votes", text)
		var taken struct {
			Hash string `json:"hash"`
		}
		switch {
		case err != nil:
			c.why = err.Error()
		case a.status == http.StatusAccepted:
			if c.taken = true; json.Unmarshal(a.body, &taken) != nil || taken.Hash != hash {
				r.say("a vote with hash %s was taken as %.300s", hash, a.body)
			}
		case again == 0:
			c.why = fmt.Sprintf("%d %.300s", a.status, a.body)
		}
		if g.chance(4) > 0 {
			break
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.votes = append(r.votes, c)
	return ctx.Err()
}

// forge sends one vote that must not be taken.
func (g *group) forge(ctx context.Context, r *round, i int) error {
	m, victim := g.members[i], g.members[(i+1)%size]
	v := g.ballot(r, victim, consensus.Approve)
	signer := m
	switch g.chance(4) {
	case 0: // in the name of another member
	case 1: // in its own name, with the signature of another one
		v.Voter, signer = m.id, victim
	case 2: // about another round
		v.Voter, v.Round = m.id, uuid.NewString()
	default: // of another member, and signed by that
		signer = victim
	}
	return g.vote(ctx, r, signer, m, v, true)
}

// intrude has an agent outside of the group vote.
func (g *group) intrude(ctx context.Context, r *round) error {
	if g.chance(4) > 0 {
		return nil
	}
	return g.vote(ctx, r, g.outsider, g.outsider, g.ballot(r, g.outsider, consensus.Reject), true)
}

// acknowledge sends an acknowledgement. It may be refused as too late.
func (g *group) acknowledge(ctx context.Context, r *round, m *member, kind consensus.AckKind, outcomes []string) error {
	text, _, err := encode(m.signer, consensus.Ack{
		Proposal: r.proposal.ID, Round: r.id, Participant: m.id, Kind: kind, Outcomes: outcomes, Timestamp: time.Now().UTC(),
	})
	if err != nil {
		return err
	}
	a, err := g.insist(ctx, m, openIn, http.MethodPost, r.path()+"/ack", text)
	if err == nil && a.status != http.StatusAccepted && a.status != http.StatusConflict && a.status != http.StatusGone && a.status != http.StatusUnprocessableEntity {
		r.say("the acknowledgement %s of %s was refused: %d %.300s", kind, m.id, a.status, a.body)
	}
	return ctx.Err()
}

// watch has a member read the round until it is decided, or for some time after the deadline.
func (g *group) watch(ctx context.Context, r *round, i int) {
	end := r.opened.Deadline.Add(looksFor)
	for time.Now().Before(end) {
		if g.look(ctx, r, i, -1) || !wait.Pause(ctx, lookEvery) {
			return
		}
	}
}

// look has a member read the round once; true: it is decided.
func (g *group) look(ctx context.Context, r *round, i, replica int) bool {
	at := replica
	if at < 0 {
		at = g.any()
	}
	a, err := g.once(ctx, g.members[i], at, http.MethodGet, r.path(), nil)
	if away(a, err) {
		return false
	}
	var v view
	if json.Unmarshal(a.body, &v) != nil || a.status != http.StatusOK {
		if a.status != http.StatusConflict { // the store was changed by others meanwhile
			r.say("%s cannot read the round: %d %.300s", g.members[i].id, a.status, a.body)
		}
		return false
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.last = v
	r.suspended = r.suspended || v.Phase == string(consensus.Suspended)
	if !v.decided() {
		return false
	}
	m, err := signed.Parse[consensus.Outcome](v.Outcome)
	if err != nil {
		r.wrong = append(r.wrong, "an outcome cannot be read: "+err.Error())
	}
	r.sights = append(r.sights, sight{i, replica, m.Compact})
	return true
}
