package stories

import (
	"encoding/json"
	"net/http"
	"strconv"
	"strings"
	"testing"

	"github.com/aepb/aepb-gateway/ect/identity"
	gatewaytest "github.com/aepb/aepb-gateway/test/harness/gateway"
	"github.com/aepb/aepb-gateway/translators"
	"github.com/aepb/aepb-gateway/translators/canonical"
	"github.com/aepb/aepb-gateway/translators/uacp"
)

// TestUACPTasks_OfAgents: an A2A caller asks about, observes and cancels the work
// of a µACP agent, each in the agent's own topic.
func TestUACPTasks_OfAgents(t *testing.T) {
	t.Parallel()
	b := gatewaytest.NewFixture(t, gatewaytest.Plan{})
	begin := func(name string, j *gatewaytest.Job) (a2a func(method, params string) gatewaytest.Reply, id string) {
		b.UACPAgent(t, name, &gatewaytest.UACPFake{Job: j, Tells: []string{"lifted"}}, "")
		a2a = func(method, params string) gatewaytest.Reply {
			return b.Send(t, gatewaytest.HTTPRequest{At: "/agents/" + name + "/a2a", Body: `{"jsonrpc":"2.0","id":7,"method":"` + method + `","params":` + params + `}`})
		}
		got := a2a("SendMessage", `{"message":{"messageId":"m1","role":"ROLE_USER","parts":[{"text":"lift"}]},"configuration":{"returnImmediately":true}}`)
		var answer struct {
			Result struct{ Task struct{ ID string } }
		}
		if err := json.Unmarshal(got.Body, &answer); err != nil || answer.Result.Task.ID == "" || !strings.Contains(string(got.Body), "TASK_STATE_WORKING") {
			t.Fatalf("%s: got %d %s", name, got.Status, gatewaytest.Short(got.Body))
		}
		return a2a, `{"id":` + string(gatewaytest.MustJSON(t, answer.Result.Task.ID)) + `}`
	}
	crane, winch := &gatewaytest.Job{}, &gatewaytest.Job{}
	a2a, id := begin("crane", crane)
	crane.Notes("half way")
	var got gatewaytest.Reply
	if !gatewaytest.Soon(t.Context(), func() bool { // the agent may not have named its task yet
		got = a2a("GetTask", id)
		return strings.Contains(string(got.Body), "half way")
	}) || !strings.Contains(string(got.Body), "TASK_STATE_WORKING") || !crane.Was(canonical.OpTaskGet) {
		t.Errorf("meanwhile: %d %s", got.Status, gatewaytest.Short(got.Body))
	}
	got = a2a("SubscribeToTask", id)
	if text := string(got.Body); got.Status != http.StatusOK || !strings.Contains(text, `"lifted"`) || !strings.Contains(text, "TASK_STATE_COMPLETED") {
		t.Errorf("observed: %d %s", got.Status, text)
	}
	a2a, id = begin("winch", winch)
	if got := a2a("CancelTask", id); !strings.Contains(string(got.Body), "TASK_STATE_CANCELED") ||
		!gatewaytest.Soon(t.Context(), func() bool { return winch.Was(canonical.OpTaskCancel) }) {
		t.Errorf("canceled: %d %s", got.Status, gatewaytest.Short(got.Body))
	}
	b.Works(t)
}

// heard is what a µACP caller is answered.
func heard(t *testing.T, body []byte, re canonical.Op) *canonical.Message {
	t.Helper()
	m, err := uacp.New(translators.Config{}).Decode(translators.Wire{Body: body, Re: re})
	gatewaytest.Must(t, err)
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

// TestUACPTasks_OfCallers: a µACP caller sends words to a tool with arguments and
// is asked for them (profile P3); what waits for its answer can be asked about,
// observed and canceled.
func TestUACPTasks_OfCallers(t *testing.T) {
	t.Parallel()
	b := gatewaytest.NewFixture(t, gatewaytest.Plan{})
	ask := func(op canonical.Op, task string, body canonical.Body) *canonical.Message {
		return heard(t, b.AskUACP(t, "forecast", gatewaytest.UACPRequest(t, op, task, body)), op)
	}
	begun := taskOf(t, ask(canonical.OpInvoke, "", gatewaytest.TextInvoke("how is it?")))
	if begun.ID == "" || begun.Status.State != canonical.StateInputRequired || len(begun.Inputs) != 1 {
		t.Fatalf("it is asked %+v", begun)
	}
	query := &canonical.TaskQuery{ID: begun.ID}
	if got := taskOf(t, ask(canonical.OpTaskGet, "", query)); got.ID != begun.ID || got.Status.State != canonical.StateInputRequired {
		t.Errorf("asked about it: %+v", got)
	}
	conn := b.DialUACP(t, "forecast", b.Dev.Client)
	gatewaytest.Must(t, gatewaytest.WriteFrameTo(conn, gatewaytest.UACPRequest(t, canonical.OpTaskSubscribe, "", query)))
	events, _, tokens, last := gatewaytest.Watch(t, conn) // nothing more comes unless somebody acts
	if len(events) != 1 || events[0].Task == nil || events[0].Task.ID != begun.ID || last.Verb != uacp.Observe || last.Code != 3 || len(tokens) == 0 {
		t.Errorf("observed: %s, then %d/%x with %d tokens", gatewaytest.MustJSON(t, events), last.Verb, last.Code, len(tokens))
	}
	if got := taskOf(t, ask(canonical.OpTaskCancel, "", query)); got.ID != begun.ID || got.Status.State != canonical.StateCanceled {
		t.Errorf("canceled: %+v", got)
	}
	if answer, ok := ask(canonical.OpTaskCancel, "", query).Body.(*canonical.Error); !ok || answer.Code != canonical.CodeNotCancelable {
		t.Errorf("canceled again: %+v", answer)
	}
	query.ID = "nobody's"
	for _, op := range []canonical.Op{canonical.OpTaskGet, canonical.OpTaskCancel, canonical.OpTaskSubscribe} {
		if answer, ok := ask(op, "", query).Body.(*canonical.Error); !ok || answer.Code != canonical.CodeTaskNotFound {
			t.Errorf("%s of nobody's: %+v", op, answer)
		}
	}
	b.Works(t)
}

// TestUACPCaller_SuppliesMissingArguments: the answer to the question for arguments goes on with
// the task that asked (profile P3); a bare caller cannot be asked, and is told
// what to send.
func TestUACPCaller_SuppliesMissingArguments(t *testing.T) {
	t.Parallel()
	b := gatewaytest.NewFixture(t, gatewaytest.Plan{})
	begun := taskOf(t, heard(t, b.AskUACP(t, "forecast", gatewaytest.UACPRequest(t, canonical.OpInvoke, "", gatewaytest.TextInvoke("how is it?"))), canonical.OpInvoke))
	answer := &canonical.Invoke{Turn: canonical.Content{ID: "m2", Role: canonical.RoleCaller, Parts: []canonical.Part{
		{Kind: canonical.KindData, Data: json.RawMessage(`{"city":"Oslo","day":"2026-11-21"}`)},
	}}}
	done := heard(t, b.AskUACP(t, "forecast", gatewaytest.UACPRequest(t, canonical.OpInvoke, begun.ID, answer)), canonical.OpInvoke)
	if r, ok := done.Body.(*canonical.Result); !ok || !strings.Contains(string(gatewaytest.MustJSON(t, r)), "Sunny in Oslo") {
		t.Errorf("the answer leads to %s", gatewaytest.MustJSON(t, done.Body))
	}
	if got := taskOf(t, heard(t, b.AskUACP(t, "forecast", gatewaytest.UACPRequest(t, canonical.OpTaskGet, "", &canonical.TaskQuery{ID: begun.ID})), canonical.OpTaskGet)); got.Status.State != canonical.StateCompleted || len(got.Artifacts) == 0 {
		t.Errorf("the task is then %+v", got)
	}
	body := b.AskUACP(t, "forecast", gatewaytest.FrameOf(t, uacp.FormBare, gatewaytest.TextInvoke(gatewaytest.Secret)))
	refused, ok := heard(t, body, canonical.OpInvoke).Body.(*canonical.Error)
	if !ok || refused.Code != canonical.CodeInvalidRequest || !strings.Contains(refused.Message, "takes arguments") || strings.Contains(string(body), gatewaytest.Secret) {
		t.Errorf("a bare caller hears %s", gatewaytest.Short(body))
	}
	b.Works(t)
}

// TestUACPTasks_ListedPageByPage: a µACP caller lists its work, and nobody else's, page by
// page, in either form of carriage; a page is never longer than a frame.
func TestUACPTasks_ListedPageByPage(t *testing.T) {
	t.Parallel()
	b := gatewaytest.NewFixture(t, gatewaytest.Plan{})
	const work, space = 24, 4000 // bytes that each task takes: more than one frame holds of them
	long := strings.Repeat("c", space)
	for n := range work {
		begin := &canonical.Message{
			Op: canonical.OpInvoke, Phase: canonical.PhaseRequest, Body: gatewaytest.TextInvoke("how is it?"), Correlation: canonical.Correlation{WireID: json.RawMessage(`42`)},
		}
		begin.Conversation.ContextID = long + strconv.Itoa(n)
		begun := taskOf(t, heard(t, b.AskUACP(t, "forecast", frameIn(t, uacp.FormEnveloped, begin)), canonical.OpInvoke))
		if begun.ContextID != begin.Conversation.ContextID {
			t.Fatalf("%d: the conversation is %s", n, gatewaytest.Short([]byte(begun.ContextID)))
		}
	}
	list := func(carriage string, who *identity.SVID, filter *canonical.TaskFilter) (*canonical.TaskList, []string) {
		conn := b.DialUACP(t, "forecast", who)
		gatewaytest.Must(t, gatewaytest.WriteFrameTo(conn, frameIn(t, carriage, &canonical.Message{
			Op: canonical.OpTaskList, Phase: canonical.PhaseRequest, Body: filter, Correlation: canonical.Correlation{WireID: json.RawMessage(`42`)},
		})))
		body, err := gatewaytest.ReadFrameOf(conn)
		gatewaytest.Must(t, err)
		page, ok := heard(t, body, canonical.OpTaskList).Body.(*canonical.TaskList)
		if !ok {
			t.Fatalf("%s: the list is %s", carriage, gatewaytest.Short(body))
		}
		tokens, err := gatewaytest.UACPEvidence(body)
		gatewaytest.Must(t, err)
		return page, tokens
	}
	for _, carriage := range []string{uacp.FormEnveloped, uacp.FormBare} {
		seen, pages := map[string]bool{}, 0
		for cursor := "first"; cursor != ""; pages++ {
			filter := &canonical.TaskFilter{Size: 100}
			if pages > 0 {
				filter.Cursor = cursor
			}
			page, tokens := list(carriage, b.Dev.Client, filter)
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
	if page, _ := list(uacp.FormEnveloped, b.Dev.Client, &canonical.TaskFilter{ContextID: long + "7"}); len(page.Tasks) != 1 || page.Tasks[0].ContextID != long+"7" {
		t.Errorf("of one conversation: %d", len(page.Tasks))
	}
	if page, _ := list(uacp.FormBare, b.Dev.Client, &canonical.TaskFilter{State: canonical.StateCompleted}); len(page.Tasks) != 0 || page.Total != 0 {
		t.Errorf("of those that are done: %d", len(page.Tasks))
	}
	if page, _ := list(uacp.FormEnveloped, b.SVID(t, "/stranger"), &canonical.TaskFilter{}); len(page.Tasks) != 0 || page.Total != 0 {
		t.Errorf("a stranger is told of %d tasks", len(page.Tasks))
	}
	b.Works(t)
}

// frameIn is a message in µACP.
func frameIn(t *testing.T, carriage string, m *canonical.Message) []byte {
	t.Helper()
	wire, _, err := uacp.New(translators.Config{}).Encode(m, translators.Target{Form: carriage})
	gatewaytest.Must(t, err)
	return wire.Body
}
