package httpapi

import (
	"context"
	"crypto/sha256"
	"errors"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/ect/identity/apikey"
	"github.com/aepb/aepb-gateway/ect/identity/credential"
	"github.com/aepb/aepb-gateway/policy/limit"
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

// Failed tokens that name a trusted key are judged so often in a second, from one
// address and from all, and so many at once. A signature costs some 50 µs.
const (
	keyedRate    = 400
	allKeyedRate = 1000
)

// Failures bounds failed authentications. Credentials from an address that failed
// too often are not judged any more, and a stranger there does not lock out others:
// tokens that were good a short time ago are judged, and tokens that name a trusted key
// have a share of their own, which only such tokens use up. When that is used up, too,
// they are judged as long as the address has requests left. A nil Failures bounds nothing.
type Failures struct {
	counter  FailureCounter
	known    func(credential.Request) bool
	keyed    *limit.Limiter // by address
	allKeyed *limit.Limiter

	mu     sync.Mutex
	proven map[[sha256.Size]byte]time.Time // until when, by hash of the token
}

// NewFailures lets failures count. known reports whether the token of a request names a
// trusted key, without a check of its signature; nil: none does.
func NewFailures(counter FailureCounter, known func(credential.Request) bool) (*Failures, error) {
	keyed, err := limit.New(limit.Config{Rate: keyedRate, Burst: keyedRate}, limit.Deps{})
	all, err2 := limit.New(limit.Config{Rate: allKeyedRate, Burst: allKeyedRate}, limit.Deps{})
	if err = errors.Join(err, err2); err != nil {
		return nil, err
	}
	if known == nil {
		known = func(credential.Request) bool { return false }
	}
	return &Failures{counter: counter, known: known, keyed: keyed, allKeyed: all, proven: map[[sha256.Size]byte]time.Time{}}, nil
}

// payer is what a failure takes from.
type payer int

const (
	addressPays payer = iota
	keyedPays
)

// everyone is the source of all failures of tokens that name a trusted key.
const everyone = "all"

// allow refuses to judge credentials, or says what pays if they are no good.
func (f *Failures) allow(ctx context.Context, address string, r credential.Request) (payer, error) {
	tokens := shown(r)
	if f == nil || len(tokens) == 0 || f.isProven(tokens) {
		return addressPays, nil
	}
	if f.keyed.Exhausted(limit.Address(address)).OK && f.allKeyed.Exhausted(everyone).OK && f.known(r) {
		return keyedPays, nil
	}
	return addressPays, f.counter.MayAuthenticate(ctx, address)
}

func (f *Failures) isProven(tokens []string) bool {
	sum := digest(tokens)
	f.mu.Lock()
	defer f.mu.Unlock()
	until, ok := f.proven[sum]
	return ok && time.Now().Before(until)
}

// failed counts refused credentials, and says what to refuse them with.
func (f *Failures) failed(ctx context.Context, proved ect.Identity, address string, pays payer, cause error) error {
	if f == nil {
		return cause
	}
	if pays == keyedPays {
		f.keyed.Allow(limit.Address(address))
		f.allKeyed.Allow(everyone)
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
	maps.DeleteFunc(f.proven, func(_ [sha256.Size]byte, until time.Time) bool { return now.After(until) })
	for sum := range f.proven {
		if len(f.proven) == before {
			delete(f.proven, sum)
		}
		return
	}
}

// shown are the tokens of a request that say who the caller is. Proofs of
// possession differ in each request and are not among them. Beside a workload identity
// token an API key is refused unseen, so what is shown is that token alone.
func shown(r credential.Request) []string {
	if r.Fields == nil {
		return nil
	}
	if tokens := r.Fields(credential.IdentityField); len(tokens) > 0 {
		return tokens
	}
	return slices.Concat(r.Fields("Authorization"), apikey.Shown(r))
}

func digest(tokens []string) [sha256.Size]byte {
	all := sha256.New()
	for _, token := range tokens {
		all.Write([]byte(token))
		all.Write([]byte{0})
	}
	return [sha256.Size]byte(all.Sum(nil))
}
