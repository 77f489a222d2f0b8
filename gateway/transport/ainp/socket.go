package ainp

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/coder/websocket"
	"github.com/google/uuid"

	"github.com/aepb/aepb-gateway/ect/identity"
	"github.com/aepb/aepb-gateway/gateway/problem"
	"github.com/aepb/aepb-gateway/gateway/transport"
	"github.com/aepb/aepb-gateway/gateway/worker"
	"github.com/aepb/aepb-gateway/policy/quota"
	"github.com/aepb/aepb-gateway/translators"
	"github.com/aepb/aepb-gateway/translators/ainp"
	"github.com/aepb/aepb-gateway/translators/canonical"
)

// SocketConfig bounds connections that stay open. A zero field takes its default.
type SocketConfig struct {
	Idle        time.Duration // without a message, and with nothing under way; 5 min
	Ping        time.Duration // between two looks whether the caller is there; 30 s
	Write       time.Duration // for one message or pong; 10 s
	Connections int           // at once, of callers with an identity; 1024. More are refused
	InFlight    int           // messages at once on one; 16. More are refused

	PerCaller    int           // connections of one caller; half of all
	Unidentified int           // besides, whose caller has proved no identity yet; 1024
	PerAddress   int           // of these, from one address; a quarter of them
	First        time.Duration // for a message that proves one; 30 s
}

func (c SocketConfig) withDefaults() SocketConfig {
	quota.OrDefault(&c.Idle, 5*time.Minute)
	quota.OrDefault(&c.Ping, 30*time.Second)
	quota.OrDefault(&c.Write, 10*time.Second)
	quota.OrDefault(&c.First, 30*time.Second)
	quota.ConnectionDefaults(&c.Connections, &c.InFlight, &c.PerCaller, &c.Unidentified, &c.PerAddress)
	return c
}

// idleWorkers is how many goroutines of a connection wait for its next messages.
const idleWorkers = 4

// socket is a connection that stays open. One goroutine reads it; each message
// has a goroutine of its own, and each of them writes its own replies.
type socket struct {
	d       *Server
	handler transport.Handler
	conn    *websocket.Conn
	agent   string
	did     string // in whose name it was opened; empty: any
	session string
	place   *place

	mu      sync.Mutex
	running map[string]context.CancelCauseFunc // by the id of the intent
	busy    int
	leaving bool // it ends as soon as nothing is under way
	active  bool // a message came since the last check for idleness
	group   *worker.Pool
}

// serveSocket opens a connection for a caller that has an identity, or may prove
// one by its DID. A caller that may not speak is told so in answer to its messages; a
// browser's page of another origin is refused at once.
func (d *Server) serveSocket(w http.ResponseWriter, r *http.Request, handler transport.Handler) {
	v := &serverCall{d: d, handler: handler, agent: r.PathValue("agent"), back: post{w}, profile: ainp.SigDraft}
	if !d.sockets.enter() {
		v.fail(&problem.DrainingError{}, nil)
		return
	}
	defer d.sockets.leave()
	yields, giveWay := context.WithCancel(context.Background())
	defer giveWay()
	place, err := d.admitSocket(r.Context(), giveWay)
	if err != nil {
		v.fail(err, nil)
		return
	}
	defer place.leave()
	if err := v.limit(r.Context()); err != nil {
		v.fail(err, nil)
		return
	}
	conn, err := websocket.Accept(w, r, &websocket.AcceptOptions{CompressionMode: websocket.CompressionDisabled})
	if err != nil {
		return // Accept has said why
	}
	defer func() { _ = conn.CloseNow() }()
	s := &socket{
		d: d, handler: handler, conn: conn, agent: v.agent, did: r.URL.Query().Get("did"), place: place,
		session: "ainp " + uuid.NewString(), running: map[string]context.CancelCauseFunc{}, group: worker.NewPool(idleWorkers),
	}
	s.bound()
	defer context.AfterFunc(yields, func() { //nolint:contextcheck // a signal
		_ = conn.Close(websocket.StatusTryAgainLater, "another connection takes the place of this one")
	})()
	ctx, cancel := context.WithCancel(r.Context())
	defer s.group.Wait()
	defer cancel()
	session := identity.SessionFrom(ctx)
	defer session.Close() // the connection is not the HTTP server's any more
	defer session.AfterEnd(func() {
		_ = conn.Close(websocket.StatusPolicyViolation, "the certificate of this connection has expired or is not trusted any more")
		cancel()
	})()
	defer context.AfterFunc(d.open, s.goAway)() //nolint:contextcheck // a signal
	s.group.Go(func() { s.watch(ctx) })
	s.listen(ctx)
}

// listen reads messages until the connection ends.
func (s *socket) listen(ctx context.Context) {
	reading := ctx                    // ends with the closing handshake
	ctx, leave := identity.Bound(ctx) // ends at once with the certificate or the token, and so does the work
	defer leave()
	defer context.AfterFunc(ctx, func() {
		if errors.Is(context.Cause(ctx), identity.ErrSessionEnded) {
			_ = s.conn.Close(websocket.StatusPolicyViolation, "the credential of this connection has expired or is not trusted any more")
		}
	})()
	slots := make(chan struct{}, s.d.deps.Socket.InFlight)
	for {
		kind, body, err := s.conn.Read(reading)
		if err != nil {
			return
		}
		if identity.SessionFrom(ctx).Ended() || errors.Is(context.Cause(ctx), identity.ErrSessionEnded) {
			return
		}
		if kind != websocket.MessageText {
			_ = s.conn.Close(websocket.StatusUnsupportedData, "an envelope is a text")
			return
		}
		v := &serverCall{
			d: s.d, handler: s.handler, agent: s.agent, back: s, socket: s, profile: ainp.SigDraft,
			refused: func(err error) { s.d.deps.Refused(ctx, s.agent, err) },
		}
		if err := v.limit(ctx); err != nil {
			v.fail(err, nil)
			continue
		}
		select {
		case slots <- struct{}{}:
		default:
			v.fail(&canonical.Error{Code: canonical.CodeRateLimited, Message: "too many messages at once on this connection"}, nil)
			continue
		}
		s.enter(1)
		rest := s.place.use()
		done := func() { rest(); s.enter(-1); <-slots }
		if !s.place.identified() {
			if !s.introduce(ctx, v, body, done) {
				return
			}
			continue
		}
		s.group.Go(func() {
			defer done()
			v.serve(ctx, body)
		})
	}
}

func (s *socket) enter(n int) {
	s.mu.Lock()
	s.busy += n
	s.active = true
	over := s.leaving && s.busy == 0
	s.mu.Unlock()
	if over {
		s.goAway()
	}
}

// goAway ends the connection because the gateway stops: at once, or when what is under
// way has been answered.
func (s *socket) goAway() {
	s.mu.Lock()
	s.leaving = true
	busy := s.busy > 0
	s.mu.Unlock()
	if !busy {
		_ = s.conn.Close(websocket.StatusGoingAway, "the gateway stops")
	}
}

// sockets counts the connections that stay open, until none is and no more are taken.
type sockets struct {
	mu     sync.Mutex
	count  int
	closed bool
	idle   chan struct{} // closed then
}

// enter counts one until leave is called; false: no more are taken.
func (s *sockets) enter() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.closed {
		s.count++
	}
	return !s.closed
}

func (s *sockets) leave() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.count--; s.closed && s.count == 0 {
		close(s.idle)
	}
}

// close takes no more. It is idempotent.
func (s *sockets) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.closed && s.count == 0 {
		close(s.idle)
	}
	s.closed = true
}

// watch looks whether the caller is there, and ends a connection on which
// nothing happens.
func (s *socket) watch(ctx context.Context) {
	limits := s.d.deps.Socket
	ticker, first := time.NewTicker(limits.Ping), time.NewTimer(limits.First)
	defer ticker.Stop()
	defer first.Stop()
	for quiet := time.Duration(0); ; {
		select {
		case <-ctx.Done():
			return
		case <-first.C:
			if !s.place.identified() {
				_ = s.conn.Close(websocket.StatusPolicyViolation, "no message proved who is calling")
				return
			}
			continue
		case <-ticker.C:
		}
		s.mu.Lock()
		if quiet += limits.Ping; s.busy > 0 || s.active {
			quiet = 0
		}
		s.active = false
		s.mu.Unlock()
		if quiet > limits.Idle {
			_ = s.conn.Close(websocket.StatusNormalClosure, "nothing was said for too long")
			return
		}
		within, cancel := context.WithTimeout(ctx, limits.Write)
		err := s.conn.Ping(within)
		cancel()
		if err != nil {
			_ = s.conn.CloseNow()
			return
		}
	}
}

// advise does nothing: a WebSocket has no header beside a message.
func (s *socket) advise(problem.Problem) {}

// put writes one message. One that cannot be written ends the connection.
func (s *socket) put(body []byte, _ []string, status int) {
	if len(body) == 0 && status < http.StatusInternalServerError {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), s.d.deps.Socket.Write)
	defer cancel()
	if len(body) == 0 || s.conn.Write(ctx, websocket.MessageText, body) != nil {
		_ = s.conn.CloseNow()
	}
}

// errStopped is the cause of a cancellation by the caller.
var errStopped = errors.New("ainp: the caller stopped its intent")

// begin remembers an intent that can be stopped, until done.
func (s *socket) begin(ctx context.Context, id string) (_ context.Context, done func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.running[id] = cancel
	return ctx, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.running, id)
		cancel(nil)
	}
}

// stop ends what an intent began; false: nothing of that name is under way.
func (s *socket) stop(request json.RawMessage) bool {
	var id string
	if json.Unmarshal(request, &id) != nil {
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	cancel, ok := s.running[id]
	if ok {
		cancel(errStopped)
	}
	return ok
}

// broken tells the caller why there is no answer: as an error, or, if the caller
// cancelled the intent, as a canceled task.
func (v *serverCall) broken(ctx context.Context, err error, evidence []string) {
	if !errors.Is(context.Cause(ctx), errStopped) {
		v.fail(err, evidence)
		return
	}
	ended := &canonical.Task{Status: canonical.Status{State: canonical.StateCanceled}}
	v.say(&canonical.Message{Op: canonical.OpInvoke, Phase: canonical.PhaseResponse, Body: &canonical.Result{Task: ended}}, evidence, http.StatusOK)
}

// stream tells a stream, one message after the other. The last one is held back
// until the evidence that closes the stream is there, since it travels in it.
func (v *serverCall) stream(ctx context.Context, answer transport.Answer) {
	defer func() { _ = answer.Events().Close() }()
	evidence := answer.Evidence
	var last translators.Wire
	for {
		event, err := answer.Events().Next(ctx)
		evidence = append(slices.Clip(evidence), event.Evidence...)
		switch {
		case errors.Is(err, io.EOF):
			if len(last.Body) > 0 {
				v.write(last, evidence, http.StatusOK)
			}
			return
		case err != nil:
			v.broken(ctx, err, evidence)
			return
		case len(event.Wire.Body) == 0:
			continue
		}
		if len(last.Body) > 0 {
			v.write(last, nil, http.StatusOK)
			last = translators.Wire{}
		}
		if ainp.Final(event.Wire.Body) {
			last = event.Wire
			continue
		}
		v.write(event.Wire, evidence, http.StatusOK)
		evidence = nil
	}
}
