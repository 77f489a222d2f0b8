package bolt_test

import (
	"errors"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.etcd.io/bbolt"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/ect/ecttest"
	"github.com/aepb/aepb-gateway/gateway/state"
	"github.com/aepb/aepb-gateway/gateway/state/bolt"
)

func wantOpenError(t *testing.T, path string, want bolt.Reason) {
	t.Helper()
	s, err := bolt.Open(bolt.Config{Path: path}, bolt.Deps{})
	if err == nil {
		_ = s.Close()
	}
	var failed *bolt.OpenError
	if !errors.As(err, &failed) || failed.Reason != want || failed.Path != path {
		t.Errorf("got %v, want %s", err, want)
	}
}

func TestOpen_LockedFile(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		path := filePath(t)
		s := open(t, bolt.Config{Path: path})
		put(t, s, 1)
		began := time.Now()
		wantOpenError(t, path, bolt.ReasonLocked)
		if text := (&bolt.OpenError{Path: path, Reason: bolt.ReasonLocked, Err: errors.New("timeout")}).Error(); !strings.Contains(text, "another gateway uses "+path+": stop it") || strings.Contains(text, "timeout") {
			t.Error(text)
		}
		if waited := time.Since(began); waited > bolt.LockWait {
			t.Errorf("waited %v", waited)
		}
		flush(t, s) // the one who has it is not disturbed
		closed(t, s)
		if !has(t, open(t, bolt.Config{Path: path}), 1) {
			t.Error("the file was damaged")
		}
	})
}

// The process before may still be closing.
func TestOpen_BrieflyLockedFile(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		path := filePath(t)
		first := open(t, bolt.Config{Path: path})
		time.AfterFunc(bolt.LockWait/2, func() { _ = first.Close() })
		if open(t, bolt.Config{Path: path}).Unclean() {
			t.Error("opened before the first was closed")
		}
	})
}

func TestOpen_InaccessiblePath(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	plain := filepath.Join(dir, "plain")
	if err := os.WriteFile(plain, []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{
		dir, filepath.Join(dir, "none", "state.db"), filepath.Join(plain, "state.db"), "/dev/null",
		filepath.Join(dir, strings.Repeat("x", 300)), filepath.Join(dir, "\x00"),
	} {
		wantOpenError(t, path, bolt.ReasonInaccessible)
	}
}

func TestOpen_ForeignDatabase(t *testing.T) {
	t.Parallel()
	path := filePath(t)
	change := func(do func(*bbolt.Tx) error) {
		t.Helper()
		db, err := bbolt.Open(path, 0o600, nil)
		if err == nil {
			err = errors.Join(db.Update(do), db.Close())
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	change(func(tx *bbolt.Tx) error {
		_, err := tx.CreateBucket([]byte("somebody's"))
		return err
	})
	wantOpenError(t, path, bolt.ReasonFormat)
	change(func(tx *bbolt.Tx) error { return tx.DeleteBucket([]byte("somebody's")) })
	closed(t, open(t, bolt.Config{Path: path})) // a file without a bucket is a new one
	change(func(tx *bbolt.Tx) error {
		return tx.Bucket([]byte("meta")).Put([]byte("format"), []byte{0x35, 0xb5, 0x25, 0x10, 4})
	})
	wantOpenError(t, path, bolt.ReasonCorrupt) // a format with a wrong checksum
	change(func(tx *bbolt.Tx) error {
		return tx.Bucket([]byte("meta")).Put([]byte("format"), bolt.Seal("format", []byte{8}))
	})
	wantOpenError(t, path, bolt.ReasonFormat)
	change(func(tx *bbolt.Tx) error {
		return errors.Join(tx.DeleteBucket([]byte("replays")), tx.Bucket([]byte("meta")).Put([]byte("format"), bolt.Seal("format", []byte{5})))
	})
	wantOpenError(t, path, bolt.ReasonCorrupt) // all uses would be forgotten in silence
}

func TestOpen_NotADatabase(t *testing.T) {
	t.Parallel()
	for name, content := range map[string][]byte{
		"a byte": {0}, "text": []byte(strings.Repeat("not a database\n", 2000)),
		"zeros": make([]byte, 1<<16), "a page of zeros": make([]byte, 4096), "a page of ours": make([]byte, bolt.PageSize),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			path := filePath(t)
			if err := os.WriteFile(path, content, 0o600); err != nil {
				t.Fatal(err)
			}
			wantOpenError(t, path, bolt.ReasonCorrupt)
		})
	}
}

// filled is the content of a file with branches, leaves, long values and free pages.
func filled(t *testing.T) []byte {
	t.Helper()
	path := filePath(t)
	s := open(t, bolt.Config{Path: path, Bounds: state.Config{MaxTokens: 300}})
	for n := range 600 {
		put(t, s, n)
		wantClaim(t, s, n, time.Now(), ect.ReplayFresh)
		if n%100 == 0 {
			s.Finish(t.Context(), replayKey(n), make([]byte, 9000), time.Now().Add(time.Hour))
			s.Remember(t.Context(), string(replayKey(n).ID), "w", "1")
			flush(t, s)
		}
	}
	closed(t, s)
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return content
}

// tryDamaged opens a damaged file: it works, or it is an OpenError, and when it
// works it can be written and closed.
func tryDamaged(t *testing.T, content []byte, what string, at int) bool {
	t.Helper()
	path := filePath(t)
	if err := os.WriteFile(path, content, 0o600); err != nil {
		t.Fatal(err)
	}
	s, err := bolt.Open(bolt.Config{Path: path}, bolt.Deps{})
	if err != nil {
		callers := (*state.UnavailableError)(nil) // what is told to callers says no operator what is wrong
		if failed := (*bolt.OpenError)(nil); !errors.As(err, &failed) || errors.As(err, &callers) {
			t.Errorf("%s at %d: %v", what, at, err)
		}
		return false
	}
	_ = s.Put(t.Context(), record(10_000))
	if err, known := s.Close(), (*state.UnavailableError)(nil); err != nil && !errors.As(err, &known) { // evidence may be damaged, which is found then
		t.Errorf("%s at %d: found good, and then: %v", what, at, err)
	}
	return true
}

// Damage of all sorts: never a panic, a fault or an endless loop.
func TestOpen_DamagedFile(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("hundreds of files are opened")
	}
	content := filled(t)
	random := rand.New(rand.NewPCG(1, 2))
	good := 0
	for range 300 {
		at, damaged := random.IntN(len(content)), append([]byte{}, content...)
		damaged[at] ^= 1 << random.IntN(8)
		if tryDamaged(t, damaged, "a bit", at) {
			good++
		}
	}
	t.Logf("%d of 300 flipped bits were where nothing is", good)
	for range 100 { // a page that was never written, or is an earlier one, or another
		to, damaged := random.IntN(len(content)/bolt.PageSize)*bolt.PageSize, append([]byte{}, content...)
		from := random.IntN(len(content)/bolt.PageSize) * 4096
		copy(damaged[to:to+bolt.PageSize], content[from:])
		tryDamaged(t, damaged, "a page of another place", to)
		clear(damaged[to : to+bolt.PageSize])
		tryDamaged(t, damaged, "a page of zeros", to)
	}
	for range 50 {
		size := random.IntN(len(content))
		tryDamaged(t, content[:size], "cut off", size)
	}
}

// A flipped bit in a value, which bbolt itself would hand out as it is.
func TestOpen_DamagedValue(t *testing.T) {
	t.Parallel()
	path := filePath(t)
	s := open(t, bolt.Config{Path: path})
	s.Remember(t.Context(), "conversation", "a-workflow", "id")
	closed(t, s)
	flip(t, path, "a-workflow")
	wantOpenError(t, path, bolt.ReasonCorrupt)
}

// flip turns a bit in a file where a text is.
func flip(t *testing.T, path, text string) {
	t.Helper()
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	at := strings.Index(string(content), text)
	if at < 0 {
		t.Fatalf("there is no %q in the file", text)
	}
	content[at] ^= 1
	if err := os.WriteFile(path, content, 0o600); err != nil {
		t.Fatal(err)
	}
}

// Evidence is read when it is asked for: a flipped bit is told then, to those who ask for
// what it is part of.
func TestEvidence_Damaged(t *testing.T) {
	t.Parallel()
	path := filePath(t)
	s := open(t, bolt.Config{Path: path})
	put(t, s, 1)
	put(t, s, 2)
	closed(t, s)
	flip(t, path, "payload-1.")
	s = open(t, bolt.Config{Path: path})
	_, err := ecttest.Find(t.Context(), s, record(1).ID)
	if !errors.As(err, new(*state.UnavailableError)) {
		t.Errorf("a damaged record: %v", err)
	}
	if !has(t, s, 2) {
		t.Error("a record that is as it was written is not found")
	}
}

// A damaged record that has ended is in the way of one write, and of no other.
func TestEvidence_DamagedHasEnded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		path := filePath(t)
		s := open(t, bolt.Config{Path: path})
		put(t, s, 1)
		closed(t, s)
		flip(t, path, "payload-1.")
		s = open(t, bolt.Config{Path: path, FlushEvery: time.Second})
		put(t, s, 2)
		time.Sleep(2 * time.Hour)
		_ = s.Put(t.Context(), record(3))
		put(t, s, 4)
		if !has(t, s, 4) {
			t.Error("the record is not found")
		}
	})
}
