package main

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/aepb/aepb-gateway/cmd/aepb-gateway/demo/pushread"
	"github.com/aepb/aepb-gateway/gateway/config"
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

// pushReceiver is a server that takes push notifications and checks the ECT of each.
type pushReceiver struct {
	url string

	mu    sync.Mutex
	taken map[string][]notification // by path
	came  chan struct{}             // closed and replaced with every notification
}

func newPushReceiver(t *testing.T, b *bed) *pushReceiver {
	t.Helper()
	h := &pushReceiver{taken: map[string][]notification{}, came: make(chan struct{})}
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
	server.TLS = serving(b.svid(t, "/webhook"))
	server.StartTLS()
	t.Cleanup(server.Close)
	h.url = server.URL
	return h
}

// until waits for a notification at the path that says the state, and returns the
// states of all that came until then, each once in a row.
func (h *pushReceiver) until(t *testing.T, path, state string) (states []string) {
	t.Helper()
	limit := time.NewTimer(patience)
	defer limit.Stop()
	for {
		h.mu.Lock()
		came := h.came
		h.mu.Unlock()
		states = slices.Compact(h.states(path))
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

// pushForm is one way to speak A2A: a version and its form.
type pushForm struct {
	name    string
	version string
	form    string
}

func pushForms() []pushForm {
	return []pushForm{
		{"1.0 JSON-RPC", a2a.Version, ""},
		{"1.0 HTTP", a2a.Version, a2a.FormHTTP},
		{"1.0 gRPC", a2a.Version, a2a.FormGRPC},
		{"0.3 JSON-RPC", a2a.Version03, ""},
		{"0.3 HTTP", a2a.Version03, a2a.FormHTTP},
	}
}

// jsonRPCForms are the callers of both versions in their usual form.
func jsonRPCForms() []pushForm { return []pushForm{pushForms()[0], pushForms()[3]} }

// sending is a message with a push notification configuration in it.
type sending struct {
	agent, task, words string
	hook               string // empty: the message has no configuration
	stream, returns    bool   // returns: at once (A2A 1.0 returnImmediately, 0.3 blocking=false)
}

// send sends it and returns the whole answer, as text.
func (f pushForm) send(t *testing.T, b *bed, s sending) string {
	t.Helper()
	old := f.version == a2a.Version03
	message, settings := map[string]any{"messageId": "m-" + s.words, "role": "ROLE_USER"}, map[string]any{}
	if s.task != "" {
		message["taskId"] = s.task
	}
	push := map[string]any{"id": "p1", "url": s.hook, "token": pushToken}
	parts, name := []any{map[string]any{"text": s.words}}, "taskPushNotificationConfig"
	switch {
	case old && f.form == "":
		message["kind"], message["role"], name = "message", "user", "pushNotificationConfig"
		parts = []any{map[string]any{"kind": "text", "text": s.words}}
	case old:
		name = "pushNotification"
	}
	if message["parts"] = parts; old && f.form != "" {
		message["content"] = parts
		delete(message, "parts")
	}
	if s.hook != "" {
		settings[name] = push
	}
	if old {
		settings["blocking"] = !s.returns
	} else {
		settings["returnImmediately"] = s.returns
	}
	params := map[string]any{"message": message, "configuration": settings}
	verb := "send"
	if s.stream {
		verb = "stream"
	}
	switch {
	case f.form == a2a.FormGRPC:
		params["tenant"] = s.agent
		return f.grpc(t, b, map[string]string{"send": "SendMessage", "stream": "SendStreamingMessage"}[verb], params)
	case f.form == a2a.FormHTTP:
		return f.http(t, b, http.MethodPost, s.agent, "/message:"+verb, string(mustJSON(t, params)))
	case old:
		return f.rpc(t, b, s.agent, "message/"+verb, params)
	default:
		return f.rpc(t, b, s.agent, map[string]string{"send": "SendMessage", "stream": "SendStreamingMessage"}[verb], params)
	}
}

// list asks for the configurations of a task, and returns the answer as text.
func (f pushForm) list(t *testing.T, b *bed, agent, task string) string {
	t.Helper()
	switch {
	case f.form == a2a.FormGRPC:
		return f.grpc(t, b, "ListTaskPushNotificationConfigs", map[string]any{"tenant": agent, "taskId": task})
	case f.form == a2a.FormHTTP:
		return f.http(t, b, http.MethodGet, agent, "/tasks/"+task+"/pushNotificationConfigs", "")
	case f.version == a2a.Version03:
		return f.rpc(t, b, agent, "tasks/pushNotificationConfig/list", map[string]any{"id": task})
	default:
		return f.rpc(t, b, agent, "ListTaskPushNotificationConfigs", map[string]any{"taskId": task})
	}
}

func (f pushForm) rpc(t *testing.T, b *bed, agent, method string, params any) string {
	t.Helper()
	body := mustJSON(t, map[string]any{"jsonrpc": "2.0", "id": 7, "method": method, "params": params})
	return string(b.send(t, letter{at: "/agents/" + agent + "/a2a", body: string(body), header: map[string]string{"A2A-Version": f.version}}).body)
}

func (f pushForm) http(t *testing.T, b *bed, verb, agent, place, body string) string {
	t.Helper()
	l := letter{method: verb, at: "/agents/" + agent + "/a2a" + place, body: body, header: map[string]string{"A2A-Version": f.version}}
	if f.version == a2a.Version03 {
		l.at, l.header = "/agents/"+agent+"/a2a/v1"+place, nil
	}
	if body == "" {
		l.media = "-"
	}
	return string(b.send(t, l).body)
}

func (f pushForm) grpc(t *testing.T, b *bed, method string, params map[string]any) string {
	t.Helper()
	got := b.remote(t, b.clientTLS(t, b.dev.Client)).Call(t.Context(), method, [][]byte{request(t, method, string(mustJSON(t, params)))})
	var all []string
	for _, m := range got.Messages {
		all = append(all, string(m))
	}
	return strings.Join(append(all, got.Details), "\n")
}

// taskIn is the id of the task that an answer names first.
func (f pushForm) taskIn(t *testing.T, answer string) string {
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
		t.Fatalf("%s: no task in %s", f.name, answer)
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

// pushStage is a gateway whose state outlives it, with agents of every protocol.
type pushStage struct {
	*bed
	troupe *troupe
	hook   *pushReceiver
	plan   plan
}

// pushSides are the agents behind the gateway of these tests.
func pushSides() map[string]side {
	return map[string]side{
		"A2A 1.0": {"a2a@1.0", a2a.Binding, a2a.Version, ""}, "A2A 0.3": {"a2a@0.3", a2a.Binding, a2a.Version03, ""},
		"MCP": {"mcp@" + mcp.Modern, mcp.Binding, mcp.Modern, ""}, "MCP 2025": {"mcp@" + mcp.Legacy, mcp.Binding, mcp.Legacy, ""}, "µACP": {"uacp", uacp.Binding, "", ""}, "AINP": {"ainp", ainp.Binding, "", ""},
		"SLIM": {"slim@" + slim.VersionA2A + "+rpc", slim.Binding, slim.VersionA2A, slim.FormRPC},
	}
}

func newPushStage(t *testing.T) *pushStage {
	t.Helper()
	return newPushStageOn(t, config.State{Path: filepath.Join(t.TempDir(), "state.db")})
}

func newPushStageOn(t *testing.T, state config.State) *pushStage {
	t.Helper()
	s := &pushStage{plan: plan{config: config.Config{State: state}}}
	net := newSLIMNet(t, &s.plan)
	s.plan.config.SLIM.Nodes[0].Caller = "spiffe://" + devTrustDomain + "/troupe"
	s.bed = newBed(t, s.plan)
	s.bed.slim = net
	s.troupe = newTroupe(t, s.bed)
	s.hook = newPushReceiver(t, s.bed)
	s.hire(t)
	return s
}

func (s *pushStage) hire(t *testing.T) {
	t.Helper()
	for name, agent := range pushSides() {
		if !s.troupe.hires(t, agent) {
			t.Fatalf("no agent of %s", name)
		}
	}
}

// restart ends the gateway, and starts another one on the same state.
func (s *pushStage) restart(t *testing.T) {
	t.Helper()
	s.stop()
	s.start(t, s.plan)
	s.hire(t)
}

func (s *pushStage) agent(name string) string { return s.troupe.listed(pushSides()[name], player) }

// pushPath is the path of the webhook of one case.
func pushPath(words ...string) string {
	return "/" + strings.NewReplacer(" ", "-", "/", "-", "µ", "u").Replace(strings.Join(words, "/"))
}

// told demands that the notifications of a path are as A2A wants them: 1.0 posts a
// StreamResponse (1.0, section 4.3.3), 0.3 the Task (0.3, section 9.5), each with
// the token of the configuration.
func (h *pushReceiver) told(t *testing.T, path string, f pushForm) {
	t.Helper()
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.taken[path]) == 0 {
		t.Errorf("%s: no notification", path)
	}
	for _, n := range h.taken[path] {
		var doc map[string]json.RawMessage
		must(t, json.Unmarshal([]byte(n.body), &doc))
		header, want := "A2A-Notification-Token", []string{"task", "statusUpdate", "artifactUpdate"}
		whole := len(doc) == 1 && slices.ContainsFunc(want, func(name string) bool { return doc[name] != nil })
		if f.version == a2a.Version03 {
			header = "X-A2A-Notification-Token"
			whole = string(doc["kind"]) == `"task"` && doc["contextId"] != nil && doc["status"] != nil
		}
		pushread.Task(t, f.version == a2a.Version03, []byte(n.body)) // the official library reads it
		if !whole || n.header.Get(header) != pushToken {
			t.Errorf("%s: the notification of A2A %s is %s with %v", path, f.version, n.body, n.header)
		}
	}
}

// TestPush_WaitingSendIsRegisteredAndDelivered: a send that waits for its answer has
// a push notification configuration in it (A2A 1.0, section 3.2.2,
// SendMessageConfiguration.task_push_notification_config; 0.3, section 7.1.2,
// MessageSendConfiguration.pushNotificationConfig). It is registered for the task
// that the send makes, listed, and the end of the task is posted.
func TestPush_WaitingSendIsRegisteredAndDelivered(t *testing.T) {
	t.Parallel()
	s := newPushStage(t)
	for name := range pushSides() {
		for _, f := range pushForms() {
			for what, one := range map[string]sending{"waiting": {}, "stream": {stream: true}, "at once": {returns: true}} {
				t.Run(f.name+" to "+name+" "+what, func(t *testing.T) {
					t.Parallel()
					path := pushPath("end", f.name, name, what)
					one.agent, one.words, one.hook = s.agent(name), "say hello", s.hook.url+path
					task := f.taskIn(t, f.send(t, s.bed, one))
					s.hook.until(t, path, "completed")
					if list := f.list(t, s.bed, one.agent, task); !strings.Contains(list, path) || !strings.Contains(list, "p1") {
						t.Errorf("the list of configurations is %s", list)
					}
					s.hook.told(t, path, f)
				})
			}
		}
	}
}

// TestPush_SixPairsAcrossARestart: callers of A2A 1.0 and 0.3, agents of A2A, MCP
// and µACP. A waiting send with an inline configuration ends in input required; the
// gateway is restarted on its state; the answer leads to the end. Every state
// is posted, in order, with its ECT, and the configuration is listed all the time. That
// the task works again is said by the gateway, for agents whose protocol has no task that
// goes on with the answer; an agent of A2A says itself what it does, and this one does not.
func TestPush_SixPairsAcrossARestart(t *testing.T) {
	t.Parallel()
	for name, state := range pushBackends(t) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			newPushStageOn(t, state).sixPairs(t)
		})
	}
}

func (s *pushStage) sixPairs(t *testing.T) {
	t.Helper()
	type pair struct {
		form              pushForm
		agent, path, task string
		want              []string
	}
	var pairs []*pair
	for _, f := range jsonRPCForms() {
		for _, name := range []string{"A2A 1.0", "MCP", "µACP"} {
			p := &pair{form: f, agent: s.agent(name), path: pushPath("pair", f.name, name), want: []string{"input-required", "working", "completed"}}
			if name == "A2A 1.0" {
				p.want = []string{"input-required", "completed"}
			}
			answer := f.send(t, s.bed, sending{agent: p.agent, words: "ask name", hook: s.hook.url + p.path})
			p.task = f.taskIn(t, answer)
			pairs = append(pairs, p)
		}
	}
	for _, p := range pairs {
		if got := s.hook.until(t, p.path, "input-required"); !slices.Equal(got, []string{"input-required"}) {
			t.Errorf("%s: before the restart %q", p.path, got)
		}
	}
	s.restart(t)
	for _, p := range pairs {
		if list := p.form.list(t, s.bed, p.agent, p.task); !strings.Contains(list, p.path) {
			t.Errorf("%s: after the restart the list of configurations is %s", p.path, list)
		}
		if answer := p.form.send(t, s.bed, sending{agent: p.agent, task: p.task, words: "Ada"}); !strings.Contains(strings.ToLower(answer), "completed") {
			t.Errorf("%s: the answer leads to %s", p.path, answer)
		}
		if got := s.hook.until(t, p.path, "completed"); !slices.Equal(got, p.want) {
			t.Errorf("%s: posted in this order: %q, want %q", p.path, got, p.want)
		}
		s.hook.told(t, p.path, p.form)
	}
}

// TestPush_WorkingIsPosted: an agent of A2A says on the way that it works, and each
// state that it says is posted, in order.
func TestPush_WorkingIsPosted(t *testing.T) {
	t.Parallel()
	s := newPushStage(t)
	for _, f := range pushForms() {
		for _, name := range []string{"A2A 1.0", "A2A 0.3"} {
			t.Run(f.name+" to "+name, func(t *testing.T) {
				t.Parallel()
				path := pushPath("working", f.name, name)
				f.send(t, s.bed, sending{agent: s.agent(name), words: doTell, hook: s.hook.url + path, stream: true})
				got := s.hook.until(t, path, "completed")
				if !slices.Equal(got, []string{"submitted", "working", "completed"}) {
					t.Errorf("posted in this order: %q", got)
				}
				s.hook.told(t, path, f)
			})
		}
	}
}

// TestPush_PausedTasksGoOn: the configuration of a task that pauses holds for what
// comes later, whichever way the message that began it waited, and so does one that
// comes with the answer.
func TestPush_PausedTasksGoOn(t *testing.T) {
	t.Parallel()
	s := newPushStage(t)
	for _, name := range []string{"A2A 1.0", "A2A 0.3", "MCP", "MCP 2025", "µACP"} {
		for _, f := range pushForms() {
			for what, one := range map[string]sending{"waiting": {}, "stream": {stream: true}, "at once": {returns: true}, "unnamed": {}} {
				t.Run(fmt.Sprintf("%s to %s %s", f.name, name, what), func(t *testing.T) {
					t.Parallel()
					path, second := pushPath("pause", f.name, name, what), pushPath("answer", f.name, name, what)
					one.agent, one.words, one.hook = s.agent(name), "ask name", s.hook.url+path
					if what == "unnamed" { // only the answer has a configuration
						one.hook = ""
					}
					task := f.taskIn(t, f.send(t, s.bed, one))
					if one.hook != "" {
						s.hook.until(t, path, "input-required")
					}
					f.send(t, s.bed, sending{agent: one.agent, task: task, words: "Ada", stream: one.stream, returns: one.returns, hook: s.hook.url + second})
					got := s.hook.until(t, second, "completed")
					if slices.Contains(got, "input-required") {
						t.Errorf("the second webhook is told of what was before it: %q", got)
					}
					s.hook.told(t, second, f)
				})
			}
		}
	}
}

// TestPush_QuestionOfTheGateway: the gateway itself asks for the arguments of a tool.
// The configuration of the message that it asks about is that of the task.
func TestPush_QuestionOfTheGateway(t *testing.T) {
	t.Parallel()
	s := newPushStage(t)
	for _, f := range pushForms() {
		t.Run(f.name, func(t *testing.T) {
			t.Parallel()
			path := pushPath("arguments", f.name)
			task := f.taskIn(t, f.send(t, s.bed, sending{agent: "forecast", words: "how is it?", hook: s.hook.url + path}))
			s.hook.until(t, path, "input-required")
			if list := f.list(t, s.bed, "forecast", task); !strings.Contains(list, path) {
				t.Errorf("the list of configurations is %s", list)
			}
			s.hook.told(t, path, f)
		})
	}
}

// TestPush_RefusedBeforeTheAgentIsAsked: a configuration that cannot be served is an
// error that says why, and the agent hears nothing of the message.
func TestPush_RefusedBeforeTheAgentIsAsked(t *testing.T) {
	t.Parallel()
	s := newPushStage(t)
	const words = "count never"
	for name := range pushSides() {
		for _, f := range pushForms() {
			for what, hook := range map[string]string{"a listed agent": s.talker.URL(), "this gateway": s.at.Public + "/x", "no URL": "hook", "no TLS": "http://hook.example/x"} {
				answer := f.send(t, s.bed, sending{agent: s.agent(name), words: words, hook: hook})
				if strings.Contains(answer, "said 1") || !strings.Contains(answer, "egress policy") {
					t.Errorf("%s to %s, %s: %s", f.name, name, what, answer)
				}
			}
		}
	}
	s.troupe.agents.mu.Lock()
	defer s.troupe.agents.mu.Unlock()
	if len(s.troupe.agents.said) != 0 {
		t.Errorf("agents were asked: %v", s.troupe.agents.said)
	}
}
