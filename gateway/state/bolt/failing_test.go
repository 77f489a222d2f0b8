//go:build linux

package bolt_test

import (
	"bytes"
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/ect/ecttest"
	"github.com/aepb/aepb-gateway/gateway/state"
	"github.com/aepb/aepb-gateway/gateway/state/bolt"
)

// fullDisk makes every write of a store fail as on a full disk, until it is
// called: its file descriptor stands for /dev/full.
func fullDisk(t *testing.T, s *bolt.Store) (free func()) {
	t.Helper()
	own := int(s.Handle().Fd())
	saved, err := syscall.Dup(own)
	if err != nil {
		t.Fatal(err)
	}
	full, err := os.OpenFile("/dev/full", os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	stand := func(fd int) {
		if err := syscall.Dup3(fd, own, syscall.O_CLOEXEC); err != nil {
			t.Fatal(err)
		}
	}
	stand(int(full.Fd()))
	if err := full.Close(); err != nil {
		t.Fatal(err)
	}
	return func() {
		stand(saved)
		if err := syscall.Close(saved); err != nil {
			t.Fatal(err)
		}
	}
}

func wantUnavailable(t *testing.T, err, cause error) {
	t.Helper()
	var refused *state.UnavailableError
	if !errors.As(err, &refused) || refused.RetryAfter <= 0 || !errors.Is(err, cause) {
		t.Errorf("got %v, want a refusal because of %v", err, cause)
	}
}

func TestStore_DiskFull(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		path := filePath(t)
		var logs bytes.Buffer
		s, err := bolt.Open(bolt.Config{Path: path}, bolt.Deps{Logger: slog.New(slog.NewTextHandler(&logs, nil))})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = s.Close() })
		put(t, s, 1)
		s.Remember(t.Context(), "a", "w", "1")
		flush(t, s)
		free := fullDisk(t, s)
		put(t, s, 2) // accepted: in memory and queued
		wantClaim(t, s, 2, time.Now(), ect.ReplayFresh)
		wantUnavailable(t, s.Flush(t.Context()), syscall.ENOSPC)
		if s.Failing() == nil {
			t.Error("the store does not say that it fails")
		}
		wantUnavailable(t, s.Put(t.Context(), record(3)), syscall.ENOSPC)
		_, err = s.Claim(t.Context(), replayKey(3), use(time.Now()))
		wantUnavailable(t, err, syscall.ENOSPC)
		s.Finish(t.Context(), replayKey(2), []byte("answer"), time.Now().Add(time.Hour))
		s.Remember(t.Context(), "a", "w", "2")
		if _, ok := s.Load(t.Context(), replayKey(2)); ok || has(t, s, 3) {
			t.Error("something was kept that cannot be written")
		}
		if _, id, _, _ := s.Last(t.Context(), "a"); id != "1" || !has(t, s, 2) {
			t.Error("reading does not go on")
		}
		failures := s.Stats().Failures
		time.Sleep(3*bolt.RetryEvery + bolt.RetryEvery/2)
		synctest.Wait()
		if got := s.Stats(); got.Failures != failures+3 || got.Skipped != 2 {
			t.Errorf("not tried every second: %+v", got)
		}
		free()
		time.Sleep(bolt.RetryEvery)
		synctest.Wait()
		if err := s.Failing(); err != nil {
			t.Fatalf("the disk has room again, and still: %v", err)
		}
		put(t, s, 3)
		flush(t, s)
		left := open(t, bolt.Config{Path: powerCut(t, path)})
		for n := 1; n <= 3; n++ {
			if !has(t, left, n) {
				t.Errorf("record %d was lost", n)
			}
		}
		wantClaim(t, left, 2, time.Now(), ect.ReplaySame)
		closed(t, s)
		onDisk(t, path)
		if got := logs.String(); strings.Count(got, "level=ERROR") != 1 || !strings.Contains(got, "written again") || strings.Contains(got, "payload") {
			t.Errorf("logged: %s", got)
		}
	})
}

// Writers that were waiting for room when the disk failed are told.
func TestStore_DiskFullWhileWritersWait(t *testing.T) {
	t.Parallel()
	s := open(t, bolt.Config{Path: filePath(t), Queue: 2})
	tx, err := s.DB().Begin(true) // the disk is busy
	if err != nil {
		t.Fatal(err)
	}
	free := fullDisk(t, s)
	defer free()
	results := make(chan error)
	go func() {
		for n := 0; ; n++ {
			if err := s.Put(t.Context(), record(n)); err != nil {
				results <- err
				return
			}
		}
	}()
	for s.Stats().Queued < 2 { // one batch under way and the next one full
		select {
		case err := <-results:
			t.Fatal(err)
		case <-time.After(time.Millisecond):
		}
	}
	if err := tx.Rollback(); err != nil {
		t.Fatal(err)
	}
	wantUnavailable(t, <-results, syscall.ENOSPC)
}

// A file that is gone for good: the store refuses, and its end is an error, but an end.
func TestStore_FileClosed(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		path := filePath(t)
		s := open(t, bolt.Config{Path: path})
		put(t, s, 1)
		flush(t, s)
		if err := s.Handle().Close(); err != nil {
			t.Fatal(err)
		}
		put(t, s, 2)
		time.Sleep(time.Minute)
		wantUnavailable(t, s.Put(t.Context(), record(3)), fs.ErrClosed)
		if err := s.Close(); err == nil {
			t.Error("closed in good order")
		}
		if err := s.Close(); err == nil {
			t.Error("the second time it is no error any more")
		}
		left := open(t, bolt.Config{Path: powerCut(t, path)})
		if !left.Unclean() || !has(t, left, 1) {
			t.Errorf("unclean %v, first record %v", left.Unclean(), has(t, left, 1))
		}
	})
}

// A file that is cut short under its mapping is a fault in whoever reads it.
func TestStore_FileTruncated(t *testing.T) {
	t.Parallel()
	path := filePath(t)
	s := open(t, bolt.Config{Path: path})
	for n := range 1000 {
		put(t, s, n)
	}
	flush(t, s)
	if err := os.Truncate(path, 2*bolt.PageSize); err != nil {
		t.Fatal(err)
	}
	wantUnavailable(t, s.Put(t.Context(), record(1000)), bolt.ErrBroken)
	wantUnavailable(t, s.Flush(t.Context()), bolt.ErrBroken)
	wantUnavailable(t, s.Flush(t.Context()), bolt.ErrBroken) // asked again, it does not hang
	if err := s.Close(); err == nil {
		t.Error("closed in good order")
	}
}

func TestClose_RefusesLaterOperations(t *testing.T) {
	t.Parallel()
	s := open(t, bolt.Config{Path: filePath(t)})
	put(t, s, 1)
	closed(t, s)
	closed(t, s)
	wantUnavailable(t, s.Put(t.Context(), record(2)), bolt.ErrClosed)
	_, err := s.Claim(t.Context(), replayKey(1), use(time.Now()))
	wantUnavailable(t, err, bolt.ErrClosed)
	wantUnavailable(t, s.Flush(t.Context()), bolt.ErrClosed)
	s.Finish(t.Context(), replayKey(1), []byte("x"), time.Now().Add(time.Hour))
	if _, ok := s.Load(t.Context(), replayKey(1)); ok {
		t.Error("written after the end")
	}
	_, err = ecttest.Find(t.Context(), s, record(1).ID)
	wantUnavailable(t, err, bolt.ErrClosed)
}

// Whoever was told that a use is fresh finds it after a clean restart, however
// close to the end it was.
func TestClose_WithConcurrentWriters(t *testing.T) {
	t.Parallel()
	rounds := 20
	if testing.Short() {
		rounds = 2
	}
	for range rounds {
		path := filePath(t)
		s := open(t, bolt.Config{Path: path})
		claimed := make(chan int)
		const writers = 4
		for w := range writers {
			go func() {
				n := 0
				for ; ; n++ {
					if _, err := s.Claim(t.Context(), replayKey(w*1_000_000+n), use(time.Now())); err != nil {
						break
					}
				}
				claimed <- n
			}()
		}
		for s.UsageOf(state.KindReplay).Entries < 100 {
			<-time.After(10 * time.Microsecond)
		}
		closed(t, s)
		total := 0
		for range writers {
			total += <-claimed
		}
		s = open(t, bolt.Config{Path: path})
		if got := s.UsageOf(state.KindReplay).Entries; got < total || s.Unclean() {
			t.Fatalf("%d uses were claimed, %d are known", total, got)
		}
	}
}

// Where the disk is full no blob begins or leaves, each stays as it was, and what expired keeps its space. All
// of it works again when there is room.
func TestBlobs_DiskFull(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		path := filePath(t)
		s := open(t, bolt.Config{Path: path})
		b, until := s.Blobs(), hence()
		for id, end := range map[string]time.Time{"stays": until, "expires": time.Now().Add(time.Second)} {
			if err := b.Put(t.Context(), blobKey(id), []byte("x"), end); err != nil {
				t.Fatal(err)
			}
		}
		free := fullDisk(t, s)
		wantUnavailable(t, b.Put(t.Context(), blobKey("new"), []byte("x"), until), syscall.ENOSPC)
		wantUnavailable(t, b.Put(t.Context(), blobKey("stays"), []byte("x"), until.Add(time.Minute)), syscall.ENOSPC)
		wantUnavailable(t, b.Delete(t.Context(), blobKey("stays")), syscall.ENOSPC)
		time.Sleep(3 * time.Second)
		synctest.Wait()
		if _, _, found, err := b.Get(t.Context(), blobKey("new")); found || err != nil || b.Usage().Entries != 2 {
			t.Errorf("after failures: %v, %v, %+v", found, err, b.Usage())
		}
		if value, end, found, err := b.Get(t.Context(), blobKey("stays")); string(value) != "x" || !found || err != nil || !end.Equal(until) {
			t.Errorf("what stays: %q until %v, %v, %v", value, end, found, err)
		}
		free()
		time.Sleep(2 * time.Second)
		synctest.Wait()
		if b.Usage().Entries != 1 {
			t.Errorf("what expired is still there: %+v", b.Usage())
		}
		if err := b.Put(t.Context(), blobKey("new"), []byte("other bytes"), until); err != nil {
			t.Error(err)
		}
		if err := b.Delete(t.Context(), blobKey("stays")); err != nil {
			t.Error(err)
		}
		if got := s.BlobsOnDisk(t); got != [2]int{1, 1} {
			t.Errorf("records and values on disk: %v", got)
		}
	})
}
