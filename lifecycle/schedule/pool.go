package schedule

import (
	"slices"
	"time"
)

// DefaultLongest is the longest wait unless the operator chooses another one (ATD, Fair-Share Scheduling item 3).
const DefaultLongest = 300 * time.Second

// GiveUp is how long critical work waits for a place (ATD, Unsatisfiable Resource Hints).
const GiveUp = 60 * time.Second

// Bounds of the queue.
const (
	queuePerPlace = 32
	leastQueue    = 64
	mostQueue     = 4096
	callersPart   = 4 // a caller has one part of so many
)

// Config is what an operator decides about the places of an agent.
type Config struct {
	Places  int           // jobs that run at once; zero: any number
	Longest time.Duration // after it a job goes first; zero: [DefaultLongest]
}

// Queue is how many jobs may wait, in all and of one caller.
func (c Config) Queue() (total, perCaller int) {
	total = min(max(queuePerPlace*c.Places, leastQueue), mostQueue)
	return total, max(total/callersPart, 1)
}

// ID names a job of a pool. It is used once.
type ID uint64

// Job is a call of the agent.
type Job struct {
	ID       ID
	Workflow string // empty: it counts under its caller
	Caller   string
	Class    Class
	Came     time.Time
}

// Refusal says why a job may not even wait.
type Refusal uint8

// The refusals. The zero value is none.
const (
	QueueFull Refusal = iota + 1
	CallerFull
)

// Effects are what an event results in.
type Effects struct {
	Begin     []ID    // have a place from now on
	Exhausted []ID    // critical ones that gave up
	Displaced []ID    // gave their place in a full queue to a job of a higher class
	Refused   Refusal // of a submitted job; zero: it begins or waits
}

// Pool is the places of one agent, and what waits for one. It is not safe for concurrent use.
type Pool struct {
	config  Config
	waiting []waiter // in the order in which they came
	running map[ID]runner
	shares  map[shareKey]*share
	callers map[string]*caller // those with jobs
}

// caller counts the jobs of a caller.
type caller struct {
	name             string
	running, waiting int
}

// runner is a job that has a place.
type runner struct {
	share  *share
	caller *caller
}

// shareKey names what has a base share: a workflow, or else a caller.
type shareKey struct{ workflow, caller string }

// share counts the jobs of a workflow, or of a caller without one.
type share struct {
	key              shareKey
	running, waiting int
}

type waiter struct {
	Job

	share  *share
	caller *caller
}

// NewPool makes a pool without jobs.
func NewPool(config Config) *Pool {
	return &Pool{config: config, running: map[ID]runner{}, shares: map[shareKey]*share{}, callers: map[string]*caller{}}
}

// Len is how many jobs wait and run.
func (p *Pool) Len() (waiting, running int) { return len(p.waiting), len(p.running) }

// Configure changes what the operator decides. Jobs that run go on, and jobs that wait stay.
func (p *Pool) Configure(config Config, now time.Time) Effects {
	p.config = config
	return p.Tick(now)
}

// Submit adds a job: it begins, waits, or is refused.
func (p *Pool) Submit(job Job, now time.Time) Effects {
	out := p.Tick(now)
	total, perCaller := p.config.Queue()
	switch {
	case p.free():
		p.begin(job.ID, p.shareOf(job), p.callerOf(job), &out)
	case p.callers[job.Caller] != nil && p.callers[job.Caller].waiting >= perCaller:
		out.Refused = CallerFull
	case len(p.waiting) >= total && !p.displace(job.Class, now, &out):
		out.Refused = QueueFull
	default:
		s, c := p.shareOf(job), p.callerOf(job)
		s.waiting++
		c.waiting++
		p.waiting = append(p.waiting, waiter{job, s, c})
	}
	return out
}

// displace takes a job of a lower class out of a full queue: of the lowest class the one that came last, and none that has waited for the
// longest wait. false: there is none.
func (p *Pool) displace(class Class, now time.Time, out *Effects) bool {
	last := -1
	for i, w := range p.waiting {
		if w.Class < class && now.Sub(w.Came) < p.longest() && (last < 0 || w.Class <= p.waiting[last].Class) {
			last = i
		}
	}
	if last < 0 {
		return false
	}
	out.Displaced = append(out.Displaced, p.waiting[last].ID)
	p.remove(last)
	return true
}

// longest is the longest wait.
func (p *Pool) longest() time.Duration {
	if p.config.Longest <= 0 {
		return DefaultLongest
	}
	return p.config.Longest
}

// Withdraw removes a job whose caller has left, whether it waits or runs. An unknown job changes nothing.
func (p *Pool) Withdraw(id ID, now time.Time) Effects {
	if _, runs := p.running[id]; !runs {
		if i := slices.IndexFunc(p.waiting, func(w waiter) bool { return w.ID == id }); i >= 0 {
			p.remove(i)
		}
	}
	return p.Done(id, now)
}

// Done ends a job that runs, so that its place is free. An unknown job changes nothing.
func (p *Pool) Done(id ID, now time.Time) Effects {
	if r, runs := p.running[id]; runs {
		delete(p.running, id)
		r.share.running--
		r.caller.running--
		p.forget(r.share, r.caller)
	}
	return p.Tick(now)
}

// Tick has the critical jobs give up that have waited for [GiveUp], and others begin on free places. It is needed
// when [GiveUp] has passed since a critical job came.
func (p *Pool) Tick(now time.Time) (out Effects) {
	for i := 0; i < len(p.waiting); {
		if w := p.waiting[i]; w.Class == Critical && now.Sub(w.Came) >= GiveUp {
			out.Exhausted = append(out.Exhausted, w.ID)
			p.remove(i)
		} else {
			i++
		}
	}
	for len(p.waiting) > 0 && p.free() {
		i := p.next(now)
		w := p.waiting[i]
		p.begin(w.ID, w.share, w.caller, &out)
		p.remove(i)
	}
	return out
}

// free reports whether one more job may run.
func (p *Pool) free() bool { return p.config.Places <= 0 || len(p.running) < p.config.Places }

// next is the place in the queue of the job that begins next. Of equal ones the older one stands first there.
func (p *Pool) next(now time.Time) (best int) {
	longest := p.longest()
	for i := range p.waiting {
		w, b := &p.waiting[i], &p.waiting[best]
		if now.Sub(w.Came) >= longest {
			return i
		}
		var before bool
		switch {
		case w.Class != b.Class:
			before = w.Class > b.Class
		case w.share.running != b.share.running:
			before = w.share.running < b.share.running
		default:
			before = w.caller.running < b.caller.running
		}
		if before {
			best = i
		}
	}
	return best
}

func (p *Pool) begin(id ID, s *share, c *caller, out *Effects) {
	p.running[id] = runner{s, c}
	s.running++
	c.running++
	out.Begin = append(out.Begin, id)
}

// remove takes a job out of the queue.
func (p *Pool) remove(i int) {
	w := p.waiting[i]
	p.waiting = slices.Delete(p.waiting, i, i+1)
	w.share.waiting--
	w.caller.waiting--
	p.forget(w.share, w.caller)
}

// shareOf finds or makes the share in which a job counts.
func (p *Pool) shareOf(job Job) *share {
	key := shareKey{workflow: job.Workflow}
	if job.Workflow == "" {
		key.caller = job.Caller
	}
	s, known := p.shares[key]
	if !known {
		s = &share{key: key}
		p.shares[key] = s
	}
	return s
}

// callerOf finds or makes the counts of the caller of a job.
func (p *Pool) callerOf(job Job) *caller {
	c, known := p.callers[job.Caller]
	if !known {
		c = &caller{name: job.Caller}
		p.callers[job.Caller] = c
	}
	return c
}

// forget removes a share and a caller without jobs.
func (p *Pool) forget(s *share, c *caller) {
	if s.running == 0 && s.waiting == 0 {
		delete(p.shares, s.key)
	}
	if c.running == 0 && c.waiting == 0 {
		delete(p.callers, c.name)
	}
}
