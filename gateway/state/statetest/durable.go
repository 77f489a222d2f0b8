package statetest

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/ect/ecttest"
	"github.com/aepb/aepb-gateway/gateway/state"
)

var restarts = map[string]func(*testing.T, Harness){
	"a restart brings everything back":      restartKeeps,
	"a restart brings back the last state":  restartLastState,
	"a restart brings nothing expired back": restartExpired,
	"a restart brings nothing evicted back": restartEvicted,
	"a restart in good order, its epoch":    restartEpoch,
	"a restart keeps shares and members":    restartShares,
	"a restart keeps what is on hold":       restartHolds,
	"restarts in a row":                     restartsInARow,
	"a restart tells issuers apart":         restartNamesakes,
}

func restartKeeps(t *testing.T, h Harness) {
	d := h.Open(t, state.Config{})
	root := record(1, "w", time.Hour)
	root.Parents = []ect.ID{} // written by its issuer, unlike none at all
	bare := ect.Record{Compact: "h.p.s", ID: "bare", Until: time.Now().Add(time.Hour)}
	rich := record(2, "w", time.Hour)
	rich.Audience, rich.Parents = []string{"a", "", "c"}, []ect.ID{"id-1", "x"}
	put(t, d, root, rich, bare)
	wantClaim(t, d, "1", replayUse("t", "b", time.Hour), ect.ReplayFresh)
	d.Finish(t.Context(), replayKey("1"), []byte("answer"), time.Now().Add(time.Hour))
	d.Finish(t.Context(), replayKey("2"), []byte{0, 255, 10}, time.Now().Add(time.Hour))
	d.Remember(t.Context(), "a", "w", "id-2")

	d = h.Reopen(t, d)
	for _, r := range []ect.Record{root, rich, bare} {
		wantRecord(t, d, r)
	}
	wantIDs(t, d, "w", "id-1", "id-2")
	if wids, err := ecttest.Workflows(t.Context(), d, time.Time{}, 1); err != nil || !slices.Equal(wids, []string{"w"}) {
		t.Errorf("the workflows are %v, %v", wids, err)
	}
	wantClaim(t, d, "1", replayUse("t", "b", time.Hour), ect.ReplaySame)
	wantClaim(t, d, "1", replayUse("t", "x", time.Hour), ect.ReplayConflict)
	wantClaim(t, d, "2", replayUse("t", "b", time.Hour), ect.ReplayFresh)
	wantAnswer(t, d, "1", "answer")
	wantAnswer(t, d, "2", "\x00\xff\n")
	wantTurn(t, d, "a", "w/id-2")
	for _, kind := range []state.Kind{state.KindToken, state.KindReplay, state.KindAnswer, state.KindConversation} {
		if u := d.UsageOf(kind); u.Entries == 0 {
			t.Errorf("%s: %+v", kind, u)
		}
	}
}

// A restart forgets neither who began a workflow, though that record has left, nor
// members and shares.
func restartShares(t *testing.T, h Harness) {
	d := h.Open(t, state.Config{MaxTokenBytes: sharedBytes})
	root := record(1, "w", time.Minute)
	root.Parents = nil
	leg := record(2, "w", time.Hour)
	leg.Own, leg.Holder, leg.Members = true, "victim", []ect.Identity{"spiffe://m.test/m"}
	put(t, d, root, leg)
	bring(t, d, "attacker", 300, false)
	pass(2 * time.Minute)
	d = h.Reopen(t, d)
	wantRecord(t, d, leg)
	if has(t, d, root.ID) {
		t.Error("the root is still there")
	}
	for who, want := range map[ect.Identity]ect.Standing{
		root.Issuer: {Known: true, Root: true, Member: true}, "spiffe://m.test/m": {Known: true, Member: true}, "spiffe://x.test/x": {Known: true},
	} {
		if got, err := d.Standing(t.Context(), "w", who); err != nil || got != want {
			t.Errorf("%s: %+v, %v, want %+v", who, got, err, want)
		}
	}
	foreign := root
	foreign.ID, foreign.Issuer, foreign.Until = "foreign", "spiffe://x.test/x", time.Now().Add(time.Hour)
	if err := d.Put(t.Context(), foreign); !errors.As(err, new(*ect.ForeignRootError)) {
		t.Errorf("a root by another issuer: %v", err)
	}
	bring(t, d, "attacker", 600, true)
	wantRecord(t, d, leg)
	pass(2 * time.Hour)
	foreign.Until = time.Now().Add(time.Hour)
	put(t, d, foreign) // all that was there is over
	if got, err := d.Standing(t.Context(), "w", root.Issuer); err != nil || got != (ect.Standing{Known: true}) {
		t.Errorf("of a workflow that ended there is left %+v, %v", got, err)
	}
}

func restartNamesakes(t *testing.T, h Harness) {
	d := h.Open(t, state.Config{})
	first := record(1, "w", time.Hour)
	second := first
	second.Issuer, second.Compact = "spiffe://a.test/other", "another's"
	put(t, d, first, second)
	d = h.Reopen(t, d)
	put(t, d, first, second)
	if found, err := ecttest.Find(t.Context(), d, first.ID); err != nil || len(found) != 2 || found[0].Compact == found[1].Compact {
		t.Errorf("got %+v, %v", found, err)
	}
	if u := d.UsageOf(state.KindToken); u.Entries != 2 {
		t.Errorf("usage %+v", u)
	}
	for n := range ect.MaxNamesakes {
		put(t, d, issuedRecord(fmt.Sprint("stranger", n), fmt.Sprint("w", n), time.Hour))
	}
	put(t, d, issuedRecord("late", "w", time.Hour))
	d = h.Reopen(t, d)
	found, err := d.Get(t.Context(), ect.Ref{ID: first.ID, Workflow: "w"})
	if err != nil || len(found[0]) != ect.MaxNamesakes+1 || d.UsageOf(state.KindToken).Entries != ect.MaxNamesakes+3 {
		t.Errorf("with many others: got %d records, %v", len(found[0]), err)
	}
}

// What was replaced or prolonged comes back as it was last.
func restartLastState(t *testing.T, h Harness) {
	d := h.Open(t, state.Config{})
	r := record(1, "w", time.Minute)
	put(t, d, r)
	d = h.Reopen(t, d)
	r.Until = r.Until.Add(time.Hour)
	put(t, d, r, record(2, "w", time.Hour))
	for turn := range 5 {
		d.Remember(t.Context(), "a", "w", ect.ID(fmt.Sprint(turn)))
		d.Finish(t.Context(), replayKey("1"), fmt.Appendf(nil, "answer %d", turn), time.Now().Add(time.Hour))
	}
	d = h.Reopen(t, d)
	pass(30 * time.Minute)
	wantRecord(t, d, r)
	wantTurn(t, d, "a", "w/4")
	wantAnswer(t, d, "1", "answer 4")
	other := r
	other.Compact = "other"
	if err := d.Put(t.Context(), other); err == nil {
		t.Error("a restart forgot which bytes an id stands for")
	}
	if u := d.UsageOf(state.KindToken); u.Entries != 2 {
		t.Errorf("usage %+v", u)
	}
}

func restartExpired(t *testing.T, h Harness) {
	d := h.Open(t, state.Config{ConversationLifetime: time.Hour})
	put(t, d, record(1, "w", time.Minute), record(2, "w", 2*time.Hour))
	wantClaim(t, d, "1", replayUse("t", "b", time.Minute), ect.ReplayFresh)
	d.Finish(t.Context(), replayKey("1"), []byte("answer"), time.Now().Add(time.Minute))
	d.Remember(t.Context(), "a", "w", "id-1")
	pass(time.Hour + time.Nanosecond)
	d = h.Reopen(t, d)
	wantIDs(t, d, "w", "id-2")
	wantAnswer(t, d, "1", "")
	wantTurn(t, d, "a", "")
	wantClaim(t, d, "1", replayUse("u", "b", time.Minute), ect.ReplayFresh)
	put(t, d, record(1, "w", time.Minute))
	d = h.Reopen(t, d) // the new ones are not taken for the old
	wantIDs(t, d, "w", "id-2", "id-1")
	wantClaim(t, d, "1", replayUse("u", "b", time.Minute), ect.ReplaySame)
	pass(2 * time.Hour)
	wantIDs(t, d, "w")
}

func restartEvicted(t *testing.T, h Harness) {
	d := h.Open(t, state.Config{MaxTokens: 2, MaxAnswers: 2, MaxConversations: 2})
	for n := range 9 {
		put(t, d, record(n, "w", time.Hour+time.Duration(n)))
		d.Finish(t.Context(), replayKey(fmt.Sprint(n)), []byte("answer"), time.Now().Add(time.Hour+time.Duration(n)))
		d.Remember(t.Context(), fmt.Sprint(n), "w", "1")
		pass(time.Second)
	}
	d = h.Reopen(t, d)
	wantIDs(t, d, "w", "id-7", "id-8")
	for n, want := range []string{"", "", "", "", "", "", "", "answer", "answer"} {
		wantAnswer(t, d, fmt.Sprint(n), want)
	}
	wantTurn(t, d, "6", "")
	wantTurn(t, d, "8", "w/1")
	for _, kind := range []state.Kind{state.KindToken, state.KindAnswer, state.KindConversation} {
		if u := d.UsageOf(kind); u.Entries != 2 || u.Evicted != 0 {
			t.Errorf("%s: %+v", kind, u)
		}
	}
}

// A process that ended in good order left every use behind: the epoch stays,
// and tokens from before the restart are good.
func restartEpoch(t *testing.T, h Harness) {
	d := h.Open(t, state.Config{})
	epoch := d.Epoch()
	pass(time.Minute)
	use := replayUse("t", "b", time.Hour)
	pass(time.Minute)
	d = h.Reopen(t, d)
	if !d.Epoch().Equal(epoch) {
		t.Errorf("the epoch moved from %v to %v", epoch, d.Epoch())
	}
	wantClaim(t, d, "1", use, ect.ReplayFresh)
	use.Issued = epoch.Add(-time.Second)
	wantClaim(t, d, "2", use, ect.ReplayUnknown)
}

func restartsInARow(t *testing.T, h Harness) {
	d := h.Open(t, state.Config{})
	var want []ect.ID
	for n := range 5 {
		r := record(n, "w", time.Hour)
		want = append(want, r.ID)
		put(t, d, r)
		wantClaim(t, d, fmt.Sprint(n), replayUse("t", "b", time.Hour), ect.ReplayFresh)
		d = h.Reopen(t, d)
		wantIDs(t, d, "w", want...)
		for earlier := range n + 1 {
			wantClaim(t, d, fmt.Sprint(earlier), replayUse("t", "b", time.Hour), ect.ReplaySame)
		}
	}
}

// entryConfirmed: an entry is confirmed at its own revision, by each replica, and stays as it is.
func entryConfirmed(t *testing.T, h EntriesHarness) {
	t.Helper()
	first := h.Open(t, state.Config{})
	all := []Entries{first}
	if h.Replica != nil {
		all = append(all, h.Replica(t, first))
	}
	key := state.EntryKey{Kind: "kind", Group: "group", ID: "confirmed"}
	until := time.Now().Add(time.Hour)
	old, ok, err := first.Swap(t.Context(), key, 0, []byte("1"), until)
	if err != nil || !ok {
		t.Fatal(ok, err)
	}
	newer, ok, err := first.Swap(t.Context(), key, old, []byte("2"), until)
	if err != nil || !ok {
		t.Fatal(ok, err)
	}
	for i, s := range all {
		for revision, want := range map[uint64]bool{old: false, newer: true, newer + 1: false} {
			if got, err := s.Confirm(t.Context(), key, revision); got != want || err != nil {
				t.Errorf("replica %d, revision %d of %d: got %v, %v", i, revision, newer, got, err)
			}
		}
		if got, err := s.Confirm(t.Context(), state.EntryKey{Kind: "kind", Group: "group", ID: "gone"}, newer); got || err != nil {
			t.Errorf("replica %d, no entry: got %v, %v", i, got, err)
		}
		got, ok, err := s.Get(t.Context(), key)
		if err != nil || !ok || got.Revision != newer || string(got.Value) != "2" || got.Until.UnixMilli() != until.UnixMilli() {
			t.Errorf("replica %d: afterwards %+v, %v, %v", i, got, ok, err)
		}
	}
}
