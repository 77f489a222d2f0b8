package server

import (
	"context"
	"encoding/json"
	"log/slog"
	"net/http"
	"net/url"
	"sync"
	"sync/atomic"
	"time"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/gateway/attest"
	"github.com/aepb/aepb-gateway/gateway/breakers"
	"github.com/aepb/aepb-gateway/gateway/breakers/peers"
	"github.com/aepb/aepb-gateway/gateway/config"
	agentlife "github.com/aepb/aepb-gateway/gateway/lifecycle"
	"github.com/aepb/aepb-gateway/gateway/transport/callback"
	"github.com/aepb/aepb-gateway/gateway/transport/egress"
)

// newBreakers makes the circuit breakers of all that is sent. Nothing is sent before the
// gateway that signs for them is built.
func (out *Server) newBreakers() (*breakers.Set, error) {
	now := out.config.Hooks.Clock
	if now == nil {
		now = time.Now
	}
	return breakers.New(breakers.Deps{
		Entries: out.state.entries, Metrics: out.metrics.Agents(), Replica: string(ect.NewID()), Now: now, Logger: out.config.Logger,
		Escalate: out.escalations.add,
		Sign: func(ctx context.Context, after string, act ect.Act, ext ect.Ext) (string, error) {
			return out.gateway.Parts().Evidence.State(ctx, attest.Statement{Act: act, Ext: ext, Lineage: attest.After(after)})
		},
	})
}

// newLifecycle makes what knows how agents stand.
func (out *Server) newLifecycle() (*agentlife.Service, error) {
	return agentlife.New(agentlife.Deps{
		Entries: out.state.entries, Metrics: out.metrics.Agents(), Replica: string(ect.NewID()), Now: time.Now, Logger: out.config.Logger, Forgets: out.config.Development,
		Successor: func(ctx context.Context, agent, url string) error {
			return out.agents.directory.CheckSuccessor(ctx, agent, url)
		},
		Evidence: func() agentlife.Evidence { return out.gateway.Parts().Evidence },
		Identity: func(agent string) ect.Identity {
			if agent == "" {
				return out.gateway.Self()
			}
			listed, _ := out.agents.directory.Find(agent)
			return listed.ID
		},
	})
}

// orderLives has the lifecycles follow the configuration.
func (out *Server) orderLives(ctx context.Context, c config.Config) {
	if err := out.gateway.Lifecycle.Configure(ctx, c.Lives()); err != nil {
		out.config.Logger.ErrorContext(ctx, "not all lifecycles follow the configuration yet", slog.Any("error", err))
	}
}

// follow keeps what is known of lifecycles and of the breakers of other gateways fresh until the
// service is closed, and ends the streams of those who watch breakers when it stops.
func (out *Server) follow() error {
	subscriber, err := peers.New(peers.Deps{ // reads how the circuit breakers of other gateways stand
		Client: out.agents.guards.Agents, Self: out.gateway.Self(), Peers: out.agents.directory.Peers, Opened: out.gateway.Breakers.PeerOpened, Logger: out.config.Logger,
		Listed: func(agent ect.Identity) bool {
			found, ok := out.agents.directory.Find(string(agent))
			return ok && agent != "" && found.Name != string(agent)
		},
	})
	if err != nil {
		return err
	}
	out.stopper.drain = append(out.stopper.drain, out.gateway.Breakers.EndWatches)
	ctx, cancel := context.WithCancel(context.Background())
	var group sync.WaitGroup
	group.Go(func() { out.gateway.Lifecycle.Run(ctx) })
	group.Go(func() { out.escalations.run(ctx) })
	group.Go(func() { subscriber.Run(ctx) })
	out.stopper.later(func() error {
		cancel()
		group.Wait()
		return nil
	})
	return nil
}

// maxEscalations bounds those that wait to be posted.
const maxEscalations = 64

// escalations posts to the operators that an agent does not recover by itself (ATD, HITL
// Escalation). Its guard is its own: the host that an operator names is open to nothing
// that callers name.
type escalations struct {
	guard  *egress.Guard
	logger *slog.Logger
	url    atomic.Pointer[string] // empty: nothing is posted
	queue  chan breakers.Event
}

func newEscalations(s Config) (*escalations, error) {
	guard, err := egress.New(egress.Deps{TLS: s.Identity.Source, Anonymous: true})
	e := &escalations{guard: guard, logger: s.Logger, queue: make(chan breakers.Event, maxEscalations)}
	if err == nil {
		e.use(s.Settings.Policy.EscalationURL)
	}
	return e, err
}

// use has them posted to a URL from now on; empty: to none.
func (e *escalations) use(to string) {
	if u, err := url.Parse(to); err == nil { // config.Parse has judged it
		e.guard.Allow(u.Host)
	}
	if before := e.url.Swap(&to); before != nil {
		if u, err := url.Parse(*before); err == nil {
			e.guard.Disallow(u.Host)
		}
	}
}

// add has one posted, and does not wait for that.
func (e *escalations) add(ctx context.Context, one breakers.Event) {
	select {
	case e.queue <- one:
	default:
		e.logger.ErrorContext(ctx, "an escalation is not posted: too many wait", slog.String("agent", one.Agent))
	}
}

// run posts them until ctx ends.
func (e *escalations) run(ctx context.Context) {
	defer e.guard.CloseIdle()
	for {
		select {
		case one := <-e.queue:
			if err := e.post(ctx, one); err != nil {
				e.logger.ErrorContext(ctx, "an escalation was not taken", slog.String("agent", one.Agent), slog.Any("error", err))
			}
		case <-ctx.Done():
			return
		}
	}
}

func (e *escalations) post(ctx context.Context, one breakers.Event) error {
	to := *e.url.Load()
	if to == "" {
		return nil
	}
	body, err := json.Marshal(one)
	if err != nil {
		return err
	}
	header := http.Header{"Content-Type": {"application/json"}}
	if one.Token != "" {
		header.Set(ect.HeaderName, one.Token)
	}
	return callback.Post(ctx, e.guard, callback.Request{URL: to, Header: header, Body: body})
}
