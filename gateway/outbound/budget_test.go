package outbound_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/gateway/outbound"
	"github.com/aepb/aepb-gateway/gateway/transport"
	"github.com/aepb/aepb-gateway/gateway/transport/egress"
	"github.com/aepb/aepb-gateway/gateway/transport/inflight"
	"github.com/aepb/aepb-gateway/translators"
	"github.com/aepb/aepb-gateway/translators/canonical"
	"github.com/aepb/aepb-gateway/translators/stream"
)

const mib = 1 << 20

// newLimits are limits of 32 MiB in flight, of which a caller has 17, as by default.
func newLimits(t *testing.T) *inflight.Limits {
	t.Helper()
	l, err := inflight.New(inflight.Config{
		Requests: 512, RequestsPerCaller: 256, Streams: 512, StreamsPerCaller: 256, Bytes: 32 * mib, BytesPerCaller: 17 * mib,
		BodyWait: time.Second, WriteWait: time.Second,
	})
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// usedBy is how many bytes callers hold.
func usedBy(l *inflight.Limits) int64 {
	_, _, bytes := l.Usage()
	return bytes[0].Used
}

// answering is an agent that answers with so many bytes. It reads them as drivers of HTTP do: what was
// announced at once, the rest as it comes, and a second for each MiB.
func answering(size int64, announced bool) outbound.Sender {
	return outbound.SendFunc(func(ctx context.Context, _ *outbound.Call) (outbound.Reply, error) {
		budget := egress.BudgetFrom(ctx)
		if announced {
			if err := budget.Answer(ctx, size, true); err != nil {
				return outbound.Reply{}, &transport.UnreachableError{Err: err}
			}
		}
		for read := int64(mib); read <= size; read *= 2 {
			if !announced {
				if err := budget.Answer(ctx, min(2*read, 16*mib), false); err != nil {
					return outbound.Reply{}, &transport.UnreachableError{Err: err}
				}
			}
			time.Sleep(time.Second)
		}
		return outbound.Reply{Reply: transport.Reply{Wire: translators.Wire{Body: make([]byte, size)}}}, budget.Answer(ctx, size, true)
	})
}

// TestBudgets_AnswersTakeTurns: of many large answers to one caller at once, announced or not, no more are
// held than its share has room for, each is told or said to be done, and another caller's comes meanwhile.
func TestBudgets_AnswersTakeTurns(t *testing.T) {
	t.Parallel()
	for name, announced := range map[string]bool{"announced": true, "not announced": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				limits := newLimits(t)
				chain := outbound.NewChain(answering(12*mib, announced), outbound.Budgets(nil))
				victims := outbound.NewChain(answering(3*mib, announced), outbound.Budgets(nil))
				ask := func(caller string, sender outbound.Sender) error {
					r, err := limits.Begin(caller, true)
					if err != nil {
						return err
					}
					defer r.End()
					_, err = sender.Send(transport.WithShare(t.Context(), r), &outbound.Call{Kind: outbound.Message, Endpoint: transport.Endpoint{Agent: "large"}})
					time.Sleep(time.Second) // it is written
					return err
				}
				var all sync.WaitGroup
				var mu sync.Mutex
				var answers, refusals int
				for range 126 {
					all.Go(func() {
						err := ask("mallory", chain)
						mu.Lock()
						defer mu.Unlock()
						switch late, ok := errors.AsType[*transport.OverBudgetError](err); {
						case err == nil:
							answers++
						case ok && late.Agent == "large" && strings.Contains(err.Error(), "do not repeat"):
							refusals++
						default:
							t.Errorf("a call ends with %v", err)
						}
					})
				}
				go func() {
					for range 1000 {
						time.Sleep(100 * time.Millisecond)
						if used := usedBy(limits); used > 32*mib {
							t.Errorf("%d bytes are held", used)
						}
					}
				}()
				for range 5 {
					began := time.Now()
					if err := ask("victim", victims); err != nil || time.Since(began) > 10*time.Second {
						t.Errorf("another caller's answer took %v: %v", time.Since(began), err)
					}
				}
				all.Wait()
				if answers == 0 || answers+refusals != 126 {
					t.Errorf("%d answers were told, %d not", answers, refusals)
				}
				time.Sleep(2 * time.Minute)
				if used := usedBy(limits); used != 0 {
					t.Errorf("%d bytes are held after the end", used)
				}
			})
		})
	}
}

// TestBudgets_TwoAgentsWithoutEnd: of answers of two agents, each of which holds what the other needs to
// grow, one is given up, and the other is told.
func TestBudgets_TwoAgentsWithoutEnd(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		limits := newLimits(t)
		chain := outbound.NewChain(answering(12*mib, false), outbound.Budgets(func(context.Context, ect.Identity) transport.Share { return limits.Aside("caller", true) }))
		ends := make(chan error, 2)
		for _, agent := range []string{"one", "another"} {
			go func() {
				_, err := chain.Send(t.Context(), &outbound.Call{Kind: outbound.Message, Endpoint: transport.Endpoint{Agent: agent}})
				ends <- err
			}()
			time.Sleep(time.Second / 2)
		}
		first, second := <-ends, <-ends
		if _, late := errors.AsType[*transport.OverBudgetError](first); !late || second != nil {
			t.Errorf("the calls end with %v and %v", first, second)
		}
	})
}

// TestBudgets_FailedCallsHoldNothing: what was read of an answer that broke off is given back, so that the next
// answer of the agent to the same request, and to others, may grow.
func TestBudgets_FailedCallsHoldNothing(t *testing.T) {
	t.Parallel()
	limits := newLimits(t)
	r, err := limits.Begin("caller", true)
	if err != nil {
		t.Fatal(err)
	}
	defer r.End()
	chain := outbound.NewChain(outbound.SendFunc(func(ctx context.Context, _ *outbound.Call) (outbound.Reply, error) {
		return outbound.Reply{}, errors.Join(egress.BudgetFrom(ctx).Answer(ctx, mib, false), &transport.UnreachableError{Agent: "breaks off"})
	}), outbound.Budgets(nil))
	for range 2 {
		if _, err := chain.Send(transport.WithShare(t.Context(), r), &outbound.Call{Kind: outbound.Message, Endpoint: transport.Endpoint{Agent: "breaks off"}}); err == nil {
			t.Error("the call succeeds")
		}
		other := limits.Aside("caller", true)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		if err := other.Answer(ctx, "breaks off", mib, false); err != nil || usedBy(limits) != mib {
			t.Errorf("another answer of the agent may not grow: %v, %d bytes are held", err, usedBy(limits))
		}
		cancel()
		other.End()
	}
}

// TestFoldBudget_Follow: what many streams of one caller add up to is bounded by its share. Those whose
// caller is told each event go on, and their content is dropped with a loss; another caller is told that
// the work is done.
func TestFoldBudget_Follow(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		limits := newLimits(t)
		open := func() transport.Share { return limits.Aside("mallory", true) }
		fill := func(toldEach bool) (b *outbound.FoldBudget, fold *stream.Folder, losses []canonical.Loss, err error) {
			b, fold = &outbound.FoldBudget{Open: open}, &stream.Folder{}
			for range 6 {
				part := canonical.Part{Kind: canonical.KindText, Text: strings.Repeat("x", mib/2)}
				event := &canonical.Event{Artifact: &canonical.ArtifactUpdate{Artifact: canonical.Artifact{ID: "a", Parts: []canonical.Part{part}}, Append: true}}
				if err := fold.Add(event, canonical.Conversation{TaskID: "t"}); err != nil {
					t.Fatal(err)
				}
				var dropped []canonical.Loss
				if dropped, err = b.Follow(t.Context(), fold, "large", toldEach); err != nil {
					break
				}
				losses = canonical.MergeLosses(losses, dropped)
			}
			return b, fold, losses, err
		}
		var budgets []*outbound.FoldBudget
		whole := 0
		for range 20 {
			b, fold, losses, err := fill(true)
			budgets = append(budgets, b)
			if err != nil {
				t.Errorf("a stream ends with %v", err)
			}
			if fold.Size() == 3*mib {
				whole++
			} else if fold.Size() != 0 || len(losses) != 1 || losses[0].Code != canonical.LossArtifacts {
				t.Errorf("a stream holds %d bytes with the losses %v", fold.Size(), losses)
			}
		}
		if used := usedBy(limits); whole != 5 || used != 15*mib {
			t.Errorf("%d streams hold all of it, %d bytes", whole, used)
		}
		b, _, _, err := fill(false)
		if late, ok := errors.AsType[*transport.OverBudgetError](err); !ok || late.Agent != "large" {
			t.Errorf("a caller who waits is told %v", err)
		}
		for _, b := range append(budgets, b) {
			b.End()
		}
		if used := usedBy(limits); used != 0 {
			t.Errorf("%d bytes are held after the end", used)
		}
	})
}
