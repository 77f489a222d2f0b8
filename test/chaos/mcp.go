package main

import (
	"context"
	"encoding/json"
	"strings"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/aepb/aepb-gateway/cmd/aepb-gateway/demo/peers"
)

// sessionCalls is how many calls a session is used for.
const sessionCalls = 8

// session is a caller's session of MCP, and how often it was used.
type session struct {
	*mcp.ClientSession
	calls int
}

// call calls a tool in a session that lives for several calls, wherever they go.
func call(ctx context.Context, c *caller, agent, key string, legacy bool) outcome {
	s, err := c.session(ctx, agent, legacy)
	if err != nil {
		return failed(err)
	}
	params := &mcp.CallToolParams{Name: "slow", Arguments: json.RawMessage(`{"key":"` + key + `"}`)}
	if agent == "worker" {
		params.Name, params.Arguments = skill, json.RawMessage(`{"message":"slow `+key+`"}`)
	}
	params.SetProgressToken(key)
	return c.result(ctx, s, params)
}

// elicited is a call whose agent asks the user something first.
func elicited(ctx context.Context, c *caller, key string, legacy bool) outcome {
	s, err := c.session(ctx, "worker", legacy)
	if err != nil {
		return failed(err)
	}
	return c.result(ctx, s, &mcp.CallToolParams{Name: skill, Arguments: json.RawMessage(`{"message":"ask ` + key + `"}`)})
}

// fill answers a form with what the question is about: "what about KEY ?".
func fill(_ context.Context, req *mcp.ElicitRequest) (*mcp.ElicitResult, error) {
	var form struct {
		Properties map[string]json.RawMessage `json:"properties"`
	}
	text, err := json.Marshal(req.Params.RequestedSchema)
	if err == nil {
		err = json.Unmarshal(text, &form)
	}
	words := strings.Fields(req.Params.Message)
	if err != nil || len(words) < 3 {
		return &mcp.ElicitResult{Action: "decline"}, err
	}
	content := map[string]any{}
	for name := range form.Properties {
		content[name] = "answer " + words[2]
	}
	return &mcp.ElicitResult{Action: "accept", Content: content}, nil
}

func (c *caller) result(ctx context.Context, s *session, params *mcp.CallToolParams) outcome {
	result, err := s.CallTool(ctx, params)
	if err != nil {
		c.forget()
		return failed(err)
	}
	text := peers.MCPReply{Result: result}.Text()
	if result.IsError || result.NeedsInput() {
		return outcome{end: endError, why: text}
	}
	return outcome{end: endRight, said: answerIn(text)}
}

// session is the caller's, or a new one.
func (c *caller) session(ctx context.Context, agent string, legacy bool) (*session, error) {
	if c.kept != nil {
		if c.kept.calls++; c.kept.calls <= sessionCalls {
			return c.kept, nil
		}
		c.forget()
	}
	options := &mcp.ClientSessionOptions{}
	if legacy {
		options.ProtocolVersion = peers.LegacyMCP
	}
	client := mcp.NewClient(&mcp.Implementation{Name: "chaos", Version: "1.0.0"}, &mcp.ClientOptions{ElicitationHandler: fill})
	transport := &mcp.StreamableClientTransport{Endpoint: c.base + "/agents/" + agent + "/mcp", HTTPClient: c.http}
	opened, err := client.Connect(context.WithoutCancel(ctx), transport, options)
	if err != nil {
		return nil, err
	}
	c.kept = &session{opened, 1}
	return c.kept, nil
}

// forget ends the caller's session.
func (c *caller) forget() {
	if c.kept != nil {
		_ = c.kept.Close() // it may be broken
		c.kept = nil
	}
}
