package demo

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"

	"github.com/a2aproject/a2a-go/v2/a2a"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/aepb/aepb-gateway/cmd/aepb-gateway/demo/peers"
	"github.com/aepb/aepb-gateway/ect/identity"
	"github.com/aepb/aepb-gateway/translators/uacp"
)

// Agent is one agent that the demo wants the gateway to know.
type Agent struct {
	Name, Binding, URL string
	SVID               *identity.SVID
}

// Deps is what the demo needs. Start starts a gateway that knows the agents
// and answers with its public URL.
type Deps struct {
	Development *identity.Development
	Start       func(context.Context, []Agent) (publicURL string, err error)
	Bookings    bool // the MCP server has the tools of a booking office, too, and the dock is there
}

// Exchange is one message and all that is known about it.
type Exchange struct {
	From       string          `json:"from"`
	To         string          `json:"to"`
	Request    json.RawMessage `json:"request"`    // what the client's SDK sent
	Translated json.RawMessage `json:"translated"` // what the other side received
	Reply      json.RawMessage `json:"reply"`      // what the client's SDK got
	Losses     []string        `json:"losses"`
	ECTs       []string        `json:"ects"` // compact, oldest first
	summary    string
}

// Report is what the demo saw. OK: every exchange went through and all of its
// evidence held.
type Report struct {
	OK          bool            `json:"ok"`
	Exchanges   []Exchange      `json:"exchanges"`
	TrustBundle json.RawMessage `json:"trust_bundle"`
	Public      string          `json:"-"`
}

// Stage is the running peers.
type Stage struct {
	deps      Deps
	agent     *peers.A2AAgent
	tools     *peers.MCPServer
	dock      *dock // nil: there is none
	publicURL string
}

// Open starts the peers and the gateway between them.
func Open(ctx context.Context, deps Deps) (*Stage, error) {
	s := &Stage{deps: deps}
	concierge, err := s.serving("concierge")
	if err != nil {
		return nil, err
	}
	calculator, err := s.serving("calculator")
	if err != nil {
		return nil, err
	}
	if s.agent, err = peers.NewA2AAgent(ctx, peers.Deps{TLS: config(concierge)}); err != nil {
		return nil, err
	}
	also := func(*mcp.Server) {}
	if deps.Bookings {
		also = addBookings
	}
	s.tools, err = peers.NewMCPServer(ctx, peers.MCPDeps{Deps: peers.Deps{TLS: config(calculator)}, Stateless: true, ID: string(calculator.ID), Also: also})
	if err != nil {
		return nil, errors.Join(err, s.agent.Stop(ctx))
	}
	agents := []Agent{
		{Name: "concierge", Binding: "a2a-v1", URL: s.agent.URL(), SVID: concierge},
		{Name: "calculator", Binding: "mcp-v1", URL: s.tools.URL(), SVID: calculator},
	}
	if deps.Bookings {
		svid, err := s.serving(DockName)
		if err == nil {
			s.dock, err = newDock(ctx, svid)
		}
		if err != nil {
			return nil, errors.Join(err, s.Close(ctx))
		}
		agents = append(agents, Agent{Name: DockName, Binding: string(uacp.Binding), URL: s.dock.url(), SVID: svid})
	}
	s.publicURL, err = deps.Start(ctx, agents)
	if err != nil {
		return nil, errors.Join(err, s.Close(ctx))
	}
	return s, nil
}

// Close stops the peers.
func (s *Stage) Close(ctx context.Context) error {
	err := errors.Join(s.agent.Stop(ctx), s.tools.Stop(ctx))
	if s.dock != nil {
		err = errors.Join(err, s.dock.stop())
	}
	return err
}

func (s *Stage) serving(name string) (*identity.SVID, error) {
	return s.deps.Development.Authority.Issue("/agents/"+name, identity.SVIDRequest{
		DNSNames: []string{"localhost"}, IPs: []net.IP{net.IPv4(127, 0, 0, 1), net.IPv6loopback},
	})
}

func config(svid *identity.SVID) *tls.Config {
	return &tls.Config{Certificates: []tls.Certificate{svid.Certificate()}, MinVersion: tls.VersionTLS13}
}

// Play runs both exchanges and checks their evidence.
func (s *Stage) Play(ctx context.Context) (Report, error) {
	bundle, err := s.deps.Development.Bundle.MarshalJWKS()
	if err != nil {
		return Report{}, err
	}
	report := Report{Exchanges: []Exchange{}, TrustBundle: bundle, Public: s.publicURL}
	for _, scene := range []func(context.Context, *tape) (Exchange, error){s.sum, s.ask} {
		tape, err := s.newTape()
		if err != nil {
			return report, err
		}
		exchange, err := scene(ctx, tape)
		if err != nil {
			return report, err
		}
		if exchange, err = s.check(ctx, exchange, tape); err != nil {
			return report, fmt.Errorf("%s to %s: %w", exchange.From, exchange.To, err)
		}
		report.Exchanges = append(report.Exchanges, exchange)
	}
	report.OK = true
	return report, nil
}

// sum has an A2A client use the MCP server's tool, with an integer that no
// double can hold.
func (s *Stage) sum(ctx context.Context, t *tape) (Exchange, error) {
	const want = "18014398509481989"
	input := map[string]any{"skill": "add", "input": map[string]json.Number{"a": "9007199254740993", "b": "9007199254740996"}}
	message := a2a.NewMessage(a2a.MessageRoleUser, a2a.NewDataPart(input))
	reply, err := peers.A2ACall(ctx, &http.Client{Transport: t}, s.publicURL+"/agents/calculator", message)
	if err != nil {
		return Exchange{}, fmt.Errorf("A2A client: %w", err)
	}
	exchange := Exchange{
		From: "a2a-v1", To: "mcp-v1", Translated: last(s.tools.Received()).Body,
		summary: "An A2A client used an MCP server: add 9007199254740993 and 9007199254740996",
	}
	if !contains(t.reply, want) {
		return exchange, fmt.Errorf("the sum %s is not in the reply (task %s)", want, reply.State())
	}
	return exchange, nil
}

// ask has an MCP client use the A2A agent.
func (s *Stage) ask(ctx context.Context, t *tape) (Exchange, error) {
	const text = "A museum < 1 km & open? Un musée près d'ici ? 🏛"
	args, err := json.Marshal(map[string]string{"message": text})
	if err != nil {
		return Exchange{}, err
	}
	reply, err := peers.MCPCall(ctx, &http.Client{Transport: t}, s.publicURL+"/agents/concierge/mcp", false, "concierge", args)
	if err != nil {
		return Exchange{}, fmt.Errorf("MCP client: %w", err)
	}
	exchange := Exchange{
		From: "mcp-v1", To: "a2a-v1", Translated: last(s.agent.Received()).Body,
		summary: "An MCP client asked an A2A agent a question",
	}
	if reply.Result.IsError || reply.Text() != "You said: "+text {
		return exchange, errors.New("the agent's answer did not come back")
	}
	return exchange, nil
}
