package bolt

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/aepb/aepb-gateway/gateway/state"
	"github.com/aepb/aepb-gateway/gateway/state/internal/mapped"
)

const (
	// retryEvery is how often a failed commit is tried again.
	retryEvery = time.Second
	// sweepAtOnce bounds how many expired entries of each kind, and how many
	// that were expired at the start, one commit deletes beside what writes push
	// out. The memory is swept in parts, because its lock is held meanwhile.
	sweepAtOnce = 4096
	sweepParts  = 8
	// unmapEvery is how often what was read of the mapped file leaves the process, at most: what is
	// read again has to be mapped again, some 1 ms of work.
	unmapEvery = time.Second
)

// owner is the one goroutine that writes to the file.
type owner struct {
	counters counters
	memory   *state.Memory
	queue    *queue
	file     *file
	every    time.Duration
	logger   *slog.Logger
	flushes  chan chan<- error // each has a buffer for its answer
	works    chan work
	sweep    func()        // deletes expired blobs
	stop     chan struct{} // closed by Store.Close
	done     chan struct{} // closed at the end of run
	ended    error         // how it ended; read after done

	unmapped time.Time
	batch    []state.Change // taken from the queue and not yet on disk
	stale    []mark         // on disk and of no use since the start
}

// work is a change that has a transaction of its own, beside the queue.
type work struct {
	do    func() error
	reply chan<- error // has a buffer for the answer
}

func newOwner(config Config, logger *slog.Logger, memory *state.Memory, q *queue, f *file, stale []mark, sweep func()) *owner {
	return &owner{
		works: make(chan work), sweep: sweep,
		memory: memory, queue: q, file: f, every: config.FlushEvery, logger: logger, stale: stale,
		batch:   make([]state.Change, 0, min(config.Queue, DefaultQueue)),
		flushes: make(chan chan<- error), stop: make(chan struct{}), done: make(chan struct{}),
	}
}

// logOpened says what was found.
func (o *owner) logOpened(unclean bool, epoch time.Time, memory *state.Memory) {
	attrs := []slog.Attr{slog.Time("epoch", epoch), slog.Int("expired", len(o.stale))}
	for _, kind := range state.Kinds() {
		attrs = append(attrs, slog.Int(kind.String(), memory.UsageOf(kind).Entries))
	}
	level, message := slog.LevelInfo, "state restored"
	if unclean {
		level, message = slog.LevelWarn, "state restored after an unclean end: tokens from before the epoch are refused"
	}
	o.logger.LogAttrs(context.Background(), level, message, attrs...)
}

func (o *owner) run() {
	defer close(o.done)
	timer := time.NewTimer(o.every)
	defer timer.Stop()
	for {
		kick, wait := o.queue.kick, o.every
		if o.queue.failing() != nil {
			kick, wait = nil, retryEvery
		}
		timer.Reset(wait)
		select {
		case <-o.stop:
			o.ended = o.finish()
			return
		case reply := <-o.flushes:
			o.flush(reply)
		case one := <-o.works:
			one.reply <- one.do()
		case <-kick:
			_ = o.commit(false) // Failing tells
		case <-timer.C:
			_ = o.commit(false) // Failing tells
			o.sweep()
		}
	}
}

// flush commits once for everybody who waits for it: what they wrote is queued.
func (o *owner) flush(first chan<- error) {
	waiting := []chan<- error{first}
	for more := true; more; {
		select {
		case reply := <-o.flushes:
			waiting = append(waiting, reply)
		default:
			more = false
		}
	}
	err := o.commit(false)
	for _, reply := range waiting {
		reply <- err
	}
}

// finish is the last commit, with the mark.
func (o *owner) finish() error {
	o.queue.seal()
	err := o.commit(true)
	return errors.Join(err, o.file.close())
}

// commit writes everything that is queued, and what an earlier commit could
// not, in one transaction.
func (o *owner) commit(clean bool) error {
	if len(o.batch) == 0 {
		for range sweepParts {
			o.memory.Sweep(sweepAtOnce / sweepParts)
		}
	}
	o.batch = o.queue.take(o.batch)
	stale := o.stale[:min(len(o.stale), sweepAtOnce)]
	changes := o.memory.Tokens.Take(clean)
	if len(o.batch) == 0 && len(stale) == 0 && changes == nil && !clean && !o.file.broken.Load() {
		return nil
	}
	began := time.Now()
	written, deleted, err := o.file.write(o.batch, stale, changes, clean)
	o.counters.slowest.Store(max(o.counters.slowest.Load(), int64(time.Since(began))))
	o.report(err)
	if err != nil {
		return unavailable(err)
	}
	o.counters.written.Add(uint64(written)) //nolint:gosec // counts
	o.counters.deleted.Add(uint64(deleted)) //nolint:gosec // counts
	o.counters.settled.Store(o.file.settled)
	o.memory.Tokens.Wrote()
	if began.Sub(o.unmapped) >= unmapEvery {
		o.unmapped = began
		mapped.Leave(o.file.db.Info().Data, o.file.size)
	}
	clear(o.batch)
	o.batch, o.stale = o.batch[:0], o.stale[len(stale):]
	return nil
}

// report counts a commit, and says when trouble begins and when it ends.
func (o *owner) report(err error) {
	before := o.queue.failing()
	o.queue.settle(err)
	ctx := context.Background()
	switch {
	case err != nil && before == nil:
		o.counters.failures.Add(1)
		o.logger.ErrorContext(ctx, "state cannot be written: evidence is refused until it can", slog.Any("error", err))
	case err != nil:
		o.counters.failures.Add(1)
	case before != nil:
		o.counters.commits.Add(1)
		o.logger.InfoContext(ctx, "state is written again")
	default:
		o.counters.commits.Add(1)
	}
}
