package session

import (
	"cmp"
	"context"
	"log/slog"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/aepb/aepb-gateway/gateway/transport/slim/credential"
	"github.com/aepb/aepb-gateway/gateway/transport/slim/internal/dataplane"
	"github.com/aepb/aepb-gateway/gateway/transport/slim/internal/frame"
	"github.com/aepb/aepb-gateway/gateway/transport/slim/link"
	"github.com/aepb/aepb-gateway/gateway/transport/slim/name"
)

// Bounds of an application.
const (
	maxSessions   = 4096
	maxGuest      = 256             // of them for one subject
	maxEnded      = 1024            // that are over, and linger
	maxWaiting    = 256             // sessions that are not accepted yet
	tokenLimit    = 5 * time.Second // to mint or judge a token
	maxSessionID  = 1<<32 - 1001
	subscribeWait = 10 * time.Second
)

// Node is the connection to a node; *link.Link is one.
type Node interface {
	Send(m *dataplane.Message) error
	Subscribe(ctx context.Context, n name.Name, to link.Subscriber) error
	Unsubscribe(ctx context.Context, n name.Name)
	Up(ctx context.Context) error
}

var (
	_ Node            = (*link.Link)(nil)
	_ link.Subscriber = (*App)(nil)
)

// Deps is what an App needs.
type Deps struct {
	Node     Node
	Name     name.Name           // without an id: each App is an instance of its own
	Provider credential.Provider // of our tokens
	Verifier credential.Verifier // of the others' tokens
	Timing   Timing
	Logger   *slog.Logger // nil: nothing is logged
}

// App is one application on a node, with its sessions. Safe for concurrent
// use. It works while Run does.
type App struct {
	deps Deps
	self name.Name

	ctx    context.Context //nolint:containedctx // the life of all sessions, ended by Run
	cancel context.CancelFunc
	lives  sync.WaitGroup

	mu       sync.Mutex
	sessions map[uint32][]*Session
	guests   map[string]int // sessions that a subject asked for, and that are not over
	count    int            // of those that are not over
	ended    int
	up       bool
	over     bool
	arrivals chan *Session
}

// NewApp makes an application with an instance id of its own. It fails for
// incomplete Deps, or when the system has no randomness to give.
func NewApp(deps Deps) (*App, error) {
	if deps.Node == nil || deps.Provider == nil || deps.Verifier == nil || deps.Name.Service == "" {
		return nil, errDeps
	}
	deps.Logger = cmp.Or(deps.Logger, slog.New(slog.DiscardHandler))
	id, err := name.NewID()
	if err != nil {
		return nil, err
	}
	deps.Timing = deps.Timing.withDefaults()
	a := &App{
		deps: deps, self: deps.Name.With(id), up: true,
		sessions: map[uint32][]*Session{}, guests: map[string]int{}, arrivals: make(chan *Session, maxWaiting),
	}
	a.ctx, a.cancel = context.WithCancel(context.Background())
	return a, nil
}

// Name is the instance's full name.
func (a *App) Name() name.Name { return a.self }

// Run makes the application known and keeps its sessions alive until the
// context ends; then it says goodbye to all of them. It returns the context's
// cause, or the node's refusal of the name.
func (a *App) Run(ctx context.Context) error {
	if err := a.deps.Node.Subscribe(ctx, a.self, a); err != nil {
		a.stop()
		return err
	}
	<-ctx.Done()
	a.stop()
	a.deps.Node.Unsubscribe(context.WithoutCancel(ctx), a.self)
	return context.Cause(ctx)
}

// stop ends all sessions, with a goodbye, and waits for what runs.
func (a *App) stop() {
	a.mu.Lock()
	a.over = true
	a.mu.Unlock()
	for _, s := range a.all() {
		s.Close()
	}
	a.cancel()
	a.lives.Wait()
}

func (a *App) all() []*Session {
	a.mu.Lock()
	defer a.mu.Unlock()
	all := make([]*Session, 0, a.count+a.ended)
	for list := range maps.Values(a.sessions) {
		all = append(all, list...)
	}
	return all
}

// Open begins a session with the application that answers to a name, and waits until it
// has begun. Errors: *BrokenError (no answer, or a refusal), ErrClosed, the
// context's.
func (a *App) Open(ctx context.Context, to name.Name, metadata map[string]string) (*Session, error) {
	now := time.Now()
	m := newMachine(a.self, to, rand.Uint32N(maxSessionID), a.deps.Timing, now) //nolint:gosec // not a secret: tokens are what counts
	m.metadata = maps.Clone(metadata)
	s := newSession(a, m)
	if err := a.add(s); err != nil {
		return nil, err
	}
	s.do(func(now time.Time) { m.initiate(now) })
	if err := s.opened(ctx); err != nil {
		s.Close()
		return nil, err
	}
	return s, nil
}

// Accept returns the next session that a peer has begun. Errors: ErrClosed,
// the context's.
func (a *App) Accept(ctx context.Context) (*Session, error) {
	select {
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-a.ctx.Done():
		return nil, ErrClosed
	case s := <-a.arrivals:
		return s, nil
	}
}

// add gives a session a life of its own.
func (a *App) add(s *Session) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	switch {
	case a.over:
		return ErrClosed
	case a.count >= maxSessions, s.guest != "" && a.guests[s.guest] >= maxGuest:
		return errFull
	}
	if s.guest != "" {
		a.guests[s.guest]++
	}
	s.m.up = a.up
	a.sessions[s.m.id] = append(a.sessions[s.m.id], s)
	a.count++
	a.lives.Go(func() {
		s.live(a.ctx)
		a.remove(s)
	})
	return nil
}

// spawn runs something that stop waits for.
func (a *App) spawn(work func()) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if !a.over {
		a.lives.Go(work)
	}
}

// rest takes a session that is over out of its peer's share, so that the peer can begin
// another. False: too many linger, and this one is forgotten at once. A late goodbye
// of its peer is answered all the same.
func (a *App) rest(s *Session) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if s.resting {
		return true
	}
	s.resting = true
	a.count--
	a.ended++
	if a.guests[s.guest]--; a.guests[s.guest] <= 0 {
		delete(a.guests, s.guest)
	}
	return a.ended <= maxEnded
}

// remove forgets a session that is over.
func (a *App) remove(s *Session) {
	a.rest(s)
	a.mu.Lock()
	a.ended--
	list := slices.DeleteFunc(a.sessions[s.m.id], func(other *Session) bool { return other == s })
	if a.sessions[s.m.id] = list; len(list) == 0 {
		delete(a.sessions, s.m.id)
	}
	a.mu.Unlock()
}

// Token mints a token for a subscription.
func (a *App) Token(ctx context.Context) (string, error) { return a.deps.Provider.Token(ctx) }

// Connected tells the sessions that the connection is there, or not.
func (a *App) Connected(up bool) {
	a.mu.Lock()
	changed := a.up != up
	a.up = up
	a.mu.Unlock()
	if !changed {
		return
	}
	for _, s := range a.all() {
		s.connected(up)
	}
}

// emit gives a message its token, and its signature if it needs one, and sends
// it. Goodbyes are sent when every context has ended, so it has one of its own.
//
//nolint:contextcheck,nolintlint // see above
func (a *App) emit(m *dataplane.Message) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(a.ctx), tokenLimit)
	defer cancel()
	sealed := frame.Copy(m)
	err := frame.Seal(ctx, sealed, a.deps.Provider)
	if err == nil {
		err = a.deps.Node.Send(sealed)
	}
	if err != nil {
		a.deps.Logger.DebugContext(ctx, "message on a SLIM node queued", slog.Any("error", err))
	}
}

// Receive takes in a message from the node.
func (a *App) Receive(wire *dataplane.Message) {
	f, err := frame.Read(wire)
	if err == nil {
		var identity credential.Identity
		ctx, cancel := context.WithTimeout(a.ctx, tokenLimit)
		identity, err = f.Open(ctx, a.deps.Verifier)
		cancel()
		if err == nil {
			a.dispatch(f, identity.Subject)
			return
		}
	}
	a.deps.Logger.DebugContext(a.ctx, "message on a SLIM node dropped", slog.Any("error", err))
}

// dispatch finds the session of a message.
func (a *App) dispatch(f frame.Frame, subject string) {
	a.mu.Lock()
	candidates := slices.Clone(a.sessions[f.Session])
	a.mu.Unlock()
	for _, s := range slices.Backward(candidates) { // one that is over comes after what followed it
		if s.claims(f) {
			s.receive(f, subject)
			return
		}
	}
	switch {
	case f.Failed:
	case f.Kind == frame.DiscoveryRequest:
		a.emit(frame.Control(frame.Route{From: a.self, To: f.From, Session: f.Session, Message: f.Message, Group: f.Group}, frame.Found(), nil))
	case f.Kind == frame.JoinRequest && f.To == a.self.Key():
		a.invited(f, subject)
	case f.Kind == frame.LeaveRequest || f.Kind == frame.GroupClose: // of a session that is forgotten
		a.emit(frame.Control(frame.Route{From: a.self, To: f.From, Session: f.Session, Message: f.Message, Group: f.Group}, goodbye(f), nil))
	}
}

// invited begins a session that a peer asks for, or refuses it.
func (a *App) invited(f frame.Frame, subject string) {
	if f.Command.GetJoinRequest().GetMlsSettings() != nil {
		a.deps.Logger.InfoContext(a.ctx, "session on a SLIM node refused", slog.String("from", f.From.String()), slog.String("reason", noMLS))
		a.refuse(f)
		return
	}
	m, err := invited(a.self, f, subject, a.deps.Timing, time.Now())
	if err != nil {
		a.refuse(f)
		return
	}
	s := newSession(a, m)
	s.guest = subject
	if err := a.add(s); err != nil {
		a.refuse(f)
		return
	}
	if !m.group {
		s.do(func(time.Time) { m.discoveryRequest(f) })
		a.offer(s)
		return
	}
	a.spawn(func() { a.enter(s, f) })
}

// enter makes a group's messages come here before the invitation is accepted.
func (a *App) enter(s *Session, f frame.Frame) {
	ctx, cancel := context.WithTimeout(a.ctx, subscribeWait)
	defer cancel()
	for _, n := range s.names() {
		if err := a.deps.Node.Subscribe(ctx, n, a); err != nil {
			a.deps.Logger.WarnContext(ctx, "agent cannot join the SLIM group", slog.Any("error", err))
			s.Close()
			a.refuse(f)
			return
		}
	}
	s.do(func(time.Time) { s.m.discoveryRequest(f) })
	a.offer(s)
}

// offer has the session accepted once it has begun.
func (a *App) offer(s *Session) {
	a.spawn(func() {
		if err := s.opened(a.ctx); err != nil {
			return
		}
		select {
		case a.arrivals <- s:
		case <-a.ctx.Done():
		}
	})
}

func (a *App) refuse(f frame.Frame) {
	for _, message := range refusal(a.self, f) {
		a.emit(message)
	}
}
