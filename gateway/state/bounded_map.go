package state

import (
	"encoding/binary"
	"math"
	"slices"
	"time"

	"github.com/aepb/aepb-gateway/gateway/state/internal/encoding"
	"github.com/aepb/aepb-gateway/gateway/state/internal/index"
)

// bookkeeping is the memory in bytes that maps and pages take for each piece, roughly.
const bookkeeping = 256

// largestPage is the size in bytes of the pages of a board that holds much.
const largestPage = 1 << 20

// heading is the size of what a page holds before each piece: its key and its length.
const heading = len(digest{}) + 4

// boundedMap keeps pieces of bytes under keys, each until its own end, bounded in number and bytes.
//
//	byKey:  key -> place (end, page, offset, size) of a piece
//	boards: second -> board: the pieces that end in that second, in the order of their arrival
//	page:   key, size, bytes; key, size, bytes; …
//
// Expired pieces are dropped from the front of the earliest board, without a heap. The garbage
// collector sees a few pages of bytes, and maps without pointers, not an object for each piece. M is
// what else is known of a piece, and holds no pointers either. The owner of the map holds its lock.
type boundedMap[M any] struct {
	kind       Kind
	maxEntries int
	maxBytes   int64 // 0: unbounded
	bytes      int64
	live, idle int // those of all boards together
	byKey      *index.Index[place[M]]
	boards     map[int64]*board
	seconds    []int64                // of boards, in order
	serial     uint64                 // of the latest piece
	dropped    func(digest, place[M]) // called for everything that leaves, while it can still be read; may be nil
	journal    Journal                // told of everything that comes and leaves; may be nil
	evicted    uint64                 // pieces that had to leave before their end
}

// place is where a piece lies.
type place[M any] struct {
	until          int64 // Unix time in nanoseconds, that instant included
	serial         uint64
	page, at, size uint32
	meta           M
}

// board holds what ends within one second. What was written on a page is never
// changed: a journal may read it at any time.
type board struct {
	pages      [][]byte
	page, at   int // everything before this was skipped
	live, idle int // bytes after that, headings included: of pieces that are kept, and of others
}

func newBoundedMap[M any](kind Kind, maxEntries int, maxBytes int64, journal Journal) *boundedMap[M] {
	return &boundedMap[M]{
		kind: kind, maxEntries: maxEntries, maxBytes: maxBytes, journal: journal,
		byKey: index.New[place[M]](), boards: map[int64]*board{},
	}
}

// get finds a piece that is alive. It is lent for as long as the lock is held.
func (x *boundedMap[M]) get(key digest, now time.Time) ([]byte, *place[M], bool) {
	p := x.byKey.Find(key)
	if p == nil || p.until < encoding.Nanos(now) {
		return nil, p, false
	}
	return x.read(*p), p, true
}

func (x *boundedMap[M]) read(p place[M]) []byte {
	begin := int(p.at) + heading
	return x.boards[ceil(p.until)].pages[p.page][begin : begin+int(p.size)]
}

// add puts in a piece, in place of an earlier one with its key. If space is short, the pieces with
// the least time left are dropped. It refuses a piece that is larger than the whole map: false.
func (x *boundedMap[M]) add(key digest, meta M, until, now time.Time, parts ...[]byte) bool {
	x.clean(now, sweep)
	p, old, replaced := x.insert(key, place[M]{until: encoding.Nanos(until), serial: x.serial + 1, meta: meta}, now, parts)
	if p == nil {
		return false
	}
	x.serial++
	if x.journal != nil {
		content := x.read(*p)
		x.journal.Note(Change{Kind: x.kind, Serial: x.serial, content: content, Size: len(content) + overhead})
	}
	if replaced {
		x.left(old) // after the new piece: a journal cut short between the two still has one
	}
	return true
}

// restore puts back a piece of a journal with its serial. Later pieces have larger serials, also if
// this one has expired or is too large.
func (x *boundedMap[M]) restore(key digest, meta M, serial uint64, until, now time.Time, parts ...[]byte) bool {
	x.serial = max(x.serial, serial)
	if until.Before(now) {
		return false
	}
	p, old, replaced := x.insert(key, place[M]{until: encoding.Nanos(until), serial: serial, meta: meta}, now, parts)
	if replaced && p != nil {
		x.left(old)
	}
	return p != nil
}

// insert returns where the piece lies now, and the piece of that key before; nil: it is too large.
func (x *boundedMap[M]) insert(key digest, p place[M], now time.Time, parts [][]byte) (in *place[M], old place[M], replaced bool) {
	size := 0
	for _, part := range parts {
		size += len(part)
	}
	if weight := x.weight(size); size > math.MaxUint32-heading || x.maxBytes > 0 && weight > x.maxBytes {
		return nil, old, false
	}
	if before := x.byKey.Find(key); before != nil {
		old, replaced = *before, true
		x.remove(key, old)
	}
	for x.byKey.Len() >= x.maxEntries || (x.maxBytes > 0 && x.bytes+x.weight(size) > x.maxBytes) {
		first, leaves := x.first()
		if leaves.until >= encoding.Nanos(now) {
			x.evicted++
		}
		x.drop(first, *leaves)
	}
	p.size = uint32(size)
	p.page, p.at = x.boardOf(ceil(p.until)).write(key, size, parts)
	in = x.byKey.Insert(key)
	*in = p
	x.bytes += x.weight(size)
	x.live += heading + size
	return in, old, replaced
}

// weight is what a piece takes, in bytes, bookkeeping included.
func (x *boundedMap[M]) weight(size int) int64 { return int64(size + bookkeeping) }

func (x *boundedMap[M]) boardOf(second int64) *board {
	b, ok := x.boards[second]
	if !ok {
		b = &board{}
		x.boards[second] = b
		at, _ := slices.BinarySearch(x.seconds, second)
		x.seconds = slices.Insert(x.seconds, at, second)
	}
	return b
}

// clean drops expired pieces, at most so many.
func (x *boundedMap[M]) clean(now time.Time, most int) {
	for range most {
		if len(x.seconds) == 0 || x.seconds[0]*int64(time.Second) >= encoding.Nanos(now) {
			return
		}
		if first, p := x.first(); p != nil {
			x.drop(first, *p)
		}
	}
}

// first finds the piece that ends in the earliest second and came first there; nil: there is none.
func (x *boundedMap[M]) first() (digest, *place[M]) {
	for len(x.seconds) > 0 {
		second := x.seconds[0]
		b := x.boards[second]
		for key, at, ok := b.next(); ok; key, at, ok = b.next() {
			if p := x.byKey.Find(key); p != nil && p.liesAt(second, b.page, at) {
				return key, p
			}
			x.skip(b)
		}
		x.clear(second)
	}
	return digest{}, nil
}

func (p *place[M]) liesAt(second int64, page, at int) bool {
	return int(p.page) == page && int(p.at) == at && ceil(p.until) == second
}

func (x *boundedMap[M]) drop(key digest, p place[M]) {
	x.remove(key, p)
	x.left(p)
}

func (x *boundedMap[M]) remove(key digest, p place[M]) {
	x.byKey.Delete(key)
	x.bytes -= x.weight(int(p.size))
	if x.dropped != nil {
		x.dropped(key, p)
	}
	second, size := ceil(p.until), heading+int(p.size)
	b := x.boards[second]
	b.live -= size
	b.idle += size
	x.live -= size
	x.idle += size
	x.pass(second, b, p)
	switch {
	case b.live == 0:
		x.clear(second)
	case b.idle > b.live+largestPage, b.idle > b.live && x.idle > x.live+largestPage:
		x.tidy(second, b)
	}
}

// pass skips removed pieces at the front of a board, if the piece that left lay there. So a board
// whose pieces leave in the order of their arrival is never rewritten.
func (x *boundedMap[M]) pass(second int64, b *board, left place[M]) {
	_, at, ok := b.next()
	for ok && int(left.page) == b.page && int(left.at) == at {
		x.skip(b)
		var key digest
		if key, at, ok = b.next(); !ok {
			return
		}
		if p := x.byKey.Find(key); p != nil && p.liesAt(second, b.page, at) {
			return
		}
		left.page, left.at = uint32(b.page), uint32(at) //nolint:gosec // as write gave them
	}
}

// skip goes past the first piece of a board, which is not kept any more.
func (x *boundedMap[M]) skip(b *board) {
	before := b.idle
	b.skip()
	x.idle += b.idle - before
}

// clear deletes a board without pieces.
func (x *boundedMap[M]) clear(second int64) {
	x.idle -= x.boards[second].idle
	delete(x.boards, second)
	if at, ok := slices.BinarySearch(x.seconds, second); ok {
		x.seconds = slices.Delete(x.seconds, at, at+1)
	}
}

// tidy rewrites a board without the pieces that left it. That is due when the board, and all boards
// together but for a page, have more idle than live bytes: so all idle bytes are bounded.
func (x *boundedMap[M]) tidy(second int64, b *board) {
	anew := &board{}
	x.idle -= b.idle
	for key, at, ok := b.next(); ok; key, at, ok = b.next() {
		if p := x.byKey.Find(key); p != nil && p.liesAt(second, b.page, at) {
			p.page, p.at = anew.write(key, int(p.size), [][]byte{x.read(*p)})
		}
		b.skip()
	}
	x.boards[second] = anew
}

func (x *boundedMap[M]) left(p place[M]) {
	if x.journal != nil {
		x.journal.Note(Change{Kind: x.kind, Serial: p.serial})
	}
}

// usage reports how full the map is.
func (x *boundedMap[M]) usage() Usage {
	return Usage{Entries: x.byKey.Len(), Bytes: x.bytes, Evicted: x.evicted}
}

// write appends a piece. A new page is as large as all that the board holds, up to largestPage.
func (b *board) write(key digest, size int, parts [][]byte) (page, at uint32) {
	bytes := heading + size
	last := len(b.pages) - 1
	if last < 0 || cap(b.pages[last])-len(b.pages[last]) < bytes {
		b.pages = append(b.pages, make([]byte, 0, max(bytes, min(b.live+b.idle, largestPage))))
		last++
	}
	to := b.pages[last]
	begin := len(to)
	to = append(to, key[:]...)
	to = binary.BigEndian.AppendUint32(to, uint32(size)) //nolint:gosec // bounded by insert
	for _, part := range parts {
		to = append(to, part...)
	}
	b.pages[last] = to
	b.live += bytes
	return uint32(last), uint32(begin) //nolint:gosec // a page is as large as its largest piece, at most
}

// next finds the first piece that was not skipped, kept or not; false: there is none.
func (b *board) next() (key digest, at int, ok bool) {
	for b.page < len(b.pages) && b.at == len(b.pages[b.page]) {
		if b.page == len(b.pages)-1 {
			return key, 0, false // more may come
		}
		b.pages[b.page] = nil
		b.page, b.at = b.page+1, 0
	}
	if b.page == len(b.pages) {
		return key, 0, false
	}
	copy(key[:], b.pages[b.page][b.at:])
	return key, b.at, true
}

// skip goes past the first piece, which is not kept any more.
func (b *board) skip() {
	size := heading + int(binary.BigEndian.Uint32(b.pages[b.page][b.at+len(digest{}):]))
	b.at += size
	b.idle -= size
}
