package gatewaytest

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/aepb/aepb-gateway/test/harness/pushread"
	"github.com/aepb/aepb-gateway/translators/a2a"
	"github.com/aepb/aepb-gateway/translators/ainp"
	"github.com/aepb/aepb-gateway/translators/mcp"
	"github.com/aepb/aepb-gateway/translators/slim"
	"github.com/aepb/aepb-gateway/translators/uacp"
)

// pushToken is what the callers of these tests want to see with every notification.
const pushToken = "push-token-17"

// notification is one request that a webhook took.
type notification struct {
	header http.Header
	body   string
}

// state is the task state that a notification says; empty: it says none.
func (n notification) state() string {
	found := regexp.MustCompile(`"state":"(?:TASK_STATE_)?([A-Za-z_-]+)"`).FindStringSubmatch(n.body)
	if found == nil {
		return ""
	}
	return strings.ReplaceAll(strings.ToLower(found[1]), "_", "-")
}

// PushReceiver is a server that takes push notifications and checks the ECT of each.
type PushReceiver struct {
	URL string

	mu    sync.Mutex
	taken map[string][]notification // by path
	came  chan struct{}             // closed and replaced with every notification
}

// NewPushReceiver serves over TLS until the test ends. A notification whose token does not verify is an error of the
// test.
func NewPushReceiver(t *testing.T, b *Fixture) *PushReceiver {
	t.Helper()
	h := &PushReceiver{taken: map[string][]notification{}, came: make(chan struct{})}
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return
		}
		own := strings.HasPrefix(r.URL.Path, "/arguments-") // the question of the gateway itself
		if why := b.unprovenOf(r, body, !own); why != "" {
			t.Errorf("notification to %s: %s", r.URL.Path, why)
		}
		h.mu.Lock()
		defer h.mu.Unlock()
		h.taken[r.URL.Path] = append(h.taken[r.URL.Path], notification{r.Header, string(body)})
		close(h.came)
		h.came = make(chan struct{})
		w.WriteHeader(http.StatusNoContent)
	}))
	server.TLS = Serving(b.SVID(t, "/webhook"))
	server.StartTLS()
	t.Cleanup(server.Close)
	h.URL = server.URL
	return h
}

// Until waits for a notification at the path that says the state, and returns the
// states of all that came until then, each once in a row.
func (h *PushReceiver) Until(t *testing.T, path, state string) (states []string) {
	t.Helper()
	limit := time.NewTimer(Patience)
	defer limit.Stop()
	for {
		h.mu.Lock()
		came := h.came
		h.mu.Unlock()
		states = slices.Compact(h.States(path))
		if slices.Contains(states, state) {
			return states
		}
		select {
		case <-came:
		case <-limit.C:
			t.Errorf("%s: no notification says %s; they say %q", path, state, states)
			return states
		}
	}
}

// PushForm is one way to speak A2A: a version and its form.
type PushForm struct {
	Name    string
	Version string
	form    string
}

// PushForms are all ways to speak A2A, those of 1.0 first.
func PushForms() []PushForm {
	return []PushForm{
		{"1.0 JSON-RPC", a2a.Version, ""},
		{"1.0 HTTP", a2a.Version, a2a.FormHTTP},
		{"1.0 gRPC", a2a.Version, a2a.FormGRPC},
		{"0.3 JSON-RPC", a2a.Version03, ""},
		{"0.3 HTTP", a2a.Version03, a2a.FormHTTP},
	}
}

// JSONRPCForms are the callers of both versions in their usual form.
func JSONRPCForms() []PushForm { return []PushForm{PushForms()[0], PushForms()[3]} }

// Sending is a message with a push notification configuration in it.
type Sending struct {
	Agent, Task, Words string
	Hook               string // empty: the message has no configuration
	Stream, Returns    bool   // returns: at once (A2A 1.0 returnImmediately, 0.3 blocking=false)
}

// Send sends it and returns the whole answer, as text.
func (f PushForm) Send(t *testing.T, b *Fixture, s Sending) string {
	t.Helper()
	old := f.Version == a2a.Version03
	message, settings := map[string]any{"messageId": "m-" + s.Words, "role": "ROLE_USER"}, map[string]any{}
	if s.Task != "" {
		message["taskId"] = s.Task
	}
	push := map[string]any{"id": "p1", "url": s.Hook, "token": pushToken}
	parts, name := []any{map[string]any{"text": s.Words}}, "taskPushNotificationConfig"
	switch {
	case old && f.form == "":
		message["kind"], message["role"], name = "message", "user", "pushNotificationConfig"
		parts = []any{map[string]any{"kind": "text", "text": s.Words}}
	case old:
		name = "pushNotification"
	}
	if message["parts"] = parts; old && f.form != "" {
		message["content"] = parts
		delete(message, "parts")
	}
	if s.Hook != "" {
		settings[name] = push
	}
	if old {
		settings["blocking"] = !s.Returns
	} else {
		settings["returnImmediately"] = s.Returns
	}
	params := map[string]any{"message": message, "configuration": settings}
	verb := "send"
	if s.Stream {
		verb = "stream"
	}
	switch {
	case f.form == a2a.FormGRPC:
		params["tenant"] = s.Agent
		return f.grpc(t, b, map[string]string{"send": "SendMessage", "stream": "SendStreamingMessage"}[verb], params)
	case f.form == a2a.FormHTTP:
		return f.http(t, b, http.MethodPost, s.Agent, "/message:"+verb, string(MustJSON(t, params)))
	case old:
		return f.rpc(t, b, s.Agent, "message/"+verb, params)
	default:
		return f.rpc(t, b, s.Agent, map[string]string{"send": "SendMessage", "stream": "SendStreamingMessage"}[verb], params)
	}
}

// List asks for the configurations of a task, and returns the answer as text.
func (f PushForm) List(t *testing.T, b *Fixture, agent, task string) string {
	t.Helper()
	switch {
	case f.form == a2a.FormGRPC:
		return f.grpc(t, b, "ListTaskPushNotificationConfigs", map[string]any{"tenant": agent, "taskId": task})
	case f.form == a2a.FormHTTP:
		return f.http(t, b, http.MethodGet, agent, "/tasks/"+task+"/pushNotificationConfigs", "")
	case f.Version == a2a.Version03:
		return f.rpc(t, b, agent, "tasks/pushNotificationConfig/list", map[string]any{"id": task})
	default:
		return f.rpc(t, b, agent, "ListTaskPushNotificationConfigs", map[string]any{"taskId": task})
	}
}

func (f PushForm) rpc(t *testing.T, b *Fixture, agent, method string, params any) string {
	t.Helper()
	body := MustJSON(t, map[string]any{"jsonrpc": "2.0", "id": 7, "method": method, "params": params})
	return string(b.Send(t, HTTPRequest{At: "/agents/" + agent + "/a2a", Body: string(body), Header: map[string]string{"A2A-Version": f.Version}}).Body)
}

func (f PushForm) http(t *testing.T, b *Fixture, verb, agent, place, body string) string {
	t.Helper()
	l := HTTPRequest{Method: verb, At: "/agents/" + agent + "/a2a" + place, Body: body, Header: map[string]string{"A2A-Version": f.Version}}
	if f.Version == a2a.Version03 {
		l.At, l.Header = "/agents/"+agent+"/a2a/v1"+place, nil
	}
	if body == "" {
		l.Media = "-"
	}
	return string(b.Send(t, l).Body)
}

func (f PushForm) grpc(t *testing.T, b *Fixture, method string, params map[string]any) string {
	t.Helper()
	got := b.Remote(t, b.ClientTLS(t, b.Dev.Client)).Call(t.Context(), method, [][]byte{Request(t, method, string(MustJSON(t, params)))})
	var all []string
	for _, m := range got.Messages {
		all = append(all, string(m))
	}
	return strings.Join(append(all, got.Details), "\n")
}

// TaskIn is the id of the task that an answer names first.
func (f PushForm) TaskIn(t *testing.T, answer string) string {
	t.Helper()
	if f.form == a2a.FormGRPC {
		return minted.FindString(answer)
	}
	var found string
	for line := range strings.SplitSeq(answer, "\n") {
		var doc any
		if json.Unmarshal([]byte(strings.TrimPrefix(line, "data: ")), &doc) == nil && found == "" {
			found = taskIDIn(doc)
		}
	}
	if found == "" {
		t.Fatalf("%s: no task in %s", f.Name, answer)
	}
	return found
}

// taskIDIn finds the id of a task, or of a change of its status.
func taskIDIn(doc any) string {
	object, ok := doc.(map[string]any)
	if !ok {
		return ""
	}
	for _, name := range []string{"id", "taskId"} {
		if id, ok := object[name].(string); ok && object["status"] != nil {
			return id
		}
	}
	for _, value := range object {
		if id := taskIDIn(value); id != "" {
			return id
		}
	}
	return ""
}

// PushSides are the agents behind the gateway of these tests.
func PushSides() map[string]Side {
	return map[string]Side{
		"A2A 1.0": {"a2a@1.0", a2a.Binding, a2a.Version, ""}, "A2A 0.3": {"a2a@0.3", a2a.Binding, a2a.Version03, ""},
		"MCP": {"mcp@" + mcp.Modern, mcp.Binding, mcp.Modern, ""}, "MCP 2025": {"mcp@" + mcp.Legacy, mcp.Binding, mcp.Legacy, ""}, "µACP": {"uacp", uacp.Binding, "", ""}, "AINP": {"ainp", ainp.Binding, "", ""},
		"SLIM": {"slim@" + slim.VersionA2A + "+rpc", slim.Binding, slim.VersionA2A, slim.FormRPC},
	}
}

// PushPath is the path of the webhook of one case.
func PushPath(words ...string) string {
	return "/" + strings.NewReplacer(" ", "-", "/", "-", "µ", "u").Replace(strings.Join(words, "/"))
}

// Conforms demands that the notifications of a path are as A2A wants them: 1.0 posts a
// StreamResponse (1.0, section 4.3.3), 0.3 the Task (0.3, section 9.5), each with
// the token of the configuration.
func (h *PushReceiver) Conforms(t *testing.T, path string, f PushForm) {
	t.Helper()
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.taken[path]) == 0 {
		t.Errorf("%s: no notification", path)
	}
	for _, n := range h.taken[path] {
		var doc map[string]json.RawMessage
		Must(t, json.Unmarshal([]byte(n.body), &doc))
		header, want := "A2A-Notification-Token", []string{"task", "statusUpdate", "artifactUpdate"}
		whole := len(doc) == 1 && slices.ContainsFunc(want, func(name string) bool { return doc[name] != nil })
		if f.Version == a2a.Version03 {
			header = "X-A2A-Notification-Token"
			whole = string(doc["kind"]) == `"task"` && doc["contextId"] != nil && doc["status"] != nil
		}
		pushread.Task(t, f.Version == a2a.Version03, []byte(n.body)) // the official library reads it
		if !whole || n.header.Get(header) != pushToken {
			t.Errorf("%s: the notification of A2A %s is %s with %v", path, f.Version, n.body, n.header)
		}
	}
}
