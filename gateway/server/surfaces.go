package server

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/ect/identity/credential"
	"github.com/aepb/aepb-gateway/gateway/directory/admindoc"
	"github.com/aepb/aepb-gateway/gateway/httpapi"
	"github.com/aepb/aepb-gateway/gateway/httpapi/approvals"
	"github.com/aepb/aepb-gateway/gateway/httpapi/checkpoints"
	"github.com/aepb/aepb-gateway/gateway/state"
	"github.com/aepb/aepb-gateway/gateway/telemetry"
	"github.com/aepb/aepb-gateway/gateway/transport"
	ta2a "github.com/aepb/aepb-gateway/gateway/transport/a2a"
	"github.com/aepb/aepb-gateway/gateway/transport/accept"
	"github.com/aepb/aepb-gateway/lifecycle"
	"github.com/aepb/aepb-gateway/translators"
	"github.com/aepb/aepb-gateway/translators/a2a"
	"github.com/aepb/aepb-gateway/translators/canonical"
)

// surfaces are where callers and operators come in.
type surfaces struct {
	public, admin http.Handler
	monitoring    http.Handler // at listen.metrics
	publicBounds  bounds       // also of listeners that are not HTTP
	adminBounds   bounds
	scrapes       *accept.Gate                             // bounds the connections at listen.metrics
	grpc          transport.Listener                       // nil: there is none
	listeners     map[canonical.Binding]transport.Listener // that are not HTTP
	lasting       []string                                 // protocols whose connections last: what they refuse has no HTTP status
	refusals      map[string]*telemetry.Refusals           // by listener
}

// Handlers answer callers, operators, and those who watch the gateway, without listeners and their bounds.
func (out *Server) Handlers() (public, admin, monitoring http.Handler) {
	return out.surfaces.public, out.surfaces.admin, out.surfaces.monitoring
}

// Around puts something around what the public listener answers, such as a page for browsers. It belongs before
// [Server.Run].
func (out *Server) Around(around func(http.Handler) (http.Handler, error)) error {
	handler, err := around(out.surfaces.public)
	if err == nil {
		out.surfaces.public = handler
	}
	return err
}

func (out *Server) makeSurfaces(s Config) error {
	registry, pipeline, trust, opened, endpoints := out.protocols.registry, out.gateway, out.identity, out.state, httpapi.Endpoints{}
	for _, p := range out.protocols.list {
		if p.Endpoints != nil {
			maps.Copy(endpoints, p.Endpoints(pipeline))
		}
	}
	callers, err := trust.accept(s, opened.replay, pipeline)
	if err != nil {
		return err
	}
	callers.Reasons = out.mayKnow
	form, _ := registry.Translator(a2a.Binding)
	if err := out.overGRPC(s, form, callers); err != nil {
		return err
	}
	out.surfaces.public, err = httpapi.Public(httpapi.PublicDeps{
		EvidenceDeps: httpapi.EvidenceDeps{Evidence: opened.evidence, Members: pipeline.Parts().Members, Auditor: trust.auditor, Tasks: pipeline}, Callers: callers,
		Capability: httpapi.Capability{Self: s.Identity.SVID.ID, Signer: pipeline.Signer, Lifecycle: func() lifecycle.Record { return pipeline.Lifecycle.Record("") }, Version: s.version()},
		Handler:    pipeline, Router: pipeline.Parts().Router, Undo: httpapi.Undo{Rollbacker: pipeline.Parts().Rollbacks, Deposits: pipeline.Parts().Checkpoints}, Together: httpapi.Together{Workflows: pipeline.Parts().Workflows, Rounds: pipeline.Parts().Consensus}, Registry: registry,
		Humans: httpapi.Humans{
			Awaiter: pipeline.Parts().Callbacks, Approvals: approvals.Public{Service: pipeline.Parts().Approvals, Tokens: pipeline.Parts().Decisions, Operators: trust.operator, Logger: s.Logger},
		},
		Endpoints: endpoints, Notice: pipeline.Notice, Breakers: httpapi.BreakerStream{Breakers: pipeline.Breakers, Watches: trust.watches}, Answered: out.surfaces.refusals[telemetry.ListenerPublic].Answered,
		BaseURL: s.BaseURL, Logger: s.Logger,
	})
	if err != nil {
		return err
	}
	monitoring := httpapi.MonitoringDeps{Metrics: out.metrics.Handler(), Ready: out.ready, Warning: warningOf(opened.driver.usage), Logger: s.Logger}
	if out.surfaces.monitoring, err = httpapi.Monitoring(monitoring); err != nil {
		return err
	}
	out.surfaces.admin, err = httpapi.Admin(httpapi.AdminDeps{
		MonitoringDeps: monitoring,
		Registry:       registry, Records: httpapi.Records{Evidence: opened.evidence, Workflows: opened.workflows, Approvals: pipeline.Parts().Approvals, Levels: pipeline.Parts().Levels, Consensus: pipeline.Parts().Consensus, Descriptors: pipeline.Parts().Descriptors, Undo: checkpoints.Records{Checkpoints: pipeline.Parts().Checkpoints, Rollbacks: pipeline.Parts().Rollbacks}}, Self: s.Identity.SVID.ID, PublicURL: s.Names.URL, Directory: out.agents.directory, Agents: out.agents.listed,
		Breakers: pipeline.Breakers, Lifecycles: pipeline.Lifecycle, Running: httpapi.Running{Credential: out.agents.guards.credentials.document, Processes: out.agents.guards.processes, Configuration: func() admindoc.Configuration { return admindoc.Configuration{RestartKeys: out.config.restartKeys()} }},
		Operators: trust.operator, Token: s.AdminToken, Hosts: s.Names.Hosts, Open: s.Development, Failures: callers.Failures,
		Answered: out.surfaces.refusals[telemetry.ListenerAdmin].Answered,
	})
	return err
}

// mayKnow reports whether a caller may learn from an answer why an agent failed. In
// development, each caller is its own operator.
func (out *Server) mayKnow(id ect.Identity) bool {
	_, operator := out.identity.operator(id)
	return operator || out.config.Development
}

// Why a gateway is not ready, in words for all who may ask.
var (
	errStopping = errors.New("stopping")
	errNoState  = errors.New("state cannot be kept now")
	errYoung    = errors.New("replay protection is not known yet: the state was restarted or emptied, and calls with an ECT are refused until one can be newer")
)

// ready says why no new work should come.
func (out *Server) ready() error {
	err := out.state.driver.failing()
	switch {
	case out.stopper.stopping.Load():
		return errStopping
	case err == nil && out.state.replay.Young() != nil:
		return errYoung
	case err == nil:
		return out.identity.expiry.failing()
	case out.state.driver.name == "redis":
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

// overGRPC makes the endpoint of A2A over gRPC: the certificate and the callers are
// those of the public listener.
func (out *Server) overGRPC(s Config, form translators.Translator, callers httpapi.Callers) error {
	if s.Sockets.GRPC == nil {
		return nil
	}
	at := s.publicGRPC()
	listener, err := ta2a.NewListener(ta2a.ListenerDeps{
		Form: form, Accept: out.surfaces.publicBounds.connections.Listen(s.Sockets.GRPC), TLS: out.identity.tls, Session: s.Identity.Source.Session, Logger: s.Logger, GRPC: at, Grace: out.stopper.untilCut,
		Requests: out.surfaces.publicBounds.requests, Write: s.Settings.InFlight().WriteWait,
		AgentURL: func(agent string) string { return s.Names.URL + "/agents/" + agent },
		Refused:  out.surfaces.refusals[telemetry.ListenerGRPC].Connection,
		Identify: func(ctx context.Context, a ta2a.Arrival) context.Context {
			marked, _ := callers.Identify(ctx, a.TLS, a.Remote, credential.Request{Fields: a.Fields, Target: "https://" + at + a.Method})
			return marked
		},
	})
	if err != nil {
		return err
	}
	out.surfaces.grpc = listener
	return nil
}
