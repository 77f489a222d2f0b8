package lifecycle

import (
	"cmp"
	"context"
	"log/slog"
	"strconv"
	"sync"
	"time"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/gateway/attest"
	"github.com/aepb/aepb-gateway/gateway/record"
	"github.com/aepb/aepb-gateway/gateway/state"
	"github.com/aepb/aepb-gateway/gateway/worker"
	"github.com/aepb/aepb-gateway/lifecycle"
)

const (
	tick = time.Second
	// noticed is by when every replica that lives has read a record and said what it has under way.
	noticed = 5 * time.Second
	// workFor is how long a replica's word about its work holds.
	workFor = 15 * time.Second
)

// Run keeps the records fresh, and takes agents that drain to their end, until ctx ends.
func (s *Service) Run(ctx context.Context) {
	step := func() {
		if err := s.Step(ctx); err != nil && ctx.Err() == nil {
			s.deps.Logger.WarnContext(ctx, "lifecycle records are not read", slog.Any("error", err))
		}
	}
	var group sync.WaitGroup
	defer group.Wait()
	// Apart: an order may wait for the document of a successor, and what others order must be known in time.
	group.Go(func() { worker.Every(ctx, tick, func() { _ = s.followOrders(ctx) }) }) // Configure has said what cannot be followed yet
	step()
	worker.Every(ctx, tick, step)
}

// Step reads the records once, and does what is next for each agent that drains, and for this gateway
// if an operator drains it: the end of one process is none of it (R16).
func (s *Service) Step(ctx context.Context) error {
	if err := s.Refresh(ctx); err != nil {
		return err
	}
	for _, r := range s.Records() {
		if r.Status != lifecycle.Draining {
			continue
		}
		if err := s.goOn(ctx, r.Agent); err != nil {
			return err
		}
	}
	return nil
}

// goOn does the next step of a graceful end (AEPB, Graceful Shutdown). Another replica may do the same:
// one of them swaps its record in.
func (s *Service) goOn(ctx context.Context, agent string) (err error) {
	// However short work was, the grace begins when the last one has ended.
	ended := s.takeEnded(agent)
	defer func() {
		if ended && err != nil {
			s.mu.Lock()
			s.ended[agent] = true // which the next look is to know
			s.mu.Unlock()
		}
	}()
	left, err := s.workLeft(ctx, agent)
	if err != nil {
		return err
	}
	now := s.deps.Now()
	_, _, err = s.records.Decide(ctx, keyOf(agent), func(found record.Found[lifecycle.Record]) (lifecycle.Record, *attest.Statement, error) {
		before := found.Value
		open := before.SunsetAt.After(before.At) && !before.Workflows(now).IsZero() // workflows take their next steps until the sunset
		next, step, due := before.Next(left || ended || open || now.Sub(before.At) < noticed, now)
		if !due {
			return before, nil, record.ErrUnchanged
		}
		change, changed := next.ChangeFrom(before)
		switch {
		case changed:
			next.At = now.Round(0).UTC()
			return next, s.statement(before, change.Claims), nil
		case step == lifecycle.Ended:
			return next, s.statement(before, func(id string) (ect.Act, ect.Ext) { return lifecycle.Shutdown(id, s.deps.Replica) }), nil
		}
		return next, nil, nil
	})
	return err
}

// takeEnded reports whether work for an agent has ended here since it was asked last.
func (s *Service) takeEnded(agent string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	ended := s.ended[agent]
	delete(s.ended, agent)
	return ended
}

// workLeft says what is under way here, and reports whether any replica has something under way.
func (s *Service) workLeft(ctx context.Context, agent string) (bool, error) {
	s.mu.RLock()
	own := s.work[agent]
	s.mu.RUnlock()
	group := cmp.Or(agent, ownRecord)
	key := state.EntryKey{Kind: KindAgentWork, Group: group, ID: s.deps.Replica}
	entry, _, err := s.deps.Entries.Get(ctx, key)
	if err != nil {
		return true, err
	}
	if _, _, err = s.deps.Entries.Swap(ctx, key, entry.Revision, []byte(strconv.Itoa(own)), s.deps.Now().Add(workFor)); err != nil {
		return true, err
	}
	all, err := s.deps.Entries.List(ctx, KindAgentWork, group, "", pageSize)
	for _, one := range all {
		if string(one.Value) != "0" {
			return true, err
		}
	}
	return false, err // what is under way here is among them
}
