package state

import (
	"cmp"
	"context"
	"encoding/binary"
	"encoding/hex"
	"strconv"
	"sync"
	"time"

	"github.com/aepb/aepb-gateway/ect"
)

// Tokens keeps ECTs by id and by workflow. It is safe for concurrent use.
type Tokens struct {
	now     func() time.Time
	evicted func(own bool)

	mu        sync.RWMutex
	records   *shelf[member] // beheaded
	heads     *heads
	workflows *workflows
	shares    *shares
	shared    map[ect.ID]int // of an id that several issuers used: the highest number given out
	further   *namesakes
}

var _ ect.Store = (*Tokens)(nil)

// member is a record's place among those of its workflow: between the keys of
// the one before and of the one after. Zero: there is none.
// It belongs to a holder, between the records older and newer.
type member struct {
	workflow, before, after digest
	holder, older, newer    uint32
	own                     bool
}

func newTokens(config Config, deps Deps) *Tokens {
	t := &Tokens{
		now: deps.Now, evicted: DriverDeps{Evicted: deps.Evicted}.WithDefaults().Evicted,
		records:   newShelf[member](KindToken, config.MaxTokens, config.MaxTokenBytes, deps.Journal),
		heads:     newHeads(),
		workflows: newWorkflows(),
		shared:    map[ect.ID]int{},
		further:   newNamesakes(),
	}
	t.shares = newShares(t.records.byKey, config)
	t.workflows.shares = t.shares
	t.records.dropped = t.forget
	t.records.complete = t.behead
	return t
}

// Put keeps a record until its Until. The same issuer's id with the same bytes
// is no error and may prolong it, or make more members; with other bytes it is a
// *ect.ConflictError. A root in a workflow that another issuer's record began is a
// *ect.ForeignRootError. [FullError]: the record alone is larger than the store.
func (t *Tokens) Put(_ context.Context, r ect.Record) error {
	var scratch [4 << 10]byte
	t.mu.Lock()
	defer t.mu.Unlock()
	now := t.now()
	n, old, found := t.number(&r, now)
	if found {
		kept := t.read(old)
		if kept.Compact != r.Compact {
			return &ect.ConflictError{ID: r.ID}
		}
		if !r.Unite(kept) {
			return nil
		}
	}
	m := memberOf(r.Workflow)
	root, allowed := t.workflows.rootFor(m.workflow, &r, now)
	if !allowed {
		return &ect.ForeignRootError{ID: r.ID}
	}
	whole := appendToken(scratch[:0], &r, root)
	return t.place(&r, spot{member: m, key: keyOf(&r, n), number: n, root: root}, whole, now)
}

// spot is where a record belongs.
type spot struct {
	member
	key    digest
	number int    // among those with its id; apart: it is one of the further ones
	root   digest // of its workflow
	serial uint64 // that it had before; 0: it is new
}

// place puts a record where it belongs: on the pages, in its holder's share, in its
// workflow. The latter two are entered before anything makes room for it, which may
// be the last that they have.
func (t *Tokens) place(r *ect.Record, at spot, whole []byte, now time.Time) error {
	h := t.shares.enter(r.Holder)
	defer t.shares.leave(h)
	t.workflows.enter(at.workflow, at.root, h, r.Until, now)
	number, text := t.heads.take(r.Compact)
	var head [binary.MaxVarintLen32]byte
	before, after := aroundHead(whole, len(text))
	first := binary.AppendUvarint(head[:0], uint64(number))
	err := t.makeRoom(h, at.key, len(first)+len(before)+len(after), now)
	kept := err == nil
	switch {
	case kept && at.serial == 0:
		kept = t.records.add(at.key, at.member, r.Until, now, first, before, after)
	case kept:
		kept = t.records.restore(at.key, at.member, at.serial, r.Until, now, first, before, after)
	}
	if !kept {
		t.heads.leave(number)
		t.workflows.leave(at.workflow, now)
		return cmp.Or(err, error(&FullError{What: "an execution context token"}))
	}
	t.shares.push(h, t.records.byKey.Number(at.key), r.Own)
	t.list(at.key, r, at.number)
	return nil
}

// makeRoom lets records leave until one of so many octets fits: those of the holder of
// most. While there is room, what one holder has is not bounded.
func (t *Tokens) makeRoom(h *holder, key digest, size int, now time.Time) error {
	need := t.shares.weigh(t.records.weight(size))
	if need > t.shares.most {
		return &FullError{What: "an execution context token"}
	}
	t.records.clean(now, sweep)
	if t.shares.total+need <= t.shares.most && t.records.byKey.Len() < t.records.maxEntries {
		return nil
	}
	t.shares.charge(h, need) // the one that would hold most with it gives way
	defer t.shares.charge(h, -need)
	for t.shares.total-t.loadOf(key) > t.shares.most || t.records.byKey.Len() >= t.records.maxEntries && !t.records.has(key) {
		if first, p := t.records.first(); p != nil && p.until < nanos(now) {
			t.records.drop(first, *p)
			continue
		}
		h := t.shares.heaviest(func(h *holder) bool { return h.records > 0 })
		if h == nil {
			break
		}
		number, _ := t.shares.victim(h)
		t.evict(number, now)
	}
	return nil
}

// loadOf is what a record under a key counts for now.
func (t *Tokens) loadOf(key digest) int64 {
	p := t.records.byKey.Find(key)
	if p == nil {
		return 0
	}
	return t.shares.weigh(t.records.weight(int(p.size)))
}

func (t *Tokens) evict(number uint32, now time.Time) {
	key, p := t.records.byKey.At(number)
	if p.until >= nanos(now) {
		t.records.evicted++
		t.evicted(p.meta.own)
	}
	t.records.drop(key, *p)
}

// Get finds the records that each reference means, at most one of each issuer.
func (t *Tokens) Get(_ context.Context, refs ...ect.Ref) ([][]ect.Record, error) {
	if len(refs) > ect.MaxLookups {
		return nil, ect.ErrTooManyIDs
	}
	t.mu.RLock()
	defer t.mu.RUnlock()
	now := t.now()
	found := make([][]ect.Record, len(refs))
	for i, ref := range refs {
		for n := range t.shared[ref.ID] + 1 {
			if octets, _, ok := t.records.get(numbered(ref.ID, n), now); ok {
				found[i] = append(found[i], t.read(octets))
			}
		}
		for _, key := range t.further.find(ref) {
			if octets, _, ok := t.records.get(key, now); ok {
				found[i] = append(found[i], t.read(octets))
			}
		}
	}
	return found, nil
}

// Workflow returns the records of a workflow in the order in which they came.
func (t *Tokens) Workflow(_ context.Context, wid, after string, limit int) (records []ect.Record, next string, err error) {
	t.mu.RLock()
	defer t.mu.RUnlock()
	now := t.now()
	key, err := t.following(memberOf(wid).workflow, after)
	if err != nil {
		return nil, "", err
	}
	last := next
	for ; key != (digest{}); key = t.at(key).after {
		octets, p, ok := t.records.get(key, now)
		if !ok {
			continue
		}
		if len(records) == max(limit, 1) {
			return records, last, nil
		}
		records = append(records, t.read(octets))
		last = cursor(key, p.serial)
	}
	return records, "", nil
}

// cursor names a record, and its place among the others if it left.
func cursor(key digest, serial uint64) string {
	return hex.EncodeToString(key[:]) + strconv.FormatUint(serial, 16)
}

// following is the key of the first record behind a cursor. Zero: there is none.
func (t *Tokens) following(workflow digest, after string) (digest, error) {
	w := t.workflows.byKey.Find(workflow)
	if after == "" {
		if w == nil {
			return digest{}, nil
		}
		return w.first, nil
	}
	const size = 2 * len(digest{})
	if len(after) < size {
		return digest{}, ect.ErrCursor
	}
	var key digest
	_, err := hex.Decode(key[:], []byte(after[:size]))
	serial, err2 := strconv.ParseUint(after[size:], 16, 64)
	if err != nil || err2 != nil {
		return digest{}, ect.ErrCursor
	}
	if p := t.records.byKey.Find(key); p != nil && p.serial == serial && p.meta.workflow == workflow {
		return p.meta.after, nil
	}
	if w == nil {
		return digest{}, nil
	}
	for key = w.first; key != (digest{}) && t.records.byKey.Find(key).serial <= serial; {
		key = t.at(key).after
	}
	return key, nil
}

// Standing says what an identity is to a workflow.
func (t *Tokens) Standing(_ context.Context, wid string, who ect.Identity) (ect.Standing, error) {
	if wid == "" {
		return ect.Standing{}, nil
	}
	t.mu.RLock()
	defer t.mu.RUnlock()
	return t.workflows.standing(wid, who, t.now()), nil
}

// Usage says how full the store is.
func (t *Tokens) Usage() Usage {
	t.mu.RLock()
	defer t.mu.RUnlock()
	return t.records.usage()
}

func (t *Tokens) restore(whole []byte, r *ect.Record, root digest, serial uint64) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	now := t.now()
	n, _, _ := t.number(r, now)
	m := memberOf(r.Workflow)
	return t.place(r, spot{member: m, key: keyOf(r, n), number: n, root: root, serial: serial}, whole, now) == nil
}

func (t *Tokens) sweep(most int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.records.clean(t.now(), most)
	t.workflows.sweep(t.now(), most)
}

// number is where a record belongs among those with its id: where its issuer
// has one already, which is found, else the first free number; from MaxNamesakes
// on there is room for ours alone, and others are apart. Nearly every id has one
// record, number 0.
func (t *Tokens) number(r *ect.Record, now time.Time) (n int, old []byte, found bool) {
	free, top := -1, t.shared[r.ID]
	for n := range top + 1 {
		octets, _, ok := t.records.get(numbered(r.ID, n), now)
		if ok && t.read(octets).Issuer == r.Issuer {
			return n, octets, true
		}
		if !ok && free < 0 {
			free = n
		}
	}
	if t.further.some() {
		if octets, _, ok := t.records.get(issuedBy(r.ID, r.Issuer), now); ok {
			return apart, octets, true
		}
	}
	if free < 0 {
		free = top + 1
	}
	if free >= ect.MaxNamesakes && !r.Own {
		free = apart
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

// list makes a record the latest of its workflow, and makes its members.
func (t *Tokens) list(key digest, r *ect.Record, number int) {
	if number > 0 {
		t.shared[r.ID] = max(number, t.shared[r.ID])
	}
	if number == apart {
		t.further.add(key, r)
	}
	m := t.at(key)
	w := t.workflows.byKey.Find(m.workflow)
	if w == nil {
		return
	}
	if m.before = w.latest; m.before == (digest{}) {
		w.first = key
	} else {
		t.at(m.before).after = key
	}
	w.latest = key
	t.workflows.admit(w, r)
}

// at is the place of a record that is kept among those of its workflow.
func (t *Tokens) at(key digest) *member { return &t.records.byKey.Find(key).meta }

// forget takes a record that leaves out of its workflow and from among those
// with its id.
func (t *Tokens) forget(key digest, p place[member]) {
	t.unlist(key, p.meta)
	t.shares.drop(p)
	octets := t.records.read(p)
	defer t.heads.leave(beheaded(octets).number())
	if len(t.shared) == 0 && !t.further.some() {
		return
	}
	r := t.read(octets)
	t.further.remove(key, &r)
	id := r.ID
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
	w := t.workflows.byKey.Find(m.workflow)
	if w == nil {
		return
	}
	if m.before != none {
		t.at(m.before).after = m.after
	}
	if m.after != none {
		t.at(m.after).before = m.before
	}
	if w.latest == key {
		w.latest = m.before
	}
	if w.first == key {
		w.first = m.after
	}
	t.workflows.leave(m.workflow, t.now())
}

// read gives a record its header back; it shares nothing with the octets.
func (t *Tokens) read(octets []byte) ect.Record {
	before, after := beheaded(octets).around()
	r := reader{data: string(before) + t.heads.list[beheaded(octets).number()].text + string(after)}
	record, _ := readRecord(&r)
	return record
}

// behead tells a journal the header of what came.
func (t *Tokens) behead(c *Change) {
	c.head = t.heads.list[beheaded(c.content).number()].text
	c.before, c.content = beheaded(c.content).around()
}
