package main

import (
	"time"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/gateway"
	"github.com/aepb/aepb-gateway/gateway/state"
	"github.com/aepb/aepb-gateway/gateway/state/bolt"
)

// kept is state, whoever keeps it.
type kept struct {
	evidence      ect.Store
	replay        ect.ReplayCache
	answers       gateway.Answers
	conversations gateway.Conversations
	entries       gateway.Entries
	failing       func() error
	close         func() error
}

// openState opens the file that the operator named, or keeps state in memory:
// what was used before this start is then unknown, and ECTs from before it are
// refused (R6).
func openState(s settings) (kept, error) {
	bounds := state.Config{MaxTokenBytes: int64(s.config.State.EvidenceMiB) << 20}
	if path := s.config.State.Path; path != "" {
		store, err := bolt.Open(bolt.Config{Path: path, Bounds: bounds}, bolt.Deps{Now: time.Now, Logger: s.logger})
		if err != nil {
			return kept{}, err
		}
		return kept{store, store, store, store, store.Entries(), store.Failing, store.Close}, nil
	}
	memory, err := state.New(bounds, state.Deps{Now: time.Now, Epoch: time.Now().Truncate(time.Second)})
	if err != nil {
		return kept{}, err
	}
	healthy := func() error { return nil }
	return kept{memory, memory, memory, memory, memory.Entries(), healthy, healthy}, nil
}
