package gatewaytest

import (
	"bytes"
	"context"
	"maps"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/aepb/aepb-gateway/cmd/aepb-gateway/demo/peers"
	"github.com/aepb/aepb-gateway/cmd/release"
	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/ect/ecttest"
	"github.com/aepb/aepb-gateway/ect/identity"
	"github.com/aepb/aepb-gateway/gateway/config"
	"github.com/aepb/aepb-gateway/gateway/server"
	"github.com/aepb/aepb-gateway/gateway/telemetry"
	tainp "github.com/aepb/aepb-gateway/gateway/transport/ainp"
)

// AsGateway in the environment makes the test binary the gateway itself, so that tests
// can send signals to a process of its own.
const AsGateway = "AEPB_TEST_AS_GATEWAY"

// TrustDomain is that of development gateways.
const TrustDomain = "aepb.dev"

// Secret stands in every message. Neither a refusal nor a log may repeat it.
const Secret = "swordfish"

// shortGrace is how long what is under way may last when a test ends.
const shortGrace = 500 * time.Millisecond

// Patience bounds what a test waits for.
const Patience = 30 * time.Second

// Fixture is a running gateway on real TLS listeners, with two good agents behind
// it (an MCP server and an A2A agent, both made with the protocols' SDKs) and
// callers of every kind in front.
type Fixture struct {
	*server.Server
	Conf       server.Config // as it was built
	AINP       tainp.Identity
	Env        server.Env    // what the gateway has for its protocols
	Stored     server.Stored // what it stores
	ledger     *ledger       // of what the gateway stores
	Dev        *identity.Development
	Dir        string // of dev
	At         server.Addresses
	RPC        string // where A2A is served over gRPC
	AdminToken string
	Logs       *Journal
	End        context.CancelFunc // begins the stop of the service
	Stop       func()             // ends the service and waits for that

	Me        *ecttest.Party // the development client
	Client    *http.Client   // shows its SVID
	Anonymous *http.Client   // shows no certificate
	Judge     *ect.Verifier  // verifies what the gateway signed

	Tools   *peers.MCPServer // "calculator", and "forecast" with the one tool weather
	Talker  *peers.A2AAgent  // "concierge"
	Counter atomic.Int64

	Slim *SlimNet // nil: there is none
}

// Plan says what is special about a gateway.
type Plan struct {
	Observe func(*server.Stored) // sees what the gateway stores before the gateway does; nil: the ledger alone
	Config  config.Config        // agents besides the good ones, limits, policy
	Serve   bool                 // as serve would run it, not dev: no anonymous callers, no plain HTTP

	Clock func() time.Time // of circuit breakers; nil: that of the machine

	NoToken bool // operators show certificates
	NoAINP  bool // AINP is not spoken

	Also []server.Factory // protocols beside the known
}

// NewFixture starts a gateway by a plan, with its good agents and callers. All of it stops when the test ends, or
// the tests with which a [Lasting] ends; the test fails if something does not start, or the gateway does not stop cleanly.
func NewFixture(t testing.TB, p Plan) *Fixture {
	t.Helper()
	b := &Fixture{ledger: &ledger{tasks: map[string]bool{}}, Logs: &Journal{}, AdminToken: "the-operators-own-token-26-x", Dir: t.TempDir()}
	var err error
	b.Dev, err = identity.LoadOrCreate(b.Dir, TrustDomain, time.Now)
	Must(t, err)
	b.goodAgents(t, &p.Config)
	if p.Config.Admin.Operators == nil {
		p.Config.Admin.Operators = approvers()
	}
	if p.Config.ShutdownDelay == nil && p.Config.ShutdownGrace == 0 { // agents of tests may never end
		p.Config.ShutdownDelay, p.Config.ShutdownGrace = new(config.Duration), config.Duration(shortGrace)
	}
	b.Start(t, p)
	b.Me = b.Party(t, b.Dev.Client)
	b.Client = b.Caller(t, b.Dev.Client)
	b.Anonymous = b.Caller(t, nil)
	keys, err := identity.NewKeyRing(identity.KeyRingDeps{Bundle: b.Dev.Bundle})
	Must(t, err)
	b.Judge, err = ect.NewVerifier(ect.VerifierDeps{Keys: keys})
	Must(t, err)
	return b
}

// ApproverPath is the path of the identity that decides what waits for a human.
const ApproverPath = "/people/approver"

// approvers are those who decide: a person, and the callers of the matrix.
func approvers() map[string]config.Operator {
	out := map[string]config.Operator{}
	for _, path := range []string{ApproverPath, "/troupe"} {
		out["approver "+path] = config.Operator{ID: "spiffe://" + TrustDomain + path, Roles: []string{"approver"}}
	}
	return out
}

// Must ends the test if there is an error.
func Must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// goodAgents starts the agents that answer well and lists them.
func (b *Fixture) goodAgents(t testing.TB, c *config.Config) {
	t.Helper()
	calculator, concierge := b.SVID(t, "/calculator"), b.SVID(t, "/concierge")
	var err error
	b.Tools, err = peers.NewMCPServer(t.Context(), peers.MCPDeps{Deps: peers.Deps{TLS: Serving(calculator)}, Stateless: true})
	Must(t, err)
	b.Talker, err = peers.NewA2AAgent(t.Context(), peers.Deps{TLS: Serving(concierge)})
	Must(t, err)
	forecast, err := peers.NewMCPServer(t.Context(), peers.MCPDeps{
		Deps: peers.Deps{TLS: Serving(calculator)}, Stateless: true, Tools: []string{"weather"},
	})
	Must(t, err)
	for _, stop := range []func(context.Context) error{b.Tools.Stop, b.Talker.Stop, forecast.Stop} {
		t.Cleanup(func() { StopWithin(t, stop) })
	}
	if c.Agents == nil {
		c.Agents = map[string]config.Agent{}
	}
	everybody := []string{"spiffe://" + TrustDomain + "/*"}
	maps.Copy(c.Agents, map[string]config.Agent{
		"calculator": {ID: string(calculator.ID), Endpoints: []config.Endpoint{{Binding: "mcp-v1", URL: b.Tools.URL()}}},
		"concierge":  {ID: string(concierge.ID), Endpoints: []config.Endpoint{{Binding: "a2a-v1", URL: b.Talker.URL()}}},
		"forecast":   {ID: string(calculator.ID), Endpoints: []config.Endpoint{{Binding: "mcp-v1", URL: forecast.URL()}}},
		"members": {
			ID: string(calculator.ID), Endpoints: []config.Endpoint{{Binding: "mcp-v1", URL: b.Tools.URL()}},
			Callers: everybody, // but not the nameless
		},
		"closed": {
			ID: string(calculator.ID), Endpoints: []config.Endpoint{{Binding: "mcp-v1", URL: b.Tools.URL()}},
			Callers: []string{"spiffe://" + TrustDomain + "/somebody-else"},
		},
		"strict": {
			ID: string(calculator.ID), Endpoints: []config.Endpoint{{Binding: "mcp-v1", URL: b.Tools.URL()}},
			RequireECT: true,
		},
	})
}

// StopWithin stops something, for which it has [Patience]. An error of the stop is one of the test, which goes on.
func StopWithin(t testing.TB, stop func(context.Context) error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), Patience)
	defer cancel()
	if err := stop(ctx); err != nil {
		t.Errorf("stop: %v", err)
	}
}

// Start runs the service until the test ends and expects a clean stop.
func (b *Fixture) Start(t testing.TB, p Plan) {
	t.Helper()
	sockets := server.Sockets{Public: Listen(t), Admin: Listen(t), Metrics: Listen(t), GRPC: Listen(t), UACP: Listen(t)}
	b.At = sockets.Addresses()
	b.RPC = sockets.GRPC.Addr().String()
	if at := p.Config.Listen.UACPUDP; at != "" {
		datagrams, err := (&net.ListenConfig{}).ListenPacket(t.Context(), "udp", at)
		Must(t, err)
		sockets.Datagrams, b.At.UACP = datagrams, datagrams.LocalAddr().String()
	}
	s, err := server.Development(server.DevelopmentDeps{
		Material: b.Dev, Settings: p.Config, Sockets: sockets, Dir: b.Dir, AdminToken: b.AdminToken, Logger: telemetry.NewLogger(b.Logs, p.Config.LogLevel()),
	})
	Must(t, err)
	s.Development, s.Program = !p.Serve, server.Program{Version: release.Current().Version, Commit: release.Current().Commit}
	if p.NoAINP {
		s.Identity.AINP = tainp.Identity{}
	}
	if p.NoToken {
		s.AdminToken = ""
	}
	see := func(env server.Env) (server.Protocol, error) { b.Env = env; return server.Protocol{}, nil }
	s.Factories, s.Hooks.Clock, s.Hooks.Epoch = append(p.Also, see), p.Clock, time.Now().Truncate(time.Second)
	s.Hooks.Observe = func(k *server.Stored) {
		if p.Observe != nil {
			p.Observe(k)
		}
		b.ledger.observe(k)
		b.Stored = *k
	}
	b.Conf, b.AINP = s, s.Identity.AINP
	b.Server, err = server.Build(s)
	Must(t, err)
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	b.End = cancel
	var service errgroup.Group
	service.Go(func() error { return b.Run(ctx) })
	b.Stop = sync.OnceFunc(func() {
		cancel()
		if err := service.Wait(); err != nil {
			t.Errorf("the service did not stop cleanly: %v", err)
		}
	})
	stop := b.Stop
	t.Cleanup(func() {
		stop()
		b.Logs.Inspect(t)
	})
}

// Journal is the gateway's log.
type Journal struct {
	Mu   sync.Mutex
	Text bytes.Buffer
}

// Write adds to the log; it never fails.
func (j *Journal) Write(line []byte) (int, error) {
	j.Mu.Lock()
	defer j.Mu.Unlock()
	return j.Text.Write(line)
}

func (j *Journal) String() string {
	j.Mu.Lock()
	defer j.Mu.Unlock()
	return j.Text.String()
}

// Inspect: no request made a handler panic, and no log quotes a message or a
// token (a JOSE header or claims set in base64url begins with eyJ).
func (j *Journal) Inspect(t testing.TB) {
	t.Helper()
	j.Mu.Lock()
	defer j.Mu.Unlock()
	for _, never := range []string{"panic", Secret, "eyJ"} {
		if at := strings.Index(j.Text.String(), never); at >= 0 {
			line, _, _ := strings.Cut(j.Text.String()[strings.LastIndexByte(j.Text.String()[:at], '\n')+1:], "\n")
			t.Errorf("%q in the log: %s", never, line)
		}
	}
}
