package lifecycle

import (
	"context"
	"time"

	"github.com/aepb/aepb-gateway/gateway/state"
)

// The kinds of entries.
const (
	KindLifecycle = "lifecycle" // how agents stand
	KindAgentWork = "agentwork" // how much is under way for an agent that drains, by replica
)

const (
	allAgents = "agents" // the group of all records
	ownRecord = "."      // the id of the gateway's own
	pageSize  = 100      // replicas that have work
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

// Refresh makes known what other replicas have announced, and records its evidence where the one that
// signed it did not come to that.
func (s *Service) Refresh(ctx context.Context) error {
	return s.records.Look(ctx, KindLifecycle, allAgents)
}
