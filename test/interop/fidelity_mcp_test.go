package interop

import (
	"context"
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// mcpRun is one run of an MCP caller.
type mcpRun struct {
	*run
	version string
	session *mcp.ClientSession

	mu        sync.Mutex
	steps     []string
	progress  []float64
	requested []string
}

// user answers what a server asks; nil: the client cannot be asked.
type user func(*mcp.ElicitParams) *mcp.ElicitResult

func byMCP(version string, answer user, do func(*testing.T, *mcpRun)) func(*testing.T, *run) {
	return func(t *testing.T, r *run) {
		t.Helper()
		m := &mcpRun{run: r, version: version}
		options := &mcp.ClientOptions{
			Capabilities: &mcp.ClientCapabilities{},
			ProgressNotificationHandler: func(_ context.Context, n *mcp.ProgressNotificationClientRequest) {
				m.mu.Lock()
				defer m.mu.Unlock()
				m.steps, m.progress = append(m.steps, n.Params.Message), append(m.progress, n.Params.Progress)
			},
		}
		if answer != nil {
			options.ElicitationHandler = func(_ context.Context, q *mcp.ElicitRequest) (*mcp.ElicitResult, error) {
				m.mu.Lock()
				defer m.mu.Unlock()
				m.requested = append(m.requested, q.Params.Message)
				return answer(q.Params), nil
			}
		}
		host := mcp.NewClient(&mcp.Implementation{Name: "fidelity", Version: "1"}, options)
		var err error
		m.session, err = host.Connect(t.Context(), &mcp.StreamableClientTransport{
			Endpoint: r.g.agentURL(r.at.name) + "/mcp", HTTPClient: r.who.client, DisableStandaloneSSE: true,
		}, &mcp.ClientSessionOptions{ProtocolVersion: version})
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = m.session.Close() }()
		if got := m.session.InitializeResult().ProtocolVersion; got != version {
			t.Fatalf("version %s", got)
		}
		do(t, m)
	}
}

// want is a call that asks for work, as its callee has to be asked.
func (m *mcpRun) want(word string) *mcp.CallToolParams {
	if m.at.mcp {
		return &mcp.CallToolParams{Name: word, Arguments: json.RawMessage(`{"job":"` + m.job + `"}`)}
	}
	return &mcp.CallToolParams{Name: "work", Arguments: map[string]any{"message": word + ": " + m.job}}
}

func (m *mcpRun) call(t *testing.T, p *mcp.CallToolParams) *mcp.CallToolResult {
	t.Helper()
	result, err := m.session.CallTool(t.Context(), p)
	if err != nil {
		t.Fatal(err)
	}
	return result
}

func blockText(r *mcp.CallToolResult) string {
	var list []string
	for _, c := range r.Content {
		if text, ok := c.(*mcp.TextContent); ok {
			list = append(list, text.Text)
		}
	}
	return strings.Join(list, "")
}

func expectResult(t *testing.T, r *mcp.CallToolResult, isError bool, text string) {
	t.Helper()
	if r.IsError != isError || blockText(r) != text {
		t.Errorf("isError %t %q, want %t %q", r.IsError, blockText(r), isError, text)
	}
}

func mcpStreaming(t *testing.T, m *mcpRun) {
	p := m.want("stream")
	p.SetProgressToken("bar")
	expectResult(t, m.call(t, p), false, "half whole")
	want := []string{"one", "two"}
	if !m.at.mcp { // the chunks of an artifact are progress too
		want = append(want, "half ", "whole")
	}
	until(t, func() bool { // the SDK has handlers of their own pace
		m.mu.Lock()
		defer m.mu.Unlock()
		return len(m.steps) == len(want)
	})
	m.mu.Lock()
	defer m.mu.Unlock()
	if !slices.Equal(m.steps, want) || !slices.IsSorted(m.progress) {
		t.Errorf("steps %v at %v", m.steps, m.progress)
	}
}

func mcpCanceling(t *testing.T, m *mcpRun) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	failed := make(chan error, 1)
	p := m.want("hold")
	p.SetProgressToken("bar")
	go func() { // waited for below
		_, err := m.session.CallTool(ctx, p)
		failed <- err
	}()
	await(t, m.at.job(m.job).begun)
	if !m.at.mcp { // a worker that has said something has a task by then
		until(t, func() bool {
			m.mu.Lock()
			defer m.mu.Unlock()
			return len(m.steps) > 0
		})
	}
	cancel()
	if err := <-failed; err == nil {
		t.Error("a canceled call has a result")
	}
	await(t, m.at.job(m.job).stopped)
	m.silent = true // whoever leaves may have heard nothing at all
}

// fill answers the one thing that a form wants.
func fill(text string) user {
	return func(q *mcp.ElicitParams) *mcp.ElicitResult {
		var schema struct{ Required []string }
		if err := json.Unmarshal(mustJSON(q.RequestedSchema), &schema); err != nil || len(schema.Required) != 1 {
			return &mcp.ElicitResult{Action: "cancel"}
		}
		return &mcp.ElicitResult{Action: "accept", Content: map[string]any{schema.Required[0]: text}}
	}
}

func decline(*mcp.ElicitParams) *mcp.ElicitResult { return &mcp.ElicitResult{Action: "decline"} }

func mcpAnswering(t *testing.T, m *mcpRun) {
	expectResult(t, m.call(t, m.want("ask")), false, "answer: four")
	m.questions(t)
}

func (m *mcpRun) questions(t *testing.T) {
	t.Helper()
	m.mu.Lock()
	defer m.mu.Unlock()
	if !slices.Equal(m.requested, []string{"for how many?"}) {
		t.Errorf("the user was asked %q", m.requested)
	}
}

func mcpDeclining(t *testing.T, m *mcpRun) {
	want := "answer: decline"
	if !m.at.mcp {
		want = "answer: declined" // to whoever only talks
	}
	expectResult(t, m.call(t, m.want("ask")), false, want)
	m.questions(t)
}

// mcpUnasked is a client that nobody can ask: it gets the question as a result,
// and answers by calling again.
func mcpUnasked(t *testing.T, m *mcpRun) {
	request := m.call(t, m.want("ask"))
	open := remarshal[messageOutput](t, request.StructuredContent)
	if request.IsError || open.State != "input-required" || open.TaskID == "" || !strings.Contains(blockText(request), "for how many?") {
		t.Fatalf("%+v %s", open, blockText(request))
	}
	done := m.call(t, &mcp.CallToolParams{Name: "work", Arguments: map[string]any{"message": "four", "task_id": open.TaskID, "context_id": open.ContextID}})
	expectResult(t, done, false, "answer: four")
}

// mcpCannot: a server that must ask somebody who cannot be asked fails.
func mcpCannot(t *testing.T, m *mcpRun) {
	result, err := m.session.CallTool(t.Context(), m.want("ask"))
	if err == nil && !result.IsError {
		t.Errorf("%s", mustJSON(result))
	}
}

func mcpFilesOut(t *testing.T, m *mcpRun) {
	result := m.call(t, m.want("files"))
	found := map[string]bool{}
	for _, c := range result.Content {
		switch b := c.(type) {
		case *mcp.TextContent:
			found["text"] = found["text"] || b.Text == "see these"
			found["data"] = found["data"] || strings.ReplaceAll(b.Text, " ", "") == `{"n":1}`
		case *mcp.ImageContent:
			found["image"] = string(b.Data) == png && b.MIMEType == "image/png"
		case *mcp.AudioContent:
			found["audio"] = string(b.Data) == "\x01\x02" && b.MIMEType == "audio/wav"
		case *mcp.EmbeddedResource:
			found["bytes"] = found["bytes"] || string(b.Resource.Blob) == "\x00\xff" && b.Resource.URI != ""
			found["text file"] = found["text file"] || b.Resource.Text == "a,b" && b.Resource.MIMEType == "text/csv"
		case *mcp.ResourceLink:
			found["link"] = b.URI == "https://example.com/x.pdf" && b.Name == "x.pdf" && b.MIMEType == "application/pdf"
		}
	}
	want := []string{"text", "image", "bytes", "link"}
	if m.at.mcp {
		want = append(want, "audio", "text file")
		found["data"] = string(mustJSON(result.StructuredContent)) == `{"n":1}`
	}
	for _, kind := range append(want, "data") {
		if !found[kind] {
			t.Errorf("no %s among %s and %s", kind, mustJSON(result.Content), mustJSON(result.StructuredContent))
		}
	}
}

func mcpFilesIn(t *testing.T, m *mcpRun) {
	p := &mcp.CallToolParams{Name: "take", Arguments: map[string]any{"name": "o.bin", "data": []byte{0, 255}}}
	if !m.at.mcp {
		p = &mcp.CallToolParams{Name: "work", Arguments: map[string]any{
			"message": "take:", "files": []any{map[string]any{"name": "o.bin", "mediaType": "application/octet-stream", "bytes": []byte{0, 255}}},
		}}
	}
	result := m.call(t, p)
	for _, c := range result.Content {
		if b, ok := c.(*mcp.EmbeddedResource); ok && string(b.Resource.Blob) == "\x00\xff" && b.Resource.MIMEType == "application/octet-stream" {
			return
		}
	}
	t.Errorf("%s", mustJSON(result))
}

func mcpMany(t *testing.T, m *mcpRun) {
	result := m.call(t, m.want("many"))
	expectResult(t, result, false, "firstsecondthird")
	if len(result.Content) != 3 {
		t.Errorf("%d blocks", len(result.Content))
	}
	if m.at.mcp {
		return
	}
	out := remarshal[struct{ Artifacts []struct{ Name string } }](t, result.StructuredContent)
	names := map[string]bool{}
	for _, a := range out.Artifacts {
		names[a.Name] = true
	}
	if got := slices.Sorted(maps.Keys(names)); !slices.Equal(got, []string{"one", "three", "two"}) {
		t.Errorf("artifacts %v in %s", got, mustJSON(result.StructuredContent))
	}
}

func mcpFailure(t *testing.T, m *mcpRun) {
	expectResult(t, m.call(t, m.want("fail")), true, "it did not work")
}

func mcpRefusal(t *testing.T, m *mcpRun) {
	result := m.call(t, m.want("refuse"))
	expectResult(t, result, true, "will not do")
	if out := remarshal[messageOutput](t, result.StructuredContent); !m.at.mcp && out.State != "rejected" {
		t.Errorf("state %q", out.State)
	}
}

func mcpBreaking(t *testing.T, m *mcpRun) {
	result, err := m.session.CallTool(t.Context(), m.want("break"))
	if err == nil && !result.IsError {
		t.Errorf("%s", mustJSON(result))
	}
}
