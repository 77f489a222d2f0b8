package bolt

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"math"
	"slices"

	"go.etcd.io/bbolt"

	"github.com/aepb/aepb-gateway/gateway/state"
)

// A group is what came together and, as a rule, goes together: pieces of state
// whose serials differ in their last bits alone. It is one value, so that bbolt
// sorts, copies and deletes one key where there were dozens. A piece that is
// large lies beside its group, under a key of its own: for a small change
// nobody should have to write it again.
const (
	groupOctets = 64 << 10        // of a group, about, as most are
	largest     = groupOctets / 4 // of a piece in a group
)

// groupSize is how many serials of a kind make a group. Entries are no groups:
// they are swapped one by one.
func groupSize(kind state.Kind) uint64 {
	switch kind {
	case state.KindToken, state.KindAnswer:
		return 32
	case state.KindReplay, state.KindConversation:
		return 128
	default:
		return 1
	}
}

// bucketName tells groups from what lies alone.
func bucketName(kind state.Kind) []byte {
	if groupSize(kind) == 1 {
		return []byte(kind.String())
	}
	return []byte("grouped " + kind.String())
}

// piece is one entry of a group.
type piece struct {
	serial  uint64
	content []byte
}

// keyOf is the key of a group, and of an entry alone.
func keyOf(number uint64) (key [8]byte) {
	binary.BigEndian.PutUint64(key[:], number)
	return key
}

// asideOf is the key of a piece that lies beside its group, right behind it.
func asideOf(kind state.Kind, serial uint64) (key [16]byte) {
	binary.BigEndian.PutUint64(key[:], serial/groupSize(kind))
	binary.BigEndian.PutUint64(key[8:], serial)
	return key
}

// appendPiece writes a piece behind those with smaller serials.
func appendPiece(b []byte, p piece, size uint64) []byte {
	return append(appendHead(b, p.serial%size, len(p.content)), p.content...)
}

func appendHead(b []byte, at uint64, length int) []byte {
	b = append(b, byte(at))                        //nolint:gosec // a group has at most 128
	return binary.AppendUvarint(b, uint64(length)) //nolint:gosec // a length
}

// readGroup calls each for the pieces of a group, in order.
func readGroup(kind state.Kind, number uint64, octets []byte, each func(piece) error) error {
	size, last := groupSize(kind), -1
	if number > math.MaxUint64/size-1 {
		return corrupt("%s: group %d", kind, number)
	}
	for len(octets) > 0 {
		at := int(octets[0])
		length, read := binary.Uvarint(octets[1:])
		if at <= last || at >= int(size) || read <= 0 || length > uint64(len(octets)-1-read) { //nolint:gosec // 128 at most
			return corrupt("%s: group %d has a wrong piece", kind, number)
		}
		begin := 1 + read
		end := begin + int(length) //nolint:gosec // within octets
		if err := each(piece{number*size + uint64(octets[0]), octets[begin:end]}); err != nil {
			return err
		}
		octets, last = octets[end:], at
	}
	return nil
}

// edits are what a batch does to one kind, each list in order of serials.
type edits struct {
	come []state.Change
	gone []uint64
}

// next cuts off what concerns the first group.
func (e *edits) next(size uint64) (number uint64, first edits) {
	number = math.MaxUint64
	if len(e.come) > 0 {
		number = e.come[0].Serial / size
	}
	if len(e.gone) > 0 {
		number = min(number, e.gone[0]/size)
	}
	come, gone := 0, 0
	for come < len(e.come) && e.come[come].Serial/size == number {
		come++
	}
	for gone < len(e.gone) && e.gone[gone]/size == number {
		gone++
	}
	first = edits{e.come[:come], e.gone[:gone]}
	e.come, e.gone = e.come[come:], e.gone[gone:]
	return number, first
}

func (e *edits) empty() bool { return len(e.come)+len(e.gone) == 0 }

// leaves is true for what the batch removes.
func (e *edits) leaves(serial uint64) bool {
	_, found := slices.BinarySearch(e.gone, serial)
	return found
}

// comes is true for what the batch brings.
func (e *edits) comes(serial uint64) bool {
	_, found := slices.BinarySearchFunc(e.come, serial, func(c state.Change, serial uint64) int { return cmp.Compare(c.Serial, serial) })
	return found
}

// group writes one group anew: what was there and stays, then what comes. Said
// twice, as after a commit of which nobody knows how it ended, it is the same.
func (w *writer) group(kind state.Kind, number uint64, e edits) error {
	bucket, key, size := w.buckets[kind], keyOf(number), groupSize(kind)
	old, err := unsealIfAny(key[:], bucket.Get(key[:]))
	if err != nil {
		return err
	}
	if e.come, err = w.come(kind, e); err != nil {
		return err
	}
	room := 4 + len(old)
	for _, c := range e.come {
		room += 1 + binary.MaxVarintLen64 + c.Len()
	}
	value := append(w.file.arena.room(room), 0, 0, 0, 0)
	found := 0
	err = readGroup(kind, number, old, func(p piece) error {
		switch {
		case e.leaves(p.serial):
			found++
		case !e.comes(p.serial):
			value = appendPiece(value, p, size)
		}
		return nil
	})
	if err != nil {
		return err
	}
	for _, c := range e.come {
		if value, err = c.AppendBinary(appendHead(value, c.Serial%size, c.Len())); err != nil {
			return err
		}
	}
	if found < len(e.gone) {
		if err := w.aside(kind, e.gone); err != nil {
			return err
		}
	}
	w.deleted += len(e.gone)
	if len(value) == 4 {
		return bucket.Delete(key[:])
	}
	binary.BigEndian.PutUint32(value, checksum(key[:], value[4:]))
	w.file.arena.take(value)
	return bucket.Put(key[:], value)
}

// come counts what comes, and puts what is large beside the group; the others
// are left.
func (w *writer) come(kind state.Kind, e edits) (others []state.Change, err error) {
	others = e.come[:0:len(e.come)]
	for _, c := range e.come {
		w.latest[kind] = max(w.latest[kind], c.Serial)
		if e.leaves(c.Serial) {
			continue
		}
		w.written++
		if c.Len() <= largest {
			others = append(others, c)
			continue
		}
		key := asideOf(kind, c.Serial)
		if err := w.alone(w.buckets[kind], key[:], c); err != nil {
			return nil, err
		}
	}
	return others, nil
}

// aside removes what may lie beside a group.
func (w *writer) aside(kind state.Kind, gone []uint64) error {
	for _, serial := range gone {
		key := asideOf(kind, serial)
		if err := w.buckets[kind].Delete(key[:]); err != nil {
			return err
		}
	}
	return nil
}

func unsealIfAny(key, value []byte) ([]byte, error) {
	if value == nil {
		return nil, nil
	}
	return unseal(key, value)
}

// readGrouped passes on what a bucket of groups holds. What lies beside a group
// comes after it, and belongs into its middle.
func readGrouped(kind state.Kind, b *bbolt.Bucket, each func(piece) error) error {
	size := groupSize(kind)
	var together []piece // of one group
	pass := func() error {
		slices.SortFunc(together, func(a, b piece) int { return cmp.Compare(a.serial, b.serial) })
		for _, p := range together {
			if err := each(p); err != nil {
				return err
			}
		}
		together = together[:0]
		return nil
	}
	err := b.ForEach(func(key, value []byte) error {
		content, err := unseal(key, value)
		if err != nil {
			return fmt.Errorf("%s: %w", kind, err)
		}
		if len(key) != 8 && len(key) != 16 {
			return corrupt("%s: a key of %d octets", kind, len(key))
		}
		number := binary.BigEndian.Uint64(key)
		if len(together) > 0 && together[0].serial/size != number {
			if err := pass(); err != nil {
				return err
			}
		}
		if len(key) == 8 {
			return readGroup(kind, number, content, func(p piece) error {
				together = append(together, p)
				return nil
			})
		}
		serial := binary.BigEndian.Uint64(key[8:])
		if serial/size != number {
			return corrupt("%s: %d beside group %d", kind, serial, number)
		}
		together = append(together, piece{serial, content})
		return nil
	})
	if err != nil {
		return err
	}
	return pass()
}
