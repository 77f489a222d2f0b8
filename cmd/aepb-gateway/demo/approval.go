package demo

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/aepb/aepb-gateway/ect"
)

// ApprovalTool is the tool of the calculator that needs an approver in the scene of approvals.
const ApprovalTool = "add"

const pollEvery = 50 * time.Millisecond

// PlayApproval has a caller call a tool that needs an approver, shows what the approver is shown, grants the call and
// denies another one, and verifies the evidence of both decisions.
func (s *Stage) PlayApproval(ctx context.Context, with Scene) error {
	f := s.open(with)
	f.say("1. A rule of the operator says that an approver decides about the tool add. An unmodified A2A client calls it.")
	task := f.ask(ctx, 3)
	f.evidence(ctx, ect.ActIntent)

	f.say("2. An approver reads what waits: all of the call, and what follows from a decision.")
	id, shown := f.read(ctx)

	f.say("3. The approver grants it. The gateway sends the call once, and the task has the result.")
	f.decide(ctx, id, shown, "approve")
	f.evidence(ctx, ect.ActApprovalGranted)
	f.result(ctx, task, "TASK_STATE_COMPLETED")

	f.say("4. The same tool with other arguments is another call. The approver denies it, and it is never sent.")
	task = f.ask(ctx, 1000000)
	f.evidence(ctx, ect.ActIntent)
	id, shown = f.read(ctx)
	f.decide(ctx, id, shown, "deny")
	f.evidence(ctx, ect.ActApprovalDenied)
	f.result(ctx, task, "TASK_STATE_REJECTED")

	f.prove(ctx)
	return f.err
}

// taskReply is a task as A2A over HTTP has it.
type taskReply struct {
	ID     string
	Status struct{ State string }
}

func (f *scene) decode(body []byte, into any) {
	if f.err == nil {
		f.err = json.Unmarshal(body, into)
	}
}

// ask calls the tool, and returns the task that waits.
func (f *scene) ask(ctx context.Context, a int) string {
	message := fmt.Sprintf(`{"message":{"messageId":"m%d","role":"ROLE_USER","parts":[{"data":{"skill":%q,"input":{"a":%d,"b":1}}}]}}`, a, ApprovalTool, a)
	got, _ := f.send(ctx, http.MethodPost, f.stage.publicURL+"/agents/calculator/a2a/message:send", message, http.StatusOK)
	var reply struct{ Task taskReply }
	f.decode(got, &reply)
	f.say("   task %s: %s", reply.Task.ID, reply.Task.Status.State)
	return reply.Task.ID
}

// read shows the one approval that waits, and returns its id and the hash of its text.
func (f *scene) read(ctx context.Context) (id, shown string) {
	id, shown, text := f.fetch(ctx)
	for line := range strings.Lines(text) {
		f.say("   │ %s", strings.TrimSuffix(line, "\n"))
	}
	return id, shown
}

// fetch is the one approval that waits: its id, and its text with the hash.
func (f *scene) fetch(ctx context.Context) (id, shown, text string) {
	got, _ := f.send(ctx, http.MethodGet, f.Admin+"/api/approvals?state=pending", "", http.StatusOK)
	var list struct{ Approvals []struct{ ID string } }
	f.decode(got, &list)
	if f.err == nil && len(list.Approvals) != 1 {
		f.err = fmt.Errorf("%d approvals wait, expected one", len(list.Approvals))
	}
	if f.err != nil {
		return "", "", ""
	}
	got, _ = f.send(ctx, http.MethodGet, f.Admin+"/api/approvals/"+list.Approvals[0].ID, "", http.StatusOK)
	var one struct{ Shown, Text string }
	f.decode(got, &one)
	return list.Approvals[0].ID, one.Shown, one.Text
}

// decide is what the approver wants.
func (f *scene) decide(ctx context.Context, id, shown, decision string) {
	f.send(ctx, http.MethodPost, f.Admin+"/api/approvals/"+id+"/decision", fmt.Sprintf(`{"decision":%q,"shown":%q,"reason":"seen"}`, decision, shown), http.StatusOK)
}

// result waits until a task has ended, which must be in this state, and shows it.
func (f *scene) result(ctx context.Context, task, state string) {
	for f.err == nil {
		got, _ := f.send(ctx, http.MethodGet, f.stage.publicURL+"/agents/calculator/a2a/tasks/"+task, "", http.StatusOK)
		var reply taskReply
		f.decode(got, &reply)
		switch reply.Status.State {
		case "TASK_STATE_AUTH_REQUIRED", "TASK_STATE_WORKING":
		case state:
			f.say("   task %s: %s %s", task, state, shorten(string(got)))
			return
		default:
			f.err = fmt.Errorf("the task is %s, expected %s", shorten(string(got)), state)
		}
		select {
		case <-time.After(pollEvery):
		case <-ctx.Done():
			f.err = fmt.Errorf("the task has not ended: %w", ctx.Err())
		}
	}
}
