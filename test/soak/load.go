package main

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
)

// callers is how many of each kind of call are under way at once.
const callers = 2

// part is one caller's part in the load.
type part struct {
	name  string
	turn  turn
	pause time.Duration // between the beginnings of two turns
}

// parts: everybody at the pace, bad callers at a quarter of it, operators rarely.
func (r *rig) parts(pace, rarely time.Duration) []part {
	var parts []part
	for _, name := range slices.Sorted(maps.Keys(r.turns())) {
		for range callers {
			parts = append(parts, part{name, r.turns()[name], pace})
		}
	}
	for _, name := range slices.Sorted(maps.Keys(r.abuse())) {
		parts = append(parts, part{name, r.abuse()[name], 4 * pace})
	}
	return append(parts, part{"listing", r.listing, 10 * pace}, part{"reload", r.reload, rarely})
}

// tally counts turns by their name.
type tally map[string]*atomic.Int64

// load plays all parts until ctx ends. The first answer that is not the expected
// one ends everything.
func load(ctx context.Context, parts []part) (tally, error) {
	counts := tally{}
	for _, p := range parts {
		counts[p.name] = &atomic.Int64{}
	}
	group, all := errgroup.WithContext(ctx)
	for i, p := range parts {
		group.Go(func() error { return p.play(all, i, counts[p.name]) })
	}
	return counts, group.Wait()
}

// play takes turns until ctx ends; a turn that has begun is finished.
func (p part) play(ctx context.Context, first int, count *atomic.Int64) error {
	tick := time.NewTicker(p.pause)
	defer tick.Stop()
	for n := first; ; n++ {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		if err := p.turn(context.WithoutCancel(ctx), n); err != nil {
			return fmt.Errorf("%s: %w", p.name, err)
		}
		count.Add(1)
	}
}
