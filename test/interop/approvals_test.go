package interop

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/a2aproject/a2a-go/v2/a2a"
	"github.com/a2aproject/a2a-go/v2/a2aclient"
	"github.com/a2aproject/a2a-go/v2/a2aclient/agentcard"

	"github.com/aepb/aepb-gateway/cmd/aepb-gateway/demo/peers"
)

// approvals has unmodified SDK clients call agents whose calls an approver decides about.
func approvals(t *testing.T, g *gw) {
	t.Helper()
	g.toolbox(t, "guarded-tools", true)
	g.concierge(t, "guarded-concierge")
	t.Run("A2A Go", func(t *testing.T) { approveA2AGo(t, g) })
	t.Run("A2A JavaScript", func(t *testing.T) { approveA2AJS(t, g) })
	for _, legacy := range []bool{false, true} {
		t.Run("MCP Go", func(t *testing.T) { approveMCPGo(t, g, legacy) })
	}
	for _, mode := range []string{"auto", "legacy"} {
		t.Run("MCP JavaScript "+mode, func(t *testing.T) { approveMCPJS(t, g, mode) })
	}
}

// decide decides about the one call that waits.
func (g *gw) decide(t *testing.T, decision string) {
	t.Helper()
	pending, err := g.Pending(t.Context())
	if err != nil || len(pending) != 1 {
		t.Fatalf("%d approvals wait, expected one (%v)", len(pending), err)
	}
	if err := g.Decide(t.Context(), pending[0], decision, "seen"); err != nil {
		t.Fatal(err)
	}
}

// ended reads a task until it does not wait any more.
func ended(t *testing.T, read func() (state, text string)) (state, text string) {
	t.Helper()
	for tick := time.NewTicker(20 * time.Millisecond); ; <-tick.C {
		state, text = read()
		if !strings.HasSuffix(state, "AUTH_REQUIRED") && !strings.HasSuffix(state, "WORKING") {
			tick.Stop()
			return state, text
		}
	}
}

func taskText(task *a2a.Task) string {
	var texts []string
	for _, artifact := range task.Artifacts {
		for _, part := range artifact.Parts {
			texts = append(texts, part.Text())
		}
	}
	if task.Status.Message != nil {
		for _, part := range task.Status.Message.Parts {
			texts = append(texts, part.Text())
		}
	}
	return strings.Join(texts, " ")
}

func connectA2A(t *testing.T, client *http.Client, url string) *a2aclient.Client {
	t.Helper()
	card, err := agentcard.NewResolver(client).Resolve(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	agent, err := a2aclient.NewFromCard(t.Context(), card, a2aclient.WithDefaultsDisabled(), a2aclient.WithJSONRPCTransport(client))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { check(t, agent.Destroy()) })
	return agent
}

func approveA2AGo(t *testing.T, g *gw) {
	t.Helper()
	agent := connectA2A(t, g.authenticated(t).client, g.agentURL("guarded-tools"))
	for decision, want := range map[string]struct{ state, text string }{
		"approve": {string(a2a.TaskStateCompleted), "good evening"}, "deny": {string(a2a.TaskStateRejected), "seen"},
	} {
		reply, err := agent.SendMessage(t.Context(), &a2a.SendMessageRequest{Message: typed("echo", `{"message":"good evening"}`)})
		task, ok := reply.(*a2a.Task)
		if err != nil || !ok || task.Status.State != a2a.TaskStateAuthRequired || !strings.Contains(taskText(task), "/hitl/approvals/") {
			t.Fatalf("%+v, %v", reply, err)
		}
		g.decide(t, decision)
		state, text := ended(t, func() (string, string) {
			got, err := agent.GetTask(t.Context(), &a2a.GetTaskRequest{ID: task.ID})
			if err != nil {
				t.Fatal(err)
			}
			return string(got.Status.State), taskText(got)
		})
		if state != want.state || !strings.Contains(text, want.text) {
			t.Errorf("%s: the task is %s, %q", decision, state, text)
		}
	}
}

func approveA2AJS(t *testing.T, g *gw) {
	t.Helper()
	use := func(job jsA2AJob) (report jsA2AReport) {
		job.Base = g.agentURL("guarded-tools") + "/"
		newJavascript(t).run(t, g.CAFile(), "a2a-client.mjs", job, &report)
		if len(report.Results) != 1 || report.Results[0].Error != nil {
			t.Fatalf("%+v", report.Results)
		}
		return report
	}
	for decision, want := range map[string]struct{ state, text string }{
		"approve": {"TASK_STATE_COMPLETED", "good evening"}, "deny": {"TASK_STATE_REJECTED", "seen"},
	} {
		first := use(jsA2AJob{Messages: [][]jsPart{jsData(`{"skill":"echo","input":{"message":"good evening"}}`)}}).Results[0]
		if first.State != "TASK_STATE_AUTH_REQUIRED" || !strings.Contains(first.Text, "/hitl/approvals/") {
			t.Fatalf("%+v", first)
		}
		g.decide(t, decision)
		state, text := ended(t, func() (string, string) {
			later := use(jsA2AJob{Messages: [][]jsPart{}, Tasks: []string{first.ID}}).Results[0]
			return later.State, later.Text
		})
		if state != want.state || !strings.Contains(text, want.text) {
			t.Errorf("%s: the task is %s, %q", decision, state, text)
		}
	}
}

// refusedThenGranted: a call is refused with the path of its approval, and goes through once when it is granted.
func refusedThenGranted(t *testing.T, g *gw, call func() (text string, failed bool)) {
	t.Helper()
	if text, failed := call(); !failed || !strings.Contains(text, "/hitl/approvals/") {
		t.Fatalf("failed %v, %q", failed, text)
	}
	g.decide(t, "approve")
	if text, failed := call(); failed || !strings.Contains(text, "good evening") {
		t.Fatalf("granted: failed %v, %q", failed, text)
	}
	if text, failed := call(); !failed || !strings.Contains(text, "/hitl/approvals/") {
		t.Errorf("once more: failed %v, %q", failed, text)
	}
	g.decide(t, "deny")
	if text, failed := call(); !failed || !strings.Contains(text, "seen") {
		t.Errorf("denied: failed %v, %q", failed, text)
	}
}

func approveMCPGo(t *testing.T, g *gw, legacy bool) {
	t.Helper()
	who := g.authenticated(t)
	message := "message: good evening"
	if legacy {
		message += " to all" // another call than that of the other revision, which was denied
	}
	args := remarshal[json.RawMessage](t, map[string]string{"message": message})
	refusedThenGranted(t, g, func() (string, bool) {
		reply, err := peers.MCPCall(t.Context(), who.client, g.agentURL("guarded-concierge")+"/mcp", legacy, peers.ConciergeSkill, args)
		if err != nil {
			return err.Error(), true
		}
		return reply.Text(), reply.Result.IsError
	})
}

func approveMCPJS(t *testing.T, g *gw, mode string) {
	t.Helper()
	call := jsCall{Name: peers.ConciergeSkill, Arguments: remarshal[json.RawMessage](t, map[string]string{"message": "message: good evening, " + mode})}
	refusedThenGranted(t, g, func() (string, bool) {
		var got jsMCPReport
		newJavascript(t).run(t, g.CAFile(), "mcp-client.mjs", jsMCPJob{Endpoint: g.agentURL("guarded-concierge") + "/mcp", Mode: mode, Calls: []jsCall{call}}, &got)
		if len(got.Results) != 1 {
			t.Fatalf("%+v", got.Results)
		}
		if failure := got.Results[0].Error; failure != nil {
			return failure.Message, true
		}
		return got.Results[0].Text, got.Results[0].IsError
	})
}
