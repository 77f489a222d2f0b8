package outbound

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/gateway/transport"
	"github.com/aepb/aepb-gateway/gateway/transport/egress"
	"github.com/aepb/aepb-gateway/translators/canonical"
	"github.com/aepb/aepb-gateway/translators/stream"
)

// budgetWait is how long an answer waits: as long as its caller may take to read another.
const budgetWait = 30 * time.Second

// Budgets is the stage that books what is read from agents in the share of the caller for whom it is, while
// it is read and until the next is: that of the request, and when that has ended one of its own, which
// open makes. An answer for which there is no space in time is a *[transport.OverBudgetError].
func Budgets(open func(ctx context.Context, caller ect.Identity) transport.Share) Stage {
	return func(next Sender) Sender {
		return SendFunc(func(ctx context.Context, call *Call) (Reply, error) {
			if call.Kind > Peer {
				return next.Send(ctx, call)
			}
			r := &callBudget{open: open, ctx: ctx, caller: call.Endpoint.Caller, agent: call.Endpoint.Agent}
			if r.share = transport.ShareFrom(ctx); r.share == nil {
				r.aside()
			}
			reply, err := next.Send(egress.WithBudget(ctx, r), call)
			if err == nil && reply.Events != nil {
				reply.Events = &budgeted{Events: reply.Events, budget: r}
				return reply, nil
			}
			if err == nil {
				err = r.Answer(ctx, int64(len(reply.Wire.Body)), true)
			} else {
				_ = r.Answer(ctx, 0, true) // which gives back what was read of it
			}
			r.end()
			return reply, r.cause(err)
		})
	}
}

// callBudget is that of one call.
type callBudget struct {
	open   func(ctx context.Context, caller ect.Identity) transport.Share
	ctx    context.Context //nolint:containedctx // the call's, which says whose it is
	caller ect.Identity
	agent  string

	mu     sync.Mutex
	share  transport.Share
	own    transport.Share // that was opened for the call; nil: none was
	failed *transport.OverBudgetError
}

// Answer implements [egress.Budget].
func (r *callBudget) Answer(ctx context.Context, n int64, whole bool) error {
	if n > 0 {
		within, cancel := context.WithTimeout(ctx, budgetWait)
		defer cancel()
		ctx = within
	}
	share := r.current()
	err := share.Answer(ctx, r.agent, n, whole)
	if next := r.current(); next != share { // it ended while this waited
		err = next.Answer(ctx, r.agent, n, whole)
	}
	if err == nil {
		return nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.failed = &transport.OverBudgetError{Agent: r.agent, Size: n}
	return r.failed
}

// current is the share of the request, or the call's own after its end.
func (r *callBudget) current() transport.Share {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.own == nil && r.share.Ended() {
		r.aside()
	}
	return r.share
}

func (r *callBudget) aside() {
	r.own = r.open(r.ctx, r.caller)
	r.share = r.own
}

func (r *callBudget) end() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.own != nil {
		r.own.End()
	}
}

// cause is why a call failed: for want of budget, whatever its driver made of that.
func (r *callBudget) cause(err error) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if err == nil || r.failed == nil {
		return err
	}
	return r.failed
}

// budgeted is a stream whose events are booked, one after the other.
type budgeted struct {
	transport.Events

	budget *callBudget
}

// Next implements transport.Events.
func (e *budgeted) Next(ctx context.Context) (transport.Event, error) {
	event, err := e.Events.Next(ctx)
	if err == nil {
		err = e.budget.Answer(ctx, int64(len(event.Wire.Body)), true)
	}
	return event, e.budget.cause(err)
}

// Close implements transport.Events.
func (e *budgeted) Close() error {
	err := e.Events.Close()
	given := e.budget.Answer(context.Background(), 0, true)
	e.budget.end()
	return errors.Join(err, given)
}

// FoldBudget books in its caller's share what an execution holds of the events so far.
type FoldBudget struct {
	Open  func() transport.Share // nil: nothing is booked
	share transport.Share        // nil: nothing is booked yet
}

// Follow books as much as the fold holds. A caller who was told each event needs none of it again: where
// there is no share for it, its content is dropped, and lost for who asks about the task later. Another
// caller waits, and is refused with a *[transport.OverBudgetError].
func (b *FoldBudget) Follow(ctx context.Context, fold *stream.Folder, agent string, toldEach bool) ([]canonical.Loss, error) {
	if b.Open == nil || b.share == nil && fold.Size() < 256<<10 {
		return nil, nil
	}
	if b.share == nil {
		b.share = b.Open()
	}
	wait := budgetWait
	if toldEach {
		wait = 0
	}
	ctx, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	err := b.share.Answer(ctx, agent, int64(fold.Size()), true)
	switch {
	case err == nil:
		return nil, nil
	case toldEach:
		fold.Forget()
		return []canonical.Loss{{Code: canonical.LossArtifacts, Path: "/body/task/artifacts", Fate: canonical.Dropped}}, b.share.Answer(ctx, agent, 0, true)
	default:
		return nil, &transport.OverBudgetError{Agent: agent, Size: int64(fold.Size())}
	}
}

// End gives everything back.
func (b *FoldBudget) End() {
	if b.share != nil {
		b.share.End()
	}
}
