package interop

import (
	"errors"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/a2aproject/a2a-go/v2/a2a"
	"github.com/a2aproject/a2a-go/v2/a2aclient"
	"github.com/a2aproject/a2a-go/v2/a2aclient/agentcard"
)

// a2aRun is one run of an A2A caller.
type a2aRun struct {
	*run
	client *a2aclient.Client
}

// overA2A are the ways in which the official client calls.
func overA2A(way string, who caller) a2aclient.FactoryOption {
	switch way {
	case "A2A 0.3":
		return oldRPC(who)
	case "A2A 1.0 HTTP":
		return a2aclient.WithRESTTransport(who.client)
	default:
		return a2aclient.WithJSONRPCTransport(who.client)
	}
}

func byA2A(way string, do func(*testing.T, *a2aRun)) func(*testing.T, *run) {
	return func(t *testing.T, r *run) {
		t.Helper()
		card, err := agentcard.NewResolver(r.who.client).Resolve(t.Context(), r.g.agentURL(r.at.name))
		if err != nil {
			t.Fatal(err)
		}
		client, err := a2aclient.NewFromCard(t.Context(), card, a2aclient.WithDefaultsDisabled(), overA2A(way, r.who))
		if err != nil {
			t.Fatal(err)
		}
		defer func() { check(t, client.Destroy()) }()
		do(t, &a2aRun{run: r, client: client})
	}
}

// want is a message that asks for work, as its callee has to be asked.
func (r *a2aRun) want(word string) *a2a.Message {
	if r.at.mcp {
		return typed(word, `{"job":"`+r.job+`"}`)
	}
	return said(word + ": " + r.job)
}

func (r *a2aRun) send(t *testing.T, m *a2a.Message) *a2a.Task {
	t.Helper()
	got, err := r.client.SendMessage(t.Context(), &a2a.SendMessageRequest{Message: m})
	if err != nil {
		t.Fatal(err)
	}
	task, ok := got.(*a2a.Task)
	if !ok {
		t.Fatalf("a %T", got)
	}
	return task
}

func partsOf(task *a2a.Task) []*a2a.Part {
	var parts []*a2a.Part
	for _, artifact := range task.Artifacts {
		parts = append(parts, artifact.Parts...)
	}
	return parts
}

func textOf(parts []*a2a.Part) string {
	var list []string
	for _, p := range parts {
		list = append(list, p.Text())
	}
	return strings.Join(list, "")
}

func statusText(task *a2a.Task) string {
	if task.Status.Message == nil {
		return ""
	}
	return textOf(task.Status.Message.Parts)
}

func expectTask(t *testing.T, task *a2a.Task, state a2a.TaskState, artifacts string) {
	t.Helper()
	if task.Status.State != state || textOf(partsOf(task)) != artifacts {
		t.Errorf("%s with %q (%s), want %s with %q", task.Status.State, textOf(partsOf(task)), statusText(task), state, artifacts)
	}
}

// viewed is what a stream shows its reader.
type viewed struct {
	task      a2a.TaskID
	states    []a2a.TaskState
	steps     []string
	artifacts map[a2a.ArtifactID][]*a2a.Part
	chunks    int
}

func (v *viewed) see(event a2a.Event) {
	status := func(s a2a.TaskStatus) {
		if len(v.states) == 0 || v.states[len(v.states)-1] != s.State {
			v.states = append(v.states, s.State)
		}
		if s.Message != nil && s.State == a2a.TaskStateWorking {
			v.steps = append(v.steps, textOf(s.Message.Parts))
		}
	}
	switch e := event.(type) {
	case *a2a.Task:
		v.task = e.ID
		status(e.Status)
		for _, a := range e.Artifacts {
			v.artifacts[a.ID] = a.Parts
		}
	case *a2a.TaskStatusUpdateEvent:
		v.task = e.TaskID
		status(e.Status)
	case *a2a.TaskArtifactUpdateEvent:
		v.chunks++
		if e.Append {
			v.artifacts[e.Artifact.ID] = append(v.artifacts[e.Artifact.ID], e.Artifact.Parts...)
		} else {
			v.artifacts[e.Artifact.ID] = e.Artifact.Parts
		}
	}
}

func (v *viewed) text() string {
	var text strings.Builder
	for _, id := range slices.Sorted(maps.Keys(v.artifacts)) {
		text.WriteString(textOf(v.artifacts[id]))
	}
	return text.String()
}

func a2aStreaming(t *testing.T, r *a2aRun) {
	v := viewed{artifacts: map[a2a.ArtifactID][]*a2a.Part{}}
	for event, err := range r.client.SendStreamingMessage(t.Context(), &a2a.SendMessageRequest{Message: r.want("stream")}) {
		if err != nil {
			t.Fatal(err)
		}
		v.see(event)
	}
	if !slices.Equal(v.steps, []string{"one", "two"}) || v.text() != "half whole" || v.states[len(v.states)-1] != a2a.TaskStateCompleted {
		t.Errorf("%+v", v)
	}
	if !r.at.mcp && v.chunks != 2 {
		t.Errorf("%d pieces of one artifact", v.chunks)
	}
	again, err := r.client.GetTask(t.Context(), &a2a.GetTaskRequest{ID: v.task})
	if err != nil {
		t.Fatal(err)
	}
	expectTask(t, again, a2a.TaskStateCompleted, "half whole")
}

func a2aPolling(t *testing.T, r *a2aRun) {
	begun := time.Now()
	got, err := r.client.SendMessage(t.Context(), &a2a.SendMessageRequest{
		Message: r.want("slow"), Config: &a2a.SendMessageConfig{ReturnImmediately: true},
	})
	if err != nil {
		t.Fatal(err)
	}
	task, ok := got.(*a2a.Task)
	if !ok || task.Status.State.Terminal() {
		t.Fatalf("%+v", got)
	}
	await(t, r.at.job(r.job).begun)
	if took := time.Since(begun); took > 5*time.Second {
		t.Errorf("at once took %s", took)
	}
	if task, err = r.client.GetTask(t.Context(), &a2a.GetTaskRequest{ID: task.ID}); err != nil || task.Status.State.Terminal() {
		t.Fatalf("%+v %v", task, err)
	}
	close(r.at.job(r.job).free)
	until(t, func() bool {
		task, err = r.client.GetTask(t.Context(), &a2a.GetTaskRequest{ID: task.ID})
		return err != nil || task.Status.State.Terminal()
	})
	if err != nil {
		t.Fatal(err)
	}
	expectTask(t, task, a2a.TaskStateCompleted, "done at last")
}

func a2aSubscribing(t *testing.T, r *a2aRun) {
	got, err := r.client.SendMessage(t.Context(), &a2a.SendMessageRequest{
		Message: r.want("slow"), Config: &a2a.SendMessageConfig{ReturnImmediately: true},
	})
	if err != nil {
		t.Fatal(err)
	}
	await(t, r.at.job(r.job).begun)
	v := viewed{artifacts: map[a2a.ArtifactID][]*a2a.Part{}}
	for event, err := range r.client.SubscribeToTask(t.Context(), &a2a.SubscribeToTaskRequest{ID: got.TaskInfo().TaskID}) {
		if err != nil {
			t.Fatal(err)
		}
		if v.see(event); len(v.states) == 1 && len(v.artifacts) == 0 {
			select {
			case <-r.at.job(r.job).free:
			default:
				close(r.at.job(r.job).free)
			}
		}
	}
	if v.text() != "done at last" || v.states[len(v.states)-1] != a2a.TaskStateCompleted {
		t.Errorf("%+v", v)
	}
}

func a2aCanceling(t *testing.T, r *a2aRun) {
	v := viewed{artifacts: map[a2a.ArtifactID][]*a2a.Part{}}
	requested := false
	for event, err := range r.client.SendStreamingMessage(t.Context(), &a2a.SendMessageRequest{Message: r.want("hold")}) {
		if err != nil {
			t.Fatal(err)
		}
		if v.see(event); requested {
			continue
		}
		requested = true
		await(t, r.at.job(r.job).begun)
		task, err := r.client.CancelTask(t.Context(), &a2a.CancelTaskRequest{ID: v.task})
		if err != nil {
			t.Fatal(err)
		}
		expectTask(t, task, a2a.TaskStateCanceled, "")
	}
	await(t, r.at.job(r.job).stopped)
	if len(v.states) == 0 || v.states[len(v.states)-1] != a2a.TaskStateCanceled {
		t.Errorf("the stream ends with %v", v.states)
	}
}

// a2aAsked gets a question and answers it.
func (r *a2aRun) requested(t *testing.T, answer func(*a2a.Task) *a2a.Part) *a2a.Task {
	t.Helper()
	task := r.send(t, r.want("ask"))
	if task.Status.State != a2a.TaskStateInputRequired || !strings.Contains(statusText(task), "for how many?") {
		t.Fatalf("%s: %s", task.Status.State, statusText(task))
	}
	return r.send(t, a2a.NewMessageForTask(a2a.MessageRoleUser, task, answer(task)))
}

func a2aAnswering(t *testing.T, r *a2aRun) {
	done := r.requested(t, func(*a2a.Task) *a2a.Part { return a2a.NewTextPart("four") })
	expectTask(t, done, a2a.TaskStateCompleted, "answer: four")
}

func a2aDeclining(t *testing.T, r *a2aRun) {
	if !r.at.mcp {
		done := r.requested(t, func(*a2a.Task) *a2a.Part { return a2a.NewTextPart("declined") })
		expectTask(t, done, a2a.TaskStateCompleted, "answer: declined")
		return
	}
	done := r.requested(t, func(request *a2a.Task) *a2a.Part {
		for _, p := range request.Status.Message.Parts {
			if data, ok := p.Data().(map[string]any); ok {
				question, _ := data["elicitation"].(map[string]any)
				if question["schema"] == nil {
					t.Errorf("no schema in %v", data)
				}
				answer := a2a.NewDataPart(map[string]any{"elicitation": map[string]any{"key": question["key"], "action": "decline"}})
				answer.MediaType = p.MediaType
				return answer
			}
		}
		t.Fatal("the question has no data part")
		return nil
	})
	expectTask(t, done, a2a.TaskStateCompleted, "answer: decline")
}

func a2aFilesOut(t *testing.T, r *a2aRun) {
	task := r.send(t, r.want("files"))
	if task.Status.State != a2a.TaskStateCompleted {
		t.Fatalf("%s: %s", task.Status.State, statusText(task))
	}
	found := map[string]bool{}
	for _, p := range partsOf(task) {
		switch {
		case p.Text() == "see these":
			found["text"] = true
		case p.Text() == "a,b" && (p.MediaType == "text/csv" || r.from == "A2A 0.3"): // which has no media type of a text
			found["text file"] = true
		case string(p.Raw()) == png && p.MediaType == "image/png":
			found["image"] = true
		case string(p.Raw()) == "\x01\x02" && p.MediaType == "audio/wav":
			found["audio"] = true
		case string(p.Raw()) == "\x00\xff" && p.MediaType == "application/octet-stream":
			found["bytes"] = true
		case p.URL() == "https://example.com/x.pdf" && p.MediaType == "application/pdf" && (p.Filename == "x.pdf"):
			found["link"] = true
		case string(mustJSON(p.Data())) == `{"n":1}`:
			found["data"] = true
		}
	}
	want := []string{"text", "image", "bytes", "link", "data"}
	if r.at.mcp {
		want = append(want, "audio", "text file")
	}
	for _, kind := range want {
		if !found[kind] {
			t.Errorf("no %s among %s", kind, mustJSON(partsOf(task)))
		}
	}
}

func a2aFilesIn(t *testing.T, r *a2aRun) {
	message := typed("take", `{"name":"o.bin","data":"AP8="}`)
	if !r.at.mcp {
		file := a2a.NewRawPart([]byte{0, 255})
		file.MediaType, file.Filename = "application/octet-stream", "o.bin"
		message = a2a.NewMessage(a2a.MessageRoleUser, a2a.NewTextPart("take:"), file)
	}
	task := r.send(t, message)
	parts := partsOf(task)
	if len(parts) != 1 || string(parts[0].Raw()) != "\x00\xff" || parts[0].MediaType != "application/octet-stream" {
		t.Errorf("%s %s", task.Status.State, mustJSON(parts))
	}
}

func a2aMany(t *testing.T, r *a2aRun) {
	task := r.send(t, r.want("many"))
	expectTask(t, task, a2a.TaskStateCompleted, "firstsecondthird")
	if !r.at.mcp && len(task.Artifacts) != 3 {
		t.Errorf("%d artifacts", len(task.Artifacts))
	}
	if parts := partsOf(task); len(parts) != 3 {
		t.Errorf("%d parts", len(parts))
	}
}

func a2aFailure(t *testing.T, r *a2aRun) {
	task := r.send(t, r.want("fail"))
	if task.Status.State != a2a.TaskStateFailed || statusText(task) != "it did not work" {
		t.Errorf("%s: %s", task.Status.State, statusText(task))
	}
}

func a2aRefusal(t *testing.T, r *a2aRun) {
	want := a2a.TaskStateRejected
	if r.at.mcp {
		want = a2a.TaskStateFailed
	}
	if task := r.send(t, r.want("refuse")); task.Status.State != want || statusText(task) != "will not do" {
		t.Errorf("%s: %s", task.Status.State, statusText(task))
	}
}

func a2aBreaking(t *testing.T, r *a2aRun) {
	got, err := r.client.SendMessage(t.Context(), &a2a.SendMessageRequest{Message: r.want("break")})
	if task, ok := got.(*a2a.Task); ok && err == nil && task.Status.State == a2a.TaskStateFailed {
		return // it had begun
	}
	if err == nil || errors.Is(err, a2a.ErrTaskNotFound) {
		t.Errorf("%+v %v", got, err)
	}
}
