package record

import (
	"context"
	"crypto/sha256"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/aepb/aepb-gateway/gateway/attest"
	"github.com/aepb/aepb-gateway/gateway/problem"
	"github.com/aepb/aepb-gateway/gateway/state"
)

const (
	maxRaces = 5   // how often a decision begins again because others were first
	pageSize = 100 // records of one read of a group
)

var errRaces = &problem.ConflictError{Reason: "this record is being changed by others all the time: look at it, and try again"}

// ErrUnchanged is what a step returns that leaves the record as it is.
var ErrUnchanged = errors.New("record: the record stays as it is")

// Entries is what replicas share.
type Entries interface {
	Get(ctx context.Context, key state.EntryKey) (state.Entry, bool, error)
	Swap(ctx context.Context, key state.EntryKey, old uint64, value []byte, until time.Time) (revision uint64, ok bool, err error)
	// Confirm reports whether an entry is still at a revision, and returns when that write lasts.
	Confirm(ctx context.Context, key state.EntryKey, revision uint64) (bool, error)
	List(ctx context.Context, kind, group, after string, limit int) ([]state.Entry, error)
}

// Evidence signs and records statements.
type Evidence interface {
	Sign(ctx context.Context, st attest.Statement) (attest.Signed, error)
	Record(ctx context.Context, signed attest.Signed) error
	// Keep records a statement of another replica. Once more it does nothing.
	Keep(ctx context.Context, compact string) error
}

// Kind is what records of one kind have in common. Encode, Decode and Life are required.
type Kind[V any] struct {
	// Encode writes a value, equal values as equal bytes.
	Encode func(V) ([]byte, error)
	Decode func([]byte) (V, error)
	Life   time.Duration // that a record is kept after its last change
	// Token is the evidence in a value, in compact form; empty: it has none. Nil: no value has.
	Token func(V) string
	// Sealed is the value with its evidence. Nil: steps return no statements.
	Sealed func(v V, compact string) V
	// Announce makes a value known here. Nil: a record is confirmed each time that it is decided about. A value
	// that it refuses is left out by Look, which says so once.
	Announce func(ctx context.Context, key state.EntryKey, v V) error
	// Gone is told what was announced and is not on record any more; nil: that does not matter here.
	Gone func(key state.EntryKey)
}

// Deps is what a Machine is built from. Evidence may be nil where no value has a token; the rest is required.
type Deps struct {
	Entries  Entries
	Evidence func() Evidence
	Now      func() time.Time
	Logger   *slog.Logger
}

// Machine decides records of one kind. It is safe for concurrent use.
type Machine[V any] struct {
	kind Kind[V]
	deps Deps

	mu        sync.Mutex
	announced map[state.EntryKey][sha256.Size]byte // the bytes that were announced or left out here last
}

// New makes a machine that has announced nothing yet.
func New[V any](kind Kind[V], deps Deps) (*Machine[V], error) {
	if kind.Encode == nil || kind.Decode == nil || kind.Life <= 0 || deps.Entries == nil || deps.Now == nil || deps.Logger == nil || deps.Evidence == nil && kind.Token != nil {
		return nil, errors.New("record: incomplete Kind or Deps: expected Encode, Decode, Life, Entries, Now, Logger, and Evidence where values have a Token")
	}
	return &Machine[V]{kind: kind, deps: deps, announced: map[state.EntryKey][sha256.Size]byte{}}, nil
}

// Found is a record as the store has it. It may not last: see [Machine.Decide].
type Found[V any] struct {
	Value    V
	Revision uint64 // 0: there is none
	Known    bool   // these bytes were announced or left out here last

	bytes []byte
}

// UnreadableError reports a record that Decode refuses.
type UnreadableError struct{ Err error }

func (e *UnreadableError) Error() string { return "record: it cannot be read: " + e.Err.Error() }

// Unwrap is the error of Decode.
func (e *UnreadableError) Unwrap() error { return e.Err }

// Read is a record as the store has it now. Its errors are those of the store and an *[UnreadableError].
func (m *Machine[V]) Read(ctx context.Context, key state.EntryKey) (Found[V], error) {
	entry, found, err := m.deps.Entries.Get(ctx, key)
	if err != nil || !found {
		return Found[V]{}, err
	}
	return m.found(entry)
}

func (m *Machine[V]) found(entry state.Entry) (Found[V], error) {
	v, err := m.kind.Decode(entry.Value)
	if err != nil {
		err = &UnreadableError{err}
	}
	return Found[V]{v, entry.Revision, m.known(entry), entry.Value}, err
}

func (m *Machine[V]) known(entry state.Entry) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.announced[name(entry.Key)] == sha256.Sum256(entry.Value)
}

// Step makes the next value of a record, and what its evidence states; nil: it has none. Its errors are
// those of the decision; [ErrUnchanged]: there is nothing to change. It may run several times.
type Step[V any] func(before Found[V]) (next V, st *attest.Statement, err error)

// Decide takes a record one step further, and returns it as it was announced; changed: this call wrote it. An
// unchanged record is confirmed and announced before it is returned, so that its caller can rely on it.
// Its errors are those of the step, with the record as it stands; of the store and the evidence: nothing was
// announced, and if the write has happened nevertheless, the next [Machine.Look] announces it;
// *[problem.ConflictError]: others change the record all the time.
func (m *Machine[V]) Decide(ctx context.Context, key state.EntryKey, step Step[V]) (v V, changed bool, err error) {
	for range maxRaces {
		before, err := m.Read(ctx, key)
		if err != nil {
			return before.Value, false, err
		}
		next, st, err := step(before)
		if err != nil && !errors.Is(err, ErrUnchanged) {
			return before.Value, false, err
		}
		ctx := context.WithoutCancel(ctx) // what was begun is announced
		var first bool
		if err == nil {
			if err = m.keep(ctx, key, before); err == nil {
				next, first, err = m.write(ctx, key, next, before.Revision, st)
			}
		} else {
			next, first, err = before.Value, true, nil
			if before.Revision != 0 {
				first, err = m.adopt(ctx, key, before)
			}
			if first {
				return next, false, err
			}
		}
		if err != nil || first {
			return next, first, err
		}
	}
	return v, false, errRaces
}

// keep records the evidence of a value that is about to be written over, unless the value was announced here: the
// process that wrote it may have ended, or lost the evidence store, before it recorded that.
func (m *Machine[V]) keep(ctx context.Context, key state.EntryKey, before Found[V]) error {
	if m.kind.Token == nil || before.Revision == 0 || before.Known {
		return nil
	}
	compact := m.kind.Token(before.Value)
	if compact == "" {
		return nil
	}
	return m.recorded(ctx, key, m.deps.Evidence().Keep(ctx, compact))
}

// write signs a value, swaps it in, records its evidence and announces it, in this order. false: another
// writer was first.
func (m *Machine[V]) write(ctx context.Context, key state.EntryKey, next V, revision uint64, st *attest.Statement) (V, bool, error) {
	var signed attest.Signed
	if st != nil {
		var err error
		if signed, err = m.deps.Evidence().Sign(ctx, *st); err != nil {
			return next, false, err
		}
		next = m.kind.Sealed(next, signed.Compact())
	}
	value, err := m.kind.Encode(next)
	if err != nil {
		return next, false, err
	}
	if _, first, err := m.deps.Entries.Swap(ctx, key, revision, value, m.deps.Now().Add(m.kind.Life)); err != nil || !first {
		return next, false, err
	}
	if st != nil {
		if err := m.recorded(ctx, key, m.deps.Evidence().Record(ctx, signed)); err != nil {
			return next, true, err
		}
	}
	return next, true, m.announce(ctx, key, next, value)
}

// adopt announces what is on record unless that was done here, after it is confirmed and its evidence is
// recorded. false: the record is another one by now, and nothing was announced.
func (m *Machine[V]) adopt(ctx context.Context, key state.EntryKey, found Found[V]) (bool, error) {
	if found.Known {
		return true, nil
	}
	if same, err := m.deps.Entries.Confirm(ctx, key, found.Revision); err != nil || !same {
		return false, err
	}
	if m.kind.Token != nil {
		if compact := m.kind.Token(found.Value); compact != "" {
			if err := m.recorded(ctx, key, m.deps.Evidence().Keep(ctx, compact)); err != nil {
				return false, err
			}
		}
	}
	return true, m.announce(ctx, key, found.Value, found.bytes)
}

// recorded is the error of recording evidence if that can be tried again. What never can be recorded, such as
// a token that is too old to verify, is logged and keeps nothing from being announced.
func (m *Machine[V]) recorded(ctx context.Context, key state.EntryKey, err error) error {
	if err == nil {
		return nil
	}
	if _, again := errors.AsType[*problem.RecordingError](err); again {
		return err
	}
	m.deps.Logger.WarnContext(ctx, "the evidence of a record is not kept", slog.String("kind", key.Kind), slog.String("id", key.ID), slog.Any("error", err))
	return nil
}

func (m *Machine[V]) announce(ctx context.Context, key state.EntryKey, v V, value []byte) error {
	if m.kind.Announce == nil {
		return nil
	}
	m.setKnown(key, value)
	return m.kind.Announce(ctx, key, v)
}

func (m *Machine[V]) setKnown(key state.EntryKey, value []byte) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.announced[name(key)] = sha256.Sum256(value)
}

// Forget has the next Look announce a record again.
func (m *Machine[V]) Forget(key state.EntryKey) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.announced, name(key))
}

// Look adopts all records of a group that are not announced here yet. What cannot be adopted now is logged,
// and tried again by the next Look; what cannot be read, or is refused, is logged once. Its error is that of
// the store's list.
func (m *Machine[V]) Look(ctx context.Context, kind, group string) error {
	there := map[state.EntryKey]bool{}
	for after := ""; ; {
		page, err := m.deps.Entries.List(ctx, kind, group, after, pageSize)
		if err != nil {
			return err
		}
		for _, entry := range page {
			after = entry.Key.ID
			there[name(entry.Key)] = true
			if m.known(entry) {
				continue
			}
			if err := m.lookAt(ctx, entry); err != nil && ctx.Err() == nil {
				m.deps.Logger.WarnContext(ctx, "a record is left out", slog.String("kind", kind), slog.String("id", after), slog.Any("error", err))
			}
		}
		if len(page) < pageSize {
			m.gone(kind, group, there)
			return nil
		}
	}
}

// lookAt adopts a record as it was listed, or as it is by now if others change it meanwhile: a replica that
// starts must know of it after one Look.
func (m *Machine[V]) lookAt(ctx context.Context, entry state.Entry) error {
	for range maxRaces {
		found, err := m.found(entry)
		if err != nil {
			m.setKnown(entry.Key, entry.Value)
			return err
		}
		if adopted, err := m.adopt(ctx, entry.Key, found); err != nil || adopted {
			return err
		}
		var there bool
		if entry, there, err = m.deps.Entries.Get(ctx, entry.Key); err != nil || !there {
			return err
		}
	}
	return errRaces
}

// gone forgets what was announced of a group and is not there any more.
func (m *Machine[V]) gone(kind, group string, there map[state.EntryKey]bool) {
	m.mu.Lock()
	var gone []state.EntryKey
	for key := range m.announced {
		if key.Kind == kind && key.Group == group && !there[key] {
			gone = append(gone, key)
			delete(m.announced, key)
		}
	}
	m.mu.Unlock()
	if m.kind.Gone != nil {
		for _, key := range gone {
			m.kind.Gone(key)
		}
	}
}

// name is the key of an entry without what is no part of its name.
func name(key state.EntryKey) state.EntryKey {
	key.Owner = ""
	return key
}
