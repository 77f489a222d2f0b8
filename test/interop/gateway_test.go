package interop

import (
	"context"
	"crypto/tls"
	"net/http"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/aepb/aepb-gateway/cmd/aepb-gateway/demo/peers"
	"github.com/aepb/aepb-gateway/test/interop/devgateway"
)

// TestGateway_AllScenarios runs all scenarios through one gateway: building and
// starting it costs more than all of them.
func TestGateway_AllScenarios(t *testing.T) {
	t.Parallel()
	g := startGateway(t)
	t.Run("A2A client to MCP server", func(t *testing.T) { a2aToMCP(t, g) })
	t.Run("MCP client to A2A agent", func(t *testing.T) { mcpToA2A(t, g) })
	t.Run("MCP revisions", func(t *testing.T) { mcpRevisions(t, g) })
	t.Run("MCP alone", func(t *testing.T) { mcpNative(t, g) })
	t.Run("MCP questions that nobody answers", func(t *testing.T) { mcpHurry(t, g) })
	t.Run("MCP questions to JavaScript", func(t *testing.T) { mcpAsksJS(t, g) })
	t.Run("MCP questions to Go", func(t *testing.T) { mcpAsksGo(t, g) })
	t.Run("MCP over SSE", func(t *testing.T) { mcpOverSSE(t, g) })
	t.Run("MCP tools that take their time", func(t *testing.T) { mcpSlow(t, g) })
	t.Run("MCP servers that forget their sessions", func(t *testing.T) { mcpForgets(t, g) })
	t.Run("MCP, all of it", func(t *testing.T) { mcpFeatures(t, g) })
	t.Run("A2A without JSON-RPC", func(t *testing.T) { a2aOverHTTP(t, g) })
	t.Run("approvals", func(t *testing.T) { approvals(t, g) })
	t.Run("A2A streams", func(t *testing.T) { a2aStreams(t, g) })
	t.Run("A2A, all of it", func(t *testing.T) { a2aFeatures(t, g) })
	t.Run("A2A webhooks of five steps", func(t *testing.T) { fiveSteps(t, g) })
	t.Run("A2A over gRPC", func(t *testing.T) { a2aOverGRPC(t, g) })
	t.Run("printed clients", func(t *testing.T) { printedClients(t, g) })
	t.Run("A2A 0.3", func(t *testing.T) { a2aOld(t, g) })
	t.Run("A2A 0.3 SDK", func(t *testing.T) { a2aOldSDK(t, g) })
	t.Run("A2A 0.3 SDK without JSON-RPC", func(t *testing.T) { a2aOldOverHTTP(t, g) })
}

// stopTimeout is what the gateway and its peers get to end in.
const stopTimeout = 40 * time.Second

// gw is the gateway under test, as a black box.
type gw struct{ *devgateway.Process }

// startGateway builds and runs the real binary; the test's end stops it and
// expects exit code 0.
func startGateway(t *testing.T) *gw {
	t.Helper()
	dir := t.TempDir()
	binary, err := devgateway.Build(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	config := filepath.Join(dir, "gateway.yaml")
	if err := os.WriteFile(config, []byte("listen:\n  grpc: 127.0.0.1:0\npolicy: {approvals: [{agent: \"guarded-*\"}]}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	process, err := devgateway.Start(t.Context(), devgateway.Deps{
		Binary: binary, Dir: filepath.Join(dir, ".aepb"), Args: []string{"--config", config},
	})
	if err != nil {
		t.Fatal(err)
	}
	stopLater(t, "gateway", process.Stop)
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("gateway:\n%s", process.Output())
		}
	})
	return &gw{process}
}

func stopLater(t *testing.T, what string, stop func(context.Context) error) {
	t.Helper()
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), stopTimeout)
		defer cancel()
		if err := stop(ctx); err != nil {
			t.Errorf("stop %s: %v", what, err)
		}
	})
}

// agentURL is where an agent's card and doors are.
func (g *gw) agentURL(name string) string { return g.Public + "/agents/" + name }

// toolbox starts an MCP server and lists it in the directory.
func (g *gw) toolbox(t *testing.T, name string, stateless bool, tools ...string) *peers.MCPServer {
	t.Helper()
	server, err := peers.NewMCPServer(t.Context(), peers.MCPDeps{
		Deps: peers.Deps{TLS: g.peerTLS(t, name)}, Stateless: stateless, Tools: tools,
	})
	if err != nil {
		t.Fatal(err)
	}
	stopLater(t, name, server.Stop)
	g.list(t, name, "mcp-v1", server.URL())
	return server
}

// concierge starts the A2A agent and lists it in the directory.
func (g *gw) concierge(t *testing.T, name string) *peers.A2AAgent {
	t.Helper()
	agent, err := peers.NewA2AAgent(t.Context(), peers.Deps{TLS: g.peerTLS(t, name)})
	if err != nil {
		t.Fatal(err)
	}
	stopLater(t, name, agent.Stop)
	g.list(t, name, "a2a-v1", agent.URL())
	return agent
}

func (g *gw) peerTLS(t *testing.T, name string) *tls.Config {
	t.Helper()
	conf, err := g.PeerTLS(name)
	if err != nil {
		t.Fatal(err)
	}
	return conf
}

func (g *gw) list(t *testing.T, name, binding, url string) {
	t.Helper()
	if err := g.AddAgent(t.Context(), name, binding, url); err != nil {
		t.Fatal(err)
	}
	g.unlistLater(t, name)
}

// unlistLater takes an agent out of the directory at the end of the test. The system may
// give its port to a webhook of a later one, and webhooks at listed agents are refused.
func (g *gw) unlistLater(t *testing.T, name string) {
	t.Helper()
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), stopTimeout)
		defer cancel()
		if err := g.RemoveAgent(ctx, name); err != nil {
			t.Errorf("remove agent %s: %v", name, err)
		}
	})
}

// caller is somebody who uses the gateway, and what the gateway should call him.
type caller struct {
	client *http.Client
	wire   *recorder
	id     string
}

// authenticated is the development client with its SVID.
func (g *gw) authenticated(t *testing.T) caller {
	t.Helper()
	svid := g.ClientSVID()
	return g.caller(t, svid.Leaf.URIs[0].String(), svid)
}

// anonymous shows no certificate, as an unmodified client would.
func (g *gw) anonymous(t *testing.T) caller {
	t.Helper()
	return g.caller(t, g.anonymousID(), []tls.Certificate{}...)
}

func (g *gw) anonymousID() string { return "spiffe://" + g.TrustDomain() + "/anonymous" }

func (g *gw) caller(t *testing.T, id string, certs ...tls.Certificate) caller {
	t.Helper()
	client := g.Client(certs...)
	client.Timeout = 30 * time.Second
	wire := &recorder{next: client.Transport}
	client.Transport = wire
	t.Cleanup(client.CloseIdleConnections)
	return caller{client: client, wire: wire, id: id}
}
