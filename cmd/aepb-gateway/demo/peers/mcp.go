package peers

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"math/big"
	"net/http"
	"slices"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// The toolbox's schemas. They are closed objects without composition, as strict
// model clients want them.
const (
	addInput = `{"type":"object","properties":{` +
		`"a":{"type":"integer","description":"First summand, of any size"},` +
		`"b":{"type":"integer","description":"Second summand, of any size"}},` +
		`"required":["a","b"],"additionalProperties":false}`
	addOutput = `{"type":"object","properties":{"sum":{"type":"integer"}},` +
		`"required":["sum"],"additionalProperties":false}`
	echoInput = `{"type":"object","properties":{` +
		`"message":{"type":"string","description":"What to say back"}},` +
		`"required":["message"],"additionalProperties":false}`
	failInput    = `{"type":"object","properties":{},"additionalProperties":false}`
	weatherInput = `{"type":"object","properties":{` +
		`"city":{"type":"string","description":"Where"},` +
		`"day":{"type":"string","description":"When, as YYYY-MM-DD"}},` +
		`"required":["city","day"],"additionalProperties":false}`
)

// MCPDeps is what an MCP server needs.
type MCPDeps struct {
	Deps
	// Stateless serves revision 2026-07-28 and, without sessions, the older ones.
	// Otherwise only the session-based revisions up to 2025-11-25 are served.
	Stateless bool
	// Tools names the tools to offer; empty: all of them.
	Tools []string
	// Also adds to the server; nil: nothing is added.
	Also func(*mcp.Server)
	// Revisions are the ones that the server admits to; empty: all that the SDK has.
	Revisions []string
	// ID is what its capability document says of it; empty: it has no such document.
	ID string
}

// MCPServer is a running MCP server with up to four tools:
//
//	add      {a, b} integers of any size; structured {sum}, computed exactly
//	echo     {message}; the same text
//	fail     {}; always isError
//	weather  {city, day}, both required; a sentence
type MCPServer struct {
	server server
	mcp    *mcp.Server
}

// NewMCPServer starts the server on a free loopback port, at /mcp.
func NewMCPServer(ctx context.Context, d MCPDeps) (*MCPServer, error) {
	s := &MCPServer{mcp: toolbox(d)}
	err := s.server.listen(ctx, d.Deps, func(base string) http.Handler {
		mux := http.NewServeMux()
		mux.Handle("/mcp", mcp.NewStreamableHTTPHandler(
			func(*http.Request) *mcp.Server { return s.mcp },
			&mcp.StreamableHTTPOptions{Stateless: d.Stateless, Logger: d.logger()},
		))
		if d.ID != "" {
			mux.HandleFunc(documentPath, func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Content-Type", "application/json")
				_, _ = io.WriteString(w, `{"aepb_version":"1.0","agent_id":"`+d.ID+`","protocols":[{"id":"mcp-v1","version":"2026-07-28","endpoint":"`+base+`/mcp","priority":1}],`+
					`"ect_assurance_level":"L2","lifecycle":{"status":"active","version":"2.0.0","deprecated_at":null,"sunset_at":null,"successor":null}}`)
			})
		}
		return mux
	})
	if err != nil {
		return nil, err
	}
	return s, nil
}

// documentPath is where a server describes itself (AEPB, Capability Advertisement).
const documentPath = "/.well-known/aepb"

// DocumentURL is where its capability document is.
func (s *MCPServer) DocumentURL() string { return s.server.base + documentPath }

// URL is the server's endpoint.
func (s *MCPServer) URL() string { return s.server.base + "/mcp" }

// Break has the server answer a request with 500 and take no connection after it, or works again.
func (s *MCPServer) Break(broken bool) { s.server.broken.Store(broken) }

// Received returns the newest requests that reached the server, oldest first.
func (s *MCPServer) Received() []Received { return s.server.journal.snapshot() }

// Stop ends all sessions, since their open streams would hold the listener,
// then the server, giving running requests until ctx ends, and waits for it.
func (s *MCPServer) Stop(ctx context.Context) error {
	var errs []error
	for session := range s.mcp.Sessions() {
		errs = append(errs, session.Close())
	}
	return errors.Join(append(errs, s.server.stop(ctx))...)
}

// tool is a tool's description and what it does.
type tool struct {
	mcp.Tool
	call mcp.ToolHandler
}

func tools() []tool {
	return []tool{
		{call: add, Tool: mcp.Tool{
			Name: "add", Title: "Add", Description: "Adds two integers exactly.",
			InputSchema: json.RawMessage(addInput), OutputSchema: json.RawMessage(addOutput),
			Annotations: &mcp.ToolAnnotations{ReadOnlyHint: true, IdempotentHint: true},
		}},
		{call: echo, Tool: mcp.Tool{
			Name: "echo", Title: "Echo", Description: "Says the message back.",
			InputSchema: json.RawMessage(echoInput),
		}},
		{call: fail, Tool: mcp.Tool{
			Name: "fail", Title: "Fail", Description: "Always fails, to show what failure looks like.",
			InputSchema: json.RawMessage(failInput),
		}},
		{call: weather, Tool: mcp.Tool{
			Name: "weather", Title: "Weather", Description: "Tells the weather of a city on a day.",
			InputSchema: json.RawMessage(weatherInput),
		}},
	}
}

// ServeStdio serves the toolbox over standard input and output until the input ends.
func ServeStdio(ctx context.Context) error {
	return toolbox(MCPDeps{}).Run(ctx, &mcp.StdioTransport{})
}

func toolbox(d MCPDeps) *mcp.Server {
	s := mcp.NewServer(
		&mcp.Implementation{Name: "toolbox", Title: "Toolbox", Version: "1.0.0"},
		&mcp.ServerOptions{
			Logger: d.logger(), Instructions: "Small tools that do exactly what they say.",
			SupportedProtocolVersions: d.Revisions,
		},
	)
	for _, t := range tools() {
		if len(d.Tools) == 0 || slices.Contains(d.Tools, t.Name) {
			s.AddTool(&t.Tool, t.call)
		}
	}
	if d.Also != nil {
		d.Also(s)
	}
	return s
}

// add reads the raw arguments: the typed handlers of the SDK pass every number
// through float64.
func add(_ context.Context, req *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
	var args struct {
		A *json.Number `json:"a"`
		B *json.Number `json:"b"`
	}
	if !strict(req, &args) || args.A == nil || args.B == nil {
		return failure("add needs the integers a and b"), nil
	}
	var a, b big.Int
	if _, ok := a.SetString(args.A.String(), 10); !ok {
		return failure("a is not an integer"), nil
	}
	if _, ok := b.SetString(args.B.String(), 10); !ok {
		return failure("b is not an integer"), nil
	}
	sum := `{"sum":` + a.Add(&a, &b).String() + `}`
	return &mcp.CallToolResult{
		Content:           []mcp.Content{&mcp.TextContent{Text: sum}},
		StructuredContent: json.RawMessage(sum),
	}, nil
}

func echo(_ context.Context, req *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
	var args struct {
		Message *string `json:"message"`
	}
	if !strict(req, &args) || args.Message == nil {
		return failure("echo needs the string message"), nil
	}
	return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: *args.Message}}}, nil
}

func fail(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
	return failure("this tool always fails"), nil
}

func weather(_ context.Context, req *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
	var args struct {
		City string `json:"city"`
		Day  string `json:"day"`
	}
	if !strict(req, &args) || args.City == "" || args.Day == "" {
		return failure("weather needs the strings city and day"), nil
	}
	text := "Sunny in " + args.City + " on " + args.Day + "."
	return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: text}}}, nil
}

// strict reads the arguments of a call; false if they are of another shape or
// have members that the tool does not know.
func strict(req *mcp.CallToolRequest, into any) bool {
	dec := json.NewDecoder(bytes.NewReader(req.Params.Arguments))
	dec.DisallowUnknownFields()
	return dec.Decode(into) == nil
}

// failure is a tool execution error: the model may read it and try again.
func failure(text string) *mcp.CallToolResult {
	return &mcp.CallToolResult{IsError: true, Content: []mcp.Content{&mcp.TextContent{Text: text}}}
}
