package bolt

import (
	"bytes"
	"context"
	"errors"
	"sync"
	"time"

	"go.etcd.io/bbolt"
	berrors "go.etcd.io/bbolt/errors"

	"github.com/aepb/aepb-gateway/gateway/state"
)

// Blobs are [state.Blobs] whose bytes are in the file alone; in memory is which there are. Put, Replace and
// Delete are transactions of their own, which the goroutine that writes to the file makes between
// its commits, and return when they are on disk. [state.UnavailableError]: the change may be
// written or not.
type Blobs struct {
	store *Store
	file  *file
	now   func() time.Time

	// The owner's alone.
	serial uint64 // of the latest blob
	unsure bool   // a transaction failed, and parts of it may be there all the same

	mu    sync.RWMutex // the owner alone writes
	index *state.BlobIndex[uint64]
}

var _ state.Blobs = (*Blobs)(nil)

// Blobs are kept beside the rest, as entries are.
func (s *Store) Blobs() *Blobs { return s.blobs }

const (
	// purgeAtOnce is how many expired blobs one transaction deletes.
	purgeAtOnce = 256
	// purgesAtOnce is how many such transactions are made at one go when no blob has to come.
	purgesAtOnce = 4
)

// newBlobs reads which blobs there are. It trusts the file beyond the bounds: those may have become
// smaller, and no blob leaves before its end.
func newBlobs(s *Store, config Config, f *file) (*Blobs, error) {
	b := &Blobs{store: s, file: f, now: s.now, index: state.NewBlobIndex[uint64](config.Blobs)}
	err := f.loadBlobs(func(info state.BlobInfo, serial uint64) {
		b.serial = max(b.serial, serial)
		b.index.Add(info, serial)
	})
	return b, err
}

// Put writes once, as [state.Blobs] explains it.
func (b *Blobs) Put(ctx context.Context, key state.BlobKey, value []byte, until time.Time) error {
	return b.Replace(ctx, key, nil, value, until)
}

// Replace is Put that also takes the place of was, as [state.MemoryBlobs.Replace] does.
func (b *Blobs) Replace(ctx context.Context, key state.BlobKey, was, value []byte, until time.Time) error {
	was, value = bytes.Clone(was), append([]byte{}, value...) // the caller may go before the owner is done
	return b.change(ctx, func() error { return b.put(key, was, value, until) })
}

// Delete removes a blob, as [state.Blobs] explains it.
func (b *Blobs) Delete(ctx context.Context, key state.BlobKey) error {
	return b.change(ctx, func() error { return b.remove(key) })
}

// Get finds a blob, as [state.Blobs] explains it.
func (b *Blobs) Get(_ context.Context, key state.BlobKey) (value []byte, until time.Time, found bool, err error) {
	info, serial, found := b.find(key)
	if !found {
		return nil, time.Time{}, false, nil
	}
	value, err = b.file.readBlob(serial)
	if err == nil && value != nil {
		return value, info.Until, true, nil
	}
	if _, now, still := b.find(key); err == nil && (!still || now != serial) {
		return nil, time.Time{}, false, nil // it left meanwhile
	}
	if err == nil {
		err = corrupt("a blob has no bytes")
	}
	return nil, time.Time{}, false, unavailable(err)
}

// List lists blobs, as [state.Blobs] explains it.
func (b *Blobs) List(_ context.Context, group, after string, limit int) ([]state.BlobInfo, error) {
	b.mu.RLock()
	defer b.mu.RUnlock()
	return b.index.List(group, after, limit, b.now()), nil
}

// Usage says how full the store is.
func (b *Blobs) Usage() state.Usage {
	b.mu.RLock()
	defer b.mu.RUnlock()
	return b.index.Usage()
}

func (b *Blobs) find(key state.BlobKey) (info state.BlobInfo, serial uint64, found bool) {
	b.mu.RLock()
	defer b.mu.RUnlock()
	return b.index.Find(key, b.now())
}

// indexed changes the index.
func (b *Blobs) indexed(do func(*state.BlobIndex[uint64])) {
	b.mu.Lock()
	defer b.mu.Unlock()
	do(b.index)
}

// change has the owner make a change, and waits for it, but not for a disk that hangs.
func (b *Blobs) change(ctx context.Context, do func() error) error {
	limited, cancel := context.WithTimeoutCause(ctx, longestWait, errQueueFull)
	defer cancel()
	reply := make(chan error, 1)
	select {
	case b.store.owner.works <- work{do, reply}:
	case <-b.store.owner.done:
		return unavailable(ErrClosed)
	case <-limited.Done():
		return tooLate(ctx)
	}
	select {
	case err := <-reply:
		return err
	case <-limited.Done():
		return tooLate(ctx)
	}
}

// tooLate says why a change is not waited for any longer.
func tooLate(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	return unavailable(errQueueFull)
}

// put is Put in the owner's goroutine.
func (b *Blobs) put(key state.BlobKey, was, value []byte, until time.Time) error {
	if info, serial, found := b.find(key); found {
		return b.prolong(info, serial, was, value, until)
	}
	if err := b.makeSpace(key, len(value)); err != nil {
		return err
	}
	serial, info := b.serial+1, state.BlobInfo{Key: key, Size: len(value), Until: until}
	if err := b.write(func(tx *bbolt.Tx) error { return putBlob(tx, info, serial, value) }); err != nil {
		return err
	}
	b.serial = serial
	b.indexed(func(x *state.BlobIndex[uint64]) { x.Add(info, serial) })
	return nil
}

// prolong is put where there is a blob of this name: it is on disk, and may get a later end.
func (b *Blobs) prolong(info state.BlobInfo, serial uint64, was, value []byte, until time.Time) error {
	stored, err := b.file.readBlob(serial)
	switch {
	case err == nil && stored == nil:
		return unavailable(corrupt("a blob has no bytes"))
	case err != nil:
		return unavailable(err)
	case !state.SameBlob(stored, was, value):
		return &state.BlobTakenError{Key: state.BlobKey{Group: info.Key.Group, ID: info.Key.ID}}
	case !until.After(info.Until):
		return nil
	}
	info.Until = until
	if bytes.Equal(stored, value) {
		value = nil // it stays as it is
	}
	if err := b.write(func(tx *bbolt.Tx) error { return putBlob(tx, info, serial, value) }); err != nil {
		return err
	}
	b.indexed(func(x *state.BlobIndex[uint64]) { x.Prolong(info.Key, serial, until) })
	return nil
}

// makeSpace deletes what has expired as far as needed for one more blob.
func (b *Blobs) makeSpace(key state.BlobKey, size int) error {
	for {
		full := b.index.Admit(key, size)
		if full == nil {
			return nil
		}
		switch purged, err := b.purge(); {
		case err != nil:
			return err
		case purged == 0:
			return full
		}
	}
}

// purge deletes blobs that have expired, a bounded number.
func (b *Blobs) purge() (purged int, err error) {
	var expired []state.IndexedBlob[uint64]
	b.indexed(func(x *state.BlobIndex[uint64]) { expired = x.TakeExpired(b.now(), purgeAtOnce) })
	if len(expired) == 0 {
		return 0, nil
	}
	err = b.write(func(tx *bbolt.Tx) error {
		for _, one := range expired {
			if err := deleteBlob(tx, one.Key); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil { // they take space until they have left the disk
		b.indexed(func(x *state.BlobIndex[uint64]) {
			for _, one := range expired {
				x.Add(one.BlobInfo, one.Data)
			}
		})
		return 0, err
	}
	return len(expired), nil
}

// sweep purges what expired while no blob came. What fails is tried again by the next.
func (b *Blobs) sweep() {
	for range purgesAtOnce {
		if purged, err := b.purge(); err != nil || purged < purgeAtOnce {
			return
		}
	}
}

// remove is Delete in the owner's goroutine.
func (b *Blobs) remove(key state.BlobKey) error {
	if _, _, found := b.find(key); !found && !b.unsure {
		return nil
	}
	if err := b.write(func(tx *bbolt.Tx) error { return deleteBlob(tx, key) }); err != nil {
		return err
	}
	b.indexed(func(x *state.BlobIndex[uint64]) { x.Remove(key) })
	return nil
}

// write makes one transaction. What failed may be on disk, and is found there by the next change of
// the same blob, or by the next start.
func (b *Blobs) write(do func(*bbolt.Tx) error) error {
	if err := b.file.update(do); err != nil {
		b.unsure = true
		if errors.Is(err, berrors.ErrDatabaseNotOpen) {
			err = ErrClosed
		}
		return unavailable(err)
	}
	return nil
}
