package server

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/gateway/directory"
	"github.com/aepb/aepb-gateway/gateway/directory/admindoc"
	"github.com/aepb/aepb-gateway/gateway/httpapi"
	"github.com/aepb/aepb-gateway/gateway/outbound"
	"github.com/aepb/aepb-gateway/gateway/telemetry"
	"github.com/aepb/aepb-gateway/gateway/transport"
	"github.com/aepb/aepb-gateway/gateway/transport/callback"
	tmcp "github.com/aepb/aepb-gateway/gateway/transport/mcp"
	"github.com/aepb/aepb-gateway/gateway/transport/peer"
	"github.com/aepb/aepb-gateway/gateway/transport/rollback"
	"github.com/aepb/aepb-gateway/policy/quota"
	"github.com/aepb/aepb-gateway/translators"
	"github.com/aepb/aepb-gateway/translators/a2a"
	"github.com/aepb/aepb-gateway/translators/a2a/security"
	"github.com/aepb/aepb-gateway/translators/ainp"
	"github.com/aepb/aepb-gateway/translators/builtin"
	"github.com/aepb/aepb-gateway/translators/canonical"
	"github.com/aepb/aepb-gateway/translators/mcp"
	"github.com/aepb/aepb-gateway/translators/slim"
	"github.com/aepb/aepb-gateway/translators/uacp"
)

// Protocol is all that a gateway needs of one protocol: its codec and the two faces of its wire.
type Protocol struct {
	Codec  translators.Translator
	Dialer interface {
		transport.Dialer
		transport.Describer
	}
	Endpoints func(transport.Handler) httpapi.Endpoints // nil: it has none over HTTP
	Listener  transport.Listener                        // nil: it has none of its own
	Pusher    transport.Pusher                          // nil: it posts to no webhooks
	Drain     func()                                    // ends the streams on which nothing is said; nil: it has none
	Drained   func(context.Context)                     // waits for connections that it took over from the HTTP server; nil: it has none
	Close     func() error                              // nil: nothing to close
	Usage     func() []quota.Usage                      // of connections that stay open; nil: it has none
}

// Env is what a gateway has for its protocols. Its functions are for calls and connections: while protocols are made,
// there is no directory and there are no metrics yet.
type Env struct {
	Config  Config
	Guards  *Guards
	Keeper  tmcp.Keeper // of native sessions, for all replicas
	Replays ect.ReplayCache
	TLS     *tls.Config // of listeners

	Find        func(agent string) (directory.Agent, bool)
	List        func() []directory.Agent
	Security    func() security.Schemes                     // what cards declare
	DIDs        func() map[string]ect.Identity              // the workloads that DIDs stand for
	Refusals    func(listener string) *telemetry.Refusals   // of a listener, by the name of its protocol
	ByReference func(binding canonical.Binding, why string) // counts a message that was sent by reference
}

// Factory makes a protocol. One without a codec is not spoken, because the configuration lacks what it needs.
type Factory func(Env) (Protocol, error)

// carriers are what carries each protocol of package builtin.
func carriers() map[canonical.Binding]func(Env, translators.Translator) (Protocol, error) {
	return map[canonical.Binding]func(Env, translators.Translator) (Protocol, error){
		a2a.Binding: carryA2A, mcp.Binding: carryMCP, slim.Binding: carrySLIM, uacp.Binding: carryUACP, ainp.Binding: carryAINP,
	}
}

// Protocols make all built-in protocols.
func Protocols() []Factory {
	var list []Factory
	for _, codec := range builtin.Forms(translators.Config{}) {
		list = append(list, func(env Env) (Protocol, error) {
			id := codec.Info().Binding
			carry, ok := carriers()[id]
			if !ok {
				return Protocol{}, fmt.Errorf("nothing carries %s", id)
			}
			return carry(env, codec)
		})
	}
	return list
}

// env is what the gateway has for its protocols.
func (out *Server) env() Env {
	return Env{
		Config: out.config, Guards: out.agents.guards, Keeper: Keeper{out.state.entries}, Replays: out.state.replay, TLS: out.identity.tls,
		Find:        func(agent string) (directory.Agent, bool) { return out.agents.directory.Find(agent) },
		List:        func() []directory.Agent { return out.agents.directory.List() },
		Security:    out.identity.security,
		DIDs:        func() map[string]ect.Identity { return *out.identity.dids.Load() },
		Refusals:    func(listener string) *telemetry.Refusals { return out.surfaces.refusals[listener] },
		ByReference: func(binding canonical.Binding, why string) { out.metrics.ByReference(string(binding), why) },
	}
}

// protocols are those that a gateway speaks, and what they have by their names.
type protocols struct {
	list     []Protocol
	registry *translators.Registry
	network  *outbound.Network
}

// makeProtocols makes every protocol that the configuration has what it takes for.
func (out *Server) makeProtocols() error {
	out.surfaces.listeners = map[canonical.Binding]transport.Listener{}
	env := out.env()
	for _, make := range append(Protocols(), out.config.Factories...) {
		p, err := make(env)
		if p.Close != nil {
			out.stopper.later(p.Close)
		}
		if err != nil {
			return err
		}
		if p.Codec != nil {
			out.protocols.list = append(out.protocols.list, p)
		}
		if p.Drain != nil {
			out.stopper.drain = append(out.stopper.drain, p.Drain)
		}
		if p.Drained != nil {
			out.stopper.drained = append(out.stopper.drained, p.Drained)
		}
		if p.Listener != nil {
			out.surfaces.listeners[p.Codec.Info().Binding] = p.Listener
		}
		if p.Drained != nil || p.Listener != nil {
			out.surfaces.lasting = append(out.surfaces.lasting, string(p.Codec.Info().Binding))
		}
	}
	return out.protocols.index()
}

// index sorts what the protocols have by their names.
func (p *protocols) index() (err error) {
	codecs := make([]translators.Translator, len(p.list))
	p.network = &outbound.Network{
		Agents: map[canonical.Binding]transport.Dialer{}, Describers: map[canonical.Binding]transport.Describer{},
		Pushers: map[canonical.Binding]transport.Pusher{},
	}
	for i, one := range p.list {
		id := one.Codec.Info().Binding
		codecs[i], p.network.Agents[id], p.network.Describers[id] = one.Codec, one.Dialer, one.Dialer
		if one.Pusher != nil {
			p.network.Pushers[id] = one.Pusher
		}
	}
	p.registry, err = translators.NewRegistry(codecs...)
	return err
}

// complete adds to a network of the protocols' agents all else that the gateway sends to.
func (g *Guards) complete(n *outbound.Network, registry *translators.Registry) error {
	hops, noHops := peer.New(peer.Deps{Client: g.Agents, Cards: n.Describers[a2a.Binding]})
	undo, noUndo := rollback.New(rollback.Deps{Client: g.Agents})
	callbacks, noCallbacks := callback.New(callback.Deps{Client: g.Webhooks})
	n.Peers, n.Beyond, n.Callbacks, n.Rollbacks = hops, hops, callbacks, rollbackDialers(registry, undo)
	return errors.Join(noHops, noUndo, noCallbacks)
}

// rollbackDialers gives the protocols that have no form of their own for rollbacks the one
// that ATD has, apart from their endpoints (AEPB, Checkpoint and Rollback Signal Carriage).
func rollbackDialers(registry *translators.Registry, undo transport.Dialer) map[canonical.Binding]transport.Dialer {
	out := map[canonical.Binding]transport.Dialer{}
	for _, id := range registry.Bindings() {
		form, _ := registry.Translator(id)
		if s, ok := form.(translators.Signaler); !ok || !s.Signals(canonical.OpRollback, translators.Target{Version: form.Info().Versions[0]}) {
			out[id] = undo
		}
	}
	return out
}

// processes are the programs that run, as the admin API says it.
func (g *Guards) processes() []admindoc.Process {
	running := g.Programs.List()
	all := make([]admindoc.Process, len(running))
	for i, p := range running {
		all[i] = admindoc.Process{
			PID: p.PID, Agent: p.Owner.Agent, Caller: string(p.Owner.Caller), Program: p.Program,
			Started: p.Started, Used: p.Used, Uses: p.Uses, MemoryMiB: p.MemoryMiB,
		}
	}
	return all
}
