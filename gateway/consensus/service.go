package consensus

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/gateway/approval"
	"github.com/aepb/aepb-gateway/gateway/attest"
	"github.com/aepb/aepb-gateway/gateway/problem"
	"github.com/aepb/aepb-gateway/gateway/record"
	"github.com/aepb/aepb-gateway/gateway/worker"
	"github.com/aepb/aepb-gateway/policy/consensus"
	"github.com/aepb/aepb-gateway/policy/consensus/signed"
)

const (
	// OfOneProposer bounds the rounds of one proposer that are not over.
	OfOneProposer = 50
	// OfAll bounds those of all proposers.
	OfAll = 1000
	// Freshness is how far the time of a signed message may be from the coordinator's.
	Freshness = 5 * time.Minute

	lookInterval = 250 * time.Millisecond // between two looks at rounds for which something came here
	scanInterval = time.Second            // between two looks at all rounds that are due
	smallRound   = 16                     // participants of a round that is looked at with each vote
)

// Agents are where an agreed action is sent (R24).
type Agents interface {
	// Find is the directory name of an agent by its identity.
	Find(id ect.Identity) (name string, ok bool)
	// Send sends an action. The same id is the same message: its bytes are the same, and so is its token.
	Send(ctx context.Context, o Order) error
}

// Order is an agreed action for one agent.
type Order struct {
	Agent    string
	Proposer ect.Identity // has to be allowed to call the agent
	Action   json.RawMessage
	Lineage  attest.Lineage
	ID       ect.ID
	At       time.Time
}

// Humans decide rounds that participants cannot.
type Humans interface {
	// Ask asks humans to decide: a grant commits, all else aborts. What was asked before under the same id stays as it is.
	Ask(ctx context.Context, q approval.Question) error
	// Answer is what humans decided; over is false while they have not.
	Answer(ctx context.Context, id string) (granted, over bool, err error)
}

// Evidence signs and records what happens in rounds. It is an [attest.Statements].
type Evidence interface {
	record.Evidence
	State(ctx context.Context, st attest.Statement) (compact string, err error)
	// Complete records a statement once more whose recording a process may have left half done.
	Complete(ctx context.Context, workflow string, id ect.ID) error
}

// Metrics counts rounds that ended here.
type Metrics interface {
	Ended(mechanism, outcome string, took time.Duration)
	Anomaly(kind string)
}

// Deps is what a Service is built from. Every field is required.
type Deps struct {
	Entries  Entries
	Evidence Evidence
	Signer   func() *ect.Signer
	Verifier signed.Verifier
	Belongs  func(ctx context.Context, workflow string, who ect.Identity) (bool, error)
	Agents   Agents
	Humans   Humans
	Metrics  Metrics
	Clock    func(context.Context) (time.Time, error)              // of the store: all replicas see the same
	Now      func() time.Time                                      // of this replica; it decides nothing
	Go       func(holder string, work func(context.Context)) error // works in the background
	Logger   *slog.Logger
	Replica  string
}

// Service coordinates rounds. It is safe for concurrent use.
type Service struct {
	deps      Deps
	archive   *archive
	aftermath *aftermath
	groups    *groups
	streams   *streams

	mu      sync.Mutex
	touched map[string]bool // rounds for which something came here since the last look
}

// New makes a service without groups.
func New(deps Deps) (*Service, error) {
	if deps.Entries == nil || deps.Evidence == nil || deps.Signer == nil || deps.Verifier == nil || deps.Belongs == nil || deps.Agents == nil || deps.Humans == nil ||
		deps.Metrics == nil || deps.Clock == nil || deps.Now == nil || deps.Go == nil || deps.Logger == nil || deps.Replica == "" {
		return nil, errors.New("consensus: incomplete Deps: every field is required")
	}
	records, err := record.New(record.Kind[consensus.Round]{
		Encode: consensus.Round.Encode, Decode: consensus.DecodeRound, Life: life,
		Token:  func(r consensus.Round) string { return r.Token },
		Sealed: sealed,
	}, record.Deps{Entries: deps.Entries, Evidence: func() record.Evidence { return deps.Evidence }, Now: deps.Now, Logger: deps.Logger})
	store := &archive{deps: deps, records: records}
	return &Service{
		deps: deps, archive: store, aftermath: &aftermath{deps: deps, archive: store, seized: map[string]time.Time{}},
		groups:  &groups{archive: store, known: map[ect.Identity]time.Time{}},
		streams: &streams{open: map[ect.Identity]int{}}, touched: map[string]bool{},
	}, err
}

// sealed adds what the gateway signed of the last change.
func sealed(r consensus.Round, compact string) consensus.Round {
	r.Token = compact
	if claims, err := ect.ParseRecorded(compact); err == nil && claims.Act == ect.ActConsensusPropose {
		r.Proposed = claims.ID
	}
	return r
}

// Configure puts groups in force. Rounds that are open keep the rules that they were opened with.
func (s *Service) Configure(list []consensus.Group) { s.groups.configure(list) }

// Group is a configured group, its table of weights now, and who would lead a round now. *[problem.NotFoundError]: there is none
// of that name in which the caller takes part.
func (s *Service) Group(ctx context.Context, name string, who ect.Identity) (consensus.Group, []consensus.Member, ect.Identity, error) {
	g, err := s.groups.find(name, who)
	if err != nil {
		return g, nil, "", err
	}
	now, err := s.deps.Clock(ctx)
	if err != nil {
		return g, nil, "", recording(err)
	}
	since, err := s.groups.ages(ctx, g, now)
	if err != nil {
		return g, nil, "", err
	}
	return g, g.Weigh(since, now), g.LeaderAt(now), nil
}

// Run takes rounds further until ctx ends.
func (s *Service) Run(ctx context.Context) {
	const scanEach = int(scanInterval / lookInterval)
	for n := 0; worker.Pause(ctx, lookInterval); n++ {
		s.Step(ctx, n%scanEach == 0)
	}
}

// Step takes rounds further for which something came here, and with scan all that are due.
func (s *Service) Step(ctx context.Context, scan bool) {
	for _, id := range s.takeTouched() {
		s.visitLogged(ctx, id)
	}
	if !scan {
		return
	}
	if err := s.scan(ctx); err != nil && ctx.Err() == nil {
		s.deps.Logger.WarnContext(ctx, "consensus rounds are not looked at: the store is away", slog.Any("error", err))
	}
}

func (s *Service) takeTouched() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	ids := slices.Sorted(maps.Keys(s.touched))
	clear(s.touched)
	return ids
}

func (s *Service) touch(id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.touched[id] = true
}

// Show is a round as it may be told: what is not confirmed yet is not. Without an identity anything is shown, for operators;
// else to those alone that take part. Its errors are *[problem.NotFoundError], *[problem.ConflictError] and those of the store.
func (s *Service) Show(ctx context.Context, id string, who ect.Identity) (consensus.Round, error) {
	r, err := s.archive.read(ctx, id)
	if err != nil {
		return r, err
	}
	if who != "" && !concerns(r, who) {
		return r, &problem.NotFoundError{What: "round"}
	}
	if s.archive.decoded.lasts(r) {
		return r, nil
	}
	r, _, err = s.archive.records.Decide(ctx, roundKey(id, r.Proposal.Proposer), func(found record.Found[consensus.Round]) (consensus.Round, *attest.Statement, error) {
		return found.Value, nil, record.ErrUnchanged
	})
	if err == nil {
		s.archive.decoded.confirmed(r)
	}
	return r, recording(err)
}

func concerns(r consensus.Round, who ect.Identity) bool {
	opens := func(c consensus.Candidate) bool { return c.Proposer == who } // a nonce of a draw
	return r.Proposal.Proposer == who || r.Rules.Leader == who || r.Rules.IsMember(who) || slices.ContainsFunc(r.Deadlock.Candidates, opens)
}

// List is a page of the rounds in which an identity takes part, in the order of their ids; without an identity of all. It looks at a
// hundred rounds, so a page may be short although there are more: then next is not empty.
func (s *Service) List(ctx context.Context, who ect.Identity, after string, limit int) (page []consensus.Round, next string, err error) {
	entries, err := s.deps.Entries.List(ctx, KindRound, "", after, pageSize)
	if err != nil {
		return nil, "", recording(err)
	}
	for _, entry := range entries {
		r, err := consensus.DecodeRound(entry.Value)
		if next = entry.Key.ID; err != nil || who != "" && !concerns(r, who) {
			continue
		}
		r, err = s.Show(ctx, r.Proposal.Round, who) // what is not confirmed is not told
		if isMissing(err) {
			continue
		}
		if err != nil {
			return nil, "", err
		}
		if page = append(page, r); len(page) == limit {
			return page, next, nil
		}
	}
	if len(entries) < pageSize {
		next = ""
	}
	return page, next, nil
}
