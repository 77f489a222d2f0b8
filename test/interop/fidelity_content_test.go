package interop

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/a2aproject/a2a-go/v2/a2a"
	"github.com/a2aproject/a2a-go/v2/a2aclient/agentcard"
	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// mcpResources lists and reads what came of a worker's task.
func mcpResources(t *testing.T, m *mcpRun) {
	out := remarshal[messageOutput](t, m.call(t, m.want("files")).StructuredContent)
	inTask := "a2a://" + m.at.name + "/tasks/" + out.TaskID + "/artifacts/"
	var mine []*mcp.Resource
	for r, err := range m.session.Resources(t.Context(), nil) {
		if err != nil {
			t.Fatal(err)
		}
		if strings.HasPrefix(r.URI, inTask) {
			mine = append(mine, r)
		}
	}
	if len(mine) != 1 || mine[0].Name != "files" {
		t.Fatalf("listed: %s", mustJSON(mine))
	}
	read, err := m.session.ReadResource(t.Context(), &mcp.ReadResourceParams{URI: mine[0].URI})
	if err != nil || len(read.Contents) != 5 {
		t.Fatalf("%v %s", err, mustJSON(read))
	}
	text, image, bytes, link, data := read.Contents[0], read.Contents[1], read.Contents[2], read.Contents[3], read.Contents[4]
	for name, ok := range map[string]bool{
		"text":  text.Text == "see these" && text.MIMEType == "text/plain",
		"image": string(image.Blob) == png && image.MIMEType == "image/png",
		"bytes": string(bytes.Blob) == "\x00\xff" && bytes.MIMEType == "application/octet-stream",
		"link":  link.Text == "https://example.com/x.pdf\r\n" && link.MIMEType == "text/uri-list",
		"data":  data.Text == `{"n":1}` && data.MIMEType == "application/json",
	} {
		if !ok {
			t.Errorf("%s: %s", name, mustJSON(read))
		}
	}
	one, err := m.session.ReadResource(t.Context(), &mcp.ReadResourceParams{URI: bytes.URI})
	if err != nil || len(one.Contents) != 1 || string(one.Contents[0].Blob) != "\x00\xff" {
		t.Errorf("%v %s", err, mustJSON(one))
	}
	patterns, err := m.session.ListResourceTemplates(t.Context(), nil)
	if err != nil || len(patterns.ResourceTemplates) != 2 {
		t.Errorf("%v %s", err, mustJSON(patterns))
	}
	_, err = m.session.ReadResource(t.Context(), &mcp.ReadResourceParams{URI: inTask + "none"})
	want := int64(jsonrpc.CodeInvalidParams)
	if m.version != modernMCP {
		want = -32002 // as its specification has it
	}
	if answer, ok := errors.AsType[*jsonrpc.Error](err); !ok || answer.Code != want {
		t.Errorf("what is not there: %v", err)
	}
}

// addContent gives the workshop what it has beside tools.
func addContent(shop *mcp.Server) {
	shop.AddPrompt(&mcp.Prompt{
		Name: "greet", Title: "Greeting", Description: "Greets somebody",
		Arguments: []*mcp.PromptArgument{{Name: "who", Description: "whom", Required: true}, {Name: "how"}},
	}, func(_ context.Context, r *mcp.GetPromptRequest) (*mcp.GetPromptResult, error) {
		return &mcp.GetPromptResult{Description: "a greeting", Messages: []*mcp.PromptMessage{
			{Role: "user", Content: &mcp.TextContent{Text: "hello " + r.Params.Arguments["who"]}},
			{Role: "assistant", Content: &mcp.ImageContent{Data: []byte(png), MIMEType: "image/png"}},
		}}, nil
	})
	shop.AddResource(&mcp.Resource{URI: "shop://sheet", Name: "sheet", MIMEType: "text/csv"}, func(context.Context, *mcp.ReadResourceRequest) (*mcp.ReadResourceResult, error) {
		return &mcp.ReadResourceResult{Contents: []*mcp.ResourceContents{
			{URI: "shop://sheet", MIMEType: "text/csv", Text: "a,b"}, {URI: "shop://sheet/2", MIMEType: "application/octet-stream", Blob: []byte{0, 255}},
		}}, nil
	})
}

// dataOf is the only data part among parts.
func dataOf(t *testing.T, parts []*a2a.Part) map[string]any {
	t.Helper()
	for _, p := range parts {
		if data, ok := p.Data().(map[string]any); ok {
			return data
		}
	}
	t.Fatalf("no data among %s", mustJSON(parts))
	return nil
}

// a2aPrompts invokes a server's prompt as a skill.
func a2aPrompts(t *testing.T, r *a2aRun) {
	card, err := agentcard.NewResolver(r.who.client).Resolve(t.Context(), r.g.agentURL(r.at.name))
	if err != nil {
		t.Fatal(err)
	}
	i := slices.IndexFunc(card.Skills, func(s a2a.AgentSkill) bool { return s.ID == "prompt.greet" })
	if i < 0 || card.Skills[i].Name != "Greeting" || card.Skills[i].Description != "Greets somebody" {
		t.Fatalf("the card shows %s", mustJSON(card.Skills))
	}
	task := r.send(t, typed("prompt.greet", `{"who":"`+r.job+`"}`))
	expectTask(t, task, a2a.TaskStateCompleted, "hello "+r.job)
	parts := partsOf(task)
	if len(parts) != 3 || string(parts[1].Raw()) != png || parts[1].MediaType != "image/png" {
		t.Fatalf("%s", mustJSON(parts))
	}
	answer := dataOf(t, parts)
	messages, _ := answer["messages"].([]any)
	if answer["description"] != "a greeting" || len(messages) != 2 || messages[1].(map[string]any)["role"] != "assistant" {
		t.Errorf("%s", mustJSON(answer))
	}
}

// a2aResources lists and reads a server's resources.
func a2aResources(t *testing.T, r *a2aRun) {
	listed := r.send(t, typed("resource.list", `{}`))
	resources, _ := dataOf(t, partsOf(listed))["resources"].([]any)
	if len(resources) != 1 || resources[0].(map[string]any)["uri"] != "shop://sheet" {
		t.Fatalf("%s", mustJSON(listed.Artifacts))
	}
	task := r.send(t, typed("resource.read", `{"uri":"shop://sheet"}`))
	parts := partsOf(task)
	if len(parts) != 2 || parts[0].Text() != "a,b" || parts[0].MediaType != "text/csv" && r.from != "A2A 0.3" ||
		string(parts[1].Raw()) != "\x00\xff" || parts[1].MediaType != "application/octet-stream" {
		t.Errorf("%s", mustJSON(parts))
	}
}

// a2aNoContent: what the server refuses is a typed error.
func a2aNoContent(t *testing.T, r *a2aRun) {
	for _, m := range []*a2a.Message{typed("resource.read", `{"uri":"shop://none"}`), typed("prompt.greet", `{"who":7}`), typed("prompt.none", `{}`)} {
		got, err := r.client.SendMessage(t.Context(), &a2a.SendMessageRequest{Message: m})
		if err == nil || r.from != "A2A 1.0 HTTP" && !errors.Is(err, a2a.ErrInvalidParams) { // over HTTP the SDK tells no more than that it is one
			t.Errorf("%s: %v %v", mustJSON(m.Parts), got, err)
		}
	}
}
