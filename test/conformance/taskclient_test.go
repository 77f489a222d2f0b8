package conformance

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"slices"
	"testing"

	"github.com/a2aproject/a2a-go/v2/a2a"
	"github.com/a2aproject/a2a-go/v2/a2aclient"
	"github.com/a2aproject/a2a-go/v2/a2aclient/agentcard"

	"github.com/aepb/aepb-gateway/test/conformance/tasked"
	"github.com/aepb/aepb-gateway/test/interop/devgateway"
)

// TestTasks_OfficialA2AClient: the official A2A client works with the tasks of an MCP
// server.
func TestTasks_OfficialA2AClient(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	binary, err := devgateway.Build(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	gateway := start(t, binary)
	for name, test := range map[string]func(*testing.T, *a2aclient.Client){
		"waits": a2aWaits, "streams": a2aStreams, "does not wait": a2aPolls, "cancels": a2aCancels, "is asked": a2aIsAsked,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := &tasked.Server{}
			at := httptest.NewServer(server)
			t.Cleanup(at.Close)
			agent := "tasked-" + name[:2]
			if err := gateway.AddAgent(t.Context(), agent, "mcp-v1", at.URL); err != nil {
				t.Fatal(err)
			}
			http := gateway.Client()
			t.Cleanup(http.CloseIdleConnections)
			test(t, a2aClient(t, http, gateway.Public+"/agents/"+agent))
			if !slices.Contains(server.Calls(), "tasks/get") {
				t.Errorf("the server was asked %s", server.Calls())
			}
		})
	}
}

func a2aClient(t *testing.T, over *http.Client, url string) *a2aclient.Client {
	t.Helper()
	card, err := agentcard.NewResolver(over).Resolve(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	client, err := a2aclient.NewFromCard(t.Context(), card, a2aclient.WithDefaultsDisabled(), a2aclient.WithJSONRPCTransport(over))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = client.Destroy() })
	return client
}

// calling is the message that calls a tool.
func calling(skill, input string) *a2a.SendMessageRequest {
	part := a2a.NewDataPart(map[string]any{"skill": skill, "input": json.RawMessage(input)})
	part.MediaType = "application/json"
	return &a2a.SendMessageRequest{Message: a2a.NewMessage(a2a.MessageRoleUser, part)}
}

func sent(t *testing.T, client *a2aclient.Client, request *a2a.SendMessageRequest) *a2a.Task {
	t.Helper()
	got, err := client.SendMessage(t.Context(), request)
	if err != nil {
		t.Fatal(err)
	}
	task, ok := got.(*a2a.Task)
	if !ok {
		t.Fatalf("it is answered with %T", got)
	}
	return task
}

// until asks about a task until it is as wanted.
func until(t *testing.T, client *a2aclient.Client, id a2a.TaskID, want func(*a2a.Task) bool) *a2a.Task {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), startTimeout)
	defer cancel()
	for {
		task, err := client.GetTask(ctx, &a2a.GetTaskRequest{ID: id})
		if err != nil {
			t.Fatal(err)
		}
		if want(task) {
			return task
		}
	}
}

func reply(task *a2a.Task) string {
	for _, artifact := range task.Artifacts {
		for _, part := range artifact.Parts {
			if text := part.Text(); text != "" {
				return text
			}
		}
	}
	return ""
}

func a2aWaits(t *testing.T, client *a2aclient.Client) {
	task := sent(t, client, calling("slow_compute", `{"seconds":1,"label":"x"}`))
	if task.Status.State != a2a.TaskStateCompleted || reply(task) != "computed x" {
		t.Errorf("it ends as %+v", task)
	}
	if failed := sent(t, client, calling("failing_job", `{}`)); failed.Status.State != a2a.TaskStateFailed {
		t.Errorf("it fails as %+v", failed)
	}
	if broken := sent(t, client, calling("protocol_error_job", `{}`)); broken.Status.State != a2a.TaskStateFailed {
		t.Errorf("it breaks down as %+v", broken)
	}
}

func a2aStreams(t *testing.T, client *a2aclient.Client) {
	var last a2a.TaskState
	var artifacts int
	for event, err := range client.SendStreamingMessage(t.Context(), calling("slow_compute", `{"seconds":1,"label":"x"}`)) {
		if err != nil {
			t.Fatal(err)
		}
		switch e := event.(type) {
		case *a2a.Task:
			last = e.Status.State
		case *a2a.TaskStatusUpdateEvent:
			last = e.Status.State
		case *a2a.TaskArtifactUpdateEvent:
			artifacts++
		}
	}
	if last != a2a.TaskStateCompleted || artifacts == 0 {
		t.Errorf("it ends as %s with %d artifacts", last, artifacts)
	}
}

func a2aPolls(t *testing.T, client *a2aclient.Client) {
	request := calling("slow_compute", `{"seconds":1,"label":"x"}`)
	request.Config = &a2a.SendMessageConfig{ReturnImmediately: true}
	begun := sent(t, client, request)
	if begun.Status.State.Terminal() {
		t.Errorf("it begins as %+v", begun)
	}
	ended := until(t, client, begun.ID, func(task *a2a.Task) bool { return task.Status.State.Terminal() })
	if ended.Status.State != a2a.TaskStateCompleted || reply(ended) != "computed x" {
		t.Errorf("it ends as %+v", ended)
	}
}

func a2aCancels(t *testing.T, client *a2aclient.Client) {
	request := calling("slow_compute", `{"seconds":500,"label":"x"}`)
	request.Config = &a2a.SendMessageConfig{ReturnImmediately: true}
	begun := sent(t, client, request)
	if _, err := client.CancelTask(t.Context(), &a2a.CancelTaskRequest{ID: begun.ID}); err != nil {
		t.Fatal(err)
	}
	ended := until(t, client, begun.ID, func(task *a2a.Task) bool { return task.Status.State.Terminal() })
	if ended.Status.State != a2a.TaskStateCanceled {
		t.Errorf("it ends as %+v", ended)
	}
}

func a2aIsAsked(t *testing.T, client *a2aclient.Client) {
	request := sent(t, client, calling("confirm_delete", `{"filename":"f"}`))
	if request.Status.State != a2a.TaskStateInputRequired {
		t.Fatalf("it begins as %+v", request)
	}
	answer := a2a.NewMessageForTask(a2a.MessageRoleUser, request, a2a.NewDataPart(map[string]any{"confirm": true}))
	ended := sent(t, client, &a2a.SendMessageRequest{Message: answer})
	if ended.Status.State != a2a.TaskStateCompleted || reply(ended) != "deleted f" {
		t.Errorf("it ends as %+v", ended)
	}
}
