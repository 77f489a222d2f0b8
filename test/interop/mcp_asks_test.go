package interop

import (
	"context"
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// An inquiry is what a tool of the inquirer asks of whoever calls it.
type inquiry struct {
	tool, method string
	asks         mcp.InputRequest
	reaches      string // in what the user is asked
	answer       string // of the user
	returns      string // in what the server makes of that
}

//nolint:staticcheck // sampling and roots are deprecated in MCP, and carried as long as they work
func inquiries() []inquiry {
	return []inquiry{
		{
			"sign", "elicitation/create", &mcp.ElicitParams{Mode: "url", Message: "sign here", URL: "https://sign.example/7", ElicitationID: "e-7"},
			`"url":"https://sign.example/7"`, `{"action":"accept"}`, `"action":"accept"`,
		},
		{
			"think", "sampling/createMessage", &mcp.CreateMessageParams{
				MaxTokens: 99, SystemPrompt: "be brief", Messages: []*mcp.SamplingMessage{{Role: "user", Content: &mcp.TextContent{Text: "capital of Portugal?"}}},
			},
			"capital of Portugal?", `{"model":"atlas","role":"assistant","stopReason":"endTurn","content":{"type":"text","text":"Lisbon"}}`, `"text":"Lisbon"`,
		},
		{"look", "roots/list", &mcp.ListRootsParams{}, "", `{"roots":[{"uri":"file:///home/ada","name":"ada"}]}`, `"uri":"file:///home/ada"`},
	}
}

// inquirer starts an MCP server whose tools and prompts ask before they answer.
func (g *gw) inquirer(t *testing.T, name string, stateless bool) {
	t.Helper()
	asker := mcp.NewServer(&mcp.Implementation{Name: "inquirer", Version: "1"}, nil)
	for _, q := range inquiries() {
		asker.AddTool(&mcp.Tool{Name: q.tool, InputSchema: json.RawMessage(`{"type":"object"}`)}, func(_ context.Context, r *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			if r.Params.InputResponses == nil {
				return &mcp.CallToolResult{InputRequests: mcp.InputRequestMap{"q": q.asks}, RequestState: q.tool}, nil
			}
			return texts(r.Params.RequestState + string(mustJSON(r.Params.InputResponses["q"]))), nil
		})
		asker.AddPrompt(&mcp.Prompt{Name: q.tool}, func(_ context.Context, r *mcp.GetPromptRequest) (*mcp.GetPromptResult, error) {
			if r.Params.InputResponses == nil {
				return &mcp.GetPromptResult{InputRequests: mcp.InputRequestMap{"q": q.asks}, RequestState: q.tool}, nil
			}
			answer := &mcp.TextContent{Text: "prompt " + r.Params.RequestState + string(mustJSON(r.Params.InputResponses["q"]))}
			return &mcp.GetPromptResult{Messages: []*mcp.PromptMessage{{Role: "user", Content: answer}}}, nil
		})
	}
	server, mux, _ := serveTLS(t, g, name, newDesk(), func() {
		for session := range asker.Sessions() {
			_ = session.Close()
		}
	})
	mux.Handle("/mcp", mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return asker }, &mcp.StreamableHTTPOptions{Stateless: stateless}))
	g.list(t, name, "mcp-v1", server.URL+"/mcp")
}

// mcpAsksJS has servers of both eras ask the users of JavaScript clients of both:
// to open a URL, to ask their model, to show their roots.
func mcpAsksJS(t *testing.T, g *gw) {
	t.Helper()
	js := newJavascript(t)
	g.inquirer(t, "inquirer-modern", true)
	g.inquirer(t, "inquirer-legacy", false)
	job := jsMCPJob{Answers: map[string]json.RawMessage{}}
	for _, q := range inquiries() {
		job.Calls = append(job.Calls, jsCall{Name: q.tool, Arguments: json.RawMessage(`{}`)})
		job.Prompts = append(job.Prompts, q.tool)
		job.Answers[q.method] = json.RawMessage(q.answer)
	}
	for mode, version := range map[string]string{"auto": modernMCP, "legacy": legacyMCP} {
		for _, name := range []string{"inquirer-modern", "inquirer-legacy"} {
			t.Run(version+" to "+name, func(t *testing.T) {
				job := job
				job.Endpoint, job.Mode = g.agentURL(name)+"/mcp", mode
				var got jsMCPReport
				js.run(t, g.CAFile(), "mcp-client.mjs", job, &got)
				if got.Version != version {
					t.Errorf("version %s", got.Version)
				}
				checkInquiries(t, got)
			})
		}
	}
}

// mcpAsksGo has the servers of mcpAsksJS ask the users of Go clients the same.
func mcpAsksGo(t *testing.T, g *gw) {
	t.Helper()
	g.inquirer(t, "go-inquirer-modern", true)
	g.inquirer(t, "go-inquirer-legacy", false)
	for _, version := range []string{modernMCP, legacyMCP} {
		for _, name := range []string{"go-inquirer-modern", "go-inquirer-legacy"} {
			t.Run(version+" to "+name, func(t *testing.T) { checkInquiries(t, g.asksGo(t, name, version), "roots/list") })
		}
	}
}

// asksGo calls all tools and prompts that ask, and reports what the JavaScript client does.
//
//nolint:staticcheck // sampling and roots are deprecated in MCP, and carried as long as they work
func (g *gw) asksGo(t *testing.T, name, version string) jsMCPReport {
	t.Helper()
	var report jsMCPReport
	request := func(method string, params, answer any) {
		i := slices.IndexFunc(inquiries(), func(q inquiry) bool { return q.method == method })
		report.Asked = append(report.Asked, jsAsked{method, mustJSON(params)})
		if err := json.Unmarshal([]byte(inquiries()[i].answer), answer); err != nil {
			t.Error(err)
		}
	}
	client := mcp.NewClient(&mcp.Implementation{Name: "asked", Version: "1"}, &mcp.ClientOptions{
		Capabilities: &mcp.ClientCapabilities{
			RootsV2: &mcp.RootCapabilities{}, Elicitation: &mcp.ElicitationCapabilities{Form: &mcp.FormElicitationCapabilities{}, URL: &mcp.URLElicitationCapabilities{}},
		},
		ElicitationHandler: func(_ context.Context, r *mcp.ElicitRequest) (*mcp.ElicitResult, error) {
			answer := &mcp.ElicitResult{}
			request("elicitation/create", r.Params, answer)
			return answer, nil
		},
		CreateMessageHandler: func(_ context.Context, r *mcp.CreateMessageRequest) (*mcp.CreateMessageResult, error) {
			answer := &mcp.CreateMessageResult{}
			request("sampling/createMessage", r.Params, answer)
			return answer, nil
		},
	})
	client.AddRoots(&mcp.Root{URI: "file:///home/ada", Name: "ada"})
	session := g.connect(t, client, g.agentURL(name)+"/mcp", version)
	add := func(text string) { report.Results = append(report.Results, jsMCPResult{Text: text}) }
	for _, q := range inquiries() {
		result, err := session.CallTool(t.Context(), &mcp.CallToolParams{Name: q.tool, Arguments: map[string]any{}})
		if err != nil {
			t.Fatal(err)
		}
		add(blockText(result))
	}
	for _, q := range inquiries() {
		result, err := session.GetPrompt(t.Context(), &mcp.GetPromptParams{Name: q.tool})
		if err != nil {
			t.Fatal(err)
		}
		reply, _ := result.Messages[0].Content.(*mcp.TextContent)
		add(reply.Text)
	}
	return report
}

// checkInquiries expects that the user was asked everything, but what the SDK answers
// by itself.
func checkInquiries(t *testing.T, got jsMCPReport, bySDK ...string) {
	t.Helper()
	all := append(inquiries(), inquiries()...) // the tools, and then the prompts
	ofUser := slices.DeleteFunc(slices.Clone(all), func(q inquiry) bool { return slices.Contains(bySDK, q.method) })
	if len(got.Results) != len(all) || len(got.Asked) != len(ofUser) {
		t.Fatalf("%+v, asked %s", got.Results, mustJSON(got.Asked))
	}
	for i, q := range ofUser {
		if a := got.Asked[i]; a.Method != q.method || !strings.Contains(string(a.Params), q.reaches) {
			t.Errorf("%s: the user was asked %s %s", q.tool, a.Method, a.Params)
		}
	}
	for i, q := range all {
		if r := got.Results[i]; r.Error != nil || r.IsError || !strings.Contains(r.Text, q.returns) {
			t.Errorf("%s: the server made of it %q, %+v", q.tool, r.Text, r.Error)
		}
		if prompt := i >= len(all)/2; prompt != strings.HasPrefix(got.Results[i].Text, "prompt ") {
			t.Errorf("%s: the answer is that of the other kind: %q", q.tool, got.Results[i].Text)
		}
	}
}
