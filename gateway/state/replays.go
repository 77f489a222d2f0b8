package state

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"sync"
	"time"

	"github.com/aepb/aepb-gateway/ect"
)

// Replays remembers which tokens were used, and for what (R6). It is safe for
// concurrent use.
type Replays struct {
	now   func() time.Time
	epoch time.Time

	mu   sync.Mutex
	uses *expiring[digest, digest]
}

var _ ect.ReplayCache = (*Replays)(nil)

// digest stands for a key or a use: half a SHA-256. Whoever finds two keys with
// one digest (2^64 work) has made a token that is refused.
type digest [sha256.Size / 2]byte

func newReplays(config Config, deps Deps) *Replays {
	return &Replays{
		now: deps.Now, epoch: deps.Epoch,
		uses: newExpiring[digest, digest](KindReplay, config.MaxReplays, 0, deps.Journal),
	}
}

// Claim notes the use of a token. When live uses leave no room it refuses with
// a [FullError]: to forget one would let it happen again.
func (r *Replays) Claim(_ context.Context, key ect.ReplayKey, use ect.ReplayUse) (ect.ReplayState, error) {
	k := digestOf(string(key.Issuer), key.Workflow, string(key.ID))
	u := digestOf(use.Token, use.Body)
	r.mu.Lock()
	defer r.mu.Unlock()
	now := r.now()
	if earlier, ok := r.uses.get(k, now); ok {
		if earlier.value == u {
			return ect.ReplaySame, nil
		}
		return ect.ReplayConflict, nil
	}
	if use.Issued.Before(r.epoch) {
		return ect.ReplayUnknown, nil
	}
	if !r.uses.add(k, u, 0, use.Until, now, false) {
		return ect.ReplayUnknown, r.full(now)
	}
	return ect.ReplayFresh, nil
}

func (r *Replays) full(now time.Time) *FullError {
	return &FullError{What: "uses of tokens", RetryAfter: r.uses.ending[0].until.Sub(now)}
}

// restore is true for a use that is remembered again. One that would have to
// be forgotten for lack of room is a [FullError].
func (r *Replays) restore(e *entry[digest, digest]) (bool, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := r.now()
	if kept := r.uses.restore(e, now, false); kept || e.until.Before(now) {
		return kept, nil
	}
	return false, r.full(now)
}

func (r *Replays) sweep(most int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.uses.clean(r.now(), most)
}

// Usage says how full the cache is.
func (r *Replays) Usage() Usage {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.uses.usage()
}

// digestOf hashes texts with their lengths, so that no two lists of texts are
// the same octets.
func digestOf(texts ...string) digest {
	buffer := make([]byte, 0, 256)
	for _, text := range texts {
		buffer = binary.BigEndian.AppendUint64(buffer, uint64(len(text)))
		buffer = append(buffer, text...)
	}
	sum := sha256.Sum256(buffer)
	return digest(sum[:])
}
