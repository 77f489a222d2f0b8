package main

import (
	"context"
	"time"

	"github.com/aepb/aepb-gateway/gateway"
	tmcp "github.com/aepb/aepb-gateway/gateway/transport/mcp"
)

// kindSession is the kind of the entries that hold sessions of a protocol's own.
const kindSession = "session"

// keeper keeps native sessions among the entries, so that every replica knows
// them.
type keeper struct{ entries gateway.Entries }

var _ tmcp.Keeper = keeper{}

func sessionKey(group, id string) gateway.EntryKey {
	return gateway.EntryKey{Kind: kindSession, Group: group, ID: id}
}

func (k keeper) Get(ctx context.Context, group, id string) ([]byte, uint64, bool, error) {
	entry, ok, err := k.entries.Get(ctx, sessionKey(group, id))
	return entry.Value, entry.Revision, ok, err
}

func (k keeper) Swap(ctx context.Context, group, id string, old uint64, value []byte, until time.Time) (bool, error) {
	_, ok, err := k.entries.Swap(ctx, sessionKey(group, id), old, value, until)
	return ok, err
}

func (k keeper) Delete(ctx context.Context, group, id string) error {
	return k.entries.Delete(ctx, sessionKey(group, id))
}

func (k keeper) Count(ctx context.Context, group string, limit int) (int, error) {
	entries, err := k.entries.List(ctx, kindSession, group, "", limit)
	return len(entries), err
}
