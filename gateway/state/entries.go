package state

import (
	"bytes"
	"context"
	"slices"
	"strings"
	"sync"
	"time"
)

// EntryKey names an [Entry]. Entries of one kind and group are listed together.
type EntryKey struct {
	Kind  string // what it is: a constant of the gateway's
	Group string // whose it is
	ID    string // unique within kind and group

	// Owner is the caller whose share of the store the entry takes. It is no part
	// of the name: an entry is found with and without it. Empty: the group begins
	// with it, up to a zero byte.
	Owner string
}

// Entry is a small record that outlives a request.
type Entry struct {
	Key      EntryKey
	Revision uint64 // grows with every write, also when the entry was gone in between
	Value    []byte
	Until    time.Time // alive up to and including this instant
}

// group is what is listed together.
type group struct{ kind, name string }

func (k EntryKey) group() group { return group{k.Kind, k.Group} }

// name is the key without what is no part of the name.
func (k EntryKey) name() EntryKey {
	k.Owner = ""
	return k
}

// Size is the bytes that an entry is accounted with.
func (k EntryKey) Size(value []byte) int64 {
	return int64(bookkeeping + 2*len(k.Kind) + 2*len(k.Group) + 3*len(k.ID) + len(k.Owner) + len(value))
}

// own shares nothing with a larger text of the caller's.
func (k EntryKey) own() EntryKey {
	return EntryKey{strings.Clone(k.Kind), strings.Clone(k.Group), strings.Clone(k.ID), strings.Clone(k.Owner)}
}

// Entries keeps small records that outlive a request: tasks, native sessions,
// continuations, push configs. Each owner has a share, and each kind of entry
// takes at most [KindShare] of all and of its owner's share. All kinds but those of
// Config.RecordKinds together take at most [BulkShare] of either. Where there is no
// space, entries of work that has ended are dropped ([EndedMark]), but no records: the
// oldest of the owner when its share is used up, and the oldest of the owner that has
// most when the store is full. If that does not suffice it refuses with a [FullError].
// Nothing else is forgotten before its end. It is safe for concurrent use.
//
// What callers can do with these bounds: tasks and the like, of however many callers and
// kinds, refuse no record. Records of one caller fill its own share and refuse only its own.
// The reserve is as large as two default shares, so records of two callers can fill it while
// all else is full; to fill the whole store with records takes sixteen.
type Entries struct {
	now      func() time.Time
	largest  int
	total    amount
	perOwner amount

	mu       sync.RWMutex
	records  *expiring
	accounts *accounts
	groups   map[group][]string // ids in order
	watches  map[EntryKey]*watch
}

// watch is shared by all waits for one entry.
type watch struct {
	changed chan struct{} // closed by the next change
	waiting int
}

func newEntries(config Config, deps Deps) *Entries {
	total := amount{config.MaxEntries, config.MaxEntriesBytes}
	s := &Entries{
		now: deps.Now, largest: config.MaxEntryBytes,
		total: total, perOwner: amount{config.MaxEntriesPerOwner, config.MaxEntriesBytesPerOwner},
		records: newExpiring(KindEntry, config.MaxEntries, config.MaxEntriesBytes, deps.Journal), accounts: newAccounts(total, config.RecordKinds),
		groups: make(map[group][]string), watches: make(map[EntryKey]*watch),
	}
	s.records.dropped = s.left
	// Revisions begin with the clock: a revision of before a restart never names another value
	// after it.
	s.records.serial = uint64(max(0, deps.Now().UnixMicro()))
	return s
}

// Get finds an entry; false: there is none, or none any more.
func (s *Entries) Get(_ context.Context, key EntryKey) (Entry, bool, error) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	e, ok := s.records.get(key.name(), s.now())
	if !ok {
		return Entry{}, false, nil
	}
	return entryOf(e), true, nil
}

// Swap writes value if the entry is still at revision old (0: there must be none), and returns the
// new revision; false: another write was first. [FullError]: the value is too large, or there is no
// space.
func (s *Entries) Swap(_ context.Context, key EntryKey, old uint64, value []byte, until time.Time) (revision uint64, ok bool, err error) {
	if len(value) > s.largest {
		return 0, false, &FullError{What: "an entry of this size"}
	}
	key, value = key.own(), bytes.Clone(value)
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.now()
	var at uint64
	before, found := s.records.get(key.name(), now)
	if found {
		at = before.serial
	}
	if at != old {
		return 0, false, nil
	}
	if err := s.admit(key, value, now); err != nil {
		return 0, false, err
	}
	s.records.add(key, value, key.Size(value), until, now)
	s.came(key.name())
	return s.records.serial, true, nil
}

// Confirm reports whether an entry is still at a revision. True: that write lasts as one of Swap that
// returned does (R18). What Get and List return lasts already here; a store with replicas must see to it.
func (s *Entries) Confirm(ctx context.Context, key EntryKey, revision uint64) (bool, error) {
	found, ok, err := s.Get(ctx, key)
	return ok && found.Revision == revision, err
}

// retryFull is when to try again where work that goes on takes all the space: it
// may end at any time.
const retryFull = 5 * time.Second

// admit is nil if there is space for the entry, after entries of ended work were
// dropped as far as needed.
func (s *Entries) admit(key EntryKey, value []byte, now time.Time) error {
	owner := key.OwnerOf()
	for !s.withinShare(owner, key, value) {
		switch oldest := s.accounts.oldestOf(owner); {
		case s.records.clean(now, sweep) > 0:
		case oldest != nil:
			s.evict(oldest)
		case s.accounts.ends(key.Kind, value): // the end of work is kept: the next one drops it
			return s.admitAll(key, value, now)
		default:
			return &FullError{What: "entries of this caller", Own: true, RetryAfter: retryFull}
		}
	}
	return s.admitAll(key, value, now)
}

// admitAll is admit as far as all owners together are concerned.
func (s *Entries) admitAll(key EntryKey, value []byte, now time.Time) error {
	for {
		fits := s.records.fits(key.name(), key.Size(value), now)
		kind, bulk := s.withinKinds(key, value, s.records.byKey[key.name()], amount{len(s.records.byKey), s.records.bytes}, s.accounts.kinds, s.total)
		if fits && kind && bulk {
			return nil
		}
		switch oldest := s.accounts.oldestOfLargest(); {
		case s.records.clean(now, sweep) > 0:
		case oldest == nil || fits && !kind && oldest.key.Kind != key.Kind:
			return &FullError{What: "entries", RetryAfter: retryFull}
		default:
			s.evict(oldest)
		}
	}
}

// withinShare is true if an owner may have this entry beside its others.
func (s *Entries) withinShare(owner string, key EntryKey, value []byte) bool {
	old := s.records.byKey[key.name()]
	if old != nil && old.key.OwnerOf() != owner {
		old = nil
	}
	all, kinds := s.accounts.of(owner)
	kind, bulk := s.withinKinds(key, value, old, all, kinds, s.perOwner)
	return kind && bulk && all.with(key.Size(value), old).within(s.perOwner)
}

// withinKinds is true if an entry may come, in place of old, beside the others of its kind, and beside those
// that are no records, within a bound of all.
func (s *Entries) withinKinds(key EntryKey, value []byte, old *entry, all amount, kinds map[string]*amount, bound amount) (kind, bulk bool) {
	size := key.Size(value)
	kind = amountOf(kinds, key.Kind).with(size, old).within(bound.ofKind())
	return kind, s.accounts.isRecord(key.Kind) || s.accounts.bulk(all, kinds).with(size, old).within(s.accounts.ofBulk(bound))
}

// evict drops an entry before its end.
func (s *Entries) evict(e *entry) {
	s.records.evicted++
	s.records.drop(e)
}

// Delete removes an entry; one that is not there is no error.
func (s *Entries) Delete(_ context.Context, key EntryKey) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if e, ok := s.records.byKey[key.name()]; ok {
		s.records.drop(e)
	}
	return nil
}

// List returns up to limit entries of one group in order of ID, after the given
// id, values included.
func (s *Entries) List(_ context.Context, kind, groupName, after string, limit int) ([]Entry, error) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	now := s.now()
	ids := s.groups[group{kind, groupName}]
	at, exact := slices.BinarySearch(ids, after)
	if exact {
		at++
	}
	var found []Entry
	for _, id := range ids[at:] {
		if len(found) >= limit {
			break
		}
		if e, ok := s.records.get(EntryKey{Kind: kind, Group: groupName, ID: id}, now); ok {
			found = append(found, entryOf(e))
		}
	}
	return found, nil
}

// Await returns as soon as the entry's revision is greater than after, or it
// is gone (false), or ctx ends.
func (s *Entries) Await(ctx context.Context, key EntryKey, after uint64) (Entry, bool, error) {
	for {
		found, ok, changed := s.look(key, after)
		if changed == nil {
			return found, ok, nil
		}
		end := time.NewTimer(found.Until.Sub(s.now()) + 1)
		select {
		case <-changed.changed:
		case <-end.C:
			s.leave(key, changed)
		case <-ctx.Done():
			end.Stop()
			s.leave(key, changed)
			return Entry{}, false, ctx.Err()
		}
		end.Stop()
	}
}

// look returns the result of Await, or, where the entry has not changed yet, what to wait for.
func (s *Entries) look(key EntryKey, after uint64) (found Entry, ok bool, changed *watch) {
	s.mu.Lock()
	defer s.mu.Unlock()
	e, ok := s.records.get(key.name(), s.now())
	switch {
	case !ok:
		return Entry{}, false, nil
	case e.serial > after:
		return entryOf(e), true, nil
	}
	w := s.watches[key.name()]
	if w == nil {
		w = &watch{changed: make(chan struct{})}
		s.watches[e.key.name()] = w
	}
	w.waiting++
	return Entry{Until: e.until}, true, w
}

// leave ends a wait that brought no news.
func (s *Entries) leave(key EntryKey, w *watch) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if w.waiting--; w.waiting == 0 && s.watches[key.name()] == w {
		delete(s.watches, key.name())
	}
}

// Usage says how full the store is.
func (s *Entries) Usage() Usage {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.records.usage()
}

// KindUse is what one kind of entries takes.
type KindUse struct {
	Bytes int64
	Ratio float64 // of the bound of a kind, of the number or of the bytes
}

// ByKind says what each kind of entries takes that there ever was one of.
func (s *Entries) ByKind() map[string]KindUse {
	s.mu.RLock()
	defer s.mu.RUnlock()
	out := make(map[string]KindUse, len(s.accounts.kinds))
	for kind, a := range s.accounts.kinds {
		out[kind] = KindUse{a.bytes, a.of(s.total.ofKind())}
	}
	return out
}

// lasting is what cannot be dropped before its end.
func (s *Entries) lasting() amount {
	s.mu.RLock()
	defer s.mu.RUnlock()
	u := s.records.usage()
	return amount{u.Entries - s.accounts.ended.count, u.Bytes - s.accounts.ended.bytes}
}

func (s *Entries) restore(e *entry) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	restored := len(e.value) <= s.largest && s.records.restore(e, s.now())
	if restored {
		s.came(e.key.name())
	}
	return restored
}

func (s *Entries) sweep(most int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.records.clean(s.now(), most)
	for range most {
		u := s.records.usage()
		oldest := s.accounts.oldestOfLargest()
		if oldest == nil || (amount{u.Entries, u.Bytes}).of(s.total) <= roomyAt {
			return
		}
		s.evict(oldest)
	}
}

// roomyAt is how full the entries may be before a sweep makes space ahead of need.
const roomyAt = 7. / 8

// came is told the name of everything that comes.
func (s *Entries) came(key EntryKey) {
	s.accounts.add(s.records.byKey[key])
	g := key.group()
	if at, there := slices.BinarySearch(s.groups[g], key.ID); !there {
		s.groups[g] = slices.Insert(s.groups[g], at, key.ID)
	}
	s.wake(key)
}

// left is told of everything that leaves; what is replaced comes again.
func (s *Entries) left(e *entry) {
	s.accounts.remove(e)
	g := e.key.group()
	if at, there := slices.BinarySearch(s.groups[g], e.key.ID); there {
		s.groups[g] = slices.Delete(s.groups[g], at, at+1)
	}
	if len(s.groups[g]) == 0 {
		delete(s.groups, g)
	}
	s.wake(e.key.name())
}

func (s *Entries) wake(key EntryKey) {
	if w, ok := s.watches[key]; ok {
		close(w.changed)
		delete(s.watches, key)
	}
}

func entryOf(e *entry) Entry {
	return Entry{Key: e.key, Revision: e.serial, Value: bytes.Clone(e.value), Until: e.until}
}
