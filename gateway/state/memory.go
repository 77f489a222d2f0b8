package state

import (
	"cmp"
	"errors"
	"log/slog"
	"time"

	"github.com/aepb/aepb-gateway/gateway/state/evidence"
)

// Config bounds what is kept. A zero field takes its default.
type Config struct {
	MaxTokens            int           // evidence records
	MaxTokenBytes        int64         // bytes of evidence, bookkeeping included
	MaxReplays           int           // uses of tokens; about 88 bytes each
	MaxReplaysPerIssuer  int           // uses of one issuer's tokens; default: a quarter of MaxReplays
	MaxAnswers           int           // stored answers
	MaxAnswersBytes      int64         // bytes of stored answers in all
	MaxAnswerBytes       int           // bytes of one stored answer; larger ones are not kept
	MaxConversations     int           // conversations
	ConversationLifetime time.Duration // after the last turn
	MaxEntries           int           // entries
	MaxEntriesBytes      int64         // bytes of entries in all, bookkeeping included
	MaxEntryBytes        int           // bytes of one entry's value

	MaxEntriesPerOwner      int   // entries of one owner; default: a sixteenth of MaxEntries
	MaxEntriesBytesPerOwner int64 // bytes of entries of one owner; default: a sixteenth of MaxEntriesBytes, or two of the largest
	MaxAnswersBytesPerOwner int64 // bytes of stored answers of one owner; default: a quarter of MaxAnswersBytes, or two of the largest

	// RecordKinds are the kinds of entries that decide something once. Other kinds together leave
	// an eighth of the bounds of entries, in all and of each owner, to them; see [BulkShare]. A
	// record that is larger than the reserve has no such promise. Empty: there is no reserve.
	RecordKinds []string
}

// Defaults of a Config. Full, they hold about 510 MiB, 64 of them blobs, for which the collector
// takes up to twice that.
const (
	DefaultMaxTokens            = 1 << 18
	DefaultMaxTokenBytes        = 128 << 20
	DefaultMaxReplays           = 1 << 21
	DefaultMaxAnswers           = 1 << 16
	DefaultMaxAnswersBytes      = 64 << 20
	DefaultMaxAnswerBytes       = 1 << 20
	DefaultMaxConversations     = 1 << 17
	DefaultConversationLifetime = 24 * time.Hour
	DefaultMaxEntries           = 1 << 16
	DefaultMaxEntriesBytes      = 64 << 20
	DefaultMaxEntryBytes        = 1 << 20
)

// WithDefaults fills the zero fields.
func (c Config) WithDefaults() Config {
	orDefault(&c.MaxTokenBytes, DefaultMaxTokenBytes)
	orDefault(&c.MaxTokens, max(DefaultMaxTokens, int(c.MaxTokenBytes>>10))) // hardly any is smaller
	orDefault(&c.MaxReplays, DefaultMaxReplays)
	orDefault(&c.MaxReplaysPerIssuer, max(1, c.MaxReplays/4))
	orDefault(&c.MaxAnswers, DefaultMaxAnswers)
	orDefault(&c.MaxAnswersBytes, DefaultMaxAnswersBytes)
	orDefault(&c.MaxAnswerBytes, DefaultMaxAnswerBytes)
	orDefault(&c.MaxConversations, DefaultMaxConversations)
	orDefault(&c.ConversationLifetime, DefaultConversationLifetime)
	orDefault(&c.MaxEntries, DefaultMaxEntries)
	orDefault(&c.MaxEntriesBytes, DefaultMaxEntriesBytes)
	orDefault(&c.MaxEntryBytes, DefaultMaxEntryBytes)
	orDefault(&c.MaxEntriesPerOwner, max(1, c.MaxEntries/16))
	orDefault(&c.MaxEntriesBytesPerOwner, min(c.MaxEntriesBytes, max(c.MaxEntriesBytes/16, 2*int64(c.MaxEntryBytes+2*bookkeeping))))
	orDefault(&c.MaxAnswersBytesPerOwner, min(c.MaxAnswersBytes, max(c.MaxAnswersBytes/4, 2*int64(c.MaxAnswerBytes+2*bookkeeping))))
	return c
}

func orDefault[T comparable](field *T, value T) {
	*field = cmp.Or(*field, value)
}

// Validate refuses bounds that bound nothing.
func (c Config) Validate() error {
	for _, bound := range []int64{
		int64(c.MaxTokens), c.MaxTokenBytes, int64(c.MaxReplays), int64(c.MaxReplaysPerIssuer), int64(c.MaxAnswers),
		c.MaxAnswersBytes, int64(c.MaxAnswerBytes), int64(c.MaxConversations), int64(c.ConversationLifetime),
		int64(c.MaxEntries), c.MaxEntriesBytes, int64(c.MaxEntryBytes),
		int64(c.MaxEntriesPerOwner), c.MaxEntriesBytesPerOwner, c.MaxAnswersBytesPerOwner,
	} {
		if bound < 0 {
			return errors.New("state: a bound must not be negative")
		}
	}
	return nil
}

// Deps is what the drivers need.
type Deps struct {
	Now func() time.Time // nil: time.Now
	// Epoch is since when this process has seen every use of a token. Uses of
	// tokens issued before it are unknown (R6). Zero: nothing was ever used
	// before, as in a gateway that was just set up.
	Epoch time.Time
	// Passing: what is kept is forgotten when the process ends.
	Passing bool
	// Evicted is told of each token that leaves before its end, and whether we signed it.
	// It is called while tokens are locked, and returns at once. Nil: nothing is told.
	Evicted func(own bool)
	// Tokens is where evidence is; nil: in memory.
	Tokens *Tokens
	// Blobs is where blobs are; nil: in memory, with the default bounds.
	Blobs *MemoryBlobs
	// Journal is told of every change, for a driver that keeps it somewhere
	// safer; nil: there is no such driver.
	Journal Journal
}

// DriverDeps is what a driver with a store behind it needs.
type DriverDeps struct {
	Now     func() time.Time // nil: time.Now
	Logger  *slog.Logger     // nil: silence
	Evicted func(own bool)   // as [Deps] has it, and called at any time
}

// WithDefaults fills what is nil.
func (d DriverDeps) WithDefaults() DriverDeps {
	if d.Now == nil {
		d.Now = time.Now
	}
	d.Logger = cmp.Or(d.Logger, slog.New(slog.DiscardHandler))
	if d.Evicted == nil {
		d.Evicted = func(bool) {}
	}
	return d
}

// Memory is all state of one process, in memory: each kind with its own bounds
// and its own lock.
type Memory struct {
	*Tokens
	*Replays
	*Answers
	*Conversations
	entries *Entries
	blobs   *MemoryBlobs
	epoch   time.Time
	bounds  Config
}

// Tokens keeps ECTs by id and by workflow.
type Tokens = evidence.Store

// OpenTokens makes the evidence store; changed is told of changes that wait for the disk.
func OpenTokens(config Config, deps DriverDeps, disk evidence.Disk, changed func(bytes int)) (*Tokens, error) {
	deps = deps.WithDefaults()
	return evidence.Open(
		evidence.Bounds{Records: uint64(config.MaxTokens), Bytes: uint64(config.MaxTokenBytes)}, //nolint:gosec // not negative
		evidence.Deps{Now: deps.Now, Evicted: deps.Evicted, Full: &FullError{What: "an execution context token"}, FullHold: HoldError, Disk: disk, Changed: changed},
	)
}

// HoldError is why a token cannot be held (ect.Filing): the share of its holder is used up, or that of all.
func HoldError(own bool) error {
	return &FullError{What: "tokens on hold", Own: own, RetryAfter: retryHold}
}

// retryHold is when to try again where tokens on hold take all the space: they end after days.
const retryHold = time.Hour

// New makes empty state.
func New(config Config, deps Deps) (m *Memory, err error) {
	config = config.WithDefaults()
	if err := config.Validate(); err != nil {
		return nil, err
	}
	if deps.Now == nil {
		deps.Now = time.Now
	}
	if deps.Tokens == nil {
		if deps.Tokens, err = OpenTokens(config, DriverDeps{Now: deps.Now, Evicted: deps.Evicted}, nil, nil); err != nil {
			return nil, err
		}
	}
	if deps.Blobs == nil {
		if deps.Blobs, err = NewMemoryBlobs(BlobBounds{}, deps.Now); err != nil {
			return nil, err
		}
	}
	return &Memory{
		Tokens:        deps.Tokens,
		Replays:       newReplays(config, deps),
		Answers:       newAnswers(config, deps),
		Conversations: newConversations(config, deps),
		entries:       newEntries(config, deps),
		blobs:         deps.Blobs,
		epoch:         deps.Epoch,
		bounds:        config,
	}, nil
}

// Epoch is since when every use of a token was seen; zero: always.
func (m *Memory) Epoch() time.Time { return m.epoch }

// Entries are kept beside the rest: their methods have names of their own kind.
func (m *Memory) Entries() *Entries { return m.entries }

// Blobs are kept beside the rest, as entries are.
func (m *Memory) Blobs() *MemoryBlobs { return m.blobs }

// UsageOf says how full one kind of state is; zero for an unknown kind.
func (m *Memory) UsageOf(kind Kind) Usage {
	switch kind {
	case KindToken:
		records, bytes, evicted := m.Tokens.Usage()
		return Usage{Entries: records, Bytes: bytes, Evicted: evicted}
	case KindReplay:
		return m.Replays.Usage()
	case KindAnswer:
		return m.Answers.Usage()
	case KindConversation:
		return m.Conversations.Usage()
	case KindEntry:
		return m.entries.Usage()
	default:
		return Usage{}
	}
}

// KindLasting is what of the entries cannot be dropped before its end, in
// [Memory.Filled]: when that is [BulkShare], new ones are refused that are no records.
const KindLasting = "lasting_entries"

// Filled is the part of its bounds that each kind of state takes, by its name: of the
// number or of the bytes, whichever is larger.
func (m *Memory) Filled() map[string]float64 {
	c := m.bounds
	out := map[string]float64{KindLasting: m.entries.lasting().of(amount{c.MaxEntries, c.MaxEntriesBytes})}
	for kind, bound := range map[Kind]amount{
		KindToken: {c.MaxTokens, c.MaxTokenBytes}, KindReplay: {c.MaxReplays, 0}, KindAnswer: {c.MaxAnswers, c.MaxAnswersBytes},
		KindConversation: {c.MaxConversations, 0}, KindEntry: {c.MaxEntries, c.MaxEntriesBytes},
	} {
		u := m.UsageOf(kind)
		out[kind.String()] = amount{u.Entries, u.Bytes}.of(bound)
	}
	return out
}

// Usage says how full a kind of state is.
type Usage struct {
	Entries int
	Bytes   int64  // as accounted for; 0 where only entries count
	Evicted uint64 // entries that had to leave before their end, since the start
}

// Sweep drops expired pieces, at most so many of each kind, the longest expired first. Reads do not
// find expired pieces. Each write drops a few; Sweep is for times without writes.
func (m *Memory) Sweep(most int) {
	m.Tokens.Sweep(most)
	m.Replays.sweep(most)
	m.Answers.sweep(most)
	m.Conversations.sweep(most)
	m.entries.sweep(most)
	m.blobs.sweep(most)
}

// FullError says that a store is full of what must not be dropped. It passes with time.
type FullError struct {
	What       string        // what is full
	Own        bool          // the share of the caller is used up; else that of all callers together
	RetryAfter time.Duration // when to try again
}

func (e *FullError) Error() string {
	if e.Own {
		return "state: this caller keeps too much: no space in its share for more " + e.What
	}
	return "state: no space for " + e.What + ": try again later, or raise the bounds"
}

// Guarantee says what a caller is refused for: a text that it is shown.
type Guarantee string

// What cannot be promised while a store is away.
const (
	LacksRecording Guarantee = "evidence cannot be recorded now"
	LacksReading   Guarantee = "shared state cannot be reached now, so that the part of a message in its workflow is not known"
	LacksReplay    Guarantee = "a replay cannot be excluded now"
	LacksShared    Guarantee = "shared state, such as tasks, sessions, questions and dialogues, cannot be reached now"
	// LacksCheckpoint: what is stored is damaged, or sealed with a key that this gateway does not have.
	LacksCheckpoint Guarantee = "the checkpoint cannot be opened: what is stored of it was changed, or this gateway does not have its key"
)

// UnavailableError: what has to be kept cannot be kept now, so nothing may
// happen that depends on it. The message can be sent again later.
type UnavailableError struct {
	Err        error         // why; for logs, never shown
	RetryAfter time.Duration // when to try again
	Lacks      Guarantee     // what cannot be promised meanwhile; empty: the driver does not say
}

func (e *UnavailableError) Error() string {
	if e.Lacks != "" {
		return "state: " + string(e.Lacks)
	}
	return "state: nothing can be kept now"
}

// Unwrap gives the cause.
func (e *UnavailableError) Unwrap() error { return e.Err }
