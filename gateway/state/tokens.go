package state

import (
	"cmp"
	"context"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/aepb/aepb-gateway/ect"
)

// Tokens keeps ECTs by id and by workflow. It is safe for concurrent use.
type Tokens struct {
	now func() time.Time

	mu         sync.RWMutex
	records    *expiring[ect.ID, written]
	byWorkflow map[string][]*entry[ect.ID, written] // most workflows are a handful: a slice costs a tenth of a map
	shared     map[ect.ID]int                       // of an id that several issuers used: the highest number given out
}

var _ ect.Store = (*Tokens)(nil)

func newTokens(config Config, deps Deps) *Tokens {
	t := &Tokens{
		now:        deps.Now,
		records:    newExpiring[ect.ID, written](KindToken, config.MaxTokens, config.MaxTokenBytes, deps.Journal),
		byWorkflow: make(map[string][]*entry[ect.ID, written]),
		shared:     make(map[ect.ID]int),
	}
	t.records.dropped = t.forget
	return t
}

// Put keeps a record until its Until. The same issuer's id with the same bytes
// is no error and may prolong it; with other bytes it is a *ect.ConflictError.
// [FullError]: the record alone is larger than the store.
func (t *Tokens) Put(_ context.Context, r ect.Record) error {
	own := write(&r) // its texts may be pieces of a whole header
	t.mu.Lock()
	defer t.mu.Unlock()
	now := t.now()
	n, old := t.number(own, now)
	if n == ect.MaxNamesakes || old != nil && old.value.compact() != r.Compact {
		return &ect.ConflictError{ID: r.ID}
	}
	if old != nil && !r.Until.After(old.until) {
		return nil
	}
	key := numbered(own.id(), n)
	if !t.records.add(key, own, recordSize(own), r.Until, now, true) {
		return &FullError{What: "an execution context token"}
	}
	t.list(t.records.byKey[key], n)
	return nil
}

// Get finds the records with an id, one of each issuer that used it.
func (t *Tokens) Get(_ context.Context, id ect.ID) ([]ect.Record, error) {
	t.mu.RLock()
	defer t.mu.RUnlock()
	now := t.now()
	var found []ect.Record
	for n := range t.shared[id] + 1 {
		if e, ok := t.records.get(numbered(id, n), now); ok {
			found = append(found, e.value.record())
		}
	}
	return found, nil
}

// number is where a record belongs among those with its id: where its issuer
// has one already, else the first free number; MaxNamesakes: there is none.
// Nearly every id has one record, number 0.
func (t *Tokens) number(w written, now time.Time) (int, *entry[ect.ID, written]) {
	id, free := w.id(), -1
	top := t.shared[id]
	for n := range top + 1 {
		e, ok := t.records.get(numbered(id, n), now)
		if ok && e.value.issuer() == w.issuer() {
			return n, e
		}
		if !ok && free < 0 {
			free = n
		}
	}
	if free < 0 {
		free = top + 1
	}
	return free, nil
}

// numbered is the key of a record: its id, and behind it, if others had the id
// first, what no UUID has in it.
func numbered(id ect.ID, n int) ect.ID {
	if n == 0 {
		return id
	}
	return id + ect.ID("#"+strconv.Itoa(n))
}

// Workflow lists the records of a workflow in the order in which they came.
func (t *Tokens) Workflow(_ context.Context, wid string) ([]ect.Record, error) {
	found := t.members(wid)
	slices.SortFunc(found, func(a, b *entry[ect.ID, written]) int { return cmp.Compare(a.serial, b.serial) })
	records := make([]ect.Record, len(found))
	for i, e := range found {
		records[i] = e.value.record()
	}
	return records, nil
}

func (t *Tokens) members(wid string) []*entry[ect.ID, written] {
	t.mu.RLock()
	defer t.mu.RUnlock()
	now := t.now()
	var found []*entry[ect.ID, written]
	for _, e := range t.byWorkflow[wid] {
		if !e.until.Before(now) {
			found = append(found, e)
		}
	}
	return found
}

// Usage says how full the store is.
func (t *Tokens) Usage() Usage {
	t.mu.RLock()
	defer t.mu.RUnlock()
	return t.records.usage()
}

func (t *Tokens) restore(e *entry[ect.ID, written]) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	now := t.now()
	n, _ := t.number(e.value, now)
	if n == ect.MaxNamesakes {
		return false
	}
	e.key = numbered(e.key, n)
	kept := t.records.restore(e, now, true)
	if kept {
		t.list(e, n)
	}
	return kept
}

func (t *Tokens) sweep(most int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.records.clean(t.now(), most)
}

// list writes the key anew each time: a map keeps the last one, which is then
// a piece of what is kept anyway.
func (t *Tokens) list(e *entry[ect.ID, written], number int) {
	if number > 0 {
		t.shared[e.value.id()] = max(number, t.shared[e.value.id()])
	}
	if wid := e.value.workflow(); wid != "" {
		t.byWorkflow[wid] = append(t.byWorkflow[wid], e)
	}
}

func (t *Tokens) forget(e *entry[ect.ID, written]) {
	t.unlist(e)
	id := e.value.id()
	top, ok := t.shared[id]
	if !ok {
		return
	}
	for ; top > 0 && t.records.byKey[numbered(id, top)] == nil; top-- {
	}
	if t.shared[id] = top; top == 0 {
		delete(t.shared, id)
	}
}

// unlist is asked for the oldest first, as a rule.
func (t *Tokens) unlist(e *entry[ect.ID, written]) {
	wid := e.value.workflow()
	members := t.byWorkflow[wid]
	switch i := slices.Index(members, e); {
	case i < 0:
		return
	case len(members) == 1:
		delete(t.byWorkflow, wid)
	case i == 0:
		members[0] = nil
		t.byWorkflow[members[1].value.workflow()] = members[1:]
	default:
		t.byWorkflow[members[0].value.workflow()] = slices.Delete(members, i, i+1)
	}
}

// bookkeeping is about what maps and heap cost per record, in octets.
const bookkeeping = 384

func recordSize(w written) int64 { return int64(bookkeeping + len(w)) }
