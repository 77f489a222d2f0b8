package lifecycle

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/gateway/attest"
	"github.com/aepb/aepb-gateway/gateway/directory"
	"github.com/aepb/aepb-gateway/gateway/problem"
	"github.com/aepb/aepb-gateway/gateway/record"
	"github.com/aepb/aepb-gateway/gateway/state"
	"github.com/aepb/aepb-gateway/lifecycle"
)

// Entries is what replicas share.
type Entries = record.Entries

// Evidence signs and records statements.
type Evidence = record.Evidence

// Metrics shows how many agents are in each state.
type Metrics interface {
	Lifecycles(states map[string]int)
}

// Deps is what a Service is built from. Every field but Forgets is required.
type Deps struct {
	Entries  Entries
	Evidence func() Evidence
	Metrics  Metrics
	Identity func(agent string) ect.Identity // as evidence names it; empty: by its name
	// Successor judges the capability document of an agent's successor, before it is announced.
	Successor func(ctx context.Context, agent, url string) error
	Forgets   bool // a development gateway: operators may order to forget that an agent is retired
	Replica   string
	Now       func() time.Time
	Logger    *slog.Logger
}

// Service knows and changes how agents stand. It is safe for concurrent use.
type Service struct {
	deps    Deps
	records *record.Machine[lifecycle.Record]

	mu     sync.RWMutex
	known  map[string]lifecycle.Record // by agent; empty: the gateway itself
	work   map[string]int              // messages and tasks under way here, by agent; empty: all
	ended  map[string]bool             // of agents that drain: work ended here since the last look
	orders map[string]lifecycle.Order  // of the configuration, by agent
}

// New makes a service that knows nothing yet: [Service.Refresh] reads what is on record.
func New(deps Deps) (*Service, error) {
	if deps.Entries == nil || deps.Evidence == nil || deps.Metrics == nil || deps.Identity == nil || deps.Successor == nil || deps.Replica == "" || deps.Now == nil || deps.Logger == nil {
		return nil, errors.New("lifecycle: incomplete Deps: every field is required")
	}
	s := &Service{deps: deps, known: map[string]lifecycle.Record{}, work: map[string]int{}, ended: map[string]bool{}}
	var err error
	s.records, err = record.New(record.Kind[lifecycle.Record]{
		Encode: lifecycle.Record.Encode, Decode: lifecycle.Decode, Life: recordFor,
		Token:    func(r lifecycle.Record) string { return r.Token },
		Sealed:   func(r lifecycle.Record, compact string) lifecycle.Record { r.Token = compact; return r },
		Announce: s.learn,
	}, record.Deps{Entries: deps.Entries, Evidence: deps.Evidence, Now: deps.Now, Logger: deps.Logger})
	return s, err
}

// Record is how an agent stands, or with an empty name this gateway. A nil Service knows no record.
func (s *Service) Record(agent string) lifecycle.Record {
	if s == nil {
		return lifecycle.Record{Agent: agent}
	}
	s.mu.RLock()
	defer s.mu.RUnlock()
	if r, ok := s.known[agent]; ok {
		return r
	}
	return lifecycle.Record{Agent: agent}
}

// Of is how an agent stands in the words of the directory; the zero value: it is active.
func (s *Service) Of(agent string) directory.Lifecycle {
	r := s.Record(agent)
	if r.Status == "" || r.Status == lifecycle.Active {
		return directory.Lifecycle{}
	}
	return directory.Lifecycle{Status: r.Status, DeprecatedAt: r.DeprecatedAt, SunsetAt: r.SunsetAt, Successor: r.Successor, Workflows: r.Workflows(s.deps.Now())}
}

// Refusal is why this gateway takes no new work, or no work at all: a *[problem.DrainingError] or a
// *[problem.RetiredError]; nil: it does (R16). draining: its process ends.
func (s *Service) Refusal(draining bool) error {
	own := s.Record("")
	switch verdict := own.Admits(); {
	case !verdict.Serves:
		return &problem.RetiredError{Successor: own.Successor}
	case draining:
		return &problem.DrainingError{Location: own.Successor}
	case !verdict.NewWork:
		return &problem.DrainingError{Location: own.Successor, Workflows: own.Workflows(s.deps.Now())}
	}
	return nil
}

// Records are all that are known, by agent.
func (s *Service) Records() []lifecycle.Record {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return slices.SortedFunc(maps.Values(s.known), func(a, b lifecycle.Record) int { return strings.Compare(a.Agent, b.Agent) })
}

// Enter counts work for an agent as under way until the function it returns is called, and all work,
// with that for no agent, as the gateway's own. A nil Service counts nothing.
func (s *Service) Enter(agent string) (leave func()) {
	if s == nil {
		return func() {}
	}
	s.add(agent, 1)
	var once sync.Once
	return func() { once.Do(func() { s.add(agent, -1) }) }
}

func (s *Service) add(agent string, n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, name := range slices.Compact([]string{"", agent}) {
		if s.work[name] += n; s.work[name] <= 0 {
			delete(s.work, name)
		}
		if n < 0 && s.known[name].Status == lifecycle.Draining {
			s.ended[name] = true
		}
	}
}

// Change makes the transition that an operator orders, and returns the record with its token, and
// a warning. Its errors are those of [lifecycle.Record.Apply] and of [record.Machine.Decide], and where nothing
// is forgotten a *[lifecycle.ForgetError].
func (s *Service) Change(ctx context.Context, agent string, order lifecycle.Order) (lifecycle.Record, string, error) {
	if order.Forget && !s.deps.Forgets {
		return s.Record(agent), "", &lifecycle.ForgetError{}
	}
	return s.change(ctx, agent, order, func(lifecycle.Record) bool { return true })
}

// change is Change as long as it is due; then it returns the record as it stands.
func (s *Service) change(ctx context.Context, agent string, order lifecycle.Order, due func(lifecycle.Record) bool) (r lifecycle.Record, warning string, err error) {
	r, _, err = s.records.Decide(ctx, keyOf(agent), func(found record.Found[lifecycle.Record]) (lifecycle.Record, *attest.Statement, error) {
		before := found.Value
		if before.Agent = agent; !due(before) {
			return before, nil, record.ErrUnchanged
		}
		next, change, err := before.Apply(order)
		if err == nil && order.Successor != "" {
			err = s.deps.Successor(ctx, agent, order.Successor)
		}
		if err != nil {
			return before, nil, err
		}
		warning = change.Warning
		if next.Term == before.Term {
			return next, nil, nil // the grace begins, and the transition comes after it
		}
		return next, s.statement(before, change.Claims), nil
	})
	r.Agent = agent // also where there is no record
	return r, warning, err
}

// statement is what the evidence of a transition states: it follows the token of the one before.
func (s *Service) statement(before lifecycle.Record, claims func(agentID string) (ect.Act, ect.Ext)) *attest.Statement {
	act, ext := claims(s.name(before.Agent))
	return &attest.Statement{Act: act, Ext: ext, Lineage: attest.After(before.Token)}
}

// Configure follows the orders of a configuration, by agent, from now on, as far as they are due.
// Its error says which cannot be followed now, and why: [Service.Run] tries them again.
func (s *Service) Configure(ctx context.Context, orders map[string]lifecycle.Order) error {
	s.mu.Lock()
	s.orders = orders
	s.mu.Unlock()
	return s.followOrders(ctx)
}

func (s *Service) followOrders(ctx context.Context) error {
	s.mu.RLock()
	orders := s.orders
	s.mu.RUnlock()
	var errs []error
	for _, agent := range slices.Sorted(maps.Keys(orders)) {
		order := orders[agent]
		order.At = s.deps.Now()
		due := func(r lifecycle.Record) bool { return r.Due(order) }
		known := s.Record(agent)
		if known.Differs(order) {
			errs = append(errs, fmt.Errorf("lifecycle of %q: it is %s already, and its reason, successor and sunset_at stay as they were said: order active first", agent, order.To))
		}
		if !due(known) {
			continue
		}
		if !order.Sunset.IsZero() && order.Sunset.Before(order.At) {
			order.Sunset = order.At // it is over
		}
		_, _, err := known.Apply(order) // without the store, since it may be too soon for a day
		if err == nil {
			_, _, err = s.change(ctx, agent, order, due)
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("lifecycle of %q, %s: %w", agent, order.To, err))
		}
	}
	return errors.Join(errs...)
}

// name is how evidence calls an agent.
func (s *Service) name(agent string) string {
	if id := s.deps.Identity(agent); id != "" {
		return string(id)
	}
	return agent
}

// older reports whether a record was stored before another one of its agent.
func older(a, b lifecycle.Record) bool {
	return cmp.Or(cmp.Compare(a.Term, b.Term), cmp.Compare(a.Step, b.Step), a.FinalAt.Compare(b.FinalAt)) < 0
}

// learn makes a record known here, unless a newer one is.
func (s *Service) learn(ctx context.Context, _ state.EntryKey, r lifecycle.Record) error {
	s.mu.Lock()
	old, found := s.known[r.Agent]
	if !found || !older(r, old) {
		s.known[r.Agent] = r
	}
	states := map[string]int{}
	for _, one := range s.known {
		states[string(one.Status)]++
	}
	s.mu.Unlock()
	s.deps.Metrics.Lifecycles(states)
	s.deps.Logger.InfoContext(ctx, "lifecycle", slog.String("agent", r.Agent), slog.String("status", string(r.Status)), slog.String("step", r.Step.String()),
		slog.String("reason", r.Reason), slog.String("by", r.By), slog.Uint64("term", r.Term))
	return nil
}
