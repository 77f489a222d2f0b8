package ecttest

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/aepb/aepb-gateway/ect"
)

// root is a record that begins a workflow.
func root(wid string, issuer ect.Identity) ect.Record {
	r := record("h.p." + string(ect.NewID()))
	r.Workflow, r.Issuer, r.Parents, r.Members = wid, issuer, []ect.ID{}, nil
	return r
}

func wantStanding(t *testing.T, s ect.Store, wid string, who ect.Identity, want ect.Standing) {
	t.Helper()
	if got, err := s.Standing(t.Context(), wid, who); err != nil || got != want {
		t.Errorf("standing of %s: got %+v, %v, want %+v", who, got, err, want)
	}
}

func wantForeignRoot(t *testing.T, s ect.Store, r ect.Record) {
	t.Helper()
	err := s.Put(t.Context(), r)
	if foreign := (*ect.ForeignRootError)(nil); !errors.As(err, &foreign) || foreign.ID != r.ID {
		t.Errorf("a root by %s: got %v, want that it is refused", r.Issuer, err)
	}
	if found, err := Find(t.Context(), s, r.ID); err != nil || len(found) != 0 {
		t.Errorf("a refused root is on record: %d, %v", len(found), err)
	}
}

func storeLookups(t *testing.T, s ect.Store) {
	t.Helper()
	a, b := record("h.p.a"), record("h.p.b")
	namesake := a
	namesake.Issuer, namesake.Compact = "spiffe://example.org/other", "h.p.c"
	for _, r := range []ect.Record{a, b, namesake} {
		put(t, s, r)
	}
	found, err := s.Get(t.Context(), ect.Ref{ID: b.ID}, ect.Ref{ID: ect.NewID()}, ect.Ref{ID: a.ID}, ect.Ref{ID: b.ID})
	if err != nil || len(found) != 4 {
		t.Fatalf("got %d lists, %v; want one for each id", len(found), err)
	}
	if len(found[0]) != 1 || !same(found[0][0], b) || len(found[1]) != 0 || len(found[2]) != 2 || len(found[3]) != 1 || !same(found[3][0], b) {
		t.Errorf("got %+v", found)
	}
	if found, err := s.Get(t.Context()); err != nil || len(found) != 0 {
		t.Errorf("no ids: got %d lists, %v", len(found), err)
	}
	ids := make([]ect.Ref, ect.MaxLookups+1)
	for i := range ids {
		ids[i].ID = ect.NewID()
	}
	if found, err := s.Get(t.Context(), ids[1:]...); err != nil || len(found) != ect.MaxLookups {
		t.Errorf("as many ids as are allowed: %d lists, %v", len(found), err)
	}
	if _, err := s.Get(t.Context(), ids...); !errors.Is(err, ect.ErrTooManyIDs) {
		t.Errorf("one id too many: %v", err)
	}
}

func storePages(t *testing.T, s ect.Store) {
	t.Helper()
	wid := string(ect.NewID())
	var want []ect.ID
	for n := range 7 {
		r, other := record("h.p."+strconv.Itoa(n)), record("h.p.x"+strconv.Itoa(n))
		r.Workflow = wid
		put(t, s, r)
		put(t, s, other)
		want = append(want, r.ID)
	}
	for limit := range 9 {
		var got []ect.ID
		after := ""
		for range 10 {
			records, next, err := s.Workflow(t.Context(), wid, after, limit)
			if err != nil || len(records) > max(limit, 1) {
				t.Fatalf("limit %d: got %d records, %v", limit, len(records), err)
			}
			for _, r := range records {
				got = append(got, r.ID)
			}
			if after = next; after == "" {
				break
			}
		}
		if !slices.Equal(got, want) {
			t.Errorf("limit %d: got %v, want %v", limit, got, want)
		}
	}
	if _, _, err := s.Workflow(t.Context(), wid, "no cursor", 1); !errors.Is(err, ect.ErrCursor) {
		t.Errorf("a made-up cursor: %v", err)
	}
}

// Once a workflow has a record, roots come from the issuer of its first root alone (R14).
func storeRoot(t *testing.T, s ect.Store) {
	t.Helper()
	const owner, other = "spiffe://example.org/owner", "spiffe://example.org/other"
	wid := string(ect.NewID())
	wantStanding(t, s, wid, owner, ect.Standing{})
	first, child := root(wid, owner), root(wid, other)
	child.Parents = []ect.ID{first.ID}
	put(t, s, first)
	put(t, s, child) // with a parent anyone's may come
	wantForeignRoot(t, s, root(wid, other))
	put(t, s, first)
	put(t, s, root(wid, owner))
	bare := root(wid, other)
	bare.Parents = nil // no list is as good as an empty one
	wantForeignRoot(t, s, bare)
	wantStanding(t, s, wid, owner, ect.Standing{Known: true, Root: true, Member: true})
	wantStanding(t, s, wid, other, ect.Standing{Known: true})
	late := root(wid, other)
	late.Parents, late.Begins = []ect.ID{ect.NewID()}, true // it was judged when there was no workflow
	wantForeignRoot(t, s, late)
	put(t, s, root("", other)) // of no workflow
	put(t, s, root("", owner))
	put(t, s, root(string(ect.NewID()), other)) // of another
	wantStanding(t, s, "", other, ect.Standing{})
	if found, err := All(t.Context(), s, wid); err != nil || len(found) != 3 {
		t.Errorf("got %d records, %v, want 3", len(found), err)
	}
}

// A workflow whose first record has parents has no root issuer: its root is not here.
func storeRootless(t *testing.T, s ect.Store) {
	t.Helper()
	first := record("h.p.s")
	first.Begins = true
	put(t, s, first)
	wantForeignRoot(t, s, root(first.Workflow, first.Issuer))
	wantForeignRoot(t, s, root(first.Workflow, "spiffe://example.org/other"))
	second := record("h.q.s")
	second.ID, second.Begins = ect.NewID(), true // two that came at once
	put(t, s, second)
	wantStanding(t, s, first.Workflow, first.Issuer, ect.Standing{Known: true})
}

func storeMembers(t *testing.T, s ect.Store) {
	t.Helper()
	const owner, a, b, c = "spiffe://example.org/owner", "spiffe://example.org/a", "spiffe://example.org/b", "spiffe://example.org/c"
	wid := string(ect.NewID())
	first, second := root(wid, owner), root(wid, "spiffe://example.org/gateway")
	first.Members = []ect.Identity{a}
	second.Parents, second.Members = []ect.ID{first.ID}, []ect.Identity{b, a}
	put(t, s, first)
	wantStanding(t, s, wid, a, ect.Standing{Known: true, Member: true})
	wantStanding(t, s, wid, b, ect.Standing{Known: true})
	put(t, s, second)
	for who, want := range map[ect.Identity]ect.Standing{
		owner: {Known: true, Root: true, Member: true}, a: {Known: true, Member: true}, b: {Known: true, Member: true},
		c: {Known: true}, second.Issuer: {Known: true}, "": {Known: true},
	} {
		wantStanding(t, s, wid, who, want)
	}
	wantStanding(t, s, string(ect.NewID()), a, ect.Standing{})
	second.Members = []ect.Identity{c} // the same bytes can make more members, and no fewer
	put(t, s, second)
	for _, who := range []ect.Identity{a, b, c} {
		wantStanding(t, s, wid, who, ect.Standing{Known: true, Member: true})
	}
	refused := root(wid, "spiffe://example.org/other")
	refused.Members = []ect.Identity{"spiffe://example.org/d"}
	wantForeignRoot(t, s, refused)
	conflict := second
	conflict.Compact, conflict.Members = "h.p.other", []ect.Identity{"spiffe://example.org/d"}
	if err := s.Put(t.Context(), conflict); !errors.As(err, new(*ect.ConflictError)) {
		t.Errorf("other bytes: %v", err)
	}
	wantStanding(t, s, wid, "spiffe://example.org/d", ect.Standing{Known: true})
}

func storeManyMembers(t *testing.T, s ect.Store) {
	t.Helper()
	wid := string(ect.NewID())
	who := func(n int) ect.Identity { return ect.Identity(fmt.Sprintf("spiffe://example.org/member/%d", n)) }
	first := root(wid, "spiffe://example.org/owner")
	for n := range ect.MaxMembers - 1 {
		first.Members = append(first.Members, who(n))
	}
	second := root(wid, "spiffe://example.org/owner")
	second.Members = []ect.Identity{who(ect.MaxMembers - 1), who(0), who(ect.MaxMembers)}
	put(t, s, first)
	put(t, s, second)
	for n := range ect.MaxMembers + 1 {
		wantStanding(t, s, wid, who(n), ect.Standing{Known: true, Member: n < ect.MaxMembers})
	}
}

// Of roots by different issuers that come at once exactly one begins the workflow.
func storeRootRace(t *testing.T, s ect.Store) {
	t.Helper()
	const writers = 8
	for range 10 {
		wid := string(ect.NewID())
		won := make([]bool, writers)
		issuer := func(i int) ect.Identity { return ect.Identity("spiffe://example.org/" + strconv.Itoa(i)) }
		var group sync.WaitGroup
		for i := range writers {
			group.Go(func() { won[i] = s.Put(t.Context(), root(wid, issuer(i))) == nil })
		}
		group.Wait()
		winners := 0
		for i, ok := range won {
			wantStanding(t, s, wid, issuer(i), ect.Standing{Known: true, Root: ok, Member: ok})
			if ok {
				winners++
			}
		}
		if kept, err := All(t.Context(), s, wid); err != nil || len(kept) != 1 || winners != 1 {
			t.Errorf("%d roots were let in, %d kept, %v", winners, len(kept), err)
		}
	}
}

// storeEnters: a record that was kept apart enters its workflow, and makes members there,
// when it is put there, whichever identity brings it. It does not leave it.
func storeEnters(t *testing.T, s ect.Store) {
	const wid, issuer, further = "w-enters", "spiffe://a.test/issuer", "spiffe://a.test/further"
	put(t, s, root(wid, "spiffe://a.test/root"))
	for n, byIssuer := range []bool{true, false} {
		r := record(fmt.Sprint("h.enters.", n))
		r.ID, r.Workflow, r.Issuer, r.Parents, r.Own, r.Holder = ect.ID(fmt.Sprint("enters-", n)), wid, issuer, []ect.ID{"parent"}, false, "first"
		apart, entered, left := r, r, r
		apart.Workflow, apart.Members = "", nil
		entered.ByIssuer, entered.Members = byIssuer, []ect.Identity{further}
		left.Workflow, left.Members, left.Until = "", nil, r.Until.Add(time.Hour)
		put(t, s, apart)
		put(t, s, entered)
		put(t, s, left)
		got := get(t, s, r.ID)
		if got.Workflow != wid || !slices.Contains(got.Members, further) || !got.Until.Equal(left.Until) || got.Holder != r.Holder {
			t.Errorf("by its issuer: %t: it became %+v", byIssuer, got)
		}
		listed, err := All(t.Context(), s, wid)
		if err != nil || len(listed) != 2+n {
			t.Errorf("by its issuer: %t: the workflow lists %d records, %v", byIssuer, len(listed), err)
		}
	}
	wantStanding(t, s, wid, further, ect.Standing{Known: true, Member: true})
}
