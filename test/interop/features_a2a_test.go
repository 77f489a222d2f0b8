package interop

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/a2aproject/a2a-go/v2/a2a"
	"github.com/a2aproject/a2a-go/v2/a2aclient"
	"github.com/a2aproject/a2a-go/v2/a2aclient/agentcard"
	"github.com/a2aproject/a2a-go/v2/a2asrv"
	"github.com/google/go-cmp/cmp"
)

// features is what a client saw of each feature, in words that are the same for
// both SDKs.
type features map[string]string

// featuresOfA2A is what every A2A client sees of an agent over a transport.
func featuresOfA2A(at *callee, transport string) features {
	want := features{
		"webhooks": "p1, p1 p2, true, p1", "after the webhooks": "TASK_STATE_COMPLETED answer: four",
		"first of the stream": "task", "subscribed": "task artifactUpdate statusUpdate", "same events": "true",
		"subscribed too late": "UNSUPPORTED_OPERATION", "whole": "1 TASK_STATE_COMPLETED half whole", "listed": "true",
		"in pieces": "task statusUpdate statusUpdate artifactUpdate artifactUpdate statusUpdate",
	}
	for _, filter := range []string{"status", "statusTimestampAfter", "historyLength"} {
		want["filter "+filter] = "INVALID_PARAMS"
	}
	if at.mcp {
		maps.Copy(want, features{
			"accepted": "TASK_STATE_COMPLETED answer: four", "declined": "TASK_STATE_COMPLETED answer: decline", "canceled": "TASK_STATE_COMPLETED answer: cancel",
			"answer that does not fit": "INVALID_PARAMS", "asked again": "TASK_STATE_INPUT_REQUIRED , then TASK_STATE_COMPLETED answer: four",
			"unknown tool": "INVALID_PARAMS", "in pieces": "task statusUpdate statusUpdate artifactUpdate statusUpdate",
		})
	}
	switch {
	case at.mcp && transport == "HTTP+JSON":
		want["unknown tool"] = "INTERNAL_ERROR" // SKILL_NOT_FOUND, which the SDKs do not know
	case !at.mcp && transport == "JSONRPC":
		want["subscribed too late"] = "TASK_NOT_FOUND" // as the agent's SDK says it: this is relayed
	}
	return want
}

// featuresOfCards is what every A2A client sees of the cards of two agents more.
func featuresOfCards() features {
	return features{
		"extended card": "work secret", "agent without skills": "0 TASK_STATE_COMPLETED firstsecondthird",
		"members of the card": "capabilities defaultInputModes defaultOutputModes description name skills supportedInterfaces version",
	}
}

// carded starts the worker with a card that says what a test wants.
func (g *gw) carded(t *testing.T, name string, with func(*a2a.AgentCard), options ...a2asrv.RequestHandlerOption) {
	t.Helper()
	server, mux, _ := serveTLS(t, g, name, newDesk(), func() {})
	card := workerCard(server.URL, "1.0")
	with(card)
	mux.Handle(a2asrv.WellKnownAgentCardPath, a2asrv.NewStaticAgentCardHandler(card))
	mux.Handle("/agent", a2asrv.NewJSONRPCHandler(a2asrv.NewHandler(worker{newDesk()}, options...)))
	g.list(t, name, "a2a-v1", server.URL)
}

// a2aFeatures has both SDKs use all that A2A has, over two transports, at agents of
// A2A and MCP.
func a2aFeatures(t *testing.T, g *gw) {
	t.Helper()
	agents := map[string]*callee{
		"A2A":              g.worker(t, "feature-worker", "1.0"),
		"MCP " + modernMCP: g.workshop(t, "feature-shop-modern", true),
		"MCP " + legacyMCP: g.workshop(t, "feature-shop-legacy", false),
		"MCP over SSE":     g.shopOverSSE(t, "feature-shop-sse"),
	}
	extended := workerCard("https://vault.example", "1.0")
	extended.Skills = append(extended.Skills, a2a.AgentSkill{ID: "secret", Name: "Secret", Description: "d", Tags: []string{"t"}})
	g.carded(t, "feature-vault", func(card *a2a.AgentCard) { card.Capabilities.ExtendedAgentCard = true }, a2asrv.WithExtendedAgentCard(extended))
	g.carded(t, "feature-plain", func(card *a2a.AgentCard) { card.Skills = []a2a.AgentSkill{} })
	hook := g.webhook(t, "feature-hook")
	for transport, run := range map[string]func(*testing.T, a2aFeatureJob) a2aFeatureReport{
		"JSONRPC in Go": g.goA2AFeatures, "HTTP+JSON in Go": g.goA2AFeatures,
		"JSONRPC in JavaScript": g.jsA2AFeatures, "HTTP+JSON in JavaScript": g.jsA2AFeatures,
	} {
		t.Run(transport, func(t *testing.T) {
			job := a2aFeatureJob{
				Cert: filepath.Join(g.Dir, "client.pem"), Key: filepath.Join(g.Dir, "client-key.pem"),
				Vault: g.agentURL("feature-vault") + "/", Plain: g.agentURL("feature-plain") + "/", Agents: map[string]a2aFeatureAgent{},
			}
			job.Transport, _, _ = strings.Cut(transport, " ")
			for name, at := range agents {
				path := strings.ReplaceAll("/"+transport+"/"+name, " ", "-")
				job.Agents[name] = a2aFeatureAgent{Base: g.agentURL(at.name) + "/", MCP: at.mcp, Job: path, Hook: hook.url + path}
			}
			got := run(t, job)
			if diff := cmp.Diff(featuresOfCards(), got.Cards); diff != "" {
				t.Error("cards", diff)
			}
			for name, at := range agents {
				want := featuresOfA2A(at, job.Transport)
				if strings.HasSuffix(transport, " in Go") {
					delete(want, "filter statusTimestampAfter") // the SDK takes a time.Time alone
				}
				if diff := cmp.Diff(want, got.Agents[name]); diff != "" {
					t.Error(name, diff)
				}
				path := job.Agents[name].Job
				hook.toldInOrder(t, g.auditor(), path+"/p1")
				if late := hook.states(t, path+"/p2"); slices.Contains(late, a2a.TaskStateCompleted) { // it may have been told how the task stood
					t.Errorf("a webhook that was taken away was told %s", late)
				}
			}
		})
	}
}

// a2aFeatureJob is what a client has to do, as a2a-features.mjs reads it.
type a2aFeatureJob struct {
	Transport string                     `json:"transport"`
	Cert      string                     `json:"cert"`
	Key       string                     `json:"key"`
	Vault     string                     `json:"vault"` // has an extended card
	Plain     string                     `json:"plain"` // has no skills
	Agents    map[string]a2aFeatureAgent `json:"agents"`
}

type a2aFeatureAgent struct {
	Base string `json:"base"`
	MCP  bool   `json:"mcp"`
	Job  string `json:"job"`
	Hook string `json:"hook"`
}

type a2aFeatureReport struct {
	Cards  features            `json:"cards"`
	Agents map[string]features `json:"agents"`
}

func (g *gw) jsA2AFeatures(t *testing.T, job a2aFeatureJob) a2aFeatureReport {
	t.Helper()
	var got a2aFeatureReport
	newJavascript(t).run(t, g.CAFile(), "a2a-features.mjs", job, &got)
	return got
}

// goA2AFeatures does what a2a-features.mjs does.
func (g *gw) goA2AFeatures(t *testing.T, job a2aFeatureJob) a2aFeatureReport {
	t.Helper()
	who := g.authenticated(t)
	who.client.Transport = who.wire.next // which does not wait for the end of a stream
	over := a2aclient.WithJSONRPCTransport(who.client)
	if job.Transport == "HTTP+JSON" {
		over = a2aclient.WithRESTTransport(who.client)
	}
	connect := func(base string) (*a2aFeatureRun, *a2a.AgentCard, []byte) {
		var raw []byte
		resolver := agentcard.Resolver{Client: who.client, CardParser: func(b []byte) (*a2a.AgentCard, error) {
			raw = b
			return agentcard.DefaultCardParser(b)
		}}
		card, err := resolver.Resolve(t.Context(), base, agentcard.WithRequestHeader("A2A-Version", "1.0"))
		if err != nil {
			t.Fatal(err)
		}
		client, err := a2aclient.NewFromCard(t.Context(), card, a2aclient.WithDefaultsDisabled(), over)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { check(t, client.Destroy()) })
		return &a2aFeatureRun{client: client, seen: features{}}, card, raw
	}
	report := a2aFeatureReport{Cards: features{}, Agents: map[string]features{}}
	vault, _, raw := connect(job.Vault)
	card, err := vault.client.GetExtendedAgentCard(t.Context(), &a2a.GetExtendedAgentCardRequest{})
	if err != nil {
		t.Fatal(err)
	}
	var skills []string
	for _, skill := range card.Skills {
		skills = append(skills, skill.ID)
	}
	report.Cards["extended card"] = strings.Join(skills, " ")
	var members map[string]json.RawMessage
	if err := json.Unmarshal(raw, &members); err != nil {
		t.Fatal(err)
	}
	report.Cards["members of the card"] = strings.Join(slices.Sorted(maps.Keys(members)), " ")
	plain, card, _ := connect(job.Plain)
	report.Cards["agent without skills"] = strconv.Itoa(len(card.Skills)) + " " + plain.send(t, said("many: x"), nil)
	for name, at := range job.Agents {
		r, _, _ := connect(at.Base)
		r.a2aFeatureAgent = at
		r.all(t)
		report.Agents[name] = r.seen
	}
	return report
}

// a2aFeatureRun is a Go client at one agent.
type a2aFeatureRun struct {
	a2aFeatureAgent
	client *a2aclient.Client
	seen   features
	task   a2a.TaskID // of the last message
}

func (r *a2aFeatureRun) want(word string) *a2a.Message {
	if r.MCP {
		return typed(word, `{"job":"`+r.Job+`"}`)
	}
	return said(word + ": " + r.Job)
}

// send sends a message and returns what came of it, or the reason of its refusal.
func (r *a2aFeatureRun) send(t *testing.T, m *a2a.Message, config *a2a.SendMessageConfig) string {
	t.Helper()
	got, err := r.client.SendMessage(t.Context(), &a2a.SendMessageRequest{Message: m, Config: config})
	if err != nil {
		return a2a.ErrorReason(err)
	}
	r.task = got.TaskInfo().TaskID
	task, ok := got.(*a2a.Task)
	if !ok {
		t.Fatalf("a %T", got)
	}
	return shownTask(task)
}

func shownTask(task *a2a.Task) string {
	return string(task.Status.State) + " " + textOf(partsOf(task))
}

// answer answers what the last message led to.
func (r *a2aFeatureRun) answer(t *testing.T, part *a2a.Part) string {
	t.Helper()
	return r.send(t, a2a.NewMessageForTask(a2a.MessageRoleUser, a2a.TaskInfo{TaskID: r.task}, part), nil)
}

func (r *a2aFeatureRun) all(t *testing.T) {
	t.Helper()
	if r.MCP {
		r.requested(t)
	}
	r.webhooks(t)
	r.subscribed(t)
	r.pieces(t)
	r.filters(t)
}

func (r *a2aFeatureRun) requested(t *testing.T) {
	t.Helper()
	ask := func() {
		t.Helper()
		if got := r.send(t, r.want("ask"), nil); !strings.HasPrefix(got, string(a2a.TaskStateInputRequired)) {
			t.Errorf("the question: %s", got)
		}
	}
	for what, content := range map[string]string{
		"accepted": `{"action":"accept","content":{"people":"four"}}`, "declined": `{"action":"decline"}`, "canceled": `{"action":"cancel"}`,
	} {
		ask()
		r.seen[what] = r.answer(t, a2a.NewDataPart(json.RawMessage(content)))
	}
	ask()
	r.seen["answer that does not fit"] = r.answer(t, a2a.NewDataPart(json.RawMessage(`{"action":"accept","content":{"people":4}}`)))
	still, err := r.client.GetTask(t.Context(), &a2a.GetTaskRequest{ID: r.task})
	if err != nil {
		t.Fatal(err)
	}
	r.seen["asked again"] = shownTask(still) + ", then " + r.answer(t, a2a.NewTextPart("four"))
	r.seen["unknown tool"] = r.send(t, typed("none", `{}`), nil)
}

func (r *a2aFeatureRun) webhooks(t *testing.T) {
	t.Helper()
	config := func(id string, task a2a.TaskID) *a2a.PushConfig {
		return &a2a.PushConfig{ID: id, TaskID: task, URL: r.Hook + "/" + id, Token: webhookToken}
	}
	r.send(t, r.want("ask"), &a2a.SendMessageConfig{PushConfig: config("p1", "")})
	listed := func() string {
		list, err := r.client.ListTaskPushConfigs(t.Context(), &a2a.ListTaskPushConfigRequest{TaskID: r.task})
		check(t, err)
		var ids []string
		for _, c := range list {
			ids = append(ids, c.ID)
		}
		slices.Sort(ids)
		return strings.Join(ids, " ")
	}
	seen := []string{listed()}
	_, err := r.client.CreateTaskPushConfig(t.Context(), config("p2", r.task))
	check(t, err)
	got, err := r.client.GetTaskPushConfig(t.Context(), &a2a.GetTaskPushConfigRequest{TaskID: r.task, ID: "p2"})
	check(t, err)
	seen = append(seen, listed(), strconv.FormatBool(got != nil && got.URL == r.Hook+"/p2"))
	check(t, r.client.DeleteTaskPushConfig(t.Context(), &a2a.DeleteTaskPushConfigRequest{TaskID: r.task, ID: "p2"}))
	r.seen["webhooks"] = strings.Join(append(seen, listed()), ", ")
	r.seen["after the webhooks"] = r.answer(t, a2a.NewTextPart("four"))
}

// subscribed has a stream, and a second one that is told the same while work goes on.
func (r *a2aFeatureRun) subscribed(t *testing.T) {
	t.Helper()
	running := make(chan a2a.TaskID, 1)
	var first []a2a.Event
	var began sync.WaitGroup
	began.Go(func() {
		for event, err := range r.client.SendStreamingMessage(t.Context(), &a2a.SendMessageRequest{Message: r.want("slow")}) {
			if err != nil {
				t.Error(err)
				return
			}
			first = append(first, event)
			if state := statusOf(event); state == a2a.TaskStateWorking && len(running) == 0 {
				running <- event.TaskInfo().TaskID
			}
		}
	})
	var id a2a.TaskID
	select {
	case id = <-running:
	case <-time.After(10 * time.Second):
		t.Fatal("no work goes on after 10 s")
	}
	var second []a2a.Event
	for event, err := range r.client.SubscribeToTask(t.Context(), &a2a.SubscribeToTaskRequest{ID: id}) {
		if err != nil {
			t.Fatal(err)
		}
		if second = append(second, event); len(second) == 1 {
			r.send(t, r.want("free"), nil)
		}
	}
	began.Wait()
	r.task = id
	r.seen["first of the stream"], _, _ = strings.Cut(kindsOf(first), " ")
	r.seen["subscribed"] = kindsOf(second)
	tail := first[max(0, len(first)-len(second)+1):]
	r.seen["same events"] = strconv.FormatBool(bytes.Equal(mustJSON(tail), mustJSON(second[1:])))
	for _, err := range r.client.SubscribeToTask(t.Context(), &a2a.SubscribeToTaskRequest{ID: id}) {
		r.seen["subscribed too late"] = a2a.ErrorReason(err)
	}
}

func statusOf(event a2a.Event) a2a.TaskState {
	switch e := event.(type) {
	case *a2a.Task:
		return e.Status.State
	case *a2a.TaskStatusUpdateEvent:
		return e.Status.State
	}
	return ""
}

// kindsOf names the events of a stream as the protocol does.
func kindsOf(events []a2a.Event) string {
	var kinds []string
	for _, event := range events {
		switch event.(type) {
		case *a2a.Task:
			kinds = append(kinds, "task")
		case *a2a.TaskStatusUpdateEvent:
			kinds = append(kinds, "statusUpdate")
		case *a2a.TaskArtifactUpdateEvent:
			kinds = append(kinds, "artifactUpdate")
		default:
			kinds = append(kinds, fmt.Sprintf("%T", event))
		}
	}
	return strings.Join(kinds, " ")
}

// pieces streams one text in two pieces, and reads it as a whole.
func (r *a2aFeatureRun) pieces(t *testing.T) {
	t.Helper()
	var events []a2a.Event
	for event, err := range r.client.SendStreamingMessage(t.Context(), &a2a.SendMessageRequest{Message: r.want("stream")}) {
		if err != nil {
			t.Fatal(err)
		}
		events = append(events, event)
	}
	r.seen["in pieces"] = kindsOf(events)
	whole, err := r.client.GetTask(t.Context(), &a2a.GetTaskRequest{ID: events[0].TaskInfo().TaskID})
	if err != nil {
		t.Fatal(err)
	}
	r.seen["whole"] = strconv.Itoa(len(whole.Artifacts)) + " " + shownTask(whole)
}

// filters lists tasks, with filters that can be read and others.
func (r *a2aFeatureRun) filters(t *testing.T) {
	t.Helper()
	page, err := r.client.ListTasks(t.Context(), &a2a.ListTasksRequest{})
	if err != nil {
		t.Fatal(err)
	}
	r.seen["listed"] = strconv.FormatBool(slices.ContainsFunc(page.Tasks, func(task *a2a.Task) bool { return task.ID == r.task }))
	negative := -5
	for filter, request := range map[string]*a2a.ListTasksRequest{"status": {Status: "TASK_STATE_RUNNING"}, "historyLength": {HistoryLength: &negative}} {
		_, err := r.client.ListTasks(t.Context(), request)
		r.seen["filter "+filter] = a2a.ErrorReason(err)
	}
}
