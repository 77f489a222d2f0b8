package state_test

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/gateway/state"
)

func open(tb testing.TB, config state.Config) *state.Memory {
	tb.Helper()
	m, err := state.New(config, state.Deps{})
	if err != nil {
		tb.Fatal(err)
	}
	return m
}

func record(n int, wid string, lives time.Duration) ect.Record {
	return ect.Record{
		Compact: fmt.Sprintf("token-%d", n), ID: ect.ID(fmt.Sprintf("id-%d", n)), Workflow: wid,
		Issuer: "spiffe://a.test/a", Audience: []string{"spiffe://b.test/b"}, Act: "ask",
		Parents: []ect.ID{"parent"}, Until: time.Now().Add(lives),
	}
}

func put(t *testing.T, m *state.Memory, records ...ect.Record) {
	t.Helper()
	for _, r := range records {
		if err := m.Put(t.Context(), r); err != nil {
			t.Fatal(err)
		}
	}
}

func ids(t *testing.T, m *state.Memory, wid string) []ect.ID {
	t.Helper()
	records, err := m.Workflow(t.Context(), wid)
	if err != nil {
		t.Fatal(err)
	}
	out := []ect.ID{}
	for _, r := range records {
		out = append(out, r.ID)
	}
	return out
}

func has(t *testing.T, m *state.Memory, id ect.ID) bool {
	t.Helper()
	_, ok, err := m.Get(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	return ok
}

func TestTokens(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m := open(t, state.Config{})
		want := record(1, "w", time.Hour)
		put(t, m, want, record(2, "w", time.Hour), record(3, "other", time.Hour), record(4, "", time.Hour))
		got, ok, err := m.Get(t.Context(), want.ID)
		if !ok || err != nil {
			t.Fatal(ok, err)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Error(diff)
		}
		if diff := cmp.Diff([]ect.ID{"id-1", "id-2"}, ids(t, m, "w")); diff != "" {
			t.Error(diff)
		}
		for _, nothing := range []string{"", "unknown"} {
			if got := ids(t, m, nothing); len(got) != 0 {
				t.Errorf("workflow %q holds %v", nothing, got)
			}
		}
		if has(t, m, "id-9") {
			t.Error("found what was never put")
		}
	})
}

func TestTokensSameIDAgain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m := open(t, state.Config{})
		first := record(1, "w", time.Hour)
		put(t, m, first, first)
		other := first
		other.Compact, other.Workflow = "other bytes", "elsewhere"
		var conflict *ect.ConflictError
		if err := m.Put(t.Context(), other); !errors.As(err, &conflict) || conflict.ID != first.ID {
			t.Fatalf("other bytes under a known id: %v", err)
		}
		if got, _, _ := m.Get(t.Context(), first.ID); got.Compact != first.Compact {
			t.Error("a refused record replaced the first")
		}
		if got := ids(t, m, "elsewhere"); len(got) != 0 {
			t.Error("a refused record is listed")
		}
		longer := first
		longer.Until = first.Until.Add(time.Hour)
		put(t, m, longer, first) // the shorter life does not take back the longer
		time.Sleep(90 * time.Minute)
		if !has(t, m, first.ID) || len(ids(t, m, "w")) != 1 {
			t.Error("putting it again did not prolong it")
		}
	})
}

// What the store hands out is its reader's own, and what it was given stays the giver's.
func TestTokensShareNothing(t *testing.T) {
	t.Parallel()
	m := open(t, state.Config{})
	mine := record(1, "w", time.Hour)
	put(t, m, mine)
	mine.Audience[0], mine.Parents[0] = "changed", "changed"
	got, _, _ := m.Get(t.Context(), mine.ID)
	got.Audience[0], got.Parents[0] = "changed", "changed"
	all, _ := m.Workflow(t.Context(), "w")
	all[0].Audience[0], all[0].Parents[0] = "changed", "changed"
	if got, _, _ = m.Get(t.Context(), mine.ID); got.Audience[0] == "changed" || got.Parents[0] == "changed" {
		t.Error("the stored record was changed from outside")
	}
}

func TestTokensExpire(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m := open(t, state.Config{})
		put(t, m, record(1, "w", time.Minute), record(2, "w", time.Hour))
		time.Sleep(time.Minute)
		if !has(t, m, "id-1") {
			t.Error("gone at its last instant")
		}
		time.Sleep(time.Nanosecond)
		if has(t, m, "id-1") {
			t.Error("found after its end")
		}
		if diff := cmp.Diff([]ect.ID{"id-2"}, ids(t, m, "w")); diff != "" {
			t.Error(diff)
		}
		other := record(1, "w", time.Hour)
		other.Compact = "the id is free again"
		put(t, m, other)
	})
}

func TestTokensBounds(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m := open(t, state.Config{MaxTokens: 3})
		put(t, m, record(1, "w", 3*time.Hour), record(2, "w", time.Hour), record(3, "w", 2*time.Hour))
		put(t, m, record(4, "w", 4*time.Hour))
		if diff := cmp.Diff([]ect.ID{"id-1", "id-3", "id-4"}, ids(t, m, "w")); diff != "" {
			t.Errorf("the one with the least time left should have gone: %s", diff)
		}
		if u := m.Tokens.Usage(); u.Entries != 3 || u.Evicted != 1 {
			t.Errorf("usage %+v", u)
		}
	})
}

func TestTokensByteBound(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m := open(t, state.Config{MaxTokenBytes: 4096})
		for n := range 100 {
			put(t, m, record(n, "w", time.Hour+time.Duration(n)))
		}
		u := m.Tokens.Usage()
		if u.Bytes > 4096 || u.Entries == 0 || uint64(u.Entries)+u.Evicted != 100 {
			t.Errorf("usage %+v", u)
		}
		huge := record(100, "w", time.Hour)
		huge.Compact = string(make([]byte, 5000))
		var full *state.FullError
		if err := m.Put(t.Context(), huge); !errors.As(err, &full) {
			t.Errorf("a record larger than the store: %v", err)
		}
		if after := m.Tokens.Usage(); after.Entries != u.Entries {
			t.Errorf("a refused record cost others their place: %+v", after)
		}
		time.Sleep(2 * time.Hour)
		for n := range 20 { // writing sweeps: what has expired always shrinks
			put(t, m, record(200+n, "", time.Second))
			time.Sleep(2 * time.Second)
		}
		if u := m.Tokens.Usage(); u.Entries > 1 {
			t.Errorf("expired records stay: %+v", u)
		}
	})
}

func claim(t *testing.T, m *state.Memory, jti, token, body string, lives time.Duration) ect.ReplayState {
	t.Helper()
	got, err := m.Claim(t.Context(), ect.ReplayKey{Issuer: "i", Workflow: "w", ID: ect.ID(jti)},
		ect.ReplayUse{Token: token, Body: body, Issued: time.Now(), Until: time.Now().Add(lives)})
	if err != nil {
		t.Fatal(err)
	}
	return got
}

// R6, first half.
func TestReplays(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m := open(t, state.Config{})
		for i, tc := range []struct {
			jti, token, body string
			want             ect.ReplayState
		}{
			{"1", "t", "b", ect.ReplayFresh},
			{"1", "t", "b", ect.ReplaySame},
			{"1", "t", "other", ect.ReplayConflict},
			{"1", "other", "b", ect.ReplayConflict},
			{"1", "tb", "", ect.ReplayConflict},
			{"1", "t", "b", ect.ReplaySame},
			{"2", "t", "b", ect.ReplayFresh},
		} {
			if got := claim(t, m, tc.jti, tc.token, tc.body, time.Minute); got != tc.want {
				t.Errorf("claim %d: got %d, want %d", i, got, tc.want)
			}
		}
		time.Sleep(time.Minute)
		if got := claim(t, m, "1", "t", "b", time.Minute); got != ect.ReplaySame {
			t.Errorf("forgotten at its last instant: %d", got)
		}
		time.Sleep(time.Nanosecond)
		if got := claim(t, m, "1", "t", "b", time.Minute); got != ect.ReplayFresh {
			t.Errorf("remembered after its end: %d", got)
		}
	})
}

// Issuer, workflow and id are the key, and do not run into each other.
func TestReplayKeys(t *testing.T) {
	t.Parallel()
	m := open(t, state.Config{})
	use := ect.ReplayUse{Token: "t", Body: "b", Issued: time.Now(), Until: time.Now().Add(time.Hour)}
	for _, k := range [][3]string{
		{"a", "b", "c"}, {"x", "b", "c"}, {"a", "x", "c"}, {"a", "b", "x"}, {"ab", "", "c"}, {"a", "bc", ""}, {"", "ab", "c"},
	} {
		key := ect.ReplayKey{Issuer: ect.Identity(k[0]), Workflow: k[1], ID: ect.ID(k[2])}
		if got, err := m.Claim(t.Context(), key, use); got != ect.ReplayFresh || err != nil {
			t.Errorf("%v: %d, %v", key, got, err)
		}
	}
}

// A full cache refuses rather than forget: forgetting would let a token in twice.
func TestReplaysFull(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m := open(t, state.Config{MaxReplays: 2})
		claim(t, m, "1", "t", "b", time.Minute)
		claim(t, m, "2", "t", "b", time.Hour)
		key := ect.ReplayKey{Issuer: "i", Workflow: "w", ID: "3"}
		use := ect.ReplayUse{Token: "t", Body: "b", Issued: time.Now(), Until: time.Now().Add(time.Hour)}
		var full *state.FullError
		if _, err := m.Claim(t.Context(), key, use); !errors.As(err, &full) || full.RetryAfter != time.Minute {
			t.Fatalf("a full cache: %v", err)
		}
		if claim(t, m, "1", "t", "b", time.Minute) != ect.ReplaySame || claim(t, m, "2", "t", "x", time.Minute) != ect.ReplayConflict {
			t.Error("a full cache forgot")
		}
		time.Sleep(time.Minute + time.Nanosecond)
		if got, err := m.Claim(t.Context(), key, use); got != ect.ReplayFresh || err != nil {
			t.Errorf("room came free and was not used: %d, %v", got, err)
		}
	})
}

// R6, second half: what was issued before the epoch may have been used before.
func TestReplaysBeforeTheEpoch(t *testing.T) {
	t.Parallel()
	epoch := time.Unix(1_800_000_000, 0)
	now := epoch
	m, err := state.New(state.Config{}, state.Deps{Epoch: epoch, Now: func() time.Time { return now }})
	if err != nil {
		t.Fatal(err)
	}
	if !m.Epoch().Equal(epoch) {
		t.Errorf("epoch %v", m.Epoch())
	}
	for name, tc := range map[string]struct {
		issued time.Time
		want   ect.ReplayState
	}{
		"before": {epoch.Add(-time.Second), ect.ReplayUnknown},
		"at":     {epoch, ect.ReplayFresh},
		"after":  {epoch.Add(time.Second), ect.ReplayFresh},
	} {
		for range 2 { // an unknown use stays unknown
			got, err := m.Claim(t.Context(), ect.ReplayKey{ID: ect.ID(name)},
				ect.ReplayUse{Token: "t", Issued: tc.issued, Until: epoch.Add(time.Hour)})
			if tc.want == ect.ReplayFresh && got == ect.ReplaySame {
				continue
			}
			if err != nil || got != tc.want {
				t.Errorf("%s: %d, %v, want %d", name, got, err, tc.want)
			}
		}
	}
}

// Of many callers with one key exactly one is the first.
func TestReplaysRace(t *testing.T) {
	t.Parallel()
	m := open(t, state.Config{})
	var fresh atomic.Int64
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for n := range 200 {
				if claim(t, m, strconv.Itoa(n), "t", "b", time.Hour) == ect.ReplayFresh {
					fresh.Add(1)
				}
			}
		})
	}
	wg.Wait()
	if got := fresh.Load(); got != 200 {
		t.Errorf("%d firsts for 200 keys", got)
	}
}

func TestAnswers(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx := t.Context()
		m := open(t, state.Config{MaxAnswerBytes: 100, MaxAnswersBytes: 1000})
		key := func(jti string) ect.ReplayKey { return ect.ReplayKey{Issuer: "i", Workflow: "w", ID: ect.ID(jti)} }
		soon, late := time.Now().Add(time.Minute), time.Now().Add(time.Hour)
		blob := []byte("answer")
		m.Finish(ctx, key("1"), blob, soon)
		blob[0] = 'x'
		got, ok := m.Load(ctx, key("1"))
		if !ok || string(got) != "answer" {
			t.Fatalf("got %q, %v", got, ok)
		}
		got[0] = 'y'
		if got, _ = m.Load(ctx, key("1")); string(got) != "answer" {
			t.Error("a reader changed the stored answer")
		}
		if _, ok := m.Load(ctx, key("2")); ok {
			t.Error("found what was never stored")
		}
		m.Finish(ctx, key("2"), make([]byte, 101), late)
		if _, ok := m.Load(ctx, key("2")); ok {
			t.Error("an answer beyond its bound was kept")
		}
		m.Finish(ctx, key("1"), []byte("later"), soon)
		if got, _ := m.Load(ctx, key("1")); string(got) != "later" {
			t.Errorf("got %q", got)
		}
		m.Finish(ctx, key("3"), make([]byte, 100), late)
		m.Finish(ctx, key("4"), make([]byte, 100), late) // now there is no room for all three
		if _, ok := m.Load(ctx, key("1")); ok {
			t.Error("the answer with the least time left should have gone")
		}
		if u := m.Answers.Usage(); u.Entries != 2 || u.Bytes > 1000 {
			t.Errorf("usage %+v", u)
		}
		time.Sleep(time.Hour + time.Nanosecond)
		if _, ok := m.Load(ctx, key("3")); ok {
			t.Error("found after its end")
		}
	})
}

func TestConversations(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx := t.Context()
		m := open(t, state.Config{MaxConversations: 2, ConversationLifetime: time.Hour})
		last := func(key string) string {
			wid, id, ok := m.Last(ctx, key)
			if !ok {
				return "none"
			}
			return wid + "/" + string(id)
		}
		m.Remember(ctx, "", "w", "1")
		if got := last(""); got != "none" {
			t.Errorf("the empty key holds %s", got)
		}
		m.Remember(ctx, "a", "w", "1")
		m.Remember(ctx, "a", "w", "2")
		if got := last("a"); got != "w/2" {
			t.Errorf("got %s, want the last turn", got)
		}
		time.Sleep(time.Minute)
		m.Remember(ctx, "b", "v", "1")
		time.Sleep(time.Minute)
		m.Remember(ctx, "a", "w", "3") // now b has rested longest
		m.Remember(ctx, "c", "u", "1")
		if a, b, c := last("a"), last("b"), last("c"); a != "w/3" || b != "none" || c != "u/1" {
			t.Errorf("a %s, b %s, c %s", a, b, c)
		}
		if u := m.Conversations.Usage(); u.Entries != 2 {
			t.Errorf("usage %+v", u)
		}
		time.Sleep(time.Hour + time.Nanosecond)
		if got := last("a"); got != "none" {
			t.Errorf("got %s after its end", got)
		}
	})
}

func TestConfig(t *testing.T) {
	t.Parallel()
	if _, err := state.New(state.Config{MaxReplays: -1}, state.Deps{}); err == nil {
		t.Error("a negative bound was accepted")
	}
}

// Everything at once, for the race detector and for the bounds.
func TestConcurrentUse(t *testing.T) {
	t.Parallel()
	m := open(t, state.Config{MaxTokens: 50, MaxAnswers: 50, MaxConversations: 50})
	ctx := context.Background()
	var wg sync.WaitGroup
	for worker := range 4 {
		wg.Go(func() {
			for n := range 300 {
				r := record(worker*1000+n, strconv.Itoa(n%5), time.Duration(n%7)*time.Millisecond)
				_ = m.Put(ctx, r)
				_, _, _ = m.Get(ctx, r.ID)
				_, _ = m.Workflow(ctx, r.Workflow)
				m.Finish(ctx, ect.ReplayKey{ID: r.ID}, []byte("x"), r.Until)
				_, _ = m.Load(ctx, ect.ReplayKey{ID: r.ID})
				m.Remember(ctx, strconv.Itoa(n), "w", r.ID)
				_, _, _ = m.Last(ctx, strconv.Itoa(n))
			}
		})
	}
	wg.Wait()
	for name, u := range map[string]state.Usage{
		"tokens": m.Tokens.Usage(), "answers": m.Answers.Usage(), "conversations": m.Conversations.Usage(),
	} {
		if u.Entries > 50 {
			t.Errorf("%s: %+v", name, u)
		}
	}
}

// BenchmarkClaim is the measurement behind the single lock (doc.go).
func BenchmarkClaim(b *testing.B) {
	m := open(b, state.Config{MaxReplays: 1 << 24})
	var next atomic.Int64
	until := time.Now().Add(time.Hour)
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			id := ect.ID(fmt.Sprintf("6f0a1c52-6a83-4d6f-9f6e-%012d", next.Add(1)))
			_, _ = m.Claim(context.Background(), ect.ReplayKey{Issuer: "spiffe://a.test/agents/alice", Workflow: "6f0a1c52-6a83-4d6f-9f6e-0d2f3a4b5c6d", ID: id},
				ect.ReplayUse{Token: "ZpAMVq0oZL4tsrRLY0M2Lw6B9y5nWlH7N1m8Yc0n3sE", Body: "ZpAMVq0oZL4tsrRLY0M2Lw6B9y5nWlH7N1m8Yc0n3sE", Until: until})
		}
	})
}

func BenchmarkPut(b *testing.B) {
	m := open(b, state.Config{})
	var next atomic.Int64
	until := time.Now().Add(time.Hour)
	compact := string(make([]byte, 2048))
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			n := next.Add(1)
			_ = m.Put(context.Background(), ect.Record{
				Compact: compact, ID: ect.ID(strconv.FormatInt(n, 10)), Workflow: strconv.FormatInt(n/4, 10), Until: until,
				Audience: []string{"spiffe://b.test/b"}, Parents: []ect.ID{"parent"},
			})
		}
	})
}
