package server

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/gateway"
	"github.com/aepb/aepb-gateway/gateway/config"
	"github.com/aepb/aepb-gateway/gateway/directory"
	"github.com/aepb/aepb-gateway/gateway/listing"
	"github.com/aepb/aepb-gateway/gateway/outbound"
	"github.com/aepb/aepb-gateway/gateway/telemetry"
	"github.com/aepb/aepb-gateway/lifecycle/checkpoint"
	"github.com/aepb/aepb-gateway/policy/limit"
	"github.com/aepb/aepb-gateway/translators/ainp"
	"github.com/aepb/aepb-gateway/translators/canonical"
	"github.com/aepb/aepb-gateway/translators/uacp"
)

// Server is a gateway that was built, ready to run.
type Server struct {
	config      Config                 // as at the start
	inForce     atomic.Pointer[Config] // only Reload changes it
	identity    *trust
	state       stores
	protocols   protocols
	agents      agents
	surfaces    surfaces
	gateway     *gateway.Gateway
	metrics     *telemetry.Metrics
	escalations *escalations
	watch       *watcher // nil: the configuration cannot change
	stopper     stopper
}

// agents are those whom the gateway sends to, and what judges calls of them.
type agents struct {
	directory *directory.Directory
	listed    *listing.Agents // of the directory
	guards    *Guards
	limiter   *limit.Limiter
}

// use puts the configured agents and peers in force. [config.Parse] has judged all but the agents.
func (a agents) use(s Config) error {
	c, dev := s.Settings, s.Development
	a.guards.credentials.use(c)
	return errors.Join(a.directory.UsePeers(c.PeerGateways(dev)), a.listed.Configure(c.Directory(dev)), a.directory.AllowDocuments(c.VisitorRules(dev)))
}

// Build makes a gateway of a configuration, which has its sockets. On an error nothing stays open but those.
func Build(s Config) (built *Server, err error) {
	out := &Server{config: s}
	out.inForce.Store(&s)
	defer func() {
		if err != nil {
			err = errors.Join(err, out.stopper.shut())
		}
	}()
	for _, step := range []func() error{
		func() (err error) { out.identity, err = newTrust(s); return err },
		func() error { return out.bound(s) },
		func() error { return out.openState(s) },
		func() error { return out.openGuards(s) },
		out.makeProtocols,
		out.measure,
		func() error { return out.agents.guards.complete(out.protocols.network, out.protocols.registry) },
		out.makePipeline,
		func() error { return out.makeSurfaces(s) },
		func() error { return out.configured(s) },
	} {
		if err := step(); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// openState opens what keeps state.
func (out *Server) openState(s Config) error {
	opened, err := openState(s)
	if err != nil {
		return err
	}
	out.stopper.later(opened.driver.close)
	if out.state, err = opened.sealed(s); err != nil {
		return err
	}
	if s.Hooks.Observe != nil {
		seen := Stored{Evidence: out.state.evidence, Entries: out.state.entries}
		s.Hooks.Observe(&seen)
		out.state.evidence, out.state.entries = seen.Evidence, seen.Entries
	}
	return nil
}

// openGuards makes what judges what is sent.
func (out *Server) openGuards(s Config) (err error) {
	taken := func(at string) bool { return out.agents.directory != nil && out.agents.directory.Taken(at) }
	if out.agents.guards, err = newGuards(s, taken); err != nil {
		return err
	}
	out.stopper.later(out.agents.guards.close)
	if out.identity.access, err = newAccessTokens(s.Identity.Bundle.TrustDomain(), out.agents.guards.issuers); err != nil {
		return err
	}
	out.stopper.later(out.identity.access.close)
	out.escalations, err = newEscalations(s)
	return err
}

// makePipeline makes what a message goes through, and the directory of agents.
func (out *Server) makePipeline() error {
	s, guards, network := out.config, out.agents.guards, out.protocols.network
	lives, err := out.newLifecycle()
	if err != nil {
		return err
	}
	set, err := out.newBreakers()
	if err != nil {
		return err
	}
	chain := outbound.NewChain(network, outbound.Metrics(out.metrics, time.Now), set.Stage, outbound.Deadline, outbound.Budgets(out.surfaces.publicBounds.asideOf), outbound.Purposes(guards.credentials.service.Exchanges))
	describers, beyond := outbound.Describers(chain, network)
	out.agents.directory, err = directory.New(directory.Deps{
		Describers: describers, Egress: guards.Agents, Client: guards.Agents, Changed: out.metrics.DescriptionChanged,
		Beyond: beyond, CountQuery: out.metrics.Queried, Lives: lives.Of,
		Documents: guards.documents, Grants: guards.documents, Ours: s.listensAt,
		Pins: pins{entries: out.state.entries, now: time.Now}, Programs: guards.Programs,
		PlainLoopback: s.Development, Now: time.Now, Logger: s.Logger,
	})
	if err != nil {
		return err
	}
	if out.agents.listed, err = listing.New(out.addedTo()); err != nil {
		return err
	}
	if out.agents.limiter, err = limit.New(s.limits(), limit.Deps{Bucket: out.state.limits}); err != nil {
		return err
	}
	deps, err := out.deps()
	if err != nil {
		return err
	}
	deps.Registry, deps.Network, deps.Sender, deps.Breakers, deps.Lifecycle = out.protocols.registry, network, chain, set, lives
	if out.gateway, err = gateway.New(s.Pipeline(), deps); err != nil {
		return err
	}
	out.metrics.Undo().Uses(func() float64 { return float64(out.state.blobs.Usage().Entries) })
	out.stopper.later(out.gateway.Close)
	out.stopper.later(func() error { return out.gateway.Flush(context.Background()) })
	return nil
}

// deps are what the pipeline needs, but what is made of protocols.
func (out *Server) deps() (gateway.Deps, error) {
	s, state := out.config, out.state
	verifier, err := out.identity.verifier(state.replay)
	if err != nil {
		return gateway.Deps{}, err
	}
	recorder, err := ect.NewRecorder(ect.RecorderDeps{Store: state.evidence})
	if err != nil {
		return gateway.Deps{}, err
	}
	background, perCaller := s.Settings.Limits.Background()
	return gateway.Deps{
		Directory: out.agents.directory, Limiter: out.agents.limiter, Metrics: out.metrics,
		Tokens:   gateway.Tokens{Signer: out.identity.signer, Dialects: out.identity.dialects, Verifier: verifier, Recorder: recorder, Evidence: state.evidence},
		Stores:   gateway.Stores{Answers: state.answers, Conversations: state.conversations, Entries: state.entries, Blobs: state.blobs, Lasts: state.driver.lasts, Clock: state.driver.clock, Place: s.Names.URL + checkpoint.Path, StatePlain: state.plain},
		Operator: out.identity.operator, Escalate: out.escalations.add,
		Logger: s.Logger, Now: time.Now, NewID: func() string { return string(ect.NewRandomID()) },
		Shares: gateway.Shares{Budget: out.surfaces.publicBounds.aside, Workers: perCaller, AllWorkers: background},
	}, nil
}

// Directory are the agents and peers that the gateway knows.
func (out *Server) Directory() *directory.Directory { return out.agents.directory }

// Settings are what the operator wrote, as it is in force.
func (out *Server) Settings() config.Config { return out.inForce.Load().Settings }

// Gateway is the pipeline.
func (out *Server) Gateway() *gateway.Gateway { return out.gateway }

// addedTo keeps the agents that operators add where state lasts and is believed: with
// state.unverified any program could list one.
func (out *Server) addedTo() listing.Deps {
	state := out.state
	deps := listing.Deps{Directory: out.agents.directory, Open: out.config.Development, Now: time.Now, Logger: out.config.Logger}
	if state.driver.name != "memory" && !state.plain {
		deps.Entries = state.entries
	}
	return deps
}

// configured gives the directory what is configured, looks how agents stand before the
// first call, begins to look after the tasks of lost replicas, and follows what changes.
func (out *Server) configured(s Config) error {
	if err := out.gateway.TakeOver(); err != nil {
		return err
	}
	if err := out.agents.use(s); err != nil {
		return err
	}
	lists, lives := out.agents.listed.Look(context.Background()), out.gateway.Lifecycle.Refresh(context.Background())
	if err := cmp.Or(lists, lives); err != nil { // where both fail, the store is away: once is enough
		s.Logger.WarnContext(context.Background(), "the added agents, or how agents stand, is not known yet", slog.Any("error", err))
	}
	out.orderLives(context.Background(), s.Settings)
	return out.follow()
}

// measure makes the metrics.
func (out *Server) measure() (err error) {
	opened := out.state
	if out.metrics, err = telemetry.New(telemetry.Deps{
		Bindings: out.protocols.registry.Bindings(), Backend: opened.driver.name, BackendUp: func() bool { return opened.driver.failing() == nil },
		Connections: out.surfaces.publicBounds.open, Ignored: opened.dropped.ignored, Refused: opened.dropped.refused, Evicted: opened.dropped.evicted.counts, Version: out.config.Program.Version, Commit: out.config.Program.Commit, Identity: out.identity.expiry.current(),
	}); err != nil {
		return err
	}
	out.metrics.Uses(opened.driver.usage)
	out.metrics.Uses(out.surfaces.publicBounds.usage)
	out.metrics.Uses(func() map[string]telemetry.Use {
		return map[string]telemetry.Use{"programs": telemetry.UseOf(0, out.agents.guards.Programs.Usage())} // their memory is their own
	})
	for _, p := range out.protocols.list {
		if p.Usage != nil {
			kind := map[canonical.Binding]string{uacp.Binding: "uacp_connections", ainp.Binding: "ainp_sockets"}[p.Codec.Info().Binding]
			out.metrics.Uses(func() map[string]telemetry.Use {
				return map[string]telemetry.Use{kind: telemetry.UseOf(config.BytesOfConnection, p.Usage()...)}
			})
		}
	}
	return out.counted()
}

// Agents are those that operators list beside the configured ones.
func (out *Server) Agents() *listing.Agents { return out.agents.listed }
