package bolt_test

import (
	"bytes"
	"context"
	"errors"
	"os"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.etcd.io/bbolt"

	"github.com/aepb/aepb-gateway/gateway/state"
	"github.com/aepb/aepb-gateway/gateway/state/bolt"
	"github.com/aepb/aepb-gateway/gateway/state/seal"
	"github.com/aepb/aepb-gateway/gateway/state/statetest"
)

// blobs know how to be opened again.
type blobs struct {
	state.Blobs

	store  *bolt.Store
	config bolt.Config
	sealed bool
}

func openBlobs(t testing.TB, config bolt.Config, sealed bool) blobs {
	t.Helper()
	s := open(t, config)
	b := blobs{s.Blobs(), s, config, sealed}
	if sealed {
		b.Blobs = seal.NewBlobs(s.Blobs(), box(t))
	}
	return b
}

func box(t testing.TB) *seal.Box {
	t.Helper()
	made, err := seal.NewBox(seal.Deps{}, bytes.Repeat([]byte{7}, seal.KeySize))
	if err != nil {
		t.Fatal(err)
	}
	return made
}

func TestBlobs_KeepTheContract(t *testing.T) {
	t.Parallel()
	for name, overhead := range map[string]int{"in the clear": 0, "sealed": seal.Overhead} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			statetest.RunBlobs(t, statetest.BlobsHarness{
				Overhead: overhead,
				Open: func(t testing.TB, bounds state.BlobBounds) state.Blobs {
					t.Helper()
					return openBlobs(t, bolt.Config{Path: filePath(t), Blobs: bounds}, overhead > 0)
				},
				Reopen: func(t testing.TB, b state.Blobs) state.Blobs {
					t.Helper()
					before, ok := b.(blobs)
					if !ok {
						t.Fatal("not what was opened")
					}
					closed(t, before.store)
					return openBlobs(t, before.config, before.sealed)
				},
			})
		})
	}
}

func TestBlobs_Replace(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		config := bolt.Config{Path: filePath(t)}
		s := open(t, config)
		statetest.RunReplace(t, s.Blobs())
		closed(t, s)
		if got, _, found, err := open(t, config).Blobs().Get(t.Context(), blobKey("replaced")); string(got) != "two" || !found || err != nil {
			t.Errorf("after a restart: %q, %v, %v", got, found, err)
		}
	})
}

func blobKey(id string) state.BlobKey { return state.BlobKey{Group: "w", ID: id, Owner: "owner"} }

func hence() time.Time { return time.Now().Add(time.Hour) }

// A blob that was acknowledged survives a power cut at that moment, and so do its later end and its deletion.
func TestBlobs_AreOnDiskWhenAcknowledged(t *testing.T) {
	t.Parallel()
	path, until := filePath(t), hence()
	b := open(t, bolt.Config{Path: path, FlushEvery: time.Second}).Blobs()
	left := func(want bool, until time.Time) {
		t.Helper()
		value, end, found, err := open(t, bolt.Config{Path: powerCut(t, path)}).Blobs().Get(t.Context(), blobKey("1"))
		if err != nil || found != want || want && (string(value) != "one" || !end.Equal(until)) {
			t.Errorf("left is %q until %v, %v, %v", value, end, found, err)
		}
	}
	for _, end := range []time.Time{until, until.Add(time.Minute)} {
		if err := b.Put(t.Context(), blobKey("1"), []byte("one"), end); err != nil {
			t.Fatal(err)
		}
		left(true, end)
	}
	if err := b.Delete(t.Context(), blobKey("1")); err != nil {
		t.Fatal(err)
	}
	left(false, time.Time{})
}

// Expired blobs leave the disk without a write that asks for it, and their space is used again.
func TestBlobs_ExpiredLeaveTheDisk(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := open(t, bolt.Config{Path: filePath(t)})
		for n := range 20 {
			key := blobKey(strconv.Itoa(n))
			if err := s.Blobs().Put(t.Context(), key, make([]byte, 10<<10), time.Now().Add(time.Second)); err != nil {
				t.Fatal(err)
			}
		}
		if got := s.BlobsOnDisk(t); got != [2]int{20, 20} {
			t.Errorf("records and values on disk: %v", got)
		}
		time.Sleep(3 * time.Second)
		if u := s.Blobs().Usage(); u != (state.Usage{}) {
			t.Errorf("usage after the end: %+v", u)
		}
		if got := s.BlobsOnDisk(t); got != [2]int{} {
			t.Errorf("records and values on disk after the end: %v", got)
		}
	})
}

// A file of a gateway that kept no blobs yet opens, and a file that lost one of the two buckets does not.
func TestBlobs_FileWithoutBuckets(t *testing.T) {
	t.Parallel()
	for missing, want := range map[string]bolt.Reason{"blobs,blob bytes": "", "blobs": bolt.ReasonCorrupt, "blob bytes": bolt.ReasonCorrupt} {
		config := bolt.Config{Path: filePath(t)}
		s := open(t, config)
		put(t, s, 1)
		closed(t, s)
		edit(t, config.Path, func(tx *bbolt.Tx) error {
			var errs []error
			for name := range strings.SplitSeq(missing, ",") {
				errs = append(errs, tx.DeleteBucket([]byte(name)))
			}
			return errors.Join(errs...)
		})
		if want != "" {
			wantOpenError(t, config.Path, want)
			continue
		}
		s = open(t, config)
		if !has(t, s, 1) {
			t.Error("evidence of an old file is lost")
		}
		if err := s.Blobs().Put(t.Context(), blobKey("1"), []byte("x"), hence()); err != nil {
			t.Errorf("put into an old file: %v", err)
		}
	}
}

func edit(t *testing.T, path string, change func(*bbolt.Tx) error) {
	t.Helper()
	db, err := bbolt.Open(path, 0o600, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(db.Update(change), db.Close()); err != nil {
		t.Fatal(err)
	}
}

// A record that was changed keeps the file from opening. Bytes that were changed are not read.
func TestBlobs_Damaged(t *testing.T) {
	t.Parallel()
	for bucket, opens := range map[string]bool{"blobs": false, "blob bytes": true} {
		path := filePath(t)
		s := open(t, bolt.Config{Path: path})
		if err := s.Blobs().Put(t.Context(), blobKey("1"), []byte("value"), hence()); err != nil {
			t.Fatal(err)
		}
		closed(t, s)
		edit(t, path, func(tx *bbolt.Tx) error {
			key, value := tx.Bucket([]byte(bucket)).Cursor().First()
			changed := bytes.Clone(value)
			changed[len(changed)-1] ^= 1
			return tx.Bucket([]byte(bucket)).Put(key, changed)
		})
		if !opens {
			wantOpenError(t, path, bolt.ReasonCorrupt)
			continue
		}
		b := open(t, bolt.Config{Path: path}).Blobs()
		_, _, found, err := b.Get(t.Context(), blobKey("1"))
		if found || !errors.As(err, new(*state.UnavailableError)) {
			t.Errorf("damaged bytes: %v, %v", found, err)
		}
		if err := b.Put(t.Context(), blobKey("1"), []byte("value"), hence()); !errors.As(err, new(*state.UnavailableError)) {
			t.Errorf("put where the bytes are damaged: %v", err)
		}
		if err := b.Delete(t.Context(), blobKey("1")); err != nil {
			t.Error(err)
		}
	}
}

// A store that is closed refuses, and waits for nothing.
func TestBlobs_Closed(t *testing.T) {
	t.Parallel()
	s := open(t, bolt.Config{Path: filePath(t)})
	if err := s.Blobs().Put(t.Context(), blobKey("1"), nil, hence()); err != nil {
		t.Fatal(err)
	}
	closed(t, s)
	_, _, _, err := s.Blobs().Get(t.Context(), blobKey("1"))
	for what, err := range map[string]error{
		"get": err, "put": s.Blobs().Put(t.Context(), blobKey("2"), nil, hence()), "delete": s.Blobs().Delete(t.Context(), blobKey("1")),
	} {
		if !errors.Is(err, bolt.ErrClosed) {
			t.Errorf("%s: %v", what, err)
		}
	}
}

// A disk that hangs delays a writer for five seconds at most, and a context ends the wait at once.
func TestBlobs_DiskHangs(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := open(t, bolt.Config{Path: filePath(t)})
		release := make(chan struct{})
		s.Occupy(release)
		defer close(release)
		began := time.Now()
		if err := s.Blobs().Put(t.Context(), blobKey("1"), nil, hence()); !errors.As(err, new(*state.UnavailableError)) {
			t.Errorf("got %v", err)
		}
		if waited := time.Since(began); waited != 5*time.Second {
			t.Errorf("waited %v", waited)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := s.Blobs().Delete(ctx, blobKey("1")); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("got %v", err)
		}
	})
}

// The clear bytes of sealed blobs are nowhere in the file.
func TestBlobs_SealedInTheFile(t *testing.T) {
	t.Parallel()
	const word = "the quarterly figures of Contoso"
	path := filePath(t)
	for _, sealed := range []bool{true, false} {
		b := openBlobs(t, bolt.Config{Path: path}, sealed)
		if err := b.Put(t.Context(), blobKey(strconv.FormatBool(sealed)), []byte(strings.Repeat(word, 1000)), hence()); err != nil {
			t.Fatal(err)
		}
		closed(t, b.store)
		text, err := os.ReadFile(path)
		if err != nil || bytes.Contains(text, []byte(word)) == sealed {
			t.Errorf("sealed %v: %v, or the clear bytes are where they should not be", sealed, err)
		}
	}
}

func BenchmarkBlobs_Put64K(b *testing.B) {
	blobs := openBlobs(b, bolt.Config{Path: filePath(b), Blobs: benchBounds()}, true)
	value, until := make([]byte, 64<<10), hence()
	b.SetBytes(int64(len(value)))
	n := 0
	for b.Loop() {
		key := state.BlobKey{Group: strconv.Itoa(n / 256), ID: strconv.Itoa(n), Owner: strconv.Itoa(n / 1024)}
		if err := blobs.Put(b.Context(), key, value, until); err != nil {
			b.Fatal(err)
		}
		n++
	}
}

func BenchmarkBlobs_Get64K(b *testing.B) {
	blobs := openBlobs(b, bolt.Config{Path: filePath(b), Blobs: benchBounds()}, true)
	const many = 64
	for n := range many {
		if err := blobs.Put(b.Context(), blobKey(strconv.Itoa(n)), make([]byte, 64<<10), hence()); err != nil {
			b.Fatal(err)
		}
	}
	b.SetBytes(64 << 10)
	n := 0
	for b.Loop() {
		if _, _, found, err := blobs.Get(b.Context(), blobKey(strconv.Itoa(n%many))); !found || err != nil {
			b.Fatal(found, err)
		}
		n++
	}
}

func benchBounds() state.BlobBounds {
	return state.BlobBounds{MaxBytes: 1 << 40, MaxBytesPerGroup: 1 << 30}
}
