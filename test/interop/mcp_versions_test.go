package interop

import (
	"encoding/json"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/a2aproject/a2a-go/v2/a2a"
	"github.com/google/go-cmp/cmp"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/aepb/aepb-gateway/cmd/aepb-gateway/demo/peers"
	form "github.com/aepb/aepb-gateway/translators/mcp"
)

// older are the revisions before the newest session-based one.
func older() []string { return []string{form.LegacyJune, form.LegacyMarch} }

// mcpRevisions has MCP clients of each older revision call an A2A agent, and an
// A2A client call MCP servers that speak nothing else.
func mcpRevisions(t *testing.T, g *gw) {
	t.Helper()
	agent := g.concierge(t, "elder")
	for _, version := range older() {
		t.Run("client of "+version, func(t *testing.T) { mcpOldToConcierge(t, g, agent, version) })
		t.Run("server of "+version, func(t *testing.T) { a2aToOldTools(t, g, version) })
	}
	t.Run("batch", func(t *testing.T) { mcpBatch(t, g, agent) })
}

func mcpOldToConcierge(t *testing.T, g *gw, agent *peers.A2AAgent, version string) {
	t.Helper()
	for _, tt := range conciergeCases() {
		t.Run(tt.name, func(t *testing.T) {
			who := g.authenticated(t)
			session := oldSession(t, who, g.agentURL("elder")+"/mcp", version)
			checkOldTool(t, session, version)
			got := callOld(t, session, version, map[string]string{"message": tt.message})
			tt.check(t, got.isError, got.text, got.output)
			check(t, g.auditor().answered(only(t, who.wire.exchanges()), who.id, agent.Received()))
		})
	}
	t.Run("answering a question", func(t *testing.T) {
		who := g.authenticated(t)
		session := oldSession(t, who, g.agentURL("elder")+"/mcp", version)
		request := callOld(t, session, version, map[string]string{"message": "ask: for how many?"})
		open := remarshal[messageOutput](t, request.output)
		done := callOld(t, session, version, map[string]string{"message": "two", "task_id": open.TaskID, "context_id": open.ContextID})
		closed := remarshal[messageOutput](t, done.output)
		if done.isError || closed.State != "completed" || closed.TaskID != open.TaskID || open.TaskID == "" {
			t.Errorf("isError %t, output %+v, after %+v", done.isError, closed, open)
		}
	})
}

// oldSession is the SDK's client, held to one revision.
func oldSession(t *testing.T, who caller, endpoint, version string) *mcp.ClientSession {
	t.Helper()
	client := mcp.NewClient(&mcp.Implementation{Name: "old-client", Version: "1.0.0"}, nil)
	session, err := client.Connect(t.Context(), &mcp.StreamableClientTransport{Endpoint: endpoint, HTTPClient: who.client},
		&mcp.ClientSessionOptions{ProtocolVersion: version})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := session.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	if got := session.InitializeResult().ProtocolVersion; got != version {
		t.Fatalf("version %s, want %s", got, version)
	}
	return session
}

// checkOldTool: the oldest revision knows neither titles nor output schemas.
func checkOldTool(t *testing.T, session *mcp.ClientSession, version string) {
	t.Helper()
	list, err := session.ListTools(t.Context(), nil)
	if err != nil || len(list.Tools) != 1 || list.Tools[0].Name != peers.ConciergeSkill {
		t.Fatalf("tools %+v %v", list, err)
	}
	tool := list.Tools[0]
	checkMessageSchema(t, remarshal[json.RawMessage](t, tool.InputSchema))
	if old := version == form.LegacyMarch; (tool.OutputSchema == nil) != old || old && tool.Title != "" {
		t.Errorf("title %q, output schema %v", tool.Title, tool.OutputSchema)
	}
}

// oldReply is what a client of an older revision reads.
type oldReply struct {
	isError bool
	text    string
	output  json.RawMessage // the structured content, or the text that stands for it
}

func callOld(t *testing.T, session *mcp.ClientSession, version string, args map[string]string) oldReply {
	t.Helper()
	result, err := session.CallTool(t.Context(), &mcp.CallToolParams{Name: peers.ConciergeSkill, Arguments: args})
	if err != nil {
		t.Fatal(err)
	}
	reply := oldReply{isError: result.IsError, text: peers.MCPReply{Result: result}.Text()}
	if version != form.LegacyMarch {
		reply.output = remarshal[json.RawMessage](t, result.StructuredContent)
		return reply
	}
	if result.StructuredContent != nil {
		t.Errorf("structured content in %s: %v", version, result.StructuredContent)
	}
	last, ok := result.Content[len(result.Content)-1].(*mcp.TextContent)
	if !ok || !json.Valid([]byte(last.Text)) {
		t.Fatalf("the last block is no JSON text: %+v", result.Content)
	}
	reply.output = json.RawMessage(last.Text)
	return reply
}

// a2aToOldTools: what the server says in its revision arrives digit for digit.
func a2aToOldTools(t *testing.T, g *gw, version string) {
	t.Helper()
	name := "tools-" + version
	server, err := peers.NewMCPServer(t.Context(), peers.MCPDeps{
		Deps: peers.Deps{TLS: g.peerTLS(t, name)}, Revisions: []string{version},
	})
	if err != nil {
		t.Fatal(err)
	}
	stopLater(t, name, server.Stop)
	g.list(t, name, "mcp-v1", server.URL())
	for _, tt := range []struct {
		skill, input string
		state        a2a.TaskState
		wire         string
	}{
		{"add", `{"a":18446744073709551616,"b":1}`, a2a.TaskStateCompleted, `"sum":18446744073709551617`},
		{"echo", `{"message":"good evening"}`, a2a.TaskStateCompleted, "good evening"},
		{"fail", `{}`, a2a.TaskStateFailed, "always fails"},
	} {
		t.Run(tt.skill, func(t *testing.T) {
			who := g.authenticated(t)
			got, err := peers.A2ACall(t.Context(), who.client, g.agentURL(name), typed(tt.skill, tt.input))
			if err != nil {
				t.Fatal(err)
			}
			e := only(t, who.wire.exchanges())
			if got.State() != tt.state || !strings.Contains(e.Response, tt.wire) {
				t.Errorf("state %s, response %s", got.State(), e.Response)
			}
			check(t, g.auditor().answered(e, who.id, server.Received()))
		})
	}
	requested := slices.ContainsFunc(server.Received(), func(r peers.Received) bool {
		return strings.Contains(string(r.Body), `"initialize"`)
	})
	if !requested {
		t.Error("no session was begun")
	}
}

// mcpBatch sends a batch of 2025-03-26: every call is carried and proven by
// itself.
func mcpBatch(t *testing.T, g *gw, agent *peers.A2AAgent) {
	t.Helper()
	who := g.authenticated(t)
	calls := []string{
		`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"concierge","arguments":{"message":"first"}}}`,
		`{"jsonrpc":"2.0","id":"b","method":"tools/call","params":{"name":"concierge","arguments":{"message":"second"}}}`,
	}
	body := "[" + calls[0] + `,{"jsonrpc":"2.0","method":"notifications/initialized"},{"jsonrpc":"2.0","id":3,"method":"ping"},` + calls[1] + "]"
	request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, g.agentURL("elder")+"/mcp", strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Content-Type", "application/json")
	request.Header.Set("Accept", "application/json, text/event-stream")
	response, err := who.client.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = response.Body.Close() }()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	var answers []json.RawMessage
	if err := json.Unmarshal(text, &answers); err != nil || len(answers) != 3 || response.StatusCode != http.StatusOK {
		t.Fatalf("%d %v %s", response.StatusCode, err, text)
	}
	if diff := cmp.Diff(`{"jsonrpc":"2.0","id":3,"result":{}}`, string(answers[1])); diff != "" {
		t.Error(diff)
	}
	tokens := strings.Split(strings.Join(response.Header.Values("Execution-Context"), ","), ",")
	if len(tokens) != 4 {
		t.Fatalf("%d ECTs for two calls", len(tokens))
	}
	for i, answer := range []json.RawMessage{answers[0], answers[2]} {
		if want := []string{"first", "second"}[i]; !strings.Contains(string(answer), "You said: "+want) {
			t.Errorf("answer %d: %s", i, answer)
		}
		e := exchange{Request: calls[i], Status: http.StatusOK, Type: "application/json", Response: string(answer), Evidence: strings.Join(tokens[2*i:2*i+2], ",")}
		check(t, g.auditor().answered(e, who.id, agent.Received()))
	}
}
