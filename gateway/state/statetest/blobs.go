package statetest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aepb/aepb-gateway/gateway/state"
)

// BlobsHarness makes drivers of blobs.
type BlobsHarness struct {
	// Open makes an empty store that registers its own end with t.
	Open func(t testing.TB, bounds state.BlobBounds) state.Blobs
	// Reopen ends a store in good order and starts another over what it left.
	// Nil: it leaves nothing.
	Reopen func(t testing.TB, b state.Blobs) state.Blobs
	// Replica is another process on the same state. Nil: there is only one.
	Replica func(t testing.TB, b state.Blobs) state.Blobs
	// Elsewhere: the clock is that of another machine, so that no bubble can hold the driver.
	Elsewhere bool
	// Scattered: groups lie apart, and there is no bound of all of them.
	Scattered bool
	// Overhead is how many bytes more than its value a blob has in the driver.
	Overhead int
}

// RunBlobs holds a driver of blobs to the contract.
func RunBlobs(t *testing.T, h BlobsHarness) {
	t.Helper()
	cases := map[string]func(*testing.T, BlobsHarness){
		"a blob is written, read and deleted":    blobWritten,
		"a blob is its own":                      blobOwn,
		"a blob is written once":                 blobOnce,
		"one of many writers wins":               blobRace,
		"a blob expires":                         blobExpires,
		"an end only becomes later":              blobProlonged,
		"groups are listed in order":             blobLists,
		"any bytes are good names":               blobNames,
		"a value is bounded":                     blobSize,
		"what expired makes space":               blobExpiredSpace,
		"a full group is full for its members":   blobGroupCounts,
		"a full group keeps its bytes":           blobGroupBytes,
		"a member stops only its own steps":      blobMember,
		"full stores take what they have":        blobAgainWhereFull,
		"a blob stays with its first owner":      blobFirstOwner,
		"a name is written again after its end":  blobAgainAfterEnd,
		"a blob of the largest size is readable": blobLargest,
	}
	if !h.Scattered {
		maps.Copy(cases, map[string]func(*testing.T, BlobsHarness){
			"an owner is bounded in all groups":   blobOwner,
			"few owners leave space for the next": blobOwners,
			"usage counts":                        blobUsage,
		})
	}
	if h.Reopen != nil {
		cases["a restart brings blobs back"] = blobRestart
		cases["a restart keeps shares of blobs"] = blobRestartShares
	}
	if h.Replica != nil {
		cases["replicas see each other's blobs"] = blobReplicas
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

func blobKey(group, id string) state.BlobKey {
	return state.BlobKey{Group: group, ID: id, Owner: "owner"}
}

func ofOwner(owner, group string, n int) state.BlobKey {
	return state.BlobKey{Group: group, ID: fmt.Sprintf("%s-%d", owner, n), Owner: owner}
}

// putBlob is a put that must succeed.
func putBlob(t *testing.T, b state.Blobs, key state.BlobKey, value string, until time.Time) {
	t.Helper()
	if err := b.Put(t.Context(), key, []byte(value), until); err != nil {
		t.Fatalf("put %+v: %v", key, err)
	}
}

// wantBlob compares a blob; a zero until: there should be no such blob.
func wantBlob(t *testing.T, b state.Blobs, key state.BlobKey, value string, until time.Time) {
	t.Helper()
	key.Owner = ""
	got, end, found, err := b.Get(t.Context(), key)
	if err != nil || found == until.IsZero() || string(got) != value || !end.Equal(until) {
		t.Errorf("blob %+v: got %d bytes until %v, %v, %v, want %d until %v", key, len(got), end, found, err, len(value), until)
	}
}

func wantTaken(t *testing.T, b state.Blobs, key state.BlobKey, value string) {
	t.Helper()
	err := b.Put(t.Context(), key, []byte(value), soon())
	taken, ok := errors.AsType[*state.BlobTakenError](err)
	if !ok || taken.Key.Group != key.Group || taken.Key.ID != key.ID {
		t.Errorf("put of other bytes at %+v: %v, want a BlobTakenError", key, err)
	}
}

// wantNoSpace is a put that the bounds refuse.
func wantNoSpace(t *testing.T, b state.Blobs, key state.BlobKey, size int, own bool) {
	t.Helper()
	err := b.Put(t.Context(), key, make([]byte, size), soon())
	full, ok := errors.AsType[*state.FullError](err)
	if !ok || full.Own != own {
		t.Errorf("put of %d bytes at %+v: %v, want a FullError, own %v", size, key, err, own)
	}
	wantBlob(t, b, key, "", time.Time{})
}

func wantBlobs(t *testing.T, b state.Blobs, group, from string, limit int, want ...string) {
	t.Helper()
	found, err := b.List(t.Context(), group, from, limit)
	if err != nil {
		t.Fatal(err)
	}
	var ids []string
	for _, one := range found {
		if one.Key.Group != group || one.Until.IsZero() {
			t.Errorf("listed in %q: %+v", group, one)
		}
		ids = append(ids, one.Key.ID)
	}
	if !slices.Equal(ids, want) {
		t.Errorf("group %q after %q: got %q, want %q", group, from, ids, want)
	}
}

func blobWritten(t *testing.T, h BlobsHarness) {
	b, until := h.Open(t, state.BlobBounds{}), soon()
	key := blobKey("w", "1")
	wantBlob(t, b, key, "", time.Time{})
	if err := b.Delete(t.Context(), key); err != nil {
		t.Errorf("deleting nothing: %v", err)
	}
	putBlob(t, b, key, "one", until)
	putBlob(t, b, blobKey("w", "2"), "", until)
	wantBlob(t, b, key, "one", until)
	wantBlob(t, b, blobKey("w", "2"), "", until)
	wantBlob(t, b, blobKey("v", "1"), "", time.Time{})
	if err := b.Delete(t.Context(), state.BlobKey{Group: "w", ID: "1"}); err != nil {
		t.Fatal(err)
	}
	wantBlob(t, b, key, "", time.Time{})
	wantBlobs(t, b, "w", "", 10, "2")
	putBlob(t, b, key, "another", until)
	wantBlob(t, b, key, "another", until)
}

func blobOwn(t *testing.T, h BlobsHarness) {
	b, until := h.Open(t, state.BlobBounds{}), soon()
	value := []byte("value")
	if err := b.Put(t.Context(), blobKey("w", "1"), value, until); err != nil {
		t.Fatal(err)
	}
	value[0] = 'x'
	got, _, _, _ := b.Get(t.Context(), blobKey("w", "1"))
	if len(got) > 0 {
		got[0] = 'y'
	}
	wantBlob(t, b, blobKey("w", "1"), "value", until)
}

func blobOnce(t *testing.T, h BlobsHarness) {
	b, until := h.Open(t, state.BlobBounds{}), soon()
	key := blobKey("w", "1")
	putBlob(t, b, key, "one", until)
	for range 3 {
		putBlob(t, b, key, "one", until)
	}
	for _, other := range []string{"two", "", "one and more", "on"} {
		wantTaken(t, b, key, other)
	}
	wantBlob(t, b, key, "one", until)
	wantBlobs(t, b, "w", "", 10, "1")
}

func blobRace(t *testing.T, h BlobsHarness) {
	first := h.Open(t, state.BlobBounds{})
	stores := []state.Blobs{first}
	if h.Replica != nil {
		stores = append(stores, h.Replica(t, first))
	}
	const callers = 12 // three bring the same bytes
	errs, until := make([]error, callers), soon()
	var group sync.WaitGroup
	for i := range callers {
		group.Go(func() {
			errs[i] = stores[i%len(stores)].Put(t.Context(), blobKey("w", "1"), fmt.Append(nil, i%4), until)
		})
	}
	group.Wait()
	got, _, found, err := first.Get(t.Context(), blobKey("w", "1"))
	if err != nil || !found {
		t.Fatal(found, err)
	}
	for i, err := range errs {
		taken := errors.As(err, new(*state.BlobTakenError))
		if won := string(got) == fmt.Sprint(i%4); won != (err == nil) || won == taken {
			t.Errorf("caller %d, where %q is written: %v", i, got, err)
		}
	}
}

func blobExpires(t *testing.T, h BlobsHarness) {
	b := h.Open(t, state.BlobBounds{})
	until, later := time.Now().Add(time.Second), soon()
	putBlob(t, b, blobKey("w", "1"), "x", until)
	putBlob(t, b, blobKey("w", "2"), "stays", later)
	wantBlob(t, b, blobKey("w", "1"), "x", until)
	if !h.Elsewhere {
		after(time.Until(until))
		wantBlob(t, b, blobKey("w", "1"), "x", until)
		wantBlobs(t, b, "w", "", 10, "1", "2")
	}
	after(time.Until(until) + 50*time.Millisecond)
	wantBlob(t, b, blobKey("w", "1"), "", time.Time{})
	wantBlobs(t, b, "w", "", 10, "2")
	wantBlob(t, b, blobKey("w", "2"), "stays", later)
}

func blobAgainAfterEnd(t *testing.T, h BlobsHarness) {
	b := h.Open(t, state.BlobBounds{})
	key, until := blobKey("w", "1"), time.Now().Add(300*time.Millisecond)
	putBlob(t, b, key, "x", until)
	wantTaken(t, b, key, "other bytes")
	after(time.Until(until) + 50*time.Millisecond)
	until = soon()
	putBlob(t, b, key, "other bytes", until)
	wantBlob(t, b, key, "other bytes", until)
	wantBlobs(t, b, "w", "", 10, "1")
	wantTaken(t, b, key, "x")
}

func blobProlonged(t *testing.T, h BlobsHarness) {
	b := h.Open(t, state.BlobBounds{})
	key, until := blobKey("w", "1"), time.Now().Add(500*time.Millisecond)
	later := until.Add(time.Minute)
	putBlob(t, b, key, "x", until)
	putBlob(t, b, key, "x", until.Add(-100*time.Millisecond))
	wantBlob(t, b, key, "x", until)
	putBlob(t, b, key, "x", later)
	wantBlob(t, b, key, "x", later)
	putBlob(t, b, key, "x", until)
	wantBlob(t, b, key, "x", later)
	wantTaken(t, b, key, "y")
	after(time.Until(until) + 100*time.Millisecond)
	wantBlob(t, b, key, "x", later)
	wantBlobs(t, b, "w", "", 10, "1")
}

func blobLists(t *testing.T, h BlobsHarness) {
	b := h.Open(t, state.BlobBounds{})
	wantBlobs(t, b, "w", "", 10)
	for _, id := range []string{"b", "d", "a", "aa", "c"} {
		putBlob(t, b, blobKey("w", id), "value "+id, soon())
	}
	putBlob(t, b, blobKey("other", "x"), "", soon())
	wantBlobs(t, b, "w", "", 10, "a", "aa", "b", "c", "d")
	wantBlobs(t, b, "w", "", 2, "a", "aa")
	wantBlobs(t, b, "w", "aa", 2, "b", "c")
	wantBlobs(t, b, "w", "bb", 2, "c", "d")
	wantBlobs(t, b, "w", "d", 2)
	wantBlobs(t, b, "w", "", 0)
	found, err := b.List(t.Context(), "w", "a", 1)
	if err != nil || len(found) != 1 || found[0].Size != len("value aa") || found[0].Key.Owner != "owner" {
		t.Errorf("got %+v, %v", found, err)
	}
	if err := b.Delete(t.Context(), blobKey("w", "b")); err != nil {
		t.Fatal(err)
	}
	wantBlobs(t, b, "w", "aa", 1, "c")
}

func blobNames(t *testing.T, h BlobsHarness) {
	b, until := h.Open(t, state.BlobBounds{}), soon()
	keys := []state.BlobKey{
		{Group: "a", ID: "bc"},
		{Group: "ab", ID: "c"},
		{Group: "a:b", ID: "c"},
		{Group: "a", ID: "b:c"},
		{Group: "a\x00b", ID: "c\x00\xff}{"},
		{Group: "a", ID: "bytes"},
		{Group: "a", ID: "/b \n", Owner: "o w\x00\xff"},
		{Group: "", ID: "x"},
	}
	for i, key := range keys {
		putBlob(t, b, key, fmt.Sprint(i), until)
	}
	for i, key := range keys {
		wantBlob(t, b, key, fmt.Sprint(i), until)
	}
	wantBlobs(t, b, "a", "", 10, "/b \n", "b:c", "bc", "bytes")
	wantNoSpace(t, b, state.BlobKey{Group: "a", ID: strings.Repeat("x", state.MaxBlobName)}, 1, false)
}

func blobSize(t *testing.T, h BlobsHarness) {
	b := h.Open(t, state.BlobBounds{MaxBlobBytes: 100 + h.Overhead})
	putBlob(t, b, blobKey("w", "1"), strings.Repeat("x", 100), soon())
	wantNoSpace(t, b, blobKey("w", "2"), 101, false)
}

func blobLargest(t *testing.T, h BlobsHarness) {
	b, until := h.Open(t, state.BlobBounds{}), soon()
	value := string(bytes.Repeat([]byte("checkpoint\n"), 1<<20/11))
	putBlob(t, b, blobKey("w", "1"), value, until)
	wantBlob(t, b, blobKey("w", "1"), value, until)
	wantNoSpace(t, b, blobKey("w", "2"), state.DefaultMaxBlobBytes+1, false)
}

func blobReplicas(t *testing.T, h BlobsHarness) {
	a, until := h.Open(t, state.BlobBounds{}), soon()
	b := h.Replica(t, a)
	putBlob(t, a, blobKey("w", "1"), "one", until)
	wantBlob(t, b, blobKey("w", "1"), "one", until)
	putBlob(t, b, blobKey("w", "1"), "one", until.Add(time.Minute))
	wantBlob(t, a, blobKey("w", "1"), "one", until.Add(time.Minute))
	wantTaken(t, b, blobKey("w", "1"), "two")
	if err := b.Delete(t.Context(), blobKey("w", "1")); err != nil {
		t.Fatal(err)
	}
	wantBlob(t, a, blobKey("w", "1"), "", time.Time{})
}

// RunReplace holds an empty driver of blobs to what sealing needs of it, as [state.MemoryBlobs.Replace]
// explains it: b is a driver itself.
func RunReplace(t *testing.T, b interface {
	state.Blobs
	Replace(ctx context.Context, key state.BlobKey, was, value []byte, until time.Time) error
},
) {
	t.Helper()
	until := soon()
	later := until.Add(time.Minute)
	key := blobKey("w", "replaced")
	putBlob(t, b, key, "one", until)
	replace := func(was, value string, until time.Time) error {
		return b.Replace(t.Context(), key, []byte(was), []byte(value), until)
	}
	for _, one := range [][2]string{{"six", "two"}, {"one", "three"}, {"on", "tw"}, {"", "two"}} {
		if err := replace(one[0], one[1], later); !errors.As(err, new(*state.BlobTakenError)) {
			t.Errorf("%q in place of %q: %v, want a BlobTakenError", one[1], one[0], err)
		}
	}
	if err := replace("one", "two", until); err != nil {
		t.Error(err)
	}
	wantBlob(t, b, key, "one", until)
	if err := replace("one", "two", later); err != nil {
		t.Error(err)
	}
	wantBlob(t, b, key, "two", later)
	wantTaken(t, b, key, "one")
	if u := b.Usage(); u.Entries > 1 || u.Bytes > key.Cost(3) {
		t.Errorf("of one blob: %+v", u)
	}
}
