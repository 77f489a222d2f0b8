package interop

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/a2aproject/a2a-go/v2/a2a"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/aepb/aepb-gateway/cmd/aepb-gateway/demo/peers"
)

// mcpHurry: a server of the SDK asks, does not wait long for an answer, and ends its
// call: whoever was asked sees that at once.
func mcpHurry(t *testing.T, g *gw) {
	t.Helper()
	hasty := mcp.NewServer(&mcp.Implementation{Name: "hasty", Version: "1"}, nil)
	hasty.AddTool(&mcp.Tool{Name: "hurry", InputSchema: json.RawMessage(`{"type":"object"}`)}, func(ctx context.Context, r *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
		defer cancel()
		form := map[string]any{"type": "object", "properties": map[string]any{"name": map[string]any{"type": "string"}}}
		_, err := r.Session.Elicit(ctx, &mcp.ElicitParams{Message: "who?", RequestedSchema: form})
		if err == nil {
			return texts("somebody answered"), nil
		}
		return texts("nobody answered"), nil
	})
	server, mux, _ := serveTLS(t, g, "hasty", newDesk(), func() {
		for session := range hasty.Sessions() {
			_ = session.Close()
		}
	})
	mux.Handle("/mcp", mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return hasty }, nil))
	g.list(t, "hasty", "mcp-v1", server.URL+"/mcp")
	who := g.authenticated(t)
	requested, err := peers.A2ACall(t.Context(), who.client, g.agentURL("hasty"), typed("hurry", `{}`))
	if err != nil || requested.Task == nil || requested.State() != a2a.TaskStateInputRequired {
		t.Fatalf("it is asked %+v, %v", requested.Task, err)
	}
	began := time.Now()
	body := `{"jsonrpc":"2.0","id":1,"method":"GetTask","params":{"id":"` + string(requested.Task.ID) + `"}}`
	for last := ""; !strings.Contains(last, "nobody answered"); {
		if time.Since(began) > 30*time.Second {
			t.Fatalf("after %v it stands so: %s", time.Since(began), last)
		}
		<-time.After(100 * time.Millisecond)
		request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, g.agentURL("hasty")+"/a2a", strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		request.Header.Set("Content-Type", "application/json")
		request.Header.Set("A2A-Version", "1.0")
		response, err := who.client.Do(request)
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(response.Body)
		if err := errors.Join(err, response.Body.Close()); err != nil {
			t.Fatal(err)
		}
		last = string(text)
	}
}
