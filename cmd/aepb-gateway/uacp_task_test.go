package main

import (
	"encoding/json"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/aepb/aepb-gateway/ect/identity"
	"github.com/aepb/aepb-gateway/translators"
	"github.com/aepb/aepb-gateway/translators/canonical"
	"github.com/aepb/aepb-gateway/translators/uacp"
)

const jobID = "job/1"

// job is the only task of a µACP agent, which is done as soon as it is observed.
type job struct {
	mu    sync.Mutex
	state canonical.State
	note  string
	heard []canonical.Op
}

// asked is what the agent answers; other: to what is not about the job.
func (j *job) asked(m *canonical.Message, other canonical.Body) canonical.Body {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.heard = append(j.heard, m.Op)
	switch body := m.Body.(type) {
	case *canonical.Invoke:
		j.state = canonical.StateWorking
	case *canonical.TaskQuery:
		if body.ID != jobID {
			return &canonical.Error{Code: canonical.CodeTaskNotFound, Message: "no such job"}
		}
		if m.Op == canonical.OpTaskCancel {
			j.state = canonical.StateCanceled
		}
	default:
		return other
	}
	task := &canonical.Task{ID: jobID, Status: canonical.Status{State: j.state}}
	if j.note != "" {
		task.Artifacts = []canonical.Artifact{{ID: "note", Parts: []canonical.Part{{Kind: canonical.KindText, Text: j.note}}}}
	}
	return &canonical.Result{Task: task}
}

// observed: whoever observes that hears of events, to the end of the work.
func (j *job) observed(topic string) bool {
	if j == nil {
		return true
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	if topic != uacp.TopicTask+jobID {
		return false
	}
	j.state = canonical.StateCompleted
	return true
}

func (j *job) notes(text string) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.note = text
}

func (j *job) was(op canonical.Op) bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	return slices.Contains(j.heard, op)
}

// TestTasksOfUACPAgents: an A2A caller asks about, observes and cancels the work
// of a µACP agent, each in the agent's own topic.
func TestTasksOfUACPAgents(t *testing.T) {
	t.Parallel()
	b := newBed(t, plan{})
	begin := func(name string, j *job) (a2a func(method, params string) reply, id string) {
		b.uacpAgent(t, name, &uacpFake{job: j, tells: []string{"lifted"}}, "")
		a2a = func(method, params string) reply {
			return b.send(t, letter{at: "/agents/" + name + "/a2a", body: `{"jsonrpc":"2.0","id":7,"method":"` + method + `","params":` + params + `}`})
		}
		got := a2a("SendMessage", `{"message":{"messageId":"m1","role":"ROLE_USER","parts":[{"text":"lift"}]},"configuration":{"returnImmediately":true}}`)
		var answer struct {
			Result struct{ Task struct{ ID string } }
		}
		if err := json.Unmarshal(got.body, &answer); err != nil || answer.Result.Task.ID == "" || !strings.Contains(string(got.body), "TASK_STATE_WORKING") {
			t.Fatalf("%s: got %d %s", name, got.status, short(got.body))
		}
		return a2a, `{"id":` + string(mustJSON(t, answer.Result.Task.ID)) + `}`
	}
	crane, winch := &job{}, &job{}
	a2a, id := begin("crane", crane)
	crane.notes("half way")
	var got reply
	if !soon(t.Context(), func() bool { // the agent may not have named its task yet
		got = a2a("GetTask", id)
		return strings.Contains(string(got.body), "half way")
	}) || !strings.Contains(string(got.body), "TASK_STATE_WORKING") || !crane.was(canonical.OpTaskGet) {
		t.Errorf("meanwhile: %d %s", got.status, short(got.body))
	}
	got = a2a("SubscribeToTask", id)
	if text := string(got.body); got.status != http.StatusOK || !strings.Contains(text, `"lifted"`) || !strings.Contains(text, "TASK_STATE_COMPLETED") {
		t.Errorf("observed: %d %s", got.status, text)
	}
	a2a, id = begin("winch", winch)
	if got := a2a("CancelTask", id); !strings.Contains(string(got.body), "TASK_STATE_CANCELED") ||
		!soon(t.Context(), func() bool { return winch.was(canonical.OpTaskCancel) }) {
		t.Errorf("canceled: %d %s", got.status, short(got.body))
	}
	b.works(t)
}

func mustJSON(t *testing.T, v any) []byte {
	t.Helper()
	raw, err := json.Marshal(v)
	must(t, err)
	return raw
}

// wish is a request in µACP.
func wish(t *testing.T, op canonical.Op, task string, body canonical.Body) []byte {
	t.Helper()
	m := &canonical.Message{Op: op, Phase: canonical.PhaseRequest, Body: body, Correlation: canonical.Correlation{WireID: json.RawMessage(`42`)}}
	m.Conversation.TaskID = task
	wire, _, err := uacp.New(translators.Config{}).Encode(m, translators.Target{Form: uacp.FormEnveloped})
	must(t, err)
	return wire.Body
}

// heard is what a µACP caller is answered.
func heard(t *testing.T, body []byte, re canonical.Op) *canonical.Message {
	t.Helper()
	m, err := uacp.New(translators.Config{}).Decode(translators.Wire{Body: body, Re: re})
	must(t, err)
	return m
}

// taskOf is the task of an answer, and of nothing else.
func taskOf(t *testing.T, m *canonical.Message) *canonical.Task {
	t.Helper()
	r, ok := m.Body.(*canonical.Result)
	if !ok || r.Task == nil {
		t.Fatalf("the answer is %+v", m.Body)
	}
	return r.Task
}

// TestTasksOfUACPCallers: a µACP caller sends words to a tool with arguments and
// is asked for them (profile P3); what waits for its answer can be asked about,
// observed and canceled.
func TestTasksOfUACPCallers(t *testing.T) {
	t.Parallel()
	b := newBed(t, plan{})
	ask := func(op canonical.Op, task string, body canonical.Body) *canonical.Message {
		return heard(t, b.askUACP(t, "forecast", wish(t, op, task, body)), op)
	}
	begun := taskOf(t, ask(canonical.OpInvoke, "", telling("how is it?")))
	if begun.ID == "" || begun.Status.State != canonical.StateInputRequired || len(begun.Inputs) != 1 {
		t.Fatalf("it is asked %+v", begun)
	}
	query := &canonical.TaskQuery{ID: begun.ID}
	if got := taskOf(t, ask(canonical.OpTaskGet, "", query)); got.ID != begun.ID || got.Status.State != canonical.StateInputRequired {
		t.Errorf("asked about it: %+v", got)
	}
	conn := b.dialUACP(t, "forecast", b.dev.Client)
	must(t, writeFrameTo(conn, wish(t, canonical.OpTaskSubscribe, "", query)))
	events, _, tokens, last := watch(t, conn) // nothing more comes unless somebody acts
	if len(events) != 1 || events[0].Task == nil || events[0].Task.ID != begun.ID || last.Verb != uacp.Observe || last.Code != 3 || len(tokens) == 0 {
		t.Errorf("observed: %s, then %d/%x with %d tokens", mustJSON(t, events), last.Verb, last.Code, len(tokens))
	}
	if got := taskOf(t, ask(canonical.OpTaskCancel, "", query)); got.ID != begun.ID || got.Status.State != canonical.StateCanceled {
		t.Errorf("canceled: %+v", got)
	}
	if said, ok := ask(canonical.OpTaskCancel, "", query).Body.(*canonical.Error); !ok || said.Code != canonical.CodeNotCancelable {
		t.Errorf("canceled again: %+v", said)
	}
	query.ID = "nobody's"
	for _, op := range []canonical.Op{canonical.OpTaskGet, canonical.OpTaskCancel, canonical.OpTaskSubscribe} {
		if said, ok := ask(op, "", query).Body.(*canonical.Error); !ok || said.Code != canonical.CodeTaskNotFound {
			t.Errorf("%s of nobody's: %+v", op, said)
		}
	}
	b.works(t)
}

// TestUACPCallersAnswer: the answer to the question for arguments goes on with
// the task that asked (profile P3); a bare caller cannot be asked, and is told
// what to send.
func TestUACPCallersAnswer(t *testing.T) {
	t.Parallel()
	b := newBed(t, plan{})
	begun := taskOf(t, heard(t, b.askUACP(t, "forecast", wish(t, canonical.OpInvoke, "", telling("how is it?"))), canonical.OpInvoke))
	answer := &canonical.Invoke{Turn: canonical.Content{ID: "m2", Role: canonical.RoleCaller, Parts: []canonical.Part{
		{Kind: canonical.KindData, Data: json.RawMessage(`{"city":"Oslo","day":"2026-11-21"}`)},
	}}}
	done := heard(t, b.askUACP(t, "forecast", wish(t, canonical.OpInvoke, begun.ID, answer)), canonical.OpInvoke)
	if r, ok := done.Body.(*canonical.Result); !ok || !strings.Contains(string(mustJSON(t, r)), "Sunny in Oslo") {
		t.Errorf("the answer leads to %s", mustJSON(t, done.Body))
	}
	if got := taskOf(t, heard(t, b.askUACP(t, "forecast", wish(t, canonical.OpTaskGet, "", &canonical.TaskQuery{ID: begun.ID})), canonical.OpTaskGet)); got.Status.State != canonical.StateCompleted || len(got.Artifacts) == 0 {
		t.Errorf("the task is then %+v", got)
	}
	body := b.askUACP(t, "forecast", frameOf(t, uacp.FormBare, telling(secret)))
	refused, ok := heard(t, body, canonical.OpInvoke).Body.(*canonical.Error)
	if !ok || refused.Code != canonical.CodeInvalidRequest || !strings.Contains(refused.Message, "takes arguments") || strings.Contains(string(body), secret) {
		t.Errorf("a bare caller hears %s", short(body))
	}
	b.works(t)
}

// TestListsOfUACPCallers: a µACP caller lists its work, and nobody else's, page by
// page, in either form of carriage; a page is never longer than a frame.
func TestListsOfUACPCallers(t *testing.T) {
	t.Parallel()
	b := newBed(t, plan{})
	const work, room = 24, 4000 // bytes that each task takes: more than one frame holds of them
	long := strings.Repeat("c", room)
	for n := range work {
		begin := &canonical.Message{
			Op: canonical.OpInvoke, Phase: canonical.PhaseRequest, Body: telling("how is it?"), Correlation: canonical.Correlation{WireID: json.RawMessage(`42`)},
		}
		begin.Conversation.ContextID = long + strconv.Itoa(n)
		begun := taskOf(t, heard(t, b.askUACP(t, "forecast", frameIn(t, uacp.FormEnveloped, begin)), canonical.OpInvoke))
		if begun.ContextID != begin.Conversation.ContextID {
			t.Fatalf("%d: the conversation is %s", n, short([]byte(begun.ContextID)))
		}
	}
	list := func(carriage string, who *identity.SVID, filter *canonical.TaskFilter) (*canonical.TaskList, []string) {
		conn := b.dialUACP(t, "forecast", who)
		must(t, writeFrameTo(conn, frameIn(t, carriage, &canonical.Message{
			Op: canonical.OpTaskList, Phase: canonical.PhaseRequest, Body: filter, Correlation: canonical.Correlation{WireID: json.RawMessage(`42`)},
		})))
		body, err := readFrameOf(conn)
		must(t, err)
		page, ok := heard(t, body, canonical.OpTaskList).Body.(*canonical.TaskList)
		if !ok {
			t.Fatalf("%s: the list is %s", carriage, short(body))
		}
		tokens, err := uacpEvidence(body)
		must(t, err)
		return page, tokens
	}
	for _, carriage := range []string{uacp.FormEnveloped, uacp.FormBare} {
		seen, pages := map[string]bool{}, 0
		for cursor := "first"; cursor != ""; pages++ {
			filter := &canonical.TaskFilter{Size: 100}
			if pages > 0 {
				filter.Cursor = cursor
			}
			page, tokens := list(carriage, b.dev.Client, filter)
			if page.Total != work || (len(tokens) > 0) != (carriage == uacp.FormEnveloped) {
				t.Errorf("%s: %d in all, %d tokens", carriage, page.Total, len(tokens))
			}
			for _, task := range page.Tasks {
				if seen[task.ID] || !strings.HasPrefix(task.ContextID, long) || task.Status.State != canonical.StateInputRequired {
					t.Errorf("%s: again, or other than it was: %s in %s", carriage, task.ID, task.Status.State)
				}
				seen[task.ID] = true
			}
			cursor = page.Next
		}
		if len(seen) != work || pages < 2 {
			t.Errorf("%s: %d tasks on %d pages", carriage, len(seen), pages)
		}
	}
	if page, _ := list(uacp.FormEnveloped, b.dev.Client, &canonical.TaskFilter{ContextID: long + "7"}); len(page.Tasks) != 1 || page.Tasks[0].ContextID != long+"7" {
		t.Errorf("of one conversation: %d", len(page.Tasks))
	}
	if page, _ := list(uacp.FormBare, b.dev.Client, &canonical.TaskFilter{State: canonical.StateCompleted}); len(page.Tasks) != 0 || page.Total != 0 {
		t.Errorf("of those that are done: %d", len(page.Tasks))
	}
	if page, _ := list(uacp.FormEnveloped, b.svid(t, "/stranger"), &canonical.TaskFilter{}); len(page.Tasks) != 0 || page.Total != 0 {
		t.Errorf("a stranger is told of %d tasks", len(page.Tasks))
	}
	b.works(t)
}

// frameIn is a message in µACP.
func frameIn(t *testing.T, carriage string, m *canonical.Message) []byte {
	t.Helper()
	wire, _, err := uacp.New(translators.Config{}).Encode(m, translators.Target{Form: carriage})
	must(t, err)
	return wire.Body
}
