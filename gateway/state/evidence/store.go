package evidence

import (
	"context"
	"encoding/hex"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/gateway/state/internal/encoding"
)

// sweepPerPut is how many records that have ended one Put drops at most. More than one,
// so that what has ended always becomes less.
const sweepPerPut = 4

// Bounds of a store.
type Bounds struct {
	Records uint64 // how many
	Bytes   uint64 // of records and what belongs to them
}

// Deps is what a store needs.
type Deps struct {
	Now     func() time.Time
	Evicted func(own bool) // is told of each record that leaves before its end; called while the store is locked
	Full    error          // the error of a record that is larger than the store
	// FullHold is the error of a record for whose hold there is no space: of its holder (own) or of all.
	FullHold func(own bool) error
	Disk     Disk            // nil: all is in memory
	Changed  func(bytes int) // is told of changes that wait for the disk; called while the store is locked
}

// Store keeps ECTs by id and by workflow. It is safe for concurrent use.
type Store struct {
	deps   Deps
	bounds Bounds

	mu        sync.RWMutex
	changes   *layer
	written   *layer
	gaps      gaps
	headers   headers
	totals    totals
	evictions uint64
	nextEnd   int64 // nothing ends before this
	tail      tail
}

// totals is what all tables hold together.
type totals struct {
	serial, records, apart, bytes, begun, onHold, holds uint64
	ordered                                             uint64 // ids with this time or a later one have keys in their order, in milliseconds
}

// aheadMost is how far ahead of ours the clocks are of those who made ids before keys had their order.
const aheadMost = time.Hour

var (
	_ ect.Store  = (*Store)(nil)
	_ ect.Lister = (*Store)(nil)
)

// Open makes a store, or reads what is on disk.
func Open(bounds Bounds, deps Deps) (s *Store, err error) {
	s = &Store{deps: deps, bounds: bounds, changes: newLayer(), tail: tail{since: deps.Now()}}
	v, err := s.begin()
	if err != nil {
		return nil, err
	}
	defer s.end(&v, &err)
	value, found := v.get(Totals, Key{})
	s.totals = totals{
		number(value, 0), number(value, 1), number(value, 2), number(value, 3), number(value, 4), number(value, 5), number(value, 6),
		number(value, 7),
	}
	if found && len(value) < 8*8 { // of an earlier format
		s.totals.ordered = uint64(deps.Now().Add(aheadMost).UnixMilli())
	}
	v.ordered = s.totals.ordered
	s.headers = readHeaders(v.disk)
	read := len(s.headers.list)
	if v.disk != nil {
		err = s.restore(&v)
	}
	s.headers.release(&v, read)
	return s, err
}

// begin is the tables as they are, until end, which is deferred.
func (s *Store) begin() (v view, err error) {
	v = view{changes: s.changes, written: s.written, ordered: s.totals.ordered}
	if s.deps.Disk != nil {
		v.disk, err = s.deps.Disk.Begin()
	}
	return v, err
}

func (s *Store) end(v *view, err *error) {
	if v.disk != nil {
		s.deps.Disk.End(v.disk, recover(), err)
	}
}

// Put keeps a record until its Until. The same issuer's id with the same bytes is no
// error and may prolong it, or make more members; with other bytes it is a
// *ect.ConflictError. A root in a workflow that another issuer's record began is a
// *ect.ForeignRootError. Deps.Full: the record alone is larger than the store. Deps.FullHold: it is to be on
// hold, and there is no space for that.
func (s *Store) Put(_ context.Context, r ect.Record) (err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	v, err := s.begin()
	if err != nil {
		return err
	}
	defer s.end(&v, &err)
	v.gaps = &s.gaps
	defer s.tell(s.changes.bytes)
	return s.put(&v, &stored{Record: r}, encoding.Nanos(s.deps.Now()))
}

// tell says how much more waits for the disk.
func (s *Store) tell(before int) {
	if s.deps.Changed != nil {
		s.deps.Changed(s.changes.bytes - before)
	}
}

func (s *Store) put(v *view, r *stored, now int64) error {
	if err := s.sweep(v, sweepPerPut, now); err != nil {
		return err
	}
	r.by = digestOf(string(r.Issuer))
	old, err := s.find(v, r.digests(v), now)
	if err != nil {
		return err
	}
	if old != nil {
		switch {
		case old.Compact == r.Compact:
			if !r.Merge(old.Record) && !r.again {
				return nil
			}
		case !r.again: // else the earlier had ended
			return &ect.ConflictError{ID: r.ID}
		}
		r.digests(v) // it may enter a workflow, or its holder's share
		r.apart = old.apart
	}
	var text string
	r.header, text = s.headers.take(v, r.Compact)
	value := r.encode(text)
	r.size = len(value)
	err = s.makeFit(v, r, old, now) // before the workflow is read, of which a record may leave by that
	w, known := workflowOf(v, r.wid)
	root, allowed := rootFor(w, known, r, now)
	if err == nil && r.Workflow != "" && !allowed {
		err = &ect.ForeignRootError{ID: r.ID}
	}
	if err != nil {
		s.headers.leave(v, r.header)
		return err
	}
	if r.Workflow != "" { // before anything leaves, which may be the last of it
		s.enter(v, r, &w, root, now)
		s.charge(v, w.holder, account{members: memberWeight * w.admit(v, &r.Record)})
		w.save(v, r.wid)
	}
	if old != nil {
		s.drop(v, old, now)
	}
	s.totals.serial++
	r.serial = s.totals.serial
	if err := s.evictFor(v, r.holder, r.account(), math.MaxInt, now); err != nil {
		return err
	}
	s.add(v, r, value)
	return nil
}

// find is the record of the same id and issuer; nil: there is none, and the new one has
// its place.
func (s *Store) find(v *view, r *stored, now int64) (*stored, error) {
	list, _ := v.get(IDs, r.id)
	others := 0
	for at := 0; at < len(list)/placeSize; at++ {
		issued := keyAt(list, placeFields*at+1) == r.by
		if !issued && len(list) < ect.MaxNamesakes*placeSize {
			continue
		}
		old, err := s.headers.read(v, number(list, placeFields*at))
		switch {
		case err != nil:
			return nil, err
		case encoding.Nanos(old.Until) < now:
			s.drop(v, old, now)
		case issued:
			return old, nil
		case !old.Own:
			others++
		}
	}
	if s.totals.apart > 0 {
		if value, found := v.get(IDs, v.keyOf(string(r.ID), "iss", string(r.Issuer))); found {
			old, err := s.headers.read(v, number(value, 0))
			if err != nil || encoding.Nanos(old.Until) >= now {
				return old, err
			}
			s.drop(v, old, now)
		}
	}
	r.apart = others >= ect.MaxNamesakes && !r.Own
	return nil, nil
}

// Of a record of an id there are its serial and the digest of its issuer.
const (
	placeFields = 3
	placeSize   = 8 * placeFields
)

// add puts a record into all tables.
func (s *Store) add(v *view, r *stored, value []byte) {
	v.set(Records, Key{A: r.serial}, value)
	s.list(v, r)
	v.list(Terms, r.term(), r.serial)
	s.nextEnd = min(s.nextEnd, encoding.Nanos(r.Until))
	v.list(Shares, r.share(), r.place())
	s.totals.records++
	s.charge(v, r.share(), r.account())
	if r.Workflow != "" {
		v.list(Listed, r.wid, r.serial)
	}
}

// term is the second in which a record ends, as the nanoseconds of its end.
func (r *stored) term() Key {
	const second = uint64(time.Second)
	return Key{A: (uint64(encoding.Nanos(r.Until)) + second - 1) / second * second} //nolint:gosec // not negative
}

// place is the number of a record among those of its holder.
func (r *stored) place() uint64 {
	if r.Own {
		return r.serial
	}
	return r.serial | ofOthers
}

// list makes a record one that is found by its id: our own before others, and one that is
// apart by its issuer, and in its workflow while there is a place there.
func (s *Store) list(v *view, r *stored) {
	entry := numbers(r.serial, r.by.A, r.by.B)
	if !r.apart {
		list, _ := v.get(IDs, r.id)
		if r.Own {
			entry = append(entry, list...)
		} else if len(list) > 0 {
			entry = append(slices.Clone(list), entry...)
		}
		v.set(IDs, r.id, entry)
		return
	}
	s.totals.apart++
	v.set(IDs, v.keyOf(string(r.ID), "iss", string(r.Issuer)), entry)
	if r.Workflow == "" {
		return
	}
	id := v.keyOf(string(r.ID), "wid", r.Workflow)
	if list, _ := v.get(IDs, id); len(list) < ect.MaxNamesakes*placeSize {
		v.set(IDs, id, append(slices.Clone(list), entry...))
	}
}

// unlist takes it out of there again.
func (s *Store) unlist(v *view, r *stored) {
	id := r.id
	if r.apart {
		s.totals.apart--
		v.remove(IDs, v.keyOf(string(r.ID), "iss", string(r.Issuer)))
		id = v.keyOf(string(r.ID), "wid", r.Workflow)
	}
	list, _ := v.get(IDs, id)
	for at := 0; at < len(list); at += placeSize {
		if number(list[at:], 0) != r.serial {
			continue
		}
		if len(list) == placeSize {
			v.remove(IDs, id)
		} else {
			v.set(IDs, id, slices.Delete(slices.Clone(list), at, at+placeSize))
		}
		return
	}
}

// drop takes a record out of all tables.
func (s *Store) drop(v *view, r *stored, now int64) {
	r.digests(v)
	v.remove(Records, Key{A: r.serial})
	v.unlist(Terms, r.term(), r.serial)
	v.unlist(Shares, r.share(), r.place())
	s.unlist(v, r)
	s.headers.leave(v, r.header)
	s.totals.records--
	s.charge(v, r.share(), r.account().negative())
	if r.Workflow != "" {
		v.unlist(Listed, r.wid, r.serial)
		s.exit(v, r.wid, now)
	}
}

// sweep drops what has ended, but no more than most.
func (s *Store) sweep(v *view, most int, now int64) error {
	for range most {
		if ended, err := s.dropEnded(v, now); !ended {
			return err
		}
	}
	return nil
}

// dropEnded drops the record that ended first, or else a workflow.
func (s *Store) dropEnded(v *view, now int64) (ended bool, err error) {
	if s.nextEnd >= now {
		return false, nil
	}
	record, bits, hasRecord := v.next(Terms, Key{})
	begun, _, hasBegun := v.next(Ends, Key{})
	switch {
	case hasRecord && int64(record.A) < now: //nolint:gosec // as it was written
		serial := serialIn(record.N, bits)
		r, err := s.headers.readIndexed(v, serial)
		if err != nil {
			v.unlist(Terms, record, serial) // one damaged record is in the way once
			return false, err
		}
		s.drop(v, r, now)
		return true, nil
	case hasBegun && int64(begun.A) < now: //nolint:gosec // as it was written
		v.setBits(Ends, begun, 0)
		s.forget(v, Key{A: begun.B, B: begun.N})
		return true, nil
	}
	s.nextEnd = math.MaxInt64
	if hasRecord {
		s.nextEnd = int64(record.A) //nolint:gosec // as it was written
	}
	if hasBegun {
		s.nextEnd = min(s.nextEnd, int64(begun.A)) //nolint:gosec // as it was written
	}
	return false, nil
}

// Get finds the records that each reference means, at most one of each issuer.
func (s *Store) Get(_ context.Context, refs ...ect.Ref) (found [][]ect.Record, err error) {
	if len(refs) > ect.MaxLookups {
		return nil, ect.ErrTooManyIDs
	}
	s.mu.RLock()
	defer s.mu.RUnlock()
	now := encoding.Nanos(s.deps.Now())
	v, err := s.begin()
	if err != nil {
		return nil, err
	}
	defer s.end(&v, &err)
	found = make([][]ect.Record, len(refs))
	for i, ref := range refs {
		for _, serial := range v.matching(ref, s.totals.apart > 0) {
			r, err := s.headers.read(&v, serial)
			if err != nil {
				return nil, err
			}
			if encoding.Nanos(r.Until) >= now {
				found[i] = append(found[i], r.Record)
			}
		}
	}
	return found, nil
}

// matching is the serials of the records that a reference may mean; apart: some lie apart.
func (v *view) matching(ref ect.Ref, apart bool) (serials []uint64) {
	keys := append(make([]Key, 0, 3), v.keyOf(string(ref.ID)))
	if apart && ref.Workflow != "" {
		keys = append(keys, v.keyOf(string(ref.ID), "wid", ref.Workflow))
	}
	if apart && ref.Issuer != "" {
		keys = append(keys, v.keyOf(string(ref.ID), "iss", string(ref.Issuer)))
	}
	for _, key := range keys {
		list, _ := v.get(IDs, key)
		for at := 0; at < len(list); at += placeSize {
			if serial := number(list[at:], 0); !slices.Contains(serials, serial) {
				serials = append(serials, serial)
			}
		}
	}
	return serials
}

// Workflow returns the records of a workflow in the order in which they came.
func (s *Store) Workflow(_ context.Context, wid, after string, limit int) (records []ect.Record, next string, err error) {
	serial := uint64(0)
	if after != "" {
		b, err := hex.DecodeString(after)
		if err != nil || len(b) != 8 {
			return nil, "", ect.ErrCursor
		}
		serial = number(b, 0)
	}
	if wid == "" {
		return nil, "", nil
	}
	s.mu.RLock()
	defer s.mu.RUnlock()
	now := encoding.Nanos(s.deps.Now())
	v, err := s.begin()
	if err != nil {
		return nil, "", err
	}
	defer s.end(&v, &err)
	key := v.keyOf(wid)
	for last := ""; ; {
		n, found := v.listed(Listed, key, serial+1)
		if !found {
			return records, "", nil
		}
		serial = n
		r, err := s.headers.read(&v, n)
		switch {
		case err != nil:
			return nil, "", err
		case encoding.Nanos(r.Until) < now:
		case len(records) == max(limit, 1):
			return records, last, nil
		default:
			records = append(records, r.Record)
			last = hex.EncodeToString(numbers(n))
		}
	}
}

// Standing says what an identity is to a workflow.
func (s *Store) Standing(_ context.Context, wid string, identity ect.Identity) (standing ect.Standing, err error) {
	if wid == "" {
		return ect.Standing{}, nil
	}
	s.mu.RLock()
	defer s.mu.RUnlock()
	v, err := s.begin()
	if err != nil {
		return ect.Standing{}, err
	}
	defer s.end(&v, &err)
	return standingOf(&v, wid, identity, encoding.Nanos(s.deps.Now())), nil
}

// Usage is how many records there are and what they count for in bytes, and how many had to
// leave before their end since the start.
func (s *Store) Usage() (records int, bytes int64, evicted uint64) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return int(s.totals.records), int64(s.totals.bytes), s.evictions //nolint:gosec // counts
}

// Sweep drops what has expired, or exceeds bounds that became smaller, at most so many of each.
func (s *Store) Sweep(most int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	v, err := s.begin()
	if err != nil {
		return // those who ask are told
	}
	defer s.end(&v, &err)
	v.gaps = &s.gaps
	defer s.tell(s.changes.bytes)
	now := encoding.Nanos(s.deps.Now())
	if err = s.sweep(&v, most, now); err == nil {
		err = s.evictFor(&v, Key{}, account{}, most, now) // the bounds may be less than before
	}
}
