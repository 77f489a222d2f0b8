package breakers_test

import (
	"context"
	"log/slog"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aepb/aepb-gateway/gateway/breakers"
	"github.com/aepb/aepb-gateway/gateway/outbound"
	"github.com/aepb/aepb-gateway/gateway/state"
)

// mortal is a store whose replica dies as soon as a state is shared.
type mortal struct {
	*state.Entries

	state string // `"closed"`, as it is written
}

// Swap implements breakers.Entries.
func (m mortal) Swap(ctx context.Context, key state.EntryKey, old uint64, value []byte, until time.Time) (uint64, bool, error) {
	revision, ok, err := m.Entries.Swap(ctx, key, old, value, until)
	if ok && strings.Contains(string(value), `"state":`+m.state) {
		runtime.Goexit()
	}
	return revision, ok, err
}

// TestStage_EvidenceOfAReplicaThatDies: the token of a change is recorded although the replica that has made
// it dies as soon as the others can see the change: they have no token to record for it.
func TestStage_EvidenceOfAReplicaThatDies(t *testing.T) {
	t.Parallel()
	for state, want := range map[string]string{`"open"`: "atd:circuit_open", `"closed"`: "atd:circuit_close"} {
		synctest.Test(t, func(t *testing.T) {
			a := &agent{}
			a.is(down)
			heir := fleet(t, a, "heir")[0]
			dying := &replica{calls: &a.calls, entries: heir.entries}
			set, err := breakers.New(breakers.Deps{
				Entries: mortal{heir.entries, state}, Sign: dying.evidence.sign, Metrics: &dying.metrics, Escalate: dying.escalated,
				Replica: "dying", Now: time.Now, Logger: slog.New(slog.DiscardHandler),
			})
			if err != nil {
				t.Fatal(err)
			}
			dying.Set, dying.sender = set, outbound.NewChain(a, set.Stage)
			lived := false
			done := make(chan struct{})
			go func() {
				defer close(done)
				dying.times(t, 5)
				a.is(good)
				time.Sleep(30 * time.Second)
				dying.times(t, 1)
				lived = true
			}()
			<-done
			if lived {
				t.Fatalf("%s was not shared", state)
			}
			a.is(down)
			heir.times(t, 5) // which opens too, and learns at its probe what is shared
			time.Sleep(30 * time.Second)
			heir.times(t, 1)
			n := 0
			for _, token := range dying.evidence.take() {
				if strings.HasPrefix(token, want+" ") {
					n++
				}
			}
			if n != 1 {
				t.Errorf("%s is shared by a replica that recorded %d tokens of it, want one", state, n)
			}
		})
	}
}
