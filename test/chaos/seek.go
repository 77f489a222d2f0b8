package main

import (
	"context"
	"sync"
	"time"
)

// seekTime is how long work may go on after the load: the agents' time, and that
// until a gateway that died is known to be dead.
const seekTime = 60 * time.Second

// seekers ask at once.
const seekers = 8

// seek asks every replica about all accepted work, until it has ended.
func (r *rig) seek(ctx context.Context, outcomes []outcome) map[string][]sight {
	ctx, cancel := context.WithTimeout(ctx, seekTime)
	defer cancel()
	var all sync.WaitGroup
	var mu sync.Mutex
	found := map[string][]sight{}
	places := make(chan struct{}, seekers)
	for _, o := range outcomes {
		if o.task == "" {
			continue
		}
		places <- struct{}{}
		all.Go(func() {
			defer func() { <-places }()
			sights := r.look(ctx, o)
			mu.Lock()
			defer mu.Unlock()
			found[o.task] = sights
		})
	}
	all.Wait()
	return found
}

// look asks each replica about one task.
func (r *rig) look(ctx context.Context, o outcome) []sight {
	var sights []sight
	for _, g := range r.gateways {
		sights = append(sights, r.sight(ctx, g.address, o))
	}
	return sights
}

func (r *rig) sight(ctx context.Context, address string, o outcome) sight {
	o.end, o.said = endBroken, ""
	client, err := r.caller(address).agent(ctx, o.agent)
	if err != nil {
		return sight{end: endBroken, why: err.Error()}
	}
	for {
		o = known(ctx, client, o)
		if o.end != endOpen && o.end != endBroken || !pause(ctx, askEvery) {
			return sight{o.end, o.said, o.why}
		}
	}
}
