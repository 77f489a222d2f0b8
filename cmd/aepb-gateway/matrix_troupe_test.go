package main

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
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/ect/ecttest"
	"github.com/aepb/aepb-gateway/ect/identity"
	"github.com/aepb/aepb-gateway/gateway/config"
	"github.com/aepb/aepb-gateway/gateway/directory"
	"github.com/aepb/aepb-gateway/gateway/httpapi"
	"github.com/aepb/aepb-gateway/gateway/transport"
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

// The agents that a troupe plays.
const (
	player = "player" // takes messages
	adder  = "adder"  // takes two numbers
)

// side is one protocol in one version and form.
type side struct {
	name          string
	binding       canonical.Binding
	version, form string
}

// words is whose words a side uses.
func (s side) words(form translators.Translator) canonical.Binding {
	if c, ok := form.(translators.Tunneled); ok {
		return c.Carries(s.version)
	}
	return s.binding
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

// troupe plays callers and agents of every protocol that a gateway speaks. What
// carries their messages is what carries the gateway's own, which peers made by
// others are tested with elsewhere: callers are dialers, agents stand behind
// doors and listeners. What agents do with a message is their own.
type troupe struct {
	*service
	t     *testing.T
	stage *bed // the gateway that is tried
	at    addresses
	rpc   string // where agents are over gRPC
	adder string // where the µACP agent of that name is: the protocol has no recipient

	ledger   *ledger // of the gateway
	list     map[canonical.Binding]protocol
	order    []canonical.Binding
	agents   *cast
	posts    *postbox
	signer   *ect.Signer
	recorder *ect.Recorder
	me       *ecttest.Party
	members  map[string]*tslim.Peer // who keep a session open, by the revision of MCP that they speak in it

	mu   sync.Mutex
	seen map[string]bool // agents that were found on the SLIM node
}

// newTroupe starts one beside a gateway, which lists its agents.
func newTroupe(t *testing.T, b *bed, also ...protocolFactory) *troupe {
	t.Helper()
	return newTroupeOf(t, b, b.svid(t, "/troupe"), b.slim, also...)
}

// newTroupeOf starts one with an identity; slim may be nil.
func newTroupeOf(t *testing.T, b *bed, who *identity.SVID, slimNet *slimNet, also ...protocolFactory) *troupe {
	t.Helper()
	material := *b.dev
	material.Gateway = who
	public, inner, second := listen(t), listen(t), listen(t)
	tr := &troupe{t: t, stage: b, ledger: newLedger(t, b), seen: map[string]bool{}, list: map[canonical.Binding]protocol{}, members: map[string]*tslim.Peer{}}
	tr.at = addresses{Public: "https://" + public.Addr().String(), UACP: "uacps://" + inner.Addr().String()}
	tr.adder = "uacps://" + second.Addr().String()
	own := config.Config{Listen: config.Listen{UACPAgent: player}, Limits: b.settings.config.Limits}
	if slimNet != nil {
		node := b.settings.config.SLIM.Nodes[0]
		node.Namespace = "troupe"
		own.SLIM.Nodes = []config.SLIMNode{node}
		for _, revision := range []string{mcp.Legacy, mcp.LegacyJune, mcp.LegacyMarch, mcp.LegacyFirst} {
			tr.members[slim.VersionMCP(revision)] = slimNet.join(t, "org/troupe/of-"+revision, nil)
		}
	}
	s, err := devSettings(&material, own, tr.at, "", b.logs)
	must(t, err)
	s.ainp, err = developmentAINP(config.AINP{}, t.TempDir())
	must(t, err)
	s.slim, err = readSLIM(own.SLIM)
	must(t, err)
	s.grpc, s.uacp, s.also = listen(t), inner, also
	tr.rpc = s.grpc.Addr().String()
	tr.service = &service{settings: s, logger: s.logger, source: s.source, tls: s.source.ServerConfig()}
	tr.operate(own)
	tr.peers.Store(&own.Peers)
	tr.build(t)
	tr.posts = newPostbox(t, b)
	tr.me = b.party(t, material.Gateway)
	tr.signer, err = ect.NewSigner(ect.SignerDeps{Key: s.svid.Key, Chain: s.svid.Chain, Issuer: s.svid.ID, Now: time.Now})
	must(t, err)
	tr.perform(t, public, second)
	return tr
}

// build makes the protocols, and what they need.
func (tr *troupe) build(t *testing.T) {
	t.Helper()
	s := tr.settings
	state, err := openState(s)
	must(t, err)
	tr.replay, tr.entries = state.replay, state.entries
	tr.recorder, err = ect.NewRecorder(ect.RecorderDeps{Store: state.evidence})
	must(t, err)
	tr.guards.agents, err = egress.New(egress.Deps{TLS: s.source, Config: egress.Config{AllowLoopbackHTTP: true, AllowPrivate: []string{"127.0.0.0/8"}}})
	must(t, err)
	list, err := tr.speak()
	must(t, err)
	registry, network, err := index(list)
	must(t, err)
	tr.directory, err = directory.New(directory.Deps{Describers: network.Describers, Egress: tr.guards.agents, PlainLoopback: true, Now: time.Now, Logger: s.logger})
	must(t, err)
	for _, p := range list {
		id := p.form.Info().Binding
		tr.list[id], tr.order = p, append(tr.order, id)
	}
	tr.agents = &cast{troupe: tr, jobs: map[string]*work{}, callbacks: map[string]string{}, decided: map[string]bool{}, said: map[string]int{}, answers: map[string][]string{}}
	doors := httpapi.Endpoints{}
	for _, p := range list {
		if p.endpoints == nil {
			continue
		}
		maps.Copy(doors, p.endpoints(tr.agents))
	}
	members, err := membership.New(membership.Deps{Store: state.evidence, Self: s.svid.ID})
	must(t, err)
	tr.public, err = httpapi.Public(httpapi.PublicDeps{
		EvidenceDeps: httpapi.EvidenceDeps{Evidence: state.evidence, Members: members},
		Capability:   httpapi.Capability{Self: s.svid.ID, Version: version()}, Callers: httpapi.Callers{Anonymous: s.anonymous()},
		Handler: tr.agents, Undo: httpapi.Undo{Rollbacker: tr.agents}, Registry: registry,
		Endpoints: doors, BaseURL: s.baseURL, Logger: s.logger,
	})
	must(t, err)
	form, _ := registry.Translator(a2a.Binding)
	must(t, tr.bound(s))
	must(t, tr.overGRPC(s, form, httpapi.Callers{Anonymous: s.anonymous()}))
}

// perform serves until the test ends.
func (tr *troupe) perform(t *testing.T, public, second net.Listener) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	var group sync.WaitGroup
	server := tr.server(tr.faces(), slog.DiscardHandler)
	group.Go(func() { _ = server.ServeTLS(public, "", "") })
	adds, err := tuacp.NewListener(tuacp.ListenerDeps{Form: tr.list[uacp.Binding].form, TLS: tr.tls, Net: second, Agent: adder})
	must(t, err)
	for _, listener := range append(slices.Collect(maps.Values(tr.listeners)), tr.grpc, adds) {
		group.Go(func() {
			if err := listener.Serve(ctx, tr.agents); err != nil {
				t.Errorf("a listener of the troupe: %v", err)
			}
		})
	}
	t.Cleanup(func() {
		for _, drain := range tr.drain {
			drain()
		}
		tr.agents.release()
		if err := errors.Join(server.Close()); err != nil {
			t.Error(err)
		}
		cancel()
		group.Wait()
		tr.guards.agents.CloseIdle()
		must(t, tr.shut())
	})
	t.Cleanup(tr.agents.release)
}

// faces serves the doors. An agent that is asked for in one form alone names that
// one alone on its card: player.HTTP+JSON.
func (tr *troupe) faces() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		agent, below, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/agents/"), "/")
		_, form, _ := strings.Cut(agent, ".")
		if !strings.HasSuffix(below, "agent-card.json") || form == "" {
			tr.public.ServeHTTP(w, r)
			return
		}
		kept := &keptAnswer{header: http.Header{}}
		tr.public.ServeHTTP(kept, r)
		codec := tr.list[a2a.Binding].form
		m, err := codec.Decode(translators.Wire{Binding: a2a.Binding, Body: kept.body, Re: canonical.OpDescribe})
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		said, _ := m.Body.(*canonical.Description)
		var only []canonical.Interface
		for _, i := range said.Interfaces {
			if i.Transport == form {
				only = append(only, i)
			}
		}
		said.Interfaces = only
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

// sides are all that callers speak: every version of every protocol, in every form.
func (tr *troupe) sides() []side {
	var out []side
	for _, id := range tr.order {
		info := tr.list[id].form.Info()
		short, _, _ := strings.Cut(string(id), "-")
		for _, version := range info.Versions {
			name := short
			if len(info.Versions) > 1 {
				name += "@" + version
			}
			out = append(out, side{name, id, version, ""})
			for _, form := range formsOf(id, version) {
				out = append(out, side{name + "+" + strings.ToLower(form), id, version, form})
			}
		}
	}
	return out
}

// hires lists the agents of a side with the gateway; false: no agent is reached so.
func (tr *troupe) hires(t *testing.T, s side) bool {
	t.Helper()
	if s.binding == slim.Binding && s.version == slim.VersionA2A && s.form == "" {
		return false // an agent with a card is reached on SLIMRPC
	}
	for _, name := range []string{player, adder} {
		e := directory.Endpoint{Binding: s.binding, Version: s.version}
		spoken := name
		if s.form != "" && s.binding == a2a.Binding {
			spoken += "." + s.form
		}
		switch s.binding {
		case uacp.Binding:
			e.URL, e.Version, e.Form = tr.at.UACP, "", s.form
			if name == adder {
				e.URL = tr.adder
			}
		case slim.Binding:
			e.URL = "slim://" + tr.stage.slim.at + "/org/troupe/" + name
		case ainp.Binding:
			e.Version, e.URL = "", tr.at.Public+"/agents/"+spoken+"/ainp"
			if s.form == ainp.FormSocket {
				e.URL = "wss" + strings.TrimPrefix(e.URL, "https")
			}
		default:
			if s.form == a2a.FormGRPC {
				e.GRPC, spoken = tr.rpc, name
			}
			short, _, _ := strings.Cut(string(s.binding), "-")
			e.URL = tr.at.Public + "/agents/" + url.PathEscape(spoken) + "/" + short
		}
		must(t, tr.stage.directory.Put(directory.Agent{ // nothing ends because it takes long
			Name: tr.listed(s, name), ID: tr.settings.svid.ID, Timeout: 2 * patienceOfPlays, Rules: policy.Rules{Open: true}, Endpoints: []directory.Endpoint{e},
		}))
		must(t, tr.directory.Put(directory.Agent{Name: name, Rules: policy.Rules{Open: true}, Endpoints: []directory.Endpoint{{Binding: a2a.Binding, URL: tr.at.Public}}}))
	}
	return true
}

// listed is the name of an agent of a side at the gateway.
func (tr *troupe) listed(s side, name string) string {
	return strings.NewReplacer("@", "-", "+", "-", "/", "-", ".", "-").Replace(s.name) + "-" + name
}

// door is where callers of a side find an agent of the gateway.
func (tr *troupe) door(s side, agent string) transport.Endpoint {
	ep := transport.Endpoint{
		Agent: agent, ID: tr.stage.dev.Gateway.ID, Binding: s.binding, Version: s.version, Form: s.form,
		Caller: tr.settings.svid.ID, AnswerModes: []canonical.Mode{canonical.ModeText, canonical.ModeForm}, Timeout: patience,
	}
	short, _, _ := strings.Cut(string(s.binding), "-")
	ep.URL = tr.stage.at.Public + "/agents/" + agent + "/" + short
	switch {
	case s.form == a2a.FormGRPC:
		ep.URL = "https://" + tr.stage.rpc
	case s.form == ainp.FormSocket:
		ep.URL = "wss" + strings.TrimPrefix(ep.URL, "https")
	case s.binding == uacp.Binding:
		ep.URL = strings.Replace(tr.stage.at.UACP, "127.0.0.1", agent+".localhost", 1)
	case s.binding == slim.Binding:
		ep.URL = "slim://" + tr.stage.slim.at + "/org/gw/" + agent
	}
	tr.guards.agents.Allow(strings.TrimPrefix(tr.stage.at.Public, "https://"))
	tr.guards.agents.Allow(tr.stage.rpc)
	return ep
}

// dialer is how callers of a protocol call.
func (tr *troupe) dialer(t *testing.T, id canonical.Binding) interface {
	transport.Dialer
	transport.Describer
} {
	t.Helper()
	if id != uacp.Binding {
		return tr.list[id].dialer
	}
	d, err := tuacp.NewDialer(tuacp.DialerDeps{Network: byName{tr.guards.agents, tr}, Form: tr.list[id].form})
	must(t, err)
	return d
}

// byName connects to the gateway under the name of one of its agents.
type byName struct {
	*egress.Guard
	tr *troupe
}

// DialTLS is tuacp.Network's.
func (n byName) DialTLS(ctx context.Context, hostport string, _ ect.Identity, protocols ...string) (*tls.Conn, error) {
	host, port, err := net.SplitHostPort(hostport)
	if err != nil {
		return nil, err
	}
	conf := n.tr.settings.source.ClientConfig(n.tr.stage.dev.Gateway.ID)
	conf.ServerName, conf.NextProtos = host, protocols
	conn, err := (&tls.Dialer{Config: conf}).DialContext(ctx, "tcp", net.JoinHostPort("127.0.0.1", port))
	if err != nil {
		return nil, err
	}
	return conn.(*tls.Conn), nil
}

// own is a raw id of a message.
func own(id ect.ID) json.RawMessage { return json.RawMessage(`"` + string(id) + `"`) }
