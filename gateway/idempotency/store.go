package idempotency

import (
	"context"
	"time"

	"github.com/aepb/aepb-gateway/ect"
)

// Store keeps replies until the ECT of their request expires.
type Store interface {
	// Finish stores a reply. A reply that is too large, or does not fit, is not kept: its
	// repetition is refused as in progress.
	Finish(ctx context.Context, key ect.ReplayKey, reply []byte, until time.Time)
	// Load finds a stored reply; false: the request is still in progress.
	Load(ctx context.Context, key ect.ReplayKey) ([]byte, bool)
}

// ConfirmedStore is a Store that several replicas share, and that can say when a reply
// is kept even if the server that took it is lost (R18). A caller is told how its task
// ended only then.
type ConfirmedStore interface {
	// Confirm is Finish; an error: the reply may be lost.
	Confirm(ctx context.Context, key ect.ReplayKey, reply []byte, until time.Time) error
}
