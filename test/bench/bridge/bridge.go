package bridge

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"

	"github.com/a2aproject/a2a-go/v2/a2a"
	"github.com/a2aproject/a2a-go/v2/a2aclient"
	"github.com/a2aproject/a2a-go/v2/a2asrv"
	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// Where a bridge is called.
const (
	A2APath = "/a2a" // JSON-RPC, for the MCP server
	MCPPath = "/mcp" // streamable HTTP, for the A2A agent
)

// revision of MCP, for both sides.
const revision = "2025-11-25"

// Deps is what a bridge calls.
type Deps struct {
	MCP    string       // URL of the MCP server, streamable HTTP
	A2A    string       // URL of the A2A agent, JSON-RPC
	Client *http.Client // used for both
}

// Bridge is a handler of both directions. It has one session with the MCP server, which all
// callers use. Close ends it.
type Bridge struct {
	http.Handler
	session *mcp.ClientSession
	agent   *a2aclient.Client
}

// self names the bridge in both protocols.
func self() *mcp.Implementation { return &mcp.Implementation{Name: "bridge", Version: "1.0.0"} }

// New connects to the MCP server. ctx bounds that only.
func New(ctx context.Context, d Deps) (*Bridge, error) {
	quiet := slog.New(slog.DiscardHandler)
	transport := &mcp.StreamableClientTransport{Endpoint: d.MCP, HTTPClient: d.Client, DisableStandaloneSSE: true}
	session, err := mcp.NewClient(self(), nil).Connect(ctx, transport, &mcp.ClientSessionOptions{ProtocolVersion: revision})
	if err != nil {
		return nil, fmt.Errorf("bridge: the MCP server: %w", err)
	}
	at := []*a2a.AgentInterface{a2a.NewAgentInterface(d.A2A, a2a.TransportProtocolJSONRPC)}
	agent, err := a2aclient.NewFromEndpoints(ctx, at, a2aclient.WithDefaultsDisabled(), a2aclient.WithJSONRPCTransport(d.Client))
	if err != nil {
		return nil, errors.Join(fmt.Errorf("bridge: the A2A agent: %w", err), session.Close())
	}
	mux := http.NewServeMux()
	mux.Handle(A2APath, a2asrv.NewJSONRPCHandler(a2asrv.NewHandler(toolCalls{session}, a2asrv.WithLogger(quiet))))
	server := messages{agent}.server()
	mux.Handle(MCPPath, mcp.NewStreamableHTTPHandler(
		func(*http.Request) *mcp.Server { return server }, &mcp.StreamableHTTPOptions{JSONResponse: true, Logger: quiet}))
	return &Bridge{mux, session, agent}, nil
}

// Close ends the session with the MCP server and the client of the agent.
func (b *Bridge) Close() error { return errors.Join(b.session.Close(), b.agent.Destroy()) }
