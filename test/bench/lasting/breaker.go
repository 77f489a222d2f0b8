package lasting

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/gateway/breakers"
	"github.com/aepb/aepb-gateway/gateway/outbound"
	"github.com/aepb/aepb-gateway/gateway/state"
	"github.com/aepb/aepb-gateway/gateway/transport"
	"github.com/aepb/aepb-gateway/lifecycle/breaker"
	"github.com/aepb/aepb-gateway/translators"
)

// BreakerName is the measurement of a closed circuit breaker, in this process.
const BreakerName = "breaker"

// What a closed circuit breaker may cost.
const (
	breakerGoal   = 100.0 // ns for each call
	breakerRounds = 7
)

// uncounted are the metrics of breakers that nothing changes.
type uncounted struct{}

func (uncounted) BreakerChanged(string, string) {}
func (uncounted) BreakerEscalated(string)       {}

// Breaker measures what a closed breaker costs a call: the pure one, and what the gateway
// adds around it, which is the stage of the sender chain and the report how the call ended.
// The figures are medians of rounds that take turns.
func Breaker(ctx context.Context) ([]Figure, error) {
	set, err := closedBreakers()
	if err != nil {
		return nil, err
	}
	answer := outbound.Reply{Reply: transport.Reply{Wire: translators.Wire{Body: []byte("{}")}}}
	agent := outbound.SendFunc(func(context.Context, *outbound.Call) (outbound.Reply, error) { return answer, nil })
	call := &outbound.Call{
		Kind: outbound.Message, Agent: "calculator",
		Endpoint: transport.Endpoint{Agent: "calculator", ID: "spiffe://example.org/calculator", Caller: "spiffe://example.org/ann"},
	}
	target := breakers.Target{Kind: call.Kind, Endpoint: call.Endpoint, Label: call.Agent}
	with := outbound.NewChain(agent, set.Stage)
	var closed breaker.Breaker
	config, now := breaker.Defaults(), time.Now()
	cases := [...]func(){
		func() {
			if closed.State() == breaker.Closed {
				closed, _ = closed.Report(config, now, breaker.Success, false)
			}
		},
		func() {
			_, err = with.Send(ctx, call)
			set.Report(ctx, target, nil)
		},
		func() { _, err = agent.Send(ctx, call) },
	}
	var took [len(cases)][]float64
	var allocs [len(cases)]int64
	for range breakerRounds {
		for i, one := range cases {
			r := testing.Benchmark(func(b *testing.B) {
				b.ReportAllocs()
				for b.Loop() {
					one()
				}
			})
			took[i] = append(took[i], float64(r.T.Nanoseconds())/float64(r.N))
			allocs[i] = max(allocs[i], r.AllocsPerOp())
		}
	}
	return []Figure{
		Figure{Name: BreakerName, Case: "closed", Value: median(took[0]), Unit: "ns/call"}.atMost(breakerGoal),
		{Name: BreakerName, Case: "with the stage", Value: median(took[1]) - median(took[2]), Unit: "ns/call"},
		Figure{Name: BreakerName, Case: "with the stage", Value: float64(max(allocs[0], allocs[1]-allocs[2])), Unit: "allocations/call"}.atMost(0),
	}, err
}

// closedBreakers are those of a gateway whose agents all work.
func closedBreakers() (*breakers.Set, error) {
	memory, err := state.New(state.Config{}, state.Deps{Now: time.Now})
	if err != nil {
		return nil, err
	}
	return breakers.New(breakers.Deps{
		Entries: memory.Entries(), Metrics: uncounted{}, Escalate: func(context.Context, breakers.Event) {}, Replica: "bench", Now: time.Now, Logger: slog.New(slog.DiscardHandler),
		Sign: func(context.Context, string, ect.Act, ect.Ext) (string, error) { return "", nil },
	})
}
