package state_test

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/ect/ecttest"
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

func TestConfig_NegativeBoundRefused(t *testing.T) {
	t.Parallel()
	if _, err := state.New(state.Config{MaxReplays: -1}, state.Deps{}); err == nil {
		t.Error("a negative bound was accepted")
	}
}

// Without an epoch nothing was ever used before.
func TestClaim_WithoutEpochIsFresh(t *testing.T) {
	t.Parallel()
	m := open(t, state.Config{})
	if !m.Epoch().IsZero() {
		t.Errorf("epoch %v", m.Epoch())
	}
	got, err := m.Claim(t.Context(), ect.ReplayKey{ID: "1"}, ect.ReplayUse{Issued: time.Unix(1, 0), Until: time.Now().Add(time.Hour)})
	if got != ect.ReplayFresh || err != nil {
		t.Errorf("got %d, %v", got, err)
	}
}

func TestKinds_NumbersAndNames(t *testing.T) {
	t.Parallel()
	names := map[string]bool{}
	for i, kind := range state.Kinds() {
		if int(kind) != i {
			t.Errorf("%s is number %d, not %d: files would be read wrong", kind, kind, i)
		}
		names[kind.String()] = true
	}
	if beyond := state.Kind(5); len(names) != 5 || names[beyond.String()] || open(t, state.Config{}).UsageOf(beyond) != (state.Usage{}) {
		t.Errorf("names %v", names)
	}
}

// TestFilled_LargerOfCountAndBytes: a kind takes the larger of its part of the number and of the bytes, and
// what has ended is no part of what lasts.
func TestFilled_LargerOfCountAndBytes(t *testing.T) {
	t.Parallel()
	m := open(t, state.Config{MaxEntries: 8, MaxEntriesPerOwner: 8, MaxEntriesBytes: 100_000, MaxAnswers: 4})
	until := time.Now().Add(time.Hour)
	for id, value := range map[string]string{"1": "goes on", "2": state.EndedMark, "3": state.EndedMark} {
		if _, ok, err := m.Entries().Swap(t.Context(), state.EntryKey{Kind: "task", Group: "a", ID: id}, 0, []byte(value), until); !ok || err != nil {
			t.Fatal(ok, err)
		}
	}
	m.Finish(t.Context(), ect.ReplayKey{ID: "1"}, []byte("answer"), until)
	want := map[string]float64{"tokens": 0, "replays": 0, "answers": 0.25, "conversations": 0, "entries": 0.375, state.KindLasting: 0.125}
	if diff := cmp.Diff(want, m.Filled()); diff != "" {
		t.Error(diff)
	}
	if _, _, err := m.Entries().Swap(t.Context(), state.EntryKey{Kind: "mail", Group: "a", ID: "1"}, 0, make([]byte, 60_000), until); err != nil {
		t.Fatal(err)
	}
	if got := m.Filled()[state.KindLasting]; got < 0.6 || got > 0.62 {
		t.Errorf("with 60 kB of 100: %v", got)
	}
}

// BenchmarkClaim_SingleLock is the measurement behind the single lock (doc.go).
func BenchmarkClaim_SingleLock(b *testing.B) {
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

func BenchmarkPut_Parallel(b *testing.B) {
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

// What a call leaves behind, in a memory that is full of what earlier ones left.
func BenchmarkMemory_FullCall(b *testing.B) {
	m, calls, answer, compact := open(b, state.Config{}), 0, make([]byte, 400), strings.Repeat("c", 600)
	holders := make([]string, 64)
	for i := range holders {
		holders[i] = fmt.Sprint("holder ", i)
	}
	call := func() {
		calls++
		id, until := strconv.Itoa(calls), time.Now().Add(time.Hour)
		for _, kind := range []string{"source", "request", "reply"} {
			if err := m.Put(b.Context(), ect.Record{Compact: compact, ID: ect.ID(kind + id), Workflow: id, Issuer: "https://issuer.example", Until: until, Holder: holders[calls%len(holders)]}); err != nil {
				b.Fatal(err)
			}
		}
		m.Finish(b.Context(), ect.ReplayKey{ID: ect.ID(id)}, answer, until)
		m.Remember(b.Context(), id, id, ect.ID(id))
	}
	for m.UsageOf(state.KindToken).Evicted == 0 || m.UsageOf(state.KindConversation).Evicted == 0 {
		call()
	}
	b.ReportAllocs()
	for b.Loop() {
		call()
	}
}

// TestTokens_AListLooksAtABoundedNumber: a page of workflows ends after some hundred records, of however many, also where
// none of them came late enough.
func TestTokens_AListLooksAtABoundedNumber(t *testing.T) {
	t.Parallel()
	m := open(t, state.Config{})
	const records = 3000
	old := ecttest.MintUnsigned(t, ecttest.NewParty(t, "spiffe://a.test/a"), ecttest.Recipe{Claims: ect.Claims{
		ID: ect.NewID(), Audience: []string{"b"}, IssuedAt: time.Now().Add(-time.Hour).Unix(), Expires: time.Now().Unix(),
	}})
	for n := range records {
		r := ect.Record{Compact: old, ID: ect.ID(strconv.Itoa(n)), Workflow: "w" + strconv.Itoa(n/2), Issuer: "a", Parents: []ect.ID{"p"}, Until: time.Now().Add(time.Hour)}
		if err := m.Put(t.Context(), r); err != nil {
			t.Fatal(err)
		}
	}
	pages, after := 0, ""
	for ; pages == 0 || after != ""; pages++ {
		wids, next, err := m.Workflows(t.Context(), time.Now().Add(-time.Minute), after, ect.MaxListed)
		if err != nil || len(wids) > 0 {
			t.Fatalf("got %v, %v", wids, err)
		}
		after = next
	}
	if pages < records/600 || pages > records/200 {
		t.Errorf("%d records in %d pages", records, pages)
	}
}
