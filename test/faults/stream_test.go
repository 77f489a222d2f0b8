package faults

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strconv"
	"strings"
	"testing"

	"github.com/a2aproject/a2a-go/v2/a2a"
	"github.com/a2aproject/a2a-go/v2/a2aclient"
	"github.com/modelcontextprotocol/go-sdk/mcp"
	"golang.org/x/sync/errgroup"

	"github.com/aepb/aepb-gateway/cmd/aepb-gateway/demo/peers"
)

// mid opens the agent's stream well, and goes on as then says.
func mid(then func(x *spoiled, rest string)) fault {
	return func(x *spoiled) {
		good := x.ask(x.r.Context())
		opening, rest, found := strings.Cut(string(good.body), "\n\n")
		if token := progressToken(x.body); token != "" {
			opening = `data: {"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":` + token + `,"progress":1}}`
			rest = string(good.body)
		}
		if !found {
			opening = ": nothing to say yet"
		}
		x.w.Header().Set("Content-Type", "text/event-stream")
		_, _ = io.WriteString(x.w, opening+"\n\n")
		_ = http.NewResponseController(x.w).Flush()
		then(x, rest)
	}
}

// progressToken of an MCP request, as JSON.
func progressToken(body []byte) string {
	var m struct {
		Params struct {
			Meta struct {
				Token json.RawMessage `json:"progressToken"`
			} `json:"_meta"`
		} `json:"params"`
	}
	_ = json.Unmarshal(body, &m)
	return string(m.Params.Meta.Token)
}

// streamTrials are streams that begin well.
func streamTrials() []trial {
	list := []struct {
		name      string
		then      func(x *spoiled, rest string)
		code      string
		requested outcome
	}{
		{"reset", func(x *spoiled, _ string) { reset(x.raw()) }, unreachable, answer},
		{"ends without its end", func(*spoiled, string) {}, badReply, answer},
		{"ends in the middle of an event", func(x *spoiled, rest string) { _, _ = io.WriteString(x.w, rest[:min(40, len(rest))]) }, badReply, answer},
		{"silence", func(x *spoiled, _ string) { <-x.p.over }, timeout, answer},
		{"garbage", func(x *spoiled, _ string) { _, _ = io.WriteString(x.w, "data: <html>\n\n") }, badReply, answer},
		{"wrong id", func(x *spoiled, rest string) {
			_, _ = x.w.Write(idMember.ReplaceAll([]byte(rest), []byte(`"id":"somebody else's"`)))
		}, badReply, answer},
		{"an event without end", func(x *spoiled, _ string) {
			for _, err := io.WriteString(x.w, "data: "); err == nil; {
				_, err = x.w.Write(bytes.Repeat([]byte("x"), 64<<10))
			}
		}, badReply, answer},
	}
	out := make([]trial, len(list))
	for i, l := range list {
		out[i] = trial{name: "then " + l.name, fault: mid(l.then), code: l.code, requested: l.requested}
	}
	return out
}

// streamClients are SDK clients that want to hear of it as it goes.
func streamClients() []client {
	progress := func(old bool) func(t *testing.T, l *listener, at, skill string) (string, error) {
		return func(t *testing.T, l *listener, at, skill string) (string, error) {
			t.Helper()
			return progressing(t.Context(), l, at+"/mcp", skill, old)
		}
	}
	return []client{
		{"A2A stream", func(t *testing.T, l *listener, at, skill string) (string, error) {
			t.Helper()
			return streaming(t.Context(), l, at+"/a2a", skill)
		}},
		{"MCP progress", progress(false)},
		{"MCP progress with sessions", progress(true)},
	}
}

func streaming(ctx context.Context, l *listener, at, skill string) (string, error) {
	endpoint := a2a.NewAgentInterface(at, a2a.TransportProtocolJSONRPC)
	agent, err := a2aclient.NewFromEndpoints(ctx, []*a2a.AgentInterface{endpoint},
		a2aclient.WithDefaultsDisabled(), a2aclient.WithJSONRPCTransport(l.Client))
	if err != nil {
		return "", err
	}
	part := a2a.NewTextPart("hello")
	if skill == "echo" {
		part = a2a.NewDataPart(map[string]any{"skill": skill, "input": map[string]any{"message": "hello"}})
	}
	task := &a2a.Task{}
	for event, err := range agent.SendStreamingMessage(ctx, &a2a.SendMessageRequest{Message: a2a.NewMessage(a2a.MessageRoleUser, part)}) {
		if err != nil {
			return "", err
		}
		switch e := event.(type) {
		case *a2a.Message:
			return peers.A2AReply{Message: e}.Text(), nil
		case *a2a.Task:
			task = e
		case *a2a.TaskStatusUpdateEvent:
			task.Status = e.Status
		case *a2a.TaskArtifactUpdateEvent:
			task.Artifacts = append(task.Artifacts, e.Artifact)
		}
	}
	if task.Status.State != a2a.TaskStateCompleted {
		return "", errors.New("the stream ended with the task " + string(task.Status.State))
	}
	return peers.A2AReply{Task: task}.Text(), agent.Destroy()
}

func progressing(ctx context.Context, l *listener, at, skill string, old bool) (string, error) {
	options := &mcp.ClientSessionOptions{}
	if old {
		options.ProtocolVersion = peers.LegacyMCP
	}
	host := mcp.NewClient(&mcp.Implementation{Name: "faults", Version: "1.0.0"}, nil)
	session, err := host.Connect(ctx, &mcp.StreamableClientTransport{Endpoint: at, HTTPClient: l.Client, MaxRetries: -1}, options)
	if err != nil {
		return "", err
	}
	params := &mcp.CallToolParams{Name: skill, Arguments: json.RawMessage(`{"message":"hello"}`)}
	params.SetProgressToken("token")
	result, err := session.CallTool(ctx, params)
	_ = session.Close()
	if err == nil && result.IsError {
		err = errors.New(peers.MCPReply{Result: result}.Text())
	}
	return peers.MCPReply{Result: result}.Text(), err
}

// TestStreams_EveryFault: every fault of a connection, before callers that listen, and every
// way in which a stream that began well can fail.
func TestStreams_EveryFault(t *testing.T) {
	t.Parallel()
	packed()
	b := newFixture(t)
	var group errgroup.Group
	group.SetLimit(atOnce)
	run := func(name string, f func(t *testing.T)) {
		group.Go(func() error {
			t.Run(name, f)
			return nil
		})
	}
	for i, u := range b.upstreams() {
		for j, c := range streamClients() {
			at := "stream-" + strconv.Itoa(i) + "-" + strconv.Itoa(j) + "-"
			for k, tr := range append(trials(), streamTrials()...) {
				run(u.name+"/"+c.name+"/"+tr.name, func(t *testing.T) { b.try(t, at+strconv.Itoa(k), u, c, tr) })
			}
		}
	}
	_ = group.Wait()
}
