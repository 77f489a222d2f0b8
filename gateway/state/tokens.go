package state

import (
	"cmp"
	"context"
	"encoding/binary"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/gateway/state/internal/index"
)

// Tokens keeps ECTs by id and by workflow. It is safe for concurrent use.
type Tokens struct {
	now func() time.Time

	mu      sync.RWMutex
	records *shelf[member] // beheaded
	heads   *heads
	latest  *index.Index[digest] // of each workflow: the key of its latest record
	shared  map[ect.ID]int       // of an id that several issuers used: the highest number given out
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
		latest:  index.New[digest](),
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
	var own [binary.MaxVarintLen32]byte
	before, after := aroundHead(whole, len(text))
	if !t.records.add(key, memberOf(r.Workflow), r.Until, now, binary.AppendUvarint(own[:0], uint64(number)), before, after) {
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
	latest := t.latest.Find(workflow)
	if latest == nil {
		return nil
	}
	for key := *latest; key != (digest{}); {
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
	before, after := aroundHead(whole, len(text))
	if !t.records.restore(key, memberOf(r.Workflow), serial, r.Until, now, binary.AppendUvarint(nil, uint64(number)), before, after) {
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
	m := t.at(key)
	if m.workflow == (digest{}) {
		return
	}
	latest := t.latest.Find(m.workflow)
	if latest == nil {
		latest = t.latest.Insert(m.workflow)
	} else {
		m.before = *latest
		t.at(m.before).after = key
	}
	*latest = key
}

// at is the place of a record that is kept among those of its workflow.
func (t *Tokens) at(key digest) *member { return &t.records.byKey.Find(key).meta }

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
		t.at(m.before).after = m.after
	}
	if m.after != none {
		t.at(m.after).before = m.before
	}
	switch latest := t.latest.Find(m.workflow); {
	case *latest != key:
	case m.before == none:
		t.latest.Delete(m.workflow)
	default:
		*latest = m.before
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
