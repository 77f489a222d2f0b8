package stdio

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/policy/quota"
)

// Defaults of Limits.
const (
	DefaultTotal = 32
	DefaultIdle  = 5 * time.Minute
)

// Limits bound the processes of a Host.
type Limits struct {
	Total     int           // at once; 0: DefaultTotal
	PerCaller int           // of one caller; 0: a quarter of Total
	Idle      time.Duration // after which a process that is not used ends; 0: DefaultIdle
}

// Deps is what a Host needs.
type Deps struct {
	Limits Limits
	// Supervisor is the command, with its first arguments, that calls [Supervise] on Linux;
	// none: programs run without one.
	Supervisor []string
	Logger     *slog.Logger
	Now        func() time.Time // nil: the real clock
}

// Owner is whose process it is.
type Owner struct {
	Agent  string       // directory name
	Caller ect.Identity // for whom it works; empty: the gateway itself asks, or all callers share it
}

// Status is what one process is doing.
type Status struct {
	PID       int
	Owner     Owner
	Program   string // the first word of the command
	Started   time.Time
	Used      time.Time // when its last use began or ended
	Uses      int       // under way
	MemoryMiB int       // of it and all that it started, where that can be read
}

// Host starts programs and ends them. It is safe for concurrent use.
type Host struct {
	deps   Deps
	places *quota.Places

	mu        sync.Mutex
	closed    bool
	processes map[*Process]struct{}
	starting  map[*Process]struct{} // what will be among processes
	failures  map[failureKey]failure
	queue     []*waiting // for a place, the first one first
	work      sync.WaitGroup
}

// failureKey is what waits after a program failed: the same program for the same owner.
type failureKey struct {
	owner   Owner
	program string
}

type failure struct {
	times int
	until time.Time
	err   error
}

// A program that ends by itself so soon after its start has failed.
const (
	failsWithin = 10 * time.Second
	firstWait   = time.Second
	lastWait    = time.Minute
	maxFailures = 1024 // that are remembered
)

const resource = "processes"

// WaitError refuses to start a program that failed before, until its wait is over.
type WaitError struct {
	After time.Duration
	Err   error // why it failed
}

func (e *WaitError) Error() string {
	return "the program failed and is started again in " + e.After.Round(time.Second).String() + ": " + e.Err.Error()
}

// Unwrap gives the cause.
func (e *WaitError) Unwrap() error { return e.Err }

// ErrClosed refuses to start a program because the host is closed.
var ErrClosed = errors.New("stdio: the gateway is stopping")

// NewHost makes a Host without processes.
func NewHost(deps Deps) (*Host, error) {
	if deps.Logger == nil {
		return nil, errors.New("stdio: a host needs a logger")
	}
	if deps.Now == nil {
		deps.Now = time.Now
	}
	deps.Limits.Total = cmp.Or(deps.Limits.Total, DefaultTotal)
	deps.Limits.PerCaller = cmp.Or(deps.Limits.PerCaller, max(1, deps.Limits.Total/4))
	deps.Limits.Idle = cmp.Or(deps.Limits.Idle, DefaultIdle)
	places, err := quota.NewPlaces(quota.Config{Resource: resource, Total: int64(deps.Limits.Total), PerHolder: int64(deps.Limits.PerCaller)})
	if err != nil {
		return nil, err
	}
	return &Host{deps: deps, places: places, processes: map[*Process]struct{}{}, starting: map[*Process]struct{}{}, failures: map[failureKey]failure{}}, nil
}

// Usage says how many processes there are.
func (h *Host) Usage() quota.Usage { return h.places.Usage() }

// Start runs a program; the process is in use until [Process.Rest]. maxLine bounds a line that
// it writes, in bytes. Errors: *quota.ExceededError, *WaitError, ErrClosed, or why the
// program cannot be started.
func (h *Host) Start(ctx context.Context, owner Owner, program Program, maxLine int) (*Process, error) {
	key := failureKey{owner, program.URL()}
	holder := cmp.Or(string(owner.Caller), "\x00"+owner.Agent) // what callers share, each agent has for itself
	if err := cmp.Or(h.mayStart(key, holder), h.waits(failureKey{Owner{owner.Agent, askerOf(ctx)}, key.program})); err != nil {
		return nil, err
	}
	p := &Process{host: h, owner: owner, holder: holder, program: program, maxLine: maxLine, started: h.deps.Now(), ending: make(chan struct{}), done: make(chan struct{})}
	place, err := h.take(ctx, p)
	if err != nil {
		return nil, err
	}
	p.uses = &uses{place: place, now: h.deps.Now, count: 1, latest: p.started}
	h.mu.Lock()
	h.starting[p] = struct{}{}
	h.mu.Unlock()
	defer func() {
		h.mu.Lock()
		delete(h.starting, p)
		h.mu.Unlock()
	}()
	if err = h.begin(ctx, p); err != nil {
		place.Release()
		if !errors.Is(err, ErrClosed) {
			h.failed(key, err)
		}
		return nil, err
	}
	return p, nil
}

// begin starts the process and what looks after it, without the lock: files and the folder of
// the program may be on a disk that does not answer.
func (h *Host) begin(ctx context.Context, p *Process) error {
	environment, err := p.environment()
	if err != nil {
		return err
	}
	command, err := p.program.command()
	if err != nil {
		return err
	}
	if !h.enter() {
		return ErrClosed
	}
	defer h.work.Done()
	if err := p.start(h.deps.Supervisor, command, environment, h.deps.Logger); err != nil { //nolint:contextcheck // a process outlives the request that started it
		return err
	}
	h.mu.Lock()
	h.processes[p] = struct{}{}
	h.mu.Unlock()
	h.deps.Logger.LogAttrs(ctx, slog.LevelInfo, "program started", p.attrs()...)
	h.work.Go(func() { h.follow(p) }) //nolint:contextcheck // the same
	return nil
}

// enter has Close wait for a start; false: it waits already.
func (h *Host) enter() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if !h.closed {
		h.work.Add(1)
	}
	return !h.closed
}

// follow waits for the end of a process, and ends one that is not used.
func (h *Host) follow(p *Process) {
	timer := time.NewTimer(h.deps.Limits.Idle)
	defer timer.Stop()
	for running := true; running; {
		select {
		case <-p.done:
			running = false
		case <-timer.C:
			if left := p.idle(h.deps.Limits.Idle, func() { p.ask(errIdle) }); left > 0 {
				timer.Reset(left)
			}
		case <-p.ending:
			p.stop()
		}
	}
	wanted, err := p.end()
	key := failureKey{p.owner, p.program.URL()}
	switch {
	case h.deps.Now().Sub(p.started) >= failsWithin:
		h.recovered(key)
	case !wanted && !(p.program.Shared && p.broke()): // else see EndedError.Blame
		h.failed(key, err)
	}
	h.mu.Lock()
	delete(h.processes, p)
	h.mu.Unlock()
	p.place.Release()
	h.freed()
	level := slog.LevelInfo
	if !wanted {
		level = slog.LevelWarn
	}
	h.deps.Logger.LogAttrs(context.Background(), level, "program ended", append(p.attrs(), slog.Any("error", err))...)
}

// mayStart refuses a program that failed a short while ago, and one more where as many as
// there may be are still on their way to their end: these have no place any more, but run.
func (h *Host) mayStart(key failureKey, holder string) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed {
		return ErrClosed
	}
	if err := h.wait(key); err != nil {
		return err
	}
	own := 0
	for p := range h.processes {
		if p.holder == holder {
			own++
		}
	}
	if most := h.deps.Limits; own >= 2*most.PerCaller || len(h.processes) >= 2*most.Total {
		return &quota.ExceededError{Resource: resource, Own: own >= 2*most.PerCaller}
	}
	return nil
}

// waits is why a caller does not use a program now, which its calls have ended; nil: it may.
func (h *Host) waits(key failureKey) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.wait(key)
}

// wait is waits with the lock.
func (h *Host) wait(key failureKey) error {
	if left := h.failures[key].until.Sub(h.deps.Now()); left > 0 {
		return &WaitError{After: left, Err: h.failures[key].err}
	}
	return nil
}

func (h *Host) failed(key failureKey, err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	now := h.deps.Now()
	f := h.failures[key]
	if now.After(f.until.Add(lastWait)) {
		f.times = 0 // the last time is long ago
	}
	f.err, f.until = err, now
	if f.times > 0 { // the first time it is started again at once
		f.until = now.Add(min(lastWait, firstWait<<min(f.times-1, 10)))
	}
	f.times++
	if len(h.failures) >= maxFailures {
		for other, old := range h.failures {
			if now.After(old.until.Add(lastWait)) {
				delete(h.failures, other)
			}
		}
	}
	if _, known := h.failures[key]; known || len(h.failures) < maxFailures {
		h.failures[key] = f
	}
}

func (h *Host) recovered(key failureKey) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.failures, key)
}

// List says what there is, the oldest first.
func (h *Host) List() []Status {
	h.mu.Lock()
	all := make([]*Process, 0, len(h.processes))
	for p := range h.processes {
		all = append(all, p)
	}
	h.mu.Unlock()
	out := make([]Status, len(all))
	for i, p := range all {
		out[i] = p.status()
	}
	slices.SortFunc(out, func(a, b Status) int { return cmp.Or(a.Started.Compare(b.Started), a.PID-b.PID) })
	return out
}

// Drop ends the processes of an agent whose program is not this one any more, also those that
// are being started; an empty program: all of them.
func (h *Host) Drop(agent, program string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, p := range h.all() {
		if p.owner.Agent == agent && p.program.URL() != program {
			p.ask(errDropped)
		}
	}
}

// all are the processes, with those that are being started.
func (h *Host) all() []*Process {
	return slices.AppendSeq(slices.Collect(maps.Keys(h.processes)), maps.Keys(h.starting))
}

// Close ends all processes and waits until they are gone.
func (h *Host) Close() error {
	h.mu.Lock()
	h.closed = true
	for _, p := range h.all() {
		p.ask(ErrClosed)
	}
	h.mu.Unlock()
	h.work.Wait()
	return nil
}

// placeWithin is how long a caller waits for a place that others have.
const placeWithin = time.Second

// waiting is a process that waits for its place.
type waiting struct {
	process *Process
	place   *quota.Place
	done    chan struct{} // closed: it has its place
}

// take takes a place for a process. While others have them all it waits, up to a second, for
// the first that is free and that it may have: who has few comes before who has more, and of
// those the one who came first.
func (h *Host) take(ctx context.Context, p *Process) (*quota.Place, error) {
	place, err := h.places.Take(p.holder, true, p.giveWay)
	if exceeded, ok := errors.AsType[*quota.ExceededError](err); !ok || exceeded.Own {
		return place, err
	}
	mine := &waiting{process: p, done: make(chan struct{})}
	h.mu.Lock()
	h.queue = append(h.queue, mine)
	h.mu.Unlock()
	h.freed() // one may have been since
	timer := time.NewTimer(placeWithin)
	defer timer.Stop()
	select {
	case <-mine.done:
	case <-timer.C:
	case <-ctx.Done():
		err = ctx.Err()
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.queue = slices.DeleteFunc(h.queue, func(one *waiting) bool { return one == mine })
	if mine.place != nil {
		return mine.place, nil
	}
	return nil, err
}

// freed gives places that have become free, or are not in use any more, to those who wait.
func (h *Host) freed() {
	h.mu.Lock()
	defer h.mu.Unlock()
	slices.SortStableFunc(h.queue, func(a, b *waiting) int {
		return cmp.Compare(h.places.Count(a.process.holder), h.places.Count(b.process.holder))
	})
	h.queue = slices.DeleteFunc(h.queue, func(one *waiting) bool {
		place, err := h.places.Take(one.process.holder, true, one.process.giveWay)
		if err != nil {
			return false
		}
		one.place = place
		close(one.done)
		return true
	})
}
