package slim

import (
	"context"
	"log/slog"

	"github.com/aepb/aepb-gateway/gateway/transport/slim/plain"
	"github.com/aepb/aepb-gateway/gateway/transport/slim/rpc"
	"github.com/aepb/aepb-gateway/gateway/transport/slim/session"
	"github.com/aepb/aepb-gateway/gateway/worker"
	"github.com/aepb/aepb-gateway/policy/limit"
	"github.com/aepb/aepb-gateway/policy/quota"
)

// groups holds the groups that one agent is in. The agent answers a request of a member to
// that member alone.
type groups struct {
	handler  rpc.Handler
	welcome  func(subject string) bool // whether a subject may invite the agent
	places   *quota.Pool               // groups at once, by moderator
	logger   *slog.Logger
	identity string // the agent, for logs
}

var _ Groups = (*groups)(nil)

// Join serves one group until it ends. It refuses one too many, or if its moderator may not call.
func (g *groups) Join(ctx context.Context, s *session.Session, pool *worker.Pool, calls *quota.Pool) {
	defer s.Close()
	if !g.welcome(s.Subject()) {
		g.logger.InfoContext(ctx, "agent leaves the SLIM group: its moderator may not call", g.about(s)...)
		return
	}
	place, err := g.places.Take(limit.Identity(s.Subject()), 1)
	if err != nil {
		g.logger.WarnContext(ctx, "agent leaves the SLIM group: the node has too many", g.about(s)...)
		return
	}
	defer place.Release()
	g.logger.InfoContext(ctx, "agent joined the SLIM group", g.about(s)...)
	err = g.serve(ctx, s, pool, calls)
	g.logger.InfoContext(ctx, "agent left the SLIM group", append(g.about(s), slog.Any("error", err))...)
}

func (g *groups) about(s *session.Session) []any {
	return []any{slog.String("agent", g.identity), slog.String("moderator", s.Peer().String()), slog.Int("members", len(s.Roster()))}
}

// serve answers requests until the group is over, for us or for all. A member
// who asks in SLIMRPC is answered in it.
func (g *groups) serve(ctx context.Context, s *session.Session, pool *worker.Pool, shares *quota.Pool) error {
	ctx, cancel := context.WithCancel(ctx)
	calls, messages := rpc.NewServer(s, g.handler, pool, shares, g.logger), plain.NewServer(s, g.handler, pool, shares, g.logger)
	defer messages.Wait()
	defer calls.Wait()
	defer cancel()
	for {
		m, err := s.Receive(ctx)
		switch {
		case err != nil:
			return err
		case rpc.Calls(m):
			calls.Receive(ctx, m)
		default:
			messages.Request(ctx, m)
		}
	}
}
