package peers

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"

	"github.com/a2aproject/a2a-go/v2/a2a"
	"github.com/a2aproject/a2a-go/v2/a2aclient"
	"github.com/a2aproject/a2a-go/v2/a2aclient/agentcard"
	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// LegacyMCP is the newest session-based revision, which a legacy call speaks.
const LegacyMCP = "2025-11-25"

// A2AReply is what an A2A client got: the card it started from and either a task
// or a message.
type A2AReply struct {
	Card    *a2a.AgentCard
	Task    *a2a.Task
	Message *a2a.Message
}

// State is the task's state; empty for a message.
func (r A2AReply) State() a2a.TaskState {
	if r.Task == nil {
		return ""
	}
	return r.Task.Status.State
}

// Text is all the text of the message, or of the task's artifacts and then its
// status message, joined by newlines.
func (r A2AReply) Text() string {
	var parts []*a2a.Part
	if r.Message != nil {
		parts = r.Message.Parts
	}
	if r.Task != nil {
		for _, artifact := range r.Task.Artifacts {
			parts = append(parts, artifact.Parts...)
		}
		if status := r.Task.Status.Message; status != nil {
			parts = append(parts, status.Parts...)
		}
	}
	var texts []string
	for _, p := range parts {
		if t, ok := p.Content.(a2a.Text); ok {
			texts = append(texts, string(t))
		}
	}
	return strings.Join(texts, "\n")
}

// A2ACall does what any user of the A2A Go SDK does: it resolves the card below
// baseURL, picks an interface from it and sends one message.
func A2ACall(ctx context.Context, client *http.Client, baseURL string, message *a2a.Message) (A2AReply, error) {
	return A2ACallOver(ctx, client, baseURL, message, a2aclient.WithJSONRPCTransport(client), a2aclient.WithRESTTransport(client))
}

// A2ACallOver is A2ACall by a client that has only the given transports.
func A2ACallOver(ctx context.Context, client *http.Client, baseURL string, message *a2a.Message, transports ...a2aclient.FactoryOption) (A2AReply, error) {
	card, err := agentcard.NewResolver(client).Resolve(ctx, baseURL)
	if err != nil {
		return A2AReply{}, fmt.Errorf("peers: card: %w", err)
	}
	agent, err := a2aclient.NewFromCard(ctx, card, append([]a2aclient.FactoryOption{a2aclient.WithDefaultsDisabled()}, transports...)...)
	if err != nil {
		return A2AReply{Card: card}, fmt.Errorf("peers: connect: %w", err)
	}
	result, err := agent.SendMessage(ctx, &a2a.SendMessageRequest{Message: message})
	err = errors.Join(err, agent.Destroy())
	reply := A2AReply{Card: card}
	switch r := result.(type) {
	case *a2a.Task:
		reply.Task = r
	case *a2a.Message:
		reply.Message = r
	}
	return reply, err
}

// MCPReply is what an MCP client got.
type MCPReply struct {
	Version string      // the revision that was agreed
	Tools   []*mcp.Tool // the first page of tools/list
	Result  *mcp.CallToolResult
}

// Text is all the text of the result, joined by newlines.
func (r MCPReply) Text() string {
	if r.Result == nil {
		return ""
	}
	var texts []string
	for _, c := range r.Result.Content {
		if t, ok := c.(*mcp.TextContent); ok {
			texts = append(texts, t.Text)
		}
	}
	return strings.Join(texts, "\n")
}

// MCPCall does what any user of the MCP Go SDK does: it connects, lists the
// tools, calls one and closes. Unless legacy, it lets the SDK negotiate, which
// prefers the stateless revision.
func MCPCall(ctx context.Context, client *http.Client, endpoint string, legacy bool, tool string, args json.RawMessage) (MCPReply, error) {
	version := ""
	if legacy {
		version = LegacyMCP
	}
	return MCPCallIn(ctx, client, endpoint, version, tool, args)
}

// MCPCallIn does that in one revision of a session; empty: as the SDK negotiates.
func MCPCallIn(ctx context.Context, client *http.Client, endpoint, version, tool string, args json.RawMessage) (MCPReply, error) {
	options := &mcp.ClientSessionOptions{ProtocolVersion: version}
	host := mcp.NewClient(&mcp.Implementation{Name: "peers-client", Version: "1.0.0"}, nil)
	session, err := host.Connect(ctx, &mcp.StreamableClientTransport{Endpoint: endpoint, HTTPClient: client}, options)
	if err != nil {
		return MCPReply{}, fmt.Errorf("peers: connect: %w", err)
	}
	reply, err := use(ctx, session, tool, args)
	return reply, errors.Join(err, session.Close())
}

func use(ctx context.Context, session *mcp.ClientSession, tool string, args json.RawMessage) (MCPReply, error) {
	reply := MCPReply{Version: session.InitializeResult().ProtocolVersion}
	list, err := session.ListTools(ctx, nil)
	if err != nil {
		return reply, fmt.Errorf("peers: tools/list: %w", err)
	}
	reply.Tools = list.Tools
	reply.Result, err = session.CallTool(ctx, &mcp.CallToolParams{Name: tool, Arguments: args})
	if err != nil {
		return reply, fmt.Errorf("peers: tools/call: %w", err)
	}
	return reply, nil
}
