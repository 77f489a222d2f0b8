package statetest

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/ect/ecttest"
	"github.com/aepb/aepb-gateway/gateway/state"
)

var tokens = map[string]func(*testing.T, Harness){
	"tokens are found by id and workflow":  tokensFound,
	"tokens with a known id":               tokensSameID,
	"tokens share nothing":                 tokensShareNothing,
	"tokens expire":                        tokensExpire,
	"tokens with one id end by themselves": namesakesExpire,
	"tokens that others preceded":          namesakesApart,
	"tokens make room":                     tokensMakeRoom,
	"tokens are bounded in bytes":          tokensByteBound,
}

func record(n int, wid string, lives time.Duration) ect.Record {
	return ect.Record{
		Compact: fmt.Sprintf("token-%d", n), ID: ect.ID(fmt.Sprintf("id-%d", n)), Workflow: wid,
		Issuer: "spiffe://a.test/a", Audience: []string{"spiffe://b.test/b"}, Act: "ask",
		Parents: []ect.ID{"parent"}, Until: time.Now().Add(lives),
	}
}

func put(t *testing.T, d Driver, records ...ect.Record) {
	t.Helper()
	for _, r := range records {
		if err := d.Put(t.Context(), r); err != nil {
			t.Fatal(err)
		}
	}
}

// wantIDs compares a workflow's records, in the order in which they came.
func wantIDs(t *testing.T, d Driver, wid string, want ...ect.ID) {
	t.Helper()
	records, err := ecttest.All(t.Context(), d, wid)
	if err != nil {
		t.Fatal(err)
	}
	var got []ect.ID
	for _, r := range records {
		got = append(got, r.ID)
	}
	if !slices.Equal(want, got) {
		t.Errorf("workflow %q: got %v, want %v", wid, got, want)
	}
}

// wantRecord compares every field of a record, and tells no list from an empty one.
func wantRecord(t *testing.T, d Driver, want ect.Record) {
	t.Helper()
	found, err := ecttest.Find(t.Context(), d, want.ID)
	if len(found) != 1 || err != nil {
		t.Errorf("%s: found %v, %v", want.ID, found, err)
		return
	}
	got := found[0]
	if !got.Until.Equal(want.Until) {
		t.Errorf("%s: until %v, want %v", want.ID, got.Until, want.Until)
	}
	if got.Until = want.Until; !reflect.DeepEqual(got, want) {
		t.Errorf("got %#v, want %#v", got, want)
	}
}

func has(t *testing.T, d Driver, id ect.ID) bool {
	t.Helper()
	found, err := ecttest.Find(t.Context(), d, id)
	if err != nil {
		t.Fatal(err)
	}
	return len(found) > 0
}

func tokensFound(t *testing.T, h Harness) {
	d := h.Open(t, state.Config{})
	want := record(1, "w", time.Hour)
	put(t, d, want, record(2, "w", time.Hour), record(3, "other", time.Hour), record(4, "", time.Hour))
	wantRecord(t, d, want)
	wantIDs(t, d, "w", "id-1", "id-2")
	wantIDs(t, d, "")
	wantIDs(t, d, "unknown")
	if has(t, d, "id-9") {
		t.Error("found what was never put")
	}
}

func tokensSameID(t *testing.T, h Harness) {
	d := h.Open(t, state.Config{})
	first := record(1, "w", time.Hour)
	put(t, d, first, first)
	other := first
	other.Compact, other.Workflow = "other bytes", "elsewhere"
	var conflict *ect.ConflictError
	if err := d.Put(t.Context(), other); !errors.As(err, &conflict) || conflict.ID != first.ID {
		t.Fatalf("other bytes under a known id: %v", err)
	}
	wantRecord(t, d, first)
	wantIDs(t, d, "elsewhere")
	longer := first
	longer.Until = first.Until.Add(time.Hour)
	put(t, d, longer, first) // the shorter life does not take back the longer
	pass(90 * time.Minute)
	if !has(t, d, first.ID) {
		t.Error("putting it again did not prolong it")
	}
	wantIDs(t, d, "w", first.ID)
}

// What a store hands out is its reader's own, and what it was given stays the giver's.
func tokensShareNothing(t *testing.T, h Harness) {
	d := h.Open(t, state.Config{})
	mine, want := record(1, "w", time.Hour), record(1, "w", time.Hour)
	put(t, d, mine)
	mine.Audience[0], mine.Parents[0] = "changed", "changed"
	got, _ := ecttest.Find(t.Context(), d, mine.ID)
	got[0].Audience[0], got[0].Parents[0] = "changed", "changed"
	all, _ := ecttest.All(t.Context(), d, "w")
	all[0].Audience[0], all[0].Parents[0] = "changed", "changed"
	wantRecord(t, d, want)
}

func tokensExpire(t *testing.T, h Harness) {
	d := h.Open(t, state.Config{})
	put(t, d, record(1, "w", time.Minute), record(2, "w", time.Hour))
	pass(time.Minute)
	if !has(t, d, "id-1") {
		t.Error("gone at its last instant")
	}
	pass(time.Nanosecond)
	if has(t, d, "id-1") {
		t.Error("found after its end")
	}
	wantIDs(t, d, "w", "id-2")
	other := record(1, "w", time.Hour)
	other.Compact = "the id is free again"
	put(t, d, other)
	wantRecord(t, d, other)
}

// Of several issuers' tokens with one id, each ends by itself, and its place is
// free for another.
func namesakesExpire(t *testing.T, h Harness) {
	d := h.Open(t, state.Config{})
	named := func(issuer ect.Identity, lives time.Duration) ect.Record {
		r := record(1, "w", lives)
		r.Issuer, r.Compact = issuer, "token of "+string(issuer)
		return r
	}
	want := func(issuers ...ect.Identity) {
		t.Helper()
		found, err := ecttest.Find(t.Context(), d, "id-1")
		var got []ect.Identity
		for _, r := range found {
			got = append(got, r.Issuer)
		}
		if slices.Sort(got); err != nil || !slices.Equal(got, issuers) {
			t.Errorf("got %v, %v, want %v", got, err, issuers)
		}
		if members, err := ecttest.All(t.Context(), d, "w"); err != nil || len(members) != len(issuers) {
			t.Errorf("workflow: %v, %v", members, err)
		}
	}
	put(t, d, named("a", time.Minute), named("b", time.Hour), named("c", 3*time.Hour))
	want("a", "b", "c")
	pass(2 * time.Minute)
	want("b", "c")
	put(t, d, named("d", time.Hour), named("b", 2*time.Hour))
	want("b", "c", "d")
	pass(90 * time.Minute)
	put(t, d, record(9, "", time.Second)) // writing sweeps
	want("b", "c")
	pass(time.Hour)
	put(t, d, record(8, "", time.Second), named("a", time.Minute))
	want("a", "c")
	pass(2 * time.Hour)
	want()
}

// issuedRecord is a record with the id of all such records.
func issuedRecord(issuer, wid string, lives time.Duration) ect.Record {
	r := record(1, wid, lives)
	r.Issuer, r.Compact = ect.Identity(issuer), "token of "+issuer
	return r
}

// wantIssuers compares whose records a reference finds.
func wantIssuers(t *testing.T, d Driver, ref ect.Ref, issuers ...string) {
	t.Helper()
	found, err := d.Get(t.Context(), ref)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, r := range found[0] {
		got = append(got, string(r.Issuer))
	}
	slices.Sort(got)
	if slices.Sort(issuers); !slices.Equal(got, issuers) {
		t.Errorf("%+v: got %v, want %v", ref, got, issuers)
	}
}

// A record that came when many others had its id stays where its issuer and its workflow
// find it, also when the others have ended; it can be prolonged, and ends by itself.
func namesakesApart(t *testing.T, h Harness) {
	d := h.Open(t, state.Config{})
	for n := range ect.MaxNamesakes {
		put(t, d, issuedRecord(fmt.Sprint("stranger", n), fmt.Sprint("w", n), time.Minute))
	}
	put(t, d, issuedRecord("owner", "w", time.Hour), issuedRecord("member", "w", 3*time.Hour), issuedRecord("alone", "", time.Hour))
	wantIDs(t, d, "w", "id-1", "id-1")
	pass(2 * time.Minute) // the strangers have ended
	put(t, d, record(9, "", time.Second))
	wantIssuers(t, d, ect.Ref{ID: "id-1"})
	wantIssuers(t, d, ect.Ref{ID: "id-1", Workflow: "w"}, "owner", "member")
	wantIssuers(t, d, ect.Ref{ID: "id-1", Workflow: "w", Issuer: "owner"}, "owner", "member")
	wantIssuers(t, d, ect.Ref{ID: "id-1", Issuer: "owner"}, "owner")
	wantIssuers(t, d, ect.Ref{ID: "id-1", Workflow: "w0", Issuer: "alone"}, "alone")
	put(t, d, issuedRecord("owner", "w", 2*time.Hour))
	other := issuedRecord("owner", "w", 2*time.Hour)
	other.Compact = "other bytes"
	if err := d.Put(t.Context(), other); !errors.As(err, new(*ect.ConflictError)) {
		t.Errorf("other bytes of the owner: %v", err)
	}
	pass(90 * time.Minute)
	wantIssuers(t, d, ect.Ref{ID: "id-1", Workflow: "w", Issuer: "alone"}, "owner", "member")
	pass(time.Hour)
	wantIssuers(t, d, ect.Ref{ID: "id-1", Workflow: "w", Issuer: "owner"}, "member")
	wantIDs(t, d, "w", "id-1")
	pass(time.Hour)
	wantIssuers(t, d, ect.Ref{ID: "id-1", Workflow: "w", Issuer: "owner"})
	put(t, d, record(8, "", time.Second), issuedRecord("owner", "w", time.Hour)) // writing sweeps
	wantIssuers(t, d, ect.Ref{ID: "id-1"}, "owner")
}

func tokensMakeRoom(t *testing.T, h Harness) {
	d := h.Open(t, state.Config{MaxTokens: 3})
	put(t, d, record(1, "w", 3*time.Hour), record(2, "w", time.Hour), record(3, "w", 2*time.Hour))
	put(t, d, record(4, "w", time.Minute))
	wantIDs(t, d, "w", "id-2", "id-3", "id-4") // the oldest went: how long a token may live is for its issuer to say
	if u := d.UsageOf(state.KindToken); u.Entries != 3 || u.Evicted != 1 {
		t.Errorf("usage %+v", u)
	}
}

func tokensByteBound(t *testing.T, h Harness) {
	d := h.Open(t, state.Config{MaxTokenBytes: 4096})
	for n := range 100 {
		put(t, d, record(n, "w", time.Hour+time.Duration(n)))
	}
	u := d.UsageOf(state.KindToken)
	if u.Bytes > 4096 || u.Entries == 0 || u.Evicted != uint64(100-u.Entries) {
		t.Errorf("usage %+v", u)
	}
	huge := record(100, "w", time.Hour)
	huge.Compact = string(make([]byte, 5000))
	if err := d.Put(t.Context(), huge); !errors.As(err, new(*state.FullError)) {
		t.Errorf("a record larger than the store: %v", err)
	}
	if after := d.UsageOf(state.KindToken); after.Entries != u.Entries {
		t.Errorf("a refused record cost others their place: %+v", after)
	}
	pass(2 * time.Hour)
	for n := range 20 { // writing sweeps: what has expired always shrinks
		put(t, d, record(200+n, "", time.Second))
		pass(2 * time.Second)
	}
	if u := d.UsageOf(state.KindToken); u.Entries > 1 {
		t.Errorf("expired records stay: %+v", u)
	}
}
