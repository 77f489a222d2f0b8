package ecttest

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/aepb/aepb-gateway/ect"
)

// Store is a fake ect.Store that forgets nothing.
type Store struct {
	mu      sync.Mutex
	records map[ect.ID][]ect.Record
}

// NewStore is empty.
func NewStore() *Store { return &Store{records: map[ect.ID][]ect.Record{}} }

var _ ect.Store = (*Store)(nil)

// Put keeps a record.
func (s *Store) Put(_ context.Context, r ect.Record) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	known := s.records[r.ID]
	i := slices.IndexFunc(known, func(old ect.Record) bool { return old.Issuer == r.Issuer })
	switch {
	case i >= 0 && known[i].Compact != r.Compact, i < 0 && len(known) == ect.MaxNamesakes:
		return &ect.ConflictError{ID: r.ID}
	case i >= 0:
		known[i] = copyOf(r)
	default:
		s.records[r.ID] = append(known, copyOf(r))
	}
	return nil
}

// Get finds the records with an id.
func (s *Store) Get(_ context.Context, id ect.ID) ([]ect.Record, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var found []ect.Record
	for _, r := range s.records[id] {
		found = append(found, copyOf(r))
	}
	return found, nil
}

// Workflow finds the records of a workflow.
func (s *Store) Workflow(_ context.Context, wid string) ([]ect.Record, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var found []ect.Record
	for _, known := range s.records {
		for _, r := range known {
			if wid != "" && r.Workflow == wid {
				found = append(found, copyOf(r))
			}
		}
	}
	return found, nil
}

func copyOf(r ect.Record) ect.Record {
	r.Audience, r.Parents = slices.Clone(r.Audience), slices.Clone(r.Parents)
	return r
}

// StoreSuite is the contract of ect.Store. open makes an empty store for each
// case; what it must clean up, it registers itself.
func StoreSuite(t *testing.T, open func() ect.Store) {
	t.Helper()
	for name, test := range map[string]func(*testing.T, ect.Store){
		"keeps every field":           storeKeeps,
		"does not know the unknown":   storeUnknown,
		"accepts the same twice":      storeSame,
		"refuses other bytes":         storeConflict,
		"tells issuers apart":         storeIssuers,
		"bounds namesakes":            storeNamesakes,
		"finds a workflow":            storeWorkflow,
		"shares nothing":              storeShares,
		"lets one of many writers in": storeRace,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, open())
		})
	}
}

func record(compact string) ect.Record {
	return ect.Record{
		Compact: compact, ID: ect.NewID(), Workflow: string(ect.NewID()), Issuer: "spiffe://example.org/a",
		Audience: []string{"spiffe://example.org/b", "spiffe://example.org/c"}, Act: ect.ActTranslate,
		Parents: []ect.ID{ect.NewID(), ect.NewID()}, Until: time.Now().Add(time.Hour).Truncate(time.Second),
	}
}

func put(t *testing.T, s ect.Store, r ect.Record) {
	t.Helper()
	if err := s.Put(t.Context(), r); err != nil {
		t.Fatalf("Put: %v", err)
	}
}

func get(t *testing.T, s ect.Store, id ect.ID) ect.Record {
	t.Helper()
	found, err := s.Get(t.Context(), id)
	if err != nil || len(found) != 1 {
		t.Fatalf("Get: got %d records, %v; want one", len(found), err)
	}
	return found[0]
}

func storeKeeps(t *testing.T, s ect.Store) {
	t.Helper()
	want := record("h.p.s")
	put(t, s, want)
	got := get(t, s, want.ID)
	if !got.Until.Equal(want.Until) {
		t.Errorf("Until: got %v, want %v", got.Until, want.Until)
	}
	if !same(got, want) {
		t.Errorf("got %#v, want %#v", got, want)
	}
}

func same(a, b ect.Record) bool {
	return a.Compact == b.Compact && a.ID == b.ID && a.Workflow == b.Workflow && a.Issuer == b.Issuer &&
		a.Act == b.Act && slices.Equal(a.Audience, b.Audience) && slices.Equal(a.Parents, b.Parents)
}

func storeUnknown(t *testing.T, s ect.Store) {
	t.Helper()
	put(t, s, record("h.p.s"))
	if found, err := s.Get(t.Context(), ect.NewID()); err != nil || len(found) != 0 {
		t.Errorf("got %d records, %v, want nothing and no error", len(found), err)
	}
}

func storeSame(t *testing.T, s ect.Store) {
	t.Helper()
	r := record("h.p.s")
	put(t, s, r)
	put(t, s, r)
	found, err := s.Workflow(t.Context(), r.Workflow)
	if err != nil || len(found) != 1 {
		t.Errorf("got %d records, %v, want 1", len(found), err)
	}
}

func storeConflict(t *testing.T, s ect.Store) {
	t.Helper()
	first := record("h.p.s")
	put(t, s, first)
	second := record("h.p.t")
	second.ID = first.ID
	err := s.Put(t.Context(), second)
	if conflict := (*ect.ConflictError)(nil); !errors.As(err, &conflict) || conflict.ID != first.ID {
		t.Errorf("got %v, want a conflict over the id", err)
	}
	if got := get(t, s, first.ID); !same(got, first) {
		t.Error("a refused record replaced the first one")
	}
	if found, _ := s.Workflow(t.Context(), second.Workflow); len(found) != 0 {
		t.Error("a refused record is found by its workflow")
	}
}

// A jti is its issuer's own: another's token with it neither replaces nor hides
// the first, and each conflicts with its issuer's other bytes alone.
func storeIssuers(t *testing.T, s ect.Store) {
	t.Helper()
	first, foreign := record("h.p.s"), record("h.p.t")
	foreign.ID, foreign.Issuer = first.ID, "spiffe://example.org/other"
	put(t, s, first)
	put(t, s, foreign)
	put(t, s, first)
	found, err := s.Get(t.Context(), first.ID)
	slices.SortFunc(found, func(a, b ect.Record) int { return strings.Compare(a.Compact, b.Compact) })
	if err != nil || len(found) != 2 || !same(found[0], first) || !same(found[1], foreign) {
		t.Fatalf("got %+v, %v; want both", found, err)
	}
	for _, r := range []ect.Record{first, foreign} {
		members, err := s.Workflow(t.Context(), r.Workflow)
		if err != nil || len(members) != 1 || !same(members[0], r) {
			t.Errorf("workflow of %s: got %+v, %v", r.Compact, members, err)
		}
		r.Compact = "h.p.u"
		if err := s.Put(t.Context(), r); !errors.As(err, new(*ect.ConflictError)) {
			t.Errorf("%s with other bytes: %v", r.Issuer, err)
		}
	}
}

func storeNamesakes(t *testing.T, s ect.Store) {
	t.Helper()
	first := record("h.p.s")
	for n := range ect.MaxNamesakes + 1 {
		r := first
		r.Issuer += ect.Identity(strconv.Itoa(n))
		err := s.Put(t.Context(), r)
		if refused := errors.As(err, new(*ect.ConflictError)); refused != (n == ect.MaxNamesakes) {
			t.Fatalf("issuer %d: %v", n, err)
		}
		first.Until = first.Until.Add(-time.Minute) // none of them ends the others
	}
	if found, err := s.Get(t.Context(), first.ID); err != nil || len(found) != ect.MaxNamesakes {
		t.Errorf("got %d records, %v", len(found), err)
	}
}

func storeWorkflow(t *testing.T, s ect.Store) {
	t.Helper()
	a, b, other, none := record("h.p.a"), record("h.p.b"), record("h.p.c"), record("h.p.d")
	b.Workflow, none.Workflow = a.Workflow, ""
	for _, r := range []ect.Record{a, b, other, none} {
		put(t, s, r)
	}
	found, err := s.Workflow(t.Context(), a.Workflow)
	if err != nil {
		t.Fatal(err)
	}
	var ids []ect.ID
	for _, r := range found {
		ids = append(ids, r.ID)
	}
	slices.Sort(ids)
	want := []ect.ID{a.ID, b.ID}
	slices.Sort(want)
	if !slices.Equal(ids, want) {
		t.Errorf("got %v, want %v", ids, want)
	}
	if found, err := s.Workflow(t.Context(), ""); err != nil || len(found) != 0 {
		t.Errorf("records without a workflow became one: %d, %v", len(found), err)
	}
}

func storeShares(t *testing.T, s ect.Store) {
	t.Helper()
	r := record("h.p.s")
	want := r
	want.Parents, want.Audience = slices.Clone(r.Parents), slices.Clone(r.Audience)
	put(t, s, r)
	r.Parents[0], r.Audience[0] = "changed", "changed"
	got := get(t, s, want.ID)
	got.Parents[0], got.Audience[0] = "changed", "changed"
	if again := get(t, s, want.ID); !same(again, want) {
		t.Error("a record changed in the store when its copy did")
	}
}

func storeRace(t *testing.T, s ect.Store) {
	t.Helper()
	const writers = 8
	id, wid := ect.NewID(), string(ect.NewID())
	won := make([]bool, writers)
	var group sync.WaitGroup
	for i := range writers {
		r := record("h.p." + strconv.Itoa(i))
		r.ID, r.Workflow = id, wid
		group.Go(func() { won[i] = s.Put(t.Context(), r) == nil })
	}
	group.Wait()
	kept := get(t, s, id)
	for i, ok := range won {
		if isKept := kept.Compact == "h.p."+strconv.Itoa(i); ok != isKept {
			t.Errorf("writer %d: told %v, kept %v", i, ok, isKept)
		}
	}
}
