package consensus

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/gateway/problem"
	"github.com/aepb/aepb-gateway/policy/consensus"
)

// groups are those of the configuration, and since when their members are known.
type groups struct {
	archive *archive

	mu    sync.Mutex
	named map[string]consensus.Group
	known map[ect.Identity]time.Time
}

func (g *groups) configure(list []consensus.Group) {
	named := make(map[string]consensus.Group, len(list))
	for _, one := range list {
		named[one.Name] = one
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.named = named
}

// find is a group in which an identity takes part. Its error is a *[problem.NotFoundError].
func (g *groups) find(name string, who ect.Identity) (consensus.Group, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	group, found := g.named[name]
	if !found || !takesPart(group, who) {
		return group, &problem.NotFoundError{What: "group"}
	}
	return group, nil
}

func takesPart(g consensus.Group, who ect.Identity) bool {
	_, proposes := g.Proposers[who]
	return proposes || g.Leader == who || slices.ContainsFunc(g.Members, func(m consensus.Member) bool { return m.ID == who })
}

// ages says since when the members of a group are known, and makes known those that are not. Its errors are those of the store.
func (g *groups) ages(ctx context.Context, group consensus.Group, now time.Time) (func(ect.Identity) time.Time, error) {
	for _, m := range group.Members {
		if !g.since(m.ID).IsZero() {
			continue
		}
		text, err := now.UTC().MarshalText()
		if err != nil {
			return nil, err
		}
		if text, err = g.archive.put(ctx, knownKey(m.ID), text, now.Add(knownFor)); err != nil {
			return nil, err
		}
		var since time.Time
		if err := since.UnmarshalText(text); err != nil {
			return nil, err
		}
		g.learn(m.ID, since)
	}
	return g.since, nil
}

func (g *groups) since(id ect.Identity) time.Time {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.known[id]
}

func (g *groups) learn(id ect.Identity, since time.Time) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.known[id] = since
}
