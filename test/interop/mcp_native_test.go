package interop

import (
	"context"
	"encoding/json"
	"net/http"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// newsroom is an MCP server with what only MCP has.
type newsroom struct {
	*mcp.Server
	name string
}

const (
	newsURI    = "news://today"
	regionTool = `{"type":"object","properties":{"region":{"type":"string","x-mcp-header":"Region"},"n":{"type":"integer","x-mcp-header":"N"}}}`
)

func (g *gw) newsroom(t *testing.T, name string, stateless bool) *newsroom {
	t.Helper()
	room := mcp.NewServer(&mcp.Implementation{Name: "newsroom", Version: "1"}, &mcp.ServerOptions{
		SubscribeHandler:   func(context.Context, *mcp.SubscribeRequest) error { return nil },
		UnsubscribeHandler: func(context.Context, *mcp.UnsubscribeRequest) error { return nil },
	})
	room.AddTool(&mcp.Tool{Name: "sell", InputSchema: json.RawMessage(regionTool)}, func(_ context.Context, r *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		return texts(r.Extra.Header.Get("Mcp-Param-Region") + " " + r.Extra.Header.Get("Mcp-Param-N") + " " + string(r.Params.Arguments)), nil
	})
	room.AddResource(&mcp.Resource{URI: newsURI, Name: "today"}, func(context.Context, *mcp.ReadResourceRequest) (*mcp.ReadResourceResult, error) {
		return &mcp.ReadResourceResult{Contents: []*mcp.ResourceContents{{URI: newsURI, Text: "quiet"}}}, nil
	})
	server, mux, _ := serveTLS(t, g, name, newDesk(), func() {
		for session := range room.Sessions() {
			_ = session.Close()
		}
	})
	mux.Handle("/mcp", mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return room }, &mcp.StreamableHTTPOptions{Stateless: stateless}))
	g.list(t, name, "mcp-v1", server.URL+"/mcp")
	return &newsroom{room, name}
}

// reader is an SDK client at a newsroom's door.
func (g *gw) reader(t *testing.T, at *newsroom, version string, options *mcp.ClientOptions) *mcp.ClientSession {
	t.Helper()
	session, err := mcp.NewClient(&mcp.Implementation{Name: "reader", Version: "1"}, options).Connect(t.Context(), &mcp.StreamableClientTransport{
		Endpoint: g.agentURL(at.name) + "/mcp", HTTPClient: g.authenticated(t).client,
	}, &mcp.ClientSessionOptions{ProtocolVersion: version})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = session.Close() })
	if got := session.InitializeResult().ProtocolVersion; got != version {
		t.Fatalf("version %s", got)
	}
	return session
}

// mcpNative: what only MCP has, between clients and servers of both eras.
func mcpNative(t *testing.T, g *gw) {
	t.Helper()
	modern, legacy := g.newsroom(t, "news-modern", true), g.newsroom(t, "news-legacy", false)
	for _, version := range []string{modernMCP, legacyMCP} {
		for _, at := range []*newsroom{modern, legacy} {
			t.Run(version+" to "+at.name, func(t *testing.T) { g.repeatedArguments(t, at, version) })
		}
	}
}

// repeatedArguments: an argument that the schema marks stands in the header too
// if the server is of the revision that has such.
func (g *gw) repeatedArguments(t *testing.T, at *newsroom, version string) {
	t.Helper()
	session := g.reader(t, at, version, nil)
	if _, err := session.ListTools(t.Context(), nil); err != nil { // from then on the client knows what it has to repeat
		t.Fatal(err)
	}
	result, err := session.CallTool(t.Context(), &mcp.CallToolParams{Name: "sell", Arguments: json.RawMessage(`{"region":"é","n":5}`)})
	if err != nil {
		t.Fatal(err)
	}
	want := ` {"region":"é","n":5}`
	if at.name == "news-modern" {
		want = "=?base64?w6k=?= 5" + want
	} else {
		want = " " + want
	}
	if got := blockText(result); got != want {
		t.Errorf("the server was told %q, want %q", got, want)
	}
}
