package gateway

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/aepb/aepb-gateway/gateway/state"
)

// What happens when one caller has as many records with one agent as there may
// be: those of work that has ended make room, the oldest first. Work that goes on
// keeps its record, so a caller with too much of that is refused.
const (
	restLife   = time.Minute // work that has ended is kept for as long as this, whatever comes
	clearEvery = time.Second // how often room is looked for among one caller's records
	clearPart  = 8           // of what has ended, one in so many makes room at once
)

func full(err error) bool {
	_, yes := errors.AsType[*state.FullError](err)
	return yes
}

// clearings are the groups that were cleared lately.
type clearings struct {
	mu   sync.Mutex
	last map[string]time.Time
}

// due: this group was not cleared lately. It is taken to be now.
func (c *clearings) due(group string, now time.Time) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	maps.DeleteFunc(c.last, func(_ string, at time.Time) bool { return now.Sub(at) >= clearEvery })
	if _, lately := c.last[group]; lately {
		return false
	}
	if c.last == nil {
		c.last = map[string]time.Time{}
	}
	c.last[group] = now
	return true
}

// makeRoom forgets work that has ended; false: there is none, or nobody has looked
// whether there is.
func (g *Gateway) makeRoom(ctx context.Context, group string) bool {
	now := g.Now()
	if !g.clearings.due(group, now) {
		return false
	}
	var ended []listed
	for after := ""; ; {
		entries, err := g.Entries.List(ctx, entryTask, group, after, maxPage)
		if err != nil {
			return false
		}
		for _, entry := range entries {
			after = entry.Key.ID
			rec, err := g.readRecord(entry)
			if err != nil || rec.Task.Status.State.Terminal() && now.Sub(rec.Changed) >= restLife {
				ended = append(ended, listed{id: after, at: changedAt(rec)})
			}
		}
		if len(entries) < maxPage {
			break
		}
	}
	slices.SortFunc(ended, func(a, b listed) int { return cmp.Or(a.at.Compare(b.at), cmp.Compare(a.id, b.id)) })
	made := false
	for _, one := range ended[:(len(ended)+clearPart-1)/clearPart] {
		if g.Entries.Delete(ctx, EntryKey{Kind: entryTask, Group: group, ID: one.id}) == nil {
			made = true
		}
	}
	return made
}

// changedAt is when work was last heard of; zero: nobody can read that.
func changedAt(rec *record) time.Time {
	if rec == nil {
		return time.Time{}
	}
	return rec.Changed
}
