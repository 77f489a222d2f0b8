package state

import (
	"container/heap"

	"github.com/aepb/aepb-gateway/gateway/state/internal/index"
)

// partOfOthers is the part of what a holder has that tokens of others keep beside ours:
// one of so many. So the token that begins an exchange does not leave at once.
const partOfOthers = 8

// A workflow whose last record left before its end costs the holder of its first one
// beginningWeight octets; all together have the room of one of partOfBeginnings of the store.
const (
	beginningWeight  = 192
	partOfBeginnings = 4
)

// memberWeight is what a member of a workflow costs the holder of its first record.
const memberWeight = 64

// shares is who holds how much of the evidence, and which of its records leave first
// (victim). It is not safe for concurrent
// use: its owner has the lock.
type shares struct {
	records *index.Index[place[member]]
	total   int64 // of records and members
	begun   int64 // of workflows of which only the beginning is left
	most    int64 // of all holders together
	least   int64 // that a record counts for, so that a bound in octets is one in records
	numbers map[string]uint32
	list    []*holder // by number minus one; nil: the number is free
	free    []uint32
	largest byLoad // the holder of most comes first
}

// holder is one who holds something.
type holder struct {
	name       string
	number     uint32
	load       int64
	pinned     int // workflows that count for him, and what is about to come
	records    int
	begun      int      // workflows of which only the beginning is left
	beginnings chain    // those, by their numbers
	lists      [2]chain // records of others, and our own
	loads      [2]int64 // of the records in lists
	at         int      // in shares.largest
}

// chain is records of one holder in the order in which they came, by their numbers.
type chain struct{ oldest, latest uint32 }

func newShares(records *index.Index[place[member]], config Config) *shares {
	s := &shares{records: records, most: config.MaxTokenBytes, numbers: map[string]uint32{}}
	s.least = s.most / int64(config.MaxTokens)
	return s
}

// weigh is what a record of so many octets, bookkeeping included, counts for.
func (s *shares) weigh(octets int64) int64 { return max(octets, s.least) }

// enter finds a holder, or makes one, and pins it.
func (s *shares) enter(name string) *holder {
	if number, ok := s.numbers[name]; ok {
		h := s.list[number-1]
		h.pinned++
		return h
	}
	h := &holder{name: name, pinned: 1}
	if last := len(s.free) - 1; last >= 0 {
		h.number, s.free = s.free[last], s.free[:last]
		s.list[h.number-1] = h
	} else {
		s.list = append(s.list, h)
		h.number = uint32(len(s.list)) //nolint:gosec // no more than records
	}
	s.numbers[name] = h.number
	heap.Push(&s.largest, h)
	return h
}

// leave takes a pin away, and forgets who holds nothing more.
func (s *shares) leave(h *holder) {
	if h.pinned--; h.pinned > 0 || h.records > 0 {
		return
	}
	heap.Remove(&s.largest, h.at)
	s.list[h.number-1] = nil
	s.free = append(s.free, h.number)
	delete(s.numbers, h.name)
}

// charge counts more or less for a holder.
func (s *shares) charge(h *holder, load int64) {
	if load == 0 {
		return
	}
	h.load += load
	s.total += load
	heap.Fix(&s.largest, h.at)
}

// begin counts one more or one less workflow of which only the beginning is left. They have
// room beside the records, one of partOfBeginnings of it.
func (s *shares) begin(h *holder, one int) {
	h.begun += one
	h.load += int64(one) * beginningWeight
	s.begun += int64(one) * beginningWeight
	heap.Fix(&s.largest, h.at)
}

// crowded: the beginnings take more than their room.
func (s *shares) crowded() bool { return s.begun > s.most/partOfBeginnings }

// push makes a record the latest of its holder.
func (s *shares) push(h *holder, number uint32, own bool) {
	_, p := s.records.At(number)
	p.meta.holder, p.meta.own, p.meta.older, p.meta.newer = h.number, own, 0, 0
	list := &h.lists[bit(own)]
	if p.meta.older = list.latest; list.latest == 0 {
		list.oldest = number
	} else {
		_, before := s.records.At(list.latest)
		before.meta.newer = number
	}
	list.latest = number
	h.records++
	load := s.weigh(int64(p.size) + bookkeeping)
	h.loads[bit(own)] += load
	s.charge(h, load)
}

// drop takes a record that left from its holder.
func (s *shares) drop(p place[member]) {
	m := p.meta
	h := s.list[m.holder-1]
	list := &h.lists[bit(m.own)]
	if m.older == 0 {
		list.oldest = m.newer
	} else {
		_, before := s.records.At(m.older)
		before.meta.newer = m.newer
	}
	if m.newer == 0 {
		list.latest = m.older
	} else {
		_, after := s.records.At(m.newer)
		after.meta.older = m.older
	}
	h.records--
	load := s.weigh(int64(p.size) + bookkeeping)
	h.loads[bit(m.own)] -= load
	s.charge(h, -load)
	h.pinned++
	s.leave(h)
}

// victim is the record of a holder that leaves first: the oldest of others while they
// take more than one of partOfOthers of what it holds, else the oldest of our own. false:
// it has none.
func (s *shares) victim(h *holder) (number uint32, ok bool) {
	foreign, own := h.lists[bit(false)].oldest, h.lists[bit(true)].oldest
	if own == 0 || foreign != 0 && h.loads[bit(false)] > (h.loads[bit(false)]+h.loads[bit(true)])/partOfOthers {
		return foreign, foreign != 0
	}
	return own, true
}

// heaviest is the holder of most among those that have what can leave; nil: there is none.
func (s *shares) heaviest(has func(*holder) bool) *holder {
	var most *holder
	for i, h := range s.largest { // the first as a rule; it may have no record yet, or members alone
		if has(h) && (most == nil || h.load > most.load) {
			most = h
		}
		if most != nil && (i == 0 || i >= 2) {
			break
		}
	}
	return most
}

func bit(own bool) int {
	if own {
		return 1
	}
	return 0
}

// byLoad is a heap of holders.
type byLoad []*holder

func (b byLoad) Len() int           { return len(b) }
func (b byLoad) Less(i, j int) bool { return b[i].load > b[j].load }

func (b byLoad) Swap(i, j int) {
	b[i], b[j] = b[j], b[i]
	b[i].at, b[j].at = i, j
}

// Push and Pop are heap's.
func (b *byLoad) Push(x any) {
	h, _ := x.(*holder)
	h.at = len(*b)
	*b = append(*b, h)
}

func (b *byLoad) Pop() any {
	last := len(*b) - 1
	h := (*b)[last]
	(*b)[last] = nil
	*b = (*b)[:last]
	return h
}
