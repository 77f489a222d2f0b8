package statetest

import (
	"errors"
	"fmt"
	"maps"
	"testing"
	"time"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/ect/ecttest"
	"github.com/aepb/aepb-gateway/gateway/state"
)

// RunShares holds the evidence store of a driver to what is promised to each holder:
// what one does costs no other a record within his share. open makes an empty store
// with bounds.
func RunShares(t *testing.T, open func(t testing.TB, bounds state.Config) ect.Store) {
	t.Helper()
	cases := map[string]func(*testing.T, ect.Store){
		"one holder of most gives way":              oneHolder,
		"tokens of a holder do not push out ours":   ownLast,
		"a full share keeps the latest of both":     latestOfBoth,
		"many holders take nothing of a small one":  manyHolders,
		"a record put again stays in its share":     putAgain,
		"a record moves to its issuer's share":      putByIssuer,
		"what we signed stays where it is":          ownPutByIssuer,
		"a record enters its workflow in its share": entersInShare,
		"what began stays known until its end":      beginningStays,
	}
	maps.Copy(cases, holdCases)
	for name, test := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, open(t, state.Config{MaxTokenBytes: sharedBytes}))
		})
	}
}

// sharedBytes is what the store has room for.
const sharedBytes = 4 << 20

// held is a record of 2 KiB that a holder brings.
func held(holder string, n int, own bool) ect.Record {
	return ect.Record{
		Compact: fmt.Sprintf("h.%02048d.s", n), ID: ect.ID(fmt.Sprintf("%s-%t-%d", holder, own, n)), Workflow: "w-" + holder,
		Issuer: ect.Identity("spiffe://a.test/" + holder), Act: "ask", Parents: []ect.ID{"parent"},
		Until: time.Now().Add(time.Hour), Own: own, Holder: holder,
	}
}

// bring puts many records of one holder; it may be refused when his share is used up.
func bring(t *testing.T, s ect.Store, holder string, count int, own bool) {
	t.Helper()
	for n := range count {
		r := held(holder, n, own)
		r.Until = r.Until.Add(10_000 * time.Hour) // its issuer says how long it lives
		if err := s.Put(t.Context(), r); err != nil && !ownShare(err) {
			t.Fatal(err)
		}
	}
}

// found counts how many records of a holder are there.
func found(t *testing.T, s ect.Store, holder string, count int, own bool) (there int) {
	t.Helper()
	for n := range count {
		records, err := ecttest.Find(t.Context(), s, held(holder, n, own).ID)
		if err != nil {
			t.Fatal(err)
		}
		there += len(records)
	}
	return there
}

func oneHolder(t *testing.T, s ect.Store) {
	const few, many = 20, 3000 // 6 MiB
	for n := range few {
		if err := s.Put(t.Context(), held("victim", n, n%2 == 0)); err != nil {
			t.Fatal(err)
		}
	}
	bring(t, s, "attacker", many, false)
	bring(t, s, "attacker", 500, true)
	if got := found(t, s, "victim", few, true) + found(t, s, "victim", few, false); got != few {
		t.Errorf("%d of %d records of another holder are left", got, few)
	}
	kept := found(t, s, "attacker", many, false) + found(t, s, "attacker", 500, true)
	if most := sharedBytes / 2048; kept > most || kept < most/2 {
		t.Errorf("one holder has %d records, more than %d, or less than half of that in a store that has room", kept, most)
	}
	if err := s.Put(t.Context(), held("victim", few, false)); err != nil {
		t.Errorf("another holder is refused: %v", err)
	}
}

func ownLast(t *testing.T, s ect.Store) {
	const few = 10
	for n := range few {
		if err := s.Put(t.Context(), held("caller", n, true)); err != nil {
			t.Fatal(err)
		}
	}
	bring(t, s, "caller", 1000, false)
	if got := found(t, s, "caller", few, true); got != few {
		t.Errorf("%d of %d records that we signed are left, where those of others could leave", got, few)
	}
}

func latestOfBoth(t *testing.T, s ect.Store) {
	const exchanges = 1000 // three records of 2 KiB each, in 4 MiB
	for n := range exchanges {
		for _, r := range []ect.Record{held("caller", n, false), held("caller", 2*n, true), held("caller", 2*n+1, true)} {
			if err := s.Put(t.Context(), r); err != nil {
				t.Fatal(err)
			}
		}
	}
	for n := exchanges - 10; n < exchanges; n++ {
		for _, r := range []ect.Record{held("caller", n, false), held("caller", 2*n, true), held("caller", 2*n+1, true)} {
			if records, err := ecttest.Find(t.Context(), s, r.ID); err != nil || len(records) != 1 {
				t.Errorf("exchange %d of %d: a record (own: %t) is not there any more: %v", n, exchanges, r.Own, err)
			}
		}
	}
}

func manyHolders(t *testing.T, s ect.Store) {
	const few, attackers = 10, 40
	for n := range few {
		if err := s.Put(t.Context(), held("victim", n, false)); err != nil {
			t.Fatal(err)
		}
	}
	for n := range attackers {
		for i := range 100 {
			if err := s.Put(t.Context(), held(fmt.Sprint("attacker", n), i, false)); err != nil && !isFull(err) {
				t.Fatal(err)
			}
		}
	}
	if got := found(t, s, "victim", few, false); got != few {
		t.Errorf("%d of %d records of a holder who has less than all others are left", got, few)
	}
}

func putAgain(t *testing.T, s ect.Store) {
	r := held("victim", 1, false)
	if err := s.Put(t.Context(), r); err != nil {
		t.Fatal(err)
	}
	again := r
	again.Holder, again.Until = "attacker", r.Until.Add(time.Hour)
	if err := s.Put(t.Context(), again); err != nil {
		t.Fatal(err)
	}
	bring(t, s, "attacker", 1000, false)
	records, err := ecttest.Find(t.Context(), s, r.ID)
	if err != nil || len(records) != 1 || records[0].Holder != "victim" {
		t.Errorf("got %d records, %v; want the one that another holder put again", len(records), err)
	}
}

// An agent shows a caller's token first, outside of its workflow, and floods its own
// share after the caller brought the token itself. Before, the caller's record left.
func putByIssuer(t *testing.T, s ect.Store) {
	r := held("victim", 1, false)
	first := r
	first.Holder, first.Workflow = "agent", ""
	mine := r
	mine.ByIssuer = true
	for _, one := range []ect.Record{first, mine, mine, first} {
		if err := s.Put(t.Context(), one); err != nil {
			t.Fatal(err)
		}
	}
	bring(t, s, "agent", 1000, false)
	records, err := ecttest.Find(t.Context(), s, r.ID)
	if err != nil || len(records) != 1 || records[0].Holder != "victim" || records[0].Workflow != r.Workflow {
		t.Errorf("got %d records, %v; want the issuer's, in its share and workflow: %v", len(records), err, records)
	}
	if listed, err := ecttest.All(t.Context(), s, r.Workflow); err != nil || len(listed) != 1 {
		t.Errorf("its workflow lists %d records, %v", len(listed), err)
	}
	for n := range 2500 { // it counts for its issuer
		if err := s.Put(t.Context(), held("victim", 2+n, false)); err != nil && !ownShare(err) {
			t.Fatal(err)
		}
	}
	if records, err := ecttest.Find(t.Context(), s, r.ID); err != nil || len(records) != 0 {
		t.Errorf("%d records that no share counts, %v", len(records), err)
	}
}

// A listed gateway brings back what we signed, which names us as its issuer.
func ownPutByIssuer(t *testing.T, s ect.Store) {
	r := held("victim", 1, true)
	r.Members = []ect.Identity{"spiffe://a.test/victim"}
	again := r
	again.Own, again.ByIssuer, again.Holder, again.Workflow, again.Members = false, true, "self", "", nil
	later := again
	later.Until = r.Until.Add(time.Hour)
	for _, one := range []ect.Record{r, again, later} {
		if err := s.Put(t.Context(), one); err != nil {
			t.Fatal(err)
		}
	}
	records, err := ecttest.Find(t.Context(), s, r.ID)
	if err != nil || len(records) != 1 {
		t.Fatalf("got %d records, %v; want ours", len(records), err)
	}
	if got := records[0]; !got.Own || got.Holder != "victim" || got.Workflow != r.Workflow || len(got.Members) != 1 {
		t.Errorf("it became %+v; want what we signed in its holder's share", got)
	}
	bring(t, s, "victim", 1000, false)
	if got := found(t, s, "victim", 2, true); got != 1 {
		t.Error("it left before the tokens of others")
	}
}

// A record that came apart leaves its workflow when its share is used up, as others do.
func entersInShare(t *testing.T, s ect.Store) {
	r := held("victim", 1, false)
	apart := r
	apart.Workflow = ""
	for _, one := range []ect.Record{apart, r} {
		if err := s.Put(t.Context(), one); err != nil {
			t.Fatal(err)
		}
	}
	if listed, err := ecttest.All(t.Context(), s, r.Workflow); err != nil || len(listed) != 1 {
		t.Errorf("its workflow lists %d records, %v", len(listed), err)
	}
	for n := range 2500 {
		other := held("victim", 2+n, false)
		other.Workflow = ""
		if err := s.Put(t.Context(), other); err != nil && !ownShare(err) {
			t.Fatal(err)
		}
	}
	if listed, err := ecttest.All(t.Context(), s, r.Workflow); err != nil || len(listed) != 0 {
		t.Errorf("its workflow lists %d records, %v; want none", len(listed), err)
	}
}

// Who began a workflow is known until its records would have ended, also when they left
// before: nobody else can begin it again meanwhile.
func beginningStays(t *testing.T, s ect.Store) {
	root := held("victim", 1, false)
	root.Parents = nil
	if err := s.Put(t.Context(), root); err != nil {
		t.Fatal(err)
	}
	for n := range 3000 { // pushes it out
		other := held("victim", 2+n, false)
		other.Workflow = fmt.Sprint("w", n%1000)
		if err := s.Put(t.Context(), other); err != nil {
			t.Fatal(err)
		}
	}
	if records, err := ecttest.Find(t.Context(), s, root.ID); err != nil || len(records) != 0 {
		t.Fatalf("%d records, %v; want none", len(records), err)
	}
	standing, err := s.Standing(t.Context(), root.Workflow, root.Issuer)
	if err != nil || !standing.Known || !standing.Root {
		t.Errorf("who began it is %+v, %v", standing, err)
	}
	stranger := root
	stranger.ID, stranger.Compact, stranger.Issuer, stranger.Holder = "another", "h.another.s", "spiffe://a.test/mallory", "mallory"
	if err := s.Put(t.Context(), stranger); !errors.As(err, new(*ect.ForeignRootError)) {
		t.Errorf("another begins it again: %v", err)
	}
	again := root
	again.ID, again.Compact = "later", "h.later.s"
	if err := s.Put(t.Context(), again); err != nil {
		t.Errorf("who began it cannot go on: %v", err)
	}
}

func isFull(err error) bool {
	return errors.As(err, new(*state.FullError))
}

func ownShare(err error) bool {
	var full *state.FullError
	return errors.As(err, &full) && full.Own
}
