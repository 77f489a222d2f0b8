package rpc

import (
	"context"
	"io"
	"sync"
)

// Bounds of a queue: frames, and the bytes of their bodies.
const (
	bufferCount = 1024
	bufferBytes = 32 << 20
)

// Queue is what came for one call and was not read yet: at most 1024 frames and 32 MiB,
// or one larger frame. It has one reader.
type Queue struct {
	mu      sync.Mutex
	frames  []Frame
	bytes   int
	err     error // after the frames
	changed chan struct{}
}

// NewQueue makes an empty queue.
func NewQueue() *Queue { return &Queue{changed: make(chan struct{})} }

// Put adds a frame; the last one ends the queue with io.EOF. A queue that is full ends
// with ErrSlow, and one that has ended stays as it is.
func (q *Queue) Put(f Frame, last bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	switch {
	case q.err != nil:
		return
	case len(q.frames) >= bufferCount || q.bytes > 0 && q.bytes+len(f.Body) > bufferBytes:
		q.err = ErrSlow
	default:
		q.frames = append(q.frames, f)
		q.bytes += len(f.Body)
		if last {
			q.err = io.EOF
		}
	}
	q.signal()
}

// End gives the reader this error after the frames; it reports whether the queue had not
// ended before, in which case it keeps its error.
func (q *Queue) End(err error) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.err != nil {
		return false
	}
	q.err = err
	q.signal()
	return true
}

// signal wakes the reader; the lock is held.
func (q *Queue) signal() {
	close(q.changed)
	q.changed = make(chan struct{})
}

// Next waits for the next frame. Errors: that which ended the queue, the context's.
func (q *Queue) Next(ctx context.Context) (Frame, error) {
	for {
		f, changed, err := q.tryNext()
		if changed == nil {
			return f, err
		}
		select {
		case <-ctx.Done():
			return Frame{}, ctx.Err()
		case <-changed:
		}
	}
}

func (q *Queue) tryNext() (Frame, <-chan struct{}, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.frames) > 0 {
		f := q.frames[0]
		q.frames[0] = Frame{}
		q.frames = q.frames[1:]
		q.bytes -= len(f.Body)
		return f, nil, nil
	}
	if q.err != nil {
		return Frame{}, nil, q.err
	}
	return Frame{}, q.changed, nil
}
