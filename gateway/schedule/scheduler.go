package schedule

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/aepb/aepb-gateway/gateway/sample"
	"github.com/aepb/aepb-gateway/lifecycle/schedule"
)

// What [Metrics] count as the reason of a refusal.
const (
	ReasonQueue     = "queue"
	ReasonCaller    = "caller"
	ReasonExhausted = "exhausted"
)

// Metrics are notified of what becomes of calls.
type Metrics interface {
	Waited(class string, d time.Duration)
	NoPlace(agent, reason string)
}

// Deps is what a Scheduler is built from. Every field is required.
type Deps struct {
	Now     func() time.Time // monotonic
	Metrics Metrics
}

// Scheduler has calls wait for places. It is safe for concurrent use.
type Scheduler struct {
	deps    Deps
	rules   atomic.Pointer[Rules]
	samples *sample.Sampler

	mu     sync.Mutex
	last   schedule.ID
	agents map[string]*agent // those with calls that wait or run
}

// agent is the pool of an agent, and how its waiting calls learn what becomes of them.
type agent struct {
	name    string
	pool    *schedule.Pool
	waiting map[schedule.ID]chan error // gets nil for a place
}

// sampleEvery is how often at most one agent has one thing reported: a few times a minute.
const sampleEvery = 20 * time.Second

// New makes a scheduler without rules: no agent has a queue.
func New(deps Deps) (*Scheduler, error) {
	samples, err := sample.New(sample.Config{Every: sampleEvery}, sample.Deps{Now: deps.Now})
	s := &Scheduler{deps: deps, samples: samples, agents: map[string]*agent{}}
	s.rules.Store(&Rules{})
	return s, err
}

// Configure puts rules in force at once, also for calls that wait. Calls that run go on.
func (s *Scheduler) Configure(rules Rules) {
	s.rules.Store(&rules)
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, a := range s.agents {
		s.carryOut(a, a.pool.Configure(rules.Agents[a.name], s.deps.Now()))
	}
}

// Rules are those in force.
func (s *Scheduler) Rules() Rules { return *s.rules.Load() }

// Queues reports whether calls of an agent may have to wait.
func (s *Scheduler) Queues(agent string) bool {
	_, queues := s.rules.Load().Agents[agent]
	return queues
}

// Call is a call that needs a place at its agent.
type Call struct {
	Agent    string
	Workflow string // empty: it counts under its caller
	Caller   string
	Class    schedule.Class
}

// Enter waits until the call has a place, and returns what gives the place back, which may be called more than once, and
// how long it waited. Its errors are *[schedule.FullError], *[schedule.ExhaustedError], and that of ctx, whose end takes
// the call out of the queue.
func (s *Scheduler) Enter(ctx context.Context, call Call) (leave func(), waited time.Duration, err error) {
	if !s.Queues(call.Agent) {
		return func() {}, 0, nil
	}
	a, id, came, result, err := s.submit(call)
	if err != nil {
		return nil, 0, err
	}
	err = s.wait(ctx, a, id, call.Class, result)
	waited = s.deps.Now().Sub(came)
	if err != nil {
		return nil, waited, err
	}
	s.deps.Metrics.Waited(call.Class.String(), waited)
	return sync.OnceFunc(func() {
		s.event(a, func(now time.Time) schedule.Effects { return a.pool.Done(id, now) })
	}), waited, nil
}

// submit adds a call to the pool of its agent. The result gets nil when the call has a place.
func (s *Scheduler) submit(call Call) (a *agent, id schedule.ID, came time.Time, result chan error, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	a = s.agents[call.Agent]
	if a == nil {
		a = &agent{call.Agent, schedule.NewPool(s.rules.Load().Agents[call.Agent]), map[schedule.ID]chan error{}}
		s.agents[call.Agent] = a
	}
	s.last++
	id, came, result = s.last, s.deps.Now(), make(chan error, 1)
	a.waiting[id] = result
	effects := a.pool.Submit(schedule.Job{ID: id, Workflow: call.Workflow, Caller: call.Caller, Class: call.Class, Came: came}, came)
	s.carryOut(a, effects)
	switch effects.Refused {
	case schedule.CallerFull:
		err = &schedule.FullError{Agent: call.Agent, Own: true}
		s.deps.Metrics.NoPlace(call.Agent, ReasonCaller)
	case schedule.QueueFull:
		err = &schedule.FullError{Agent: call.Agent}
		s.deps.Metrics.NoPlace(call.Agent, ReasonQueue)
	}
	if err != nil {
		delete(a.waiting, id)
	}
	return a, id, came, result, err
}

// wait returns nil when the call has a place.
func (s *Scheduler) wait(ctx context.Context, a *agent, id schedule.ID, class schedule.Class, result <-chan error) error {
	var givesUp <-chan time.Time
	if class == schedule.Critical {
		timer := time.NewTimer(schedule.GiveUp)
		defer timer.Stop()
		givesUp = timer.C
	}
	for {
		select {
		case err := <-result:
			return err
		case <-givesUp:
			s.event(a, a.pool.Tick)
		case <-ctx.Done():
			s.event(a, func(now time.Time) schedule.Effects {
				delete(a.waiting, id)
				return a.pool.Withdraw(id, now)
			})
			return ctx.Err()
		}
	}
}

// event changes a pool.
func (s *Scheduler) event(a *agent, change func(now time.Time) schedule.Effects) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.carryOut(a, change(s.deps.Now()))
}

// carryOut lets waiting calls know what became of them, and forgets an agent without calls. The mutex is locked.
func (s *Scheduler) carryOut(a *agent, effects schedule.Effects) {
	for _, id := range effects.Begin {
		a.waiting[id] <- nil
		delete(a.waiting, id)
	}
	for _, id := range effects.Exhausted {
		s.deps.Metrics.NoPlace(a.name, ReasonExhausted)
		a.waiting[id] <- &schedule.ExhaustedError{Agent: a.name}
		delete(a.waiting, id)
	}
	for _, id := range effects.Displaced {
		s.deps.Metrics.NoPlace(a.name, ReasonQueue)
		a.waiting[id] <- &schedule.FullError{Agent: a.name}
		delete(a.waiting, id)
	}
	if waiting, running := a.pool.Len(); waiting == 0 && running == 0 && s.agents[a.name] == a {
		delete(s.agents, a.name)
	}
}

// Due reports whether it is time to report, of an agent, what happens too often to be reported each time, and how many
// times it has happened since the last report.
func (s *Scheduler) Due(agent, what string) (count uint64, due bool) {
	noted, due := s.samples.Note(sample.Key{Source: agent, Reason: what})
	return noted.Count, due
}

// Waiting is how many calls wait, by agent that has a queue.
func (s *Scheduler) Waiting() map[string]float64 {
	out := map[string]float64{}
	for name := range s.rules.Load().Agents {
		out[name] = 0
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for name, a := range s.agents {
		waiting, _ := a.pool.Len()
		out[name] = float64(waiting)
	}
	return out
}
