package state

import (
	"encoding/binary"
	"math"
	"slices"
	"time"

	"github.com/aepb/aepb-gateway/gateway/state/internal/encoding"
	"github.com/aepb/aepb-gateway/gateway/state/internal/index"
)

// bookkeeping is about what maps and pages cost for each piece, in bytes.
const bookkeeping = 256

// largestPage is the size of the pages of a board that holds much, in bytes.
const largestPage = 1 << 20

// heading is what stands before each piece on a page: its key and its length.
const heading = len(digest{}) + 4

// boundedMap keeps bytes under keys, each until an instant of its own, bounded in
// number and bytes: what every message leaves behind. What ends in the same
// second lies on one board, in the order in which it came, so that it is swept
// from the front, without a heap. The collector sees a few pages of bytes, and
// maps without pointers, however much is kept; with an object for each piece it
// would walk through all of them at every collection. M is what else is known
// of a piece, and holds no pointers either. It is not safe for concurrent use:
// its owner has the lock.
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
	page, at   int // everything before this was swept
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

// add puts in a new piece, in place of an old one with its key. What has the
// least time left makes room. A piece larger than the whole shelf is not taken.
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
		x.left(old) // after its heir: a journal cut short between the two still has one
	}
	return true
}

// restore puts back a piece that a journal was told of, with the serial it
// had. Whatever comes of it, later pieces have larger serials.
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

// insert is where the piece lies now, and what lay under the key before; nil: it is
// too large.
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

// clean drops what has expired, but no more than most of it.
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

// first is the piece with the least time left, by the second; of those with as
// much, the one that came first; nil: there is none.
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

// pass sweeps a board from the front if that is where a piece lay that left: what
// leaves in the order in which it came need not be tidied.
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

// skip sweeps a piece of a board that is not kept any more.
func (x *boundedMap[M]) skip(b *board) {
	before := b.idle
	b.skip()
	x.idle += b.idle - before
}

// clear takes a board away on which nothing is left.
func (x *boundedMap[M]) clear(second int64) {
	x.idle -= x.boards[second].idle
	delete(x.boards, second)
	if at, ok := slices.BinarySearch(x.seconds, second); ok {
		x.seconds = slices.Delete(x.seconds, at, at+1)
	}
}

// tidy writes a board anew without what left it. A board that has more idle than live
// bytes is written anew as soon as all boards together have, a page aside; so the idle
// bytes are bounded however many boards there are.
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

// usage says how full the shelf is.
func (x *boundedMap[M]) usage() Usage {
	return Usage{Entries: x.byKey.Len(), Bytes: x.bytes, Evicted: x.evicted}
}

// write adds a piece behind the others. Pages double, so that neither a board
// with little takes much nor one with much is many pages.
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

// next is the first piece that was not swept, kept or not; false: there is none.
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

// skip sweeps a piece that is not kept any more.
func (b *board) skip() {
	size := heading + int(binary.BigEndian.Uint32(b.pages[b.page][b.at+len(digest{}):]))
	b.at += size
	b.idle -= size
}
