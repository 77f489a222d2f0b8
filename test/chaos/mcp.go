package main

import (
	"context"
	"encoding/json"

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
	client := mcp.NewClient(&mcp.Implementation{Name: "chaos", Version: "1.0.0"}, nil)
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
