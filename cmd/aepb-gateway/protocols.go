package main

import (
	"cmp"
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/ect/identity"
	"github.com/aepb/aepb-gateway/gateway/config"
	"github.com/aepb/aepb-gateway/gateway/directory"
	"github.com/aepb/aepb-gateway/gateway/directory/admindoc"
	"github.com/aepb/aepb-gateway/gateway/httpapi"
	"github.com/aepb/aepb-gateway/gateway/outbound"
	"github.com/aepb/aepb-gateway/gateway/transport"
	ta2a "github.com/aepb/aepb-gateway/gateway/transport/a2a"
	tainp "github.com/aepb/aepb-gateway/gateway/transport/ainp"
	"github.com/aepb/aepb-gateway/gateway/transport/callback"
	"github.com/aepb/aepb-gateway/gateway/transport/egress"
	tmcp "github.com/aepb/aepb-gateway/gateway/transport/mcp"
	"github.com/aepb/aepb-gateway/gateway/transport/mcp/oldsse"
	"github.com/aepb/aepb-gateway/gateway/transport/peer"
	"github.com/aepb/aepb-gateway/gateway/transport/rollback"
	"github.com/aepb/aepb-gateway/gateway/transport/stdio"
	tuacp "github.com/aepb/aepb-gateway/gateway/transport/uacp"
	"github.com/aepb/aepb-gateway/lifecycle"
	"github.com/aepb/aepb-gateway/policy/quota"
	"github.com/aepb/aepb-gateway/translators"
	"github.com/aepb/aepb-gateway/translators/a2a"
	"github.com/aepb/aepb-gateway/translators/ainp"
	"github.com/aepb/aepb-gateway/translators/builtin"
	"github.com/aepb/aepb-gateway/translators/canonical"
	"github.com/aepb/aepb-gateway/translators/mcp"
	"github.com/aepb/aepb-gateway/translators/slim"
	"github.com/aepb/aepb-gateway/translators/uacp"
)

// protocol is all that the gateway needs of one protocol: its form and the two
// faces of its wire.
type protocol struct {
	form   translators.Translator
	dialer interface {
		transport.Dialer
		transport.Describer
	}
	endpoints func(transport.Handler) httpapi.Endpoints // nil: it has none over HTTP
	listener  transport.Listener                        // nil: it has none of its own
	pusher    transport.Pusher                          // nil: it posts to no webhooks
	drain     func()                                    // ends the streams on which nothing is said; nil: it has none
	drained   func(context.Context)                     // waits for connections that it took over from the HTTP server; nil: it has none
	close     func() error                              // nil: nothing to close
	usage     func() []quota.Usage                      // of connections that stay open; nil: it has none
}

// protocolFactory makes a protocol for a service; one without a form is not spoken,
// because the configuration lacks what it needs.
type protocolFactory func(*service) (protocol, error)

// carriers are what carries each protocol of package builtin.
func carriers() map[canonical.Binding]func(*service, translators.Translator) (protocol, error) {
	return map[canonical.Binding]func(*service, translators.Translator) (protocol, error){
		a2a.Binding: speakA2A, mcp.Binding: speakMCP, slim.Binding: speakSLIM, uacp.Binding: speakUACP, ainp.Binding: speakAINP,
	}
}

// protocolFactories are those of all protocols that there are.
func protocolFactories() []protocolFactory {
	var list []protocolFactory
	for _, form := range builtin.Forms(translators.Config{}) {
		list = append(list, func(out *service) (protocol, error) {
			id := form.Info().Binding
			speak, ok := carriers()[id]
			if !ok {
				return protocol{}, fmt.Errorf("nothing carries %s", id)
			}
			return speak(out, form)
		})
	}
	return list
}

// complete adds to a network of the protocols' agents all else that the gateway sends to.
func (out *service) complete(n *outbound.Network, registry *translators.Registry) error {
	hooks, err := out.webhooks()
	if err != nil {
		return err
	}
	hops, noHops := peer.New(peer.Deps{Client: out.guards.agents, Cards: n.Describers[a2a.Binding]})
	undo, noUndo := rollback.New(rollback.Deps{Client: out.guards.agents})
	callbacks, noCallbacks := callback.New(callback.Deps{Client: hooks})
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

func speakA2A(out *service, form translators.Translator) (protocol, error) {
	dialer, err := ta2a.NewDialer(ta2a.DialerDeps{Client: out.guards.agents, Form: form})
	if err != nil {
		return protocol{}, err
	}
	server, err := ta2a.NewServer(ta2a.ServerDeps{Form: form, BaseURL: out.settings.agentURL, GRPC: out.settings.publicGRPC(), Ours: out.settings.ours})
	if err != nil {
		return protocol{}, err
	}
	hooks, err := out.webhooks()
	if err != nil {
		return protocol{}, err
	}
	pusher, err := ta2a.NewPusher(ta2a.PusherDeps{Client: hooks})
	return protocol{form: form, dialer: dialer, pusher: pusher, endpoints: func(handler transport.Handler) httpapi.Endpoints {
		messages := server.Handler(handler)
		return httpapi.Endpoints{"/a2a": messages, "/a2a/*rest": messages, "/.well-known/agent-card.json": server.CardHandler(handler)}
	}}, err
}

func speakMCP(out *service, form translators.Translator) (protocol, error) {
	var err error
	if out.guards.programs, err = stdio.NewHost(stdio.Deps{Limits: out.settings.config.Limits.Processes(), Supervisor: out.settings.supervisor, Logger: out.logger}); err != nil {
		return protocol{}, err
	}
	dialer, err := tmcp.NewDialer(tmcp.DialerDeps{
		Client: out.guards.agents, Form: form, Keeper: keeper{out.entries}, Programs: out.guards.programs, Logger: out.logger,
		Self: canonical.Party{Name: "aepb-gateway", Version: version()},
	})
	if err != nil {
		return protocol{}, err
	}
	server, err := tmcp.NewServer(tmcp.ServerDeps{
		Form: form, Version: version(), Keeper: keeper{out.entries}, Ours: out.settings.ours,
		Sessions: out.settings.config.Limits.Sessions, Streams: out.settings.config.Limits.MCPStreams(), UnderWay: out.settings.config.Limits.OldSSE(),
		Logger: out.logger, Base: out.settings.mcpPath,
	})
	if err != nil {
		dialer.Close()
		return protocol{}, err
	}
	return protocol{
		form: form, dialer: dialer, drain: server.Close, endpoints: func(handler transport.Handler) httpapi.Endpoints {
			paths, old := at("/mcp", server.Handler(handler)), server.OverSSE(handler)
			paths["/mcp"+oldsse.PathStream] = http.HandlerFunc(old.Stream)
			paths["/mcp"+oldsse.PathMessages] = http.HandlerFunc(old.Messages)
			return paths
		},
		close: func() error { dialer.Close(); return out.guards.programs.Close() },
	}, err
}

// mcpPath is the path of an agent's MCP endpoint as clients see it.
func (s settings) mcpPath(r *http.Request) string {
	at, err := url.Parse(s.agentURL(r, url.PathEscape(r.PathValue("agent"))))
	if err != nil { // of a configuration that was checked
		return ""
	}
	return at.EscapedPath() + "/mcp"
}

// processes are the programs that run, as the admin API says it.
func (out *service) processes() []admindoc.Process {
	running := out.guards.programs.List()
	all := make([]admindoc.Process, len(running))
	for i, p := range running {
		all[i] = admindoc.Process{
			PID: p.PID, Agent: p.Owner.Agent, Caller: string(p.Owner.Caller), Program: p.Program,
			Started: p.Started, Used: p.Used, Uses: p.Uses, MemoryMiB: p.MemoryMiB,
		}
	}
	return all
}

// at is an endpoint at a path, with a trailing slash and without.
func at(path string, server http.Handler) httpapi.Endpoints {
	return httpapi.Endpoints{path: server, path + "/": server}
}

func speakUACP(out *service, form translators.Translator) (protocol, error) {
	byReference := func(why tuacp.Reason) { out.metrics.ByReference(string(uacp.Binding), string(why)) }
	dialer, err := tuacp.NewDialer(tuacp.DialerDeps{Network: out.guards.agents, Form: form, ByReference: byReference})
	p := protocol{form: form, dialer: dialer}
	if err != nil || out.settings.uacp == nil {
		return p, err
	}
	bounds := out.settings.connections(out.settings.config.Listen.UACPConnections)
	listener, err := tuacp.NewListener(tuacp.ListenerDeps{
		Form: form, TLS: out.tls, Session: out.settings.source.Session, Net: out.settings.uacp, Agent: out.settings.config.Listen.UACPAgent, Anonymous: out.settings.anonymous(),
		Known: func(agent string) bool { _, ok := out.directory.Find(agent); return ok }, ByReference: byReference,
		Refused: func(ctx context.Context, remote string, err error) {
			out.refusals[string(uacp.Binding)].Connection(ctx, remote, err)
		},
		Config: tuacp.Config{
			Connections: bounds.Total, PerCaller: bounds.PerCaller, Unidentified: bounds.Unidentified, PerAddress: bounds.PerAddress,
		},
	})
	if err != nil {
		return p, err
	}
	p.listener, p.usage = listener, listener.Usage
	if out.settings.datagrams == nil {
		return p, nil
	}
	datagrams, err := tuacp.NewDatagrams(tuacp.DatagramDeps{
		Form: form, Conn: out.settings.datagrams, Agent: out.settings.config.Listen.UACPAgent, Anonymous: out.settings.anonymous(),
		ByReference: byReference,
	})
	p.listener = listeners{p.listener, datagrams}
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

func speakAINP(out *service, form translators.Translator) (protocol, error) {
	if out.settings.ainp.Key == nil {
		return protocol{}, nil
	}
	documents, err := out.didDocuments()
	if err != nil {
		return protocol{}, err
	}
	keys, bounds := tainp.NewKeys(documents, nil), out.settings.connections(out.settings.config.AINP.Sockets)
	dialer, err := tainp.NewDialer(tainp.DialerDeps{
		Client: out.guards.agents, Form: form, Self: out.settings.ainp, Keys: keys, Peer: out.ainpPeer,
	})
	if err != nil {
		return protocol{}, err
	}
	server, err := tainp.NewServer(tainp.ServerDeps{
		Form: form, Self: out.settings.ainp, Keys: keys, Replays: ainpReplays{out.replay}, Identity: out.ainpCaller,
		Receiver: dialer.Receiver, Named: out.ainpNamed, ByDID: func() bool { return len(*out.dids.Load()) > 0 },
		Refused: func(ctx context.Context, agent string, err error) {
			_ = out.refusals[string(form.Info().Binding)].Failed(ctx, agent, err)
		},
		Socket: tainp.SocketConfig{
			Connections: bounds.Total, PerCaller: bounds.PerCaller, Unidentified: bounds.Unidentified, PerAddress: bounds.PerAddress,
		},
	})
	if err != nil {
		return protocol{}, err
	}
	return protocol{
		form: form, dialer: dialer, drain: server.Close, drained: server.Wait, usage: server.Usage,
		endpoints: func(handler transport.Handler) httpapi.Endpoints { return at("/ainp", server.Handler(handler)) },
	}, nil
}

// described is what the capability document of a gateway with this configuration offers.
func described(c config.Config) lifecycle.Description {
	d := lifecycle.Description{Version: cmp.Or(c.Version, version()), Protocols: []string{string(a2a.Binding), string(mcp.Binding)}, Level: int(ect.L2)}
	for protocol, spoken := range map[canonical.Binding]bool{
		a2a.Binding + " over gRPC": c.Listen.GRPC != "", uacp.Binding: c.Listen.UACP != "", ainp.Binding: c.AINP.Key != "", slim.Binding: len(c.SLIM.Nodes) > 0,
	} {
		if spoken {
			d.Protocols = append(d.Protocols, string(protocol))
		}
	}
	slices.Sort(d.Protocols) // for the error
	return d
}

// ainpKeyFile is the AINP key of a development gateway.
const ainpKeyFile = "ainp-key.pem"

const pemKey = "PRIVATE KEY"

// ainpIdentity makes the identity of the gateway in AINP; zero: there is no key.
func ainpIdentity(c config.AINP) (tainp.Identity, error) {
	if c.Key == "" {
		if c.DID != "" {
			return tainp.Identity{}, errors.New("a DID needs a key")
		}
		return tainp.Identity{}, nil
	}
	parsed, err := readKey(c.Key)
	if err != nil {
		return tainp.Identity{}, err
	}
	key, ok := parsed.(ed25519.PrivateKey)
	if !ok {
		return tainp.Identity{}, fmt.Errorf("%s holds no Ed25519 key", c.Key)
	}
	did := c.DID
	if did == "" {
		public, _ := key.Public().(ed25519.PublicKey)
		did = tainp.KeyDID(public)
	}
	return tainp.Identity{DID: did, Key: key}, nil
}

// developmentAINP makes the key of a development gateway, once.
func developmentAINP(c config.AINP, dir string) (tainp.Identity, error) {
	if c.Key != "" {
		return ainpIdentity(c)
	}
	c.Key = filepath.Join(dir, ainpKeyFile)
	if _, err := os.Stat(c.Key); !errors.Is(err, fs.ErrNotExist) {
		return ainpIdentity(c)
	}
	_, key, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		return tainp.Identity{}, err
	}
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return tainp.Identity{}, err
	}
	if err := os.WriteFile(c.Key, pem.EncodeToMemory(&pem.Block{Type: pemKey, Bytes: der}), 0o600); err != nil {
		return tainp.Identity{}, err
	}
	return ainpIdentity(c)
}

// ainpPeer is what the operator says about an agent's signatures.
func (out *service) ainpPeer(name string) tainp.Peer {
	agent, _ := out.directory.Find(name)
	e, _ := agent.EndpointOf(ainp.Binding)
	peer := tainp.Peer{DID: e.DID, Unsigned: e.Signature == directory.SignatureNone}
	if e.Signature == directory.SignatureRaw {
		peer.Profile = ainp.SigRaw
	}
	return peer
}

// ainpCaller is the workload that a DID stands for.
func (out *service) ainpCaller(did string) (ect.Identity, bool) {
	id, ok := (*out.dids.Load())[did]
	return id, ok
}

// ainpNamed reports whether the operator names a DID, as a caller's or an agent's.
func (out *service) ainpNamed(did string) bool {
	if _, ok := out.ainpCaller(did); ok {
		return true
	}
	return slices.ContainsFunc(out.directory.List(), func(agent directory.Agent) bool {
		e, ok := agent.EndpointOf(ainp.Binding)
		return ok && e.DID == did
	})
}

// didDocuments fetches the documents of DIDs that the operator names. It has
// nothing of what is open toward agents, and shows no certificate: what a document
// says is for everyone.
type didDocuments struct{ guard *egress.Guard }

func (out *service) didDocuments() (didDocuments, error) {
	guard, err := egress.New(egress.Deps{TLS: withoutCertificate{out.settings.source}})
	if err != nil {
		return didDocuments{}, err
	}
	out.close = append(out.close, func() error { guard.CloseIdle(); return nil })
	return didDocuments{guard}, nil
}

// DoAs is transport.Client's. To name a DID is to say that its host may be asked, also
// at a private address, for as long as the request takes.
func (d didDocuments) DoAs(request *http.Request, expected ect.Identity) (*http.Response, error) {
	d.guard.Allow(request.URL.Host)
	defer d.guard.Disallow(request.URL.Host)
	return d.guard.DoAs(request, expected)
}

// withoutCertificate makes TLS configurations that show no client certificate.
type withoutCertificate struct{ source *identity.Source }

// ClientConfig is egress.ClientTLS's.
func (w withoutCertificate) ClientConfig(expected ect.Identity, roots ...*x509.Certificate) *tls.Config {
	conf := w.source.ClientConfig(expected, roots...)
	conf.GetClientCertificate = nil
	return conf
}

// connections are bounds of connections that stay open. On a development gateway,
// where all callers may be one, that one may have them all.
func (s settings) connections(b config.ConnectionBounds) config.ConnectionBounds {
	whole := s.config.Sockets(b)
	if s.dev && b.PerCaller == 0 {
		whole.PerCaller = whole.Total
	}
	if s.dev && b.PerAddress == 0 {
		whole.PerAddress = whole.Unidentified
	}
	return whole
}

// ainpReplays remembers AINP's messages where the uses of tokens are: that is
// shared by all replicas, and knows what it cannot know any more (R6).
type ainpReplays struct{ cache ect.ReplayCache }

// First: no issuer of tokens is called ainp.
func (r ainpReplays) First(ctx context.Context, key string, at, until time.Time) (bool, error) {
	name := ect.Hash([]byte(key))
	state, err := r.cache.Claim(ctx, ect.ReplayKey{Issuer: "ainp", ID: ect.ID(name)},
		ect.ReplayUse{Token: name, Issued: at, Until: until, Holder: transport.CallerFrom(ctx).ID})
	return state == ect.ReplayFresh, err
}
