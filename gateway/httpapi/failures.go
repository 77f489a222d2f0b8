package httpapi

import (
	"context"
	"crypto/sha256"
	"sync"
	"time"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/ect/identity/credential"
)

// FailureCounter lets failed authentications take from the share of requests of
// those who fail. Its errors refuse the request instead.
type FailureCounter interface {
	// MayAuthenticate refuses an address that has no requests left.
	MayAuthenticate(ctx context.Context, address string) error
	// FailedAuthentication takes one request from the identity that a connection
	// has proved, or without one from the address.
	FailedAuthentication(ctx context.Context, proved ect.Identity, address string) error
}

// Tokens that were good are remembered so long, and so many of them.
const (
	provenFor = 10 * time.Minute
	maxProven = 4096
)

// Failures bounds failed authentications. Credentials from an address that failed
// too often are not judged any more, except tokens that were good a short time
// ago: their callers do not pay for a stranger at the same address. A nil Failures
// bounds nothing.
type Failures struct {
	counter FailureCounter

	mu     sync.Mutex
	proven map[[sha256.Size]byte]time.Time // until when, by hash of the token
}

// NewFailures lets failures count.
func NewFailures(counter FailureCounter) *Failures {
	return &Failures{counter: counter, proven: map[[sha256.Size]byte]time.Time{}}
}

// allow refuses to judge credentials.
func (f *Failures) allow(ctx context.Context, address string, r credential.Request) error {
	tokens := shown(r)
	if f == nil || len(tokens) == 0 {
		return nil
	}
	err := f.counter.MayAuthenticate(ctx, address)
	if err == nil {
		return nil
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if until, ok := f.proven[digest(tokens)]; ok && time.Now().Before(until) {
		return nil
	}
	return err
}

// failed counts refused credentials, and says what to refuse them with.
func (f *Failures) failed(ctx context.Context, proved ect.Identity, address string, cause error) error {
	if f == nil {
		return cause
	}
	if over := f.counter.FailedAuthentication(ctx, proved, address); over != nil {
		return over
	}
	return cause
}

// passed remembers a token that was good.
func (f *Failures) passed(r credential.Request) {
	tokens := shown(r)
	if f == nil || len(tokens) == 0 {
		return
	}
	now, sum := time.Now(), digest(tokens)
	f.mu.Lock()
	defer f.mu.Unlock()
	if _, known := f.proven[sum]; !known && len(f.proven) >= maxProven {
		f.forget(now)
	}
	f.proven[sum] = now.Add(provenFor)
}

// forget drops tokens whose time is over, or if there are none, any one.
func (f *Failures) forget(now time.Time) {
	before := len(f.proven)
	for sum, until := range f.proven {
		if now.After(until) {
			delete(f.proven, sum)
		}
	}
	for sum := range f.proven {
		if len(f.proven) == before {
			delete(f.proven, sum)
		}
		return
	}
}

// shown are the tokens of a request that say who the caller is. Proofs of
// possession differ in each request and are not among them.
func shown(r credential.Request) []string {
	if r.Fields == nil {
		return nil
	}
	if tokens := r.Fields(credential.IdentityField); len(tokens) > 0 {
		return tokens
	}
	return r.Fields("Authorization")
}

func digest(tokens []string) [sha256.Size]byte {
	all := sha256.New()
	for _, token := range tokens {
		all.Write([]byte(token))
		all.Write([]byte{0})
	}
	return [sha256.Size]byte(all.Sum(nil))
}
