package state

import (
	"cmp"
	"context"
	"slices"
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
}

var _ ect.Store = (*Tokens)(nil)

func newTokens(config Config, deps Deps) *Tokens {
	t := &Tokens{
		now:        deps.Now,
		records:    newExpiring[ect.ID, written](KindToken, config.MaxTokens, config.MaxTokenBytes, deps.Journal),
		byWorkflow: make(map[string][]*entry[ect.ID, written]),
	}
	t.records.dropped = t.unlist
	return t
}

// Put keeps a record until its Until. The same id with the same bytes is no
// error and may prolong it; with other bytes it is a *ect.ConflictError.
// [FullError]: the record alone is larger than the store.
func (t *Tokens) Put(_ context.Context, r ect.Record) error {
	own := write(&r) // its texts may be pieces of a whole header
	t.mu.Lock()
	defer t.mu.Unlock()
	now := t.now()
	if old, ok := t.records.get(r.ID, now); ok {
		if old.value.compact() != r.Compact {
			return &ect.ConflictError{ID: r.ID}
		}
		if !r.Until.After(old.until) {
			return nil
		}
	}
	if !t.records.add(own.id(), own, recordSize(own), r.Until, now, true) {
		return &FullError{What: "an execution context token"}
	}
	t.list(t.records.byKey[r.ID])
	return nil
}

// Get finds a record by id.
func (t *Tokens) Get(_ context.Context, id ect.ID) (ect.Record, bool, error) {
	t.mu.RLock()
	defer t.mu.RUnlock()
	e, ok := t.records.get(id, t.now())
	if !ok {
		return ect.Record{}, false, nil
	}
	return e.value.record(), true, nil
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
	kept := t.records.restore(e, t.now(), true)
	if kept {
		t.list(e)
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
func (t *Tokens) list(e *entry[ect.ID, written]) {
	if wid := e.value.workflow(); wid != "" {
		t.byWorkflow[wid] = append(t.byWorkflow[wid], e)
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
