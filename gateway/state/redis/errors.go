package redis

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/aepb/aepb-gateway/gateway/state"
)

// OpenError: this Redis cannot be used as it is. It is for the operator, at the
// start; no caller ever meets it.
type OpenError struct{ Err error }

func (e *OpenError) Error() string { return "state: redis cannot be used: " + e.Err.Error() }

// Unwrap gives the cause.
func (e *OpenError) Unwrap() error { return e.Err }

var (
	// ErrUnconfirmed is the cause of a refusal when fewer replicas than demanded
	// have acknowledged a write (R18).
	ErrUnconfirmed = errors.New("state: redis: too few replicas have it")
	// ErrClosed is the cause of refusals after Close.
	ErrClosed = errors.New("state: closed")

	errUnsafe = errors.New("state: redis is not set up to keep this")
	errYoung  = errors.New("state: redis: what was used is not known, and tokens may still be older than that")
	errReply  = errors.New("state: redis: an answer that no script of ours gives")
)

const retryAfter = time.Second

func unavailable(err error) error {
	return &state.UnavailableError{Err: err, RetryAfter: retryAfter}
}

// failure is what an error of the client means to a caller.
func failure(ctx context.Context, what string, err error) error {
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil && errors.Is(err, ctx.Err()):
		return fmt.Errorf("state: redis: %w", ctx.Err())
	case strings.HasPrefix(err.Error(), "OOM "), strings.Contains(err.Error(), "-OOM "):
		return &state.FullError{What: what, RetryAfter: retryAfter}
	default:
		return unavailable(err)
	}
}
