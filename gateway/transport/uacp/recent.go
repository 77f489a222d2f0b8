package uacp

import (
	"crypto/sha256"
	"sync"
	"time"
)

const (
	maxRecent = 64               // frames of one peer that are known again
	remembers = 30 * time.Second // for which they are: as long as the reference repeats them
)

// recent holds the frames of one peer with quality of service 1, and the answers to
// them: a peer that gets no answer sends the same frame again, under the same id.
// Its zero value is empty.
type recent struct {
	mu   sync.Mutex
	list []known // oldest first
}

type known struct {
	sum   [sha256.Size]byte
	reply []byte // nil: not answered yet
	at    time.Time
}

// seen reports whether a frame came before, with its answer. One that did not
// is remembered.
func (r *recent) seen(body []byte, now time.Time) (reply []byte, again bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for len(r.list) > 0 && now.Sub(r.list[0].at) >= remembers {
		r.list = r.list[1:]
	}
	sum := sha256.Sum256(body)
	for i := range r.list {
		if r.list[i].sum == sum {
			return r.list[i].reply, true
		}
	}
	if len(r.list) == maxRecent {
		r.list = r.list[1:]
	}
	r.list = append(r.list, known{sum: sum, at: now})
	return nil, false
}

// answered keeps what a frame was answered with, if it is remembered.
func (r *recent) answered(body, reply []byte) {
	r.mu.Lock()
	defer r.mu.Unlock()
	sum := sha256.Sum256(body)
	for i := range r.list {
		if r.list[i].sum == sum {
			r.list[i].reply = reply
		}
	}
}
