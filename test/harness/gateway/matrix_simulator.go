package gatewaytest

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/aepb/aepb-gateway/cmd/release"
	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/ect/ecttest"
	"github.com/aepb/aepb-gateway/ect/identity"
	"github.com/aepb/aepb-gateway/ect/identity/credential"
	"github.com/aepb/aepb-gateway/gateway/config"
	"github.com/aepb/aepb-gateway/gateway/directory"
	"github.com/aepb/aepb-gateway/gateway/httpapi"
	"github.com/aepb/aepb-gateway/gateway/server"
	"github.com/aepb/aepb-gateway/gateway/state"
	"github.com/aepb/aepb-gateway/gateway/telemetry"
	"github.com/aepb/aepb-gateway/gateway/transport"
	ta2a "github.com/aepb/aepb-gateway/gateway/transport/a2a"
	"github.com/aepb/aepb-gateway/gateway/transport/egress"
	tslim "github.com/aepb/aepb-gateway/gateway/transport/slim"
	tuacp "github.com/aepb/aepb-gateway/gateway/transport/uacp"
	"github.com/aepb/aepb-gateway/policy"
	"github.com/aepb/aepb-gateway/policy/membership"
	"github.com/aepb/aepb-gateway/translators"
	"github.com/aepb/aepb-gateway/translators/a2a"
	"github.com/aepb/aepb-gateway/translators/ainp"
	"github.com/aepb/aepb-gateway/translators/canonical"
	"github.com/aepb/aepb-gateway/translators/mcp"
	"github.com/aepb/aepb-gateway/translators/slim"
	"github.com/aepb/aepb-gateway/translators/uacp"
)

// The agents that a simulator plays.
const (
	Player = "player" // takes messages
	adder  = "adder"  // takes two numbers
)

// Side is one protocol in one version and form.
type Side struct {
	Name          string
	Binding       canonical.Binding
	version, Form string
}

// Words is whose words a side uses.
func (s Side) Words(form translators.Translator) canonical.Binding {
	if c, ok := form.(translators.Tunneled); ok {
		return c.Carries(s.version)
	}
	return s.Binding
}

// formsOf are the wire forms of a protocol's version besides its first.
func formsOf(id canonical.Binding, version string) []string {
	switch {
	case id == a2a.Binding && version == a2a.Version:
		return []string{a2a.FormHTTP, a2a.FormGRPC}
	case id == a2a.Binding:
		return []string{a2a.FormHTTP}
	case id == slim.Binding && version == slim.VersionA2A:
		return []string{slim.FormRPC}
	case id == uacp.Binding:
		return []string{uacp.FormBare}
	case id == ainp.Binding:
		return []string{ainp.FormSocket}
	default:
		return nil
	}
}

// Simulator plays callers and agents of every protocol that a gateway speaks. What
// carries their messages is what carries the gateway's own, which peers made by
// others are tested with elsewhere: callers are dialers, agents stand behind
// endpoints and listeners. What agents do with a message is their own.
type Simulator struct {
	t         *testing.T
	conf      server.Config
	directory *directory.Directory
	guards    *server.Guards
	replays   ect.ReplayCache
	public    http.Handler
	tls       *tls.Config
	listeners []transport.Listener
	Stage     *Fixture // the gateway that is tried
	at        server.Addresses
	rpc       string // where agents are over gRPC
	adder     string // where the µACP agent of that name is: the protocol has no recipient

	ledger   *ledger // of the gateway
	List     map[canonical.Binding]server.Protocol
	order    []canonical.Binding
	Agents   *fakeAgents
	posts    *postbox
	signer   *ect.Signer
	recorder *ect.Recorder
	me       *ecttest.Party
	members  map[string]*tslim.Peer // who keep a session open, by the revision of MCP that they speak in it

	mu   sync.Mutex
	seen map[string]bool // agents that were found on the SLIM node
}

// NewSimulator starts one beside a gateway, which lists its agents.
func NewSimulator(t *testing.T, b *Fixture, also ...server.Factory) *Simulator {
	t.Helper()
	return NewSimulatorOf(t, b, b.SVID(t, "/troupe"), b.Slim, also...)
}

// NewSimulatorOf starts one with an identity; slim may be nil.
func NewSimulatorOf(t *testing.T, b *Fixture, who *identity.SVID, slimNet *SlimNet, also ...server.Factory) *Simulator {
	t.Helper()
	material := *b.Dev
	material.Gateway = who
	sockets := server.Sockets{Public: Listen(t), Admin: Listen(t), UACP: Listen(t), GRPC: Listen(t)}
	second := Listen(t)
	tr := &Simulator{t: t, Stage: b, ledger: newLedger(t, b), seen: map[string]bool{}, List: map[canonical.Binding]server.Protocol{}, members: map[string]*tslim.Peer{}}
	tr.at = sockets.Addresses()
	tr.adder = "uacps://" + second.Addr().String()
	tr.rpc = sockets.GRPC.Addr().String()
	own := config.Config{Listen: config.Listen{UACPAgent: Player}, Limits: b.Settings().Limits}
	if slimNet != nil {
		node := b.Settings().SLIM.Nodes[0]
		node.Namespace = "troupe"
		own.SLIM.Nodes = []config.SLIMNode{node}
		for _, revision := range []string{mcp.Legacy, mcp.LegacyJune, mcp.LegacyMarch, mcp.LegacyFirst} {
			tr.members[slim.VersionMCP(revision)] = slimNet.Join(t, "org/troupe/of-"+revision, nil)
		}
	}
	var err error
	tr.conf, err = server.Development(server.DevelopmentDeps{
		Material: &material, Settings: own, Sockets: sockets, Dir: t.TempDir(), Logger: telemetry.NewLogger(b.Logs, own.LogLevel()),
	})
	Must(t, err)
	tr.conf.Factories = also
	tr.tls = tr.conf.Identity.Source.ServerConfig()
	tr.build(t)
	tr.posts = newPostbox(t, b)
	tr.me = b.Party(t, material.Gateway)
	tr.signer, err = ect.NewSigner(ect.SignerDeps{Key: material.Gateway.Key, Chain: material.Gateway.Chain, Issuer: material.Gateway.ID, Now: time.Now})
	Must(t, err)
	tr.perform(t, sockets, second)
	return tr
}

// build makes the protocols, and what they need.
func (tr *Simulator) build(t *testing.T) {
	t.Helper()
	s := tr.conf
	memory, err := state.New(s.Settings.StateBounds(), state.Deps{Now: time.Now})
	Must(t, err)
	tr.replays = memory
	tr.recorder, err = ect.NewRecorder(ect.RecorderDeps{Store: memory})
	Must(t, err)
	guard, err := egress.New(egress.Deps{TLS: s.Identity.Source, Config: egress.Config{AllowLoopbackHTTP: true, AllowPrivate: []string{"127.0.0.0/8"}}})
	Must(t, err)
	tr.guards = &server.Guards{Agents: guard, Webhooks: guard}
	env := server.Env{
		Config: s, Guards: tr.guards, Keeper: server.Keeper{Entries: memory.Entries()}, Replays: memory, TLS: tr.tls,
		Find:        func(agent string) (directory.Agent, bool) { return tr.directory.Find(agent) },
		List:        func() []directory.Agent { return tr.directory.List() },
		DIDs:        func() map[string]ect.Identity { return nil },
		Refusals:    func(string) *telemetry.Refusals { return nil },
		ByReference: func(canonical.Binding, string) {},
	}
	describers, codecs := map[canonical.Binding]transport.Describer{}, []translators.Translator{}
	for _, factory := range append(server.Protocols(), s.Factories...) {
		p, err := factory(env)
		Must(t, err)
		id := p.Codec.Info().Binding
		tr.List[id], tr.order, describers[id], codecs = p, append(tr.order, id), p.Dialer, append(codecs, p.Codec)
		if p.Listener != nil {
			tr.listeners = append(tr.listeners, p.Listener)
		}
	}
	registry, err := translators.NewRegistry(codecs...)
	Must(t, err)
	tr.directory, err = directory.New(directory.Deps{Describers: describers, Egress: guard, PlainLoopback: true, Now: time.Now, Logger: s.Logger})
	Must(t, err)
	tr.Agents = &fakeAgents{simulator: tr, jobs: map[string]*Work{}, callbacks: map[string]string{}, decided: map[string]bool{}, Counted: map[string]int{}, answers: map[string][]string{}}
	endpoints := httpapi.Endpoints{}
	for _, p := range tr.List {
		if p.Endpoints != nil {
			maps.Copy(endpoints, p.Endpoints(tr.Agents))
		}
	}
	members, err := membership.New(membership.Deps{Store: memory, Self: s.Identity.SVID.ID})
	Must(t, err)
	callers := httpapi.Callers{Anonymous: s.Anonymous()}
	tr.public, err = httpapi.Public(httpapi.PublicDeps{
		EvidenceDeps: httpapi.EvidenceDeps{Evidence: memory, Members: members},
		Capability:   httpapi.Capability{Self: s.Identity.SVID.ID, Version: release.Current().Version}, Callers: callers,
		Handler: tr.Agents, Undo: httpapi.Undo{Rollbacker: tr.Agents}, Registry: registry,
		Endpoints: endpoints, BaseURL: s.BaseURL, Logger: s.Logger,
	})
	Must(t, err)
	overGRPC, err := ta2a.NewListener(ta2a.ListenerDeps{
		Form: tr.List[a2a.Binding].Codec, Accept: s.Sockets.GRPC, TLS: tr.tls, Session: s.Identity.Source.Session, Logger: s.Logger, GRPC: tr.rpc,
		AgentURL: func(agent string) string { return tr.at.Public + "/agents/" + agent },
		Identify: func(ctx context.Context, a ta2a.Arrival) context.Context {
			marked, _ := callers.Identify(ctx, a.TLS, a.Remote, credential.Request{Fields: a.Fields, Target: "https://" + tr.rpc + a.Method})
			return marked
		},
	})
	Must(t, err)
	tr.listeners = append(tr.listeners, overGRPC)
}

// perform serves until the test ends.
func (tr *Simulator) perform(t *testing.T, sockets server.Sockets, second net.Listener) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	var group sync.WaitGroup
	web := tr.webServer()
	group.Go(func() { _ = web.ServeTLS(sockets.Public, "", "") })
	adds, err := tuacp.NewListener(tuacp.ListenerDeps{Form: tr.List[uacp.Binding].Codec, TLS: tr.tls, Net: second, Agent: adder})
	Must(t, err)
	for _, listener := range append(tr.listeners, adds) {
		group.Go(func() {
			if err := listener.Serve(ctx, tr.Agents); err != nil {
				t.Errorf("a listener of the troupe: %v", err)
			}
		})
	}
	t.Cleanup(func() {
		for _, p := range tr.List {
			if p.Drain != nil {
				p.Drain()
			}
		}
		tr.Agents.release()
		if err := errors.Join(web.Close(), sockets.Admin.Close()); err != nil {
			t.Error(err)
		}
		cancel()
		group.Wait()
		for _, p := range tr.List {
			if p.Close != nil {
				Must(t, p.Close())
			}
		}
		tr.guards.Agents.CloseIdle()
	})
	t.Cleanup(tr.Agents.release)
}

// webServer is the server of agents over HTTP.
func (tr *Simulator) webServer() *http.Server {
	sessions := httpapi.NewSessions(tr.conf.Identity.Source)
	return &http.Server{
		Handler: sessions.Handler(tr.faces()), ConnState: sessions.State, ConnContext: sessions.Conn, TLSConfig: tr.tls.Clone(),
		ReadHeaderTimeout: Patience, ErrorLog: slog.NewLogLogger(slog.DiscardHandler, slog.LevelDebug),
	}
}

// faces serves the endpoints. An agent that is asked for in one form alone names that
// one alone on its card: player.HTTP+JSON.
func (tr *Simulator) faces() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		agent, below, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/agents/"), "/")
		_, form, _ := strings.Cut(agent, ".")
		if !strings.HasSuffix(below, "agent-card.json") || form == "" {
			tr.public.ServeHTTP(w, r)
			return
		}
		recorded := &keptAnswer{header: http.Header{}}
		tr.public.ServeHTTP(recorded, r)
		codec := tr.List[a2a.Binding].Codec
		m, err := codec.Decode(translators.Wire{Binding: a2a.Binding, Body: recorded.body, Re: canonical.OpDescribe})
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		description, _ := m.Body.(*canonical.Description)
		var only []canonical.Interface
		for _, i := range description.Interfaces {
			if i.Transport == form {
				only = append(only, i)
			}
		}
		description.Interfaces = only
		m.Origin = canonical.Origin{}
		wire, _, err := codec.Encode(m, translators.Target{})
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		w.Header().Set("Content-Type", a2a.Media)
		_, _ = w.Write(wire.Body)
	})
}

// keptAnswer is a response that nobody has been sent yet.
type keptAnswer struct {
	header http.Header
	body   []byte
}

func (k *keptAnswer) Header() http.Header { return k.header }
func (k *keptAnswer) WriteHeader(int)     {}
func (k *keptAnswer) Write(b []byte) (int, error) {
	k.body = append(k.body, b...)
	return len(b), nil
}

// Sides are all that callers speak: every version of every protocol, in every form.
func (tr *Simulator) Sides() []Side {
	var out []Side
	for _, id := range tr.order {
		info := tr.List[id].Codec.Info()
		short, _, _ := strings.Cut(string(id), "-")
		for _, version := range info.Versions {
			name := short
			if len(info.Versions) > 1 {
				name += "@" + version
			}
			out = append(out, Side{name, id, version, ""})
			for _, form := range formsOf(id, version) {
				out = append(out, Side{name + "+" + strings.ToLower(form), id, version, form})
			}
		}
	}
	return out
}

// Hires lists the agents of a side with the gateway; false: no agent is reached so.
func (tr *Simulator) Hires(t *testing.T, s Side) bool {
	t.Helper()
	if s.Binding == slim.Binding && s.version == slim.VersionA2A && s.Form == "" {
		return false // an agent with a card is reached on SLIMRPC
	}
	for _, name := range []string{Player, adder} {
		e := directory.Endpoint{Binding: s.Binding, Version: s.version}
		spoken := name
		if s.Form != "" && s.Binding == a2a.Binding {
			spoken += "." + s.Form
		}
		switch s.Binding {
		case uacp.Binding:
			e.URL, e.Version, e.Form = tr.at.UACP, "", s.Form
			if name == adder {
				e.URL = tr.adder
			}
		case slim.Binding:
			e.URL = "slim://" + tr.Stage.Slim.At + "/org/troupe/" + name
		case ainp.Binding:
			e.Version, e.URL = "", tr.at.Public+"/agents/"+spoken+"/ainp"
			if s.Form == ainp.FormSocket {
				e.URL = "wss" + strings.TrimPrefix(e.URL, "https")
			}
		default:
			if s.Form == a2a.FormGRPC {
				e.GRPC, spoken = tr.rpc, name
			}
			short, _, _ := strings.Cut(string(s.Binding), "-")
			e.URL = tr.at.Public + "/agents/" + url.PathEscape(spoken) + "/" + short
		}
		Must(t, tr.Stage.Directory().Put(directory.Agent{ // nothing ends because it takes long
			Name: tr.Listed(s, name), ID: tr.conf.Identity.SVID.ID, Timeout: 2 * PatienceOfPlays, Rules: policy.Rules{Open: true}, Endpoints: []directory.Endpoint{e},
		}))
		Must(t, tr.directory.Put(directory.Agent{Name: name, Rules: policy.Rules{Open: true}, Endpoints: []directory.Endpoint{{Binding: a2a.Binding, URL: tr.at.Public}}}))
	}
	return true
}

// Listed is the name of an agent of a side at the gateway.
func (tr *Simulator) Listed(s Side, name string) string {
	return strings.NewReplacer("@", "-", "+", "-", "/", "-", ".", "-").Replace(s.Name) + "-" + name
}

// endpoint is where callers of a side find an agent of the gateway.
func (tr *Simulator) endpoint(s Side, agent string) transport.Endpoint {
	ep := transport.Endpoint{
		Agent: agent, ID: tr.Stage.Dev.Gateway.ID, Binding: s.Binding, Version: s.version, Form: s.Form,
		Caller: tr.conf.Identity.SVID.ID, AnswerModes: []canonical.Mode{canonical.ModeText, canonical.ModeForm}, Timeout: Patience,
	}
	short, _, _ := strings.Cut(string(s.Binding), "-")
	ep.URL = tr.Stage.At.Public + "/agents/" + agent + "/" + short
	switch {
	case s.Form == a2a.FormGRPC:
		ep.URL = "https://" + tr.Stage.RPC
	case s.Form == ainp.FormSocket:
		ep.URL = "wss" + strings.TrimPrefix(ep.URL, "https")
	case s.Binding == uacp.Binding:
		ep.URL = strings.Replace(tr.Stage.At.UACP, "127.0.0.1", agent+".localhost", 1)
	case s.Binding == slim.Binding:
		ep.URL = "slim://" + tr.Stage.Slim.At + "/org/gw/" + agent
	}
	tr.guards.Agents.Allow(strings.TrimPrefix(tr.Stage.At.Public, "https://"))
	tr.guards.Agents.Allow(tr.Stage.RPC)
	return ep
}

// dialer is how callers of a protocol call.
func (tr *Simulator) dialer(t *testing.T, id canonical.Binding) interface {
	transport.Dialer
	transport.Describer
} {
	t.Helper()
	if id != uacp.Binding {
		return tr.List[id].Dialer
	}
	d, err := tuacp.NewDialer(tuacp.DialerDeps{Network: byName{tr.guards.Agents, tr}, Form: tr.List[id].Codec})
	Must(t, err)
	return d
}

// byName connects to the gateway under the name of one of its agents.
type byName struct {
	*egress.Guard
	tr *Simulator
}

// DialTLS is tuacp.Network's.
func (n byName) DialTLS(ctx context.Context, hostport string, _ ect.Identity, protocols ...string) (*tls.Conn, error) {
	host, port, err := net.SplitHostPort(hostport)
	if err != nil {
		return nil, err
	}
	conf := n.tr.conf.Identity.Source.ClientConfig(n.tr.Stage.Dev.Gateway.ID)
	conf.ServerName, conf.NextProtos = host, protocols
	conn, err := (&tls.Dialer{Config: conf}).DialContext(ctx, "tcp", net.JoinHostPort("127.0.0.1", port))
	if err != nil {
		return nil, err
	}
	return conn.(*tls.Conn), nil
}

// own is a raw id of a message.
func own(id ect.ID) json.RawMessage { return json.RawMessage(`"` + string(id) + `"`) }
