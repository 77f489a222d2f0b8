package directory

import (
	"context"
	"errors"

	"github.com/aepb/aepb-gateway/gateway/transport/stdio"
	"github.com/aepb/aepb-gateway/policy/quota"
)

// learn fetches once for all who wait. What concerns the caller alone for whom that was done, another
// does not take for its own: it asks for itself, whatever the first goes on asking.
func (d *Directory) learn(ctx context.Context, name string, agent Agent, e Endpoint, v Viewer) knowledge {
	k := d.learnOnce(ctx, name, name, agent, e, v)
	if !callersOwn(k.err) || k.endpoint.Caller == v.Caller {
		return k
	}
	return d.learnOnce(ctx, name+"\x00"+string(v.Caller), name, agent, e, v)
}

// callersOwn: a description failed because of what its caller holds, or did to the process that
// the caller has for itself.
func callersOwn(err error) bool {
	_, exceeded := errors.AsType[*quota.ExceededError](err)
	_, ended := errors.AsType[*stdio.EndedError](err)
	_, waits := errors.AsType[*stdio.WaitError](err)
	return exceeded || ended || waits
}

// learnOnce is one fetch for all who wait in the same flight. It outlives a caller who goes
// away, since others may wait for it; fetchLimit bounds it, and the time that
// the agent may take for a call. A failure does not replace what is known and
// can still be used.
func (d *Directory) learnOnce(ctx context.Context, flight, name string, agent Agent, e Endpoint, v Viewer) knowledge {
	result := d.flight.DoChan(flight, func() (any, error) {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), patience(agent))
		defer cancel()
		k := d.fetch(ctx, name, agent, e, v)
		d.mu.Lock()
		defer d.mu.Unlock()
		now := d.deps.Now()
		old, known := d.known[name]
		switch current, ok := d.current(agent.Name); {
		case !ok || !lists(current, e):
		case k.err != nil && known && old.err == nil && now.Before(old.until):
			old.stale = now.Add(retryAfter)
			d.known[name] = old
		case !callersOwn(k.err):
			d.known[name] = k
		}
		return k, nil
	})
	select {
	case <-ctx.Done():
		return knowledge{err: ctx.Err()}
	case r := <-result:
		k, _ := r.Val.(knowledge)
		return k
	}
}
