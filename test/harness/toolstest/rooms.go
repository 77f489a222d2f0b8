package toolstest

import (
	"context"
	"encoding/json"
	"net/http"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// Rooms is an MCP server with the tools book and cancel, which knows nothing of rollback. What it returns of a booking has the guest in it. called is told
// each call, with the arguments as they came.
func Rooms(called func(tool, arguments string)) http.Handler {
	s := mcp.NewServer(&mcp.Implementation{Name: "rooms", Version: "1.0.0"}, nil)
	for _, tool := range []string{"book", "cancel"} {
		s.AddTool(&mcp.Tool{Name: tool, InputSchema: json.RawMessage(`{"type":"object"}`)}, func(_ context.Context, r *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			called(tool, string(r.Params.Arguments))
			var in struct{ Guest string }
			if err := json.Unmarshal(r.Params.Arguments, &in); err != nil {
				return nil, err
			}
			return &mcp.CallToolResult{StructuredContent: map[string]any{"id": "room of " + in.Guest}}, nil
		})
	}
	return mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return s }, &mcp.StreamableHTTPOptions{Stateless: true})
}
