package redis

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	goredis "github.com/redis/go-redis/v9"

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
	// errFailover reports a node of a cluster that is no master any more. It passes by itself.
	errFailover = errors.New("state: redis changes its masters")
	errYoung    = errors.New("state: redis: what was used is not known, and tokens may still be older than that")
	errBusy     = errors.New("state: redis: others changed a record each time that it was put")
	errReply    = errors.New("state: redis: an answer that no script of ours gives")
)

// downError is why Redis cannot be used, in a text for all who may ask for readiness.
type downError struct {
	text string
	err  error
}

func (e *downError) Error() string { return e.text }

// Unwrap gives the cause.
func (e *downError) Unwrap() error { return e.err }

// longestReason bounds what is quoted of an answer of Redis, in bytes.
const longestReason = 200

// described says of a failed look at Redis where that is and what is wrong. What a
// server answers is quoted; what the network says is not, for it means only that
// there is no answer.
func (s *Store) described(err error) string {
	where := "Redis at " + strings.Join(s.config.Addresses, ", ")
	_, answered := errors.AsType[goredis.Error](err)
	if !answered && !unfit(err) && !errors.Is(err, errFailover) {
		return where + " cannot be reached"
	}
	reason := strings.TrimPrefix(err.Error(), "state: ")
	return where + ": " + reason[:min(len(reason), longestReason)]
}

// unfit reports whether an error shows that Redis is there, and that it or the
// configuration has to be changed before state can be kept. go-redis has no types for
// what servers answer, and crypto/tls none for most of its errors.
func unfit(err error) bool {
	if err == nil {
		return false
	}
	text := err.Error()
	return errors.Is(err, errUnsafe) || slices.ContainsFunc([]string{
		"WRONGPASS", "NOAUTH", "NOPERM", "ERR AUTH", "ERR Client sent AUTH", "ERR invalid password",
		"DENIED Redis is running in protected mode", "cluster support disabled", "tls: ",
	}, func(sign string) bool { return strings.Contains(text, sign) })
}

const retryAfter = time.Second

// unavailable refuses what depends on Redis. What is not evidence is shared state.
func unavailable(err error) error {
	return &state.UnavailableError{Err: err, RetryAfter: retryAfter, Lacks: state.LacksShared}
}

// lacks names the guarantee that an operation could not keep.
func lacks(err *error, what state.Guarantee) {
	if gone, ok := errors.AsType[*state.UnavailableError](*err); ok {
		gone.Lacks = what // each refusal is a value of its own
	}
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
