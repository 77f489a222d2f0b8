package server

import (
	"context"
	"net/http"

	"golang.org/x/sync/errgroup"

	"github.com/aepb/aepb-gateway/gateway/httpapi"
	"github.com/aepb/aepb-gateway/gateway/transport"
	ta2a "github.com/aepb/aepb-gateway/gateway/transport/a2a"
	tmcp "github.com/aepb/aepb-gateway/gateway/transport/mcp"
	"github.com/aepb/aepb-gateway/gateway/transport/mcp/oldsse"
	tuacp "github.com/aepb/aepb-gateway/gateway/transport/uacp"
	"github.com/aepb/aepb-gateway/translators"
	"github.com/aepb/aepb-gateway/translators/canonical"
	"github.com/aepb/aepb-gateway/translators/uacp"
)

func carryA2A(env Env, codec translators.Translator) (Protocol, error) {
	dialer, err := ta2a.NewDialer(ta2a.DialerDeps{Client: env.Guards.Agents, Form: codec})
	if err != nil {
		return Protocol{}, err
	}
	server, err := ta2a.NewServer(ta2a.ServerDeps{Form: codec, BaseURL: env.Config.AgentURL, GRPC: env.Config.publicGRPC(), Ours: env.Config.ours, Security: env.Security})
	if err != nil {
		return Protocol{}, err
	}
	pusher, err := ta2a.NewPusher(ta2a.PusherDeps{Client: env.Guards.Webhooks})
	return Protocol{Codec: codec, Dialer: dialer, Pusher: pusher, Endpoints: func(handler transport.Handler) httpapi.Endpoints {
		messages := server.Handler(handler)
		return httpapi.Endpoints{"/a2a": messages, "/a2a/*rest": messages, "/.well-known/agent-card.json": server.CardHandler(handler)}
	}}, err
}

func carryMCP(env Env, codec translators.Translator) (Protocol, error) {
	dialer, err := tmcp.NewDialer(tmcp.DialerDeps{
		Client: env.Guards.Agents, Form: codec, Keeper: env.Keeper, Programs: env.Guards.Programs, Logger: env.Config.Logger,
		Self: canonical.Party{Name: "aepb-gateway", Version: env.Config.Program.Version},
	})
	if err != nil {
		return Protocol{}, err
	}
	server, err := tmcp.NewServer(tmcp.ServerDeps{
		Form: codec, Version: env.Config.Program.Version, Keeper: env.Keeper, Ours: env.Config.ours,
		Sessions: env.Config.Settings.Limits.Sessions, Streams: env.Config.Settings.Limits.MCPStreams(), UnderWay: env.Config.Settings.Limits.OldSSE(),
		Logger: env.Config.Logger, Base: env.Config.mcpPath,
	})
	if err != nil {
		dialer.Close()
		return Protocol{}, err
	}
	return Protocol{
		Codec: codec, Dialer: dialer, Drain: server.Close, Endpoints: func(handler transport.Handler) httpapi.Endpoints {
			paths, old := at("/mcp", server.Handler(handler)), server.OverSSE(handler)
			paths["/mcp"+oldsse.PathStream] = http.HandlerFunc(old.Stream)
			paths["/mcp"+oldsse.PathMessages] = http.HandlerFunc(old.Messages)
			return paths
		},
		Close: func() error { dialer.Close(); return nil },
	}, err
}

// at is an endpoint at a path, with a trailing slash and without.
func at(path string, server http.Handler) httpapi.Endpoints {
	return httpapi.Endpoints{path: server, path + "/": server}
}

func carryUACP(env Env, codec translators.Translator) (Protocol, error) {
	byReference := func(why tuacp.Reason) { env.ByReference(uacp.Binding, string(why)) }
	dialer, err := tuacp.NewDialer(tuacp.DialerDeps{Network: env.Guards.Agents, Form: codec, ByReference: byReference})
	p := Protocol{Codec: codec, Dialer: dialer}
	if err != nil || env.Config.Sockets.UACP == nil {
		return p, err
	}
	bounds := env.Config.Connections(env.Config.Settings.Listen.UACPConnections)
	listener, err := tuacp.NewListener(tuacp.ListenerDeps{
		Form: codec, TLS: env.TLS, Session: env.Config.Identity.Source.Session, Net: env.Config.Sockets.UACP, Agent: env.Config.Settings.Listen.UACPAgent, Anonymous: env.Config.Anonymous(),
		Reserved: env.Config.reserved(),
		Known:    func(agent string) bool { _, ok := env.Find(agent); return ok }, ByReference: byReference,
		Refused: func(ctx context.Context, remote string, err error) {
			env.Refusals(string(uacp.Binding)).Connection(ctx, remote, err)
		},
		Config: tuacp.Config{
			Connections: bounds.Total, PerCaller: bounds.PerCaller, Unidentified: bounds.Unidentified, PerAddress: bounds.PerAddress,
		},
	})
	if err != nil {
		return p, err
	}
	p.Listener, p.Usage = listener, listener.Usage
	if env.Config.Sockets.Datagrams == nil {
		return p, nil
	}
	datagrams, err := tuacp.NewDatagrams(tuacp.DatagramDeps{
		Form: codec, Conn: env.Config.Sockets.Datagrams, Agent: env.Config.Settings.Listen.UACPAgent, Anonymous: env.Config.Anonymous(),
		ByReference: byReference,
	})
	p.Listener = listeners{p.Listener, datagrams}
	return p, err
}

// listeners are several as one.
type listeners []transport.Listener

// Serve serves all until ctx ends, or one of them does.
func (l listeners) Serve(ctx context.Context, handler transport.Handler) error {
	group, ctx := errgroup.WithContext(ctx)
	for _, one := range l {
		group.Go(func() error { return one.Serve(ctx, handler) })
	}
	return group.Wait()
}
