package bolt_test

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/ect/ecttest"
	"github.com/aepb/aepb-gateway/gateway/state"
	"github.com/aepb/aepb-gateway/gateway/state/bolt"
)

const (
	crashFile = "AEPB_TEST_CRASH_FILE"
	crashFrom = "AEPB_TEST_CRASH_FROM"
	crashKeys = 50 // conversations in turn
)

// crashing writes until it is killed. A line says up to which number all is flushed.
func crashing(path string, out io.Writer) int {
	s, err := bolt.Open(bolt.Config{Path: path, FlushEvery: 3 * time.Millisecond, Queue: 256}, bolt.Deps{})
	if err != nil {
		fmt.Fprintln(out, "open:", err)
		return 1
	}
	from, _ := strconv.Atoi(os.Getenv(crashFrom))
	for n := from; ; n++ {
		if err := crashWrite(s, n); err != nil {
			fmt.Fprintln(out, "write:", err)
			return 1
		}
		if n%17 != 0 {
			continue
		}
		if err := crashSwap(s, n); err != nil {
			fmt.Fprintln(out, "swap:", err)
			return 1
		}
		if err := s.Blobs().Put(context.Background(), crashKey(n), crashValue(n), time.Now().Add(time.Hour)); err != nil {
			fmt.Fprintln(out, "put a blob:", err)
			return 1
		}
		fmt.Fprintln(out, n)
	}
}

func crashWrite(s *bolt.Store, n int) error {
	ctx, until := context.Background(), time.Now().Add(time.Hour)
	if n%5 == 0 { // some expire at once, so that there is something to delete
		until = time.Now().Add(10 * time.Millisecond)
	}
	u := use(time.Now().Add(2 * ect.DefaultSkew)) // after the epoch of a start just now
	u.Until = until
	if _, err := s.Claim(ctx, replayKey(n), u); err != nil {
		return err
	}
	r := record(n)
	r.Until = until
	if err := s.Put(ctx, r); err != nil {
		return err
	}
	s.Finish(ctx, replayKey(n), fmt.Appendf(nil, "answer %d", n), until)
	s.Remember(ctx, strconv.Itoa(n%crashKeys), "w", ect.ID(strconv.Itoa(n)))
	return nil
}

// crashSwap needs no flush after it: it is acknowledged when it is on disk.
func crashSwap(s *bolt.Store, n int) error {
	ctx := context.Background()
	before, _, err := s.Entries().Get(ctx, entryKey(0))
	if err != nil {
		return err
	}
	_, ok, err := s.Entries().Swap(ctx, entryKey(0), before.Revision, strconv.AppendInt(nil, int64(n), 10), time.Now().Add(time.Hour))
	if err == nil && !ok {
		err = errors.New("nobody else was there")
	}
	return err
}

// crashKey names a blob: a hundred of them are in one group.
func crashKey(n int) state.BlobKey {
	return state.BlobKey{Group: strconv.Itoa(n / 1700), ID: strconv.Itoa(n), Owner: strconv.Itoa(n / 1700)}
}

func crashValue(n int) []byte { return bytes.Repeat(strconv.AppendInt(nil, int64(n), 10), 1000) }

// written is what one process said it had flushed, from the first to the last number.
type written struct{ from, to int }

// TestStore_CrashAtRandomMoments kills a writing process at random moments, over and over on one
// file. Whatever it said was flushed is there, the file is sound, and the epoch
// is after the new start.
func TestStore_CrashAtRandomMoments(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("processes are started and killed")
	}
	rounds, path := 25, filePath(t)
	var all []written
	next := 0
	for round := range rounds {
		w := crashOnce(t, path, next)
		all, next = append(all, w), w.to+100_000 // more than it can have written since
		onDisk(t, path)
		before := time.Now()
		s := open(t, bolt.Config{Path: path})
		if !s.Unclean() || s.Epoch().Before(before) {
			t.Fatalf("round %d: unclean %v, epoch %v, started at %v", round, s.Unclean(), s.Epoch(), before)
		}
		for _, w := range all {
			wantWritten(t, s, w)
		}
		wantTurns(t, s, w)
		wantSwapped(t, s, w)
		for _, w := range all {
			wantBlobsLeft(t, s, w)
		}
		if round%2 == 0 { // the next process finds a clean end, else an unclean one
			closed(t, s)
		} else if err := os.Rename(powerCut(t, path), path); err != nil {
			t.Fatal(err)
		}
		_ = s.Close()
	}
	t.Logf("%d rounds: %v", rounds, all)
}

// crashOnce runs the writer and kills it.
func crashOnce(t *testing.T, path string, from int) written {
	t.Helper()
	child := exec.CommandContext(t.Context(), os.Args[0])
	child.Env = append(os.Environ(), crashFile+"="+path, crashFrom+"="+strconv.Itoa(from))
	out, err := child.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	lines, w := bufio.NewScanner(out), written{from: from, to: from - 1}
	var killer *time.Timer
	for lines.Scan() {
		n, err := strconv.Atoi(lines.Text())
		if err != nil {
			t.Errorf("the child says: %s", lines.Text())
			break
		}
		w.to = n
		if killer == nil {
			killer = time.AfterFunc(time.Duration(rand.IntN(60_000))*time.Microsecond, func() { _ = child.Process.Kill() })
		}
	}
	if killer == nil {
		_ = child.Process.Kill()
		t.Error("the child ended by itself")
	} else {
		killer.Stop()
	}
	if err := child.Wait(); err == nil || !strings.Contains(err.Error(), "killed") {
		t.Errorf("the child ended: %v", err)
	}
	return w
}

func wantWritten(t *testing.T, s *bolt.Store, w written) {
	t.Helper()
	for n := w.from; n <= w.to; n++ {
		if n%5 == 0 {
			continue // expired long ago
		}
		if got, err := ecttest.Find(t.Context(), s, record(n).ID); err != nil || len(got) != 1 || got[0].Compact != record(n).Compact {
			t.Fatalf("record %d of %v: found %d, %v", n, w, len(got), err)
		}
		if got, err := s.Claim(t.Context(), replayKey(n), use(time.Now())); got != ect.ReplaySame || err != nil {
			t.Fatalf("use %d of %v is lost: %d, %v", n, w, got, err)
		}
		if got, ok := s.Load(t.Context(), replayKey(n)); !ok || string(got) != fmt.Sprintf("answer %d", n) {
			t.Fatalf("answer %d of %v is lost", n, w)
		}
	}
}

// wantSwapped: the entry stands where the last acknowledged swap left it, or later.
func wantSwapped(t *testing.T, s *bolt.Store, w written) {
	t.Helper()
	got, ok, err := s.Entries().Get(t.Context(), entryKey(0))
	if at, _ := strconv.Atoi(string(got.Value)); w.to >= w.from && (!ok || err != nil || at < w.to) {
		t.Fatalf("the entry stands at %q, %v, not at %d", got.Value, err, w.to)
	}
}

// wantBlobsLeft: every blob that was acknowledged is there, and no more space is taken than by what is there.
func wantBlobsLeft(t *testing.T, s *bolt.Store, w written) {
	t.Helper()
	for n := w.from; n <= w.to; n++ {
		if n%17 != 0 {
			continue
		}
		if got, _, found, err := s.Blobs().Get(t.Context(), crashKey(n)); err != nil || !found || !bytes.Equal(got, crashValue(n)) {
			t.Fatalf("blob %d of %v is lost: %d bytes, %v, %v", n, w, len(got), found, err)
		}
	}
	if counts := s.BlobsOnDisk(t); counts[0] != counts[1] || counts[0] != s.Blobs().Usage().Entries {
		t.Fatalf("records and values on disk: %v, in the index: %+v", counts, s.Blobs().Usage())
	}
}

// wantTurns: every conversation stands where the last flush left it, or later.
func wantTurns(t *testing.T, s *bolt.Store, w written) {
	t.Helper()
	for n := max(w.from, w.to-crashKeys+1); n <= w.to; n++ {
		_, id, ok, _ := s.Last(t.Context(), strconv.Itoa(n%crashKeys))
		if at, err := strconv.Atoi(string(id)); !ok || err != nil || at < n {
			t.Fatalf("a conversation stands at %q, not at %d", id, n)
		}
	}
}
