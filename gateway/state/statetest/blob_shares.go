package statetest

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/aepb/aepb-gateway/gateway/state"
)

// fillBlobs puts blobs of an owner into a group until the bounds refuse one, and says how many came.
func fillBlobs(t *testing.T, b state.Blobs, owner, group string, size int) (count int, refused error) {
	t.Helper()
	for ; count < 1000; count++ {
		if err := b.Put(t.Context(), ofOwner(owner, group, count), make([]byte, size), soon()); err != nil {
			if !isFull(err) {
				t.Fatal(err)
			}
			return count, err
		}
	}
	t.Fatal("no bound refuses a thousand blobs")
	return 0, nil
}

// wantFilled fills the share of an owner in a group.
func wantFilled(t *testing.T, b state.Blobs, owner, group string, size, want int, own bool) {
	t.Helper()
	if got, err := fillBlobs(t, b, owner, group, size); got != want || ownShare(err) != own {
		t.Errorf("%s has %d blobs in %s, then %v; want %d, then own %v", owner, got, group, err, want, own)
	}
}

// Three members fill their shares of a workflow, and each of the next has an eighth of a share.
func blobGroupCounts(t *testing.T, h BlobsHarness) {
	b := h.Open(t, state.BlobBounds{MaxPerGroup: 64})
	for n := range 3 {
		wantFilled(t, b, fmt.Sprint("greedy", n), "w", 1, 16, true)
	}
	for n := range 8 {
		wantFilled(t, b, fmt.Sprint("modest", n), "w", 1, 2, false)
	}
	wantNoSpace(t, b, ofOwner("late", "w", 0), 1, false)
	wantFilled(t, b, "greedy0", "v", 1, 16, true) // another workflow
	if err := b.Delete(t.Context(), ofOwner("greedy0", "w", 0)); err != nil {
		t.Fatal(err)
	}
	putBlob(t, b, ofOwner("late", "w", 0), "x", soon())
}

func blobGroupBytes(t *testing.T, h BlobsHarness) {
	const size = 3 << 10
	cost := ofOwner("greedy0", "w", 1).Cost(size + h.Overhead)
	b := h.Open(t, state.BlobBounds{MaxBytesPerGroup: 64 * cost})
	for n := range 3 {
		wantFilled(t, b, fmt.Sprint("greedy", n), "w", size, 15, true) // names of two digits cost more
	}
	for n := range 8 {
		wantFilled(t, b, fmt.Sprint("modest", n), "w", size, 2, false)
	}
}

// A member that fills what it may of a workflow stops its own steps there, and no other
// member's, however small its blobs are.
func blobMember(t *testing.T, h BlobsHarness) {
	b := h.Open(t, state.BlobBounds{MaxPerGroup: 64, MaxBytesPerGroup: 1 << 20})
	wantFilled(t, b, "mallory", "w", 0, 16, true)
	for n := range 16 {
		putBlob(t, b, ofOwner("victim", "w", n), strings.Repeat("x", 10<<10), soon())
	}
	wantNoSpace(t, b, ofOwner("mallory", "w", 99), 1, true)
	putBlob(t, b, ofOwner("mallory", "v", 0), "x", soon())
}

// An owner with a sixteenth of the store begins nothing more in any workflow; others do.
func blobOwner(t *testing.T, h BlobsHarness) {
	b := h.Open(t, state.BlobBounds{MaxBlobs: 128})
	for n := range 8 {
		putBlob(t, b, ofOwner("mallory", fmt.Sprint("w", n), n), "x", soon())
	}
	wantNoSpace(t, b, ofOwner("mallory", "w8", 8), 1, true)
	putBlob(t, b, ofOwner("victim", "w8", 8), "x", soon())
	wantFilled(t, b, "other", "w0", 1, 8, true)
	large := h.Open(t, state.BlobBounds{MaxBytes: 1 << 20})
	for n := range 3 {
		putBlob(t, large, ofOwner("mallory", fmt.Sprint("w", n), n), strings.Repeat("x", 20<<10), soon())
	}
	wantNoSpace(t, large, ofOwner("mallory", "w3", 3), 20<<10, true)
	putBlob(t, large, ofOwner("victim", "w3", 3), strings.Repeat("x", 20<<10), soon())
}

// Twelve owners that fill their shares leave the last quarter of the store.
func blobOwners(t *testing.T, h BlobsHarness) {
	b := h.Open(t, state.BlobBounds{MaxBlobs: 256})
	for n := range 12 {
		wantFilled(t, b, fmt.Sprint("greedy", n), fmt.Sprint("w", n), 1, 16, true)
	}
	for n := range 32 {
		wantFilled(t, b, fmt.Sprint("modest", n), fmt.Sprint("v", n), 1, 2, false)
	}
	wantNoSpace(t, b, ofOwner("late", "u", 0), 1, false)
}

// What has expired takes nothing of any share.
func blobExpiredSpace(t *testing.T, h BlobsHarness) {
	b := h.Open(t, state.BlobBounds{MaxPerGroup: 64, MaxBytesPerGroup: 1 << 20, MaxBlobs: 512})
	until := time.Now().Add(time.Second)
	for n := range 16 {
		putBlob(t, b, ofOwner("owner", "w", n), strings.Repeat("x", 10<<10), until)
	}
	wantNoSpace(t, b, ofOwner("owner", "w", 99), 1, true)
	after(time.Until(until) + 50*time.Millisecond)
	putBlob(t, b, ofOwner("owner", "w", 100), strings.Repeat("x", 200<<10), soon()) // in the place of most of them
	wantNoSpace(t, b, ofOwner("owner", "w", 101), 100<<10, true)
	for n := range 4 {
		putBlob(t, b, ofOwner("owner", "w", 102+n), strings.Repeat("x", 10<<10), soon())
	}
}

// The same bytes again are no new blob, whatever is full.
func blobAgainWhereFull(t *testing.T, h BlobsHarness) {
	b, later := h.Open(t, state.BlobBounds{MaxPerGroup: 4}), soon().Add(time.Hour)
	putBlob(t, b, ofOwner("owner", "w", 0), "x", soon())
	wantNoSpace(t, b, ofOwner("owner", "w", 1), 1, true)
	putBlob(t, b, ofOwner("owner", "w", 0), "x", later)
	wantBlob(t, b, ofOwner("owner", "w", 0), "x", later)
	wantTaken(t, b, ofOwner("owner", "w", 0), "y")
}

// Who puts the blob of another again, or deletes it, changes no share of its own.
func blobFirstOwner(t *testing.T, h BlobsHarness) {
	b := h.Open(t, state.BlobBounds{MaxPerGroup: 8})
	putBlob(t, b, ofOwner("owner", "w", 0), "x", soon())
	putBlob(t, b, ofOwner("owner", "w", 1), "x", soon())
	again := ofOwner("owner", "w", 0)
	again.Owner = "another"
	putBlob(t, b, again, "x", soon().Add(time.Hour))
	wantNoSpace(t, b, ofOwner("owner", "w", 2), 1, true)
	putBlob(t, b, ofOwner("another", "w", 0), "x", soon())
	putBlob(t, b, ofOwner("another", "w", 1), "x", soon())
	if err := b.Delete(t.Context(), again); err != nil {
		t.Fatal(err)
	}
	wantNoSpace(t, b, ofOwner("another", "w", 2), 1, true)
	putBlob(t, b, ofOwner("owner", "w", 2), "x", soon())
}

func blobUsage(t *testing.T, h BlobsHarness) {
	b, key := h.Open(t, state.BlobBounds{}), blobKey("w", "1")
	if u := b.Usage(); u != (state.Usage{}) {
		t.Errorf("empty: %+v", u)
	}
	until := time.Now().Add(time.Second)
	putBlob(t, b, key, "value", soon())
	putBlob(t, b, blobKey("w", "2"), "value", until)
	putBlob(t, b, key, "value", soon())
	one := state.Usage{Entries: 1, Bytes: key.Cost(len("value") + h.Overhead)}
	if u := b.Usage(); u.Entries != 2 || u.Bytes != 2*one.Bytes {
		t.Errorf("of two: %+v", u)
	}
	after(time.Until(until) + 2*time.Second)                        // a driver that sweeps by itself has done so
	putBlob(t, b, blobKey("w", "3"), "", time.Now().Add(time.Hour)) // others drop with a write what has expired
	if err := b.Delete(t.Context(), blobKey("w", "3")); err != nil {
		t.Fatal(err)
	}
	if u := b.Usage(); u != one {
		t.Errorf("of one left: %+v, want %+v", u, one)
	}
	if err := b.Delete(t.Context(), key); err != nil {
		t.Fatal(err)
	}
}

func blobRestart(t *testing.T, h BlobsHarness) {
	b, until := h.Open(t, state.BlobBounds{}), soon()
	large := strings.Repeat("large", 50<<10)
	putBlob(t, b, blobKey("w", "1"), "one", until)
	putBlob(t, b, blobKey("w", "2"), large, until)
	putBlob(t, b, blobKey("w", "3"), "deleted", until)
	putBlob(t, b, blobKey("v", "1"), "", until)
	putBlob(t, b, blobKey("w", "4"), "brief", time.Now().Add(200*time.Millisecond))
	putBlob(t, b, blobKey("w", "1"), "one", until.Add(time.Minute))
	if err := b.Delete(t.Context(), blobKey("w", "3")); err != nil {
		t.Fatal(err)
	}
	for n := range 2 {
		b = h.Reopen(t, b)
		putBlob(t, b, blobKey("u", fmt.Sprint(n)), "after a restart", until)
		after(250 * time.Millisecond)
		wantBlob(t, b, blobKey("w", "1"), "one", until.Add(time.Minute))
		wantBlob(t, b, blobKey("w", "2"), large, until)
		wantBlob(t, b, blobKey("v", "1"), "", until)
		wantBlobs(t, b, "w", "", 10, "1", "2")
		wantTaken(t, b, blobKey("w", "1"), "two")
		putBlob(t, b, blobKey("w", "2"), large, until)
	}
}

func blobRestartShares(t *testing.T, h BlobsHarness) {
	b := h.Open(t, state.BlobBounds{MaxPerGroup: 8})
	putBlob(t, b, ofOwner("owner", "w", 0), "x", soon())
	putBlob(t, b, ofOwner("owner", "w", 1), "x", soon())
	b = h.Reopen(t, b)
	wantNoSpace(t, b, ofOwner("owner", "w", 2), 1, true)
	if err := b.Delete(t.Context(), ofOwner("owner", "w", 0)); err != nil {
		t.Fatal(err)
	}
	b = h.Reopen(t, b)
	putBlob(t, b, ofOwner("owner", "w", 2), "x", soon())
	wantNoSpace(t, b, ofOwner("owner", "w", 3), 1, true)
}
