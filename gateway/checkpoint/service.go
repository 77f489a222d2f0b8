package checkpoint

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"time"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/gateway/attest"
	"github.com/aepb/aepb-gateway/gateway/directory"
	"github.com/aepb/aepb-gateway/gateway/problem"
	"github.com/aepb/aepb-gateway/gateway/state"
	"github.com/aepb/aepb-gateway/lifecycle/checkpoint"
	"github.com/aepb/aepb-gateway/lifecycle/compensation"
	"github.com/aepb/aepb-gateway/policy/limit"
)

const (
	// MaxDeposit bounds the state that an agent deposits, in bytes.
	MaxDeposit = 700 << 10 // the store takes 1 MiB, and the state is in base64 there
	pageSize   = 100       // checkpoints of one read
	maxBudgets = 4096      // callers and workflows whose rate is known; of more all is forgotten
	outcomeOf  = ".outcome"
)

// Blobs keeps what must not be lost and is too large for a record.
type Blobs interface {
	Put(ctx context.Context, key state.BlobKey, value []byte, until time.Time) error
	Get(ctx context.Context, key state.BlobKey) (value []byte, until time.Time, found bool, err error)
	List(ctx context.Context, group, after string, limit int) ([]state.BlobInfo, error)
}

// Deps is what a Service is built from. Every field is required.
type Deps struct {
	Blobs    Blobs
	Evidence attest.Statements
	Belongs  func(ctx context.Context, workflow string, who ect.Identity) (bool, error)
	// Lasts returns when all evidence that was recorded before lasts. Nil: it lasts at once.
	Lasts func(context.Context) error
	// Read calls a tool of an agent that reads a state before it is changed.
	Read   func(ctx context.Context, agent, tool string, args json.RawMessage) (json.RawMessage, error)
	Place  string            // the URL at which this gateway takes rollback requests
	Count  func(kind string) // of checkpoints: reversible, irreversible, deposited or refused
	Now    func() time.Time
	Logger *slog.Logger
}

// Service makes and keeps checkpoints. It is safe for concurrent use.
type Service struct {
	deps Deps

	mu      sync.Mutex
	budgets map[budgetKey]checkpoint.Budget
}

type budgetKey struct{ workflow, owner string }

// New makes a service.
func New(deps Deps) (*Service, error) {
	if deps.Blobs == nil || deps.Belongs == nil || deps.Read == nil || !checkpoint.IsRollbackURI(deps.Place) || deps.Count == nil || deps.Now == nil || deps.Logger == nil {
		return nil, errors.New("checkpoint: incomplete Deps: every field is required, and Place is an https URL with the path " + checkpoint.Path)
	}
	return &Service{deps: deps, budgets: map[budgetKey]checkpoint.Budget{}}, nil
}

// Action is a call that is about to leave.
type Action struct {
	Workflow string
	Request  ect.ID   // the token of the call, which is on record
	Audience []string // the agent, as tokens name it, and the caller
	Agent    string   // directory name
	Tool     string
	Undo     directory.Undo  // how the operator says that the agent's work is undone
	Call     json.RawMessage // the arguments of the call
	TTL      time.Duration
	Owner    string // whose share of the store it takes
	Holder   string // in whose share its evidence counts
}

// Made is a checkpoint that was made.
type Made struct {
	ID         ect.ID
	Compact    string
	Reversible bool

	workflow, owner string
	until           time.Time
	own, result     bool // the agent rolls back itself; the plan needs the result
}

// Make makes the checkpoint of a call and returns when it lasts: the call may leave then. Its errors are
// *[state.FullError] where the caller's share, or that of its workflow, is used up; *[limit.ExceededError] where it has
// too many made at once; and those of [attest.Recording].
func (s *Service) Make(ctx context.Context, a Action) (Made, error) {
	made, err := s.make(ctx, a)
	s.count(made.Reversible, err)
	return made, err
}

func (s *Service) count(reversible bool, err error) {
	switch {
	case err != nil:
		s.deps.Count("refused")
	case reversible:
		s.deps.Count("reversible")
	default:
		s.deps.Count("irreversible")
	}
}

func (s *Service) make(ctx context.Context, a Action) (Made, error) {
	if err := s.admit(a.Workflow, a.Owner); err != nil {
		return Made{}, err
	}
	plan := planOf(a, s.before(ctx, a))
	text, err := json.Marshal(plan)
	if err != nil {
		return Made{}, err
	}
	made := checkpoint.Checkpoint{
		Reversible: plan.reversible(), RollbackURI: s.deps.Place, Target: a.Agent, TTL: cmp.Or(a.TTL, checkpoint.DefaultTTL),
	}
	if a.Tool != "" {
		made.Description = "before " + a.Tool
	}
	until := s.deps.Now().Add(made.TTL)
	signed, err := s.deps.Evidence.Sign(ctx, attest.Statement{
		Act: ect.ActCheckpoint, Lineage: attest.Lineage{Workflow: a.Workflow, Parents: []ect.ID{a.Request}}, Audience: a.Audience,
		Output: ect.Hash(text), Ext: made.Ext(), Holder: a.Holder, HoldUntil: until,
	})
	if err != nil {
		return Made{}, err
	}
	key := state.BlobKey{Group: a.Workflow, ID: string(signed.ID()), Owner: a.Owner}
	if err := s.put(ctx, key, stored{Version: version, Token: signed.Compact(), State: text}, until); err != nil {
		return Made{}, err
	}
	if err := s.deps.Evidence.Record(ctx, signed); err != nil {
		return Made{}, err
	}
	if s.deps.Lasts != nil { // a call that leaves before its token lasts could not be undone after a crash
		if err := s.deps.Lasts(ctx); err != nil {
			return Made{}, recording(err)
		}
	}
	return Made{
		ID: signed.ID(), Compact: signed.Compact(), Reversible: made.Reversible, workflow: a.Workflow, owner: a.Owner, until: until,
		own: plan.Own, result: plan.Undo != nil && plan.Undo.Result,
	}, nil
}

// before is the state that a call will change; nil: it needs not be known, or cannot be read, so that the call cannot be undone.
func (s *Service) before(ctx context.Context, a Action) json.RawMessage {
	rule, there := a.Undo.Compensate[a.Tool]
	if !there || rule.Before == nil {
		return nil
	}
	args, err := rule.Before.Arguments.Fill(compensation.Values{Call: a.Call})
	var read json.RawMessage
	if err == nil {
		read, err = s.deps.Read(ctx, a.Agent, rule.Before.Tool, args)
	}
	if err != nil {
		s.deps.Logger.WarnContext(ctx, "the state before a call is not known: the call cannot be undone",
			slog.String("agent", a.Agent), slog.String("wid", a.Workflow), slog.Any("error", err))
	}
	return read
}

// planOf is how a call is undone: by the compensating call of its tool, else by the agent's own rollback.
func planOf(a Action, before json.RawMessage) Plan {
	plan := Plan{Version: version, Agent: a.Agent, Tool: a.Tool, Own: a.Undo.Own}
	rule, there := a.Undo.Compensate[a.Tool]
	if !there {
		return plan
	}
	uses := rule.Uses()
	undo := &Undo{Tool: rule.Tool, Arguments: rule.Arguments, Result: uses.Result}
	if uses.Call {
		undo.Call = a.Call
	}
	if uses.Before {
		undo.Before = before
	}
	if len(undo.Call)+len(undo.Before) > maxKept || uses.Before && before == nil {
		return plan // what it needs is not there
	}
	plan.Own, plan.Undo = false, undo
	return plan
}

// admit takes a checkpoint out of a caller's budget in a workflow (ATD, Checkpoint Flooding).
func (s *Service) admit(workflow, owner string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	key := budgetKey{workflow, owner}
	if _, known := s.budgets[key]; !known && len(s.budgets) >= maxBudgets {
		clear(s.budgets)
	}
	left, wait, ok := s.budgets[key].Admit(s.deps.Now())
	if !ok {
		return &limit.ExceededError{Scope: limit.ScopeShare, RetryAfter: wait}
	}
	s.budgets[key] = left
	return nil
}

func (s *Service) put(ctx context.Context, key state.BlobKey, value any, until time.Time) error {
	text, err := json.Marshal(value)
	if err != nil {
		return err
	}
	return recording(s.deps.Blobs.Put(ctx, key, text, until))
}

// recording is an error of the store: a share that is used up is its owner's, other bytes under the same id are the
// caller's mistake, all else is trouble of the store.
func recording(err error) error {
	if err == nil {
		return nil
	}
	if taken, ok := errors.AsType[*state.BlobTakenError](err); ok {
		return &ect.ConflictError{ID: ect.ID(taken.Key.ID)}
	}
	return attest.Recording(err)
}

// Ended stores what came of a call, as far as its plan needs it. What cannot be stored is logged: a rollback finds that it is not
// known.
func (s *Service) Ended(ctx context.Context, m Made, o Outcome) {
	if m.own || !m.result && !o.Failed {
		return
	}
	if o.Version = version; len(o.Result) > maxKept {
		o.Result = nil
	}
	key := state.BlobKey{Group: m.workflow, ID: string(m.ID) + outcomeOf, Owner: m.owner}
	if err := s.put(ctx, key, o, m.until); err != nil {
		s.deps.Logger.WarnContext(ctx, "the outcome of a call is not kept: it may not be possible to undo it", slog.String("checkpoint", string(m.ID)), slog.Any("error", err))
	}
}

// Find is a checkpoint that is kept here. *[problem.NotFoundError]: there is no such checkpoint, or none any more. Its other errors are
// *[checkpoint.AlteredError] and those of the store.
func (s *Service) Find(ctx context.Context, workflow string, id ect.ID) (Saved, error) {
	text, found, err := s.get(ctx, state.BlobKey{Group: workflow, ID: string(id)})
	switch {
	case err != nil:
		return Saved{}, err
	case !found || strings.HasSuffix(string(id), outcomeOf):
		return Saved{}, &problem.NotFoundError{What: "checkpoint"}
	}
	k, err := savedOf(text)
	if err != nil {
		return k, err
	}
	text, found, err = s.get(ctx, state.BlobKey{Group: workflow, ID: string(id) + outcomeOf})
	if err != nil || !found {
		return k, err
	}
	var o Outcome
	if err := read(text, &o); err != nil || o.Version != version {
		return k, errForm
	}
	k.Outcome = &o
	return k, nil
}

// get reads what is stored of a checkpoint. Where that is there and cannot be opened, the log has the cause.
func (s *Service) get(ctx context.Context, key state.BlobKey) (text []byte, found bool, err error) {
	text, _, found, err = s.deps.Blobs.Get(ctx, key)
	if closed, ok := errors.AsType[*state.UnavailableError](err); ok && closed.Lacks == "" {
		s.deps.Logger.ErrorContext(ctx, "a checkpoint cannot be opened: look at the state and its keys", slog.String("checkpoint", key.ID), slog.Any("error", closed.Err))
		err = &state.UnavailableError{Err: closed.Err, RetryAfter: closed.RetryAfter, Lacks: state.LacksCheckpoint}
	}
	return text, found, recording(err)
}

// All are the checkpoints of a workflow, in the order of their ids. Its errors are those of [Service.Page].
func (s *Service) All(ctx context.Context, workflow string) (all []Saved, err error) {
	for next, more := "", true; more; {
		var page []Saved
		if page, next, err = s.Page(ctx, workflow, next, pageSize); err != nil {
			return nil, err
		}
		all, more = append(all, page...), next != ""
	}
	return all, nil
}

// Page are up to limit checkpoints of a workflow whose ids follow after, in the order of their ids, without the states that
// agents deposited. next is what the next page follows; empty: there are no more. Its errors are those of the store; a
// checkpoint that cannot be read is logged and left out.
func (s *Service) Page(ctx context.Context, workflow, after string, limit int) (page []Saved, next string, err error) {
	for {
		infos, err := s.deps.Blobs.List(ctx, workflow, after, pageSize)
		if err != nil {
			return nil, "", recording(err)
		}
		for _, info := range infos {
			id := info.Key.ID
			if strings.HasSuffix(id, outcomeOf) {
				continue
			}
			if len(page) == limit {
				return page, after, nil
			}
			k, found, err := s.listed(ctx, workflow, ect.ID(id))
			if err != nil {
				return nil, "", err
			}
			if after = id; found {
				page = append(page, k)
			}
		}
		if len(infos) < pageSize {
			return page, "", nil
		}
		after = infos[len(infos)-1].Key.ID
	}
}

// listed is a checkpoint of a list; false: it is gone, or cannot be read.
func (s *Service) listed(ctx context.Context, workflow string, id ect.ID) (Saved, bool, error) {
	k, err := s.Find(ctx, workflow, id)
	if _, failed := errors.AsType[*problem.RecordingError](err); failed {
		return Saved{}, false, err
	}
	if _, gone := errors.AsType[*problem.NotFoundError](err); err != nil && !gone {
		s.deps.Logger.ErrorContext(ctx, "a checkpoint cannot be read", slog.String("checkpoint", string(id)), slog.Any("error", err))
	}
	k.state = nil
	return k, err == nil, nil
}
