package gateway

import (
	"context"
	"time"

	"github.com/aepb/aepb-gateway/ect"
)

// Answers keeps what was answered to a message with an ECT, for as long as the
// ECT lives, so that a byte-identical repetition gets the same answer (R6).
type Answers interface {
	// Finish stores an answer; one that is too large or finds no room is not
	// kept, and its repetition is then refused as in progress.
	Finish(ctx context.Context, key ect.ReplayKey, answer []byte, until time.Time)
	// Load finds a stored answer; false: still in progress.
	Load(ctx context.Context, key ect.ReplayKey) ([]byte, bool)
}

// Conversations remembers the workflow and the last ECT of each dialogue (R3).
// The key "" is never remembered and never found.
type Conversations interface {
	Last(ctx context.Context, key string) (workflow string, id ect.ID, ok bool)
	Remember(ctx context.Context, key, workflow string, id ect.ID)
}
