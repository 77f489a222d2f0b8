package state

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/aepb/aepb-gateway/ect"
)

// Tokens keeps ECTs by id and by workflow. It is safe for concurrent use.
type Tokens struct {
	now func() time.Time

	mu         sync.RWMutex
	records    *expiring[ect.ID, ect.Record]
	byWorkflow map[string][]*entry[ect.ID, ect.Record] // most workflows are a handful: a slice costs a tenth of a map
}

var _ ect.Store = (*Tokens)(nil)

func newTokens(config Config, deps Deps) *Tokens {
	t := &Tokens{
		now:        deps.Now,
		records:    newExpiring[ect.ID, ect.Record](KindToken, config.MaxTokens, config.MaxTokenBytes, deps.Journal),
		byWorkflow: make(map[string][]*entry[ect.ID, ect.Record]),
	}
	t.records.dropped = t.unlist
	return t
}

// Put keeps a record until its Until. The same id with the same bytes is no
// error and may prolong it; with other bytes it is a *ect.ConflictError.
// [FullError]: the record alone is larger than the store.
func (t *Tokens) Put(_ context.Context, r ect.Record) error {
	r = clone(r)
	r.Compact = strings.Clone(r.Compact) // it may be a piece of a whole header
	t.mu.Lock()
	defer t.mu.Unlock()
	now := t.now()
	if old, ok := t.records.get(r.ID, now); ok {
		if old.value.Compact != r.Compact {
			return &ect.ConflictError{ID: r.ID}
		}
		if !r.Until.After(old.until) {
			return nil
		}
	}
	if !t.records.add(r.ID, r, recordSize(r), r.Until, now, true) {
		return &FullError{What: "an execution context token"}
	}
	t.list(r)
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
	return clone(e.value), true, nil
}

// Workflow lists the records of a workflow in the order in which they came.
func (t *Tokens) Workflow(_ context.Context, wid string) ([]ect.Record, error) {
	found := t.members(wid)
	slices.SortFunc(found, func(a, b *entry[ect.ID, ect.Record]) int { return cmp.Compare(a.serial, b.serial) })
	records := make([]ect.Record, len(found))
	for i, e := range found {
		records[i] = clone(e.value)
	}
	return records, nil
}

func (t *Tokens) members(wid string) []*entry[ect.ID, ect.Record] {
	t.mu.RLock()
	defer t.mu.RUnlock()
	now := t.now()
	var found []*entry[ect.ID, ect.Record]
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

func (t *Tokens) restore(e *entry[ect.ID, ect.Record]) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	kept := t.records.restore(e, t.now(), true)
	if kept {
		t.list(e.value)
	}
	return kept
}

func (t *Tokens) sweep(most int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.records.clean(t.now(), most)
}

func (t *Tokens) list(r ect.Record) {
	if r.Workflow == "" {
		return
	}
	t.byWorkflow[r.Workflow] = append(t.byWorkflow[r.Workflow], t.records.byKey[r.ID])
}

// unlist is asked for the oldest first, as a rule.
func (t *Tokens) unlist(e *entry[ect.ID, ect.Record]) {
	wid := e.value.Workflow
	members := t.byWorkflow[wid]
	switch i := slices.Index(members, e); {
	case i < 0:
		return
	case len(members) == 1:
		delete(t.byWorkflow, wid)
	case i == 0:
		members[0] = nil
		t.byWorkflow[wid] = members[1:]
	default:
		t.byWorkflow[wid] = slices.Delete(members, i, i+1)
	}
}

// bookkeeping is about what maps and heap cost per record, in octets.
const bookkeeping = 384

func recordSize(r ect.Record) int64 {
	size := bookkeeping + len(r.Compact) + 2*len(r.ID) + 2*len(r.Workflow) + len(r.Issuer) + len(r.Act)
	for _, a := range r.Audience {
		size += 16 + len(a)
	}
	for _, p := range r.Parents {
		size += 16 + len(p)
	}
	return int64(size)
}

// clone shares no slice with the caller.
func clone(r ect.Record) ect.Record {
	r.Audience = slices.Clone(r.Audience)
	r.Parents = slices.Clone(r.Parents)
	return r
}
