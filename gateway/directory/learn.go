package directory

import (
	"context"
	"errors"
	"log/slog"
	"sync"

	"github.com/aepb/aepb-gateway/gateway/transport"
	"github.com/aepb/aepb-gateway/gateway/transport/stdio"
	"github.com/aepb/aepb-gateway/policy"
	"github.com/aepb/aepb-gateway/policy/quota"
	"github.com/aepb/aepb-gateway/translators/canonical"
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
		began := d.deps.Now()
		k := d.fetch(ctx, name, agent, e, v)
		d.mu.Lock()
		defer d.mu.Unlock()
		now := d.deps.Now()
		if next, named := d.renewed[agent.Name]; named { // what a look costs bounds how often a caller has it done
			if later := now.Add(min(renewShare*now.Sub(began), freshFor)); later.After(next) {
				d.renewed[agent.Name] = later
			}
		}
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

// DescribeSession is a description with what the agent lists in the session that mirrors a
// caller's own (e.Session), cleaned, where that has been begun; else the one that is known.
// So it is where the agent cannot be asked, and where changes wait for an operator (R9).
func (d *Directory) DescribeSession(ctx context.Context, agent Agent, e transport.Endpoint, known *canonical.Description, offer policy.Offer) *canonical.Description {
	describer := d.deps.Describers[e.Binding]
	if describer == nil || agent.Pin {
		return known
	}
	ctx, cancel := context.WithTimeout(ctx, patience(agent))
	defer cancel()
	e.Timeout = patience(agent)
	listed, _, err := describer.Describe(ctx, e)
	if err != nil {
		d.deps.Logger.WarnContext(ctx, "an agent does not list in a caller's session: what is known is shown", slog.String("agent", agent.Name), logError(err))
	}
	if err != nil || listed == nil {
		return known
	}
	now := *known
	now.Capabilities = listed.Capabilities
	now, _ = Clean(now)
	return Offered(&now, offer)
}

// offered is a description as callers see it to whom not all of it is offered. It is safe for concurrent use.
type offered struct {
	mu    sync.Mutex
	views map[string]*canonical.Description // by the offer
}

// maxViews bounds how many are remembered of one description: rules make few.
const maxViews = 64

// seen is the description for a caller.
func (k knowledge) seen(offer policy.Offer) *canonical.Description {
	if k.description == nil || offer.Whole() {
		return k.description
	}
	key := offer.Key()
	k.offered.mu.Lock()
	defer k.offered.mu.Unlock()
	view, ok := k.offered.views[key]
	if !ok {
		view = Offered(k.description, offer)
		if k.offered.views == nil || len(k.offered.views) == maxViews {
			k.offered.views = map[string]*canonical.Description{}
		}
		k.offered.views[key] = view
	}
	return view
}

// Offered is what is offered of a description, under the names that are shown.
func Offered(d *canonical.Description, offer policy.Offer) *canonical.Description {
	if offer.Whole() {
		return d
	}
	view := *d
	view.Capabilities, view.Omitted = nil, nil
	for _, c := range d.Capabilities {
		if name, ok := offer.Shown(c.ID); ok {
			c.ID = name
			view.Capabilities = append(view.Capabilities, c)
		}
	}
	for _, o := range d.Omitted {
		if name, ok := offer.Shown(o.Name); ok {
			o.Name = name
			view.Omitted = append(view.Omitted, o)
		}
	}
	return &view
}
