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

	mu      sync.RWMutex
	records *shelf[member] // beheaded
	heads   *heads
	latest  map[digest]digest // of each workflow: the key of its latest record
	shared  map[ect.ID]int    // of an id that several issuers used: the highest number given out
}

var _ ect.Store = (*Tokens)(nil)

// member is a record's place among those of its workflow: between the keys of
// the one before and of the one after. Zero: there is none.
type member struct{ workflow, before, after digest }

func newTokens(config Config, deps Deps) *Tokens {
	t := &Tokens{
		now:     deps.Now,
		records: newShelf[member](KindToken, config.MaxTokens, config.MaxTokenBytes, deps.Journal),
		heads:   newHeads(),
		latest:  map[digest]digest{},
		shared:  map[ect.ID]int{},
	}
	t.records.dropped = t.forget
	t.records.complete = t.behead
	return t
}

// Put keeps a record until its Until. The same issuer's id with the same bytes
// is no error and may prolong it; with other bytes it is a *ect.ConflictError.
// [FullError]: the record alone is larger than the store.
func (t *Tokens) Put(_ context.Context, r ect.Record) error {
	var scratch [4 << 10]byte
	whole := appendToken(scratch[:0], &r)
	t.mu.Lock()
	defer t.mu.Unlock()
	now := t.now()
	n, old, found := t.number(r.ID, r.Issuer, now)
	if n == ect.MaxNamesakes || found && t.read(old).Compact != r.Compact {
		return &ect.ConflictError{ID: r.ID}
	}
	if found && !r.Until.After(t.read(old).Until) {
		return nil
	}
	key := numbered(r.ID, n)
	number, text := t.heads.take(r.Compact)
	var own [4 << 10]byte
	if !t.records.add(key, memberOf(r.Workflow), r.Until, now, appendBeheaded(own[:0], number, text, whole)) {
		t.heads.leave(number)
		return &FullError{What: "an execution context token"}
	}
	t.list(key, r.ID, n)
	return nil
}

// Get finds the records with an id, one of each issuer that used it.
func (t *Tokens) Get(_ context.Context, id ect.ID) ([]ect.Record, error) {
	t.mu.RLock()
	defer t.mu.RUnlock()
	now := t.now()
	var found []ect.Record
	for n := range t.shared[id] + 1 {
		if octets, _, ok := t.records.get(numbered(id, n), now); ok {
			found = append(found, t.read(octets))
		}
	}
	return found, nil
}

// Workflow lists the records of a workflow in the order in which they came.
func (t *Tokens) Workflow(_ context.Context, wid string) ([]ect.Record, error) {
	found := t.members(memberOf(wid).workflow)
	slices.SortFunc(found, func(a, b numberedRecord) int { return cmp.Compare(a.serial, b.serial) })
	records := make([]ect.Record, len(found))
	for i, r := range found {
		records[i] = r.Record
	}
	return records, nil
}

type numberedRecord struct {
	ect.Record
	serial uint64
}

func (t *Tokens) members(workflow digest) []numberedRecord {
	t.mu.RLock()
	defer t.mu.RUnlock()
	now := t.now()
	var found []numberedRecord
	for key := t.latest[workflow]; key != (digest{}); {
		octets, p, ok := t.records.get(key, now)
		if ok {
			found = append(found, numberedRecord{t.read(octets), p.serial})
		}
		key = p.meta.before
	}
	return found
}

// Usage says how full the store is.
func (t *Tokens) Usage() Usage {
	t.mu.RLock()
	defer t.mu.RUnlock()
	return t.records.usage()
}

func (t *Tokens) restore(whole []byte, r *ect.Record, serial uint64) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	now := t.now()
	n, _, _ := t.number(r.ID, r.Issuer, now)
	if n == ect.MaxNamesakes {
		return false
	}
	key := numbered(r.ID, n)
	number, text := t.heads.take(r.Compact)
	if !t.records.restore(key, memberOf(r.Workflow), serial, r.Until, now, appendBeheaded(nil, number, text, whole)) {
		t.heads.leave(number)
		return false
	}
	t.list(key, r.ID, n)
	return true
}

func (t *Tokens) sweep(most int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.records.clean(t.now(), most)
}

// number is where a record belongs among those with its id: where its issuer
// has one already, which is found, else the first free number; MaxNamesakes:
// there is none. Nearly every id has one record, number 0.
func (t *Tokens) number(id ect.ID, issuer ect.Identity, now time.Time) (n int, old []byte, found bool) {
	free, top := -1, t.shared[id]
	for n := range top + 1 {
		octets, _, ok := t.records.get(numbered(id, n), now)
		if ok && t.read(octets).Issuer == issuer {
			return n, octets, true
		}
		if !ok && free < 0 {
			free = n
		}
	}
	if free < 0 {
		free = top + 1
	}
	return free, nil, false
}

// numbered is the key of a record: of its id, and of its number if others had
// the id first.
func numbered(id ect.ID, n int) digest {
	if n == 0 {
		return digestOf(string(id))
	}
	return digestOf(string(id), strconv.Itoa(n))
}

// memberOf is a record that is not listed yet.
func memberOf(workflow string) (m member) {
	if workflow != "" {
		m.workflow = digestOf(workflow)
	}
	return m
}

// list makes a record the latest of its workflow.
func (t *Tokens) list(key digest, id ect.ID, number int) {
	if number > 0 {
		t.shared[id] = max(number, t.shared[id])
	}
	p := t.records.byKey[key]
	if p.meta.workflow == (digest{}) {
		return
	}
	if before, ok := t.latest[p.meta.workflow]; ok {
		p.meta.before = before
		t.records.byKey[key] = p
		t.link(before, func(m *member) { m.after = key })
	}
	t.latest[p.meta.workflow] = key
}

func (t *Tokens) link(key digest, change func(*member)) {
	p := t.records.byKey[key]
	change(&p.meta)
	t.records.byKey[key] = p
}

// forget takes a record that leaves out of its workflow and from among those
// with its id.
func (t *Tokens) forget(key digest, p place[member]) {
	t.unlist(key, p.meta)
	octets := t.records.read(p)
	defer t.heads.leave(beheaded(octets).number())
	if len(t.shared) == 0 {
		return
	}
	id := t.read(octets).ID
	top, ok := t.shared[id]
	if !ok {
		return
	}
	for ; top > 0 && !t.records.has(numbered(id, top)); top-- {
	}
	if t.shared[id] = top; top == 0 {
		delete(t.shared, id)
	}
}

func (t *Tokens) unlist(key digest, m member) {
	none := digest{}
	if m.workflow == none {
		return
	}
	if m.before != none {
		t.link(m.before, func(other *member) { other.after = m.after })
	}
	if m.after != none {
		t.link(m.after, func(other *member) { other.before = m.before })
	}
	switch {
	case t.latest[m.workflow] != key:
	case m.before == none:
		delete(t.latest, m.workflow)
	default:
		t.latest[m.workflow] = m.before
	}
}

// read gives a record its header back; it shares nothing with the octets.
func (t *Tokens) read(octets []byte) ect.Record {
	before, after := beheaded(octets).around()
	r := reader{data: string(before) + t.heads.list[beheaded(octets).number()].text + string(after)}
	return readRecord(&r)
}

// behead tells a journal the header of what came.
func (t *Tokens) behead(c *Change) {
	c.head = t.heads.list[beheaded(c.content).number()].text
	c.before, c.content = beheaded(c.content).around()
}
