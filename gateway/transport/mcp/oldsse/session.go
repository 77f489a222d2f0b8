package oldsse

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"runtime/debug"
	"sync"
	"time"

	"github.com/aepb/aepb-gateway/gateway/transport/sse"
	"github.com/aepb/aepb-gateway/gateway/worker"
)

// Waits before the agent is listened to again.
const (
	firstWait = time.Second
	lastWait  = 30 * time.Second
)

// session is one client's.
type session struct {
	server        *Server
	id            string // in the URL of its messages
	owner, holder string
	get           *http.Request
	out           *sse.Writer
	opened        chan struct{}   // closed once out takes messages
	ctx           context.Context //nolint:containedctx // of the stream
	end           context.CancelFunc

	mu        sync.Mutex
	inner     string // its id in the pipeline; empty: it has none yet
	greeted   bool   // it was initialized, or is being
	listening bool
	over      bool // nothing more is begun
	requests  sync.WaitGroup
	listener  sync.WaitGroup
}

// run says where to post, and stays until the session ends.
func (one *session) run(endpoint string) {
	defer one.listener.Wait()
	defer one.requests.Wait()
	defer one.end()
	defer one.close()
	one.out.Name("endpoint")
	err := one.out.Send([]byte(endpoint))
	one.out.Name("message")
	close(one.opened)
	if err != nil {
		return
	}
	select {
	case <-one.ctx.Done():
	case <-one.server.deps.Closing.Done():
		one.close()
		one.listener.Go(func() {
			one.requests.Wait()
			one.end()
		})
		<-one.ctx.Done()
	}
}

func (one *session) close() {
	one.mu.Lock()
	defer one.mu.Unlock()
	one.over = true
}

// begin does work of the session; false: it is over.
func (one *session) begin(work func()) bool {
	one.mu.Lock()
	defer one.mu.Unlock()
	if one.over || one.ctx.Err() != nil {
		return false
	}
	one.requests.Go(work)
	return true
}

// name is the id of the session in the pipeline.
func (one *session) name() string {
	one.mu.Lock()
	defer one.mu.Unlock()
	return one.inner
}

func (one *session) named(id string) {
	one.mu.Lock()
	defer one.mu.Unlock()
	one.inner = id
}

// first reports whether this is the first time that the session is initialized.
func (one *session) first() bool {
	one.mu.Lock()
	defer one.mu.Unlock()
	first := !one.greeted
	one.greeted = true
	return first
}

// refused undoes a refused initialize, so that the client can send it again.
func (one *session) refused() {
	one.mu.Lock()
	defer one.mu.Unlock()
	one.greeted = false
}

// send writes one message on the stream; if that fails, the session ends.
func (one *session) send(message []byte) error {
	err := one.out.Send(message)
	if err != nil {
		one.end()
	}
	return err
}

// answer answers a request. ctx is that of its POST, which has ended.
func (one *session) answer(ctx context.Context, message *Message) {
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	defer context.AfterFunc(one.ctx, cancel)() //nolint:contextcheck // the stream's end is that of all its requests
	out := &sink{session: one, header: http.Header{}, whole: true}
	defer func() {
		r := recover()
		if err, ok := r.(error); r == nil || ok && errors.Is(err, http.ErrAbortHandler) {
			out.finish()
			if r != nil && !out.replied {
				one.end() // the one way to say that it broke off
			}
			return
		}
		one.server.deps.Logger.ErrorContext(ctx, "panic in a handler", slog.Any("panic", r), slog.String("stack", string(debug.Stack())))
		one.end()
	}()
	message.Answer(ctx, out)
	if message.Initialize && one.name() == "" {
		one.refused()
	}
}

// listens begins to hand on what the agent says without being asked.
func (one *session) listens() {
	one.mu.Lock()
	defer one.mu.Unlock()
	if one.inner == "" || one.listening || one.over {
		return
	}
	one.listening = true
	one.listener.Go(one.listen)
}

// listen asks for one stream after the other, since each ends some time.
func (one *session) listen() {
	for wait := firstWait; ; wait = min(2*wait, lastWait) {
		began := time.Now()
		out := &sink{session: one, header: http.Header{}}
		one.server.deps.Pipeline.Listen(out, plain(one.get.WithContext(one.ctx), one.name()))
		switch {
		case one.ctx.Err() != nil:
			return
		case out.code == http.StatusNotFound: // the session is gone
			one.end()
			return
		case out.code >= http.StatusBadRequest && out.code < http.StatusInternalServerError && out.code != http.StatusTooManyRequests:
			return // there is nothing to hear
		case time.Since(began) > lastWait:
			wait = firstWait
		}
		if !worker.Pause(one.ctx, wait) {
			return
		}
	}
}
