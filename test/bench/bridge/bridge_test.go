package bridge

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/a2aproject/a2a-go/v2/a2a"
	"github.com/a2aproject/a2a-go/v2/a2aclient"
	"github.com/modelcontextprotocol/go-sdk/mcp"
	"go.uber.org/goleak"

	"github.com/aepb/aepb-gateway/cmd/aepb-gateway/demo/peers"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// upstream is an MCP server at /mcp and an A2A agent at /a2a, of the SDKs. Both answer in
// capitals, so that an answer is told from what was sent.
func upstream(t *testing.T) *httptest.Server {
	t.Helper()
	tools := mcp.NewServer(&mcp.Implementation{Name: "upstream", Version: "1.0.0"}, nil)
	tools.AddTool(&mcp.Tool{Name: "echo", InputSchema: json.RawMessage(echoInput)}, func(_ context.Context, r *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		var in struct{ Message string }
		if err := json.Unmarshal(r.Params.Arguments, &in); err != nil {
			return nil, err
		}
		return &mcp.CallToolResult{IsError: in.Message == "fail", Content: []mcp.Content{&mcp.TextContent{Text: strings.ToUpper(in.Message)}}}, nil
	})
	mux := http.NewServeMux()
	mux.Handle("/mcp", mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return tools }, &mcp.StreamableHTTPOptions{Stateless: true}))
	mux.HandleFunc("/a2a", func(w http.ResponseWriter, r *http.Request) {
		var in struct {
			ID     json.RawMessage
			Params struct {
				Message struct {
					Parts []struct {
						Data struct {
							Skill string
							Input struct{ Message string }
						}
					}
				}
			}
		}
		if err := json.NewDecoder(r.Body).Decode(&in); err != nil || len(in.Params.Message.Parts) != 1 || in.Params.Message.Parts[0].Data.Skill != "echo" {
			http.Error(w, "not the message that was expected", http.StatusBadRequest)
			return
		}
		state, text := "COMPLETED", in.Params.Message.Parts[0].Data.Input.Message
		if text == "fail" {
			state = "FAILED"
		}
		_, _ = w.Write([]byte(`{"jsonrpc":"2.0","id":` + string(in.ID) + `,"result":{"task":{"id":"t","contextId":"c","status":{"state":"TASK_STATE_` + state +
			`"},"artifacts":[{"artifactId":"a","parts":[{"text":"` + strings.ToUpper(text) + `"}]}]}}}`))
	})
	server := httptest.NewServer(mux)
	t.Cleanup(server.Close)
	return server
}

// opened is a bridge that listens, and a client for it.
func opened(t *testing.T) (string, *http.Client) {
	t.Helper()
	up := upstream(t)
	out, in := &http.Transport{}, &http.Transport{}
	b, err := New(t.Context(), Deps{MCP: up.URL + "/mcp", A2A: up.URL + "/a2a", Client: &http.Client{Transport: out}})
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(b)
	t.Cleanup(func() {
		in.CloseIdleConnections()
		server.Close()
		if err := b.Close(); err != nil {
			t.Error(err)
		}
		out.CloseIdleConnections()
	})
	return server.URL, &http.Client{Transport: in}
}

func TestBridge_A2AToMCP(t *testing.T) {
	t.Parallel()
	url, client := opened(t)
	agent, err := a2aclient.NewFromEndpoints(t.Context(), []*a2a.AgentInterface{a2a.NewAgentInterface(url+A2APath, a2a.TransportProtocolJSONRPC)},
		a2aclient.WithDefaultsDisabled(), a2aclient.WithJSONRPCTransport(client))
	if err != nil {
		t.Fatal(err)
	}
	send := func(part *a2a.Part) (a2a.SendMessageResult, error) {
		return agent.SendMessage(t.Context(), &a2a.SendMessageRequest{Message: a2a.NewMessage(a2a.MessageRoleUser, part)})
	}
	call := func(text string) *a2a.Part {
		return a2a.NewDataPart(map[string]any{"skill": "echo", "input": map[string]any{"message": text}})
	}
	got, err := send(call("hello"))
	if reply, ok := got.(*a2a.Message); err != nil || !ok || (peers.A2AReply{Message: reply}).Text() != "HELLO" {
		t.Errorf("%+v, %v", got, err)
	}
	for name, part := range map[string]*a2a.Part{"a failed tool": call("fail"), "no skill": a2a.NewTextPart("hello")} {
		if got, err := send(part); err == nil {
			t.Errorf("%s: %+v", name, got)
		}
	}
}

func TestBridge_MCPToA2A(t *testing.T) {
	t.Parallel()
	url, client := opened(t)
	got, err := peers.MCPCall(t.Context(), client, url+MCPPath, false, "echo", json.RawMessage(`{"message":"hello"}`))
	if err != nil || got.Text() != "HELLO" || got.Result.IsError || got.Version != peers.LegacyMCP || len(got.Tools) != 1 {
		t.Errorf("%+v, %v", got, err)
	}
	if got, err := peers.MCPCall(t.Context(), client, url+MCPPath, false, "echo", json.RawMessage(`{"message":"fail"}`)); err == nil && !got.Result.IsError {
		t.Errorf("a failed task: %+v", got)
	}
}

func TestNew_NoServer(t *testing.T) {
	t.Parallel()
	gone := httptest.NewServer(http.NotFoundHandler())
	gone.Close()
	if b, err := New(t.Context(), Deps{MCP: gone.URL, A2A: gone.URL, Client: &http.Client{Transport: &http.Transport{}}}); err == nil {
		t.Errorf("%+v", b)
	}
}
