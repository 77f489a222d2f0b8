package bridge

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/a2aproject/a2a-go/v2/a2a"
	"github.com/a2aproject/a2a-go/v2/a2aclient"
	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// echoTool is the only tool, and the skill of the agent that it stands for.
const echoTool = "echo"

const echoInput = `{"type":"object","properties":{"message":{"type":"string"}},"required":["message"],"additionalProperties":false}`

// messages sends calls of the tool to an A2A agent.
type messages struct{ agent *a2aclient.Client }

func (m messages) server() *mcp.Server {
	s := mcp.NewServer(self(), nil)
	s.AddTool(&mcp.Tool{Name: echoTool, Description: "Sends the message to the agent.", InputSchema: json.RawMessage(echoInput)}, m.send)
	return s
}

// send answers one call with the text of the agent's answer.
func (m messages) send(ctx context.Context, r *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
	part := a2a.NewDataPart(map[string]any{"skill": echoTool, "input": r.Params.Arguments})
	part.MediaType = "application/json"
	result, err := m.agent.SendMessage(ctx, &a2a.SendMessageRequest{Message: a2a.NewMessage(a2a.MessageRoleUser, part)})
	if err != nil {
		return nil, err
	}
	var parts []*a2a.Part
	switch r := result.(type) {
	case *a2a.Message:
		parts = r.Parts
	case *a2a.Task:
		if r.Status.State != a2a.TaskStateCompleted {
			return nil, fmt.Errorf("bridge: the agent's task is %s", r.Status.State)
		}
		for _, artifact := range r.Artifacts {
			parts = append(parts, artifact.Parts...)
		}
	}
	var texts []string
	for _, p := range parts {
		if text := p.Text(); text != "" {
			texts = append(texts, text)
		}
	}
	return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: strings.Join(texts, "\n")}}}, nil
}
