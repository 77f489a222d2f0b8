package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/aepb/aepb-gateway/cmd/aepb-gateway/demo/peers"
	"github.com/aepb/aepb-gateway/test/interop/devgateway"
)

// worker is an MCP server whose one tool does what it is told: a message that begins
// with "hold" is answered when it is let go, any other at once.
type worker struct {
	server *peers.MCPServer
	letGo  chan struct{}

	mu   sync.Mutex
	work []string // messages that have come
}

func newWorker(t *testing.T, trust *devgateway.Trust) *worker {
	t.Helper()
	conf, err := trust.PeerTLS("slow")
	must(t, err)
	w := &worker{letGo: make(chan struct{})}
	w.server, err = peers.NewMCPServer(t.Context(), peers.MCPDeps{
		Deps: peers.Deps{TLS: conf}, Stateless: true, Tools: []string{"add"},
		Also: func(s *mcp.Server) {
			s.AddTool(&mcp.Tool{Name: "work", Description: "Works.", InputSchema: json.RawMessage(
				`{"type":"object","properties":{"message":{"type":"string"}},"required":["message"],"additionalProperties":false}`,
			)}, w.call)
		},
	})
	must(t, err)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), patience)
		defer cancel()
		if err := w.server.Stop(ctx); err != nil {
			t.Error(err)
		}
	})
	return w
}

func (w *worker) call(ctx context.Context, request *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
	var args struct{ Message string }
	if err := json.Unmarshal(request.Params.Arguments, &args); err != nil {
		return nil, fmt.Errorf("the arguments: %w", err)
	}
	w.mu.Lock()
	w.work = append(w.work, args.Message)
	w.mu.Unlock()
	if strings.HasPrefix(args.Message, "hold") {
		select {
		case <-w.letGo:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: done(args.Message)}}}, nil
}

// done is what the worker answers.
func done(message string) string { return "done: " + message }

// came are the messages that have come, sorted.
func (w *worker) came() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	out := slices.Clone(w.work)
	slices.Sort(out)
	return out
}
