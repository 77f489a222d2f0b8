package lifecycle

import (
	"context"
	"log/slog"
	"time"

	"github.com/aepb/aepb-gateway/gateway/state"
	"github.com/aepb/aepb-gateway/lifecycle"
)

// The kinds of entries.
const (
	KindLifecycle = "lifecycle" // how agents stand
	KindAgentWork = "agentwork" // how much is under way for an agent that drains, by replica
)

const (
	allAgents = "agents" // the group of all records
	ownRecord = "."      // the id of the gateway's own
	pageSize  = 100
	// recordFor is how long a record is kept without a change: agents stay retired for good.
	recordFor = 100 * 365 * 24 * time.Hour
)

func keyOf(agent string) state.EntryKey {
	id := ownRecord
	if agent != "" {
		id = "agent " + agent
	}
	return state.EntryKey{Kind: KindLifecycle, Group: allAgents, ID: id}
}

// read is the record as all replicas have it, with its revision; 0: there is none.
func (s *Service) read(ctx context.Context, agent string) (lifecycle.Record, uint64, error) {
	entry, found, err := s.deps.Entries.Get(ctx, keyOf(agent))
	if err != nil || !found {
		return lifecycle.Record{Agent: agent}, 0, err
	}
	r, err := lifecycle.Decode(entry.Value)
	return r, entry.Revision, err
}

// write swaps a record in; false: another writer was first. With Redis it has returned when as many
// replicas of the store have it as are demanded.
func (s *Service) write(ctx context.Context, r lifecycle.Record, revision uint64) (first bool, err error) {
	value, err := r.Encode()
	if err != nil {
		return false, err
	}
	_, first, err = s.deps.Entries.Swap(ctx, keyOf(r.Agent), revision, value, s.deps.Now().Add(recordFor))
	return first, err
}

// Refresh reads what other replicas have announced, and records its evidence where the one that
// announced it did not come to that.
func (s *Service) Refresh(ctx context.Context) error {
	for after := ""; ; {
		page, err := s.deps.Entries.List(ctx, KindLifecycle, allAgents, after, pageSize)
		if err != nil {
			return err
		}
		for _, entry := range page {
			after = entry.Key.ID
			r, err := lifecycle.Decode(entry.Value)
			if err != nil {
				s.deps.Logger.ErrorContext(ctx, "a lifecycle record cannot be read", slog.String("id", after), slog.Any("error", err))
				continue
			}
			s.learn(r)
			s.keep(ctx, r)
		}
		if len(page) < pageSize {
			return nil
		}
	}
}
