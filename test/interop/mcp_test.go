package interop

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/a2aproject/a2a-go/v2/a2a"

	"github.com/aepb/aepb-gateway/cmd/aepb-gateway/demo/peers"
)

// messageOutput is the structured content of a tool that stands for a skill.
type messageOutput struct {
	State     string `json:"state"`
	Text      string `json:"text"`
	ContextID string `json:"context_id"`
	TaskID    string `json:"task_id"`
}

// conciergeCase is one call of the concierge through an MCP client.
type conciergeCase struct {
	name, message string
	isError       bool
	state, text   string // of the structured content; text: contained in what is read
}

func conciergeCases() []conciergeCase {
	return []conciergeCase{
		{"a completed task", "hello", false, "completed", "You said: hello"},
		{"a direct message", "message: good evening", false, "completed", "good evening"},
		{"a failed task", "fail: no table left", true, "failed", "no table left"},
		{"a rejected task", "reject: not dressed", true, "rejected", "not dressed"},
		{"a question", "ask: for how many?", false, "input-required", "for how many?"},
	}
}

// mcpToA2A has MCP SDK clients of both eras call an A2A agent's skill, which they
// take for a tool.
func mcpToA2A(t *testing.T, g *gw) {
	t.Helper()
	agent := g.concierge(t, "concierge")
	t.Run("modern", func(t *testing.T) { mcpGoToConcierge(t, g, agent, false, "2026-07-28") })
	t.Run("legacy", func(t *testing.T) { mcpGoToConcierge(t, g, agent, true, peers.LegacyMCP) })
	t.Run("answering a question", func(t *testing.T) { mcpGoAnswers(t, g, agent) })
	t.Run("data and files", func(t *testing.T) { mcpGoFiles(t, g, agent) })
	t.Run("JavaScript auto", func(t *testing.T) { mcpJSToConcierge(t, g, agent, "auto", "2026-07-28") })
	t.Run("JavaScript legacy", func(t *testing.T) { mcpJSToConcierge(t, g, agent, "legacy", peers.LegacyMCP) })
}

func mcpGoToConcierge(t *testing.T, g *gw, agent *peers.A2AAgent, legacy bool, version string) {
	t.Helper()
	for _, tt := range conciergeCases() {
		t.Run(tt.name, func(t *testing.T) {
			who := g.authenticated(t)
			got := callConcierge(t, g, who, legacy, map[string]string{"message": tt.message})
			if got.Version != version {
				t.Errorf("version %s, want %s", got.Version, version)
			}
			if len(got.Tools) != 1 || got.Tools[0].Name != peers.ConciergeSkill {
				t.Fatalf("tools %+v", got.Tools)
			}
			checkMessageSchema(t, remarshal[json.RawMessage](t, got.Tools[0].InputSchema))
			tt.check(t, got.Result.IsError, got.Text(), remarshal[json.RawMessage](t, got.Result.StructuredContent))
			check(t, g.auditor().answered(only(t, who.wire.exchanges()), who.id, agent.Received()))
		})
	}
}

// mcpGoAnswers asks, gets a question, and answers it by calling again with the
// ids it was given.
func mcpGoAnswers(t *testing.T, g *gw, agent *peers.A2AAgent) {
	t.Helper()
	who := g.authenticated(t)
	request := callConcierge(t, g, who, false, map[string]string{"message": "ask: for how many?"})
	open := remarshal[messageOutput](t, request.Result.StructuredContent)
	if open.State != "input-required" || open.TaskID == "" || open.ContextID == "" {
		t.Fatalf("structured content %+v", open)
	}
	done := callConcierge(t, g, who, false, map[string]string{
		"message": "two", "task_id": open.TaskID, "context_id": open.ContextID,
	})
	closed := remarshal[messageOutput](t, done.Result.StructuredContent)
	if done.Result.IsError || closed.State != "completed" || closed.TaskID != open.TaskID || closed.ContextID != open.ContextID {
		t.Errorf("isError %t, structured content %+v, want completed %+v", done.Result.IsError, closed, open)
	}
	for _, e := range who.wire.exchanges() {
		check(t, g.auditor().answered(e, who.id, agent.Received()))
	}
}

func mcpJSToConcierge(t *testing.T, g *gw, agent *peers.A2AAgent, mode, version string) {
	t.Helper()
	var calls []jsCall
	for _, tt := range conciergeCases() {
		calls = append(calls, jsCall{
			Name:      peers.ConciergeSkill,
			Arguments: remarshal[json.RawMessage](t, map[string]string{"message": tt.message}),
		})
	}
	var got jsMCPReport
	newJavascript(t).run(t, g.CAFile(), "mcp-client.mjs",
		jsMCPJob{Endpoint: g.agentURL("concierge") + "/mcp", Mode: mode, Calls: calls}, &got)
	if got.Version != version || len(got.Tools) != 1 || got.Tools[0].Name != peers.ConciergeSkill {
		t.Fatalf("version %s, tools %+v", got.Version, got.Tools)
	}
	checkMessageSchema(t, got.Tools[0].InputSchema)
	if len(got.Results) != len(calls) || len(got.Exchanges) != len(calls) {
		t.Fatalf("%d results of %d exchanges, want %d", len(got.Results), len(got.Exchanges), len(calls))
	}
	for i, tt := range conciergeCases() {
		t.Run(tt.name, func(t *testing.T) {
			r := got.Results[i]
			if r.Error != nil {
				t.Fatalf("the client raised %+v", *r.Error)
			}
			tt.check(t, r.IsError, r.Text, r.Structured)
			check(t, g.auditor().answered(got.Exchanges[i], g.anonymousID(), agent.Received()))
		})
	}
}

func callConcierge(t *testing.T, g *gw, who caller, legacy bool, args map[string]string) peers.MCPReply {
	t.Helper()
	got, err := peers.MCPCall(t.Context(), who.client, g.agentURL("concierge")+"/mcp", legacy,
		peers.ConciergeSkill, remarshal[json.RawMessage](t, args))
	if err != nil {
		t.Fatal(err)
	}
	return got
}

// check compares what an MCP client read with what the agent did.
func (c conciergeCase) check(t *testing.T, isError bool, text string, structured json.RawMessage) {
	t.Helper()
	if isError != c.isError || !strings.Contains(text, c.text) {
		t.Errorf("isError %t text %q, want %t %q", isError, text, c.isError, c.text)
	}
	out := remarshal[messageOutput](t, structured)
	if out.State != c.state || !strings.Contains(out.Text, c.text) {
		t.Errorf("structured content %s, want state %s and text %q", structured, c.state, c.text)
	}
	if c.state == "input-required" && (out.TaskID == "" || out.ContextID == "") {
		t.Errorf("structured content %s has not both ids", structured)
	}
}

// checkMessageSchema expects the closed schema of a tool that takes a message.
func checkMessageSchema(t *testing.T, schema json.RawMessage) {
	t.Helper()
	var s struct {
		Type       string                     `json:"type"`
		Properties map[string]json.RawMessage `json:"properties"`
		Required   []string                   `json:"required"`
		Additional *bool                      `json:"additionalProperties"`
	}
	if err := json.Unmarshal(schema, &s); err != nil {
		t.Fatalf("%v in %s", err, schema)
	}
	if s.Type != "object" || s.Additional == nil || *s.Additional || !slices.Equal(s.Required, []string{"message"}) {
		t.Errorf("schema %s is not a closed object that requires a message", schema)
	}
	for _, name := range []string{"message", "data", "files", "context_id", "task_id"} {
		if s.Properties[name] == nil {
			t.Errorf("schema %s lacks %s", schema, name)
		}
	}
}

// remarshal turns a value into another type by way of JSON.
func remarshal[T any](t *testing.T, from any) T {
	t.Helper()
	var to T
	text, err := json.Marshal(from)
	if err == nil {
		err = json.Unmarshal(text, &to)
	}
	if err != nil {
		t.Fatal(err)
	}
	return to
}

// mcpGoFiles sends data and a file beside the text and expects the agent to give
// both back.
func mcpGoFiles(t *testing.T, g *gw, agent *peers.A2AAgent) {
	t.Helper()
	who := g.authenticated(t)
	got, err := peers.MCPCall(t.Context(), who.client, g.agentURL("concierge")+"/mcp", false, peers.ConciergeSkill,
		json.RawMessage(`{"message":"keep these","data":{"guests":2},`+
			`"files":[{"name":"bits.bin","mediaType":"application/octet-stream","bytes":"AP8="}]}`))
	if err != nil {
		t.Fatal(err)
	}
	if got.Result.IsError || !strings.Contains(got.Text(), "You said: keep these") || !strings.Contains(got.Text(), `"guests":2`) {
		t.Errorf("isError %t text %q", got.Result.IsError, got.Text())
	}
	e := only(t, who.wire.exchanges())
	if !strings.Contains(e.Response, "AP8=") {
		t.Errorf("response %s lacks the file", e.Response)
	}
	var sent a2a.SendMessageRequest
	last := agent.Received()[len(agent.Received())-1]
	if err := json.Unmarshal(last.Body, &struct {
		Params *a2a.SendMessageRequest `json:"params"`
	}{&sent}); err != nil || sent.Message == nil || len(sent.Message.Parts) != 3 {
		t.Errorf("the agent got %s (%v)", last.Body, err)
	}
	check(t, g.auditor().answered(e, who.id, agent.Received()))
}
