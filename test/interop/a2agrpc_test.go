package interop

import (
	"crypto/tls"
	"encoding/json"
	"strings"
	"testing"

	"github.com/a2aproject/a2a-go/v2/a2a"
	"github.com/a2aproject/a2a-go/v2/a2aclient"
	"github.com/a2aproject/a2a-go/v2/a2aclient/agentcard"

	"github.com/aepb/aepb-gateway/cmd/aepb-gateway/demo/peers"
	"github.com/aepb/aepb-gateway/test/harness/grpctest"
)

// a2aOverGRPC has the official client speak gRPC to agents of all three kinds,
// and everybody speak to the official agent that has nothing else.
func a2aOverGRPC(t *testing.T, g *gw) {
	t.Helper()
	agent := grpctest.NewAgent(t, peers.Deps{TLS: g.peerTLS(t, "only-grpc")})
	stopLater(t, "only-grpc", agent.Stop)
	check(t, g.AddAgentAt(t.Context(), "only-grpc", "a2a-v1", agent.URL(), agent.GRPC()))
	g.unlistLater(t, "only-grpc")
	g.concierge(t, "not-grpc")
	g.toolbox(t, "grpc-tools", true)
	for _, name := range []string{"only-grpc", "not-grpc"} {
		t.Run("to "+name, func(t *testing.T) { a2aGRPCTalks(t, overGRPC(t, g, name)) })
	}
	t.Run("to MCP", func(t *testing.T) {
		got, err := overGRPC(t, g, "grpc-tools").SendMessage(t.Context(), &a2a.SendMessageRequest{
			Message: a2a.NewMessage(a2a.MessageRoleUser, a2a.NewDataPart(map[string]any{"skill": "add", "input": map[string]any{"a": 41, "b": 1}})),
		})
		task, ok := got.(*a2a.Task)
		if err != nil || !ok || task.Status.State != a2a.TaskStateCompleted {
			t.Fatalf("%+v %v", got, err)
		}
	})
	t.Run("from MCP", func(t *testing.T) {
		who := g.anonymous(t)
		got, err := peers.MCPCall(t.Context(), who.client, g.agentURL("only-grpc")+"/mcp", false, "concierge", json.RawMessage(`{"message":"hello"}`))
		if err != nil || !strings.Contains(got.Text(), "You said: hello") {
			t.Errorf("%+v %v", got, err)
		}
	})
}

// overGRPC is the official client of an agent, made from the card, with no
// other transport.
func overGRPC(t *testing.T, g *gw, name string) *a2aclient.Client {
	t.Helper()
	card, err := agentcard.NewResolver(g.anonymous(t).client).Resolve(t.Context(), g.agentURL(name))
	check(t, err)
	conf := &tls.Config{RootCAs: g.Roots(), MinVersion: tls.VersionTLS13}
	client, err := a2aclient.NewFromCard(t.Context(), card, a2aclient.WithDefaultsDisabled(), grpctest.WithGRPC(conf))
	check(t, err)
	t.Cleanup(func() { check(t, client.Destroy()) })
	return client
}

// a2aGRPCTalks sends, streams, asks, cancels and is refused.
func a2aGRPCTalks(t *testing.T, client *a2aclient.Client) {
	t.Helper()
	got, err := client.SendMessage(t.Context(), &a2a.SendMessageRequest{Message: said("hello")})
	if task, ok := got.(*a2a.Task); err != nil || !ok || task.Status.State != a2a.TaskStateCompleted {
		t.Fatalf("got %+v %v", got, err)
	}
	var state a2a.TaskState
	var id a2a.TaskID
	artifacts := 0
	for event, err := range client.SendStreamingMessage(t.Context(), &a2a.SendMessageRequest{Message: said("good evening")}) {
		check(t, err)
		switch e := event.(type) {
		case *a2a.Task:
			id, state = e.ID, e.Status.State
		case *a2a.TaskStatusUpdateEvent:
			state = e.Status.State
		case *a2a.TaskArtifactUpdateEvent:
			artifacts++
		}
	}
	if state != a2a.TaskStateCompleted || artifacts == 0 {
		t.Errorf("the stream ended at %s with %d artifacts", state, artifacts)
	}
	again, err := client.GetTask(t.Context(), &a2a.GetTaskRequest{ID: id})
	if err != nil || again.ID != id || again.Status.State != a2a.TaskStateCompleted {
		t.Errorf("asked again: %+v %v", again, err)
	}
	waits, err := client.SendMessage(t.Context(), &a2a.SendMessageRequest{Message: said("ask: which?")})
	open, ok := waits.(*a2a.Task)
	if err != nil || !ok || open.Status.State != a2a.TaskStateInputRequired {
		t.Fatalf("got %+v %v", waits, err)
	}
	if ended, err := client.CancelTask(t.Context(), &a2a.CancelTaskRequest{ID: open.ID}); err != nil || ended.Status.State != a2a.TaskStateCanceled {
		t.Errorf("cancel: %+v %v", ended, err)
	}
	if _, err := client.GetTask(t.Context(), &a2a.GetTaskRequest{ID: "nobody's"}); err == nil || !strings.Contains(err.Error(), "task") {
		t.Errorf("a task that nobody began: %v", err)
	}
	if page, err := client.ListTasks(t.Context(), &a2a.ListTasksRequest{}); err != nil || len(page.Tasks) == 0 {
		t.Errorf("list: %+v %v", page, err)
	}
}
