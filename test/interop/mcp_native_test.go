package interop

import (
	"context"
	"encoding/json"
	"net/http"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// newsroom is an MCP server with what only MCP has.
type newsroom struct {
	*mcp.Server
	name string
}

const (
	notificationURI = "news://today"
	regionTool      = `{"type":"object","properties":{"region":{"type":"string","x-mcp-header":"Region"},"n":{"type":"integer","x-mcp-header":"N"}}}`
)

func (g *gw) newsroom(t *testing.T, name string, stateless bool) *newsroom {
	t.Helper()
	space := mcp.NewServer(&mcp.Implementation{Name: "newsroom", Version: "1"}, &mcp.ServerOptions{
		SubscribeHandler:   func(context.Context, *mcp.SubscribeRequest) error { return nil },
		UnsubscribeHandler: func(context.Context, *mcp.UnsubscribeRequest) error { return nil },
	})
	space.AddTool(&mcp.Tool{Name: "sell", InputSchema: json.RawMessage(regionTool)}, func(_ context.Context, r *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		return texts(r.Extra.Header.Get("Mcp-Param-Region") + " " + r.Extra.Header.Get("Mcp-Param-N") + " " + string(r.Params.Arguments)), nil
	})
	space.AddTool(&mcp.Tool{Name: "gossip", InputSchema: json.RawMessage(`{"type":"object"}`)}, func(ctx context.Context, r *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		for _, level := range []mcp.LoggingLevel{"debug", "warning"} { //nolint:staticcheck // deprecated, and spoken
			if err := r.Session.Log(ctx, &mcp.LoggingMessageParams{Level: level, Logger: "gossip " + string(level), Data: "psst"}); err != nil { //nolint:staticcheck // logging is deprecated, and spoken
				return nil, err
			}
		}
		return texts("told"), nil
	})
	space.AddTool(&mcp.Tool{Name: "poke", InputSchema: json.RawMessage(`{"type":"object"}`)}, func(ctx context.Context, _ *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		space.RemoveTools("fresh")
		space.AddTool(&mcp.Tool{Name: "fresh", InputSchema: json.RawMessage(`{"type":"object"}`)}, nil)
		return texts("poked"), space.ResourceUpdated(ctx, &mcp.ResourceUpdatedNotificationParams{URI: notificationURI})
	})
	space.AddResource(&mcp.Resource{URI: notificationURI, Name: "today"}, func(context.Context, *mcp.ReadResourceRequest) (*mcp.ReadResourceResult, error) {
		return &mcp.ReadResourceResult{Contents: []*mcp.ResourceContents{{URI: notificationURI, Text: "quiet"}}}, nil
	})
	server, mux, _ := serveTLS(t, g, name, newDesk(), func() {
		for session := range space.Sessions() {
			_ = session.Close()
		}
	})
	mux.Handle("/mcp", mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return space }, &mcp.StreamableHTTPOptions{Stateless: stateless}))
	g.list(t, name, "mcp-v1", server.URL+"/mcp")
	return &newsroom{space, name}
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
	t.Run("unasked, modern", func(t *testing.T) { g.unasked(t, modern, modernMCP) })
	t.Run("unasked, legacy", func(t *testing.T) { g.unasked(t, legacy, legacyMCP) })
	t.Run("unasked, June", func(t *testing.T) { g.unasked(t, legacy, "2025-06-18") })
	t.Run("unasked, modern to legacy", func(t *testing.T) { g.unasked(t, legacy, modernMCP) })
	t.Run("unasked, legacy to modern", func(t *testing.T) { g.unasked(t, modern, legacyMCP) })
	t.Run("unasked, June to modern", func(t *testing.T) { g.unasked(t, modern, "2025-06-18") })
	for _, version := range []string{modernMCP, legacyMCP} {
		for _, at := range []*newsroom{modern, legacy} {
			t.Run("log, "+version+" to "+at.name, func(t *testing.T) { g.logs(t, at, version) })
		}
	}
	t.Run("asked outside of a call", func(t *testing.T) { g.askedOutside(t, legacy) })
}

// bell rings when a client is told something.
type bell chan string

func (b bell) ring(what string) {
	select {
	case b <- what:
	default:
	}
}

// rings waits until it is told this; again is done meanwhile, again and again:
// nobody says when somebody has begun to listen.
func (b bell) rings(t *testing.T, want string, again func()) {
	t.Helper()
	until(t, func() bool {
		again()
		for {
			select {
			case got := <-b:
				if got == want {
					return true
				}
			default:
				return false
			}
		}
	})
}

func (b bell) options() *mcp.ClientOptions {
	return &mcp.ClientOptions{
		ToolListChangedHandler: func(context.Context, *mcp.ToolListChangedRequest) { b.ring("tools") },
		ResourceUpdatedHandler: func(_ context.Context, r *mcp.ResourceUpdatedNotificationRequest) { b.ring(r.Params.URI) },
		LoggingMessageHandler:  func(_ context.Context, r *mcp.LoggingMessageRequest) { b.ring(r.Params.Logger) }, //nolint:staticcheck // logging is deprecated, and spoken
		ElicitationHandler: func(_ context.Context, r *mcp.ElicitRequest) (*mcp.ElicitResult, error) {
			b.ring(r.Params.Message)
			return &mcp.ElicitResult{Action: "accept", Content: map[string]any{"n": "two"}}, nil
		},
	}
}

// unasked: what a server says on its own reaches whoever subscribed, and nobody else.
func (g *gw) unasked(t *testing.T, at *newsroom, version string) {
	t.Helper()
	received, idle := make(bell, 100), make(bell, 100)
	session := g.reader(t, at, version, received.options())
	g.reader(t, at, version, idle.options())
	if err := session.Subscribe(t.Context(), &mcp.SubscribeParams{URI: notificationURI}); err != nil {
		t.Fatal(err)
	}
	received.rings(t, notificationURI, func() {
		_ = at.ResourceUpdated(context.Background(), &mcp.ResourceUpdatedNotificationParams{URI: notificationURI})
	})
	name := "new-" + version
	changed := func() {
		at.RemoveTools(name)
		at.AddTool(&mcp.Tool{Name: name, InputSchema: json.RawMessage(`{"type":"object"}`)}, nil)
	}
	received.rings(t, "tools", changed)
	idle.rings(t, "tools", changed)
	until(t, func() bool {
		list, err := session.ListTools(t.Context(), nil)
		return err == nil && slices.ContainsFunc(list.Tools, func(tool *mcp.Tool) bool { return tool.Name == name })
	})
	for done := false; !done; {
		select {
		case got := <-idle:
			if got == notificationURI {
				t.Error("whoever did not subscribe was told")
			}
		default:
			done = true
		}
	}
	if version != modernMCP { // where it is a message of its own
		if err := session.Unsubscribe(t.Context(), &mcp.UnsubscribeParams{URI: notificationURI}); err != nil {
			t.Error(err)
		}
		until(t, func() bool { // nobody says when somebody has ceased to listen
			_ = at.ResourceUpdated(context.Background(), &mcp.ResourceUpdatedNotificationParams{URI: notificationURI})
			quiet := true
			changed()
			for got := ""; got != "tools"; {
				select {
				case got = <-received:
					quiet = quiet && got != notificationURI
				case <-time.After(10 * time.Second):
					t.Fatal("nothing is heard any more")
				}
			}
			return quiet
		})
	}
}

// logs: a caller hears of a server's log what it asked for, whether its revision
// says that once or with every request, and whichever of these the server's does.
func (g *gw) logs(t *testing.T, at *newsroom, version string) {
	t.Helper()
	received := make(bell, 100)
	// A change of the tools that a test before this one made may still be under way here.
	session := g.reader(t, at, version, &mcp.ClientOptions{LoggingMessageHandler: received.options().LoggingMessageHandler}) //nolint:staticcheck // logging is deprecated, and spoken
	call := func(meta mcp.Meta) {
		if result, err := session.CallTool(t.Context(), &mcp.CallToolParams{Meta: meta, Name: "gossip"}); err != nil || blockText(result) != "told" {
			t.Fatalf("%v %+v", err, result)
		}
	}
	listen := mcp.Meta{}
	if version == modernMCP {
		call(nil)
		if len(received) > 0 {
			t.Errorf("nobody asked for %s", <-received)
		}
		listen["io.modelcontextprotocol/logLevel"] = "info"
	} else if err := session.SetLoggingLevel(t.Context(), &mcp.SetLoggingLevelParams{Level: "info"}); err != nil { //nolint:staticcheck // logging is deprecated, and spoken
		t.Fatal(err)
	}
	received.rings(t, "gossip warning", func() { call(listen) })
	for len(received) > 0 {
		if got := <-received; got == "gossip debug" {
			t.Error("nobody asked for so much")
		}
	}
}

// askedOutside: a server of a legacy revision asks and logs when it likes to.
func (g *gw) askedOutside(t *testing.T, at *newsroom) {
	t.Helper()
	received := make(bell, 100)
	session := g.reader(t, at, legacyMCP, received.options())
	if err := session.SetLoggingLevel(t.Context(), &mcp.SetLoggingLevelParams{Level: "info"}); err != nil { //nolint:staticcheck // logging is deprecated, and spoken
		t.Fatal(err)
	}
	var request sync.Once
	answers := make(chan string, 1)
	received.rings(t, "desk", func() {
		for s := range at.Sessions() {
			_ = s.Log(context.Background(), &mcp.LoggingMessageParams{Level: "info", Logger: "desk", Data: "quiet"}) //nolint:staticcheck // logging is deprecated, and spoken
		}
	})
	for s := range at.Sessions() {
		if p := s.InitializeParams(); p == nil || p.Capabilities.Elicitation == nil {
			continue
		}
		go func() { // waited for below
			got, err := s.Elicit(t.Context(), &mcp.ElicitParams{Message: "how many?", RequestedSchema: json.RawMessage(`{"type":"object","properties":{"n":{"type":"string"}}}`)})
			if err == nil && got.Content["n"] == "two" {
				request.Do(func() { answers <- "two" })
			}
		}()
	}
	received.rings(t, "how many?", func() {})
	select {
	case <-answers:
	case <-time.After(10 * time.Second):
		t.Error("the server has no answer")
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
