package state

import (
	"bytes"
	"context"
	"sync"
	"time"

	"github.com/aepb/aepb-gateway/ect"
)

// Answers keeps what was answered to a message with an ECT, so that a
// byte-identical repetition gets the same octets (R6). It is safe for
// concurrent use.
type Answers struct {
	now     func() time.Time
	largest int

	mu    sync.RWMutex
	blobs *shelf[none] // as appendKeyed writes them
}

func newAnswers(config Config, deps Deps) *Answers {
	return &Answers{
		now: deps.Now, largest: config.MaxAnswerBytes,
		blobs: newShelf[none](KindAnswer, config.MaxAnswers, config.MaxAnswersBytes, deps.Journal),
	}
}

// Finish stores an answer; a later one under the same key replaces it. One
// that is too large is not kept, and when there is no room the answer with the
// least time left goes: their repetitions are then refused as in progress.
func (a *Answers) Finish(_ context.Context, key ect.ReplayKey, answer []byte, until time.Time) {
	if len(answer) > a.largest {
		return
	}
	k := digestOf(string(key.Issuer), key.Workflow, string(key.ID))
	a.mu.Lock()
	defer a.mu.Unlock()
	var head [keyedSize]byte
	a.blobs.add(k, none{}, until, a.now(), appendKeyed(head[:0], until, k), answer)
}

// Load finds a stored answer; false: there is none, or not yet. The octets are
// the caller's own.
func (a *Answers) Load(_ context.Context, key ect.ReplayKey) ([]byte, bool) {
	k := digestOf(string(key.Issuer), key.Workflow, string(key.ID))
	a.mu.RLock()
	defer a.mu.RUnlock()
	blob, _, ok := a.blobs.get(k, a.now())
	if !ok {
		return nil, false
	}
	return bytes.Clone(blob[keyedSize:]), true
}

// Usage says how full the store is.
func (a *Answers) Usage() Usage {
	a.mu.RLock()
	defer a.mu.RUnlock()
	return a.blobs.usage()
}

func (a *Answers) restore(e keyed, serial uint64) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return len(e.whole)-keyedSize <= a.largest && a.blobs.restore(e.key, none{}, serial, e.until, a.now(), e.whole)
}

func (a *Answers) sweep(most int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.blobs.clean(a.now(), most)
}
