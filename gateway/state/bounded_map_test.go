package state_test

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/ect/ecttest"
	"github.com/aepb/aepb-gateway/gateway/state"
)

// piece is what a model knows of something kept.
type piece struct {
	bytes []byte
	until time.Time
	came  int
}

// model is the obvious way to keep things: look at all of them every time.
type model struct {
	eldest bool // what came first makes room, once all that is over has; else what has the least time left
	most   int
	stored map[int]piece
	count  int
}

func (m *model) put(key int, content []byte, until time.Time) {
	m.count++
	delete(m.stored, key)
	for len(m.stored) >= m.most {
		first := m.first()
		delete(m.stored, first)
	}
	m.stored[key] = piece{content, until, m.count}
}

// first is the key with the least time left, by the second; of those, the one
// that came first. Of answers it is the one that came first: all are one owner's.
func (m *model) first() int {
	first := -1
	for key, p := range m.stored {
		if q, ok := m.stored[first]; m.eldest && ok {
			if p.came < q.came {
				first = key
			}
			continue
		}
		if q, ok := m.stored[first]; !ok || second(p.until) < second(q.until) || second(p.until) == second(q.until) && p.came < q.came {
			first = key
		}
	}
	return first
}

func second(t time.Time) int64 { return t.Add(time.Second - 1).Unix() }

func (m *model) get(key int) ([]byte, bool) {
	p, ok := m.stored[key]
	if !ok || p.until.Before(time.Now()) {
		return nil, false
	}
	return p.bytes, true
}

// However things come, are replaced, end and make room, and however large they
// are: what is found is what a simple map would hold.
func TestBoundedMap_BehavesLikeAMap(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		random := rand.New(rand.NewPCG(1, 2))
		const most, keys = 40, 100
		m, want := open(t, state.Config{MaxAnswers: most}), &model{most: most, stored: map[int]piece{}, eldest: true}
		key := func(n int) ect.ReplayKey { return ect.ReplayKey{ID: ect.ID(fmt.Sprint(n))} }
		for step := range 20_000 {
			n := random.IntN(keys)
			content := bytes.Repeat([]byte{byte(step)}, random.IntN(1<<random.IntN(17)))
			until := time.Now().Add(time.Duration(random.IntN(4000)) * time.Millisecond)
			if until.Equal(time.Now()) {
				continue // it would be gone before it can be looked for
			}
			m.Finish(t.Context(), key(n), content, until)
			// What has ended makes room first, a few at a time: the model drops it all.
			for k, p := range want.stored {
				if second(p.until) <= time.Now().Add(-1).Unix() {
					delete(want.stored, k)
				}
			}
			want.put(n, content, until)
			if random.IntN(8) == 0 {
				time.Sleep(time.Duration(random.IntN(700)) * time.Millisecond)
				m.Sweep(keys)
			}
			for range 5 {
				n := random.IntN(keys)
				got, ok := m.Load(t.Context(), key(n))
				if content, there := want.get(n); ok != there || !bytes.Equal(got, content) {
					t.Fatalf("step %d, key %d: %d bytes, %v; want %d, %v", step, n, len(got), ok, len(content), there)
				}
			}
		}
		time.Sleep(time.Minute)
		m.Sweep(keys)
		if got := m.UsageOf(state.KindAnswer); got.Entries != 0 || got.Bytes != 0 || got.Evicted == 0 {
			t.Errorf("at the end: %+v", got)
		}
	})
}

// One key that is written again and again takes no more than once.
func TestBoundedMap_RewrittenKeyTakesNoMore(t *testing.T) {
	t.Parallel()
	m, until, last := open(t, state.Config{}), time.Now().Add(time.Hour), []byte(nil)
	for n := range 2000 {
		m.Finish(t.Context(), ect.ReplayKey{ID: "rests"}, []byte("rests"), until)
		last = bytes.Repeat([]byte{byte(n)}, 10_000)
		m.Finish(t.Context(), ect.ReplayKey{ID: "1"}, last, until)
	}
	if reserved := m.Answers.Held(); reserved > 4<<20 {
		t.Errorf("pages of %d bytes hold one answer", reserved)
	}
	if got, _ := m.Load(t.Context(), ect.ReplayKey{ID: "1"}); !bytes.Equal(got, last) {
		t.Error("the answer is another")
	}
	if got, _ := m.Load(t.Context(), ect.ReplayKey{ID: "rests"}); string(got) != "rests" {
		t.Errorf("the other answer is %q", got)
	}
}

// Records come to workflows, are prolonged and leave in any order: a workflow
// lists those that are there, in the order in which they came.
func TestWorkflows_ListTheirRecordsInOrder(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		random := rand.New(rand.NewPCG(3, 4))
		const most, ids, workflows = 60, 150, 12
		m, want := open(t, state.Config{MaxTokens: most}), &model{eldest: true, most: most, stored: map[int]piece{}}
		named := func(n int) ect.Record {
			return ect.Record{Compact: fmt.Sprint("token ", n), ID: ect.ID(fmt.Sprint(n)), Workflow: fmt.Sprint("w", n%workflows)}
		}
		for step := range 20_000 {
			n, now := random.IntN(ids), time.Now()
			r := named(n)
			r.Until = now.Add(time.Millisecond + time.Duration(random.IntN(5000))*time.Millisecond)
			if err := m.Put(t.Context(), r); err != nil {
				t.Fatal(err)
			}
			for k, p := range want.stored {
				if second(p.until) <= now.Add(-1).Unix() {
					delete(want.stored, k)
				}
			}
			if old, ok := want.stored[n]; !ok || old.until.Before(now) || r.Until.After(old.until) {
				want.put(n, nil, r.Until)
			}
			if random.IntN(6) == 0 {
				time.Sleep(time.Duration(random.IntN(900)) * time.Millisecond)
				m.Sweep(ids)
			}
			w := random.IntN(workflows)
			if diff := cmp.Diff(want.workflow(w, workflows), listed(t, m, w)); diff != "" {
				t.Fatalf("step %d, workflow %d: %s", step, w, diff)
			}
		}
	})
}

func (m *model) workflow(w, of int) (ids []string) {
	var keys []int
	for n := range m.stored {
		if _, ok := m.get(n); ok && n%of == w {
			keys = append(keys, n)
		}
	}
	slices.SortFunc(keys, func(a, b int) int { return m.stored[a].came - m.stored[b].came })
	for _, n := range keys {
		ids = append(ids, fmt.Sprint(n))
	}
	return ids
}

func listed(t *testing.T, m *state.Memory, w int) (ids []string) {
	t.Helper()
	records, err := ecttest.All(t.Context(), m, fmt.Sprint("w", w))
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range records {
		ids = append(ids, string(r.ID))
	}
	return ids
}
