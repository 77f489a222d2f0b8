package redis_test

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/gateway/state"
	"github.com/aepb/aepb-gateway/gateway/state/redis"
)

func entryKey(id string) state.EntryKey { return state.EntryKey{Kind: "task", Group: "g", ID: id} }

func hence() time.Time { return time.Now().Add(time.Hour) }

// wantUnavailable: refused, in time, and to be tried again.
func wantUnavailable(t *testing.T, within time.Duration, do func() error) {
	t.Helper()
	began := time.Now()
	err := do()
	gone := (*state.UnavailableError)(nil)
	if !errors.As(err, &gone) || gone.RetryAfter <= 0 {
		t.Errorf("got %v, want an UnavailableError", err)
	}
	if took := time.Since(began); took > within {
		t.Errorf("refused after %v", took)
	}
}

// While Redis is away each operation says which guarantee that costs.
func TestUnavailable_SaysWhichGuaranteeIsLacking(t *testing.T) {
	t.Parallel()
	server := serve(t)
	s := open(t, redis.Config{Addresses: []string{server.address}})
	server.kill()
	for name, tc := range map[string]struct {
		lacks state.Guarantee
		do    func() error
	}{
		"put":          {state.LacksRecording, func() error { return s.Put(t.Context(), ect.Record{ID: "i", Workflow: "w", Until: hence()}) }},
		"get":          {state.LacksReading, func() error { _, err := s.Get(t.Context(), ect.Ref{ID: "i"}); return err }},
		"workflow":     {state.LacksReading, func() error { _, _, err := s.Workflow(t.Context(), "w", "", 1); return err }},
		"standing":     {state.LacksReading, func() error { _, err := s.Standing(t.Context(), "w", "who"); return err }},
		"claim":        {state.LacksReplay, func() error { _, err := claim(s, "i", time.Now()); return err }},
		"entry":        {state.LacksShared, func() error { return swapOne(s, "1") }},
		"conversation": {state.LacksShared, func() error { _, _, _, err := s.Last(t.Context(), "c"); return err }},
	} {
		gone, ok := errors.AsType[*state.UnavailableError](tc.do())
		if !ok || gone.Lacks != tc.lacks {
			t.Errorf("%s: %v, want %q", name, gone, tc.lacks)
		}
	}
}

func swapOne(s *redis.Store, id string) error {
	got, _, err := s.Entries().Get(context.Background(), entryKey(id))
	if err != nil {
		return err
	}
	_, _, err = s.Entries().Swap(context.Background(), entryKey(id), got.Revision, []byte("x"), hence())
	return err
}

func claim(s *redis.Store, id string, issued time.Time) (ect.ReplayState, error) {
	return s.Claim(context.Background(), ect.ReplayKey{ID: ect.ID(id)}, ect.ReplayUse{Token: "t", Issued: issued, Until: hence()})
}

// writer counts up one entry until it is told to stop: what it says was
// acknowledged may not be lost.
type writer struct {
	store  *redis.Store
	stop   chan struct{}
	group  sync.WaitGroup
	answer atomic.Int64 // highest number acknowledged
	fails  int
}

func write(t *testing.T, s *redis.Store, id string) *writer {
	t.Helper()
	w := &writer{store: s, stop: make(chan struct{})}
	w.group.Go(func() {
		for n := 1; ; n++ {
			select {
			case <-w.stop:
				return
			default:
			}
			w.once(id, n)
		}
	})
	return w
}

func (w *writer) once(id string, n int) {
	ctx := context.Background()
	before, _, err := w.store.Entries().Get(ctx, entryKey(id))
	if err != nil {
		w.fails++
		<-time.After(5 * time.Millisecond)
		return
	}
	_, ok, err := w.store.Entries().Swap(ctx, entryKey(id), before.Revision, []byte(strconv.Itoa(n)), hence())
	if err != nil || !ok {
		w.fails++
		return
	}
	w.answer.Store(int64(n))
}

// end stops the writer, and gives what it was told last.
func (w *writer) end() (reported, fails int) {
	close(w.stop)
	w.group.Wait()
	return int(w.answer.Load()), w.fails
}

func wantCount(t *testing.T, s *redis.Store, id string, reported int) {
	t.Helper()
	got, ok, err := s.Entries().Get(t.Context(), entryKey(id))
	if at, _ := strconv.Atoi(string(got.Value)); err != nil || !ok || at < reported {
		t.Errorf("stands at %q, %v, %v; %d was acknowledged", got.Value, ok, err, reported)
	}
}

// The server is killed and comes back with what it had on disk.
func TestRedis_RestartKeepsData(t *testing.T) {
	t.Parallel()
	server := serve(t)
	s := open(t, redis.Config{Addresses: []string{server.address}})
	issued := time.Now().Add(time.Second) // of a token from after the epoch
	if got, err := claim(s, "before", issued); got != ect.ReplayFresh || err != nil {
		t.Fatal(got, err)
	}
	w := write(t, s, "1")
	eventually(t, soon, "something is acknowledged", func() bool { return w.answer.Load() > 0 })
	server.kill()
	eventually(t, soon, "it is noticed", func() bool { return s.Failing() != nil })
	wantUnavailable(t, soon, func() error { return swapOne(s, "2") })
	wantUnavailable(t, soon, func() error { _, err := claim(s, "x", hence()); return err })
	server.start()
	eventually(t, 10*time.Second, "it recovers by itself", func() bool { return swapOne(s, "2") == nil })
	reported, fails := w.end()
	if reported == 0 || fails == 0 {
		t.Errorf("%d writes, %d failures: nothing was tried", reported, fails)
	}
	wantCount(t, s, "1", reported)
	if s.Failing() != nil {
		t.Error(s.Failing())
	}
	// R6: uses may have been lost, so what was issued before is unknown, and what
	// was used is still known.
	if got, err := claim(s, "before", issued); got != ect.ReplaySame || err != nil {
		t.Error("a use that was kept is forgotten:", got, err)
	}
	late := (*state.UnavailableError)(nil)
	if got, err := claim(s, "a token from before the restart", issued.Add(-time.Second)); got != ect.ReplayUnknown || errors.As(err, &late) && late.RetryAfter > time.Second {
		t.Errorf("a token from before the restart: %v %v", got, err)
	}
	if _, err := claim(s, "a token of a clock that is ahead", time.Now().Add(ect.DefaultSkew/2)); !errors.As(err, &late) || late.RetryAfter > ect.DefaultSkew/2 {
		t.Errorf("a token that is dated ahead: %v", err)
	}
	began := time.Now()
	if got, err := claim(s, "new", began.Add(time.Second)); got != ect.ReplayFresh || err != nil || time.Since(began) > 3*time.Second {
		t.Errorf("a new token: %v %v after %v", got, err, time.Since(began))
	}
}

// A server that hangs makes nobody hang.
func TestRedis_HangDoesNotBlock(t *testing.T) {
	t.Parallel()
	server := serve(t)
	const timeout = 3 * time.Second
	s := open(t, redis.Config{Addresses: []string{server.address}, Timeout: timeout})
	if err := swapOne(s, "1"); err != nil {
		t.Fatal(err)
	}
	server.signal(syscall.SIGSTOP)
	wantUnavailable(t, timeout+soon, func() error { return swapOne(s, "1") })
	eventually(t, soon, "it is noticed", func() bool { return s.Failing() != nil })
	wantUnavailable(t, timeout-time.Second, func() error { return swapOne(s, "1") }) // without asking
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if _, _, err := s.Entries().Await(ctx, entryKey("1"), 0); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("waiting: %v", err)
	}
	server.signal(syscall.SIGCONT)
	eventually(t, soon, "it recovers by itself", func() bool { return swapOne(s, "1") == nil })
}

// The master of a key is killed: its replica takes over, and nothing that a
// replica had acknowledged is lost (R18).
func TestFailover_Cluster(t *testing.T) {
	t.Parallel()
	nodes := cluster(t)
	config := redis.Config{Addresses: addresses(nodes), Wait: 1}
	s := open(t, config)
	w := write(t, s, "1")
	eventually(t, soon, "writes", func() bool { return swapOne(s, "2") == nil })
	waiting := make(chan error, 1)
	got, _, err := s.Entries().Get(t.Context(), entryKey("2"))
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, 30*time.Second, "something is acknowledged", func() bool { return w.answer.Load() > 0 })
	var group sync.WaitGroup
	group.Go(func() {
		_, _, err := s.Entries().Await(t.Context(), entryKey("2"), got.Revision)
		waiting <- err
	})
	defer group.Wait()
	master := masterOf(t, nodes)
	master.kill()
	eventually(t, soon, "it is noticed", func() bool { return s.Failing() != nil })
	eventually(t, 30*time.Second, "the replica takes over", func() bool { return s.Failing() == nil })
	reported, _ := w.end()
	if reported == 0 {
		t.Error("nothing was acknowledged")
	}
	wantCount(t, s, "1", reported)
	master.start()
	eventually(t, 30*time.Second, "entries are confirmed again", func() bool { return swapOne(s, "2") == nil })
	select {
	case err := <-waiting:
		if err != nil {
			t.Error("who waited:", err)
		}
	case <-time.After(10 * time.Second):
		t.Error("who waited was not told")
	}
}

// masterOf is the server that has the slot of the entries of these tests.
func masterOf(t *testing.T, nodes []*server) *server {
	t.Helper()
	for _, node := range nodes {
		c := node.client(goredis.Options{})
		role, err := c.Info(t.Context(), "replication").Result()
		if err != nil {
			t.Fatal(err)
		}
		keys, err := c.Keys(t.Context(), "aepb:e:*").Result()
		if err == nil && len(keys) > 0 && strings.Contains(role, "role:master") {
			return node
		}
	}
	t.Fatal("nobody has it")
	return nil
}

// R18: too few replicas, and nothing is acknowledged or announced.
func TestUnconfirmed_NothingAcknowledged(t *testing.T) {
	t.Parallel()
	server := serve(t)
	config := redis.Config{Addresses: []string{server.address}, Wait: 1, Timeout: 300 * time.Millisecond, Fleeting: []string{"lease"}}
	s := open(t, config)
	wantUnavailable(t, soon, func() error {
		_, ok, err := s.Entries().Swap(t.Context(), entryKey("1"), 0, nil, hence())
		if ok || !errors.Is(err, redis.ErrUnconfirmed) {
			t.Errorf("got %v, %v", ok, err)
		}
		return err
	})
	wantUnavailable(t, soon, func() error {
		found, ok, err := s.Entries().Get(t.Context(), entryKey("1"))
		if err != nil || !ok {
			t.Fatalf("what was written and not confirmed is read: %v, %v", ok, err)
		}
		confirmed, err := s.Entries().Confirm(t.Context(), entryKey("1"), found.Revision)
		if confirmed || !errors.Is(err, redis.ErrUnconfirmed) {
			t.Errorf("what was found and is on no replica: got %v, %v", confirmed, err)
		}
		return err
	})
	wantUnavailable(t, soon, func() error { return s.Entries().Delete(t.Context(), entryKey("1")) })
	if _, ok, err := s.Entries().Swap(t.Context(), state.EntryKey{Kind: "lease"}, 0, nil, hence()); !ok || err != nil {
		t.Errorf("of a kind that need not last: %v, %v", ok, err)
	}
	wantUnavailable(t, soon, func() error {
		err := s.Confirm(t.Context(), ect.ReplayKey{ID: "1"}, []byte("end"), hence())
		if !errors.Is(err, redis.ErrUnconfirmed) {
			t.Errorf("an answer that has to last: %v", err)
		}
		return err
	})
}

// The token of a checkpoint counts when a replica has it, under its own key and in its workflow: the call that it stands for is sent then. Other evidence
// does not wait (R18).
func TestUnconfirmed_OnHold(t *testing.T) {
	t.Parallel()
	server := serve(t)
	s := open(t, redis.Config{Addresses: []string{server.address}, Wait: 1, Timeout: time.Second})
	put := func(id ect.ID, onHold bool) error {
		return s.Put(t.Context(), ect.Record{
			Compact: "c", ID: id, Workflow: "w", Issuer: "spiffe://x/g", Holder: "h", Parents: []ect.ID{"p"}, Until: hence(), Own: true, OnHold: onHold,
		})
	}
	if err := put("1", false); err != nil {
		t.Errorf("usual evidence: %v", err)
	}
	wantUnavailable(t, soon, func() error {
		err := put("2", true)
		if !errors.Is(err, redis.ErrUnconfirmed) {
			t.Errorf("got %v", err)
		}
		return err
	})
	follow(t, server)
	eventually(t, soon, "it is confirmed", func() bool { return put("3", true) == nil })
}

// An answer that is confirmed is found by the replica that takes over.
func TestConfirm_AnswerIsFound(t *testing.T) {
	t.Parallel()
	for name, config := range map[string]redis.Config{
		"by a replica":     {Addresses: addresses(cluster(t, "--appendfsync", "everysec")), Wait: 1, Timeout: 5 * time.Second},
		"by nobody beside": {Addresses: []string{serve(t).address}},
	} {
		s := open(t, config)
		key := ect.ReplayKey{Issuer: "task", ID: "1"}
		if err := s.Confirm(t.Context(), key, []byte("end"), hence()); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if got, ok := s.Load(t.Context(), key); !ok || string(got) != "end" {
			t.Errorf("%s: %q, %v", name, got, ok)
		}
	}
}

// A full server refuses what must not be forgotten, and forgets nothing.
func TestRedis_FullRefusesWithoutEviction(t *testing.T) {
	t.Parallel()
	server := serve(t, "--maxmemory", "3mb")
	s := open(t, redis.Config{Addresses: []string{server.address}})
	var full *state.FullError
	var err error
	for n := 0; n < 100 && err == nil; n++ {
		_, _, err = s.Entries().Swap(t.Context(), entryKey(strconv.Itoa(n)), 0, make([]byte, 100_000), hence())
	}
	if !errors.As(err, &full) {
		t.Errorf("entries: %v", err)
	}
	full = nil
	issued := time.Now().Add(2 * time.Second)                  // after the epoch; the first claim waits for it
	for n, err := 0, error(nil); !errors.As(err, &full); n++ { // until the last bytes are gone, too
		if _, err = claim(s, strconv.Itoa(n), issued); n == 10_000 || err != nil && !errors.As(err, &full) {
			t.Fatalf("uses of tokens: %v", err)
		}
	}
	if _, ok, err := s.Entries().Get(t.Context(), entryKey("0")); !ok || err != nil {
		t.Error("reading a full server:", ok, err)
	}
}

// R6: a cache that was emptied has forgotten uses.
func TestRedis_EmptiedForgetsUses(t *testing.T) {
	t.Parallel()
	server := serve(t)
	s := open(t, redis.Config{Addresses: []string{server.address}})
	issued := time.Now().Add(2 * time.Second) // by a clock that is ahead
	if got, err := claim(s, "1", issued); got != ect.ReplayFresh || err != nil {
		t.Fatal(got, err)
	}
	if err := server.client(goredis.Options{}).FlushAll(t.Context()).Err(); err != nil {
		t.Fatal(err)
	}
	if got, err := claim(s, "1", issued); got != ect.ReplayUnknown {
		t.Errorf("got %v, %v: a token can be used twice", got, err)
	}
}

// Once tokens can be newer than the epoch, older ones are refused for good.
func TestClaim_OlderThanTheEpochRefused(t *testing.T) {
	t.Parallel()
	s := open(t, redis.Config{Addresses: []string{serve(t).address}})
	eventually(t, soon, "old tokens are refused for good", func() bool {
		got, err := claim(s, "1", time.Now().Add(-time.Minute))
		return got == ect.ReplayUnknown && err == nil
	})
}

// TestClaim_InTheSecondOfTheEpoch: iat has whole seconds, so what is issued in the second
// in which the epoch begins looks older than it, also when it is not. The caller is told
// to come again, and a token of the next second is new.
func TestClaim_InTheSecondOfTheEpoch(t *testing.T) {
	t.Parallel()
	config := redis.Config{Addresses: []string{serve(t).address}}
	secondBegins(t)
	began := time.Now()
	s := open(t, config)
	got, err := claim(s, "1", time.Now().Truncate(time.Second))
	late := (*state.UnavailableError)(nil)
	if rest := time.Until(began.Truncate(time.Second).Add(time.Second)); got != ect.ReplayUnknown || !errors.As(err, &late) ||
		late.Lacks != state.LacksReplay || late.RetryAfter <= 0 || late.RetryAfter > rest+100*time.Millisecond {
		t.Errorf("issued after the start: got %v, %v, want to come again within %v", got, err, rest)
	}
	eventually(t, soon, "a token that is issued now is new", func() bool {
		got, err := claim(s, "2", time.Now().Truncate(time.Second))
		return got == ect.ReplayFresh && err == nil
	})
	if got, err := claim(s, "3", began.Truncate(time.Second)); got != ect.ReplayUnknown || err != nil {
		t.Errorf("issued in the second of the start, and shown later: %v, %v", got, err)
	}
}

func TestClose_RefusesLaterOperations(t *testing.T) {
	t.Parallel()
	s := open(t, redis.Config{Addresses: []string{serve(t).address}})
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	wantUnavailable(t, soon, func() error { return swapOne(s, "1") })
}

// TestTasks_LeaveMemoryToRecords: while nearly all of maxmemory is in use no more
// tasks and sessions begin but in the place of ended ones, those that are there can change, and
// records have space.
func TestTasks_LeaveMemoryToRecords(t *testing.T) {
	t.Parallel()
	server := serve(t, "--maxmemory", "16mb")
	s := open(t, redis.Config{
		Addresses: []string{server.address},
		Bounds:    state.Config{MaxEntriesBytesPerOwner: 64 << 20, RecordKinds: []string{"decision"}},
	})
	e := s.Entries()
	client := server.client(goredis.Options{})
	var first uint64
	for n := 0; s.Filled() <= redis.Crowded; n++ {
		if n == 400 {
			t.Fatalf("400 tasks of 100 kB, and %.2f of 16 MiB is in use", s.Filled())
		}
		revision, _, err := e.Swap(t.Context(), entryKey(strconv.Itoa(n)), 0, make([]byte, 100_000), hence())
		if err != nil {
			t.Fatal(err)
		}
		if n == 0 {
			first = revision
		}
		if used(t, client) > 14.2*(1<<20) {
			eventually(t, soon, "the store sees how much is in use", func() bool { return s.Filled() > redis.Crowded })
		}
	}
	_, _, err := e.Swap(t.Context(), entryKey("another"), 0, nil, hence())
	if full, ok := errors.AsType[*state.FullError](err); !ok || full.Own {
		t.Errorf("another task: %v", err)
	}
	if _, ok, err := e.Swap(t.Context(), entryKey("0"), first, append([]byte(state.EndedMark), make([]byte, 1000)...), hence()); !ok || err != nil {
		t.Errorf("a task that is there: %v, %v", ok, err)
	}
	other := state.EntryKey{Kind: "task", Group: "another caller", ID: "1"}
	if _, ok, err := e.Swap(t.Context(), other, 0, nil, hence()); !ok || err != nil {
		t.Errorf("a task in the place of one that ended: %v, %v", ok, err)
	}
	if _, ok, err := e.Get(t.Context(), entryKey("0")); ok || err != nil {
		t.Errorf("the ended task of the caller with most is there: %v, %v", ok, err)
	}
	session := state.EntryKey{Kind: "session", Group: "a", ID: "1"}
	if _, ok, err := e.Swap(t.Context(), session, 0, nil, hence()); ok || !errors.As(err, new(*state.FullError)) {
		t.Errorf("a session: %v, %v", ok, err)
	}
	if _, ok, err := e.Swap(t.Context(), state.EntryKey{Kind: "decision", Group: "a", ID: "1"}, 0, nil, hence()); !ok || err != nil {
		t.Errorf("a record: %v, %v", ok, err)
	}
}

// used is the memory that a server uses, in bytes.
func used(t *testing.T, c *goredis.Client) float64 {
	t.Helper()
	info, err := c.InfoMap(t.Context(), "memory").Result()
	if err != nil {
		t.Fatal(err)
	}
	number, err := strconv.ParseFloat(info["Memory"]["used_memory"], 64)
	if err != nil {
		t.Fatal(err)
	}
	return number
}

// TestYoung_LastsAsLongAsSomethingIsUnknown: after a loss, tokens that are made now are
// refused for a second or two, and the store says so while it lasts. What cannot have been
// lost costs no wait.
func TestYoung_LastsAsLongAsSomethingIsUnknown(t *testing.T) {
	t.Parallel()
	restart := func(t *testing.T, server *server) {
		t.Helper()
		server.kill()
		server.start()
	}
	for name, tc := range map[string]struct {
		disk string // whether the server keeps its data
		lose func(*testing.T, *server)
	}{
		"restarted with its data": {"yes", restart},
		"restarted empty":         {"no", restart},
		"emptied": {"yes", func(t *testing.T, server *server) {
			t.Helper()
			if err := server.client(goredis.Options{}).FlushAll(t.Context()).Err(); err != nil {
				t.Fatal(err)
			}
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := serve(t, "--appendonly", tc.disk)
			config := redis.Config{Addresses: []string{server.address}, Assert: true}
			second := secondBegins(t) // and so do the looks at Redis
			s := open(t, config)
			if young := s.Young(); young == nil && time.Now().Before(second.Add(time.Second)) {
				t.Error("a store without uses is not young")
			}
			eventually(t, soon, "it is no longer young", func() bool { return s.Young() == nil })
			wantNew(t, open(t, config))
			tc.lose(t, server)
			polls, claims := 0, 0
			eventually(t, soon, "it says that it is young", func() bool { polls++; return s.Young() != nil })
			eventually(t, soon, "a token that is made now is new", func() bool {
				polls, claims = polls+1, claims+1
				began := time.Now()
				got, err := claim(s, strconv.Itoa(claims), began.Truncate(time.Second))
				late, _ := errors.AsType[*state.UnavailableError](err)
				if late != nil && (late.RetryAfter > time.Second || s.Young() == nil && time.Now().Before(began.Add(late.RetryAfter))) {
					t.Errorf("refused for %v, and the store says %v", late.RetryAfter, s.Young())
				}
				return got == ect.ReplayFresh && err == nil
			})
			eventually(t, soon, "it is no longer young", func() bool { polls++; return s.Young() == nil }) // it counts from the reply, and for the latest epoch
			for i := range 100 {
				if got, err := claim(s, "after "+strconv.Itoa(i), time.Now().Truncate(time.Second)); got != ect.ReplayFresh || err != nil {
					t.Fatalf("a new token is %v, %v, and the store is not young", got, err)
				}
			}
			if polls > 150 {
				t.Errorf("new tokens were refused for %d polls every 20 ms, expected at most 2 s", polls)
			}
		})
	}
}

// secondBegins waits for the first part of a second, and returns its beginning.
func secondBegins(t *testing.T) (second time.Time) {
	t.Helper()
	eventually(t, soon, "a second begins", func() bool {
		now := time.Now()
		second = now.Truncate(time.Second)
		return now.Sub(second) < 300*time.Millisecond
	})
	return second
}

// wantNew: a token that is made now can be used at once.
func wantNew(t *testing.T, s *redis.Store) {
	t.Helper()
	if got, err := claim(s, "new", time.Now().Truncate(time.Second)); got != ect.ReplayFresh || err != nil || s.Young() != nil {
		t.Errorf("a gateway that starts: a new token is %v, %v; the store says %v", got, err, s.Young())
	}
}

// TestYoung_LastsForTheLatestEpoch: each slot has an epoch of its own, and they may be a second apart. A refusal in one
// does not say that the others are known again.
func TestYoung_LastsForTheLatestEpoch(t *testing.T) {
	t.Parallel()
	server := serve(t)
	config := redis.Config{Addresses: []string{server.address}}.WithDefaults()
	s := open(t, config)
	eventually(t, soon, "it is no longer young", func() bool { return s.Young() == nil })
	earlier, later := "1", "2"
	for i := 3; redis.EpochKeyOf(config, later) == redis.EpochKeyOf(config, earlier); i++ {
		later = strconv.Itoa(i)
	}
	for id, ahead := range map[string]time.Duration{earlier: time.Minute, later: time.Hour} {
		key := redis.EpochKeyOf(config, id)
		if err := server.client(goredis.Options{}).HSet(t.Context(), key, "epoch", time.Now().Add(ahead).UnixMicro()).Err(); err != nil {
			t.Fatal(err)
		}
	}
	for _, id := range []string{later, earlier} {
		if got, err := claim(s, id, time.Now().Truncate(time.Second)); got != ect.ReplayUnknown || err == nil {
			t.Errorf("%s: got %v, %v", id, got, err)
		}
		young, _ := errors.AsType[*state.UnavailableError](s.Young())
		if young == nil || young.RetryAfter < 50*time.Minute {
			t.Errorf("after a refusal of %s the store says %+v", id, young)
		}
	}
}

// TestYoung_IsSaidWithTheRefusal: what refuses a token for it also says so, without a look
// at Redis in between.
func TestYoung_IsSaidWithTheRefusal(t *testing.T) {
	t.Parallel()
	server := serve(t)
	s := open(t, redis.Config{Addresses: []string{server.address}})
	eventually(t, soon, "it is no longer young", func() bool { return s.Young() == nil })
	second := secondBegins(t)
	if err := server.client(goredis.Options{}).FlushAll(t.Context()).Err(); err != nil {
		t.Fatal(err)
	}
	_, err := claim(s, "1", time.Now().Truncate(time.Second))
	if young := s.Young(); (err == nil || young == nil) && time.Now().Before(second.Add(time.Second)) {
		t.Errorf("refused: %v; the store says %v", err, young)
	}
}
