package bolt

import (
	"bytes"
	"errors"
	"fmt"
	"runtime/debug"
	"sync"

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
	commits uint64 // of readers, when it began
	cursors [evidence.TableCount]*bbolt.Cursor
	key     [evidence.KeySize]byte // that is looked for
	faults  bool                   // how the goroutine took faults before
	damaged error
}

// readers are transactions that wait for the next one that reads: to begin one costs more
// than what is read. A commit ends them, since it could wait for them without end.
type readers struct {
	mu      sync.Mutex
	waiting []*reader
	commits uint64 // that began and that ended: an odd number while one is under way
}

// maxWaitingReaders is how many transactions wait at most.
const maxWaitingReaders = 16

// take is a reader that waits, or else the commits of now for a new one.
func (r *readers) take() (*reader, uint64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if n := len(r.waiting); n > 0 {
		last := r.waiting[n-1]
		r.waiting = r.waiting[:n-1]
		return last, r.commits
	}
	return nil, r.commits
}

// keep lets a reader wait. False: it has to end.
func (r *readers) keep(one *reader) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.commits%2 == 1 || one.commits != r.commits || len(r.waiting) == maxWaitingReaders {
		return false
	}
	r.waiting = append(r.waiting, one)
	return true
}

// commit says that a commit begins or ends, and ends those that wait.
func (r *readers) commit() (err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.commits++
	for _, one := range r.waiting {
		err = errors.Join(err, one.tx.Rollback())
	}
	r.waiting = nil
	return err
}

var _ evidence.Disk = (*file)(nil)

// Begin begins to read evidence. A [state.UnavailableError]: the file is closed or broken.
func (f *file) Begin() (evidence.Reader, error) {
	if f.broken.Load() {
		return nil, unavailable(errBroken)
	}
	r, commits := f.readers.take()
	if r == nil {
		tx, err := f.db.Begin(false)
		if errors.Is(err, berrors.ErrDatabaseNotOpen) {
			err = ErrClosed
		}
		if err != nil {
			return nil, unavailable(err)
		}
		r = &reader{tx: tx, commits: commits}
	}
	r.faults = debug.SetPanicOnFault(true)
	return r, nil
}

// End ends reading, and makes an error of a panic, or of what was damaged.
func (f *file) End(r evidence.Reader, panicked any, err *error) {
	read, ok := r.(*reader)
	if !ok {
		return
	}
	debug.SetPanicOnFault(read.faults)
	failed := read.damaged
	if panicked != nil {
		failed = fmt.Errorf("%w: %v", errBroken, panicked)
		f.broken.Store(true)
	}
	if failed != nil || !f.readers.keep(read) {
		failed = errors.Join(failed, guard(read.tx.Rollback))
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
	sought := from.AppendBinary(r.key[:0])
	k, value := r.cursors[t].Seek(sought)
	if len(k) != evidence.KeySize {
		return key, nil, false
	}
	if bytes.Compare(k, sought) < 0 { // else a reader that goes on from there goes in a circle
		r.damaged = errors.Join(r.damaged, errOrder)
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
