package bolt_test

import (
	"context"
	"fmt"
	"runtime"
	"sync"
	"testing"
	"time"

	"go.etcd.io/bbolt"

	"github.com/aepb/aepb-gateway/gateway/state"
	"github.com/aepb/aepb-gateway/gateway/state/bolt"
	"github.com/aepb/aepb-gateway/gateway/state/statetest"
)

// entries knows how to be opened again.
type entries struct {
	*bolt.Entries
	store  *bolt.Store
	config bolt.Config
}

func openEntries(t testing.TB, config bolt.Config) entries {
	t.Helper()
	s := open(t, config)
	return entries{s.Entries(), s, config}
}

func TestEntries_Contract(t *testing.T) {
	t.Parallel()
	statetest.RunEntries(t, statetest.EntriesHarness{
		Open: func(t testing.TB, bounds state.Config) statetest.Entries {
			t.Helper()
			return openEntries(t, bolt.Config{Path: filePath(t), Bounds: bounds})
		},
		Reopen: func(t testing.TB, e statetest.Entries) statetest.Entries {
			t.Helper()
			before, ok := e.(entries)
			if !ok {
				t.Fatal("not what was opened")
			}
			closed(t, before.store)
			return openEntries(t, before.config)
		},
	})
}

func entryKey(n int) state.EntryKey {
	return state.EntryKey{Kind: "task", Group: fmt.Sprint(n % 7), ID: fmt.Sprint(n)}
}

// A swap that was acknowledged survives a power cut at that moment, and so does
// whatever anybody was told of it.
func TestEntries_AreOnDiskWhenAcknowledged(t *testing.T) {
	t.Parallel()
	path := filePath(t)
	s := open(t, bolt.Config{Path: path, FlushEvery: time.Second})
	e := s.Entries()
	revision, ok, err := e.Swap(t.Context(), entryKey(1), 0, []byte("one"), time.Now().Add(time.Hour))
	if !ok || err != nil {
		t.Fatal(ok, err)
	}
	wantEntryLeft(t, powerCut(t, path), revision)
	// Written, and not yet acknowledged to the writer: nobody reads it before it is on disk.
	revision, _, err = s.Memory.Entries().Swap(t.Context(), entryKey(1), revision, []byte("two"), time.Now().Add(time.Hour))
	if err != nil {
		t.Fatal(err)
	}
	if got, ok, err := e.Get(t.Context(), entryKey(1)); !ok || err != nil || got.Revision != revision {
		t.Fatal(got, ok, err)
	}
	wantEntryLeft(t, powerCut(t, path), revision)
	if err := e.Delete(t.Context(), entryKey(1)); err != nil {
		t.Fatal(err)
	}
	wantEntryLeft(t, powerCut(t, path), 0)
}

func wantEntryLeft(t *testing.T, path string, revision uint64) {
	t.Helper()
	left := open(t, bolt.Config{Path: path})
	if got, _, err := left.Entries().Get(t.Context(), entryKey(1)); err != nil || got.Revision != revision {
		t.Errorf("left is %+v, %v, want revision %d", got, err, revision)
	}
}

// Writers that come together share a commit: those who come while one is under way.
func TestEntries_WritersShareACommit(t *testing.T) {
	t.Parallel()
	const writers = 32
	s := open(t, bolt.Config{Path: filePath(t), FlushEvery: time.Second})
	e := s.Entries()
	before := s.Stats().Commits
	disk, err := s.DB().Begin(true) // nobody else writes until it ends
	if err != nil {
		t.Fatal(err)
	}
	var group sync.WaitGroup
	for n := range writers {
		group.Go(func() {
			if _, ok, err := e.Swap(t.Context(), entryKey(n), 0, []byte("one"), time.Now().Add(time.Hour)); !ok || err != nil {
				t.Error(ok, err)
			}
		})
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	for n := range writers { // until all have written, and wait
		for written := false; !written && ctx.Err() == nil; runtime.Gosched() {
			if _, written, err = s.Memory.Entries().Get(t.Context(), entryKey(n)); err != nil {
				t.Fatal(err)
			}
		}
	}
	if ctx.Err() != nil {
		t.Error("writers wait for one another")
	}
	if err := disk.Rollback(); err != nil {
		t.Fatal(err)
	}
	group.Wait()
	if commits := s.Stats().Commits - before; commits > writers/4 {
		t.Errorf("%d commits for %d writers", commits, writers)
	}
}

// TestOpen_FilesOfOtherFormats: a file of an earlier or later format is refused as such,
// and one that lost its entries as damaged.
func TestOpen_FilesOfOtherFormats(t *testing.T) {
	t.Parallel()
	for format, want := range map[byte]bolt.Reason{1: bolt.ReasonFormat, 4: bolt.ReasonFormat, 5: bolt.ReasonCorrupt, 6: bolt.ReasonCorrupt, 7: bolt.ReasonCorrupt, 8: bolt.ReasonFormat} {
		path := filePath(t)
		s := open(t, bolt.Config{Path: path})
		put(t, s, 1)
		closed(t, s)
		db, err := bbolt.Open(path, 0o600, nil)
		if err != nil {
			t.Fatal(err)
		}
		err = db.Update(func(tx *bbolt.Tx) error {
			if err := tx.DeleteBucket([]byte("entries")); err != nil {
				return err
			}
			return tx.Bucket([]byte("meta")).Put([]byte("format"), bolt.Seal("format", []byte{format}))
		})
		if err != nil || db.Close() != nil {
			t.Fatal(err)
		}
		wantOpenError(t, path, want)
	}
}
