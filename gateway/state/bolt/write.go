package bolt

import (
	"encoding/binary"
	"hash/crc32"
	"runtime"

	"go.etcd.io/bbolt"

	"github.com/aepb/aepb-gateway/gateway/state"
)

// blockSize is the size of the pieces of an arena, in octets, and keptBlocks how
// many of them one commit leaves to the next.
const (
	blockSize  = 1 << 20
	keptBlocks = 8
)

// breath is after how many changes the writer lets others go first, on whom
// somebody waits: some 0.1 ms of work, where the scheduler would let it run for
// ten.
const breath = 64

// arena is memory for the values of one transaction, which bbolt needs until
// the transaction is over.
type arena struct {
	blocks [][]byte
	used   int // blocks before this one are full
}

// room is an empty slice with the capacity for size octets, at least.
func (a *arena) room(size int) []byte {
	for ; a.used < len(a.blocks); a.used++ {
		if b := a.blocks[a.used]; cap(b)-len(b) >= size {
			return b[len(b):]
		}
	}
	a.blocks = append(a.blocks, make([]byte, 0, max(size, blockSize)))
	return a.blocks[a.used]
}

// take keeps what was written into the room. What outgrew it lies elsewhere,
// and is the collector's.
func (a *arena) take(written []byte) {
	if b := a.blocks[a.used]; len(b)+len(written) <= cap(b) {
		a.blocks[a.used] = b[:len(b)+len(written)]
	}
}

// seal is a value with its checksum.
func (a *arena) seal(key, value []byte) []byte {
	sealed := append(a.room(4+len(value)), 0, 0, 0, 0)
	sealed = append(sealed, value...)
	binary.BigEndian.PutUint32(sealed, checksum(key, value))
	a.take(sealed)
	return sealed
}

// reset frees all, and keeps some of it.
func (a *arena) reset() {
	a.blocks, a.used = a.blocks[:min(len(a.blocks), keptBlocks)], 0
	clear(a.blocks[len(a.blocks):cap(a.blocks)])
	for i := range a.blocks {
		a.blocks[i] = a.blocks[i][:0]
	}
}

// write is one group commit.
func (f *file) write(batch []state.Change, stale []mark, changes evidenceChanges, clean bool) (written, deleted int, err error) {
	latest := f.latest
	err = f.update(func(tx *bbolt.Tx) error {
		w := writer{tx: tx, file: f, latest: &latest, passing: f.passing(batch)}
		if err := w.write(batch, stale); err != nil {
			return err
		}
		if changes != nil {
			if err := w.evidence(changes); err != nil {
				return err
			}
		}
		written, deleted = w.written, w.deleted
		if clean {
			return tx.Bucket([]byte(metaBucket)).Put([]byte(keyClean), seal([]byte(keyClean), nil))
		}
		return nil
	})
	if f.unsure = err != nil; !f.unsure {
		f.latest = latest
	}
	f.arena.reset()
	return written, deleted, err
}

// passing is what comes and leaves within one batch: the disk need not hear of it.
func (f *file) passing(batch []state.Change) map[mark]bool {
	var found map[mark]bool
	if f.unsure {
		return nil
	}
	for _, c := range batch {
		if c.Gone() && c.Serial > f.latest[c.Kind] {
			if found == nil {
				found = map[mark]bool{}
			}
			found[mark{c.Kind, c.Serial}] = true
		}
	}
	return found
}

// writer writes one batch.
type writer struct {
	tx               *bbolt.Tx
	file             *file
	latest           *[kinds]uint64 // serials on disk after this
	passing          map[mark]bool
	buckets          [kinds]*bbolt.Bucket
	written, deleted int
	steps            int
}

// write makes the changes of a batch in the order in which they came, and removes what is stale.
func (w *writer) write(batch []state.Change, stale []mark) error {
	for _, kind := range ownBuckets() {
		w.buckets[kind] = w.tx.Bucket([]byte(kind.String()))
		w.buckets[kind].FillPercent = 0.95 // entries are appended: a page that is full stays so
	}
	for i := range batch {
		c := &batch[i]
		change := w.put
		switch at := (mark{c.Kind, c.Serial}); {
		case w.passing[at]:
			continue
		case c.Gone():
			change = func(*state.Change) error { return w.remove(at) }
		}
		if err := change(c); err != nil {
			return err
		}
	}
	for _, at := range stale {
		if err := w.remove(at); err != nil {
			return err
		}
	}
	return nil
}

// pause lets others go first now and then.
func (w *writer) pause() {
	if w.steps++; w.steps%breath == 0 {
		runtime.Gosched()
	}
}

func (w *writer) remove(at mark) error {
	w.pause()
	w.deleted++
	key := keyOf(at.serial)
	return w.buckets[at.kind].Delete(key[:])
}

func (w *writer) put(c *state.Change) error {
	w.pause()
	w.written++
	w.latest[c.Kind] = max(w.latest[c.Kind], c.Serial)
	key := keyOf(c.Serial)
	value, err := c.AppendBinary(append(w.file.arena.room(c.Size), 0, 0, 0, 0))
	if err != nil {
		return err
	}
	binary.BigEndian.PutUint32(value, checksum(key[:], value[4:]))
	w.file.arena.take(value)
	return w.buckets[c.Kind].Put(key[:], value)
}

// keyOf is the key of an entry.
func keyOf(serial uint64) (key [8]byte) {
	binary.BigEndian.PutUint64(key[:], serial)
	return key
}

// checksum is CRC-32C over key and content: it finds accidents, not forgers,
// who could write anything into a file that they can write.
func checksum(key, content []byte) uint32 {
	table := crc32.MakeTable(crc32.Castagnoli)
	return crc32.Update(crc32.Checksum(key, table), table, content)
}

func seal(key, content []byte) []byte {
	value := binary.BigEndian.AppendUint32(nil, checksum(key, content))
	return append(value, content...)
}

func unseal(key, value []byte) ([]byte, error) {
	if len(value) < 4 || binary.BigEndian.Uint32(value) != checksum(key, value[4:]) {
		return nil, errChecksum
	}
	return value[4:], nil
}
