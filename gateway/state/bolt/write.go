package bolt

import (
	"encoding/binary"
	"hash/crc32"
	"runtime"
	"slices"

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

// reset frees all, and keeps some of it.
func (a *arena) reset() {
	a.blocks, a.used = a.blocks[:min(len(a.blocks), keptBlocks)], 0
	clear(a.blocks[len(a.blocks):cap(a.blocks)])
	for i := range a.blocks {
		a.blocks[i] = a.blocks[i][:0]
	}
}

// write is one group commit.
func (f *file) write(batch []state.Change, stale []mark, clean bool) (written, deleted int, err error) {
	latest := f.latest
	err = f.update(func(tx *bbolt.Tx) error {
		w := writer{tx: tx, file: f, latest: &latest, passing: f.passing(batch)}
		if err := w.write(batch, stale); err != nil {
			return err
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
	edits            [kinds]edits
	written, deleted int
}

func (w *writer) write(batch []state.Change, stale []mark) error {
	for _, kind := range state.Kinds() {
		w.buckets[kind] = w.tx.Bucket(bucketName(kind))
		w.buckets[kind].FillPercent = 0.95 // entries are appended: a page that is full stays so
	}
	for i := range batch {
		w.sort(&batch[i])
	}
	for _, m := range stale {
		w.edits[m.kind].gone = append(w.edits[m.kind].gone, m.serial)
	}
	for _, kind := range state.Kinds() {
		if err := w.kind(kind, w.edits[kind]); err != nil {
			return err
		}
	}
	return nil
}

// sort puts a change to those of its kind. They come in order of their serials.
func (w *writer) sort(c *state.Change) {
	e := &w.edits[c.Kind]
	switch {
	case w.passing[mark{c.Kind, c.Serial}]:
	case c.Gone():
		e.gone = append(e.gone, c.Serial)
	default:
		e.come = append(e.come, *c)
	}
}

// kind writes what happened to one kind, and lets others go first now and then.
func (w *writer) kind(kind state.Kind, e edits) error {
	slices.Sort(e.gone)
	size := groupSize(kind)
	for last := 0; !e.empty(); {
		if done := w.written + w.deleted; done-last >= breath {
			last = done
			runtime.Gosched()
		}
		number, first := e.next(size)
		write := w.group
		if size == 1 {
			write = w.entry
		}
		if err := write(kind, number, first); err != nil {
			return err
		}
	}
	return nil
}

// entry writes or removes what lies alone.
func (w *writer) entry(kind state.Kind, serial uint64, e edits) error {
	key := keyOf(serial)
	if len(e.gone) > 0 {
		w.deleted++
		return w.buckets[kind].Delete(key[:])
	}
	w.latest[kind] = max(w.latest[kind], serial)
	w.written++
	return w.alone(w.buckets[kind], key[:], e.come[0])
}

// alone writes one change under a key of its own.
func (w *writer) alone(bucket *bbolt.Bucket, key []byte, c state.Change) error {
	value, err := c.AppendBinary(append(w.file.arena.room(c.Size), 0, 0, 0, 0))
	if err != nil {
		return err
	}
	binary.BigEndian.PutUint32(value, checksum(key, value[4:]))
	w.file.arena.take(value)
	return bucket.Put(key, value)
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
