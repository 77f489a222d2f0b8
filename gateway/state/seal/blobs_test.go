package seal_test

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/aepb/aepb-gateway/gateway/state"
	"github.com/aepb/aepb-gateway/gateway/state/seal"
	"github.com/aepb/aepb-gateway/gateway/state/statetest"
)

// Sealed blobs are blobs like any others.
func TestBlobs_KeepTheContract(t *testing.T) {
	t.Parallel()
	statetest.RunBlobs(t, statetest.BlobsHarness{
		Overhead: seal.Overhead,
		Open: func(t testing.TB, bounds state.BlobBounds) state.Blobs {
			t.Helper()
			return seal.NewBlobs(memoryBlobs(t, bounds), box(t, key(1)))
		},
		// Another process has a salt of its own.
		Replica: func(t testing.TB, b state.Blobs) state.Blobs {
			t.Helper()
			before, ok := b.(*seal.Blobs)
			if !ok {
				t.Fatal("not what was opened")
			}
			return seal.NewBlobs(before.Driver(), box(t, key(1)))
		},
	})
}

func memoryBlobs(t testing.TB, bounds state.BlobBounds) *state.MemoryBlobs {
	t.Helper()
	b, err := state.NewMemoryBlobs(bounds, nil)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func blobKey(id string) state.BlobKey { return state.BlobKey{Group: "w", ID: id, Owner: "owner"} }

// wantRefused: a blob does not open, and the error has the cause and nothing of the value.
func wantRefused(t *testing.T, b *seal.Blobs, of state.BlobKey, want error) {
	t.Helper()
	value, _, found, err := b.Get(t.Context(), of)
	if found || value != nil || !errors.Is(err, want) || !errors.As(err, new(*state.UnavailableError)) || strings.Contains(err.Error()+want.Error(), "hush") {
		t.Errorf("get: %q, %v, %v, want %v", value, found, err, want)
	}
	if err := b.Put(t.Context(), of, []byte("hush"), time.Now().Add(time.Hour)); !errors.Is(err, want) {
		t.Errorf("put where a value does not open: %v, want %v", err, want)
	}
}

// Each of the former keys of a ring opens what it sealed; without it the error says so.
func TestBlobs_KeyRotatedTwice(t *testing.T) {
	t.Parallel()
	driver, until := memoryBlobs(t, state.BlobBounds{}), time.Now().Add(time.Hour)
	rings := [][][]byte{{key(1)}, {key(2), key(1)}, {key(3), key(2), key(1)}}
	ids := []string{"first", "second", "third"}
	for i, ring := range rings {
		b := seal.NewBlobs(driver, box(t, ring...))
		if err := b.Put(t.Context(), blobKey(ids[i]), []byte("hush"), until); err != nil {
			t.Fatal(err)
		}
		for _, id := range ids[:i+1] {
			if value, end, found, err := b.Get(t.Context(), blobKey(id)); string(value) != "hush" || !found || err != nil || !end.Equal(until) {
				t.Errorf("%s after %d rotations: %q, %v, %v", id, i, value, found, err)
			}
			if err := b.Put(t.Context(), blobKey(id), []byte("hush"), until); err != nil {
				t.Errorf("%s again after %d rotations: %v", id, i, err)
			}
			if err := b.Put(t.Context(), blobKey(id), []byte("loud"), until); !errors.As(err, new(*state.BlobTakenError)) {
				t.Errorf("other bytes at %s after %d rotations: %v", id, i, err)
			}
		}
	}
	wantRefused(t, seal.NewBlobs(driver, box(t, key(3), key(2))), blobKey("first"), seal.ErrUnknownKey)
	// Sealed anew for a later end, it needs the former key no more.
	if err := seal.NewBlobs(driver, box(t, rings[2]...)).Put(t.Context(), blobKey("first"), []byte("hush"), until.Add(time.Hour)); err != nil {
		t.Fatal(err)
	}
	if value, _, _, err := seal.NewBlobs(driver, box(t, key(3))).Get(t.Context(), blobKey("first")); string(value) != "hush" || err != nil {
		t.Errorf("after it was sealed anew: %q, %v", value, err)
	}
}

// What was changed, moved or never sealed does not open, and an end cannot be changed.
func TestBlobs_Tampered(t *testing.T) {
	t.Parallel()
	driver, until := memoryBlobs(t, state.BlobBounds{}), time.Now().Add(time.Hour)
	b := seal.NewBlobs(driver, box(t, key(1)))
	if err := b.Put(t.Context(), blobKey("1"), []byte("hush"), until); err != nil {
		t.Fatal(err)
	}
	sealed, _, _, _ := driver.Get(t.Context(), blobKey("1"))
	put := func(id string, value []byte, until time.Time) state.BlobKey {
		if err := driver.Put(t.Context(), blobKey(id), value, until); err != nil {
			t.Fatal(err)
		}
		return blobKey(id)
	}
	if bytes.Contains(sealed, []byte("hush")) || len(sealed) != len("hush")+seal.Overhead {
		t.Errorf("the driver sees %q", sealed)
	}
	wantRefused(t, b, put("moved", sealed, until), seal.ErrBroken)
	other := state.BlobKey{Group: "v", ID: "1"}
	if err := driver.Put(t.Context(), other, sealed, until); err != nil {
		t.Fatal(err)
	}
	wantRefused(t, b, other, seal.ErrBroken)
	for at := range sealed {
		if err := driver.Delete(t.Context(), blobKey("1")); err != nil {
			t.Fatal(err)
		}
		flipped := bytes.Clone(sealed)
		flipped[at] ^= 1
		want := seal.ErrBroken
		if at >= 2 && at < 6 { // the name of the key
			want = seal.ErrUnknownKey
		}
		wantRefused(t, b, put("1", flipped, until), want)
	}
	for name, value := range map[string][]byte{"clear": []byte("hush"), "empty": nil, "short": sealed[:20]} {
		wantRefused(t, b, put(name, value, until), seal.ErrBroken)
	}
	if err := driver.Delete(t.Context(), blobKey("1")); err != nil {
		t.Fatal(err)
	}
	wantRefused(t, b, put("1", sealed, until.Add(time.Second)), seal.ErrBroken)
}

// overtaken is a driver in which a blob is always taken, and never there.
type overtaken struct{ seal.BlobStore }

func (overtaken) Put(_ context.Context, key state.BlobKey, _ []byte, _ time.Time) error {
	return &state.BlobTakenError{Key: key}
}

// A Put that others overtake each time ends, and says that it can be made again.
func TestBlobs_OvertakenEndsAsUnavailable(t *testing.T) {
	t.Parallel()
	b := seal.NewBlobs(overtaken{memoryBlobs(t, state.BlobBounds{})}, box(t, key(1)))
	if err := b.Put(t.Context(), blobKey("1"), nil, time.Now().Add(time.Hour)); !errors.As(err, new(*state.UnavailableError)) {
		t.Errorf("got %v", err)
	}
}
