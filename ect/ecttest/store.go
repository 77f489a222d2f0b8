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
	records []ect.Record // in the order in which they came
}

// NewStore is empty.
func NewStore() *Store { return &Store{} }

var _ ListingStore = (*Store)(nil)

// Put keeps a record.
func (s *Store) Put(_ context.Context, r ect.Record) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	known := s.matching(func(old ect.Record) bool { return old.ID == r.ID })
	i := slices.IndexFunc(known, func(n int) bool { return s.records[n].Issuer == r.Issuer })
	if i >= 0 && s.records[known[i]].Compact != r.Compact {
		return &ect.ConflictError{ID: r.ID}
	}
	r = copyOf(r)
	if i >= 0 {
		r.Merge(s.records[known[i]])
	}
	switch {
	case (r.IsRoot() || r.Begins) && !s.mayBegin(r):
		return &ect.ForeignRootError{ID: r.ID}
	case i >= 0:
		r.Begins, r.ByIssuer = false, false
		s.records[known[i]] = r
	default:
		s.records = append(s.records, r)
	}
	return nil
}

// mayBegin reports whether a record is the first of its workflow, or that was a root
// of the same issuer, or neither is a root.
func (s *Store) mayBegin(r ect.Record) bool {
	known := s.matching(func(old ect.Record) bool { return old.Workflow == r.Workflow })
	if len(known) == 0 {
		return true
	}
	first := s.records[known[0]]
	return first.IsRoot() == r.IsRoot() && (!r.IsRoot() || first.Issuer == r.Issuer)
}

// matching is where the records are that are meant.
func (s *Store) matching(meant func(ect.Record) bool) (at []int) {
	for i, r := range s.records {
		if meant(r) {
			at = append(at, i)
		}
	}
	return at
}

// Get finds the records that each reference means.
func (s *Store) Get(_ context.Context, refs ...ect.Ref) ([][]ect.Record, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(refs) > ect.MaxLookups {
		return nil, ect.ErrTooManyIDs
	}
	found := make([][]ect.Record, len(refs))
	for i, ref := range refs {
		first, further := 0, 0
		for _, n := range s.matching(func(r ect.Record) bool { return r.ID == ref.ID }) {
			r := s.records[n]
			switch {
			case r.Own:
			case first < ect.MaxNamesakes:
				first++
			case ref.Workflow != "" && r.Workflow == ref.Workflow && further < ect.MaxNamesakes:
				further++
			case r.Issuer != ref.Issuer:
				continue
			}
			found[i] = append(found[i], copyOf(r))
		}
	}
	return found, nil
}

// Workflow returns the records of a workflow, a page at a time.
func (s *Store) Workflow(_ context.Context, wid, after string, limit int) (records []ect.Record, next string, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	begin := 0
	if after != "" {
		if begin, err = strconv.Atoi(after); err != nil {
			return nil, "", ect.ErrCursor
		}
	}
	for i := begin; i < len(s.records); i++ {
		switch {
		case wid == "" || s.records[i].Workflow != wid:
		case len(records) == max(limit, 1):
			return records, strconv.Itoa(i), nil
		default:
			records = append(records, copyOf(s.records[i]))
		}
	}
	return records, "", nil
}

// Standing says what an identity is to a workflow.
func (s *Store) Standing(_ context.Context, wid string, who ect.Identity) (ect.Standing, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	known := s.matching(func(r ect.Record) bool { return wid != "" && r.Workflow == wid })
	if len(known) == 0 {
		return ect.Standing{}, nil
	}
	first := s.records[known[0]]
	standing := ect.Standing{Known: true, Root: first.IsRoot() && first.Issuer == who}
	standing.Member = standing.Root
	members := map[ect.Identity]bool{}
	for _, n := range known {
		for _, member := range s.records[n].Members {
			if len(members) < ect.MaxMembers {
				members[member] = true
			}
		}
	}
	standing.Member = standing.Member || members[who]
	return standing, nil
}

func copyOf(r ect.Record) ect.Record {
	r.Audience, r.Parents, r.Members = slices.Clone(r.Audience), slices.Clone(r.Parents), slices.Clone(r.Members)
	return r
}

// Find returns the records of a store with one id.
func Find(ctx context.Context, s ect.Store, id ect.ID) ([]ect.Record, error) {
	found, err := s.Get(ctx, ect.Ref{ID: id})
	if err != nil {
		return nil, err
	}
	return found[0], nil
}

// All returns every record of a workflow, page by page.
func All(ctx context.Context, s ect.Store, wid string) (records []ect.Record, err error) {
	const page = 100
	for after := ""; ; {
		some, next, err := s.Workflow(ctx, wid, after, page)
		if records = append(records, some...); err != nil || next == "" {
			return records, err
		}
		after = next
	}
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
		"keeps what others preceded":  storeNamesakes,
		"keeps the first namesake":    storeFirstNamesake,
		"finds a workflow":            storeWorkflow,
		"shares nothing":              storeShares,
		"lets one of many writers in": storeRace,
		"finds many ids at once":      storeLookups,
		"lists a workflow in pages":   storePages,
		"has one root issuer":         storeRoot,
		"begins without a root":       storeRootless,
		"knows its members":           storeMembers,
		"bounds members":              storeManyMembers,
		"lets one of many roots in":   storeRootRace,
		"lists what came apart":       storeEnters,
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
		Own: true, Holder: "holder", Members: []ect.Identity{"spiffe://example.org/d"},
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
	found, err := Find(t.Context(), s, id)
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
		a.Act == b.Act && a.Own == b.Own && a.Holder == b.Holder && slices.Equal(a.Members, b.Members) && slices.Equal(a.Audience, b.Audience) && slices.Equal(a.Parents, b.Parents)
}

func storeUnknown(t *testing.T, s ect.Store) {
	t.Helper()
	put(t, s, record("h.p.s"))
	if found, err := Find(t.Context(), s, ect.NewID()); err != nil || len(found) != 0 {
		t.Errorf("got %d records, %v, want nothing and no error", len(found), err)
	}
}

func storeSame(t *testing.T, s ect.Store) {
	t.Helper()
	r := record("h.p.s")
	put(t, s, r)
	put(t, s, r)
	found, err := All(t.Context(), s, r.Workflow)
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
	if found, _ := All(t.Context(), s, second.Workflow); len(found) != 0 {
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
	found, err := Find(t.Context(), s, first.ID)
	slices.SortFunc(found, func(a, b ect.Record) int { return strings.Compare(a.Compact, b.Compact) })
	if err != nil || len(found) != 2 || !same(found[0], first) || !same(found[1], foreign) {
		t.Fatalf("got %+v, %v; want both", found, err)
	}
	for _, r := range []ect.Record{first, foreign} {
		members, err := All(t.Context(), s, r.Workflow)
		if err != nil || len(members) != 1 || !same(members[0], r) {
			t.Errorf("workflow of %s: got %+v, %v", r.Compact, members, err)
		}
		r.Compact = "h.p.u"
		if err := s.Put(t.Context(), r); !errors.As(err, new(*ect.ConflictError)) {
			t.Errorf("%s with other bytes: %v", r.Issuer, err)
		}
	}
}

// hasRecord reports whether a reference finds a record, and checks the bound of one lookup.
func hasRecord(t *testing.T, s ect.Store, want ect.Record, ref ect.Ref) bool {
	t.Helper()
	found, err := s.Get(t.Context(), ref)
	if err != nil {
		t.Fatal(err)
	}
	if most := 2*ect.MaxNamesakes + 2; len(found[0]) > most {
		t.Errorf("%+v: got %d records, at most %d are wanted", ref, len(found[0]), most)
	}
	matches := 0
	for _, r := range found[0] {
		if r.Issuer == want.Issuer {
			matches++
		}
		if r.Issuer == want.Issuer && !same(r, want) {
			t.Errorf("%+v: got %+v, want %+v", ref, r, want)
		}
	}
	if matches > 1 {
		t.Errorf("%+v: %d records of one issuer", ref, matches)
	}
	return matches == 1
}

// strangers are records with an id by as many issuers as fill all places of it, and
// more, each in a workflow and a share of its own.
func strangers(id ect.ID, name string) (records []ect.Record) {
	for n := range 3 * ect.MaxNamesakes {
		who := name + strconv.Itoa(n)
		r := record("h.p." + who)
		r.ID, r.Own, r.Until = id, false, r.Until.Add(time.Hour)
		r.Issuer, r.Holder = ect.Identity("spiffe://example.org/"+who), who
		records = append(records, r)
	}
	return records
}

// Finding 15, and what was left of it: more issuers than there are places used an id
// before its owner. Before, the owner's token with it was refused for as long as theirs
// lasted. It is kept, and its owner and the members of its workflow find it.
func storeNamesakes(t *testing.T, s ect.Store) {
	t.Helper()
	victim, alone, ours := record("h.p.victim"), record("h.p.alone"), record("h.p.ours")
	victim.Own, alone.Own = false, false
	alone.ID, ours.ID, alone.Workflow, alone.Issuer, ours.Issuer = victim.ID, victim.ID, "", "spiffe://example.org/alone", "spiffe://example.org/ours"
	for _, r := range strangers(victim.ID, "attacker") {
		put(t, s, r)
	}
	for range 2 { // the second time they are there already
		for _, r := range []ect.Record{victim, alone, ours} {
			put(t, s, r)
		}
	}
	for _, r := range strangers(victim.ID, "later") {
		put(t, s, r)
	}
	for name, ok := range map[string]bool{
		"by its issuer":           hasRecord(t, s, victim, ect.Ref{ID: victim.ID, Issuer: victim.Issuer}),
		"by its workflow":         hasRecord(t, s, victim, ect.Ref{ID: victim.ID, Workflow: victim.Workflow}),
		"by both":                 hasRecord(t, s, victim, ect.Ref{ID: victim.ID, Workflow: victim.Workflow, Issuer: victim.Issuer}),
		"without any workflow":    hasRecord(t, s, alone, ect.Ref{ID: victim.ID, Issuer: alone.Issuer}),
		"ours by the id alone":    hasRecord(t, s, ours, ect.Ref{ID: victim.ID}),
		"only by its own id":      !hasRecord(t, s, victim, ect.Ref{ID: ect.NewID(), Workflow: victim.Workflow, Issuer: victim.Issuer}),
		"not in another workflow": !hasRecord(t, s, victim, ect.Ref{ID: victim.ID, Workflow: ours.Workflow}),
	} {
		if !ok {
			t.Errorf("the owner's record is not found %s as it should be", name)
		}
	}
	if listed, err := All(t.Context(), s, victim.Workflow); err != nil || len(listed) != 1 || !same(listed[0], victim) {
		t.Errorf("its workflow lists %d records, %v", len(listed), err)
	}
	for _, r := range []ect.Record{victim, alone, ours} {
		r.Compact, r.Workflow = "h.p.other", string(ect.NewID())
		if err := s.Put(t.Context(), r); !errors.As(err, new(*ect.ConflictError)) {
			t.Errorf("other bytes of %s: %v", r.Issuer, err)
		}
	}
}

// Finding 15, the other way round: a caller that has seen an id uses it under as many
// identities as there are, in workflows and shares of their own, or as members in that
// of the record, so that it is forgotten. It stays, and stays what it is to its workflow.
func storeFirstNamesake(t *testing.T, s ect.Store) {
	t.Helper()
	victim := record("h.p.victim")
	victim.Own, victim.Parents = false, nil
	put(t, s, victim)
	for _, r := range strangers(victim.ID, "attacker") {
		put(t, s, r)
	}
	for _, r := range strangers(victim.ID, "member") {
		r.Workflow = victim.Workflow
		put(t, s, r)
	}
	if !hasRecord(t, s, victim, ect.Ref{ID: victim.ID}) || !hasRecord(t, s, victim, ect.Ref{ID: victim.ID, Workflow: victim.Workflow}) {
		t.Error("the first record with the id is forgotten")
	}
	listed, _, err := s.Workflow(t.Context(), victim.Workflow, "", 10)
	if err != nil || len(listed) != 10 || !same(listed[0], victim) {
		t.Errorf("its workflow lists %d records, %v", len(listed), err)
	}
	if standing, err := s.Standing(t.Context(), victim.Workflow, victim.Issuer); err != nil || !standing.Root {
		t.Errorf("its issuer is %+v in its workflow, %v", standing, err)
	}
	put(t, s, victim)
}

func storeWorkflow(t *testing.T, s ect.Store) {
	t.Helper()
	a, b, other, none := record("h.p.a"), record("h.p.b"), record("h.p.c"), record("h.p.d")
	b.Workflow, none.Workflow = a.Workflow, ""
	for _, r := range []ect.Record{a, b, other, none} {
		put(t, s, r)
	}
	found, err := All(t.Context(), s, a.Workflow)
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
	if found, err := All(t.Context(), s, ""); err != nil || len(found) != 0 {
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
