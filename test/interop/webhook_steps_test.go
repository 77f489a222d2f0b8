package interop

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// fiveSteps has webhooks told of work of five steps, whatever the caller of the work
// waits for and whatever the agent speaks: each change once or more, in order (A2A 1.0
// section 4.3.3).
func fiveSteps(t *testing.T, g *gw) {
	t.Helper()
	hook := g.webhook(t, "steps-hook")
	for to, at := range map[string]*callee{
		"A2A 1.0": g.worker(t, "steps-worker", "1.0"), "A2A 0.3": g.worker(t, "steps-old", "0.3"),
		"MCP " + modernMCP: g.stepper(t, "steps-modern", true), "MCP " + legacyMCP: g.stepper(t, "steps-legacy", false),
	} {
		for _, from := range []string{"1.0", "0.3"} {
			for _, waits := range []bool{true, false} {
				path := strings.ReplaceAll("/"+from+"/"+to+"/"+strconv.FormatBool(waits), " ", "-")
				t.Run(from+" to "+to+", waiting "+strconv.FormatBool(waits), func(t *testing.T) {
					t.Parallel()
					r := g.fidelityRun(t, at)
					answer := r.steps(t, from, hook.url+path, waits)
					until(t, func() bool { return slices.Contains(hook.steps(t, path), "completed") })
					want := []string{"working", "step 1", "step 2", "step 3", "step 4", "step 5", "artifact", "completed"}
					if !at.mcp {
						want[0] = "submitted"
					}
					got := hook.steps(t, path)
					if from == "0.3" { // which is told the whole task: an artifact comes with its end
						want = slices.Delete(want, 6, 7)
						got = slices.DeleteFunc(got, func(step string) bool { return step == "artifact" })
					}
					if !slices.Equal(got, want) {
						t.Errorf("posted was %q", got)
					}
					if plain := r.steps(t, from, "", true); waits && unnamed(t, plain) != unnamed(t, answer) {
						t.Errorf("its caller is answered\n%s\nand without a webhook\n%s", answer, plain)
					}
					r.audit(t)
				})
			}
		}
	}
}

// stepper starts an MCP server with a tool that tells its progress.
func (g *gw) stepper(t *testing.T, name string, stateless bool) *callee {
	t.Helper()
	d := newDesk()
	shop := mcp.NewServer(&mcp.Implementation{Name: "stepper", Version: "1"}, nil)
	shop.AddTool(&mcp.Tool{Name: "steps", Description: "steps", InputSchema: json.RawMessage(`{"type":"object"}`)},
		func(ctx context.Context, r *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			token := r.Params.GetProgressToken()
			for i := 1; token != nil && i <= 5; i++ {
				err := r.Session.NotifyProgress(ctx, &mcp.ProgressNotificationParams{ProgressToken: token, Progress: float64(i), Message: "step " + strconv.Itoa(i)})
				if err != nil {
					return nil, err
				}
				<-time.After(300 * time.Millisecond) // progress is posted at most every 250 ms
			}
			return texts("made"), nil
		})
	server, mux, book := serveTLS(t, g, name, d, func() {
		for session := range shop.Sessions() {
			_ = session.Close()
		}
	})
	mux.Handle("/mcp", mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return shop }, &mcp.StreamableHTTPOptions{Stateless: stateless}))
	if err := g.AddServer(t.Context(), name, server.URL+"/mcp"); err != nil {
		t.Fatal(err)
	}
	g.unlistLater(t, name)
	return &callee{desk: d, logbook: book, name: name, mcp: true}
}

// steps asks for the work of five steps and returns the answer.
func (r *run) steps(t *testing.T, from, hook string, waits bool) string {
	t.Helper()
	part, kind, method, role := `{"text":"steps:"}`, "", "SendMessage", "ROLE_USER"
	config := `"returnImmediately":` + strconv.FormatBool(!waits)
	names := "taskPushNotificationConfig"
	if r.at.mcp {
		part = `{"data":{"skill":"steps","input":{}}}`
	}
	if from == "0.3" {
		part, kind, method, role = strings.Replace(part, `{"`, `{"kind":"text","`, 1), `"kind":"message",`, "message/send", "user"
		names = "pushNotificationConfig"
		if config = `"blocking":` + strconv.FormatBool(waits); r.at.mcp {
			part = strings.Replace(part, `"text"`, `"data"`, 1)
		}
	}
	if hook != "" {
		config += `,"` + names + `":{"url":"` + hook + `","token":"` + webhookToken + `"}`
	}
	request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, r.g.agentURL(r.at.name)+"/a2a", strings.NewReader(
		`{"jsonrpc":"2.0","id":"q","method":"`+method+`","params":{"configuration":{`+config+`},"message":{`+kind+
			`"messageId":"m","role":"`+role+`","parts":[`+part+`]}}}`))
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Content-Type", "application/json")
	request.Header.Set("A2A-Version", from)
	response, err := r.who.client.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = response.Body.Close() }()
	answer, err := io.ReadAll(response.Body)
	if err != nil || response.StatusCode != http.StatusOK || strings.Contains(string(answer), `"error"`) {
		t.Fatalf("%v: HTTP status %d %s", err, response.StatusCode, answer)
	}
	return string(answer)
}

var named = regexp.MustCompile(`[0-9a-f]{8}-[0-9a-f-]{27}|\d{4}-\d\d-\d\dT[^"]*`)

// unnamed is an answer without its ids and times, with its members in one order: what an
// agent of the caller's version says goes on as it came where there is no webhook.
func unnamed(t *testing.T, answer string) string {
	t.Helper()
	var whole any
	if err := json.Unmarshal([]byte(answer), &whole); err != nil {
		t.Fatal(err)
	}
	return named.ReplaceAllString(string(mustJSON(whole)), "_")
}

// steps are what the notices at a path say, each once in a row.
func (h *webhook) steps(t *testing.T, path string) []string {
	t.Helper()
	var list []string
	for _, p := range h.notices(path) {
		var one struct {
			Task, StatusUpdate struct{ Status stepStatus }
			Status             stepStatus
			ArtifactUpdate     json.RawMessage
		}
		if err := json.Unmarshal([]byte(p.body), &one); err != nil {
			t.Fatal(err)
		}
		text := "artifact"
		for _, s := range []stepStatus{one.Task.Status, one.StatusUpdate.Status, one.Status} {
			if s.State != "" {
				text = strings.ToLower(strings.TrimPrefix(s.State, "TASK_STATE_"))
			}
			if len(s.Message.Parts) > 0 {
				text = s.Message.Parts[0].Text
			}
		}
		list = append(list, text)
	}
	return slices.Compact(list)
}

type stepStatus struct {
	State   string
	Message struct{ Parts []struct{ Text string } }
}
