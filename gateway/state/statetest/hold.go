package statetest

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/ect/ecttest"
	"github.com/aepb/aepb-gateway/gateway/state"
)

// holdCases are the rules of records that must outlive their term, on a store of sharedBytes.
var holdCases = map[string]func(*testing.T, ect.Store){
	"what is on hold leaves last":                     holdLeavesLast,
	"what is on hold of a holder is bounded":          holdOfHolder,
	"what is on hold of all is bounded":               holdOfAll,
	"a hold stays when a record is put again":         holdStays,
	"a hold that ended makes space":                   holdEnds,
	"a record that is refused takes no space on hold": holdRefused,
}

// onHold is a record of ours that is held.
func onHold(holder string, n int) ect.Record {
	r := held(holder, n, true)
	r.ID, r.OnHold = ect.ID(fmt.Sprintf("%s-hold-%d", holder, n)), true
	return r
}

// holdMany puts records on hold until one is refused, and returns how many were taken and the refusal.
func holdMany(t *testing.T, s ect.Store, holder string, most int) (taken int, refusal *state.FullError) {
	t.Helper()
	for n := range most {
		err := s.Put(t.Context(), onHold(holder, n))
		if full, ok := errors.AsType[*state.FullError](err); ok {
			return n, full
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return most, nil
}

// wantOnHold expects that the first records on hold of a holder are there, and marked.
func wantOnHold(t *testing.T, s ect.Store, holder string, count int) {
	t.Helper()
	there := 0
	for n := range count {
		records, err := ecttest.Find(t.Context(), s, onHold(holder, n).ID)
		if err != nil {
			t.Fatal(err)
		}
		if len(records) == 1 && records[0].OnHold {
			there++
		}
	}
	if there != count {
		t.Errorf("%d of %d records on hold of %s are there", there, count, holder)
	}
}

func holdLeavesLast(t *testing.T, s ect.Store) {
	few, _ := holdMany(t, s, "caller", 2000) // more than any of the others below has
	bring(t, s, "caller", 2500, true)        // after them, and more than there is space for
	bring(t, s, "caller", 500, false)
	wantOnHold(t, s, "caller", few)
	for n := range 60 {
		bring(t, s, fmt.Sprint("other", n), 50, n%2 == 0)
	}
	wantOnHold(t, s, "caller", few)
	if listed, err := ecttest.All(t.Context(), s, "w-caller"); err != nil || len(listed) < few || !listed[0].OnHold {
		t.Errorf("the workflow begins with %d records, %v; want those on hold first", len(listed), err)
	}
}

func holdOfHolder(t *testing.T, s ect.Store) {
	taken, refusal := holdMany(t, s, "greedy", 2000)
	if most := sharedBytes / 8 / 2048; refusal == nil || !refusal.Own || refusal.RetryAfter <= 0 || taken > most || taken < most/3 {
		t.Fatalf("%d records on hold of one holder, %v; want at most %d, and then a FullError with Own", taken, refusal, most)
	}
	if records, err := ecttest.Find(t.Context(), s, onHold("greedy", taken).ID); err != nil || len(records) != 0 {
		t.Errorf("the one that was refused is there: %v, %v", records, err)
	}
	for n := range 10 {
		if err := s.Put(t.Context(), held("greedy", n, true)); err != nil {
			t.Errorf("a record of the holder that is not on hold: %v", err)
		}
	}
	if taken, refusal := holdMany(t, s, "other", 10); taken != 10 {
		t.Errorf("another holder is refused: %v", refusal)
	}
	wantOnHold(t, s, "greedy", taken)
}

func holdOfAll(t *testing.T, s ect.Store) {
	all, holders := 0, map[string]int{}
	for n := range 20 {
		name := fmt.Sprint("greedy", n)
		taken, refusal := holdMany(t, s, name, 2000)
		if all += taken; taken > 0 {
			holders[name] = taken
		}
		if refusal == nil {
			t.Fatal("a holder is never refused")
		}
		if !refusal.Own {
			break
		}
	}
	if most := sharedBytes / 2 / 2048; len(holders) < 4 || len(holders) > 5 || all > most || all < most/3 {
		t.Errorf("%d records on hold of %d holders, want at most %d, of at least 4", all, len(holders), most)
	}
	bring(t, s, "flood", 3000, true)
	for name, count := range holders {
		wantOnHold(t, s, name, count)
	}
	for n := range 50 {
		r := held("late", n, true)
		if err := s.Put(t.Context(), r); err != nil {
			t.Fatal(err)
		}
	}
	if got := found(t, s, "late", 50, true); got != 50 {
		t.Errorf("%d of 50 records are there that are not on hold", got)
	}
}

// holdStays: also when it comes later than the record, and when another brings what we signed.
func holdStays(t *testing.T, s ect.Store) {
	r := onHold("caller", 0)
	usual, foreign, longer := r, r, r
	usual.OnHold = false
	longer.OnHold = false
	foreign.OnHold, foreign.Own, foreign.ByIssuer, foreign.Holder = false, false, true, "agent"
	longer.Until = r.Until.Add(time.Hour)
	for _, one := range []ect.Record{usual, r, usual, foreign, longer} {
		if err := s.Put(t.Context(), one); err != nil {
			t.Fatal(err)
		}
	}
	bring(t, s, "caller", 2500, true)
	wantOnHold(t, s, "caller", 1)
	records, err := ecttest.Find(t.Context(), s, r.ID)
	if err != nil || len(records) != 1 || !records[0].Until.Equal(longer.Until) || records[0].Holder != "caller" {
		t.Errorf("got %+v, %v; want the record until %s", records, err, longer.Until)
	}
}

func holdEnds(t *testing.T, s ect.Store) {
	const few = 5
	end := time.Now().Add(2 * time.Second)
	for n := range 200 { // they end before, as far as the order of what has ended goes
		r := held("early", n, true)
		r.Until = end
		if err := s.Put(t.Context(), r); err != nil {
			t.Fatal(err)
		}
	}
	for n := range 2000 {
		r := onHold("caller", few+n)
		r.Until = end
		if err := s.Put(t.Context(), r); err != nil {
			if !ownShare(err) {
				t.Fatal(err)
			}
			break
		}
	}
	<-time.After(time.Until(end) + 1100*time.Millisecond) // terms are in whole seconds
	if taken, refusal := holdMany(t, s, "caller", few); taken != few {
		t.Errorf("%d of %d are taken after the others ended: %v", taken, few, refusal)
	}
	wantOnHold(t, s, "caller", few)
}

// holdRefused: what is refused for another reason than space.
func holdRefused(t *testing.T, s ect.Store) {
	first := onHold("caller", 0)
	if err := s.Put(t.Context(), first); err != nil {
		t.Fatal(err)
	}
	other := first
	other.Compact = "h.other.s"
	for range 500 {
		if err := s.Put(t.Context(), other); !errors.As(err, new(*ect.ConflictError)) {
			t.Fatalf("other bytes of the id: %v", err)
		}
	}
	for n := range 500 {
		begins := onHold("stranger", n)
		begins.Workflow, begins.Begins = "w-root", true
		if n == 0 {
			begins.Parents, begins.Begins = nil, false
			begins.Issuer, begins.OnHold = "spiffe://a.test/root", false
		}
		if err := s.Put(t.Context(), begins); n > 0 && !errors.As(err, new(*ect.ForeignRootError)) || n == 0 && err != nil {
			t.Fatalf("record %d in the workflow of another: %v", n, err)
		}
	}
	for _, holder := range []string{"caller", "stranger"} {
		if taken, refusal := holdMany(t, s, holder, 50); taken != 50 {
			t.Errorf("%s: %d of 50 are taken: %v", holder, taken, refusal)
		}
	}
}

// restartHolds: what is on hold stays so, and counts as before.
func restartHolds(t *testing.T, h Harness) {
	d := h.Open(t, state.Config{MaxTokenBytes: sharedBytes})
	taken, refusal := holdMany(t, d, "caller", 2000)
	if refusal == nil {
		t.Fatal("no record on hold is refused")
	}
	for range 2 {
		d = h.Reopen(t, d)
		if err := d.Put(t.Context(), onHold("caller", taken)); !ownShare(err) {
			t.Errorf("one more on hold after a restart: %v", err)
		}
		bring(t, d, "caller", 2500, true)
		wantOnHold(t, d, "caller", taken)
	}
	for n := range 3 {
		if _, refusal := holdMany(t, d, fmt.Sprint("other", n), 2000); refusal == nil {
			t.Error("another holder has no bound")
		}
	}
	d = h.Reopen(t, d)
	if _, refusal = holdMany(t, d, "last", 10); refusal == nil || refusal.Own {
		t.Errorf("one more on hold of all after a restart: %v", refusal)
	}
	pass(2 * time.Hour)
	if taken, refusal := holdMany(t, d, "last", 10); taken != 10 {
		t.Errorf("after all have ended %d of 10 are taken: %v", taken, refusal)
	}
}
