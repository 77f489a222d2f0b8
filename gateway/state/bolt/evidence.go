package bolt

import (
	"errors"
	"fmt"
	"runtime/debug"

	"go.etcd.io/bbolt"
	berrors "go.etcd.io/bbolt/errors"

	"github.com/aepb/aepb-gateway/gateway/state/evidence"
)

// evidenceBucket is the name of the bucket of a table of evidence. It has the table's keys,
// and a checksum before each value.
func evidenceBucket(t evidence.Table) []byte { return fmt.Appendf(nil, "evidence %d", t) }

// reader reads evidence in one transaction.
type reader struct {
	tx      *bbolt.Tx
	faults  bool // how the goroutine took faults before
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
	bucket := r.tx.Bucket(evidenceBucket(t))
	if bucket == nil { // the file is new
		return nil, false
	}
	k := key.AppendBinary(make([]byte, 0, evidence.KeySize))
	sealed := bucket.Get(k)
	if sealed == nil {
		return nil, false
	}
	return r.unseal(k, sealed)
}

func (r *reader) unseal(key, sealed []byte) (value []byte, ok bool) {
	value, err := unseal(key, sealed)
	r.damaged = errors.Join(r.damaged, err)
	return value, err == nil
}

// Next finds the first key that is not less, and its value.
func (r *reader) Next(t evidence.Table, from evidence.Key) (key evidence.Key, value []byte, found bool) {
	bucket := r.tx.Bucket(evidenceBucket(t))
	if bucket == nil {
		return key, nil, false
	}
	k, sealed := bucket.Cursor().Seek(from.AppendBinary(make([]byte, 0, evidence.KeySize)))
	if len(k) != evidence.KeySize {
		return key, nil, false
	}
	if t < evidence.Terms {
		value, found = r.unseal(k, sealed)
		return evidence.ReadKey(k), value, found
	}
	return evidence.ReadKey(k), nil, true
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
	return changes(func(t evidence.Table, key evidence.Key, value []byte) error {
		w.pause()
		k := key.AppendBinary(make([]byte, 0, evidence.KeySize))
		switch {
		case value == nil:
			if t == evidence.Records {
				w.deleted++
			}
			return buckets[t].Delete(k)
		case t < evidence.Terms:
			value = seal(k, value)
		}
		if t == evidence.Records {
			w.written++
		}
		return buckets[t].Put(k, value)
	})
}
