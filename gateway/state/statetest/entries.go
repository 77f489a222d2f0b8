package statetest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aepb/aepb-gateway/gateway/state"
)

// Entries is what [state.Entries] explains.
type Entries interface { //nolint:interfacebloat // the operations of one store of entries
	Get(ctx context.Context, key state.EntryKey) (state.Entry, bool, error)
	Swap(ctx context.Context, key state.EntryKey, old uint64, value []byte, until time.Time) (uint64, bool, error)
	Confirm(ctx context.Context, key state.EntryKey, revision uint64) (bool, error)
	Delete(ctx context.Context, key state.EntryKey) error
	List(ctx context.Context, kind, group, after string, limit int) ([]state.Entry, error)
	Await(ctx context.Context, key state.EntryKey, after uint64) (state.Entry, bool, error)
}

// EntriesHarness makes drivers of entries.
type EntriesHarness struct {
	// Open makes an empty store that registers its own end with t.
	Open func(t testing.TB, config state.Config) Entries
	// Reopen ends a store in good order and starts another over what it left.
	// Nil: it leaves nothing.
	Reopen func(t testing.TB, e Entries) Entries
	// Replica is another process on the same state. Nil: there is only one.
	Replica func(t testing.TB, e Entries) Entries
	// Elsewhere: the clock is that of another machine, so that no bubble can hold the driver.
	Elsewhere bool
	// Scattered: entries of an owner lie apart by kind and group, its share is
	// of each of them, and there is no bound in all.
	Scattered bool
}

// RunEntries holds a driver of entries to the contract.
func RunEntries(t *testing.T, h EntriesHarness) {
	t.Helper()
	cases := map[string]func(*testing.T, EntriesHarness){
		"an entry is swapped":           entrySwapped,
		"an entry is its own":           entryOwn,
		"an entry is confirmed":         entryConfirmed,
		"one of many swaps wins":        entryRace,
		"counting together loses none":  entryCounts,
		"revisions never come back":     entryRevisions,
		"an entry expires":              entryExpires,
		"groups are listed in order":    entryLists,
		"owners are bounded":            entryOwnerBound,
		"waiting ends with a change":    entryAwait,
		"waiting ends with the context": entryAwaitContext,
		"waiting ends with the entry":   entryAwaitEnd,
		"any bytes are good names":      entryNames,
	}
	maps.Copy(cases, shares)
	if !h.Scattered {
		cases["all are bounded"] = entryBounds
		maps.Copy(cases, totals)
		maps.Copy(cases, reserves)
	}
	if h.Reopen != nil && !h.Scattered {
		cases["a restart keeps the reserve"] = restartKeepsReserve
	}
	if h.Reopen != nil {
		cases["a restart brings entries back"] = entryRestart
		cases["a restart keeps shares"] = restartKeepsShares
	}
	if h.Replica != nil {
		cases["replicas see each other"] = entryReplicas
	}
	if h.Scattered {
		maps.DeleteFunc(cases, func(name string, _ func(*testing.T, EntriesHarness)) bool { return wholeOwners[name] })
	}
	for name, test := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if h.Elsewhere {
				test(t, h)
			} else {
				synctest.Test(t, func(t *testing.T) { test(t, h) })
			}
		})
	}
}

// after waits on whatever clock the test has.
func after(d time.Duration) { <-time.After(d) }

func entryKey(id string) state.EntryKey { return state.EntryKey{Kind: "task", Group: "g", ID: id} }

func soon() time.Time { return time.Now().Add(time.Minute) }

// swap is a swap that must succeed.
func swap(t *testing.T, e Entries, key state.EntryKey, old uint64, value string) uint64 {
	t.Helper()
	revision, ok, err := e.Swap(t.Context(), key, old, []byte(value), soon())
	if err != nil || !ok || revision <= old {
		t.Fatalf("swap %v at %d: revision %d, %v, %v", key, old, revision, ok, err)
	}
	return revision
}

func wantLost(t *testing.T, e Entries, key state.EntryKey, old uint64) {
	t.Helper()
	if revision, ok, err := e.Swap(t.Context(), key, old, []byte("lost"), soon()); ok || err != nil || revision != 0 {
		t.Errorf("swap at %d: got %d, %v, %v, want a loss", old, revision, ok, err)
	}
}

// wantEntry compares an entry; revision 0: there should be none.
func wantEntry(t *testing.T, e Entries, key state.EntryKey, revision uint64, value string) {
	t.Helper()
	got, ok, err := e.Get(t.Context(), key)
	if err != nil || ok != (revision != 0) || got.Revision != revision || string(got.Value) != value {
		t.Errorf("entry %v: got %+v, %v, %v, want %q at %d", key, got, ok, err, value, revision)
	}
	if ok && (got.Key != key || got.Until.Before(time.Now())) {
		t.Errorf("entry %v: key or end are not its own: %+v", key, got)
	}
}

func entrySwapped(t *testing.T, h EntriesHarness) {
	e, key := h.Open(t, state.Config{}), entryKey("1")
	wantEntry(t, e, key, 0, "")
	wantLost(t, e, key, 7)
	first := swap(t, e, key, 0, "one")
	wantLost(t, e, key, 0)
	wantEntry(t, e, key, first, "one")
	second := swap(t, e, key, first, "two")
	wantLost(t, e, key, first)
	wantLost(t, e, key, second+1)
	wantEntry(t, e, key, second, "two")
	if err := e.Delete(t.Context(), key); err != nil {
		t.Fatal(err)
	}
	wantEntry(t, e, key, 0, "")
	if err := e.Delete(t.Context(), key); err != nil {
		t.Errorf("deleting nothing: %v", err)
	}
	wantLost(t, e, key, second)
	empty := swap(t, e, key, 0, "")
	wantEntry(t, e, key, empty, "")
}

func entryOwn(t *testing.T, h EntriesHarness) {
	e, key := h.Open(t, state.Config{}), entryKey("1")
	value := []byte("value")
	revision, _, err := e.Swap(t.Context(), key, 0, value, soon())
	if err != nil {
		t.Fatal(err)
	}
	value[0] = 'x'
	got, _, _ := e.Get(t.Context(), key)
	wantEntry(t, e, key, revision, "value")
	got.Value[0] = 'y'
	wantEntry(t, e, key, revision, "value")
}

func entryRace(t *testing.T, h EntriesHarness) {
	a := h.Open(t, state.Config{})
	stores := []Entries{a}
	if h.Replica != nil {
		stores = append(stores, h.Replica(t, a))
	}
	var at uint64
	for range 10 {
		const callers = 12
		revisions, wins, errs := make([]uint64, callers), make([]bool, callers), make([]error, callers)
		var group sync.WaitGroup
		for i := range callers {
			group.Go(func() {
				revisions[i], wins[i], errs[i] = stores[i%len(stores)].Swap(t.Context(), entryKey("1"), at, fmt.Append(nil, i), soon())
			})
		}
		group.Wait()
		winner := -1
		for i := range callers {
			if errs[i] != nil || wins[i] && winner >= 0 {
				t.Fatalf("caller %d: %v, or a second winner", i, errs[i])
			}
			if wins[i] {
				winner = i
			}
		}
		if winner < 0 {
			t.Fatal("nobody won")
		}
		at = revisions[winner]
		wantEntry(t, a, entryKey("1"), at, fmt.Sprint(winner))
	}
}

// Nothing that was acknowledged is overwritten unseen.
func entryCounts(t *testing.T, h EntriesHarness) {
	e := h.Open(t, state.Config{})
	const callers, each = 4, 20
	var group sync.WaitGroup
	for range callers {
		group.Go(func() {
			for range each {
				if err := increment(t.Context(), e); err != nil {
					t.Error(err)
				}
			}
		})
	}
	group.Wait()
	if got, _, _ := e.Get(t.Context(), entryKey("1")); len(got.Value) != callers*each {
		t.Errorf("counted %d, want %d", len(got.Value), callers*each)
	}
}

func increment(ctx context.Context, e Entries) error {
	for {
		got, _, err := e.Get(ctx, entryKey("1"))
		if err != nil {
			return err
		}
		if _, ok, err := e.Swap(ctx, entryKey("1"), got.Revision, append(got.Value, 'x'), soon()); ok || err != nil {
			return err
		}
	}
}

func entryRevisions(t *testing.T, h EntriesHarness) {
	e, key := h.Open(t, state.Config{}), entryKey("1")
	var last uint64
	for range 5 {
		revision := swap(t, e, key, 0, "x")
		if revision <= last {
			t.Errorf("revision %d after %d", revision, last)
		}
		last = revision
		if err := e.Delete(t.Context(), key); err != nil {
			t.Fatal(err)
		}
	}
}

func entryExpires(t *testing.T, h EntriesHarness) {
	e := h.Open(t, state.Config{})
	key, until := entryKey("1"), time.Now().Add(time.Second)
	revision, _, err := e.Swap(t.Context(), key, 0, []byte("x"), until)
	if err != nil {
		t.Fatal(err)
	}
	swap(t, e, entryKey("2"), 0, "stays")
	got, ok, _ := e.Get(t.Context(), key)
	if !ok || got.Until.Sub(until).Abs() > time.Millisecond {
		t.Fatalf("got %+v, %v, want an end of %v", got, ok, until)
	}
	after(time.Until(until) + 50*time.Millisecond)
	wantEntry(t, e, key, 0, "")
	wantLost(t, e, key, revision)
	wantList(t, e, "", 10, "2")
	swap(t, e, key, 0, "again")
	wantList(t, e, "", 10, "1", "2")
}

// wantList compares the ids of a group.
func wantList(t *testing.T, e Entries, from string, limit int, want ...string) {
	t.Helper()
	found, err := e.List(t.Context(), "task", "g", from, limit)
	if err != nil || len(found) != len(want) {
		t.Fatalf("list after %q: got %d, %v, want %d", from, len(found), err, len(want))
	}
	for i, id := range want {
		if found[i].Key != entryKey(id) || found[i].Revision == 0 {
			t.Errorf("place %d after %q: got %+v, want %q", i, from, found[i], id)
		}
	}
}

func entryLists(t *testing.T, h EntriesHarness) {
	e := h.Open(t, state.Config{})
	wantList(t, e, "", 10)
	for _, id := range []string{"b", "d", "a", "aa", "c"} {
		swap(t, e, entryKey(id), 0, "value "+id)
	}
	swap(t, e, state.EntryKey{Kind: "task", Group: "other", ID: "x"}, 0, "")
	swap(t, e, state.EntryKey{Kind: "session", Group: "g", ID: "y"}, 0, "")
	wantList(t, e, "", 10, "a", "aa", "b", "c", "d")
	wantList(t, e, "", 2, "a", "aa")
	wantList(t, e, "aa", 2, "b", "c")
	wantList(t, e, "bb", 2, "c", "d")
	wantList(t, e, "d", 2)
	wantList(t, e, "", 0)
	if found, _ := e.List(t.Context(), "task", "g", "a", 1); string(found[0].Value) != "value aa" {
		t.Errorf("got %q", found[0].Value)
	}
	if err := e.Delete(t.Context(), entryKey("b")); err != nil {
		t.Fatal(err)
	}
	wantList(t, e, "aa", 1, "c")
}

func wantFull(t *testing.T, e Entries, key state.EntryKey, old uint64, size int) {
	t.Helper()
	_, ok, err := e.Swap(t.Context(), key, old, make([]byte, size), soon())
	if full := (*state.FullError)(nil); ok || !errors.As(err, &full) {
		t.Errorf("%v of %d bytes: got %v, %v, want a FullError", key, size, ok, err)
	}
}

func entryOwnerBound(t *testing.T, h EntriesHarness) {
	e := h.Open(t, state.Config{MaxEntriesPerOwner: 3, MaxEntryBytes: 100})
	first := swap(t, e, entryKey("1"), 0, "")
	swap(t, e, entryKey("2"), 0, "")
	if _, _, err := e.Swap(t.Context(), entryKey("3"), 0, nil, time.Now().Add(300*time.Millisecond)); err != nil {
		t.Fatal(err)
	}
	wantFull(t, e, entryKey("4"), 0, 1)
	swap(t, e, entryKey("1"), first, string(make([]byte, 100)))
	swap(t, e, state.EntryKey{Kind: "task", Group: "other", ID: "4"}, 0, "")
	after(350 * time.Millisecond)
	fourth := swap(t, e, entryKey("4"), 0, "what expired makes room")
	wantFull(t, e, entryKey("4"), fourth, 101)
	wantEntry(t, e, entryKey("4"), fourth, "what expired makes room")
	wantFull(t, e, entryKey("5"), 0, 1)
	if err := e.Delete(t.Context(), entryKey("2")); err != nil {
		t.Fatal(err)
	}
	swap(t, e, entryKey("5"), 0, "")
	wantList(t, e, "", 10, "1", "4", "5")
}

func entryBounds(t *testing.T, h EntriesHarness) {
	e := h.Open(t, state.Config{MaxEntries: 2, MaxEntriesPerOwner: 2, MaxEntriesBytes: 3000})
	first := swap(t, e, entryKey("1"), 0, "kept")
	if _, _, err := e.Swap(t.Context(), entryKey("2"), 0, nil, time.Now().Add(time.Second)); err != nil {
		t.Fatal(err)
	}
	wantFull(t, e, state.EntryKey{Kind: "a", Group: "b", ID: "c"}, 0, 0)
	wantFull(t, e, entryKey("1"), first, 2500) // in place of itself, and too much
	wantEntry(t, e, entryKey("1"), first, "kept")
	after(time.Second + 50*time.Millisecond)
	swap(t, e, entryKey("1"), first, string(make([]byte, 1900)))
	wantFull(t, e, entryKey("3"), 0, 1)
}

// await runs Await beside the test; the result comes when it returns.
type awaited struct {
	entry state.Entry
	ok    bool
	err   error
}

func await(t *testing.T, e Entries, key state.EntryKey, from uint64) <-chan awaited {
	t.Helper()
	result := make(chan awaited, 1)
	var group sync.WaitGroup
	group.Go(func() {
		got, ok, err := e.Await(t.Context(), key, from)
		result <- awaited{got, ok, err}
	})
	t.Cleanup(group.Wait)
	return result
}

func wantAwaited(t *testing.T, result <-chan awaited, within time.Duration, revision uint64) {
	t.Helper()
	select {
	case got := <-result:
		if got.err != nil || got.ok != (revision != 0) || got.entry.Revision != revision {
			t.Errorf("got %+v, want revision %d", got, revision)
		}
	case <-time.After(within):
		t.Errorf("not told within %v", within)
		<-result
	}
}

const (
	sameProcess  = 100 * time.Millisecond
	otherProcess = 500 * time.Millisecond
)

func entryAwait(t *testing.T, h EntriesHarness) {
	e, key := h.Open(t, state.Config{}), entryKey("1")
	wantAwaited(t, await(t, e, key, 0), sameProcess, 0)
	first := swap(t, e, key, 0, "one")
	wantAwaited(t, await(t, e, key, 0), sameProcess, first)
	waiting := [...]<-chan awaited{await(t, e, key, first), await(t, e, key, first)}
	after(200 * time.Millisecond)
	swap(t, e, entryKey("2"), 0, "another")
	second := swap(t, e, key, first, "two")
	for _, result := range waiting {
		wantAwaited(t, result, sameProcess, second)
	}
	deleted := await(t, e, key, second)
	after(200 * time.Millisecond)
	if err := e.Delete(t.Context(), key); err != nil {
		t.Fatal(err)
	}
	wantAwaited(t, deleted, sameProcess, 0)
}

func entryAwaitContext(t *testing.T, h EntriesHarness) {
	e, key := h.Open(t, state.Config{}), entryKey("1")
	first := swap(t, e, key, 0, "one")
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	began := time.Now()
	_, ok, err := e.Await(ctx, key, first)
	if ok || !errors.Is(err, context.DeadlineExceeded) || time.Since(began) > time.Second {
		t.Errorf("got %v, %v after %v", ok, err, time.Since(began))
	}
}

func entryAwaitEnd(t *testing.T, h EntriesHarness) {
	e, key := h.Open(t, state.Config{}), entryKey("1")
	revision, _, err := e.Swap(t.Context(), key, 0, []byte("x"), time.Now().Add(300*time.Millisecond))
	if err != nil {
		t.Fatal(err)
	}
	within := sameProcess
	if h.Elsewhere { // nobody here ends it
		within = otherProcess
	}
	wantAwaited(t, await(t, e, key, revision), 300*time.Millisecond+within, 0)
}

func entryNames(t *testing.T, h EntriesHarness) {
	e := h.Open(t, state.Config{})
	keys := []state.EntryKey{
		{},
		{Kind: "a", Group: "b", ID: "{c}"},
		{Kind: "ab", Group: "", ID: "{c}"},
		{Kind: "a", Group: "{b}:", ID: ":c"},
		{Kind: "a", Group: "b", ID: "\x00\xff\n"},
		{Kind: "a", Group: "spiffe://a.test/x y", ID: "[x"},
	}
	revisions := make([]uint64, len(keys))
	for i, key := range keys {
		revisions[i] = swap(t, e, key, 0, fmt.Sprint(i))
	}
	for i, key := range keys {
		wantEntry(t, e, key, revisions[i], fmt.Sprint(i))
	}
	for _, key := range keys[1:5] {
		found, err := e.List(t.Context(), key.Kind, key.Group, "", 10)
		if err != nil || len(found) == 0 {
			t.Errorf("%+v: %d, %v", key, len(found), err)
		}
	}
}

func entryRestart(t *testing.T, h EntriesHarness) {
	e := h.Open(t, state.Config{})
	key, gone := entryKey("1"), entryKey("2")
	first := swap(t, e, key, 0, "one")
	second := swap(t, e, key, first, string(bytes.Repeat([]byte{0, 255}, 500)))
	if _, _, err := e.Swap(t.Context(), entryKey("3"), 0, nil, time.Now().Add(100*time.Millisecond)); err != nil {
		t.Fatal(err)
	}
	after(200 * time.Millisecond)
	last := swap(t, e, gone, 0, "gone") // the latest of all, and nothing of it is left
	if err := e.Delete(t.Context(), gone); err != nil {
		t.Fatal(err)
	}
	e = h.Reopen(t, e)
	wantEntry(t, e, key, second, string(bytes.Repeat([]byte{0, 255}, 500)))
	wantList(t, e, "", 10, "1")
	wantLost(t, e, key, first)
	if again := swap(t, e, gone, 0, "again"); again <= last {
		t.Errorf("revision %d after a restart, %d before", again, last)
	}
	third := swap(t, e, key, second, "three")
	e = h.Reopen(t, e)
	wantEntry(t, e, key, third, "three")
	wantList(t, e, "", 10, "1", "2")
}

func entryReplicas(t *testing.T, h EntriesHarness) {
	a := h.Open(t, state.Config{})
	b, key := h.Replica(t, a), entryKey("1")
	first := swap(t, a, key, 0, "one")
	wantEntry(t, b, key, first, "one")
	waiting := await(t, b, key, first)
	after(200 * time.Millisecond)
	second := swap(t, a, key, first, "two")
	wantAwaited(t, waiting, otherProcess, second)
	wantLost(t, b, key, first)
	third := swap(t, b, key, second, "three")
	waiting = await(t, a, key, third)
	after(200 * time.Millisecond)
	if err := b.Delete(t.Context(), key); err != nil {
		t.Fatal(err)
	}
	wantAwaited(t, waiting, otherProcess, 0)
}
