// Package toolstest gives MCP servers of the SDK tools for tests.
package toolstest

import (
	"context"
	"encoding/json"
	"fmt"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// Many adds so many tools with one description to a server: tool-0 and so on, which say
// who they are.
func Many(tb testing.TB, count int, description string) func(*mcp.Server) {
	tb.Helper()
	return func(s *mcp.Server) {
		for i := range count {
			s.AddTool(&mcp.Tool{Name: fmt.Sprintf("tool-%d", i), Description: description, InputSchema: json.RawMessage(`{"type":"object"}`)},
				func(_ context.Context, r *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
					return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: "this is " + r.Params.Name}}}, nil
				})
		}
	}
}
