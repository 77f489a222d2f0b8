package interop

import (
	"encoding/json"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"
)

// The SDK knows no tasks, neither the extension nor the experiment of 2025-11-25:
// their callers are played word for word.

// taskRun is one run of an MCP caller that takes a task for an answer.
type taskRun struct {
	*run
	version, session string
}

func byTasks(version string, do func(*testing.T, *taskRun)) func(*testing.T, *run) {
	return func(t *testing.T, r *run) {
		t.Helper()
		x := &taskRun{run: r, version: version}
		if version == legacyMCP {
			x.ask(t, "initialize", `"protocolVersion":"2025-11-25","clientInfo":{"name":"c","version":"1"},"capabilities":{"elicitation":{},"tasks":{}}`)
		}
		do(t, x)
	}
}

// ask sends one request and reads its answer, whatever it comes in.
func (x *taskRun) ask(t *testing.T, method, params string) string {
	t.Helper()
	if x.version == modernMCP {
		params += `,"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientInfo":{"name":"c","version":"1"},` +
			`"io.modelcontextprotocol/clientCapabilities":{"elicitation":{"form":{}},"extensions":{"io.modelcontextprotocol/tasks":{}}}}`
	}
	request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, x.g.agentURL(x.at.name)+"/mcp",
		strings.NewReader(`{"jsonrpc":"2.0","id":1,"method":"`+method+`","params":{`+params+`}}`))
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Content-Type", "application/json")
	request.Header.Set("Accept", "application/json, text/event-stream")
	request.Header.Set("Mcp-Protocol-Version", x.version)
	request.Header.Set("Mcp-Method", method)
	var named struct{ Name, TaskID string }
	if err := json.Unmarshal([]byte("{"+params+"}"), &named); err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Mcp-Name", named.Name+named.TaskID)
	if x.session != "" {
		request.Header.Set("Mcp-Session-Id", x.session)
	}
	response, err := x.who.client.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = response.Body.Close() }()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	if id := response.Header.Get("Mcp-Session-Id"); id != "" {
		x.session = id
	}
	texts, _ := messagesIn(response.Header.Get("Content-Type"), string(body))
	if len(texts) == 0 || response.StatusCode != http.StatusOK {
		t.Fatalf("%s: HTTP status %d %s", method, response.StatusCode, body)
	}
	return texts[len(texts)-1]
}

// begin calls the skill and gets a task.
func (x *taskRun) begin(t *testing.T, word string) string {
	t.Helper()
	params := `"name":"work","arguments":{"message":"` + word + `: ` + x.job + `"}`
	if x.version == legacyMCP {
		params += `,"task":{"ttl":60000}`
	}
	answer := x.ask(t, "tools/call", params)
	var env struct {
		Result struct {
			TaskID string
			Task   struct{ TaskID string }
		}
	}
	if err := json.Unmarshal([]byte(answer), &env); err != nil || env.Result.TaskID+env.Result.Task.TaskID == "" {
		t.Fatalf("no task in %s", answer)
	}
	return env.Result.TaskID + env.Result.Task.TaskID
}

// get asks how the task stands.
func (x *taskRun) get(t *testing.T, id string) (status, answer string) {
	t.Helper()
	answer = x.ask(t, "tasks/get", `"taskId":"`+id+`"`)
	var env struct{ Result struct{ Status string } }
	if err := json.Unmarshal([]byte(answer), &env); err != nil {
		t.Fatal(err)
	}
	return env.Result.Status, answer
}

// end polls until the task has ended, and takes its result.
func (x *taskRun) end(t *testing.T, id, status, text string) {
	t.Helper()
	var got, answer string
	until(t, func() bool {
		got, answer = x.get(t, id)
		return got != "working" && got != "input_required" // an answer is taken before it has an effect
	})
	if x.version == legacyMCP && got == "completed" {
		answer = x.ask(t, "tasks/result", `"taskId":"`+id+`"`)
	}
	if got != status || !strings.Contains(answer, text) {
		t.Errorf("%s: %s, want %s with %q", got, answer, status, text)
	}
}

func tasksPolling(t *testing.T, x *taskRun) {
	id := x.begin(t, "slow")
	await(t, x.at.job(x.job).begun)
	if status, answer := x.get(t, id); status != "working" {
		t.Errorf("%s", answer)
	}
	close(x.at.job(x.job).free)
	x.end(t, id, "completed", "done at last")
}

func tasksCanceling(t *testing.T, x *taskRun) {
	id := x.begin(t, "hold")
	await(t, x.at.job(x.job).begun)
	x.ask(t, "tasks/cancel", `"taskId":"`+id+`"`)
	await(t, x.at.job(x.job).stopped)
	x.end(t, id, "cancelled", "")
}

func tasksAnswering(t *testing.T, x *taskRun) {
	id := x.begin(t, "ask")
	status, answer := x.get(t, id)
	var env struct {
		Result struct{ InputRequests map[string]json.RawMessage }
	}
	if err := json.Unmarshal([]byte(answer), &env); err != nil || status != "input_required" || len(env.Result.InputRequests) != 1 ||
		!strings.Contains(answer, "for how many?") {
		t.Fatalf("%s %v", answer, err)
	}
	key := slices.Collect(maps.Keys(env.Result.InputRequests))[0]
	x.ask(t, "tasks/update", `"taskId":"`+id+`","inputResponses":{"`+key+`":{"action":"accept","content":{"reply":"four"}}}`)
	x.end(t, id, "completed", "answer: four")
}

// late begins work that fails after its task was promised.
func (x *taskRun) late(t *testing.T) string {
	t.Helper()
	id := x.begin(t, "late")
	await(t, x.at.job(x.job).begun)
	close(x.at.job(x.job).free)
	return id
}

func tasksFailing(t *testing.T, x *taskRun) {
	status := "completed" // a call that failed has been made (T2)
	if x.version == legacyMCP {
		status = "failed"
	}
	x.end(t, x.late(t), status, "it did not work")
}
