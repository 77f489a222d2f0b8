package record_test

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/aepb/aepb-gateway/gateway/descriptor"
	"github.com/aepb/aepb-gateway/gateway/record"
	"github.com/aepb/aepb-gateway/gateway/state"
	"github.com/aepb/aepb-gateway/policy"
)

func inMemory(t testing.TB) stored {
	t.Helper()
	s, err := state.New(state.Config{}, state.Deps{Now: time.Now})
	if err != nil {
		t.Fatal(err)
	}
	return stored{s, s.Entries()}
}

func plansOf(t *testing.T, entries record.Entries) *descriptor.Service {
	t.Helper()
	s, err := descriptor.New(descriptor.Deps{
		Entries: entries, Now: time.Now, Logger: slog.New(slog.DiscardHandler),
		Names: func(context.Context, string) ([]string, bool) { return nil, true }, Operators: func() []policy.Operator { return nil },
	})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// TestPlans_TwoReplicas: two replicas store versions of one workflow at once, in each store: every text has a number of
// its own, and is found under it by the other replica.
func TestPlans_TwoReplicas(t *testing.T) {
	t.Parallel()
	for name, open := range map[string]func(testing.TB) stored{"memory": inMemory, "bbolt": onBolt, "redis": onRedis} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := open(t)
			replicas := []*descriptor.Service{plansOf(t, s.entries), plansOf(t, s.entries)}
			texts, versions := make([]string, 8), make([]descriptor.Version, 8)
			var group sync.WaitGroup
			for i := range texts {
				texts[i] = fmt.Sprintf(`{"wf_id":"refunds","nodes":[{"id":"a","label":"%d"}]}`, i)
				group.Go(func() {
					for { // others may be first five times
						var err error
						if versions[i], err = replicas[i%2].Put(t.Context(), []byte(texts[i]), "ann"); err == nil {
							return
						}
						if t.Context().Err() != nil {
							return
						}
					}
				})
			}
			group.Wait()
			var numbers []int
			for i, v := range versions {
				numbers = append(numbers, v.Number)
				if _, text, err := replicas[1-i%2].Get(t.Context(), "refunds", v.Number); err != nil || string(text) != texts[i] {
					t.Errorf("version %d: %s, %v, want %s", v.Number, text, err, texts[i])
				}
			}
			slices.Sort(numbers)
			if !slices.Equal(numbers, []int{1, 2, 3, 4, 5, 6, 7, 8}) {
				t.Errorf("versions %v", numbers)
			}
			if list, err := replicas[0].List(t.Context()); err != nil || len(list) != 1 || list[0].Number != 8 {
				t.Errorf("%v, %v", list, err)
			}
		})
	}
}
