package index

import (
	"encoding/binary"
	"math/rand/v2"
	"testing"
)

// Whatever comes and goes, an index is a map, and what it points to stays there.
func TestIndex_BehavesAsAMap(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(1, 2))
	x, want, at := New[int](), map[Key]int{}, map[Key]*int{}
	most := 0
	for step := range 400_000 {
		var key Key
		binary.LittleEndian.PutUint32(key[:], uint32(random.IntN(20_000)))
		switch found := x.Find(key); {
		case (found != nil) != (at[key] != nil), found != nil && (*found != want[key] || found != at[key]):
			t.Fatalf("step %d: %v at %p, want %d at %p", step, found, found, want[key], at[key])
		case found == nil:
			x.Delete(key) // of what is not there
			if found = x.Insert(key); *found != 0 {
				t.Fatalf("step %d: a new value is %d", step, *found)
			}
			*found, want[key], at[key] = step, step, found
		case step/50_000%2 == 0 && random.IntN(4) > 0: // it grows, and shrinks again
			*found, want[key] = step, step
		default:
			x.Delete(key)
			delete(want, key)
			delete(at, key)
		}
		if most = max(most, len(want)); x.Len() != len(want) {
			t.Fatalf("step %d: %d keys, want %d", step, x.Len(), len(want))
		}
	}
	for key, value := range want {
		if got := x.Find(key); got == nil || *got != value {
			t.Errorf("at the end %d is %v", value, got)
		}
	}
	if space := len(x.chunks) * chunk; space >= most+chunk {
		t.Errorf("room for %d values, of which there were %d", space, most)
	}
}

// Whatever leaves a table, what belongs before a gap is not behind it, also where the
// table begins anew.
func TestTable_EntriesAreFoundAfterRemovals(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(3, 4))
	for range 2000 {
		tab, stored := table{entries: make([]uint64, 16)}, map[uint64]bool{}
		for number := range uint64(10) {
			entry := uint64(12+random.IntN(6))<<32 | (number + 1) // many belong in one place, and beyond the end
			tab.put(entry)
			stored[entry] = true
		}
		for len(stored) > 0 {
			at := uint32(random.IntN(16))
			if tab.entries[at] == 0 {
				continue
			}
			delete(stored, tab.entries[at])
			tab.remove(at)
			for entry := range stored {
				for at := uint32(entry>>32) & tab.mask(); tab.entries[at] != entry; at = (at + 1) & tab.mask() {
					if tab.entries[at] == 0 {
						t.Fatalf("%x is behind a gap: %x", entry, tab.entries)
					}
				}
			}
		}
	}
}
