package bolt

import (
	"encoding/binary"
	"hash/crc32"
	"runtime"
	"slices"

	"go.etcd.io/bbolt"

	"github.com/aepb/aepb-gateway/gateway/state"
)

// breath is after how many changes the writer yields to other goroutines, which have requests
// waiting: some 0.1 ms of work. The scheduler would let it run for 10 ms.
const breath = 64

// write is one group commit.
func (f *file) write(batch []state.Change, stale []mark, changes evidenceChanges, clean bool) (written, deleted int, err error) {
	w := writer{settled: f.settled}
	if !f.unsure {
		batch = lasting(batch)
	}
	err = f.update(func(tx *bbolt.Tx) error {
		w.tx = tx
		f.size = tx.Size()
		if err := w.write(batch, stale); err != nil {
			return err
		}
		if changes != nil {
			if err := w.evidence(changes); err != nil {
				return err
			}
		}
		if clean {
			return tx.Bucket([]byte(metaBucket)).Put([]byte(keyClean), seal([]byte(keyClean), nil))
		}
		return nil
	})
	if f.unsure = err != nil; f.unsure {
		return 0, 0, err
	}
	f.settled = w.settled
	return w.written, w.deleted, nil
}

// lasting leaves out what comes and leaves within one batch: the disk need not hear of it.
func lasting(batch []state.Change) []state.Change {
	came, passing := map[mark]bool{}, map[mark]bool{}
	for _, c := range batch {
		at := mark{c.Kind, c.Serial}
		passing[at] = came[at]
		came[at] = !c.Gone()
	}
	return slices.DeleteFunc(slices.Clone(batch), func(c state.Change) bool { return passing[mark{c.Kind, c.Serial}] })
}

// writer writes one batch.
type writer struct {
	tx               *bbolt.Tx
	settled          uint64 // the latest entry on disk after this
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
		if c.Gone() {
			if err := w.remove(mark{c.Kind, c.Serial}); err != nil {
				return err
			}
		} else if err := w.put(c); err != nil {
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
	if c.Kind == state.KindEntry {
		w.settled = max(w.settled, c.Serial)
	}
	key := keyOf(c.Serial)
	value, err := c.AppendBinary(make([]byte, 4, 4+c.Size))
	if err != nil {
		return err
	}
	binary.BigEndian.PutUint32(value, checksum(key[:], value[4:]))
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
	value := binary.BigEndian.AppendUint32(make([]byte, 0, 4+len(content)), checksum(key, content))
	return append(value, content...)
}

func unseal(key, value []byte) ([]byte, error) {
	if len(value) < 4 || binary.BigEndian.Uint32(value) != checksum(key, value[4:]) {
		return nil, errChecksum
	}
	return value[4:], nil
}
