package bolt

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"runtime/debug"
	"slices"
	"sync/atomic"
	"syscall"
	"time"

	"go.etcd.io/bbolt"
	berrors "go.etcd.io/bbolt/errors"

	"github.com/aepb/aepb-gateway/gateway/state"
	"github.com/aepb/aepb-gateway/gateway/state/evidence"
)

// pageSize of new files: each change of an index writes a page of it anew.
const pageSize = 4 << 10

// lockWait is how long Open waits for another process to let go of the file.
const lockWait = 2 * time.Second

// The bucket of what is said about the others, and its keys.
const (
	metaBucket = "meta"
	keyFormat  = "format" // one byte
	keyEpoch   = "epoch"  // an instant
	keyClean   = "clean"  // there after a clean end, and empty
)

// kinds is how many kinds of state there are.
const kinds = 5

var _ [kinds]state.Kind = state.Kinds()

// format is the number of this layout and of what is kept (gateway/state,
// codec.go). Files from the earliest format on are read: in 5 the indexes of evidence are
// written with each record, and until 6 no member of a workflow is in the value of the
// workflow. Files of other formats are refused.
const (
	format   = 7
	earliest = 5
)

// mark names an entry on disk.
type mark struct {
	kind   state.Kind
	serial uint64
}

// meta is what the process before said about the file.
type meta struct {
	known bool // there was a process before
	clean bool // it ended in good order
	epoch time.Time
}

// file is a bbolt file of ours. One goroutine writes to it; view is safe for concurrent use.
type file struct {
	path    string
	db      *bbolt.DB
	handle  *os.File    // the one that bbolt writes to
	broken  atomic.Bool // bbolt gave up in the middle, with its locks held
	known   bool        // there was a process before
	settled uint64      // the latest entry on disk
	size    int64       // how many bytes of the file are in use, all of them mapped
	unsure  bool        // the last commit failed, and parts of it may be there all the same
	readers readers
}

// openFile opens the file, or makes it.
func openFile(path string) (*file, error) {
	f := &file{path: path}
	info, err := os.Stat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		return nil, f.openError(err)
	case !info.Mode().IsRegular():
		return nil, f.openError(errors.New("not a regular file"))
	}
	if err := damage(f.open()); err != nil {
		return nil, f.openError(err)
	}
	return f, nil
}

// damage is what an error in reading means, unless another process or the
// system says otherwise: the file is not as it was written.
func damage(err error) error {
	switch {
	case err == nil, errors.As(err, new(*fs.PathError)), errors.As(err, new(syscall.Errno)),
		errors.Is(err, berrors.ErrTimeout), errors.Is(err, berrors.ErrVersionMismatch), errors.Is(err, errCorrupt):
		return err
	default:
		return fmt.Errorf("%w: %w", errCorrupt, err)
	}
}

func (f *file) open() error {
	err := guard(func() (err error) {
		f.db, err = bbolt.Open(f.path, 0o600, &bbolt.Options{
			PageSize: pageSize, Timeout: lockWait, FreelistType: bbolt.FreelistMapType, NoStatistics: true,
			OpenFile: func(name string, flag int, perm os.FileMode) (*os.File, error) {
				opened, err := os.OpenFile(name, flag, perm)
				f.handle = opened
				return opened, err
			},
		})
		return err
	})
	if errors.Is(err, errBroken) && f.handle != nil {
		return errors.Join(err, f.handle.Close()) // and with it the lock
	}
	return err
}

// openError says to whom a failure belongs.
func (f *file) openError(err error) error {
	reason := ReasonInaccessible
	if unavailable, ok := errors.AsType[*state.UnavailableError](err); ok {
		err = unavailable.Err // it says to callers what they lack, and no operator what to do
	}
	switch {
	case errors.Is(err, berrors.ErrTimeout):
		reason = ReasonLocked
	case errors.Is(err, errNotOurs), errors.Is(err, berrors.ErrVersionMismatch):
		reason = ReasonFormat
	case errors.Is(err, errCorrupt), errors.Is(err, errBroken):
		reason = ReasonCorrupt
	}
	return &OpenError{Path: f.path, Reason: reason, Err: err}
}

// guard makes errors of bbolt's panics, and of the fault that follows when a
// file is cut short under its mapping. What it guarded is not used again.
func guard(do func() error) (err error) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		if cause := recover(); cause != nil {
			err = fmt.Errorf("%w: %v", errBroken, cause)
		}
	}()
	return do()
}

// readMeta reads what the process before said. A file without a single bucket
// is new: it was made, and then nothing came of it.
func (f *file) readMeta() (m meta, err error) {
	err = f.view(func(tx *bbolt.Tx) error {
		if info, err := f.handle.Stat(); err != nil || tx.Size() > info.Size() {
			return errors.Join(err, corrupt("it is shorter than it was written"))
		}
		b := tx.Bucket([]byte(metaBucket))
		if b == nil {
			if first, _ := tx.Cursor().First(); first != nil {
				return errNotOurs
			}
			return nil
		}
		number, err := unseal([]byte(keyFormat), b.Get([]byte(keyFormat)))
		if err != nil {
			return err
		}
		if len(number) != 1 || number[0] < earliest || number[0] > format {
			return fmt.Errorf("%w: format %x, not %d to %d", errNotOurs, number, earliest, format)
		}
		epoch, err := unseal([]byte(keyEpoch), b.Get([]byte(keyEpoch)))
		if err != nil {
			return err
		}
		if ended := b.Get([]byte(keyClean)); ended != nil {
			m.clean = true
			_, err = unseal([]byte(keyClean), ended)
		}
		m.known, f.known = true, true
		return errors.Join(err, m.epoch.UnmarshalBinary(epoch))
	})
	return m, err
}

// load passes all entries on, of each kind in the order of their serials. The
// bytes are bbolt's.
func (f *file) load(each func(mark, []byte) error) error {
	return f.view(func(tx *bbolt.Tx) error {
		if !f.known {
			return nil
		}
		for t := range evidence.TableCount { // it is read when it is asked for
			if name := evidenceBucket(evidence.Table(t)); tx.Bucket(name) == nil {
				return corrupt("there is no %s", name)
			}
		}
		for _, kind := range ownBuckets() {
			b := tx.Bucket([]byte(kind.String()))
			if b == nil {
				return corrupt("there are no %s", kind)
			}
			if err := f.loadKind(kind, b, each); err != nil {
				return err
			}
		}
		return nil
	})
}

func (f *file) loadKind(kind state.Kind, b *bbolt.Bucket, each func(mark, []byte) error) error {
	return b.ForEach(func(key, value []byte) error {
		if len(key) != 8 || value == nil {
			return corrupt("%s: a key of %d bytes", kind, len(key))
		}
		serial := binary.BigEndian.Uint64(key)
		content, err := unseal(key, value)
		if err != nil {
			return fmt.Errorf("%s %d: %w", kind, serial, err)
		}
		if kind == state.KindEntry {
			f.settled = serial
		}
		return each(mark{kind: kind, serial: serial}, content)
	})
}

// ownBuckets are the kinds with a bucket of their name: all but evidence.
func ownBuckets() []state.Kind {
	kinds := state.Kinds()
	return slices.DeleteFunc(kinds[:], func(kind state.Kind) bool { return kind == state.KindToken })
}

// begin takes the mark of a clean end away, before anything else happens.
func (f *file) begin(epoch time.Time) error {
	instant, err := epoch.UTC().MarshalBinary()
	if err != nil {
		return err
	}
	return f.update(func(tx *bbolt.Tx) error {
		names := [][]byte{[]byte(blobBucket), []byte(blobBytesBucket)}
		for _, kind := range ownBuckets() {
			names = append(names, []byte(kind.String()))
		}
		for t := range evidence.TableCount {
			names = append(names, evidenceBucket(evidence.Table(t)))
		}
		for _, name := range names {
			if _, err := tx.CreateBucketIfNotExists(name); err != nil {
				return err
			}
		}
		b, err := tx.CreateBucketIfNotExists([]byte(metaBucket))
		if err != nil {
			return err
		}
		return errors.Join(
			b.Put([]byte(keyFormat), seal([]byte(keyFormat), []byte{format})),
			b.Put([]byte(keyEpoch), seal([]byte(keyEpoch), instant)),
			b.Delete([]byte(keyClean)),
		)
	})
}

func (f *file) view(do func(*bbolt.Tx) error) error {
	return f.run(func() error { return f.db.View(do) })
}

func (f *file) update(do func(*bbolt.Tx) error) error {
	return f.run(func() error {
		err := errors.Join(f.readers.commit(), f.db.Update(do))
		return errors.Join(err, f.readers.commit())
	})
}

// run runs a transaction. If bbolt gives up in its middle, it may hold its
// locks for ever, so that it must not be asked again.
func (f *file) run(transaction func() error) error {
	if f.broken.Load() {
		return errBroken
	}
	err := guard(transaction)
	if errors.Is(err, errBroken) {
		f.broken.Store(true)
	}
	return err
}

// close lets go of the file.
func (f *file) close() error {
	if f.broken.Load() {
		return f.handle.Close()
	}
	return errors.Join(f.readers.commit(), f.db.Close())
}
