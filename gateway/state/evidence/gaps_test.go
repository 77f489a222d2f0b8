package evidence

import (
	"math/rand/v2"
	"testing"
)

// mapDisk is a disk with one table of bits, which counts what is read.
type mapDisk struct {
	layer *layer
	reads int
}

func (d *mapDisk) Get(t Table, key Key) ([]byte, bool) {
	i, found := d.layer.trees[t-Terms].Get(item{key: key})
	return numbers(i.bits), found
}

func (d *mapDisk) Next(t Table, from Key) (Key, []byte, bool) {
	d.reads++
	i, found := d.layer.first(t, from)
	return i.key, numbers(i.bits), found
}

// TestView_NextWithGaps: with gaps, what is found is the same as without.
func TestView_NextWithGaps(t *testing.T) {
	t.Parallel()
	const keys = 200
	random := rand.New(rand.NewPCG(1, 2))
	disk := &mapDisk{layer: newLayer()}
	for n := range keys {
		disk.layer.setBits(Terms, Key{A: uint64(2 * n)}, 1)
	}
	v := view{changes: newLayer(), disk: disk, gaps: &gaps{}}
	for range 20_000 {
		key := Key{A: random.Uint64N(2 * keys)}
		switch random.IntN(8) {
		case 0:
			v.setBits(Terms, key, 1)
		case 1, 2, 3, 4:
			v.setBits(Terms, key, 0)
		default:
			reader := v
			reader.gaps = nil
			wantKey, wantBits, want := reader.next(Terms, key)
			gotKey, gotBits, got := v.next(Terms, key)
			if got != want || got && (gotKey != wantKey || gotBits != wantBits) {
				t.Fatalf("from %d: got %v, %d, %v, want %v, %d, %v", key.A, gotKey, gotBits, got, wantKey, wantBits, want)
			}
		}
	}
}

// TestView_NextReadsOnce: who takes the first key again and again reads each key of the disk
// once, and not all that it took before.
func TestView_NextReadsOnce(t *testing.T) {
	t.Parallel()
	const keys = 1000
	disk := &mapDisk{layer: newLayer()}
	for n := range keys {
		disk.layer.setBits(Terms, Key{A: uint64(n)}, 1)
	}
	v := view{changes: newLayer(), disk: disk, gaps: &gaps{}}
	for n := range uint64(keys) {
		key, _, found := v.next(Terms, Key{})
		if !found || key.A != n {
			t.Fatalf("got %v, %v, want %d", key, found, n)
		}
		v.setBits(Terms, key, 0)
	}
	if disk.reads > 2*keys {
		t.Errorf("%d reads of %d keys", disk.reads, keys)
	}
}
