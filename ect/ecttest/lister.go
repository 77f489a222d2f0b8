package ecttest

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/aepb/aepb-gateway/ect"
)

// ListingStore is a store that lists its workflows.
type ListingStore interface {
	ect.Store
	ect.Lister
}

// Workflows lists those with a token that was issued at or after since, in the order in which they began.
func (s *Store) Workflows(_ context.Context, since time.Time, after string, limit int) (wids []string, next string, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	begin := 0
	if after != "" {
		if begin, err = strconv.Atoi(after); err != nil {
			return nil, "", ect.ErrCursor
		}
	}
	var all []string
	for _, r := range s.records {
		claims, err := ect.ParseRecorded(r.Compact)
		late := err != nil || claims.IssuedAt >= since.Unix()
		if late && r.Workflow != "" && !slices.Contains(all, r.Workflow) {
			all = append(all, r.Workflow)
		}
	}
	begin = min(max(begin, 0), len(all))
	end := min(begin+min(max(limit, 1), ect.MaxListed), len(all))
	if end < len(all) {
		next = strconv.Itoa(end)
	}
	return all[begin:end], next, nil
}

// Workflows returns all workflows of a store since a time, sorted, page by page.
func Workflows(ctx context.Context, s ect.Lister, since time.Time, limit int) (wids []string, err error) {
	for after := ""; ; {
		some, next, err := s.Workflows(ctx, since, after, limit)
		if wids = append(wids, some...); err != nil || next == "" {
			slices.Sort(wids)
			return wids, err
		}
		after = next
	}
}

// ListerCases are the contract of ect.Lister, each on an empty store. They wait for some seconds, by the clock
// of package time.
func ListerCases() map[string]func(*testing.T, ListingStore) {
	return map[string]func(*testing.T, ListingStore){
		"lists workflows in pages":             listerPages,
		"lists workflows since a time":         listerSince,
		"lists no workflow without a record":   listerEnded,
		"refuses a cursor that is not its own": listerCursor,
	}
}

// issuedNow is a record of a token that a party has just signed.
func issuedNow(t *testing.T, by *Party, wid string, lives time.Duration) ect.Record {
	t.Helper()
	now := time.Now()
	id := ect.NewID()
	compact := Mint(t, by, Recipe{Claims: ect.Claims{ID: id, Workflow: wid, Audience: []string{"spiffe://example.org/b"}, IssuedAt: now.Unix(), Expires: now.Add(lives).Unix()}})
	return ect.Record{
		Compact: compact, ID: id, Workflow: wid, Issuer: by.ID, Audience: []string{"spiffe://example.org/b"}, Act: ect.ActTranslate,
		Parents: []ect.ID{ect.NewID()}, Until: now.Add(lives), Holder: "holder",
	}
}

func wantWorkflows(t *testing.T, s ect.Lister, since time.Time, limit int, want ...string) {
	t.Helper()
	got, err := Workflows(t.Context(), s, since, limit)
	slices.Sort(want)
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("since %v in pages of %d: got %d workflows %v, %v, want %d %v", since, limit, len(got), got, err, len(want), want)
	}
}

// Each workflow comes once, whatever the size of the pages, and a page has at most ect.MaxListed of them.
func listerPages(t *testing.T, s ListingStore) {
	t.Helper()
	by := NewParty(t, "spiffe://example.org/a")
	wantWorkflows(t, s, time.Time{}, 10)
	var want []string
	for n := range ect.MaxListed + 30 {
		wid := string(ect.NewID())
		want = append(want, wid)
		for range 1 + n%3 {
			put(t, s, issuedNow(t, by, wid, time.Hour))
		}
	}
	put(t, s, issuedNow(t, by, "", time.Hour))
	for _, limit := range []int{0, 1, 7, ect.MaxListed, 10 * ect.MaxListed} {
		wantWorkflows(t, s, time.Now().Add(-time.Minute), limit, want...)
	}
	if wids, next, err := s.Workflows(t.Context(), time.Time{}, "", 10*ect.MaxListed); err != nil || len(wids) > ect.MaxListed || next == "" {
		t.Errorf("a page has %d workflows, next %q, %v", len(wids), next, err)
	}
}

// A workflow is listed if any of its records came since then, also when others came before.
func listerSince(t *testing.T, s ListingStore) {
	t.Helper()
	by := NewParty(t, "spiffe://example.org/a")
	old, both, recent := string(ect.NewID()), string(ect.NewID()), string(ect.NewID())
	put(t, s, issuedNow(t, by, old, time.Hour))
	put(t, s, issuedNow(t, by, both, time.Hour))
	<-time.After(2 * time.Second) // tokens say in which second they were issued
	since := time.Now()
	put(t, s, issuedNow(t, by, both, time.Hour))
	put(t, s, issuedNow(t, by, recent, time.Hour))
	wantWorkflows(t, s, since, 10, both, recent)
	wantWorkflows(t, s, since.Add(-time.Minute), 1, old, both, recent)
	wantWorkflows(t, s, time.Time{}, 10, old, both, recent)
	wantWorkflows(t, s, since.Add(time.Minute), 10)
}

// A workflow whose records have all ended is not listed.
func listerEnded(t *testing.T, s ListingStore) {
	t.Helper()
	by := NewParty(t, "spiffe://example.org/a")
	var stay []string
	for range 20 {
		put(t, s, issuedNow(t, by, string(ect.NewID()), time.Second))
		stays := string(ect.NewID())
		put(t, s, issuedNow(t, by, stays, time.Second))
		put(t, s, issuedNow(t, by, stays, time.Hour))
		stay = append(stay, stays)
	}
	<-time.After(2 * time.Second)
	wantWorkflows(t, s, time.Time{}, 10, stay...)
	put(t, s, issuedNow(t, by, stay[0], time.Hour)) // writing sweeps
	wantWorkflows(t, s, time.Time{}, 10, stay...)
}

func listerCursor(t *testing.T, s ListingStore) {
	t.Helper()
	put(t, s, issuedNow(t, NewParty(t, "spiffe://example.org/a"), string(ect.NewID()), time.Hour))
	for _, cursor := range []string{"no cursor", "-", "\x00", "ffffffffffffffffffffffff ", "1.2.3", "z.1"} {
		if wids, _, err := s.Workflows(t.Context(), time.Time{}, cursor, 1); !errors.Is(err, ect.ErrCursor) {
			t.Errorf("a made-up cursor %q: got %v, %v", cursor, wids, err)
		}
	}
}
