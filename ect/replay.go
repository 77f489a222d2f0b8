package ect

import (
	"context"
	"time"
)

// ReplayKey names one use of a token: the issuer's jti in its workflow.
type ReplayKey struct {
	Issuer   Identity
	Workflow string
	ID       ID
}

// ReplayUse is what a token was used for.
type ReplayUse struct {
	Token  string    // Hash of the compact token
	Body   string    // Hash of the message body; empty: none
	Issued time.Time // iat: lets a cache refuse what is older than itself
	Until  time.Time // after this instant the token is refused anyway
}

// ReplayState is what the cache knew before a claim.
type ReplayState int

// The answers of a ReplayCache.
const (
	// ReplayFresh: never seen; the key is claimed now.
	ReplayFresh ReplayState = iota
	// ReplaySame: the same token with the same body.
	ReplaySame
	// ReplayConflict: the key was used by another token or with another body.
	ReplayConflict
	// ReplayUnknown: issued before the cache came to be, so nobody can say.
	ReplayUnknown
)

// ReplayCache remembers uses until they run out. Claim looks and writes in one
// atomic step: of many callers with one key, exactly one is told ReplayFresh.
type ReplayCache interface {
	Claim(ctx context.Context, key ReplayKey, use ReplayUse) (ReplayState, error)
}
