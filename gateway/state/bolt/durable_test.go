package bolt_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/gateway/state"
	"github.com/aepb/aepb-gateway/gateway/state/bolt"
)

func TestOpen_RefusesBadConfig(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*bolt.Config){
		"no path":          func(c *bolt.Config) { c.Path = "" },
		"flush too seldom": func(c *bolt.Config) { c.FlushEvery = time.Second + 1 },
		"flush never":      func(c *bolt.Config) { c.FlushEvery = -1 },
		"negative queue":   func(c *bolt.Config) { c.Queue = -1 },
		"negative bytes":   func(c *bolt.Config) { c.QueueBytes = -1 },
		"negative bound":   func(c *bolt.Config) { c.Bounds.MaxTokens = -1 },
	} {
		config := bolt.Config{Path: filePath(t)}
		change(&config)
		if _, err := bolt.Open(config, bolt.Deps{}); err == nil {
			t.Errorf("%s was accepted", name)
		}
	}
}

// What was accepted is on disk within FlushEvery, and not a moment before
// somebody has to wait for it.
func TestFlush_WithinFlushEvery(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		path := filePath(t)
		s := open(t, bolt.Config{Path: path})
		put(t, s, 1)
		synctest.Wait()
		early := powerCut(t, path)
		time.Sleep(bolt.DefaultFlushEvery)
		synctest.Wait()
		late := powerCut(t, path)
		if has(t, open(t, bolt.Config{Path: early}), 1) {
			t.Error("the pipeline waited for the disk")
		}
		if !has(t, open(t, bolt.Config{Path: late}), 1) {
			t.Error("not on disk in time")
		}
		if got := s.Stats(); got.Commits != 1 || got.Written != 1 || got.Queued != 0 {
			t.Errorf("stats %+v", got)
		}
	})
}

func TestFlush_WritesPending(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		path := filePath(t)
		s := open(t, bolt.Config{Path: path})
		put(t, s, 1)
		wantClaim(t, s, 1, time.Now(), ect.ReplayFresh)
		flush(t, s)
		left := open(t, bolt.Config{Path: powerCut(t, path)})
		if !has(t, left, 1) {
			t.Error("the record was not flushed")
		}
		wantClaim(t, left, 1, time.Now(), ect.ReplaySame)
		flush(t, s)
		if got := s.Stats(); got.Commits != 1 {
			t.Errorf("nothing to write, and it was written: %+v", got)
		}
	})
}

// Half a queue is written without waiting for the time to come.
func TestFlush_WhenQueueIsHalfFull(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		for name, config := range map[string]bolt.Config{
			"in number": {Path: filePath(t), Queue: 8},
			"in bytes":  {Path: filePath(t), QueueBytes: 8 * 320},
		} {
			s := open(t, config)
			for n := range 3 {
				put(t, s, n)
			}
			synctest.Wait()
			if got := s.Stats(); got.Commits != 0 {
				t.Errorf("%s: too early: %+v", name, got)
			}
			for n := range 5 {
				put(t, s, 3+n)
			}
			synctest.Wait()
			if got := s.Stats(); got.Commits == 0 {
				t.Errorf("%s: not written: %+v", name, got)
			}
		}
	})
}

func TestStore_IdleDoesNotCommit(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := open(t, bolt.Config{Path: filePath(t)})
		time.Sleep(time.Hour)
		if got := s.Stats(); got.Commits != 0 {
			t.Errorf("an idle store writes: %+v", got)
		}
	})
}

// R6: after an unclean end what is there is known, and what else was issued
// before the start is refused.
func TestUncleanEnd_EarlierUnknownUsesRefused(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		path := filePath(t)
		s := open(t, bolt.Config{Path: path})
		if s.Unclean() || !s.Epoch().Equal(time.Now().Truncate(time.Second)) {
			t.Errorf("a new file: unclean %v, epoch %v", s.Unclean(), s.Epoch())
		}
		wantClaim(t, s, 1, time.Now(), ect.ReplayFresh)
		put(t, s, 1)
		flush(t, s)
		losses := time.Now()
		wantClaim(t, s, 2, losses, ect.ReplayFresh)
		time.Sleep(100 * time.Millisecond)
		path = powerCut(t, path)
		time.Sleep(time.Minute + time.Millisecond)

		s = open(t, bolt.Config{Path: path})
		start := time.Now() // since when no use can be unknown
		if !s.Unclean() || !s.Epoch().Equal(start) {
			t.Errorf("unclean %v, epoch %v, want %v", s.Unclean(), s.Epoch(), start)
		}
		if !has(t, s, 1) {
			t.Error("what was flushed is lost")
		}
		wantClaim(t, s, 1, losses, ect.ReplaySame)
		found, err := s.Claim(t.Context(), replayKey(2), use(losses))
		later := (*state.UnavailableError)(nil)
		if wait := time.Until(start.Truncate(time.Second).Add(time.Second)); found != ect.ReplayUnknown || !errors.As(err, &later) || later.RetryAfter != wait || later.Lacks != state.LacksReplay {
			t.Errorf("in the second of the start: %v, %v, want to come again after %v", found, err, wait)
		}
		time.Sleep(time.Second)
		wantClaim(t, s, 2, losses, ect.ReplayUnknown)
		wantClaim(t, s, 3, start.Truncate(time.Second), ect.ReplayUnknown) // whole seconds, as in iat
		wantClaim(t, s, 4, start.Truncate(time.Second).Add(time.Second), ect.ReplayFresh)
		time.Sleep(time.Minute)
		closed(t, s)

		s = open(t, bolt.Config{Path: path}) // a clean end does not make the earlier one clean
		if s.Unclean() || !s.Epoch().Equal(start) {
			t.Errorf("unclean %v, epoch %v, want %v", s.Unclean(), s.Epoch(), start)
		}
		wantClaim(t, s, 2, losses, ect.ReplayUnknown)
	})
}

// A sender's clock may be ahead by as much as a verifier lets pass: no token that was
// used before an unclean end, at whatever moment, is new after it. One that is dated
// after the start and was not used is new at once.
func TestUncleanEnd_ClockSkewOfSender(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		path, random := filePath(t), rand.New(rand.NewPCG(1, 2))
		s, used, n := open(t, bolt.Config{Path: path}), map[int]time.Time{}, 0
		for range 50 {
			for range random.IntN(10) {
				time.Sleep(time.Duration(random.Int64N(int64(400 * time.Millisecond))))
				issued := time.Now().Add(ect.DefaultSkew - time.Duration(random.Int64N(int64(2*ect.DefaultSkew)))).Truncate(time.Second)
				n++
				if found, err := s.Claim(t.Context(), replayKey(n), use(issued)); err == nil && found == ect.ReplayFresh {
					used[n] = issued
				}
			}
			path = powerCut(t, path)
			time.Sleep(time.Duration(random.Int64N(int64(3 * time.Second))))
			s = open(t, bolt.Config{Path: path})
			n++
			used[n] = time.Now().Truncate(time.Second).Add(time.Second)
			wantClaim(t, s, n, used[n], ect.ReplayFresh)
			for k, issued := range used {
				if found, _ := s.Claim(t.Context(), replayKey(k), use(issued)); found == ect.ReplayFresh {
					t.Fatalf("a token of %v that was used before is new to a process of %v", issued, time.Now())
				}
			}
		}
		if len(used) < 100 {
			t.Errorf("only %d tokens were used", len(used))
		}
	})
}

// Opening takes the mark away, whatever happens afterwards.
func TestOpen_RemovesCleanMarkAtOnce(t *testing.T) {
	t.Parallel()
	path := filePath(t)
	closed(t, open(t, bolt.Config{Path: path}))
	s := open(t, bolt.Config{Path: path})
	if s.Unclean() {
		t.Error("the clean end was forgotten")
	}
	if !open(t, bolt.Config{Path: powerCut(t, path)}).Unclean() {
		t.Error("a store that was not used since ended in good order, says the file")
	}
}

// A clock that went back does not shorten the epoch.
func TestEpoch_ClockGoesBack(t *testing.T) {
	t.Parallel()
	path := filePath(t)
	late := time.Unix(1_900_000_000, 0)
	s, err := bolt.Open(bolt.Config{Path: path}, bolt.Deps{Now: func() time.Time { return late }})
	if err != nil {
		t.Fatal(err)
	}
	left := powerCut(t, path)
	closed(t, s)
	if s = open(t, bolt.Config{Path: left}); !s.Epoch().Equal(late) {
		t.Errorf("epoch %v", s.Epoch())
	}
}

// Fewer uses fit than were known: those forgotten are covered by the epoch.
func TestEpoch_CoversUsesBeyondSmallerBounds(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		path := filePath(t)
		s := open(t, bolt.Config{Path: path})
		issued := time.Now()
		for n := range 5 {
			wantClaim(t, s, n, issued, ect.ReplayFresh)
			put(t, s, n)
		}
		closed(t, s)
		time.Sleep(time.Minute)
		s = open(t, bolt.Config{Path: path, Bounds: state.Config{MaxReplays: 3, MaxTokens: 2}})
		if !s.Unclean() || !s.Epoch().Equal(time.Now().Add(ect.DefaultSkew)) {
			t.Errorf("unclean %v, epoch %v", s.Unclean(), s.Epoch())
		}
		time.Sleep(ect.DefaultSkew)
		for n, want := range []ect.ReplayState{ect.ReplaySame, ect.ReplaySame, ect.ReplaySame, ect.ReplayUnknown, ect.ReplayUnknown} {
			wantClaim(t, s, n, issued, want)
		}
		time.Sleep(time.Minute)
		closed(t, s)
		if diff := cmp.Diff(map[string]int{"tokens": 2, "replays": 3, "answers": 0, "conversations": 0, "entries": 0}, onDisk(t, path)); diff != "" {
			t.Error(diff)
		}
	})
}

// What has expired leaves the disk, with and without writes, and also what had
// expired before the start.
func TestExpired_IsDeletedFromDisk(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		path := filePath(t)
		s := open(t, bolt.Config{Path: path, Bounds: state.Config{ConversationLifetime: time.Hour}})
		fill := func(from, to int) {
			for n := from; n < to; n++ {
				put(t, s, n)
				wantClaim(t, s, n, time.Now(), ect.ReplayFresh)
				s.Finish(t.Context(), replayKey(n), []byte("answer"), time.Now().Add(time.Hour))
				s.Remember(t.Context(), fmt.Sprint(n), "w", "1")
				if _, ok, err := s.Memory.Entries().Swap(t.Context(), entryKey(n), 0, nil, time.Now().Add(time.Hour)); !ok || err != nil {
					t.Fatal(ok, err)
				}
			}
		}
		all := func(n int) map[string]int {
			return map[string]int{"tokens": n, "replays": n, "answers": n, "conversations": n, "entries": n}
		}
		fill(0, 100)
		flush(t, s)
		if diff := cmp.Diff(all(100), onDisk(t, powerCut(t, path))); diff != "" {
			t.Fatal(diff)
		}
		time.Sleep(2 * time.Hour)
		synctest.Wait()
		if diff := cmp.Diff(all(0), onDisk(t, powerCut(t, path))); diff != "" {
			t.Errorf("nothing is written and nothing leaves: %s", diff)
		}
		fill(100, 200)
		closed(t, s)
		time.Sleep(2 * time.Hour)
		s = open(t, bolt.Config{Path: path})
		if diff := cmp.Diff(all(100), onDisk(t, powerCut(t, path))); diff != "" {
			t.Fatal(diff)
		}
		fill(200, 201)
		time.Sleep(11 * time.Second) // evidence leaves with its tables
		synctest.Wait()
		if diff := cmp.Diff(all(1), onDisk(t, powerCut(t, path))); diff != "" {
			t.Error(diff)
		}
		if got := s.Stats(); got.Deleted != 500 || got.Commits != 2 {
			t.Errorf("stats %+v", got)
		}
	})
}

// However much has expired, one commit deletes a bounded part of it.
func TestExpired_DeletedInBoundedParts(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		path := filePath(t)
		s := open(t, bolt.Config{Path: path})
		const many = 5000
		for n := range many {
			wantClaim(t, s, n, time.Now(), ect.ReplayFresh)
		}
		closed(t, s)
		time.Sleep(2 * time.Hour)
		s = open(t, bolt.Config{Path: path})
		time.Sleep(bolt.DefaultFlushEvery)
		synctest.Wait()
		if got := s.Stats(); got.Deleted == 0 || got.Deleted == many {
			t.Errorf("after one commit: %+v", got)
		}
		time.Sleep(bolt.DefaultFlushEvery)
		synctest.Wait()
		if got := s.Stats(); got.Deleted != many || got.Commits != 2 {
			t.Errorf("after two: %+v", got)
		}
	})
}

// What comes and leaves between two commits never reaches the disk.
func TestCommit_SkipsShortLivedChanges(t *testing.T) {
	t.Parallel()
	path := filePath(t)
	s := open(t, bolt.Config{Path: path})
	for n := range 100 {
		s.Remember(t.Context(), "a", "w", ect.ID(fmt.Sprint(n)))
	}
	flush(t, s)
	if got := s.Stats(); got.Written != 1 || got.Deleted != 0 {
		t.Errorf("stats %+v", got)
	}
	if got := onDisk(t, powerCut(t, path))["conversations"]; got != 1 {
		t.Errorf("%d turns on disk", got)
	}
	s.Remember(t.Context(), "a", "w", "100")
	flush(t, s)
	if got := s.Stats(); got.Written != 2 || got.Deleted != 1 {
		t.Errorf("stats %+v", got)
	}
}
