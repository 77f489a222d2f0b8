package state_test

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aepb/aepb-gateway/gateway/state"
	"github.com/aepb/aepb-gateway/gateway/state/statetest"
)

func memoryWithBlobs(t testing.TB, bounds state.BlobBounds) *state.Memory {
	t.Helper()
	blobs, err := state.NewMemoryBlobs(bounds, nil)
	if err != nil {
		t.Fatal(err)
	}
	m, err := state.New(state.Config{}, state.Deps{Blobs: blobs})
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func TestMemoryBlobs_KeepTheContract(t *testing.T) {
	t.Parallel()
	statetest.RunBlobs(t, statetest.BlobsHarness{Open: func(t testing.TB, bounds state.BlobBounds) state.Blobs {
		t.Helper()
		return memoryWithBlobs(t, bounds).Blobs()
	}})
}

// A value is replaced by one of its length where it is what the caller saw, with a later end alone.
func TestMemoryBlobs_Replace(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		statetest.RunReplace(t, memoryWithBlobs(t, state.BlobBounds{}).Blobs())
	})
}

// A sweep gives back what expired blobs take, when no write does.
func TestMemoryBlobs_Swept(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m := memoryWithBlobs(t, state.BlobBounds{})
		for id := range strings.SplitSeq("abcdefgh", "") {
			if err := m.Blobs().Put(t.Context(), state.BlobKey{Group: "w", ID: id}, []byte(id), time.Now().Add(time.Second)); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(2 * time.Second)
		m.Sweep(3)
		if u := m.Blobs().Usage(); u.Entries != 5 {
			t.Errorf("after a sweep of three of eight: %+v", u)
		}
		m.Sweep(100)
		if u := m.Blobs().Usage(); u != (state.Usage{}) {
			t.Errorf("after a sweep of all: %+v", u)
		}
	})
}

// A blob that got a later end leaves after those that ended before it.
func TestMemoryBlobs_SweptByTheLaterEnd(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m := memoryWithBlobs(t, state.BlobBounds{})
		for _, one := range []struct {
			id   string
			life time.Duration
		}{{"prolonged", time.Second}, {"brief", 2 * time.Second}, {"brief too", 3 * time.Second}, {"prolonged", time.Hour}} {
			if err := m.Blobs().Put(t.Context(), state.BlobKey{Group: "w", ID: one.id}, []byte("x"), time.Now().Add(one.life)); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(time.Minute)
		m.Sweep(100)
		if found, err := m.Blobs().List(t.Context(), "w", "", 10); err != nil || len(found) != 1 || found[0].Key.ID != "prolonged" || m.Blobs().Usage().Entries != 1 {
			t.Errorf("left is %+v, %v, %+v", found, err, m.Blobs().Usage())
		}
	})
}

func TestBlobBounds_Validate(t *testing.T) {
	t.Parallel()
	for _, bounds := range []state.BlobBounds{{MaxBlobs: -1}, {MaxBytes: -1}, {MaxBytesPerOwner: -1}} {
		if _, err := state.NewMemoryBlobs(bounds, nil); err == nil {
			t.Errorf("%+v is taken", bounds)
		}
	}
	want := state.BlobBounds{
		MaxBlobs: 16384, MaxBytes: 64 << 20, MaxBlobBytes: 1<<20 + 64, MaxPerGroup: 1024, MaxBytesPerGroup: 64 << 20,
		MaxPerMember: 256, MaxBytesPerMember: 16 << 20, MaxPerOwner: 1024, MaxBytesPerOwner: 4 << 20,
	}
	if got := (state.BlobBounds{}).WithDefaults(); got != want {
		t.Errorf("defaults %+v, want %+v", got, want)
	}
}
