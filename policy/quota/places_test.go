package quota_test

import (
	"math/rand/v2"
	"slices"
	"strconv"
	"sync"
	"testing"

	"github.com/aepb/aepb-gateway/policy/quota"
)

func newPlaces(t *testing.T, total, per int64) *quota.Places {
	t.Helper()
	p, err := quota.NewPlaces(quota.Config{Resource: "places", Total: total, PerHolder: per})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// twin is places as simply as possible: all in one list, in the order in which they were
// used.
type twin struct {
	total, each int
	all         []*twinPlace
}

type twinPlace struct {
	holder int
	uses   int
	real   *quota.Place
	given  int // how often it gave way
}

func (w *twin) of(holder int) (reserved int, unused []*twinPlace) {
	for _, one := range w.all {
		if one.holder == holder {
			reserved++
			if one.uses == 0 {
				unused = append(unused, one)
			}
		}
	}
	return reserved, unused
}

// yields are the places of which one gives way; room: none has to. may: of the holders
// with the most unused places, some have too few for one of theirs to give way, so that
// the next may be refused.
func (w *twin) yields(holder int) (candidates []*twinPlace, room, own, may bool) {
	reserved, unused := w.of(holder)
	space := len(w.all) < w.total
	if reserved >= w.each {
		return first(unused), false, true, false
	}
	if space && (len(w.all) < w.total-w.total/4 || reserved < max(1, w.each/8)) {
		return nil, true, false, false
	}
	most := 0
	for h := range 6 {
		_, idle := w.of(h)
		most = max(most, len(idle))
	}
	if most > 0 && len(unused) == most && !space {
		return first(unused), false, false, false
	}
	for h := range 6 {
		switch others, idle := w.of(h); {
		case most == 0 || len(idle) != most:
		case others > reserved || others == reserved && !space:
			candidates = append(candidates, idle[0])
		default:
			may = len(unused) == 0
		}
	}
	return append(candidates, first(unused)...), false, false, may
}

func first(list []*twinPlace) []*twinPlace { return list[:min(1, len(list))] }

// TestPlaces_AsItsTwin: whatever is taken, used and given back, what gives way is what
// the simple twin allows, a place in use never is, and the counts agree.
func TestPlaces_AsItsTwin(t *testing.T) {
	t.Parallel()
	for seed := range uint64(60) {
		random := rand.New(rand.NewPCG(seed, 1))
		w := &twin{total: 4 + random.IntN(20)}
		w.each = 1 + random.IntN(w.total)
		p := newPlaces(t, int64(w.total), int64(w.each))
		for range 400 {
			w.step(t, p, random)
			if u := p.Usage(); int(u.Used) != len(w.all) {
				t.Fatalf("seed %d: %d places are taken, want %d", seed, u.Used, len(w.all))
			}
		}
		for len(w.all) > 0 {
			w.drop(w.all[0]).Release()
		}
		if u := p.Usage(); u.Used != 0 || u.Holders != 0 {
			t.Fatalf("seed %d: %+v at the end", seed, u)
		}
	}
}

func (w *twin) step(t *testing.T, p *quota.Places, random *rand.Rand) {
	t.Helper()
	if len(w.all) == 0 || random.IntN(2) == 0 {
		w.take(t, p, random.IntN(6), random.IntN(3) == 0)
		return
	}
	one := w.all[random.IntN(len(w.all))]
	switch random.IntN(3) {
	case 0:
		w.drop(one).Release()
	case 1:
		one.uses++
		if !one.real.Use() {
			t.Fatal("a place that did not give way cannot be used")
		}
	default:
		if one.uses == 0 {
			return
		}
		one.real.Rest()
		if one.uses--; one.uses == 0 {
			w.all = append(slices.DeleteFunc(w.all, func(other *twinPlace) bool { return other == one }), one)
		}
	}
}

func (w *twin) take(t *testing.T, p *quota.Places, holder int, inUse bool) {
	t.Helper()
	candidates, space, own, may := w.yields(holder)
	one := &twinPlace{holder: holder}
	if inUse {
		one.uses = 1
	}
	var err error
	one.real, err = p.Take(strconv.Itoa(holder), inUse, func() { one.given++ })
	gave := slices.IndexFunc(w.all, func(other *twinPlace) bool { return other.given > 0 })
	switch {
	case err != nil:
		wantExceeded(t, err, own)
		if space || len(candidates) > 0 && !may || gave >= 0 {
			t.Fatalf("refused where there is room %v or %d give way", space, len(candidates))
		}
		return
	case space != (gave < 0):
		t.Fatalf("room %v, and place %d gave way", space, gave)
	case gave >= 0:
		victim := w.all[gave]
		if victim.uses > 0 || victim.given != 1 || !slices.Contains(candidates, victim) {
			t.Fatalf("a place gave way that is in use %d times, or is not the one to give way", victim.uses)
		}
		if w.drop(victim); victim.real.Use() {
			t.Fatal("a place that gave way can be used")
		}
		victim.real.Release()
	}
	w.all = append(w.all, one)
}

func (w *twin) drop(one *twinPlace) *quota.Place {
	w.all = slices.DeleteFunc(w.all, func(other *twinPlace) bool { return other == one })
	return one.real
}

// TestPlaces_HolderOfFewKeepsThem: however many others come, also each as a holder of its
// own, a holder with one place of many keeps it if it is used now and then.
func TestPlaces_HolderOfFewKeepsThem(t *testing.T) {
	t.Parallel()
	p := newPlaces(t, 64, 16)
	mine, err := p.Take("mine", false, func() { t.Error("the place of a holder with few gave way") })
	if err != nil {
		t.Fatal(err)
	}
	for i := range 1000 {
		if _, err := p.Take(strconv.Itoa(i%12), false, func() {}); err != nil {
			t.Fatal(err)
		}
	}
	for i := range 1000 {
		if _, err := p.Take("new "+strconv.Itoa(i), false, func() {}); err != nil {
			t.Fatal(err)
		}
		if i%16 == 0 {
			mine.Use()
			mine.Rest()
		}
	}
}

// TestPlaces_HolderOfSomeKeepsThem: several places at once of a holder above an eighth of
// its limit, as of probes behind one proxy, do not end each other while others hold more.
func TestPlaces_HolderOfSomeKeepsThem(t *testing.T) {
	t.Parallel()
	p := newPlaces(t, 64, 16)
	take := func(holder string, giveWay func()) {
		if _, err := p.Take(holder, false, giveWay); err != nil {
			t.Fatal(err)
		}
	}
	for i := range 60 { // three quarters are theirs
		take(strconv.Itoa(i%4), func() {})
	}
	for range 6 {
		take("proxy", func() { t.Error("a place of the proxy gave way") })
	}
	for i := range 200 {
		take(strconv.Itoa(i%4), func() {})
	}
}

// TestPlaces_Concurrently: the bounds hold, and each place gives way at most once.
func TestPlaces_Concurrently(t *testing.T) {
	t.Parallel()
	p := newPlaces(t, 32, 8)
	var all sync.WaitGroup
	for worker := range 8 {
		all.Go(func() {
			for i := range 2000 {
				one, err := p.Take(strconv.Itoa((worker+i)%10), i%2 == 0, func() {})
				if err != nil {
					continue
				}
				if i%2 != 0 {
					one.Use()
				}
				if u := p.Usage(); u.Used > u.Total {
					t.Errorf("%d of %d places are taken", u.Used, u.Total)
				}
				one.Rest()
				if i%3 == 0 {
					one.Release()
				}
			}
		})
	}
	all.Wait()
	if err := p.Reconfigure(quota.Config{}); err == nil {
		t.Error("bounds that bound nothing are taken")
	}
}

// TestPlaces_CountsRefusals: one is counted where all of a holder's places are in use.
func TestPlaces_CountsRefusals(t *testing.T) {
	t.Parallel()
	p := newPlaces(t, 2, 1)
	refused := 0
	p.OnRefusal(func() { refused++ })
	for range 3 {
		if one, err := p.Take("a", true, func() { t.Error("a place in use gave way") }); err != nil {
			wantExceeded(t, err, true)
		} else {
			one.Rest()
			one.Use()
		}
	}
	if refused != 2 {
		t.Errorf("%d refusals are counted, want 2", refused)
	}
}
