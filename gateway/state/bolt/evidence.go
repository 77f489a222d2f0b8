package bolt

import (
	"errors"
	"fmt"
	"runtime/debug"

	"go.etcd.io/bbolt"
	berrors "go.etcd.io/bbolt/errors"

	"github.com/aepb/aepb-gateway/gateway/state/evidence"
)

// evidenceBucket is the name of the bucket of a table of evidence. It has the table's keys.
// What is said of a workflow, and of a holder, is beside the list of its records, so that
// one page changes for both; their keys differ, because no serial is zero. Oldest has the
// keys of Begun.
func evidenceBucket(t evidence.Table) []byte {
	const ends = "abcdefghijcegm" // by table, as evidence.Table has them
	return append([]byte("evidence "), ends[t])
}

// sealed are the tables whose values have a checksum before them: what an auditor is shown,
// and what says who may write to a workflow.
func sealed(t evidence.Table) bool {
	return t == evidence.Records || t == evidence.Headers || t == evidence.Workflows
}

// reader reads evidence in one transaction.
type reader struct {
	tx      *bbolt.Tx
	cursors [evidence.TableCount]*bbolt.Cursor
	key     [evidence.KeySize]byte // that is looked for
	faults  bool                   // how the goroutine took faults before
	damaged error
}

var _ evidence.Disk = (*file)(nil)

// Begin begins to read evidence. A [state.UnavailableError]: the file is closed or broken.
func (f *file) Begin() (evidence.Reader, error) {
	if f.broken.Load() {
		return nil, unavailable(errBroken)
	}
	tx, err := f.db.Begin(false)
	if errors.Is(err, berrors.ErrDatabaseNotOpen) {
		err = ErrClosed
	}
	if err != nil {
		return nil, unavailable(err)
	}
	return &reader{tx: tx, faults: debug.SetPanicOnFault(true)}, nil
}

// End ends a transaction, and makes an error of a panic, or of what was damaged.
func (f *file) End(r evidence.Reader, panicked any, err *error) {
	read, ok := r.(*reader)
	if !ok {
		return
	}
	debug.SetPanicOnFault(read.faults)
	failed := errors.Join(guard(read.tx.Rollback), read.damaged)
	if panicked != nil {
		failed = fmt.Errorf("%w: %v", errBroken, panicked)
		f.broken.Store(true)
	}
	if errors.Is(*err, evidence.ErrUnreadable) {
		failed = errors.Join(failed, *err)
	}
	if failed != nil {
		*err = unavailable(failed)
	}
}

// Get finds a value.
func (r *reader) Get(t evidence.Table, key evidence.Key) (value []byte, found bool) {
	if at, value, found := r.Next(t, key); found && at == key {
		return value, true
	}
	return nil, false
}

// Next finds the first key that is not less, and its value.
func (r *reader) Next(t evidence.Table, from evidence.Key) (key evidence.Key, value []byte, found bool) {
	if r.cursors[t] == nil {
		bucket := r.tx.Bucket(evidenceBucket(t))
		if bucket == nil { // the file is new
			return key, nil, false
		}
		r.cursors[t] = bucket.Cursor()
	}
	k, value := r.cursors[t].Seek(from.AppendBinary(r.key[:0]))
	if len(k) != evidence.KeySize {
		return key, nil, false
	}
	if key = evidence.ReadKey(k); sealed(t) {
		content, err := unseal(k, value)
		r.damaged = errors.Join(r.damaged, err)
		return key, content, err == nil
	}
	return key, value, true
}

// evidenceChanges passes changes on to a function.
type evidenceChanges func(each func(evidence.Table, evidence.Key, []byte) error) error

// evidence writes changes of evidence. What comes in order is packed densely.
func (w *writer) evidence(changes evidenceChanges) error {
	var buckets [evidence.TableCount]*bbolt.Bucket
	for t := range buckets {
		buckets[t] = w.tx.Bucket(evidenceBucket(evidence.Table(t)))
	}
	buckets[evidence.Records].FillPercent, buckets[evidence.Terms].FillPercent = 0.95, 0.95
	var k [evidence.KeySize]byte
	return changes(func(t evidence.Table, key evidence.Key, value []byte) error {
		if t == evidence.Oldest {
			return nil
		}
		w.pause()
		key.AppendBinary(k[:0])
		if value == nil {
			if t == evidence.Records {
				w.deleted++
			}
			return buckets[t].Delete(k[:])
		}
		if t == evidence.Records {
			w.written++
		}
		if sealed(t) {
			value = seal(k[:], value)
		}
		return buckets[t].Put(k[:], value)
	})
}
