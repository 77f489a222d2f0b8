package main

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/aepb/aepb-gateway/cmd/release"
	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/ect/identity"
	"github.com/aepb/aepb-gateway/ect/identity/credential"
	"github.com/aepb/aepb-gateway/gateway"
	"github.com/aepb/aepb-gateway/gateway/config"
	"github.com/aepb/aepb-gateway/gateway/directory"
	"github.com/aepb/aepb-gateway/gateway/httpapi"
	"github.com/aepb/aepb-gateway/gateway/httpapi/approvals"
	"github.com/aepb/aepb-gateway/gateway/httpapi/checkpoints"
	"github.com/aepb/aepb-gateway/gateway/listing"
	"github.com/aepb/aepb-gateway/gateway/outbound"
	"github.com/aepb/aepb-gateway/gateway/state"
	"github.com/aepb/aepb-gateway/gateway/state/redis"
	"github.com/aepb/aepb-gateway/gateway/task/store"
	"github.com/aepb/aepb-gateway/gateway/telemetry"
	"github.com/aepb/aepb-gateway/gateway/transport"
	"github.com/aepb/aepb-gateway/gateway/transport/accept"
	tainp "github.com/aepb/aepb-gateway/gateway/transport/ainp"
	"github.com/aepb/aepb-gateway/lifecycle"
	"github.com/aepb/aepb-gateway/lifecycle/checkpoint"
	"github.com/aepb/aepb-gateway/policy"
	"github.com/aepb/aepb-gateway/policy/hitl"
	"github.com/aepb/aepb-gateway/policy/limit"
	"github.com/aepb/aepb-gateway/translators"
	"github.com/aepb/aepb-gateway/translators/a2a"
	"github.com/aepb/aepb-gateway/translators/ainp"
	"github.com/aepb/aepb-gateway/translators/canonical"
	"github.com/aepb/aepb-gateway/translators/uacp"
)

// settings is what a way of running the gateway decides.
type settings struct {
	files      identityFiles      // as they were at the start
	workload   *identity.Workload // nil: files say who we are
	source     *identity.Source
	svid       *identity.SVID
	bundle     *identity.Bundle
	config     config.Config
	atStart    map[string]string // the keys of the first config that only a restart changes
	document   policy.Document   // of config.Policy.Document
	approvals  hitl.Rules        // of both
	publicURL  string            // where callers reach us when their Host header is none of ours
	hosts      []string
	listening  string        // the port of the public listener, where it may differ from that of publicURL
	listens    []string      // host:port of the listeners for HTTP
	adminToken string        // of dev and demo; empty: operators show certificates
	grpc       net.Listener  // nil: A2A is not served over gRPC
	metrics    net.Listener  // nil: metrics and health are on the admin listener alone
	redis      *redis.Config // nil: state is kept elsewhere
	stateKeys  [][]byte      // of state.key; none: not configured
	dev        bool
	logger     *slog.Logger

	ainp      tainp.Identity    // who we are in AINP; zero: we do not speak it
	slim      []slimMember      // of the configured SLIM nodes
	uacp      net.Listener      // nil: µACP callers cannot come in
	datagrams net.PacketConn    // nil: not in datagrams
	also      []protocolFactory // protocols beside those that everybody speaks

	supervisor []string // the command that supervises programs; none: they run without

	observe func(*stores)    // sees what is stored; nil: nothing does
	epoch   time.Time        // since when state in memory knows every use of a token; zero: since now
	clock   func() time.Time // of circuit breakers; nil: time.Now
}

// service is everything that was built, ready to be served.
type service struct {
	public, admin http.Handler
	publicBounds  bounds // also of listeners that are not HTTP
	adminBounds   bounds
	monitoring    http.Handler // at listen.metrics
	scraped       net.Listener // of listen.metrics; nil: there is none
	scrapes       *accept.Gate // bounds the connections there
	tls           *tls.Config
	statePlain    bool               // of gateway.Deps
	source        *identity.Source   // verifies callers; the same for good, unlike settings
	grpc          transport.Listener // nil: there is none
	directory     *directory.Directory
	agents        *listing.Agents // of the directory
	limiter       *limit.Limiter
	gateway       *gateway.Gateway
	metrics       *telemetry.Metrics
	refusals      map[string]*telemetry.Refusals // by listener
	logger        *slog.Logger
	settings      settings     // in force; only reload changes them
	watch         *watcher     // nil: the configuration cannot change
	backend       string       // that keeps the state
	failing       func() error // why state cannot be kept now; nil: it can
	expiry        *expiry
	guards        guards
	drain         []func()                // end the streams on which nothing is said
	drained       []func(context.Context) // wait for the connections that are not the HTTP server's
	entries       store.Entries
	listening     sync.WaitGroup // listeners
	signer        *ect.Signer
	keys          *identity.JWKSource
	wimse         atomic.Pointer[credential.WIMSE] // nil: no issuers
	replay        replays
	dialects      *ect.Dialects
	peers         atomic.Pointer[map[string]config.Peer]
	operators     atomic.Pointer[map[ect.Identity]policy.Operator]
	dids          atomic.Pointer[map[string]ect.Identity]
	lasting       []string                                 // protocols whose connections last: what they refuse has no HTTP status
	listeners     map[canonical.Binding]transport.Listener // that are not HTTP
	stopping      atomic.Bool
	cutAt         atomic.Pointer[time.Time] // what is left of a stop; nil: it has not come to that
	delay, grace  time.Duration             // of a stop, as configured at the start
	escalations   *escalations
	close         []func() error // in order, after the last request is answered
}

// wire is the composition root. On an error nothing stays open.
func wire(s settings) (built *service, err error) {
	out := &service{settings: s.begun(), logger: s.logger, source: s.source, tls: s.source.ServerConfig(), scraped: s.metrics, expiry: s.expiry()}
	out.operate(s.config)
	out.peers.Store(&s.config.Peers)
	defer func() {
		if err != nil {
			err = errors.Join(err, out.shut())
		}
	}()
	if err := out.bound(s); err != nil {
		return nil, err
	}
	opened, err := openState(s)
	if err != nil {
		return nil, err
	}
	out.close, out.failing, out.replay, out.backend = append(out.close, opened.close), opened.failing, opened.replay, opened.backend
	if opened, out.statePlain, err = opened.sealed(s); err != nil {
		return nil, err
	}
	if s.observe != nil {
		s.observe(&opened)
	}
	out.entries = opened.entries
	if err := out.openGuards(); err != nil {
		return nil, err
	}
	list, err := out.speak()
	if err != nil {
		return nil, err
	}
	registry, network, err := index(list)
	if err != nil {
		return nil, err
	}
	if err := out.measure(list, registry, opened); err != nil {
		return nil, err
	}
	if err := out.complete(network, registry); err != nil {
		return nil, err
	}
	lives, err := out.newLifecycle(opened)
	if err != nil {
		return nil, err
	}
	set, err := out.newBreakers(opened)
	if err != nil {
		return nil, err
	}
	chain := outbound.NewChain(network, outbound.Metrics(out.metrics, time.Now), set.Stage, outbound.Deadline, outbound.Budgets(out.publicBounds.asideOf))
	describers, beyond := outbound.Describers(chain, network)
	out.directory, err = directory.New(directory.Deps{
		Describers: describers, Egress: out.guards.agents, Client: out.guards.agents, Changed: out.metrics.DescriptionChanged,
		Beyond: beyond, CountQuery: out.metrics.Queried, Lives: lives.Of,
		Documents: out.guards.documents, Grants: out.guards.documents, Ours: s.listensAt,
		Pins: pins{entries: opened.entries, now: time.Now}, Programs: out.guards.programs,
		PlainLoopback: s.dev, Now: time.Now, Logger: s.logger,
	})
	if err != nil {
		return nil, err
	}
	if out.agents, err = listing.New(out.addedTo(opened)); err != nil {
		return nil, err
	}
	if out.limiter, err = limit.New(s.limits(), limit.Deps{Bucket: opened.limits}); err != nil {
		return nil, err
	}
	if out.gateway, err = out.build(registry, network, chain, parts{set, lives}, opened); err != nil {
		return nil, err
	}
	out.metrics.Undo().Uses(func() float64 { return float64(opened.blobs.Usage().Entries) })
	out.close = append(out.close, out.gateway.Close, func() error { return out.gateway.Flush(context.Background()) })
	if err := out.surfaces(s, list, registry, opened); err != nil {
		return nil, err
	}
	if err := out.configured(s); err != nil {
		return nil, err
	}
	return out, nil
}

// addedTo keeps the agents that operators add where state lasts and is believed: with
// state.unverified any program could list one.
func (out *service) addedTo(state stores) listing.Deps {
	deps := listing.Deps{Directory: out.directory, Open: out.settings.dev, Now: time.Now, Logger: out.logger}
	if state.backend != "memory" && !out.statePlain {
		deps.Entries = state.entries
	}
	return deps
}

// configured gives the directory what is configured, looks how agents stand before the
// first call, begins to look after the tasks of lost replicas, and follows what changes.
func (out *service) configured(s settings) error {
	if err := out.gateway.TakeOver(); err != nil {
		return err
	}
	if err := errors.Join(
		out.directory.AllowDocuments(s.config.VisitorRules(s.dev)), out.directory.UsePeers(s.config.PeerGateways(s.dev)),
		out.agents.Configure(s.config.Directory(s.dev)),
	); err != nil {
		return err
	}
	lists, lives := out.agents.Look(context.Background()), out.gateway.Lifecycle.Refresh(context.Background())
	if err := cmp.Or(lists, lives); err != nil { // where both fail, the store is away: once is enough
		s.logger.WarnContext(context.Background(), "the added agents, or how agents stand, is not known yet", slog.Any("error", err))
	}
	out.orderLives(context.Background(), s.config)
	return out.follow()
}

// measure makes the metrics.
func (out *service) measure(list []protocol, registry *translators.Registry, opened stores) (err error) {
	if out.metrics, err = telemetry.New(telemetry.Deps{
		Bindings: registry.Bindings(), Backend: opened.backend, BackendUp: func() bool { return opened.failing() == nil },
		Connections: out.publicBounds.open, Ignored: opened.dropped.ignored, Refused: opened.dropped.refused, Evicted: opened.dropped.evicted.counts, Version: version(), Commit: release.Current().Commit, Identity: out.expiry.current(),
	}); err != nil {
		return err
	}
	out.metrics.Uses(opened.usage)
	out.metrics.Uses(out.publicBounds.usage)
	out.metrics.Uses(func() map[string]telemetry.Use {
		return map[string]telemetry.Use{"programs": telemetry.UseOf(0, out.guards.programs.Usage())} // their memory is their own
	})
	for _, p := range list {
		if p.usage != nil {
			kind := map[canonical.Binding]string{uacp.Binding: "uacp_connections", ainp.Binding: "ainp_sockets"}[p.form.Info().Binding]
			out.metrics.Uses(func() map[string]telemetry.Use {
				return map[string]telemetry.Use{kind: telemetry.UseOf(config.BytesOfConnection, p.usage()...)}
			})
		}
	}
	return out.counted()
}

// speak makes every protocol that the configuration has what it takes for.
func (out *service) speak() ([]protocol, error) {
	var list []protocol
	out.listeners = map[canonical.Binding]transport.Listener{}
	for _, make := range append(protocolFactories(), out.settings.also...) {
		p, err := make(out)
		if p.close != nil {
			out.close = append(out.close, p.close)
		}
		if err != nil {
			return nil, err
		}
		if p.form != nil {
			list = append(list, p)
		}
		if p.drain != nil {
			out.drain = append(out.drain, p.drain)
		}
		if p.drained != nil {
			out.drained = append(out.drained, p.drained)
			out.lasting = append(out.lasting, string(p.form.Info().Binding))
		}
		if p.listener != nil {
			out.listeners[p.form.Info().Binding] = p.listener
			out.lasting = append(out.lasting, string(p.form.Info().Binding))
		}
	}
	return list, nil
}

// index sorts what the protocols have by their names.
func index(list []protocol) (*translators.Registry, *outbound.Network, error) {
	forms := make([]translators.Translator, len(list))
	network := &outbound.Network{
		Agents: map[canonical.Binding]transport.Dialer{}, Describers: map[canonical.Binding]transport.Describer{},
		Pushers: map[canonical.Binding]transport.Pusher{},
	}
	for i, p := range list {
		id := p.form.Info().Binding
		forms[i], network.Agents[id], network.Describers[id] = p.form, p.dialer, p.dialer
		if p.pusher != nil {
			network.Pushers[id] = p.pusher
		}
	}
	registry, err := translators.NewRegistry(forms...)
	return registry, network, err
}

// build makes the pipeline and the evidence that it needs.
func (out *service) build(registry *translators.Registry, network *outbound.Network, sender outbound.Sender, parts parts, opened stores) (*gateway.Gateway, error) {
	s := out.settings
	var err error
	out.signer, err = ect.NewSigner(ect.SignerDeps{Key: s.svid.Key, Chain: s.svid.Chain, Issuer: s.svid.ID, Now: time.Now})
	if err != nil {
		return nil, err
	}
	keys, err := out.sources(s)
	if err != nil {
		return nil, err
	}
	out.dialects, err = ect.NewDialects(ect.DialectsDeps{Configured: dialects(s.config)})
	if err != nil {
		return nil, err
	}
	verifier, err := ect.NewVerifier(ect.VerifierDeps{
		Keys: keys, Replay: opened.replay, Audience: []string{string(s.svid.ID)}, Now: time.Now,
		MinLevelOf: out.minLevel,
	})
	if err != nil {
		return nil, err
	}
	recorder, err := ect.NewRecorder(ect.RecorderDeps{Store: opened.evidence})
	if err != nil {
		return nil, err
	}
	background, perCaller := s.config.Limits.Background()
	return gateway.New(s.gatewaySettings(), gateway.Deps{
		Network: network, Sender: sender, Breakers: parts.breakers, Lifecycle: parts.lives,
		Registry: registry, Directory: out.directory,
		Tokens: gateway.Tokens{Signer: out.signer, Dialects: out.dialects, Verifier: verifier, Recorder: recorder, Evidence: opened.evidence},
		Stores: gateway.Stores{Answers: opened.answers, Conversations: opened.conversations, Entries: opened.entries, Blobs: opened.blobs, Lasts: opened.lasts, Clock: opened.clock, Place: s.publicURL + checkpoint.Path, StatePlain: out.statePlain}, Limiter: out.limiter, Metrics: out.metrics,
		Operator: out.operator, Escalate: out.escalations.add,
		Logger: s.logger, Now: time.Now, NewID: func() string { return string(ect.NewID()) },
		Shares: gateway.Shares{Budget: out.publicBounds.aside, Workers: perCaller, AllWorkers: background},
	})
}

// limits are wider on a development gateway, where one caller is everybody.
func (s settings) limits() limit.Config {
	limits := s.config.Limit()
	if s.dev && limits.Rate == 0 {
		limits.Rate = 1000
	}
	if s.dev && limits.Burst == 0 {
		limits.Burst = 2000
	}
	return limits
}

func (out *service) surfaces(s settings, list []protocol, registry *translators.Registry, opened stores) error {
	pipeline, endpoints := out.gateway, httpapi.Endpoints{}
	for _, p := range list {
		if p.endpoints != nil {
			maps.Copy(endpoints, p.endpoints(pipeline))
		}
	}
	authenticators, known, err := out.authenticators(s)
	if err != nil {
		return err
	}
	form, _ := registry.Translator(a2a.Binding)
	failures, err := httpapi.NewFailures(pipeline, known)
	if err != nil {
		return err
	}
	callers := httpapi.Callers{Authenticators: authenticators, Anonymous: s.anonymous(), TrustDomain: s.bundle.TrustDomain(), Failures: failures, Reasons: out.mayKnow}
	if err := out.overGRPC(s, form, callers); err != nil {
		return err
	}
	out.public, err = httpapi.Public(httpapi.PublicDeps{
		EvidenceDeps: httpapi.EvidenceDeps{Evidence: opened.evidence, Members: pipeline.Parts().Members, Auditor: out.auditor, Tasks: pipeline}, Callers: callers,
		Capability: httpapi.Capability{Self: s.svid.ID, Signer: pipeline.Signer, Lifecycle: func() lifecycle.Record { return pipeline.Lifecycle.Record("") }, Version: s.version()},
		Handler:    pipeline, Router: pipeline.Parts().Router, Undo: httpapi.Undo{Rollbacker: pipeline.Parts().Rollbacks, Deposits: pipeline.Parts().Checkpoints}, Together: httpapi.Together{Workflows: pipeline.Parts().Workflows, Rounds: pipeline.Parts().Consensus}, Registry: registry,
		Humans: httpapi.Humans{
			Awaiter: pipeline.Parts().Callbacks, Approvals: approvals.Public{Service: pipeline.Parts().Approvals, Tokens: pipeline.Parts().Decisions, Operators: out.operator, Logger: s.logger},
		},
		Endpoints: endpoints, Notice: pipeline.Notice, Breakers: httpapi.BreakerStream{Breakers: pipeline.Breakers, Watches: out.watches}, Answered: out.refusals[telemetry.ListenerPublic].Answered,
		BaseURL: s.baseURL, Logger: s.logger,
	})
	if err != nil {
		return err
	}
	monitoring := httpapi.MonitoringDeps{Metrics: out.metrics.Handler(), Ready: out.ready, Warning: warningOf(opened.usage), Logger: s.logger}
	if out.monitoring, err = httpapi.Monitoring(monitoring); err != nil {
		return err
	}
	out.admin, err = httpapi.Admin(httpapi.AdminDeps{
		MonitoringDeps: monitoring,
		Registry:       registry, Records: httpapi.Records{Evidence: opened.evidence, Workflows: opened.workflows, Approvals: pipeline.Parts().Approvals, Levels: pipeline.Parts().Levels, Consensus: pipeline.Parts().Consensus, Undo: checkpoints.Records{Checkpoints: pipeline.Parts().Checkpoints, Rollbacks: pipeline.Parts().Rollbacks}}, Self: s.svid.ID, PublicURL: s.publicURL, Directory: out.directory, Agents: out.agents,
		Breakers: pipeline.Breakers, Lifecycles: pipeline.Lifecycle, Running: httpapi.Running{Processes: out.processes, Configuration: out.settings.inForce},
		Operators: out.operator, Token: s.adminToken, Hosts: s.hosts, Open: s.dev, Failures: failures,
		Answered: out.refusals[telemetry.ListenerAdmin].Answered,
	})
	return err
}

// Why a gateway is not ready, in words for all who may ask.
var (
	errStopping = errors.New("stopping")
	errNoState  = errors.New("state cannot be kept now")
	errYoung    = errors.New("replay protection is not known yet: the state was restarted or emptied, and calls with an ECT are refused until one can be newer")
)

// ready says why no new work should come.
func (out *service) ready() error {
	err := out.failing()
	switch {
	case out.stopping.Load():
		return errStopping
	case err == nil && out.replay.Young() != nil:
		return errYoung
	case err == nil:
		return out.expiry.failing()
	case out.backend == "redis":
		return fmt.Errorf("%w: %w", errNoState, err)
	default:
		return errNoState // the reason names files
	}
}

// nearlyFull is what readiness says while the memory of used tokens is nearly full. Callers who
// have little there are served, and who fills it must not take replicas out of service.
const nearlyFull = "warning: the memory of used tokens is nearly full: tokens of issuers with many there are refused (429); see aepb_state_uses_refused_total\n"

// warningOf says what an operator should know of a gateway that is ready.
func warningOf(usage func() map[string]telemetry.Use) func() string {
	return func() string {
		if usage()[state.KindReplay.String()].Ratio > 0.75 {
			return nearlyFull
		}
		return ""
	}
}

// operate puts the configured operators, and the names of callers, in force.
func (out *service) operate(c config.Config) {
	operators := c.Operators()
	out.operators.Store(&operators)
	dids := c.DIDs()
	out.dids.Store(&dids)
}

// anonymous is who callers without credentials are; empty: they are refused (R3).
func (s settings) anonymous() ect.Identity {
	if !s.dev {
		return ""
	}
	return identity.Anonymous(s.bundle.TrustDomain()).ID
}

func (out *service) operator(id ect.Identity) (policy.Operator, bool) {
	who, ok := (*out.operators.Load())[id]
	return who, ok
}

// mayKnow reports whether a caller may learn from an answer why an agent failed. In
// development, each caller is its own operator.
func (out *service) mayKnow(id ect.Identity) bool {
	_, operator := out.operator(id)
	return operator || out.settings.dev
}

// auditor is the operator of that identity who may read all evidence.
func (out *service) auditor(id ect.Identity) (name string, ok bool) {
	who, ok := out.operator(id)
	return who.Name, ok && who.May(policy.RoleAuditor)
}

// ours reports whether a host name, without its port, is one of our names.
func (s settings) ours(name string) bool {
	public, err := url.Parse(s.publicURL)
	return slices.Contains(s.hosts, name) || err == nil && name != "" && strings.EqualFold(public.Hostname(), name)
}

func (s settings) agentURL(r *http.Request, agent string) string {
	return s.baseURL(r) + "/agents/" + agent
}
