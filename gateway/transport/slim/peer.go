package slim

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/aepb/aepb-gateway/gateway/transport/slim/credential"
	"github.com/aepb/aepb-gateway/gateway/transport/slim/name"
	"github.com/aepb/aepb-gateway/gateway/transport/slim/plain"
	"github.com/aepb/aepb-gateway/gateway/transport/slim/rpc"
	"github.com/aepb/aepb-gateway/gateway/transport/slim/session"
	"github.com/aepb/aepb-gateway/gateway/worker"
	"github.com/aepb/aepb-gateway/policy/quota"
)

// silentLimit is how long a peer may have a session with the gateway without sending
// a first message.
const silentLimit = 10 * time.Minute

// idleWorkers is how many goroutines of a peer wait for the next calls.
const idleWorkers = 16

// Calls that a peer answers at once: of all callers, and of one, in whatever
// sessions and groups it has.
const (
	callsOfAll = 4096
	callsOfOne = 256
)

// Groups takes part in the sessions with many members that others invite us to.
type Groups interface {
	// Join lives through one session and closes it. What members ask is the pool's
	// work, as much at once as calls has for each of them.
	Join(ctx context.Context, s *session.Session, pool *worker.Pool, calls *quota.Pool)
}

// PeerDeps is what a Peer needs.
type PeerDeps struct {
	Node     session.Node // the connection, shared by all peers on a node; its Run is its owner's
	Name     name.Name    // org/namespace/service, without an id
	Provider credential.Provider
	Verifier credential.Verifier
	Handler  rpc.Handler // nil: calls are refused
	Groups   Groups      // nil: groups are left at once
	Timing   session.Timing
	Logger   *slog.Logger // nil: nothing is logged
}

// Peer is one application of ours on a node. Safe for concurrent use. It works
// while Run does.
type Peer struct {
	deps   PeerDeps
	app    *session.App
	client *rpc.Client
	pool   *worker.Pool
	calls  *quota.Pool // that are answered at once, by caller
}

// NewPeer checks its dependencies.
func NewPeer(deps PeerDeps) (*Peer, error) {
	deps.Logger = cmp.Or(deps.Logger, slog.New(slog.DiscardHandler))
	app, err := session.NewApp(session.Deps{
		Node: deps.Node, Name: deps.Name, Provider: deps.Provider, Verifier: deps.Verifier, Timing: deps.Timing, Logger: deps.Logger,
	})
	if err != nil {
		return nil, err
	}
	client, err := rpc.NewClient(app)
	if err != nil {
		return nil, err
	}
	calls, err := quota.New(quota.Config{Resource: "SLIM calls", Total: callsOfAll, PerHolder: callsOfOne})
	if err != nil {
		return nil, err
	}
	return &Peer{deps, app, client, worker.NewPool(idleWorkers), calls}, nil
}

// Name is the full name, with the id of this instance.
func (p *Peer) Name() name.Name { return p.app.Name() }

// Run makes the peer known and serves until the context ends; then all
// sessions are told goodbye. It returns the context's cause, or why the node
// will not have the name.
func (p *Peer) Run(ctx context.Context) error {
	defer p.client.Close()
	defer p.pool.Wait()
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return p.app.Run(ctx) })
	group.Go(func() error { return p.accept(ctx) })
	return group.Wait()
}

// accept serves each session that others begin.
func (p *Peer) accept(ctx context.Context) error {
	var sessions sync.WaitGroup
	defer sessions.Wait()
	for {
		s, err := p.app.Accept(ctx)
		if err != nil {
			return context.Cause(ctx)
		}
		sessions.Go(func() {
			defer s.Close()
			if err := p.serve(ctx, s); err != nil {
				p.deps.Logger.DebugContext(ctx, "session on the SLIM node ended", slog.String("with", s.Peer().String()), slog.Any("error", err))
			}
		})
	}
}

// errUnwanted: a session that no handler takes.
var errUnwanted = errors.New("slim: session refused: no handler for calls or for groups is configured")

// serve finds out by the first message whether a session carries SLIMRPC or JSON-RPC.
func (p *Peer) serve(ctx context.Context, s *session.Session) error {
	if s.Group() && p.deps.Groups != nil {
		p.deps.Groups.Join(ctx, s, p.pool, p.calls)
		return nil
	}
	if s.Group() || p.deps.Handler == nil {
		return errUnwanted
	}
	first, err := p.first(ctx, s)
	if err != nil {
		return err
	}
	if rpc.Calls(first) {
		return rpc.ServeSession(ctx, s, first, p.deps.Handler, p.pool, p.calls, p.deps.Logger)
	}
	return plain.ServeSession(ctx, s, first, p.deps.Handler, p.pool, p.calls, p.deps.Logger)
}

func (p *Peer) first(ctx context.Context, s *session.Session) (session.Message, error) {
	ctx, cancel := context.WithTimeout(ctx, silentLimit)
	defer cancel()
	return s.Receive(ctx)
}

// Call makes a SLIMRPC call. See rpc.Client.Call.
func (p *Peer) Call(ctx context.Context, to name.Name, r rpc.Request) (*rpc.Stream, error) {
	return p.client.Call(ctx, to, r)
}

// Converse begins a JSON-RPC conversation. See plain.Open.
func (p *Peer) Converse(ctx context.Context, to name.Name) (*plain.Conversation, error) {
	return plain.Open(ctx, p.app, to)
}
