// Package questions has, for tests, an MCP server that asks before it answers, clients made with SDKs that answer, and
// what the workflow of a question and its answer has to be.
package questions

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"

	"github.com/a2aproject/a2a-go/v2/a2a"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/aepb/aepb-gateway/cmd/aepb-gateway/demo/peers"
	"github.com/aepb/aepb-gateway/test/harness/grpctest"
)

// Server serves such a server, without sessions or with; end ends its sessions.
func Server(stateless bool) (handler http.Handler, end func()) {
	server := newServer()
	handler = mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return server }, &mcp.StreamableHTTPOptions{Stateless: stateless})
	return handler, func() {
		for session := range server.Sessions() {
			_ = session.Close()
		}
	}
}

// newServer is an MCP server whose tool asks before it answers: by a request to its session, or with its result.
func newServer() *mcp.Server {
	server := mcp.NewServer(&mcp.Implementation{Name: "asker", Version: "1"}, nil)
	form := map[string]any{"type": "object", "properties": map[string]any{"people": map[string]any{"type": "string"}}, "required": []any{"people"}}
	server.AddTool(&mcp.Tool{Name: "book", InputSchema: json.RawMessage(`{"type":"object"}`)}, func(_ context.Context, r *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		answer, ok := r.Params.InputResponses["q"].(*mcp.ElicitResult)
		if !ok {
			ask := &mcp.ElicitParams{Mode: "form", Message: "for how many?", RequestedSchema: form}
			return &mcp.CallToolResult{InputRequests: mcp.InputRequestMap{"q": ask}, RequestState: "s"}, nil
		}
		people, _ := answer.Content["people"].(string)
		return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: "booked for " + people}}}, nil
	})
	return server
}

// AnswerA2A asks an agent as a client of A2A does, and answers its question.
func AnswerA2A(ctx context.Context, client *http.Client, base, agent string) error {
	asks, answer := grpctest.SkillMessage("book", map[string]any{}), a2a.NewDataPart(map[string]any{"people": "four"})
	switch agent {
	case "concierge":
		asks, answer = a2a.NewMessage(a2a.MessageRoleUser, a2a.NewTextPart("ask: for how many?")), a2a.NewTextPart("four")
	case "forecast": // the gateway itself asks for the arguments
		asks = a2a.NewMessage(a2a.MessageRoleUser, a2a.NewTextPart("How will the weather be?"))
		answer = a2a.NewDataPart(map[string]any{"city": "Oslo", "day": "today"})
	}
	got, err := peers.A2ACall(ctx, client, base, asks)
	if err != nil {
		return err
	}
	if got.Task == nil || got.State() != a2a.TaskStateInputRequired {
		return fmt.Errorf("questions: the agent did not ask: %+v", got.Task)
	}
	got, err = peers.A2ACall(ctx, client, base, a2a.NewMessageForTask(a2a.MessageRoleUser, got.Task, answer))
	if err != nil {
		return err
	}
	if got.State() != a2a.TaskStateCompleted {
		return fmt.Errorf("questions: after the answer: %+v", got.Task)
	}
	return nil
}

// AnswerMCP does the same as a client of MCP in a revision.
func AnswerMCP(ctx context.Context, host *http.Client, endpoint, version, agent string) error {
	tool, args := "book", map[string]any{}
	if agent == "concierge" {
		tool, args = peers.ConciergeSkill, map[string]any{"message": "ask: for how many?"}
	}
	count := 0
	client := mcp.NewClient(&mcp.Implementation{Name: "answers", Version: "1"}, &mcp.ClientOptions{
		Capabilities: &mcp.ClientCapabilities{Elicitation: &mcp.ElicitationCapabilities{Form: &mcp.FormElicitationCapabilities{}}},
		ElicitationHandler: func(_ context.Context, r *mcp.ElicitRequest) (*mcp.ElicitResult, error) {
			count++
			content := map[string]any{}
			schema, _ := r.Params.RequestedSchema.(map[string]any)
			properties, _ := schema["properties"].(map[string]any)
			for name := range properties {
				content[name] = "four"
			}
			return &mcp.ElicitResult{Action: "accept", Content: content}, nil
		},
	})
	session, err := client.Connect(ctx, &mcp.StreamableClientTransport{
		Endpoint: endpoint, HTTPClient: host, DisableStandaloneSSE: true,
	}, &mcp.ClientSessionOptions{ProtocolVersion: version})
	if err != nil {
		return err
	}
	defer func() { _ = session.Close() }()
	got, err := session.CallTool(ctx, &mcp.CallToolParams{Name: tool, Arguments: args})
	if err != nil {
		return err
	}
	if count == 0 || got.IsError {
		return fmt.Errorf("questions: %d questions, then: %+v", count, got)
	}
	return nil
}
