package peers

import (
	"bytes"
	"io"
	"net/http"
	"slices"
	"sync"
)

// Bounds of what a peer reads and remembers.
const (
	maxBody     = 4 << 20  // bytes of one request body; more is answered 413
	maxKeptBody = 64 << 10 // bytes of a body worth keeping; a longer one is not kept
	maxKept     = 256      // requests kept; the oldest go first
)

// Received is one request as it reached a peer.
type Received struct {
	Method, Path string
	Evidence     []string // the Execution-Context field lines, in order, unparsed
	Body         []byte   // the exact bytes; nil when longer than 64 KiB
}

// journal is the bounded memory of a server.
type journal struct {
	mu       sync.Mutex
	received []Received
}

// middleware notes every request before next sees it.
func (j *journal) middleware(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
		if err != nil {
			http.Error(w, "body cannot be read", http.StatusRequestEntityTooLarge)
			return
		}
		j.note(r, body)
		r.Body = io.NopCloser(bytes.NewReader(body))
		next.ServeHTTP(w, r)
	})
}

func (j *journal) note(r *http.Request, body []byte) {
	entry := Received{
		Method:   r.Method,
		Path:     r.URL.Path,
		Evidence: slices.Clone(r.Header.Values("Execution-Context")),
	}
	if len(body) <= maxKeptBody {
		entry.Body = body
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	if len(j.received) == maxKept {
		j.received = slices.Delete(j.received, 0, 1)
	}
	j.received = append(j.received, entry)
}

// snapshot returns what is remembered, oldest first.
func (j *journal) snapshot() []Received {
	j.mu.Lock()
	defer j.mu.Unlock()
	return slices.Clone(j.received)
}
