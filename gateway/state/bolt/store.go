package bolt

import (
	"cmp"
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/gateway/state"
)

// Config is where state is kept, and how much of it. A zero field takes its
// default; Path has none.
type Config struct {
	Path       string           // the file; its folder exists. Read and written by its owner alone
	FlushEvery time.Duration    // how long an accepted change may be in memory only, at most; up to a second
	Queue      int              // changes that may wait for the disk before writers do
	QueueBytes int64            // the same in bytes, about
	Bounds     state.Config     // what is kept
	Blobs      state.BlobBounds // of the contents of checkpoints, which are in the file alone
}

// Defaults of a Config, and the most that FlushEvery may be (architecture section 6).
const (
	DefaultFlushEvery = 500 * time.Millisecond
	MaxFlushEvery     = time.Second
	DefaultQueue      = 1 << 14
	DefaultQueueBytes = 16 << 20
	// DefaultMaxBlobsBytes is how many bytes of blobs there may be in the file.
	DefaultMaxBlobsBytes = 1 << 30
)

// WithDefaults fills the zero fields.
func (c Config) WithDefaults() Config {
	c.FlushEvery = cmp.Or(c.FlushEvery, DefaultFlushEvery)
	c.Queue, c.QueueBytes = cmp.Or(c.Queue, DefaultQueue), cmp.Or(c.QueueBytes, DefaultQueueBytes)
	c.Blobs.MaxBytes = cmp.Or(c.Blobs.MaxBytes, DefaultMaxBlobsBytes)
	c.Blobs = c.Blobs.WithDefaults()
	c.Bounds = c.Bounds.WithDefaults()
	return c
}

// Validate refuses what cannot be meant.
func (c Config) Validate() error {
	switch {
	case c.Path == "":
		return errors.New("state: a file needs a path")
	case c.FlushEvery < 0 || c.FlushEvery > MaxFlushEvery:
		return errors.New("state: changes are flushed at least every second")
	case c.Queue < 0 || c.QueueBytes < 0:
		return errors.New("state: a queue must not be negative")
	default:
		return errors.Join(c.Bounds.Validate(), c.Blobs.Validate())
	}
}

// Deps is what a Store needs.
type Deps = state.DriverDeps

// Store is evidence in a file, and other state in memory that the file follows.
// It is safe for concurrent use.
type Store struct {
	*state.Memory
	blobs   *Blobs
	queue   *queue
	owner   *owner
	now     func() time.Time
	unclean bool
	group   sync.WaitGroup
	closing sync.Once
}

var (
	_ ect.Store       = (*Store)(nil)
	_ ect.ReplayCache = (*Store)(nil)
)

// Open reads the file, or makes it, and starts writing to it. An [OpenError]
// says why it cannot; it waits two seconds for the process before to let go of
// the file. The Store must be closed.
func Open(config Config, deps Deps) (*Store, error) {
	config = config.WithDefaults()
	if err := config.Validate(); err != nil {
		return nil, err
	}
	deps = deps.WithDefaults()
	f, err := openFile(config.Path)
	if err != nil {
		return nil, err
	}
	s, err := start(config, deps, f)
	if err != nil {
		return nil, errors.Join(err, f.close())
	}
	s.group.Go(s.owner.run)
	return s, nil
}

// start restores the memory and begins a new life of the file.
func start(config Config, deps Deps, f *file) (*Store, error) {
	last, err := f.readMeta()
	if err != nil {
		return nil, f.openError(err)
	}
	epoch := epochAfter(last, deps.Now())
	s := &Store{unclean: last.known && !last.clean, now: deps.Now}
	stale, complete, err := s.restore(config, deps, f, epoch)
	if err == nil && !complete { // bounds that are smaller than before
		s.unclean, epoch = true, forgottenUntil(deps.Now())
		stale, _, err = s.restore(config, deps, f, epoch)
	}
	if err == nil {
		s.blobs, err = newBlobs(s, config, f)
	}
	if err == nil {
		err = f.begin(epoch)
	}
	if err != nil {
		return nil, f.openError(err)
	}
	s.owner = newOwner(config, deps.Logger, s.Memory, s.queue, f, stale, s.blobs.sweep)
	s.owner.counters.settled.Store(f.settled)
	s.owner.logOpened(s.unclean, epoch, s.Memory)
	return s, nil
}

// epochAfter is since when all uses of tokens are known. iat has whole seconds,
// so the first second of a new file is whole; after an unclean end it is not,
// because tokens of that second may have been used before the end.
// Two unclean ends in a row keep the later of both.
func epochAfter(last meta, now time.Time) time.Time {
	switch {
	case !last.known:
		return now.Truncate(time.Second)
	case last.clean:
		return last.epoch
	case last.epoch.After(now): // the clock went back
		return last.epoch
	default: // a use that is not on disk was of a token dated before the end: see Claim
		return now
	}
}

// forgottenUntil is the latest date of a token whose use did not fit: the clock of its issuer may
// be ahead of ours, by as much as a verifier allows.
func forgottenUntil(now time.Time) time.Time { return now.Add(ect.DefaultSkew) }

// restore fills a new memory from the file. stale is what can be deleted there; complete is false
// if a use of a token did not fit.
func (s *Store) restore(config Config, deps Deps, f *file, epoch time.Time) (stale []mark, complete bool, err error) {
	s.queue = newQueue(config.Queue, config.QueueBytes)
	tokens, err := state.OpenTokens(config.Bounds, deps, f, s.queue.Evidence)
	if err == nil {
		s.Memory, err = state.New(config.Bounds, state.Deps{Now: deps.Now, Epoch: epoch, Journal: s.queue, Tokens: tokens})
	}
	if err != nil {
		return nil, false, err
	}
	complete = true
	err = f.load(func(m mark, data []byte) error {
		restored, err := s.Memory.Restore(m.kind, m.serial, data)
		if full := (*state.FullError)(nil); errors.As(err, &full) {
			complete = false
		} else if err != nil {
			return corrupt("%s %d: %v", m.kind, m.serial, err)
		}
		if !restored {
			stale = append(stale, m)
		}
		return nil
	})
	return stale, complete, err
}

// Put keeps a record, as [state.Tokens.Put] does. [state.UnavailableError]: it
// cannot be written down, so it was not taken.
func (s *Store) Put(ctx context.Context, r ect.Record) error {
	if err := s.queue.admit(ctx); err != nil {
		return err
	}
	if err := s.Memory.Put(ctx, r); err != nil {
		return err
	}
	return s.queue.failure()
}

// Claim notes the use of a token, as [state.Replays.Claim] does. The use of a token
// with a date in the future is on disk before Claim returns: so after an unclean end
// every token dated later than that end is new, and is accepted at once.
// [state.UnavailableError]: the use cannot be written down, so the token is refused.
func (s *Store) Claim(ctx context.Context, key ect.ReplayKey, use ect.ReplayUse) (ect.ReplayState, error) {
	if err := s.queue.admit(ctx); err != nil {
		return ect.ReplayUnknown, err
	}
	found, err := s.Memory.Claim(ctx, key, use)
	if err == nil {
		err = s.queue.failure()
	}
	if err == nil && found == ect.ReplayFresh && use.Issued.After(s.now()) {
		err = s.Flush(ctx)
	}
	if err != nil {
		return ect.ReplayUnknown, err
	}
	return found, nil
}

// Finish stores an answer, as [state.Answers.Finish] does; when it cannot be
// written down it is not kept.
func (s *Store) Finish(ctx context.Context, key ect.ReplayKey, answer []byte, until time.Time) {
	if s.admitted(ctx) {
		s.Memory.Finish(ctx, key, answer, until)
	}
}

// Remember notes the last ECT of a conversation, as
// [state.Conversations.Remember] does; when it cannot be written down, the
// conversation stands where it stood.
func (s *Store) Remember(ctx context.Context, key, workflow string, id ect.ID) {
	if s.admitted(ctx) {
		s.Memory.Remember(ctx, key, workflow, id)
	}
}

func (s *Store) admitted(ctx context.Context) bool {
	if err := s.queue.admit(ctx); err != nil {
		s.owner.counters.skipped.Add(1)
		return false
	}
	return true
}

// Flush waits until everything that was accepted before is on disk. It tries
// at once, also while the store fails. [state.UnavailableError]: it did not
// work, and is tried again; else the context's error.
func (s *Store) Flush(ctx context.Context) error {
	reply := make(chan error, 1)
	select {
	case s.owner.flushes <- reply:
	case <-s.owner.done:
		return unavailable(ErrClosed)
	case <-ctx.Done():
		return ctx.Err()
	}
	select {
	case err := <-reply:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Close writes what is queued and marks the end as clean, once; writes that
// come later are refused, and reading evidence; other reading goes on. An error means that the end is not
// clean and the next start will know.
func (s *Store) Close() error {
	s.closing.Do(func() { close(s.owner.stop) })
	s.group.Wait()
	return s.owner.ended
}

// Failing is why the last commit failed; nil when it did not.
func (s *Store) Failing() error { return s.queue.failing() }

// counters are the owner's; anybody may read them.
type counters struct {
	commits, failures, written, deleted, skipped atomic.Uint64
	slowest                                      atomic.Int64
	settled                                      atomic.Uint64 // up to this revision all entries are on disk
}
