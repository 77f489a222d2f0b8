package interop

import (
	"testing"

	"github.com/a2aproject/a2a-go/v2/a2a"
	"github.com/a2aproject/a2a-go/v2/a2aclient"
	"github.com/a2aproject/a2a-go/v2/a2aclient/agentcard"
)

// a2aStreams has the official client stream from the official agent, and ask
// for the task afterwards, over each of the two versions' transports.
func a2aStreams(t *testing.T, g *gw) {
	t.Helper()
	g.concierge(t, "streaming")
	t.Run("JSON-RPC", func(t *testing.T) {
		who := g.anonymous(t)
		a2aStream(t, g, who, a2aclient.WithJSONRPCTransport(who.client))
	})
	t.Run("HTTP", func(t *testing.T) {
		who := g.anonymous(t)
		a2aStream(t, g, who, a2aclient.WithRESTTransport(who.client))
	})
	t.Run("0.3", func(t *testing.T) {
		who := g.anonymous(t)
		a2aStream(t, g, who, oldRPC(who))
	})
}

func a2aStream(t *testing.T, g *gw, who caller, over a2aclient.FactoryOption) {
	t.Helper()
	card, err := agentcard.NewResolver(who.client).Resolve(t.Context(), g.agentURL("streaming"))
	if err != nil {
		t.Fatal(err)
	}
	if !card.Capabilities.Streaming || !card.Capabilities.PushNotifications {
		t.Errorf("the card says %+v", card.Capabilities)
	}
	client, err := a2aclient.NewFromCard(t.Context(), card, a2aclient.WithDefaultsDisabled(), over)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { check(t, client.Destroy()) }()
	var task a2a.TaskID
	artifacts, state := 0, a2a.TaskState("")
	for event, err := range client.SendStreamingMessage(t.Context(), &a2a.SendMessageRequest{Message: said("good evening")}) {
		if err != nil {
			t.Fatal(err)
		}
		switch e := event.(type) {
		case *a2a.Task:
			task, state = e.ID, e.Status.State
		case *a2a.TaskStatusUpdateEvent:
			task, state = e.TaskID, e.Status.State
		case *a2a.TaskArtifactUpdateEvent:
			artifacts++
		}
	}
	if task == "" || artifacts == 0 || state != a2a.TaskStateCompleted {
		t.Fatalf("task %q, %d artifacts, %s", task, artifacts, state)
	}
	got, err := client.GetTask(t.Context(), &a2a.GetTaskRequest{ID: task})
	if err != nil || got.ID != task || got.Status.State != a2a.TaskStateCompleted || len(got.Artifacts) == 0 {
		t.Errorf("%+v %v", got, err)
	}
	if _, err := client.CancelTask(t.Context(), &a2a.CancelTaskRequest{ID: task}); err == nil {
		t.Error("a task that has ended was canceled")
	}
	if _, err := client.GetTask(t.Context(), &a2a.GetTaskRequest{ID: "nobody's"}); err == nil {
		t.Error("there is a task that nobody began")
	}
}
