// Package index is a map for values of which every message adds some: most look-ups find nothing,
// and values are deleted in the order in which they were added.
//
// A map of Go misses the CPU cache at each look-up, and twice at a deletion. Here a look-up reads a
// table of eight bytes for each value, which stays in the cache. A new value takes the place of the
// one that was deleted last, so that values deleted one after the other are neighbours (package
// state's BenchmarkMemory_FullCall: a quarter less time; BenchmarkClaim_SingleLock and BenchmarkPut_Parallel: a third).
package index

import (
	"crypto/sha256"
	"encoding/binary"
	"hash/maphash"
)

const (
	parts      = 1 << 8 // each grows by itself, so that no insertion waits for all to grow
	chunk      = 1 << 8 // values of a chunk
	leastTable = 8
)

// Key is a digest: a sender cannot choose two inputs with one key.
type Key [16]byte

// KeyOf hashes texts with their lengths, so that no two lists of texts are the same.
func KeyOf(texts ...string) Key {
	buffer := make([]byte, 0, 256)
	for _, text := range texts {
		buffer = binary.BigEndian.AppendUint64(buffer, uint64(len(text)))
		buffer = append(buffer, text...)
	}
	sum := sha256.Sum256(buffer)
	return Key(sum[:])
}

// Index is a map of values without pointers: the garbage collector does not scan it. A value stays
// at its address until its key is deleted. The memory of an index never shrinks. It is not safe for
// concurrent use: its owner has the lock.
type Index[V any] struct {
	seed   maphash.Seed // random, so that a sender cannot choose keys that collide
	parts  [parts]table
	chunks [][]slot[V]
	free   []uint32 // numbers of slots
	count  int
}

type slot[V any] struct {
	key   Key
	value V
}

// table is open addressing with linear probing: an entry is 32 bits of the hash, the
// lower of which say where it belongs, and the number of its slot plus one.
type table struct {
	entries []uint64 // a power of two; 0: free
	count   int
}

// New makes an empty index.
func New[V any]() *Index[V] { return &Index[V]{seed: maphash.MakeSeed()} }

// Len is how many values there are.
func (x *Index[V]) Len() int { return x.count }

// Find is nil if the key is not there.
func (x *Index[V]) Find(key Key) *V {
	t, hash := x.part(key)
	if s, _ := x.look(t, hash, key); s != nil {
		return &s.value
	}
	return nil
}

// Number names the value of a key for as long as the key is not deleted; zero: it is
// not there. At is a value by its number, which costs less than to find its key.
func (x *Index[V]) Number(key Key) uint32 {
	t, hash := x.part(key)
	if s, at := x.look(t, hash, key); s != nil {
		return uint32(t.entries[at]) //nolint:gosec // the lower half
	}
	return 0
}

// At is the key and the value that a number names.
func (x *Index[V]) At(number uint32) (Key, *V) {
	s := x.slot(number - 1)
	return s.key, &s.value
}

// Insert adds a key that is not there, and returns where its value goes.
func (x *Index[V]) Insert(key Key) *V {
	t, hash := x.part(key)
	if 3*(t.count+1) > 2*len(t.entries) {
		t.grow()
	}
	number := x.nextFree()
	t.put(uint64(hash)<<32 | uint64(number+1))
	t.count++
	x.count++
	s := x.slot(number)
	*s = slot[V]{key: key}
	return &s.value
}

// Delete forgets a key, if it is there.
func (x *Index[V]) Delete(key Key) {
	t, hash := x.part(key)
	s, at := x.look(t, hash, key)
	if s == nil {
		return
	}
	x.free = append(x.free, uint32(t.entries[at])-1) //nolint:gosec // the lower half
	t.remove(at)
	t.count--
	x.count--
}

func (x *Index[V]) part(key Key) (t *table, hash uint32) {
	h := maphash.Bytes(x.seed, key[:])
	return &x.parts[h>>56], uint32(h) //nolint:gosec // the lower half
}

// look is the slot of a key, and where its entry is; nil: it is not there.
func (x *Index[V]) look(t *table, hash uint32, key Key) (s *slot[V], at uint32) {
	if len(t.entries) == 0 {
		return nil, 0
	}
	for at = hash & t.mask(); t.entries[at] != 0; at = (at + 1) & t.mask() {
		if entry := t.entries[at]; uint32(entry>>32) == hash {
			if s = x.slot(uint32(entry) - 1); s.key == key { //nolint:gosec // the lower half
				return s, at
			}
		}
	}
	return nil, 0
}

func (x *Index[V]) slot(number uint32) *slot[V] {
	return &x.chunks[number/chunk][number%chunk]
}

// nextFree is the number of a free slot.
func (x *Index[V]) nextFree() uint32 {
	if len(x.free) == 0 {
		first := len(x.chunks) * chunk
		x.chunks = append(x.chunks, make([]slot[V], chunk))
		for n := first + chunk - 1; n >= first; n-- {
			x.free = append(x.free, uint32(n)) //nolint:gosec // memory ends before
		}
	}
	last := len(x.free) - 1
	number := x.free[last]
	x.free = x.free[:last]
	return number
}

func (t *table) mask() uint32 { return uint32(len(t.entries)) - 1 } //nolint:gosec // of 32 bits of hash

func (t *table) put(entry uint64) {
	at := uint32(entry>>32) & t.mask()
	for t.entries[at] != 0 {
		at = (at + 1) & t.mask()
	}
	t.entries[at] = entry
}

// remove closes the gap: what lies behind it and belongs before it moves up.
func (t *table) remove(gap uint32) {
	for at := (gap + 1) & t.mask(); t.entries[at] != 0; at = (at + 1) & t.mask() {
		home := uint32(t.entries[at] >> 32)
		if (at-home)&t.mask() >= (at-gap)&t.mask() {
			t.entries[gap], gap = t.entries[at], at
		}
	}
	t.entries[gap] = 0
}

func (t *table) grow() {
	old := t.entries
	t.entries = make([]uint64, max(leastTable, 2*len(old)))
	for _, entry := range old {
		if entry != 0 {
			t.put(entry)
		}
	}
}
